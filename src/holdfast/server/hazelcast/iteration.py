"""Iteration over a map, page by page: each request reads keys or entries of one partition, as Java clients do.

Members keep no cursor. Keys are ordered by their CRC-32, and the client returns a pointer: the checksum of the last
key. Example: of keys with checksums 10, 20, 30 the page after 10 is 20; if 20 is removed and 25 added, the next page
after 20 is 25, 30. So an iteration survives a migration, and returns every key that exists throughout exactly once;
keys that are added or removed meanwhile may be missed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from heapq import nsmallest
from itertools import islice
from struct import Struct
from typing import cast
from zlib import crc32

from holdfast.core.model.operations import Op, Request, Value
from holdfast.server.flow import SLICE_ITEMS
from holdfast.server.hazelcast.conversation import Conversation, Made, RequestKind
from holdfast.server.hazelcast.maps import guarded, listed
from holdfast.server.hazelcast.names import name_of
from holdfast.wire.hazelcast.hazelcast_frames import frame
from holdfast.wire.hazelcast.layouts import Call, RequestLayout
from holdfast.wire.hazelcast.refusals import BAD_ARGUMENT, CallRefused

FETCH_KEYS = 0x013700
FETCH_ENTRIES = 0x013800

_POINTER = Struct("<ii")
"""A checksum as the protocol's two halves: its upper 31 bits and its lowest bit."""
_ENDED = frame(_POINTER.pack(-1, -1))
"""A negative first half ends the client's iteration."""
_BEFORE_ALL = -1
_FRESH = -1
"""Second half of the pointer at the beginning."""

Page = tuple[list[bytes], bytes]
"""Keys, and the next pointer as a frame."""


def _fetch(talk: Conversation, call: Call) -> None:
    if not 0 <= call.partition < talk.grid.partition_count:
        raise CallRefused(BAD_ARGUMENT, f"{name_of(call.kind)} names no partition of this cluster")
    if call.batch < 1:
        raise CallRefused(
            BAD_ARGUMENT,
            f"{name_of(call.kind)} for {call.batch} at a time: the batch size must be at least 1",
        )
    upper, lower = call.pointers[-1] if call.pointers else (0, _FRESH)
    place = _BEFORE_ALL if lower == _FRESH else upper << 1 | lower & 1
    count = min(call.batch, SLICE_ITEMS)

    def answer(value: Value) -> Made:
        keys = cast("list[bytes]", value or [])
        return _telling_keys(call, keys, place, count) if call.kind == FETCH_KEYS else look_up(keys)

    def look_up(keys: list[bytes]) -> Generator[None, None, None]:
        page, pointer = yield from page_after(keys, place, count)
        values = Request(Op.GET_ALL, call.name, [call.partition], items=page)
        talk.execute(call, values, lambda value: listed(call, cast("list[bytes]", value or []), pointer))

    talk.execute(call, Request(Op.KEYS, call.name, [call.partition]), answer)


def _telling_keys(call: Call, keys: list[bytes], place: int, count: int) -> Generator[None, None, bytes]:
    page, pointer = yield from page_after(keys, place, count)
    return (yield from listed(call, page, pointer))


def page_after(keys: Iterable[bytes], place: int, count: int) -> Generator[None, None, Page]:
    """The next `count` keys, and those that share the last one's checksum."""
    rest = iter(keys)
    nearest: list[tuple[int, bytes]] = []
    further = False
    while part := list(islice(rest, SLICE_ITEMS)):
        for key in part:
            at = crc32(key)
            if at > place:
                nearest.append((at, key))
        if len(nearest) > count:
            last = nsmallest(count, nearest)[-1][0]
            kept = [one for one in nearest if one[0] <= last]
            further = further or len(kept) < len(nearest)
            nearest = kept
        yield
    nearest.sort()
    page = [key for _, key in nearest]
    return page, frame(_POINTER.pack(nearest[-1][0] >> 1, nearest[-1][0] & 1)) if further else _ENDED


MESSAGES = {
    FETCH_KEYS: RequestKind(RequestLayout("batch | name pointers"), guarded(_fetch)),
    FETCH_ENTRIES: RequestKind(RequestLayout("batch | name pointers"), guarded(_fetch)),
}
