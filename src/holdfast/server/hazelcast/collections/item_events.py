"""Item listeners: registration, and the events."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from holdfast.core.model.collections import CollectionKind, partition_of_name
from holdfast.core.model.operations import EntryEvent, EventKind
from holdfast.server.hazelcast.collections.collection_requests import check_collection
from holdfast.server.hazelcast.conversation import Conversation, Handler, RequestKind
from holdfast.server.hazelcast.maps import truth
from holdfast.wire.hazelcast.hazelcast_frames import data, event, message, response, uuid
from holdfast.wire.hazelcast.layouts import Call, RequestLayout

_FIXED = Struct("<17si")
_ADDED, _REMOVED = 1, 2


def listener_messages(kind: CollectionKind, add: int, remove: int) -> dict[int, RequestKind]:
    """The two requests, by their message types."""
    return {
        add: RequestKind(RequestLayout("include_value local_only | name"), _adding(kind)),
        remove: RequestKind(RequestLayout("registration | name"), _remove),
    }


def _adding(kind: CollectionKind) -> Handler:
    def handle(talk: Conversation, call: Call) -> None:
        check_collection(talk, kind, call.name)
        partition = partition_of_name(call.name, talk.grid.partition_count)

        def on_event(change: EntryEvent) -> None:
            for happened, item in _items(kind, change):
                fixed = _FIXED.pack(uuid(change.member), happened)
                shown = data(item if call.include_value else None)
                talk.send(message([event(call.kind + 2, call.correlation, fixed, partition), shown]))

        told = talk.callback("an item event", on_event)
        registration = talk.register(
            lambda: talk.grid.listen(
                kind.map_of(call.name), key=None, local_only=call.local_only, on_event=told
            )
        )
        talk.send(message([response(call.kind + 1, call.correlation, registration)]))

    return handle


def _items(kind: CollectionKind, change: EntryEvent) -> Iterator[tuple[int, bytes | None]]:
    """Event types with their items: the key of a set's entry, and the value of others."""
    is_set = kind is CollectionKind.SET
    if change.kind in (EventKind.REMOVED, EventKind.UPDATED):
        yield _REMOVED, change.key if is_set else change.old
    if change.kind in (EventKind.ADDED, EventKind.UPDATED):
        yield _ADDED, change.key if is_set else change.value


def _remove(talk: Conversation, call: Call) -> None:
    talk.send(truth(call, talk.unregister(call.registration)))
