"""Names of maps and services in records, counters and settings."""

from __future__ import annotations

from holdfast.config import COLLECTIONS, CP_PREFIX, INTERNAL, KEY_LOCKS, SERVICE_PREFIX
from holdfast.core.model.operations import Op, Request


def part_name(name: str) -> str:
    """No map of a client can have it."""
    return SERVICE_PREFIX + name


def is_service(name: str) -> bool:
    return name.startswith(SERVICE_PREFIX)


def is_internal(name: str) -> bool:
    """Whether members keep this map for themselves. The content of structures, and locks, belong to clients."""
    return name.startswith(INTERNAL) and not name.startswith(KEY_LOCKS) and not is_structure(name)


def is_structure(name: str) -> bool:
    """Whether this map holds the items of a collection, or the objects of a CP group."""
    prefix = name[: name.find(":") + 1]
    return prefix in COLLECTIONS or prefix == CP_PREFIX


def target(request: Request) -> str:
    return part_name(request.map) if request.op in (Op.CALL, Op.ASK) else request.map
