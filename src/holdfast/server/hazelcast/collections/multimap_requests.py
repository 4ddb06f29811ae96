"""Requests for multimaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import cast

from holdfast.config import MultimapSettings
from holdfast.core.collections.multimap_steps import AS_LIST
from holdfast.core.model.collections import CollectionKind, CollectionStep, StepKind, encode_step
from holdfast.core.model.keys import partition_of
from holdfast.core.model.map_locks import owner_of
from holdfast.core.model.multimap_values import decode_values
from holdfast.core.model.operations import EntryEvent, EventKind, Op, Request
from holdfast.server.flow import EXPECTED_LIST_SHARE
from holdfast.server.hazelcast.collections.collection_requests import check_collection
from holdfast.server.hazelcast.collections.lock_requests import lock_messages
from holdfast.server.hazelcast.conversation import Conversation, Handler, RequestKind
from holdfast.server.hazelcast.maps import Answering, ask_locked, many, nothing, number, truth
from holdfast.wire.hazelcast.hazelcast_frames import NULL, data, event, message, response, uuid
from holdfast.wire.hazelcast.layouts import Call, RequestLayout

MULTIMAP = CollectionKind.MULTIMAP
_FIXED = Struct("<i17si")


def _holder(talk: Conversation, name: str) -> str:
    """The map that holds the entries. Raises CallRefused."""
    check_collection(talk, MULTIMAP, name)
    return MULTIMAP.map_of(name)


def _step(talk: Conversation, call: Call, kind: StepKind) -> CollectionStep:
    if kind is not StepKind.ADD:
        return CollectionStep(kind)
    chosen = cast("MultimapSettings", talk.grid.collections.settings(MULTIMAP.map_of(call.name)))
    return CollectionStep(
        kind,
        index=AS_LIST if chosen.values == "list" else 0,
        end=talk.answer_bytes,
        max_size=chosen.max_size,
    )


def keyed_request(talk: Conversation, call: Call, kind: StepKind) -> Request:
    """A step on the values of one key. Raises CallRefused."""
    holder = _holder(talk, call.name)
    partition, step = talk.partition_of(call), encode_step(_step(talk, call, kind))
    return Request(
        kind.op,
        holder,
        [partition],
        key=call.key,
        value=step,
        items=[call.value] if call.value else [],
        key_hash=call.key_hash,
        holder=owner_of(talk.client, call.thread),
    )


def size_request(talk: Conversation, call: Call) -> Request:
    """How many values there are. Raises CallRefused."""
    return Request(Op.SIZE, _holder(talk, call.name), talk.every_partition)


def _keyed(kind: StepKind, answer: Answering) -> Handler:
    def handle(talk: Conversation, call: Call) -> None:
        request = keyed_request(talk, call, kind)
        share = EXPECTED_LIST_SHARE if kind in (StepKind.ITEMS, StepKind.DRAIN) else 0
        talk.execute(call, request, lambda value: answer(call, value), share)

    return handle


def _whole(op: Op, answer: Answering) -> Handler:
    def handle(talk: Conversation, call: Call) -> None:
        request = Request(op, _holder(talk, call.name), talk.every_partition, value=call.value)
        talk.execute(call, request, lambda value: answer(call, value))

    return handle


def _put_all(talk: Conversation, call: Call) -> None:
    holder, step = _holder(talk, call.name), encode_step(_step(talk, call, StepKind.ADD))
    count = talk.grid.partition_count

    def requests() -> Iterator[Request]:
        for key, key_hash, values in zip(
            cast("list[bytes]", call.keys), call.hashes, call.collections, strict=True
        ):
            partition = partition_of(key, key_hash, count)
            yield Request(
                Op.ADD_TO_COLLECTION,
                holder,
                [partition],
                key=key,
                value=step,
                items=values,
                key_hash=key_hash,
                holder=talk.client,
            )

    talk.execute_all(call, requests(), lambda _: nothing(call, None))


# -- listeners


def _add_listener(talk: Conversation, call: Call) -> None:
    holder, partitions = _holder(talk, call.name), talk.grid.partition_count

    def on_event(change: EntryEvent) -> None:
        for kind, value in changed_values(change):
            added = kind is EventKind.ADDED
            partition = 0 if change.key is None else partition_of(change.key, change.key_hash, partitions)
            shown = data(value if call.include_value else None)
            talk.send(
                message(
                    [
                        event(
                            call.kind + 2,
                            call.correlation,
                            _FIXED.pack(kind, uuid(change.member), change.count),
                            partition,
                        ),
                        data(change.key, change.key_hash),
                        shown if added else NULL,
                        NULL if added else shown,
                        NULL,  # the value that a merge brought in
                    ]
                )
            )

    told = talk.callback("an entry event", on_event)
    registration = talk.register(
        lambda: talk.grid.listen(holder, key=call.key or None, local_only=call.local_only, on_event=told)
    )
    talk.send(message([response(call.kind + 1, call.correlation, registration)]))


def changed_values(change: EntryEvent) -> Iterator[tuple[EventKind, bytes | None]]:
    """An event for each value that has come or gone, or one for the whole multimap."""
    if change.key is None:
        yield change.kind, None
        return
    before, after = _values(change.old), _values(change.value)
    for value in (Counter(before) - Counter(after)).elements():
        yield EventKind.REMOVED, value
    for value in (Counter(after) - Counter(before)).elements():
        yield EventKind.ADDED, value


def _values(encoded: bytes | None) -> Sequence[bytes]:
    return decode_values(encoded) if encoded is not None else ()


def _remove_listener(talk: Conversation, call: Call) -> None:
    talk.send(truth(call, talk.unregister(call.registration)))


def _is_locked(talk: Conversation, call: Call) -> None:
    ask_locked(talk, call, _holder(talk, call.name))


_ROWS: list[tuple[int, str, Handler]] = [
    (0x020100, "thread | name key value", _keyed(StepKind.ADD, truth)),
    (0x020200, "thread | name key", _keyed(StepKind.ITEMS, many)),
    (0x020300, "thread | name key", _keyed(StepKind.DRAIN, many)),
    (0x020400, "| name", _whole(Op.KEYS, many)),
    (0x020500, "| name", _whole(Op.VALUES, many)),
    (0x020600, "| name", _whole(Op.ENTRIES, many)),
    (0x020700, "thread | name key", _keyed(StepKind.SIZE, truth)),
    (0x020800, "| name value", _whole(Op.CONTAINS_VALUE, truth)),
    (0x020900, "thread | name key value", _keyed(StepKind.CONTAINS, truth)),
    (0x020A00, "| name", _whole(Op.SIZE, number)),
    (0x020B00, "| name", _whole(Op.CLEAR, nothing)),
    (0x020C00, "thread | name key", _keyed(StepKind.SIZE, number)),
    (0x021200, "| name key", _is_locked),
    (0x021500, "thread | name key value", _keyed(StepKind.REMOVE, truth)),
    (0x021600, "thread | name key", _keyed(StepKind.DRAIN, nothing)),
    (0x021700, "| name collections", _put_all),
]
MESSAGES = {
    **{kind: RequestKind(RequestLayout(layout), handler) for kind, layout, handler in _ROWS},
    **lock_messages(_holder, 0x021000, 0x021100, 0x021300, 0x021400),
}
LISTENERS = {
    0x020D00: RequestKind(RequestLayout("include_value local_only | name key"), _add_listener),
    0x020E00: RequestKind(RequestLayout("include_value local_only | name"), _add_listener),
    0x020F00: RequestKind(RequestLayout("registration | name"), _remove_listener),
}
