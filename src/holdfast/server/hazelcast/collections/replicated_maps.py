"""Requests for replicated maps: each is an internal map like any other, so its entries have primaries and backups."""

from __future__ import annotations

import msgspec

from holdfast.core.model.collections import CollectionKind
from holdfast.core.model.operations import EntryEvent, EventKind, Op
from holdfast.server.hazelcast.collections.collection_requests import check_collection
from holdfast.server.hazelcast.conversation import Conversation, Handler, RequestKind
from holdfast.server.hazelcast.entry_events import entry_event
from holdfast.server.hazelcast.maps import (
    keyed,
    many,
    nothing,
    number,
    put_all,
    reject_other_predicates,
    truth,
    value_or_null,
    whole,
)
from holdfast.wire.hazelcast.hazelcast_frames import message, response
from holdfast.wire.hazelcast.layouts import Call, RequestLayout

REPLICATED = CollectionKind.REPLICATED_MAP


def _on_its_map(handler: Handler) -> Handler:
    def handle(talk: Conversation, call: Call) -> None:
        check_collection(talk, REPLICATED, call.name)
        call.name = REPLICATED.map_of(call.name)
        handler(talk, call)

    return handle


def _add_listener(talk: Conversation, call: Call) -> None:
    if call.predicate:
        reject_other_predicates(call)
    call.include_value = True

    def on_event(change: EntryEvent) -> None:
        if change.kind is EventKind.EXPIRED:
            change = msgspec.structs.replace(change, kind=EventKind.EVICTED)
        talk.send(entry_event(call, change, talk.grid.partition_count))

    told = talk.callback("an entry event", on_event)
    registration = talk.register(
        lambda: talk.grid.listen(call.name, key=call.key or None, local_only=call.local_only, on_event=told)
    )
    talk.send(message([response(call.kind + 1, call.correlation, registration)]))


def _remove_listener(talk: Conversation, call: Call) -> None:
    talk.send(truth(call, talk.unregister(call.registration)))


_ROWS: list[tuple[int, str, Handler]] = [
    (0x0D0100, "ttl_ms | name key value", keyed(Op.PUT, value_or_null)),
    (0x0D0200, "| name", whole(Op.SIZE, number)),
    (0x0D0300, "| name", whole(Op.IS_EMPTY, truth)),
    (0x0D0400, "| name key", keyed(Op.CONTAINS_KEY, truth)),
    (0x0D0500, "| name value", whole(Op.CONTAINS_VALUE, truth)),
    (0x0D0600, "| name key", keyed(Op.GET, value_or_null)),
    (0x0D0700, "| name key", keyed(Op.REMOVE, value_or_null)),
    (0x0D0800, "| name entries", put_all),
    (0x0D0900, "| name", whole(Op.CLEAR, nothing)),
    (0x0D0F00, "| name", whole(Op.KEYS, many)),
    (0x0D1000, "| name", whole(Op.VALUES, many)),
    (0x0D1100, "| name", whole(Op.ENTRIES, many)),
]
MESSAGES = {kind: RequestKind(RequestLayout(layout), _on_its_map(handler)) for kind, layout, handler in _ROWS}
LISTENERS = {
    0x0D0A00: RequestKind(RequestLayout("local_only | name key predicate"), _on_its_map(_add_listener)),
    0x0D0B00: RequestKind(RequestLayout("local_only | name predicate"), _on_its_map(_add_listener)),
    0x0D0C00: RequestKind(RequestLayout("local_only | name key"), _on_its_map(_add_listener)),
    0x0D0D00: RequestKind(RequestLayout("local_only | name"), _on_its_map(_add_listener)),
    0x0D0E00: RequestKind(RequestLayout("registration | name"), _remove_listener),
}
