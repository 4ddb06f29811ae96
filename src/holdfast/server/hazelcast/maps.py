"""Operations on maps, as one table: message, layout, the operation it is, and the form of its answer."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import cast

from holdfast.config import INTERNAL
from holdfast.core.placement.key import partition_of
from holdfast.core.store.operations import MAP_NAME_MAX, Op, Request, Value
from holdfast.server.hazelcast.conversation import Conversation, Handler, Message
from holdfast.server.hazelcast.frames import (
    BEGIN,
    END,
    INT,
    LONG,
    NULL,
    data,
    data_list,
    frame,
    message,
    response,
)
from holdfast.server.hazelcast.layouts import Call, Layout
from holdfast.server.hazelcast.names import name_of
from holdfast.server.hazelcast.refusals import BAD_ARGUMENT, UNSUPPORTED, CallRefused

TRUE_PREDICATE = bytes.fromhex("fffffffe01ffffffec0000000e")
"""The predicate that every entry satisfies: an identified object of factory -20, class 14, without fields."""

NO_END = (1 << 63) - 1
"""How the protocol writes "never" where it wants a time or duration in milliseconds."""
NOT_KEPT = -1
"""For the statistics of an entry view that no entry here pays for."""

Answer = Callable[[Call, Value], bytes]


# -- forms of answers


def nothing(call: Call, _: Value) -> bytes:
    """No parameter at all."""
    return message([response(call.kind + 1, call.correlation)])


def value_or_null(call: Call, value: Value) -> bytes:
    """One `Data`, null when there is none."""
    return message([response(call.kind + 1, call.correlation), data(cast("bytes | None", value))])


def null(call: Call, _: Value) -> bytes:
    """A null `Data`: the layout of the message has one, but the operation answers nothing."""
    return value_or_null(call, None)


def truth(call: Call, value: Value) -> bytes:
    """A boolean."""
    return message([response(call.kind + 1, call.correlation, bytes((bool(value),)))])


def number(call: Call, value: Value) -> bytes:
    """An int32; a count above what fits in it is told as the greatest that does."""
    return message(
        [response(call.kind + 1, call.correlation, INT.pack(min(cast("int", value), 0x7FFF_FFFF)))]
    )


def many(call: Call, value: Value) -> bytes:
    """A list of `Data`, or of pairs of them."""
    return message([response(call.kind + 1, call.correlation), *data_list(cast("list[bytes]", value or []))])


_VIEW = Struct("<10q")


def entry_view(call: Call, value: Value, wall_ms: int) -> bytes:
    """An entry with what is known about it; `value` is as `Op.ENTRY_VIEW` says."""
    if value is None:
        return message([response(call.kind + 1, call.correlation, LONG.pack(NO_END)), NULL])
    content, ttl_ms, max_idle_ms, remaining_ms, version = cast("list[int]", value)
    stored = cast("bytes", content)
    ttl = ttl_ms or NO_END
    max_idle = max_idle_ms or NO_END
    facts = _VIEW.pack(
        len(call.key) + len(stored),  # cost
        NOT_KEPT,  # creation time
        NO_END if remaining_ms < 0 else wall_ms + remaining_ms,
        0,  # hits
        NOT_KEPT,  # last access
        NOT_KEPT,  # last store
        NOT_KEPT,  # last update
        version,
        ttl,
        max_idle,
    )
    return message(
        [
            response(call.kind + 1, call.correlation, LONG.pack(max_idle)),
            BEGIN,
            frame(facts),
            data(call.key, call.key_hash),
            data(stored),
            END,
        ]
    )


# -- forms of requests


def keyed(op: Op, answer: Answer) -> Handler:
    """An operation on one key."""

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
    )


def _entry_view(talk: Conversation, call: Call) -> None:
    request = _keyed_request(talk, Op.ENTRY_VIEW, call)
    talk.execute(call, request, lambda value: entry_view(call, value, talk.grid.wall_ms()))


def whole(op: Op, answer: Answer) -> Handler:
    """An operation on the whole map; with a predicate, only if it is the one that is always true."""

    def handle(talk: Conversation, call: Call) -> None:
        if call.predicate:
            reject_other_predicates(call)
        request = Request(op, call.name, talk.every_partition, value=call.value)
        talk.execute(call, request, lambda value: answer(call, value))

    return handle


def reject_other_predicates(call: Call) -> None:
    """Raises CallRefused unless the predicate of the request is the one that is always true."""
    if call.predicate != TRUE_PREDICATE:
        raise CallRefused(
            UNSUPPORTED,
            f"{name_of(call.kind)} with a predicate other than TruePredicate is not supported by Holdfast",
        )


def _get_all(talk: Conversation, call: Call) -> None:
    requests = [
        Request(Op.GET_ALL, call.name, [partition], items=[call.keys[place] for place in places])
        for partition, places in _by_partition(talk, call, call.keys).items()
    ]

    def answer(parts: list[Value]) -> bytes:
        return many(call, [each for part in parts for each in cast("list[bytes]", part or [])])

    talk.execute_all(call, requests, answer)


def _put_all(talk: Conversation, call: Call) -> None:
    entries = call.entries
    requests = [
        Request(
            Op.PUT_ALL,
            call.name,
            [partition],
            items=[entries[at] for place in places for at in (2 * place, 2 * place + 1)],
        )
        for partition, places in _by_partition(talk, call, entries[::2]).items()
    ]
    talk.execute_all(call, requests, lambda _: nothing(call, None), size=sum(map(len, entries)))


def _by_partition(talk: Conversation, call: Call, keys: list[bytes]) -> dict[int, list[int]]:
    """Places of the keys in the request, by partition: all in one when the client has sorted them."""
    if not keys:
        return {}
    if call.partition != -1:
        return {talk.partition_of(call): list(range(len(keys)))}
    found: dict[int, list[int]] = {}
    for place, key in enumerate(keys):
        partition = partition_of(key, call.hashes[place], talk.grid.partition_count)
        found.setdefault(partition, []).append(place)
    return found


def _flush(talk: Conversation, call: Call) -> None:
    """Writes out what waits for a map store. There is no map store, so nothing waits."""
    talk.say(nothing(call, None))


def _load(_: Conversation, call: Call) -> None:
    raise CallRefused(
        UNSUPPORTED, f"{name_of(call.kind)} is not supported by Holdfast: there is no map store to load from"
    )


def guarded(handler: Handler) -> Handler:
    """No client may reach what members keep for themselves."""

    def handle(talk: Conversation, call: Call) -> None:
        reject_reserved(call.name)
        handler(talk, call)

    return handle


def reject_reserved(name: str) -> None:
    """Raises CallRefused for the name of a map that members keep for themselves, and for one that no map can have."""
    if name.startswith(INTERNAL):
        raise CallRefused(
            BAD_ARGUMENT,
            f"the map name {name!r} is reserved: those that begin with {INTERNAL!r} are Holdfast's own",
        )
    if not 1 <= len(name) <= MAP_NAME_MAX:
        raise CallRefused(BAD_ARGUMENT, f"a map's name has 1 to {MAP_NAME_MAX} characters")


_ROWS: list[tuple[int, str, Handler]] = [
    (0x010100, "thread ttl_ms | name key value", keyed(Op.PUT, value_or_null)),
    (0x010200, "thread | name key", keyed(Op.GET, value_or_null)),
    (0x010300, "thread | name key", keyed(Op.REMOVE, value_or_null)),
    (0x010400, "thread | name key value", keyed(Op.REPLACE, value_or_null)),
    (0x010500, "thread | name key expected value", keyed(Op.REPLACE_IF_SAME, truth)),
    (0x010600, "thread | name key", keyed(Op.CONTAINS_KEY, truth)),
    (0x010700, "| name value", whole(Op.CONTAINS_VALUE, truth)),
    (0x010800, "thread | name key expected", keyed(Op.REMOVE_IF_SAME, truth)),
    (0x010900, "thread | name key", keyed(Op.DELETE, truth)),
    (0x010A00, "| name", _flush),
    (0x010B00, "thread timeout | name key", keyed(Op.TRY_REMOVE, truth)),
    (0x010C00, "thread timeout | name key value", keyed(Op.TRY_PUT, truth)),
    (
        0x010D00,
        "thread ttl_ms | name key value",
        keyed(Op.SET, nothing),
    ),  # transient is like any other: no map store
    (0x010E00, "thread ttl_ms | name key value", keyed(Op.PUT_IF_ABSENT, value_or_null)),
    (0x010F00, "thread ttl_ms | name key value", keyed(Op.SET, nothing)),
    (0x011D00, "thread | name key", _entry_view),
    (0x011E00, "thread | name key", keyed(Op.EVICT, truth)),
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
    (0x012C00, "| name entries", _put_all),
    (0x012D00, "| name", whole(Op.CLEAR, nothing)),
    (0x013E00, "| name predicate", whole(Op.CLEAR, nothing)),  # remove all that satisfy the predicate
    (0x014300, "ttl_ms | name key", keyed(Op.SET_TTL, truth)),
    (0x014400, "thread ttl_ms max_idle_ms | name key value", keyed(Op.PUT, value_or_null)),
    (0x014500, "thread ttl_ms max_idle_ms | name key value", keyed(Op.SET, null)),
    (0x014600, "thread ttl_ms max_idle_ms | name key value", keyed(Op.PUT_IF_ABSENT, value_or_null)),
    (0x014700, "thread ttl_ms max_idle_ms | name key value", keyed(Op.SET, null)),
]

MESSAGES = {kind: Message(Layout(layout), guarded(handler)) for kind, layout, handler in _ROWS}
