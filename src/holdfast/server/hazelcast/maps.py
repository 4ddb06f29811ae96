"""Requests for maps outside the data lane: for one key (`keyed_requests`), for whole maps, and for many
entries.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain, islice
from typing import cast

from holdfast.config import INTERNAL, TRANSACTIONS_MAP
from holdfast.core.model.keys import partition_of
from holdfast.core.model.levels import ZONE_TRANSACTIONS
from holdfast.core.model.map_locks import owner_of
from holdfast.core.model.operations import MAP_NAME_MAX, Op, Request, Value
from holdfast.core.model.transactions import lock_key
from holdfast.core.operations.map_operations import EntryView
from holdfast.server.flow import SLICE_BYTES, SLICE_ITEMS, slices
from holdfast.server.hazelcast.conversation import Conversation, Handler, Made, RequestKind
from holdfast.server.hazelcast.entry_views import NO_VIEW, view_response
from holdfast.server.hazelcast.keyed_requests import KEYED, VIEW, VIEWS, Form
from holdfast.server.hazelcast.names import name_of
from holdfast.wire.hazelcast.hazelcast_frames import (
    BEGIN,
    END,
    INT,
    LONG,
    data,
    message,
    response,
)
from holdfast.wire.hazelcast.layouts import Call, RequestLayout
from holdfast.wire.hazelcast.refusals import BAD_ARGUMENT, UNSUPPORTED, CallRefused

TRUE_PREDICATE = bytes.fromhex("fffffffe01ffffffec0000000e")
"""The predicate that is always true: an identified object of factory -20, class 14, without fields."""

SLICE = SLICE_ITEMS // 2
"""Entries of a request that are grouped by partition per slice."""
PART_ITEMS = 500
"""Keys and values per partition that are collected into one request; few, because the garbage collector visits each."""
SHOWN_MAX = 64
CORRELATION = LONG

Answering = Callable[[Call, Value], Made]


# -- responses


def nothing(call: Call, _: Value) -> bytes:
    return message([response(call.kind + 1, call.correlation)])


def value_or_null(call: Call, value: Value) -> bytes:
    return message([response(call.kind + 1, call.correlation), data(cast("bytes | None", value))])


def null(call: Call, _: Value) -> bytes:
    """Null, for operations without a result whose layout has a value."""
    return value_or_null(call, None)


def truth(call: Call, value: Value) -> bytes:
    return message([response(call.kind + 1, call.correlation, bytes((bool(value),)))])


def number(call: Call, value: Value) -> bytes:
    """Larger counts are sent as the maximum of int32."""
    return message(
        [response(call.kind + 1, call.correlation, INT.pack(min(cast("int", value), 0x7FFF_FFFF)))]
    )


def many(call: Call, value: Value) -> Made:
    return listed(call, cast("list[bytes]", value or []))


def listed(
    call: Call, values: Iterable[bytes], before: bytes = b"", *, fixed: bytes = b"", after: bytes = b""
) -> Generator[None, None, bytes]:
    """Like `many`, in slices; `before`, `after`: frames that come first and last; `fixed`: parameters of fixed size."""
    pieces = [response(call.kind + 1, call.correlation, fixed), before, BEGIN]
    rest = iter(values)
    while part := list(islice(rest, SLICE_ITEMS)):
        sizes = list(map(len, part))
        for begin, end in slices(sizes) if sum(sizes) > SLICE_BYTES else ((0, len(part)),):
            if len(pieces) > 3:
                yield
            pieces.append(b"".join(map(data, part[begin:end])))
    pieces += (END, after) if after else (END,)
    return message(pieces)


def long_number(call: Call, value: Value) -> bytes:
    return message([response(call.kind + 1, call.correlation, LONG.pack(cast("int", value)))])


def entry_view(call: Call, value: Value, wall_ms: int) -> bytes:
    """An entry with its metadata; `value`: the result of `Op.ENTRY_VIEW`."""
    begin = VIEWS.first + CORRELATION.pack(call.correlation)
    if value is None:
        return begin + NO_VIEW
    view = cast("EntryView", value)
    # Old files may have invalid hash words: send the bits that fit.
    hash_word = (call.key_hash & 0xFFFF_FFFF).to_bytes(4, "big")
    return begin + view_response(call.key, hash_word, view, wall_ms)


# -- requests


def keyed(op: Op, answer: Answering) -> Handler:

    def handle(talk: Conversation, call: Call) -> None:
        talk.execute(call, _keyed_request(talk, op, call), lambda value: answer(call, value))

    return handle


def _keyed_request(talk: Conversation, op: Op, call: Call) -> Request:
    return Request(
        op,
        call.name,
        [talk.partition_of(call)],
        key=call.key,
        value=call.value,
        expected=call.expected,
        ttl_ms=call.ttl_ms,
        max_idle_ms=call.max_idle_ms,
        key_hash=call.key_hash,
        holder=owner_of(talk.client, call.thread),
        wait_ms=max(0, call.timeout_ms),
    )


def _entry_view(talk: Conversation, call: Call) -> None:
    request = _keyed_request(talk, Op.ENTRY_VIEW, call)
    talk.execute(call, request, lambda value: entry_view(call, value, talk.grid.wall_ms()))


def _is_locked(talk: Conversation, call: Call) -> None:
    ask_locked(talk, call, call.name)


def ask_locked(talk: Conversation, call: Call, name: str) -> None:
    """Whether a client or a transaction has locked the entry of this map."""
    kept = lock_key(name, call.key)
    zone = talk.grid.zone_of(name).encode() if talk.grid.level >= ZONE_TRANSACTIONS else b""
    request = Request(Op.CONTAINS_KEY, TRANSACTIONS_MAP, [talk.partition_of(call)], key=kept, expected=zone)
    talk.execute(call, request, lambda value: truth(call, value))


def whole(op: Op, answer: Answering) -> Handler:
    """Only the predicate that is always true is supported."""

    def handle(talk: Conversation, call: Call) -> None:
        if call.predicate:
            reject_other_predicates(call)
        request = Request(op, call.name, talk.every_partition, value=call.value)
        talk.execute(call, request, lambda value: answer(call, value))

    return handle


def reject_other_predicates(call: Call) -> None:
    if call.predicate != TRUE_PREDICATE:
        raise CallRefused(
            UNSUPPORTED,
            f"{name_of(call.kind)} with a predicate other than TruePredicate is not supported by Holdfast",
        )


def _get_all(talk: Conversation, call: Call) -> None:
    def answer(parts: list[Value]) -> Made:
        return listed(call, chain.from_iterable(cast("list[bytes]", part or []) for part in parts))

    parts = _by_partition(talk, call, once=True)
    talk.execute_all(
        call, (part and Request(Op.GET_ALL, call.name, [part[0]], items=part[1]) for part in parts), answer
    )


def put_all(talk: Conversation, call: Call) -> None:
    # Unless the client has grouped the entries, their partitions are not known yet, so it may be any.
    named = [talk.partition_of(call)] if call.partition != -1 and call.keys else talk.every_partition
    talk.require(Request(Op.PUT_ALL, call.name, named), call.size)
    parts = _by_partition(talk, call)
    talk.execute_all(
        call,
        (
            part and Request(Op.PUT_ALL, call.name, [part[0]], items=part[1], holder=talk.client)
            for part in parts
        ),
        lambda _: nothing(call, None),
    )


def _by_partition(
    talk: Conversation, call: Call, *, once: bool = False
) -> Iterator[tuple[int, list[bytes]] | None]:
    """Entries of the request grouped by partition, each group no more than a slice of work; None ends a slice
    without a group. If the client has grouped them, they are all in one partition. `once`: drop repeated
    keys, because clients treat the response as a map.
    """
    keys, values, hashes = call.keys, call.values, call.hashes
    named = talk.partition_of(call) if call.partition != -1 and keys else -1
    count = talk.grid.partition_count
    most = SLICE_ITEMS if named >= 0 else PART_ITEMS
    found: dict[int, list[bytes]] = {}
    sizes: dict[int, int] = {}
    # Shards, because a dictionary of a million keys takes 30 ms to grow. Dictionaries, because the garbage collector
    # skips those that hold only bytes, and visits every element of a set.
    shards = 1 + len(keys) // SLICE_ITEMS
    seen: list[dict[bytes, None]] = [{} for _ in range(shards)]
    for place in range(len(keys)):
        if place % SLICE == SLICE - 1:
            yield None
        key = keys[place]
        if once:
            shard = seen[hash(key) % shards]
            if key in shard:
                continue
            shard[key] = None
        partition = named if named >= 0 else partition_of(key, hashes[place], count)
        items = found.setdefault(partition, [])
        items.append(key)
        size = sizes.get(partition, 0) + len(key)
        if values:
            value = values[place]
            items.append(value)
            size += len(value)
        sizes[partition] = size
        if len(items) >= most or size >= SLICE_BYTES:
            yield partition, found.pop(partition)
            sizes[partition] = 0
    for partition in list(found):
        yield partition, found.pop(partition)
    while len(seen) > 1:
        seen.pop()
        yield None


def _flush(talk: Conversation, call: Call) -> None:
    """Does nothing, like `_load`: there is no map store."""
    talk.send(nothing(call, None))


def _load(talk: Conversation, call: Call) -> None:
    talk.send(nothing(call, None))


def guarded(handler: Handler) -> Handler:

    def handle(talk: Conversation, call: Call) -> None:
        reject_reserved(call.name)
        handler(talk, call)

    return handle


def reject_reserved(name: str) -> None:
    """Raises CallRefused for reserved and invalid names of maps."""
    if name.startswith(INTERNAL):
        raise CallRefused(
            BAD_ARGUMENT,
            f"the map name {name[:SHOWN_MAX]!r} is reserved: those that begin with {INTERNAL!r} are Holdfast's own",
        )
    if not 1 <= len(name) <= MAP_NAME_MAX:
        raise CallRefused(BAD_ARGUMENT, f"a map's name has 1 to {MAP_NAME_MAX} characters")


_FORMS: dict[Form, Answering] = {
    Form.NOTHING: nothing,
    Form.VALUE: value_or_null,
    Form.TRUTH: truth,
    Form.TRUE: truth,
    Form.NULL: null,
}
_ROWS: list[tuple[int, str, Handler]] = [
    *((one.kind, one.layout, keyed(one.op, _FORMS[one.form])) for one in KEYED),
    (0x010700, "| name value", whole(Op.CONTAINS_VALUE, truth)),
    (0x010A00, "| name", _flush),
    (0x011200, "| name key", _is_locked),
    (VIEW.kind, VIEW.layout, _entry_view),
    (0x011F00, "| name", whole(Op.EVICT_ALL, nothing)),
    (0x012000, "| name", _load),
    (0x012100, "| name", _load),
    (0x012200, "| name", whole(Op.KEYS, many)),
    (0x012300, "| name keys", _get_all),
    (0x012400, "| name", whole(Op.VALUES, many)),
    (0x012500, "| name", whole(Op.ENTRIES, many)),
    (0x012600, "| name predicate", whole(Op.KEYS, many)),
    (0x012700, "| name predicate", whole(Op.VALUES, many)),
    (0x012800, "| name predicate", whole(Op.ENTRIES, many)),
    (0x012A00, "| name", whole(Op.SIZE, number)),
    (0x012B00, "| name", whole(Op.IS_EMPTY, truth)),
    (0x012C00, "| name entries", put_all),
    (0x012D00, "| name", whole(Op.CLEAR, nothing)),
    (0x013E00, "| name predicate", whole(Op.CLEAR, nothing)),  # remove all that satisfy the predicate
]

MESSAGES = {kind: RequestKind(RequestLayout(layout), guarded(handler)) for kind, layout, handler in _ROWS}
