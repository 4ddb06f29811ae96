"""Collections: names of the maps that hold their items (collections/C-1), and the steps of their requests."""

from __future__ import annotations

from enum import IntEnum, StrEnum, unique
from typing import Final

import msgspec

from holdfast.config import COLLECTIONS, CP_PREFIX, INTERNAL, KEY_LOCKS
from holdfast.core.model.keys import partition_of
from holdfast.core.model.levels import COLLECTIONS as LEVEL_OF_COLLECTIONS
from holdfast.core.model.levels import STRUCTURES
from holdfast.core.model.map_locks import OWNER_BYTES, guarded_map
from holdfast.core.model.operations import MAP_NAME_MAX, Op, Request

_STRING = (-11).to_bytes(4, "big", signed=True)
NAME_MAX: Final = MAP_NAME_MAX - len(f"{INTERNAL}queue:")
"""Characters of the name of a collection; those whose kinds have longer names have fewer."""
BATCH_MAX: Final = 1_000
"""Items that one request reads from a ringbuffer."""
IDS_MAX: Final = 131_072
"""Ids that one request gets from a generator."""
FOREVER_MS = 86_400_000
"""A wait without a limit, in one request; the primary shortens it (routing/R-11)."""


@unique
class CollectionKind(StrEnum):
    QUEUE = "queue"
    LIST = "list"
    SET = "set"
    RINGBUFFER = "ringbuffer"
    TOPIC = "topic"
    RELIABLE_TOPIC = "reliable-topic"
    REPLICATED_MAP = "replicated-map"
    PN_COUNTER = "pn-counter"
    FLAKE_ID_GENERATOR = "flake-id-generator"
    CARDINALITY_ESTIMATOR = "cardinality-estimator"
    MULTIMAP = "multimap"

    def map_of(self, name: str) -> str:
        """The map that holds the items of this collection."""
        return f"{INTERNAL}{self}:{name}"

    @property
    def level(self) -> int:
        """The feature level that it needs."""
        return LEVEL_OF_COLLECTIONS if self in _FIRST_KINDS else STRUCTURES

    @property
    def name_max(self) -> int:
        """Characters of a name."""
        # The map of its locks needs a valid name, too.
        longest = len(self.map_of("")) + (len(KEY_LOCKS) if self is CollectionKind.MULTIMAP else 0)
        return min(NAME_MAX, MAP_NAME_MAX - longest)

    @property
    def is_spread(self) -> bool:
        """Whether its entries are in all partitions, by their keys, and not in that of its name."""
        return self in (CollectionKind.REPLICATED_MAP, CollectionKind.MULTIMAP)


def collection_of(map_name: str) -> tuple[CollectionKind, str] | None:
    """Kind and name of the collection whose items this map holds; None: of none."""
    prefix, colon, name = map_name.partition(":")
    if prefix + colon not in COLLECTIONS or not name:
        return None
    return CollectionKind(prefix.removeprefix(INTERNAL)), name


def shown_name(map_name: str) -> str:
    """The name for operators: `queue jobs`, or `cp group g`; for other maps, their own."""
    if map_name.startswith(CP_PREFIX):
        return f"cp group {map_name.removeprefix(CP_PREFIX)}"
    if guarded := guarded_map(map_name):
        return f"locks of {shown_name(guarded)}"
    named = collection_of(map_name)
    return f"{named[0]} {named[1]}" if named is not None else map_name


def is_in_one_partition(map_name: str) -> bool:
    """Whether this map holds the items of a collection, all in the partition of the collection's name."""
    named = collection_of(map_name)
    return named is not None and not named[0].is_spread


def is_multimap(map_name: str) -> bool:
    """Whether the entries of this map are those of a multimap."""
    return COLLECTIONS.get(map_name[: map_name.find(":") + 1]) == "multimaps"


def is_set(map_name: str) -> bool:
    """Whether this map holds the items of a set."""
    return COLLECTIONS.get(map_name[: map_name.find(":") + 1]) == "sets"


def partition_of_name(name: str, partition_count: int) -> int:
    """The partition of a collection. Hazelcast clients compute the same: from the part after the first `@`, if any."""
    _, at, after = name.partition("@")
    encoded = (after if at else name).encode()
    return partition_of(_STRING + len(encoded).to_bytes(4, "big") + encoded, 0, partition_count)


@unique
class StepKind(IntEnum):
    """`items` are those of the request."""

    SIZE = 1  # answers int
    CONTAINS = 2  # whether all items are there; answers bool
    ITEMS = 3  # answers all, in their order
    PEEK = 4  # of a queue: answers the first item, or None
    GET = 5  # of a list: answers the item at `index`, or None if there is none
    INDEX_OF = 6  # answers the first position of the item, or -1
    LAST_INDEX_OF = 7
    SLICE = 8  # answers the items from `index` to before `end` (-1: all that follow), or None if some are not there
    LOOK = 9  # for a transaction: answers the size in 8 bytes, the last key (of a set: the last number), and then key
    # and value of the first entry, or of the first with this item, when `index` of them are passed over
    HEAD = 10  # of a ringbuffer: answers the sequence of the oldest item; without items, one more than TAIL
    TAIL = 11  # answers the last sequence of a ringbuffer, -1: there was none
    READ_ITEM = (
        12  # answers the item with the sequence `index`, or the keys of HEAD and TAIL if it is not there
    )
    READ_ITEMS = (
        13  # from `index` on, `count` to `end` items: answers the key of the first one, and the items
    )
    COUNT = 14  # answers the value and version of a counter; its client has seen the version `end`
    ESTIMATE = 15  # answers the estimated number of different values

    ADD = 20  # stores all items, or none if these are too many; answers whether anything has changed
    INSERT = 21  # into a list, at `index`; answers the same, or None if there is no such position
    REPLACE = 22  # answers the former item at `index`, or None if there was none
    AWAIT_ROOM = 23  # answers whether an item can be added to a queue
    APPEND = 24  # to a ringbuffer, instead of the oldest items if it is full; answers the last sequence
    APPEND_IF_ROOM = 25  # answers the same, or -1: items that have not expired would have to go
    PUBLISH = 26  # sends the items to the listeners of a topic, and stores nothing
    INCREASE = 27  # adds `index` to a counter, and answers as COUNT; None: it is behind the version `end`
    RESERVE_IDS = 28  # answers the first of `count` ids
    OBSERVE = 29  # counts `index`, a hash of 64 bits, as seen

    POLL = 30  # takes the first item of a queue; answers it, or None
    DRAIN = 31  # takes up to `end` items (-1: all); answers them
    REMOVE = 32  # removes the first of these items; answers whether it was there
    REMOVE_AT = 33  # answers the item that was at `index`, or None if there was none
    REMOVE_ALL = 34  # removes all that equal one of these items; answers whether there were any
    RETAIN_ALL = 35  # removes all that equal none of these items; answers whether there were any
    CLEAR = 36
    AWAIT_ITEM = 37  # answers whether a queue has an item
    LOCK = 43  # answers whether the holder of the request has it now; `index` = reference of the request
    UNLOCK = 44  # answers whether the holder had it
    FORCE_UNLOCK = 45  # answers whether it was locked

    @property
    def op(self) -> Op:
        """The operation of a request with this step."""
        if self in (StepKind.READ_ITEM, StepKind.READ_ITEMS):
            return Op.AWAIT_ITEMS
        if self < StepKind.ADD:
            return Op.READ_COLLECTION
        return (
            Op.ADD_TO_COLLECTION if self < StepKind.POLL or self is StepKind.LOCK else Op.TAKE_FROM_COLLECTION
        )


STEPS_OF: dict[CollectionKind, frozenset[StepKind]] = {
    CollectionKind.QUEUE: frozenset(
        {
            StepKind.SIZE,
            StepKind.CONTAINS,
            StepKind.ITEMS,
            StepKind.PEEK,
            StepKind.LOOK,
            StepKind.ADD,
            StepKind.AWAIT_ROOM,
            StepKind.POLL,
            StepKind.DRAIN,
            StepKind.REMOVE,
            StepKind.REMOVE_ALL,
            StepKind.RETAIN_ALL,
            StepKind.CLEAR,
            StepKind.AWAIT_ITEM,
        }
    ),
    CollectionKind.SET: frozenset(
        {
            StepKind.SIZE,
            StepKind.CONTAINS,
            StepKind.ITEMS,
            StepKind.LOOK,
            StepKind.ADD,
            StepKind.REMOVE,
            StepKind.REMOVE_ALL,
            StepKind.RETAIN_ALL,
            StepKind.CLEAR,
        }
    ),
    CollectionKind.LIST: frozenset(
        {
            StepKind.SIZE,
            StepKind.CONTAINS,
            StepKind.ITEMS,
            StepKind.GET,
            StepKind.INDEX_OF,
            StepKind.LAST_INDEX_OF,
            StepKind.SLICE,
            StepKind.ADD,
            StepKind.INSERT,
            StepKind.REPLACE,
            StepKind.REMOVE,
            StepKind.REMOVE_AT,
            StepKind.REMOVE_ALL,
            StepKind.RETAIN_ALL,
            StepKind.CLEAR,
            StepKind.LOOK,
        }
    ),
    CollectionKind.RINGBUFFER: frozenset(
        {
            StepKind.SIZE,
            StepKind.HEAD,
            StepKind.TAIL,
            StepKind.READ_ITEM,
            StepKind.READ_ITEMS,
            StepKind.APPEND,
            StepKind.APPEND_IF_ROOM,
        }
    ),
    CollectionKind.TOPIC: frozenset({StepKind.PUBLISH}),
    CollectionKind.RELIABLE_TOPIC: frozenset(),
    CollectionKind.REPLICATED_MAP: frozenset(),
    CollectionKind.PN_COUNTER: frozenset({StepKind.COUNT, StepKind.INCREASE}),
    CollectionKind.FLAKE_ID_GENERATOR: frozenset({StepKind.RESERVE_IDS}),
    CollectionKind.CARDINALITY_ESTIMATOR: frozenset({StepKind.ESTIMATE, StepKind.OBSERVE}),
}
_FIRST_KINDS = frozenset({CollectionKind.QUEUE, CollectionKind.LIST, CollectionKind.SET})
TRANSACTIONAL: dict[CollectionKind, frozenset[StepKind]] = {
    CollectionKind.QUEUE: frozenset({StepKind.ADD, StepKind.POLL, StepKind.PEEK, StepKind.SIZE}),
    CollectionKind.LIST: frozenset({StepKind.ADD, StepKind.REMOVE, StepKind.SIZE}),
    CollectionKind.SET: frozenset({StepKind.ADD, StepKind.REMOVE, StepKind.SIZE}),
    CollectionKind.MULTIMAP: frozenset(
        {StepKind.ADD, StepKind.REMOVE, StepKind.DRAIN, StepKind.ITEMS, StepKind.SIZE}
    ),
}
"""Steps that transactions can take."""
WHOLE_COLLECTION = b""
"""The key under which a transaction locks a collection. No item has it."""
STEPS_OF[CollectionKind.MULTIMAP] = frozenset(
    {
        StepKind.SIZE,
        StepKind.CONTAINS,
        StepKind.ITEMS,
        StepKind.ADD,
        StepKind.REMOVE,
        StepKind.DRAIN,
    }
)
LOCK_STEPS = frozenset({StepKind.LOCK, StepKind.UNLOCK, StepKind.FORCE_UNLOCK})
_ONE_ITEM = frozenset({StepKind.INDEX_OF, StepKind.LAST_INDEX_OF, StepKind.REPLACE, StepKind.REMOVE})


class CollectionStep(msgspec.Struct, frozen=True, array_like=True):
    kind: StepKind
    index: int = 0
    end: int = -1
    wait_ms: int = 0
    """How long it may wait: to add to a full queue, or to poll an empty one."""
    max_size: int = 0
    """Largest number of items, for steps that add; 0: not limited. The member that was asked writes it here, so all
    replicas decide alike. For a ringbuffer it is the capacity.
    """
    count: int = 0
    """At least so many items are to be read, or so many ids reserved."""
    ttl_ms: int = 0
    """Time to live of items that are added; 0: unlimited."""
    max_bytes: int = 0
    """Read no more than these bytes of items, but at least one item; 0: not limited."""
    answer_bytes: int = 0
    """In the log of a group: largest answer, by the leader that proposed it; 0: not checked when it is applied."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CollectionStep).decode


def encode_step(step: CollectionStep) -> bytes:
    return _encode(step)


def decode_step(encoded: bytes) -> CollectionStep:
    """Raises msgspec.MsgspecError."""
    return _decode(encoded)


def encode_size(size: int) -> bytes:
    """For an answer that is a list of bytes."""
    return size.to_bytes(8, "big")


def with_start(request: Request, start: int) -> Request:
    """The same step, which reads from here on."""
    step = msgspec.structs.replace(decode_step(request.value), index=start)
    return msgspec.structs.replace(request, value=encode_step(step))


_INT64 = 1 << 63


def step_problem(request: Request) -> str:
    """Why a request with this step is invalid; empty: it is valid."""
    named, guarded = collection_of(request.map), guarded_map(request.map)
    if named is None and not guarded:
        return f"{request.map[:40]!a} holds the items of no collection, and no locks"
    try:
        step = decode_step(request.value)
    except msgspec.MsgspecError as broken:
        return f"an unreadable step of a collection: {broken}"
    kind, steps = (named[0], STEPS_OF[named[0]]) if named is not None else ("lock", LOCK_STEPS)
    if step.kind.op is not request.op or step.kind not in steps:
        return f"{step.kind.name} is no step of a {kind} in {request.op.name}"
    if guarded:
        needs_owner = step.kind is not StepKind.FORCE_UNLOCK
        if (needs_owner and len(request.holder) != OWNER_BYTES) or request.ttl_ms < 0:
            return "a step of a lock has an owner, and a lease that is not negative"
        if not -_INT64 <= step.index < _INT64:
            return "the reference of a request is an int64"
    if step.kind in _ONE_ITEM and len(request.items) != 1:
        return f"{step.kind.name} takes one item"
    if step.kind is StepKind.LOOK and (step.index < 0 or len(request.items) > 1):
        return "LOOK passes over 0 or more items, and takes one item or none"
    if min(step.wait_ms, step.max_size, step.count, step.ttl_ms, step.max_bytes, step.answer_bytes) < 0:
        return "a wait, a size, a count and a time to live are not negative"
    if step.kind is StepKind.READ_ITEMS and not step.count <= step.end <= BATCH_MAX:
        return f"one request reads at most {BATCH_MAX} items, and at least as many as are wanted"
    if step.kind is StepKind.RESERVE_IDS and not 1 <= step.count <= IDS_MAX:
        return f"one request gets 1 to {IDS_MAX} ids"
    return ""
