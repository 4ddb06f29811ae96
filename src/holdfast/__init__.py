"""Holdfast: a partitioned, replicated in-memory data grid that keeps every acknowledged write."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError, HoldfastError, Refused, RequestError, Unknown

if TYPE_CHECKING:
    from holdfast.runtime.member import Map, Member

__all__ = ["ConfigError", "HoldfastError", "Map", "Member", "Refused", "RequestError", "Unknown"]


def __getattr__(name: str) -> object:
    """Bring in the member only for those who ask for it: Spark's workers and the simulator need no sockets."""
    if name in ("Map", "Member"):
        return getattr(import_module("holdfast.runtime.member"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
