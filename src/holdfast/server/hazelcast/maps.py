"""Operations on maps, as one table: message, layout, the operation it is, and the form of its answer."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import chain
from struct import Struct
from typing import cast

from holdfast.config import INTERNAL, TRANSACTIONS_MAP
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import MAP_NAME_MAX, Op, Request, Value
from holdfast.core.model.transactions import lock_key
from holdfast.server.flow import SLICE_BYTES, SLICE_ITEMS
from holdfast.server.hazelcast.conversation import Conversation, Handler, Made, RequestKind
from holdfast.server.hazelcast.layouts import Call, RequestLayout
from holdfast.server.hazelcast.names import name_of
from holdfast.server.hazelcast.refusals import BAD_ARGUMENT, UNSUPPORTED, CallRefused
from holdfast.wire.hazelcast_frames import (
    BEGIN,
    END,
    INT,
    LONG,
    NULL,
    data,
    frame,
    message,
    response,
)

TRUE_PREDICATE = bytes.fromhex("fffffffe01ffffffec0000000e")
"""The predicate that every entry satisfies: an identified object of factory -20, class 14, without fields."""

SHOWN_MAX = 64
"""Characters of a name that an error repeats."""
NO_END = (1 << 63) - 1
"""How the protocol writes "never" where it wants a time or duration in milliseconds."""
NOT_KEPT = -1
"""For the statistics of an entry view that no entry here pays for: how the protocol says that they are unknown."""

Answering = Callable[[Call, Value], Made]


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


def many(call: Call, value: Value) -> Made:
    """A list of `Data`, or of pairs of them."""
    return listed(call, cast("list[bytes]", value or []))


def listed(call: Call, values: list[bytes], before: bytes = b"") -> Generator[None, None, bytes]:
    """The same, slice by slice; `before`: frames that come first."""
    pieces = [response(call.kind + 1, call.correlation), before, BEGIN]
    for slices, begin in enumerate(range(0, len(values), SLICE_ITEMS)):
        if slices:
            yield
        pieces.append(b"".join(map(data, values[begin : begin + SLICE_ITEMS])))
    pieces.append(END)
    return message(pieces)


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
        NOT_KEPT,  # hits
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


def keyed(op: Op, answer: Answering) -> Handler:
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


def _is_locked(talk: Conversation, call: Call) -> None:
    """Whether a transaction has locked the entry; nothing else locks entries here."""
    kept = lock_key(call.name, call.key)
    request = Request(Op.CONTAINS_KEY, TRANSACTIONS_MAP, [talk.partition_of(call)], key=kept)
    talk.execute(call, request, lambda value: truth(call, value))


def whole(op: Op, answer: Answering) -> Handler:
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
    def answer(parts: list[Value]) -> Made:
        return many(call, list(chain.from_iterable(cast("list[bytes]", part or []) for part in parts)))

    keys = call.keys
    talk.execute_all(
        call,
        (
            part and Request(Op.GET_ALL, call.name, [part[0]], items=_taken(keys, part[1]))
            for part in _by_partition(talk, call, keys, keys, once=True)
        ),
        answer,
    )


def _taken(keys: list[bytes], places: list[int]) -> list[bytes]:
    """The keys or values at these places, which are not kept there: to give back the memory of a million at the end is
    30 ms of work.
    """
    items = [keys[place] for place in places]
    for place in places:
        keys[place] = b""
    return items


def _put_all(talk: Conversation, call: Call) -> None:
    keys, values = call.entries[::2], call.entries[1::2]
    call.entries = []

    def request(partition: int, places: list[int]) -> Request:
        items = [
            part for pair in zip(_taken(keys, places), _taken(values, places), strict=True) for part in pair
        ]
        return Request(Op.PUT_ALL, call.name, [partition], items=items)

    # Which partitions these are is not known yet, unless the client has sorted them: then it may be any.
    named = [talk.partition_of(call)] if call.partition != -1 and keys else talk.every_partition
    talk.require(Request(Op.PUT_ALL, call.name, named), call.size)
    parts = _by_partition(talk, call, keys, values)
    talk.execute_all(call, (part and request(*part) for part in parts), lambda _: nothing(call, None))


def _by_partition(
    talk: Conversation, call: Call, keys: list[bytes], values: list[bytes], *, once: bool = False
) -> Iterator[tuple[int, list[int]] | None]:
    """Places of the keys in the request, by partition (all in one when the client has sorted them); of one partition no
    more at a time than a slice of work. None after each slice in which nothing was found. `once`: a key that comes
    again is left out, for clients take what they are answered as a map.
    """
    named = talk.partition_of(call) if call.partition != -1 and keys else -1
    count = talk.grid.partition_count
    found: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    seen: set[bytes] = set()
    for place, key in enumerate(keys):
        if place % SLICE_ITEMS == SLICE_ITEMS - 1:
            yield None
        if once:
            if key in seen:
                keys[place] = (
                    b""  # Given back at once: the memory of a million keys at the end is 30 ms of work.
                )
                continue
            seen.add(key)
        partition = named if named >= 0 else partition_of(key, call.hashes[place], count)
        found.setdefault(partition, []).append(place)
        size = sizes[partition] = sizes.get(partition, 0) + len(values[place])
        if len(found[partition]) >= SLICE_ITEMS // 2 or size >= SLICE_BYTES:
            yield partition, found.pop(partition)
            sizes[partition] = 0
    yield from found.items()
    while seen:
        for _ in range(min(len(seen), SLICE_ITEMS)):
            seen.pop()
        yield None


def _flush(talk: Conversation, call: Call) -> None:
    """Writes out what waits for a map store. There is no map store, so nothing waits."""
    talk.say(nothing(call, None))


def _load(talk: Conversation, call: Call) -> None:
    """Loads from a map store. There is no map store, so nothing comes."""
    talk.say(nothing(call, None))


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
            f"the map name {name[:SHOWN_MAX]!r} is reserved: those that begin with {INTERNAL!r} are Holdfast's own",
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
    (0x011200, "| name key", _is_locked),
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

MESSAGES = {kind: RequestKind(RequestLayout(layout), guarded(handler)) for kind, layout, handler in _ROWS}
