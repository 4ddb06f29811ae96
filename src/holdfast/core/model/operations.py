"""Operations on maps and services, as requests travel between members, and their answers.

Keys and values are *serialised bytes without the 4-byte partition-hash word* of Hazelcast's `Data`: a
big-endian int32 type id and the payload. Two keys are equal when these bytes are.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, unique

import msgspec

from holdfast.core.model.keys import LOWEST_INT32


@unique
class Op(IntEnum):
    """Operations on one key (`KEYED`), on some keys of one partition, or on whole partitions (`WHOLE`)."""

    GET = 1
    CONTAINS_KEY = 2
    ENTRY_VIEW = 3
    PUT = 4  # answers the old value
    SET = 5
    PUT_IF_ABSENT = 6  # answers the present value, or None if it was put
    REPLACE = 7  # answers the old value, or None if there was none
    REPLACE_IF_SAME = 8  # `expected` -> `value`; answers bool
    REMOVE = 9  # answers the old value
    DELETE = 10  # answers bool: was there one
    REMOVE_IF_SAME = 11  # `expected`; answers bool
    SET_TTL = 12  # answers bool
    EVICT = 13  # answers bool
    TRY_PUT = 14  # answers bool: False when a transaction has locked the entry
    TRY_REMOVE = 15  # answers bool: was there one, that no transaction has locked
    GET_ALL = 20  # `items` = keys; answers a flat list key, value, ...
    PUT_ALL = 21  # `items` = flat list key, value, ...
    CALL = (
        25  # `map` = service, `value` = update; answers what its share does, None if there is no such service
    )
    ASK = 26  # `map` = service, `value` = question; the same without a change
    TRANSACT = (
        27  # `value` = a step that begins or prepares (`core.model.transactions`); answers a `StepResult`
    )
    SETTLE = 28  # the same of a step that ends what was begun
    PIN = 29  # cuts maps of a zone: `key` = cut, `items` = their names, `ttl_ms` = lease; answers as `cutter` reads
    SIZE = 30  # answers int
    CONTAINS_VALUE = 31  # `value`; answers bool
    KEYS = 32  # answers list of keys
    VALUES = 33
    ENTRIES = 34  # flat list key, value, ...
    CLEAR = 35  # answers int: how many were removed
    EVICT_ALL = 36  # answers int
    IS_EMPTY = 37
    DESTROY = 38  # as CLEAR, and the map is forgotten; answers int
    FILL = 39  # `value` = a `FillMap` step of a map that moves here (`core.model.map_moves`); answers a `MoveAnswer`
    MOVE = 40  # the same of another step
    READ_COLLECTION = (
        41  # `map` = the items' map, `value` = a `CollectionStep`, `items`; answers as the step says
    )
    ADD_TO_COLLECTION = 42  # the same of a step that stores items
    TAKE_FROM_COLLECTION = 43  # the same of a step that removes items
    AWAIT_ITEMS = 44  # the same of a step that reads items, and may wait for them
    READ_CP = 50  # `map` = that of a CP group, `key` = the object, `value` = a `CpStep`; answers a `CpAnswer`
    CHANGE_CP = 51  # the same of a step that may store something new, or wait
    RELEASE_CP = 52  # the same of a step that releases or removes something
    PROCESS = 55  # `value` = a `ProcessorCall`; answers what the function returns (`core.model.processors`)


READS = frozenset(
    {
        Op.GET,
        Op.CONTAINS_KEY,
        Op.ENTRY_VIEW,
        Op.GET_ALL,
        Op.SIZE,
        Op.CONTAINS_VALUE,
        Op.KEYS,
        Op.VALUES,
        Op.ENTRIES,
        Op.IS_EMPTY,
        Op.ASK,
        Op.READ_COLLECTION,
        Op.AWAIT_ITEMS,
        Op.READ_CP,
    }
)

GROWING = frozenset(
    {
        Op.PUT,
        Op.SET,
        Op.PUT_IF_ABSENT,
        Op.REPLACE,
        Op.REPLACE_IF_SAME,
        Op.SET_TTL,
        Op.TRY_PUT,
        Op.PUT_ALL,
        Op.CALL,
        Op.TRANSACT,
        Op.FILL,
        Op.ADD_TO_COLLECTION,
        Op.CHANGE_CP,
        Op.PROCESS,
    }
)
"""A longer value may need memory, too."""

WHOLE = frozenset(
    {
        Op.SIZE,
        Op.CONTAINS_VALUE,
        Op.KEYS,
        Op.VALUES,
        Op.ENTRIES,
        Op.CLEAR,
        Op.EVICT_ALL,
        Op.IS_EMPTY,
        Op.DESTROY,
    }
)

MOVING = frozenset({Op.FILL, Op.MOVE})
"""Steps of the move of a map. `expected` = their engine: a zone, or nothing for the partitions with a
primary. The map may live in the other one.
"""

STEPS = frozenset({Op.TRANSACT, Op.SETTLE})
"""Steps of transactions. `expected` = the zone of their branch (`zone_engine`), or nothing for the partitions with a
primary.
"""

COLLECTION_CHANGES = frozenset({Op.ADD_TO_COLLECTION, Op.TAKE_FROM_COLLECTION})
COLLECTION_WAITS = frozenset({Op.AWAIT_ITEMS, *COLLECTION_CHANGES})
COLLECTION_STEPS = frozenset({Op.READ_COLLECTION, *COLLECTION_WAITS})
CP_CHANGES = frozenset({Op.CHANGE_CP, Op.RELEASE_CP})
CP_STEPS = frozenset({Op.READ_CP, *CP_CHANGES})
STRUCTURE_CHANGES = COLLECTION_CHANGES | CP_CHANGES
STRUCTURE_WAITS = COLLECTION_WAITS | CP_CHANGES
"""Steps that may wait for a change of their collection or CP object, in line (routing/R-20)."""
STRUCTURE_STEPS = COLLECTION_STEPS | CP_STEPS

BETWEEN_MEMBERS = frozenset({Op.PIN, Op.PROCESS, *STEPS, *MOVING, *STRUCTURE_STEPS})

CLEARING = frozenset({Op.CLEAR, Op.EVICT_ALL, Op.DESTROY})

Value = None | bool | int | bytes | list[None | int | bytes]
"""Answer of an operation; see `Op`."""

DEFAULT_TTL = -1
"""`ttl_ms` or `max_idle_ms`: the map's own setting. 0 means no limit."""


class Request(msgspec.Struct, frozen=True, array_like=True):
    """One operation. `partitions` has one element for a keyed operation, any number for a `WHOLE` one."""

    op: Op
    map: str
    partitions: list[int]
    key: bytes = b""
    value: bytes = b""
    expected: bytes = b""
    items: list[bytes] = []
    ttl_ms: int = DEFAULT_TTL
    max_idle_ms: int = DEFAULT_TTL
    key_hash: int = 0
    """The partition-hash word of the key as signed int32; 0: the client set none."""
    id: bytes = b""
    """Names this request also when it is repeated, so that it is applied once. Empty: not repeated. Only for
    changes in one partition.
    """
    holder: bytes = b""
    """The owner of locks that makes the request (`model.map_locks.owner_of`), or its client; empty: none."""
    wait_ms: int = 0
    """How long `TRY_PUT` and `TRY_REMOVE` may wait for a lock."""


MAP_NAME_MAX = 1024
"""In characters. The empty name stands for the request's map in records and for all maps in the journal, so a
map has at least one character; `wire/hazelcast/layouts.py` renames the empty one.
"""
REQUEST_ID_BYTES_MAX = 64
HOLDER_BYTES_MAX = 32
LIFETIME_MS_MAX = 2**53


def request_problem(request: Request, partition_count: int) -> str:
    """Why the request is invalid; empty: it is valid. Names, limits and the partition of a key are not checked."""
    if not all(
        DEFAULT_TTL <= lifetime <= LIFETIME_MS_MAX for lifetime in (request.ttl_ms, request.max_idle_ms)
    ):
        return f"a lifetime is {DEFAULT_TTL} (the map's own), 0 (for ever) or up to {LIFETIME_MS_MAX} milliseconds"
    partitions = request.partitions
    if not partitions or not all(0 <= partition < partition_count for partition in partitions):
        return f"partitions are 0 to {partition_count - 1}"
    if len(partitions) != 1 and request.op not in WHOLE:
        return "keys of one partition at a time"
    if not LOWEST_INT32 <= request.key_hash < -LOWEST_INT32:
        return "the hash word of a key is an int32"
    if len(request.id) > REQUEST_ID_BYTES_MAX:
        return f"the id of a request has at most {REQUEST_ID_BYTES_MAX} bytes"
    if request.op is Op.PUT_ALL and len(request.items) % 2:
        return "PUT_ALL takes pairs"
    if len(request.holder) > HOLDER_BYTES_MAX:
        return f"the owner of a lock has at most {HOLDER_BYTES_MAX} bytes"
    if request.wait_ms < 0:
        return "a wait is not negative"
    return ""


@unique
class Status(IntEnum):
    """The three answers of a request (design rule 11); a rejection has one of several reasons."""

    OK = 0
    UNKNOWN = 1
    """It may or may not have been applied."""
    MOVED = 2
    """Rejected: this member does not serve the partition."""
    NOT_READY = 3
    """No member could serve the partition within the call timeout."""
    CLOSING = 4
    TOO_LARGE = 5
    PASSIVE = 6
    """No changes until the operator makes the cluster active again."""
    NO_ROOM = 7
    """The disk of a member that would have to store the write is full."""
    NO_DATA_MEMBER = 8
    FAILED = 9
    """An internal error, which has changed nothing."""
    NO_MEMORY = 10
    """The memory of a member that would have to store the write is nearly full."""
    LOST = 11
    """Partitions of the map are lost, and its `loss_policy` does not ignore that."""
    PROCESSOR_FAILED = 12
    """An entry processor has raised an error, or took too long. Nothing was changed."""


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a request. `value` counts only with status OK; otherwise `detail` is the reason."""

    status: Status
    value: Value = None
    detail: str = ""
    position: tuple[int, int] = (0, 0)
    """Term and counter of the map's last update that the answer has seen; only for maps that are read from
    backups.
    """


def too_long(answer_bytes: int) -> str:
    return (
        f"the answer would have more than {answer_bytes} bytes of keys and values (limits.answer_bytes); "
        "ask for fewer entries at a time"
    )


def bytes_of(value: Value) -> int:
    return sum(map(len, value)) if isinstance(value, list) else 0  # type: ignore[arg-type]


Done = Callable[[Outcome], None]
"""Called exactly once, possibly before the call that took the request returns."""


@unique
class EventKind(IntEnum):
    """Kind of an event, numbered like the listener flags of the client protocol."""

    ADDED = 1
    REMOVED = 2
    UPDATED = 4
    EVICTED = 8
    EXPIRED = 16
    EVICT_ALL = 32
    CLEAR_ALL = 64
    INVALIDATED = 256
    """Near caches must drop all entries of a partition: all have changed, or it has another primary."""
    DESTROYED = 512
    """For members: the listeners of the map get no later events."""


WrittenRow = tuple[int, bytes, bytes | None, bytes | None, int, int, int]
"""One event of `WrittenEntries`: kind, key, value, old value, partition-hash word, sequence and term."""


class WrittenEntries:
    """Events of entries of one map that compiled code has written, in order: without an object for each."""

    __slots__ = ("map", "member", "rows")

    def __init__(self, name: str, member: str) -> None:
        self.map = name
        self.member = member
        """The member on which they happened."""
        self.rows: list[WrittenRow] = []

    def events(self) -> list[EntryEvent]:
        return events_of(self.map, self.member, self.rows)


def events_of(name: str, member: str, rows: list[WrittenRow]) -> list[EntryEvent]:
    return [
        EntryEvent(EventKind(kind), name, member, key, value, old, 1, key_hash, sequence, term)
        for kind, key, value, old, key_hash, sequence, term in rows
    ]


class EntryEvent(msgspec.Struct, frozen=True, array_like=True):
    """One change of one entry (or of a whole map: `count` entries and no key), for listeners."""

    kind: EventKind
    map: str
    member: str
    key: bytes | None = None
    value: bytes | None = None
    old: bytes | None = None
    count: int = 1
    key_hash: int = 0
    sequence: int = 0
    """The map's update counter; 0 if the event is not of one partition."""
    term: int = 0
    group: str = ""
    """In a zone: the Raft group, in whose term the sequence counts; empty: the partition has a primary."""
