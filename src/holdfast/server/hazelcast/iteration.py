"""Walking through a map, page by page, as Java clients do: the keys or entries of one partition in each request.

The members keep nothing of a walk. Keys come in the order of a checksum, and the pointer that client and member hand to
each other says how far in that order it is. So a walk goes on after the partition has moved, and what is there from its
beginning to its end is told once. What comes or goes meanwhile may be told or not.
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
"""The two halves of a place in the order of the checksums: its upper 31 bits, and its last one."""
_ENDED = frame(_POINTER.pack(-1, -1))
"""Clients go on until the first half is negative."""
_BEFORE_ALL = -1
_FRESH = -1
"""The second half of the pointer with which clients begin."""

Page = tuple[list[bytes], bytes]
"""Keys, and the pointer behind them as a frame."""


def _fetch(talk: Conversation, call: Call) -> None:
    if not 0 <= call.partition < talk.grid.partition_count:
        raise CallRefused(BAD_ARGUMENT, f"{name_of(call.kind)} for one partition names none of this cluster")
    if call.batch < 1:
        raise CallRefused(
            BAD_ARGUMENT, f"{name_of(call.kind)} for {call.batch} at a time: that would never end"
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
    """The next keys behind a place in the order: `count` of them, and more if the last one shares its checksum."""
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
