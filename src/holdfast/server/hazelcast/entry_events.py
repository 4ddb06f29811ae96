"""Entry listeners: registration, and the events."""

from __future__ import annotations

from struct import Struct

from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import EntryEvent
from holdfast.server.hazelcast.conversation import Conversation, RequestKind
from holdfast.server.hazelcast.maps import guarded, reject_other_predicates
from holdfast.wire.hazelcast.hazelcast_frames import NULL, data, event, message, response, uuid
from holdfast.wire.hazelcast.layouts import Call, RequestLayout

ADD_TO_KEY_WITH_PREDICATE = 0x011600
ADD_WITH_PREDICATE = 0x011700
ADD_TO_KEY = 0x011800
ADD = 0x011900
REMOVE = 0x011A00

_FIXED = Struct("<i17si")


def _add(talk: Conversation, call: Call) -> None:
    if call.predicate:
        reject_other_predicates(call)
    key = call.key or None

    def on_event(change: EntryEvent) -> None:
        if call.flags & change.kind:
            talk.send(entry_event(call, change, talk.grid.partition_count))

    told = talk.callback("an entry event", on_event)
    registration = talk.register(
        lambda: talk.grid.listen(call.name, key=key, local_only=call.local_only, on_event=told)
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
