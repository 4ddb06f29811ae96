"""Every keyed request of a map in one table: message type, parameters, operation, and form of the response.

`maps` serves all rows. The data lane (`reference_lane`, `compiled_lane`) serves them without the session:
from the row it derives the places of the message's parts, its action on the entry, and the
response.
"""

from __future__ import annotations

from enum import IntEnum, unique
from struct import Struct
from typing import NamedTuple

from holdfast.core.model.operations import Op
from holdfast.core.operations.conditions import ALWAYS, CONDITIONS, IF_ABSENT
from holdfast.server.hazelcast.entry_views import NO_VIEW

LAST_FRAME = 0x2000
HEADER_BYTES = 22
LONG_BYTES = 8
_WIDTHS = {"thread": 8, "timeout_ms": 8, "ttl_ms": 8, "max_idle_ms": 8}


@unique
class Form(IntEnum):
    NOTHING = 0
    VALUE = 1
    """The value found, or null."""
    TRUTH = 2
    """Whether a value was found, or, for a write, whether it took effect."""
    TRUE = 3
    NULL = 4
    ENTRIES = 5
    VIEW = 6
    """An entry with its metadata, or null."""


@unique
class LaneAction(IntEnum):
    GENERAL = 0
    """None: the session serves the request."""
    READ = 1
    STORE = 2
    REMOVE = 3
    EVICT = 4
    SET_TTL = 5


LANE_ACTIONS: dict[Op, LaneAction] = {
    Op.GET: LaneAction.READ,
    Op.CONTAINS_KEY: LaneAction.READ,
    Op.ENTRY_VIEW: LaneAction.READ,
    Op.GET_ALL: LaneAction.READ,
    Op.SET: LaneAction.STORE,
    Op.PUT: LaneAction.STORE,
    Op.TRY_PUT: LaneAction.STORE,
    Op.REMOVE: LaneAction.REMOVE,
    Op.DELETE: LaneAction.REMOVE,
    Op.TRY_REMOVE: LaneAction.REMOVE,
    Op.PUT_IF_ABSENT: LaneAction.STORE,
    Op.REPLACE: LaneAction.STORE,
    Op.REPLACE_IF_SAME: LaneAction.STORE,
    Op.REMOVE_IF_SAME: LaneAction.REMOVE,
    Op.EVICT: LaneAction.EVICT,
    Op.SET_TTL: LaneAction.SET_TTL,
    Op.PUT_ALL: LaneAction.STORE,
}
_PLAIN = frozenset({Op.SET, Op.PUT, Op.TRY_PUT, Op.REMOVE, Op.DELETE, Op.TRY_REMOVE, Op.PUT_ALL})
"""Writes that `EntryLane.set` and `EntryLane.remove` carry out without a look at the entry."""
COUNTED = tuple(LANE_ACTIONS)
"""Operations of the lane, reads first."""
READS_COUNTED = 4


class KeyedRequest(NamedTuple):
    kind: int
    """The message type; that of the response is one more."""
    layout: str
    """As in `layouts`."""
    op: Op
    form: Form


KEYED = (
    KeyedRequest(0x010100, "thread ttl_ms | name key value", Op.PUT, Form.VALUE),
    KeyedRequest(0x010200, "thread | name key", Op.GET, Form.VALUE),
    KeyedRequest(0x010300, "thread | name key", Op.REMOVE, Form.VALUE),
    KeyedRequest(0x010400, "thread | name key value", Op.REPLACE, Form.VALUE),
    KeyedRequest(0x010500, "thread | name key expected value", Op.REPLACE_IF_SAME, Form.TRUTH),
    KeyedRequest(0x010600, "thread | name key", Op.CONTAINS_KEY, Form.TRUTH),
    KeyedRequest(0x010800, "thread | name key expected", Op.REMOVE_IF_SAME, Form.TRUTH),
    KeyedRequest(0x010900, "thread | name key", Op.DELETE, Form.TRUTH),
    KeyedRequest(0x010B00, "thread timeout_ms | name key", Op.TRY_REMOVE, Form.TRUTH),
    KeyedRequest(0x010C00, "thread timeout_ms | name key value", Op.TRY_PUT, Form.TRUE),
    # "Transient" entries are like any others: there is no map store.
    KeyedRequest(0x010D00, "thread ttl_ms | name key value", Op.SET, Form.NOTHING),
    KeyedRequest(0x010E00, "thread ttl_ms | name key value", Op.PUT_IF_ABSENT, Form.VALUE),
    KeyedRequest(0x010F00, "thread ttl_ms | name key value", Op.SET, Form.NOTHING),
    KeyedRequest(0x011E00, "thread | name key", Op.EVICT, Form.TRUTH),
    KeyedRequest(0x014300, "ttl_ms | name key", Op.SET_TTL, Form.TRUTH),
    KeyedRequest(0x014400, "thread ttl_ms max_idle_ms | name key value", Op.PUT, Form.VALUE),
    KeyedRequest(0x014500, "thread ttl_ms max_idle_ms | name key value", Op.SET, Form.NULL),
    KeyedRequest(0x014600, "thread ttl_ms max_idle_ms | name key value", Op.PUT_IF_ABSENT, Form.VALUE),
    KeyedRequest(0x014700, "thread ttl_ms max_idle_ms | name key value", Op.SET, Form.NULL),
)
VIEW = KeyedRequest(0x011D00, "thread | name key", Op.ENTRY_VIEW, Form.VIEW)
BATCHES = (
    KeyedRequest(0x012300, "| name keys", Op.GET_ALL, Form.ENTRIES),
    # Clients ask for a map store to be loaded, and there is none.
    KeyedRequest(0x012C00, "| name entries", Op.PUT_ALL, Form.NOTHING),
)
"""Requests for some keys of one partition."""


class LaneRow:
    """A row as the data lane uses it."""

    __slots__ = (
        "action",
        "answers_value",
        "condition",
        "counter",
        "expected_flags",
        "expects",
        "first",
        "found",
        "head",
        "key_flags",
        "kind",
        "looks",
        "missing",
        "number",
        "op",
        "reads",
        "shows",
        "stores",
        "ttl",
        "ttl_first",
        "views",
    )

    def __init__(self, number: int, request: KeyedRequest) -> None:
        fixed, _, variable = (part.split() for part in request.layout.partition("|"))
        self.number = number
        self.kind = request.kind
        self.op = request.op
        self.action = LANE_ACTIONS[request.op]
        self.reads = self.action is LaneAction.READ
        self.stores = self.action is LaneAction.STORE
        self.expects = "expected" in variable
        if request not in BATCHES:
            parts = ["name", "key", *["expected"] * self.expects, *["value"] * self.stores]
            assert variable == parts, "the lane knows no other messages"
        self.condition = CONDITIONS.get(request.op, ALWAYS)
        self.looks = not self.reads and request.op not in _PLAIN
        """Whether the lane looks at the entry before it writes."""
        self.head = HEADER_BYTES + sum(_WIDTHS[name] for name in fixed)
        self.ttl = "ttl_ms" in fixed
        self.ttl_first = fixed[:1] == ["ttl_ms"]
        """Whether the time to live stands where other requests have the thread."""
        self.expected_flags = 0 if self.stores else LAST_FRAME
        """Flags of the frame of the expected value,"""
        self.key_flags = 0 if self.expects else self.expected_flags
        """and of the key's frame."""
        self.counter = COUNTED.index(request.op)
        self.answers_value = request.form is Form.VALUE
        self.views = request.form is Form.VIEW
        self.shows = self.answers_value or self.views or request.form is Form.ENTRIES
        ends = request.form in (Form.NOTHING, Form.TRUTH, Form.TRUE)
        fixed_bytes = 1 if request.form in (Form.TRUTH, Form.TRUE) else LONG_BYTES if self.views else 0
        self.first = _FIRST.pack(19 + fixed_bytes, 0xE000 if ends else 0xC000, request.kind + 1)
        """The response up to its correlation id."""
        self.missing, self.found = _RESTS[request.form]
        """The rest of the response: nothing was found, or a value that is not in the response."""


_FIRST = Struct("<iHi")
NULL_FRAME = bytes((6, 0, 0, 0, 0x00, 0x24))
BEGIN_FRAME = bytes((6, 0, 0, 0, 0x00, 0x10))
END_FRAME = bytes((6, 0, 0, 0, 0x00, 0x28))
"""The end of a list that is the last frame."""
_RESTS: dict[Form, tuple[bytes, bytes]] = {
    # They begin with the number of backups that answer the client themselves.
    Form.NOTHING: (b"\0", b"\0"),
    Form.VALUE: (b"\0" + NULL_FRAME, b""),
    Form.TRUTH: (b"\0\0", b"\0\1"),
    Form.TRUE: (b"\0\1", b"\0\1"),
    Form.NULL: (b"\0" + NULL_FRAME, b"\0" + NULL_FRAME),
    Form.ENTRIES: (b"\0" + BEGIN_FRAME, b"\0" + BEGIN_FRAME),
    Form.VIEW: (NO_VIEW, b""),
}

KIND_AT = 6
"""The place of its kind in a message."""
LANE_ROWS = [LaneRow(number, request) for number, request in enumerate((*KEYED, VIEW))]
BATCH_ROWS = [LaneRow(number, request) for number, request in enumerate(BATCHES, len(LANE_ROWS))]
BY_KIND = {row.kind: row for row in (*LANE_ROWS, *BATCH_ROWS)}
VIEWS = BY_KIND[VIEW.kind]
_SINGLE = {row.kind: row for row in LANE_ROWS}
_BATCH = {row.kind: row for row in BATCH_ROWS}


def row_of(kind: int) -> LaneRow | None:
    return _SINGLE.get(kind)


def batch_row_of(kind: int) -> LaneRow | None:
    return _BATCH.get(kind)


def is_for_lane(data: bytes, at: int) -> bool:
    """Whether the message at this offset may be one that the data lane serves."""
    return int.from_bytes(data[at + KIND_AT : at + KIND_AT + 4], "little") in BY_KIND


VALUE_FLAGS = bytes((0x00, 0x20, 0, 0, 0, 0))
"""Flags of the last frame, and no partition hash."""
value_head = Struct("<10s8sxi6s").pack
"""A response up to its value: `first`, correlation id, length of the value's frame, `VALUE_FLAGS`."""


def respond(row: LaneRow, correlation: bytes, found: bytes | None) -> bytes:
    if found is None:
        return row.first + correlation + row.missing
    if row.answers_value:
        return value_head(row.first, correlation, len(found) + 10, VALUE_FLAGS) + found
    return row.first + correlation + row.found


def changed_nothing(response: bytes) -> bool:
    """Whether the request of this response read, or did not take effect."""
    row = BY_KIND[_FIRST.unpack_from(response)[2] - 1]
    if row.reads or row.condition == ALWAYS:
        return row.reads
    nothing_found = response[len(row.first) + 8 :] == row.missing
    return nothing_found is not (row.condition == IF_ABSENT)
