"""Names of maps and services in records, counters and settings."""

from __future__ import annotations

from holdfast.config import COLLECTIONS, INTERNAL, KEY_LOCKS, SERVICE_PREFIX
from holdfast.core.model.operations import Op, Request


def part_name(name: str) -> str:
    """No map of a client can have it."""
    return SERVICE_PREFIX + name


def is_service(name: str) -> bool:
    return name.startswith(SERVICE_PREFIX)


def is_internal(name: str) -> bool:
    """Whether members keep this map for themselves. The items of collections, and locks, belong to clients."""
    prefix = name[: name.find(":") + 1]
    return name.startswith(INTERNAL) and prefix not in COLLECTIONS and prefix != KEY_LOCKS


def target(request: Request) -> str:
    return part_name(request.map) if request.op in (Op.CALL, Op.ASK) else request.map
