"""Checks that several questions of Holdfast's own protocol share: map names, partitions, sizes of keys and values."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.config import LimitSettings
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import (
    DEFAULT_TTL,
    LIFETIME_MS_MAX,
    WHOLE,
    Op,
    Request,
    request_problem,
)
from holdfast.server.reserved import reserved_map_rejection
from holdfast.wire import own

ITEMS_MAX = 8192
"""Keys and values of one `Execute`, which is carried out in one piece: some 20 ms of work."""

Rejection = tuple[own.FaultKind, str]


def map_problem(name: str, lifetime_ms: int = DEFAULT_TTL) -> str:
    """The fault of a map's name, or of the lifetime of its entries."""
    if not 1 <= len(name) <= own.MAP_NAME_MAX:
        return f"a map's name has 1 to {own.MAP_NAME_MAX} characters"
    if not DEFAULT_TTL <= lifetime_ms <= LIFETIME_MS_MAX:
        return f"a lifetime is {DEFAULT_TTL} (the map's own), 0 (for ever) or up to {LIFETIME_MS_MAX} milliseconds"
    return ""


def partitions_problem(partitions: Sequence[int], count: int, *, once: bool = True) -> str:
    """The fault of a list of partitions; there are `count` in all. `once`: no partition may be repeated."""
    if len(partitions) > count or not all(0 <= partition < count for partition in partitions):
        return f"partitions are 0 to {count - 1}, at most {count} in a question"
    if once and len(set(partitions)) != len(partitions):
        return "a partition is named once in a question"
    return ""


def request_rejection(request: Request, count: int, limits: LimitSettings) -> Rejection | None:
    """The reason to reject an operation on entries. `count`: the number of partitions."""
    malformed = own.FaultKind.MALFORMED
    problem = (
        map_problem(request.map)
        or partitions_problem(request.partitions, count)
        or request_problem(request, count)
    )
    if problem:
        return malformed, problem
    if len(request.items) > ITEMS_MAX:
        return (
            malformed,
            f"a request carries at most {ITEMS_MAX} keys and values; send several, or columns",
        )
    keys: list[bytes] = []
    values = [request.value, request.expected]
    if request.op is Op.PUT_ALL:
        keys, values = request.items[::2], request.items[1::2]
    elif request.op is Op.GET_ALL:
        keys = request.items
    elif request.op not in WHOLE:
        keys = [request.key]
    for key in keys:
        if partition_of(key, request.key_hash, count) != request.partitions[0]:
            return malformed, f"a key does not belong to partition {request.partitions[0]}"
    reserved = reserved_map_rejection(request)
    return (own.FaultKind.DENIED, reserved) if reserved else size_rejection(keys, values, limits)


def size_rejection(keys: list[bytes], values: list[bytes], limits: LimitSettings) -> Rejection | None:
    key_max, value_max = limits.key_bytes, limits.value_bytes
    if keys and max(map(len, keys)) > key_max:
        return own.FaultKind.TOO_LARGE, f"a key of more than {key_max} bytes (limits.key_bytes)"
    if values and max(map(len, values)) > value_max:
        return own.FaultKind.TOO_LARGE, f"a value of more than {value_max} bytes (limits.value_bytes)"
    return None
