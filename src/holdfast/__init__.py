"""Holdfast: a partitioned, replicated in-memory data grid that keeps every acknowledged write."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError, HoldfastError, Refused, RequestError, Unknown

if TYPE_CHECKING:
    from holdfast.core.cluster.state import ClusterState
    from holdfast.core.migration.news import Kind, Loss, News
    from holdfast.runtime.member import Map, Member

__all__ = [
    "ClusterState",
    "ConfigError",
    "HoldfastError",
    "Kind",
    "Loss",
    "Map",
    "Member",
    "News",
    "Refused",
    "RequestError",
    "Unknown",
]

_HOMES = {
    "ClusterState": "holdfast.core.cluster.state",
    "Kind": "holdfast.core.migration.news",
    "Loss": "holdfast.core.migration.news",
    "Map": "holdfast.runtime.member",
    "Member": "holdfast.runtime.member",
    "News": "holdfast.core.migration.news",
}


def __getattr__(name: str) -> object:
    """Bring in the member only for those who ask for it: Spark's workers and the simulator need no sockets."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
