"""What maps and services are called in records, counters and settings."""

from __future__ import annotations

from holdfast.config import SERVICE_PREFIX
from holdfast.core.model.operations import Op, Request


def part_name(name: str) -> str:
    """What a service is called there: no client's map can have this name."""
    return SERVICE_PREFIX + name


def is_service(name: str) -> bool:
    """Whether this is what a service is called, rather than a map."""
    return name.startswith(SERVICE_PREFIX)


def target(request: Request) -> str:
    """Which map or service the request is about."""
    return part_name(request.map) if request.op in (Op.CALL, Op.ASK) else request.map
