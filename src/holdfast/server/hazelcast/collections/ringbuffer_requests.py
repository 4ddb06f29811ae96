"""Requests for ringbuffers, also for those of reliable topics.

A reader that has to wait does so at the primary, as a request for a queue does (`queue_requests`).
"""

from __future__ import annotations

from itertools import islice
from struct import Struct
from typing import cast

from holdfast.config import RingbufferSettings
from holdfast.core.collections.ring_steps import sequence_of
from holdfast.core.model.collections import BATCH_MAX, FOREVER_MS, CollectionKind, CollectionStep, StepKind
from holdfast.core.model.operations import Value
from holdfast.server.hazelcast.collections.collection_requests import (
    Row,
    check_collection,
    execute_waiting,
    messages,
    step_request,
)
from holdfast.server.hazelcast.conversation import Conversation, Made, RequestKind
from holdfast.server.hazelcast.maps import listed, long_number, value_or_null
from holdfast.wire.hazelcast.hazelcast_frames import frame
from holdfast.wire.hazelcast.layouts import Call, RequestLayout
from holdfast.wire.hazelcast.refusals import BAD_ARGUMENT, STALE_SEQUENCE, UNSUPPORTED, CallRefused

RING = CollectionKind.RINGBUFFER
ADD_ALL = 0x170800
FAIL = 1
"""Overflow policy: reject items for which there is no room. Otherwise they replace the oldest ones."""
READ_BYTES = 1 << 20
"""A response has no more bytes of items than this, except for a single item; the client reads the next ones then."""
_READ = Struct("<iq")


def _settings(talk: Conversation, name: str) -> RingbufferSettings:
    check_collection(talk, RING, name)
    chosen = talk.grid.collections.settings(RING.map_of(name))
    assert isinstance(chosen, RingbufferSettings), "ringbuffers have settings"
    return chosen


def _add(talk: Conversation, call: Call) -> None:
    chosen = _settings(talk, call.name)
    items = call.values if call.kind == ADD_ALL else [call.value]
    kind = StepKind.APPEND_IF_ROOM if call.overflow == FAIL else StepKind.APPEND
    step = CollectionStep(kind, max_size=chosen.capacity, ttl_ms=chosen.ttl_ms)
    request = step_request(talk, RING, call.name, step, cast("list[bytes]", items))
    talk.execute(call, request, lambda value: long_number(call, value))


def _capacity(talk: Conversation, call: Call) -> None:
    talk.send(long_number(call, _settings(talk, call.name).capacity))


def _remaining_capacity(talk: Conversation, call: Call) -> None:
    chosen = _settings(talk, call.name)

    def answer(value: Value) -> bytes:
        # Without a time to live, new items always find room.
        size = cast("int", value) if chosen.ttl_ms else 0
        return long_number(call, max(0, chosen.capacity - size))

    talk.execute(call, step_request(talk, RING, call.name, CollectionStep(StepKind.SIZE)), answer)


def _read_one(talk: Conversation, call: Call) -> None:
    step = CollectionStep(StepKind.READ_ITEM, call.sequence)
    execute_waiting(talk, call, RING, step, (), FOREVER_MS, _one_item)


def _one_item(call: Call, value: Value) -> Made:
    if not isinstance(value, list):
        return value_or_null(call, value)
    head, tail = map(sequence_of, cast("list[bytes]", value))
    if call.sequence <= tail:
        raise CallRefused(
            STALE_SEQUENCE, f"sequence {call.sequence} is not there any more: the oldest one is {head}"
        )
    raise CallRefused(BAD_ARGUMENT, f"sequence {call.sequence} is too large: the last one is {tail}")


def _read_many(talk: Conversation, call: Call) -> None:
    if call.predicate:
        raise CallRefused(UNSUPPORTED, "Ringbuffer.readMany with a filter is not supported by Holdfast")
    if not 0 <= call.count <= call.end <= BATCH_MAX:
        raise CallRefused(
            BAD_ARGUMENT,
            f"one request reads at most {BATCH_MAX} items, and at least as many as are wanted; "
            f"this one reads {call.count} to {call.end}",
        )
    step = CollectionStep(
        StepKind.READ_ITEMS,
        max(0, call.sequence),
        call.end,
        max_size=_settings(talk, call.name).capacity,
        count=call.count,
        max_bytes=min(READ_BYTES, talk.answer_bytes),
    )
    execute_waiting(talk, call, RING, step, (), FOREVER_MS, _items)


def _items(call: Call, value: Value) -> Made:
    found = cast("list[bytes]", value)
    start, count = sequence_of(found[0]), len(found) - 1
    sequences = Struct(f"<{count}q").pack(*range(start, start + count))
    fixed = _READ.pack(count, start + count)
    return listed(call, islice(found, 1, None), fixed=fixed, after=frame(sequences))


_ROWS = [
    Row(0x170100, "| name", StepKind.SIZE, long_number),
    Row(0x170200, "| name", StepKind.TAIL, long_number),
    Row(0x170300, "| name", StepKind.HEAD, long_number),
]
MESSAGES = {
    **messages(RING, _ROWS),
    0x170400: RequestKind(RequestLayout("| name"), _capacity),
    0x170500: RequestKind(RequestLayout("| name"), _remaining_capacity),
    0x170600: RequestKind(RequestLayout("overflow | name value"), _add),
    0x170700: RequestKind(RequestLayout("sequence | name"), _read_one),
    ADD_ALL: RequestKind(RequestLayout("overflow | name items"), _add),
    0x170900: RequestKind(RequestLayout("sequence count end | name filter"), _read_many),
}
