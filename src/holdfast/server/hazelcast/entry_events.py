"""Entry listeners: registration, and the events."""

from __future__ import annotations

from struct import Struct

from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import EntryEvent, WrittenEntries
from holdfast.server.hazelcast.conversation import Conversation, RequestKind
from holdfast.server.hazelcast.maps import guarded, reject_other_predicates
from holdfast.wire.hazelcast.hazelcast_frames import (
    EVENT,
    INT,
    IS_FINAL,
    IS_NULL,
    NULL,
    data,
    event,
    message,
    response,
    uuid,
)
from holdfast.wire.hazelcast.layouts import Call, RequestLayout

ADD_TO_KEY_WITH_PREDICATE = 0x011600
ADD_WITH_PREDICATE = 0x011700
ADD_TO_KEY = 0x011800
ADD = 0x011900
REMOVE = 0x011A00

_FIXED = Struct("<i17si")
PARTITION_AT = EVENT.size - INT.size
"""Where the partition is in the first frame of an event."""


def _add(talk: Conversation, call: Call) -> None:
    if call.predicate:
        reject_other_predicates(call)
    key = call.key or None

    def on_event(change: EntryEvent) -> None:
        if call.flags & change.kind:
            talk.send(entry_event(call, change, talk.grid.partition_count))

    def on_written(written: WrittenEntries) -> None:
        events = entry_events(call, written, talk.grid.partition_count)
        if events:
            talk.send(events)

    told, told_several = (talk.callback("an entry event", each) for each in (on_event, on_written))
    registration = talk.register(
        lambda: talk.grid.listen(
            call.name, key=key, local_only=call.local_only, on_event=told, on_written=told_several
        )
    )
    talk.send(message([response(call.kind + 1, call.correlation, registration)]))


def entry_event(call: Call, change: EntryEvent, partition_count: int) -> bytes:
    """The event for a registration. Changes of one key arrive in order."""
    with_value = call.include_value
    fixed = _FIXED.pack(change.kind, uuid(change.member), change.count)
    partition = 0 if change.key is None else partition_of(change.key, change.key_hash, partition_count)
    return message(
        [
            event(call.kind + 2, call.correlation, fixed, partition),
            data(change.key, change.key_hash),
            data(change.value if with_value else None),
            data(change.old if with_value else None),
            NULL,  # the value that a merge brought in
        ]
    )


def entry_events(call: Call, written: WrittenEntries, partition_count: int) -> bytes:
    """The same for several events."""
    with_value, member = call.include_value, uuid(written.member)
    heads: dict[int, tuple[bytes, bytes]] = {}
    for kind in sorted({row[0] for row in written.rows}):
        if call.flags & kind:
            head = event(call.kind + 2, call.correlation, _FIXED.pack(kind, member, 1), 0)
            heads[kind] = head[:PARTITION_AT], head[PARTITION_AT + INT.size :]
    last = NULL[: INT.size] + (IS_NULL | IS_FINAL).to_bytes(2, "little")
    neither = NULL + NULL + last
    parts: list[bytes] = []
    for kind, key, value, old, key_hash, _, _ in written.rows:
        if kind in heads:
            begin, fixed = heads[kind]
            partition = INT.pack(partition_of(key, key_hash, partition_count))
            parts += (begin, partition, fixed, data(key, key_hash))
            parts += (data(value), data(old), last) if with_value else (neither,)
    return b"".join(parts)


def _remove(talk: Conversation, call: Call) -> None:
    there = talk.unregister(call.registration)
    talk.send(message([response(call.kind + 1, call.correlation, bytes((there,)))]))


_WISHES = "include_value flags local_only"
MESSAGES = {
    ADD_TO_KEY_WITH_PREDICATE: RequestKind(RequestLayout(f"{_WISHES} | name key predicate"), guarded(_add)),
    ADD_WITH_PREDICATE: RequestKind(RequestLayout(f"{_WISHES} | name predicate"), guarded(_add)),
    ADD_TO_KEY: RequestKind(RequestLayout(f"{_WISHES} | name key"), guarded(_add)),
    ADD: RequestKind(RequestLayout(f"{_WISHES} | name"), guarded(_add)),
    REMOVE: RequestKind(RequestLayout("registration | name"), _remove),
}
