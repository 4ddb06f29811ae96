"""Holdfast: a partitioned, replicated in-memory data grid that keeps every acknowledged write."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError, HoldfastError, Refused, RequestError, RolledBack, Unknown
from holdfast.version import __version__

if TYPE_CHECKING:
    from holdfast.core.hosted_services import Endpoint, MigrationEvent, Service
    from holdfast.core.model.decisions import Wait
    from holdfast.core.model.partition_events import Kind, Loss, News
    from holdfast.core.model.views import ClusterState
    from holdfast.core.store.service_state import Share
    from holdfast.runtime.in_process.embedded import Member, ServiceHandle
    from holdfast.runtime.in_process.embedded_maps import Listed, Map
    from holdfast.runtime.in_process.embedded_transactions import MemberTransaction, TransactionalMap
    from holdfast.serialization import ChangeKind, Codec, EntryChange, Identified, Serialized, Serializers

__all__ = [
    "ChangeKind",
    "ClusterState",
    "Codec",
    "ConfigError",
    "Endpoint",
    "EntryChange",
    "HoldfastError",
    "Identified",
    "Kind",
    "Listed",
    "Loss",
    "Map",
    "Member",
    "MemberTransaction",
    "MigrationEvent",
    "News",
    "Refused",
    "RequestError",
    "RolledBack",
    "Serialized",
    "Serializers",
    "Service",
    "ServiceHandle",
    "Share",
    "TransactionalMap",
    "Unknown",
    "Wait",
    "__version__",
]

_HOMES = {
    "ChangeKind": "holdfast.serialization",
    "Codec": "holdfast.serialization",
    "EntryChange": "holdfast.serialization",
    "Identified": "holdfast.serialization",
    "Listed": "holdfast.runtime.in_process.embedded_maps",
    "Serialized": "holdfast.serialization",
    "Serializers": "holdfast.serialization",
    "ClusterState": "holdfast.core.model.views",
    "Endpoint": "holdfast.core.hosted_services",
    "Kind": "holdfast.core.model.partition_events",
    "Loss": "holdfast.core.model.partition_events",
    "Map": "holdfast.runtime.in_process.embedded_maps",
    "Member": "holdfast.runtime.in_process.embedded",
    "MemberTransaction": "holdfast.runtime.in_process.embedded_transactions",
    "MigrationEvent": "holdfast.core.hosted_services",
    "News": "holdfast.core.model.partition_events",
    "Service": "holdfast.core.hosted_services",
    "ServiceHandle": "holdfast.runtime.in_process.embedded",
    "Share": "holdfast.core.store.service_state",
    "TransactionalMap": "holdfast.runtime.in_process.embedded_transactions",
    "Wait": "holdfast.core.model.decisions",
}


def __getattr__(name: str) -> object:
    """Import the member on demand: Spark's workers and the simulator need none of its modules."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
