"""The data lane of the client protocol: single-entry reads and writes of maps this member serves, straight
from a read buffer, with no object per operation.

One source, two ways: plain Python, which runs everywhere and is the reference, and the same text compiled by Cython
(`build_lane.py`), which reads the buffer through a pointer. Whatever is not exactly as expected (another message, a
partition that is served elsewhere, an odd flag, a cut-off tail) is left to the general way, which knows every case
and every error.
"""

from __future__ import annotations

# ruff: noqa: SIM109 -- one loop without calls, tuples or lookups that it can do without: that
# is its point
from collections.abc import Callable
from struct import Struct
from typing import Any, Protocol

from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.model.records import PACKED_MOST, Change, Record
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.store.map_state import MapState
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica, UnsentPuts
from holdfast.core.store.uncompiled import (
    EntryTable,
    bytes_of,
    cython,
    memcmp,
    memcpy,
    resize,
)
from holdfast.observe.latency_histogram import BUCKETS, FIRST_BIT, LAST_BIT
from holdfast.observe.read_counts import ReadCounts
from holdfast.server.grid import EntryLane

Bulk = tuple[int, bytes]
"""A value that an answer has and that is not copied into it: where it belongs among the answers, and the value."""
Served = str | tuple[str]
"""A map as the lane finds it: its name; as the only one of a tuple, while nothing but reads is permitted."""

PUT = cython.declare(cython.int, 0x010100)
GET = cython.declare(cython.int, 0x010200)
REMOVE = cython.declare(cython.int, 0x010300)
CONTAINS_KEY = cython.declare(cython.int, 0x010600)
DELETE = cython.declare(cython.int, 0x010900)
SET = cython.declare(cython.int, 0x010F00)

FLAT: bool = cython.compiled
"""Whether writes of ordinary entries are made here instead of by the lane's methods, which do the same. Compiled that
saves most of their cost; plain Python gains little, and the methods are the reference.
"""

LOCKS = TRANSACTIONS_MAP
_GENERAL: Any = object()
"""What `_put` answers when it has done nothing."""
_NO_PUTS: list[MapReplica] = []
_SET_CHANGE, _REMOVE_CHANGE = Change.SET, Change.REMOVE
SHORTEST = cython.declare(cython.int, 36)
"""Bytes that a look at a message's head needs: the first frame of a get, and the header of the name."""
READ_HEAD = cython.declare(cython.int, 30)
"""Length of the first frame when it carries a thread id."""
WRITE_HEAD = cython.declare(cython.int, 38)
"""And when a time to live follows it."""
DATA_AT = cython.declare(cython.int, 10)
"""Where stored bytes begin in a frame of `Data`: after the header and the partition-hash word."""
SHORTEST_DATA = cython.declare(cython.int, 14)
"""A frame of `Data` with a type id and no payload."""
TYPE_BYTES = cython.declare(cython.int, 4)
"""The type id, with which stored bytes begin: what a message and its value both have when the value comes apart."""
PAIR_BYTES = cython.declare(cython.int, 8)
"""Bytes that say of a store how long its key and its value are (`UnsentPuts`)."""
SMALL = cython.declare(cython.int, 512)
"""Shorter answers are not counted one by one: requests take a tenth of that, and a read buffer has an end."""
BULK_BYTES = cython.declare(cython.Py_ssize_t, 32 * 1024)
"""Values from this size on are not copied into an answer, if who asks can do without: one more piece to send costs
less.
"""
APART_BYTES = cython.declare(cython.int, 32 * 1024)
"""Values from this size on may be received apart from their message,"""
APART_MOST = cython.declare(cython.int, 16 * 1024 * 1024)
"""up to this one: room for all of it is asked for when its message begins."""
LONG_VALUE = cython.declare(cython.Py_ssize_t, PACKED_MOST)
"""Values that are not packed."""
LONGEST_TTL_MS = cython.declare(cython.longlong, 1 << 41)
"""Longer ones (70 years) are for the general way, which knows that they mean "for ever"."""

head_of = Struct("<iHiqi8xiH").unpack_from
ttl_and_name_of = Struct("<qiH").unpack_from
data_head_of = Struct("<iHII").unpack_from
"""Length and flags of a frame of `Data`, whether its hash word is set, whether its type is not null (both
only as 0 or not 0: their byte order is another one).
"""

_first = Struct("<iHi").pack
"""The beginning of an answer: length, flags and kind. The correlation id, and that no backup answers, follow."""
_SET_DONE = _first(19, 0xE000, SET + 1)
_DELETED = _first(20, 0xE000, DELETE + 1)
CONTAINED = _first(20, 0xE000, CONTAINS_KEY + 1)
GOT = _first(19, 0xC000, GET + 1)
_PUT_DONE = _first(19, 0xC000, PUT + 1)
_REMOVED = _first(19, 0xC000, REMOVE + 1)
VALUE = bytes((0x00, 0x20, 0, 0, 0, 0))
"""Flags of the last frame, and no partition hash."""
NULL = bytes((6, 0, 0, 0, 0x00, 0x24))
nothing_answer = Struct("<10sqx").pack
truth_answer = Struct("<10sqx?").pack
_null_layout = Struct("<10sqx6s")
null_answer = _null_layout.pack
value_answer = Struct("<10sqxi6s").pack
CORRELATION_AT = cython.declare(cython.int, 10)
"""Where the correlation id begins, in requests and in answers."""
SIZE_AT = cython.declare(cython.int, 19)
"""Where the length of the value's frame begins in an answer with a value."""
VALUE_AT = cython.declare(cython.int, 29)
"""And the value."""
_SET_ANSWER = nothing_answer(_SET_DONE, 0)
_NOT_DELETED, _WAS_DELETED = (truth_answer(_DELETED, 0, was) for was in (False, True))
_NOT_CONTAINED, _CONTAINED = (truth_answer(CONTAINED, 0, was) for was in (False, True))
_GOT_NULL, _REMOVED_NULL, _PUT_NULL = (null_answer(one, 0, NULL) for one in (GOT, _REMOVED, _PUT_DONE))
_GOT_VALUE, _REMOVED_VALUE, _PUT_VALUE = (
    value_answer(one, 0, 0, VALUE) for one in (GOT, _REMOVED, _PUT_DONE)
)
"""What is compiled copies one of these and fills in what is missing."""


def found_nothing(answer: bytes, kind: int) -> bool:
    """Whether this answer of the lane to a request of this kind says that there was nothing to remove."""
    if kind == DELETE:
        return not answer[len(answer) - 1]
    return kind == REMOVE and len(answer) == _null_layout.size


def answer_write(kind: int, correlation: int, old: bytes | None) -> bytes:
    """The answer to a write that has found this value."""
    if kind == SET:
        return nothing_answer(_SET_DONE, correlation)
    if kind == DELETE:
        return truth_answer(_DELETED, correlation, old is not None)
    first = _PUT_DONE if kind == PUT else _REMOVED
    if old is None:
        return null_answer(first, correlation, NULL)
    return value_answer(first, correlation, len(old) + 10, VALUE) + old


OPERATIONS = ("get", "contains-key", "set", "put", "remove", "delete")
"""What the lane serves, in the order in which a tally tells of it."""
WRITTEN = cython.declare(cython.int, 2)
"""From here on they write."""
KINDS = cython.declare(cython.int, 6)
CELLS = cython.declare(cython.int, BUCKETS)
LOWEST = cython.declare(cython.int, FIRST_BIT)
HIGHEST = cython.declare(cython.int, LAST_BIT)


@cython.cclass
class Tally:
    """How many operations of each kind the lane has carried out, and how long these took. Of a single one nothing is
    measured: whoever calls the lane says when the answers leave that were made since the last time (`close`).
    """

    gets: cython.longlong
    looks: cython.longlong
    sets: cython.longlong
    puts: cython.longlong
    removes: cython.longlong
    deletes: cython.longlong
    _reads: Any
    _read_name: str
    _read_count: cython.longlong
    _unknown: cython.longlong
    _cells: Any
    _sums: Any

    def __init__(self) -> None:
        self.gets = self.looks = self.sets = self.puts = self.removes = self.deletes = 0
        """Since the last time."""
        self._reads = ReadCounts()
        self._read_name = ""
        self._read_count = 0
        self._unknown = 0
        if cython.compiled:
            self._cells = bytearray(8 * KINDS * CELLS)
            self._sums = bytearray(8 * KINDS)
        else:
            self._cells = [0] * (KINDS * CELLS)
            self._sums = [0] * KINDS

    def count_reads_in(self, counts: ReadCounts) -> None:
        """How often each map is read is told there from now on, by `tell_reads`."""
        self._reads = counts

    @cython.cfunc
    def read(self, name: str, count: cython.longlong) -> cython.void:
        """So many reads of this map. Mostly it is the same one as before."""
        if name != self._read_name:
            self.tell_reads()
            self._read_name = name
        self._read_count += count

    def tell_reads(self) -> None:
        """Count what was read since the last time."""
        if self._read_count:
            self._reads.add(self._read_name, self._read_count)
            self._read_count = 0

    def close(self, clock: Callable[[], int], began_ns: cython.longlong) -> None:
        """Answers to all since the last time leave now; the requests had come at `began_ns`."""
        if not (self.gets or self.looks or self.sets or self.puts or self.removes or self.deletes):
            return
        took_ns: cython.longlong = clock() - began_ns
        bucket: cython.int = self._bucket(took_ns)
        self._add(0, self.gets, bucket, took_ns)
        self._add(1, self.looks, bucket, took_ns)
        self._add(2, self.sets, bucket, took_ns)
        self._add(3, self.puts, bucket, took_ns)
        self._add(4, self.removes, bucket, took_ns)
        self._add(5, self.deletes, bucket, took_ns)
        self.gets = self.looks = self.sets = self.puts = self.removes = self.deletes = 0

    def take_writes(self) -> tuple[int, int, int, int]:
        """The writes since the last time, whose answers are held back: `settle` tells of them later."""
        taken = (self.sets, self.puts, self.removes, self.deletes)
        self.sets = self.puts = self.removes = self.deletes = 0
        return taken

    def settle(self, taken: tuple[int, int, int, int], took_ns: cython.longlong, safe: cython.bint) -> None:
        """Their answers leave now, after so long; or nobody will ever know."""
        bucket: cython.int = self._bucket(took_ns)
        for at, count in enumerate(taken):
            if not safe:
                self._unknown += count
            self._add(WRITTEN + at, count, bucket, took_ns)

    @cython.cfunc
    def _bucket(self, took_ns: cython.longlong) -> cython.int:
        """As `observe.latency_histogram.bucket_of`."""
        bit: cython.int = LOWEST
        if took_ns < (1 << LOWEST):
            return 0
        while bit < HIGHEST and took_ns >> (bit + 1):
            bit += 1
        if took_ns >> (bit + 1):
            return CELLS - 1
        return 1 + (bit - LOWEST) * 4 + ((took_ns >> (bit - 2)) & 3)

    @cython.cfunc
    def _add(
        self, kind: cython.int, count: cython.longlong, bucket: cython.int, took_ns: cython.longlong
    ) -> cython.void:
        """So many of this kind took so long."""
        if not count:
            return
        if cython.compiled:
            cells: cython.p_longlong = cython.cast(cython.p_longlong, bytes_of(self._cells))
            cells[kind * CELLS + bucket] += count
            sums: cython.p_longlong = cython.cast(cython.p_longlong, bytes_of(self._sums))
            sums[kind] += count * took_ns
        else:
            self._cells[kind * CELLS + bucket] += count
            self._sums[kind] += count * took_ns

    @property
    def unknown(self) -> int:
        """Writes of which nobody will ever know whether they have happened."""
        return self._unknown

    def figures(self) -> list[tuple[str, list[int], int]]:
        """Of each kind that there was: its name, how many by `bucket_of`, and how long all took together, in ns."""
        cells, sums = self._cells, self._sums
        if cython.compiled:
            cells, sums = memoryview(cells).cast("q").tolist(), memoryview(sums).cast("q").tolist()
        found = []
        for kind, name in enumerate(OPERATIONS):
            counts = cells[kind * CELLS : (kind + 1) * CELLS]
            if any(counts):
                found.append((name, counts, sums[kind]))
        return found


class ServeEntries(Protocol):
    """What `serve_entries` is, plain or compiled."""

    def __call__(
        self,
        data: bytes,
        at: int,
        lane: EntryLane,
        names: dict[bytes, Served],
        out: bytearray,
        unsealed: bytearray,
        longest: tuple[int, int],
        room: int,
        tally: Tally | None = None,
        bulk: list[Bulk] | None = None,
        apart: bytes | None = None,
        /,
    ) -> int:
        """See there."""


@cython.cfunc
@cython.inline
def _word(raw: cython.p_uchar, at: cython.Py_ssize_t) -> cython.uint:
    """Four bytes, the lowest first. C compilers make one load of it."""
    low: cython.uint = raw[at] | (cython.cast(cython.uint, raw[at + 1]) << 8)
    high: cython.uint = raw[at + 2] | (cython.cast(cython.uint, raw[at + 3]) << 8)
    return low | (high << 16)


@cython.cfunc
@cython.inline
def _put_word(to: cython.p_uchar, number: cython.uint) -> cython.void:
    """Write four bytes, the lowest first."""
    to[0] = number & 0xFF
    to[1] = (number >> 8) & 0xFF
    to[2] = (number >> 16) & 0xFF
    to[3] = (number >> 24) & 0xFF


@cython.cfunc
@cython.inline
def _room(out: bytearray, size: cython.Py_ssize_t) -> cython.p_uchar:
    """Make the bytes longer by so many; answers where these begin."""
    end: cython.Py_ssize_t = len(out)
    resize(out, end + size)
    begin: cython.p_uchar = cython.cast(cython.p_uchar, bytes_of(out))
    return cython.address(begin[end])


@cython.cfunc
@cython.inline
def _answer(out: bytearray, whole: bytes, raw: cython.p_uchar, at: cython.Py_ssize_t) -> cython.void:
    """Add this answer to the request at `at`."""
    size: cython.Py_ssize_t = len(whole)
    form: cython.p_uchar = whole
    to: cython.p_uchar = _room(out, size)
    memcpy(to, form, size)
    memcpy(cython.address(to[CORRELATION_AT]), cython.address(raw[at + CORRELATION_AT]), 8)


@cython.cfunc
@cython.inline
def _answer_with(
    out: bytearray, head: bytes, raw: cython.p_uchar, at: cython.Py_ssize_t, value: bytes
) -> cython.void:
    """Add this answer with a value to the request at `at`."""
    content: cython.p_uchar = value
    _answer_from(out, head, raw, at, content, len(value))


@cython.cfunc
@cython.inline
def _answer_from(
    out: bytearray,
    head: bytes,
    raw: cython.p_uchar,
    at: cython.Py_ssize_t,
    content: cython.p_uchar,
    count: cython.Py_ssize_t,
) -> cython.void:
    """The same with a value that is somewhere in memory."""
    to: cython.p_uchar = _room(out, VALUE_AT + count)
    _begin_answer(to, head, raw, at, count)
    memcpy(cython.address(to[VALUE_AT]), content, count)


@cython.cfunc
@cython.inline
def _begin_answer(
    to: cython.p_uchar, head: bytes, raw: cython.p_uchar, at: cython.Py_ssize_t, count: cython.Py_ssize_t
) -> cython.void:
    """Write what comes before a value of so many bytes."""
    form: cython.p_uchar = head
    memcpy(to, form, VALUE_AT)
    memcpy(cython.address(to[CORRELATION_AT]), cython.address(raw[at + CORRELATION_AT]), 8)
    _put_word(cython.address(to[SIZE_AT]), count + 10)


@cython.cfunc
@cython.inline
def _answer_without(
    out: bytearray, kind: cython.int, found: cython.bint, raw: cython.p_uchar, at: cython.Py_ssize_t
) -> cython.void:
    """Add what the request at `at` to read is answered with, when that is no value."""
    if kind == GET:
        _answer(out, _GOT_NULL, raw, at)
    else:
        _answer(out, _CONTAINED if found else _NOT_CONTAINED, raw, at)


@cython.cfunc
@cython.inline
def _answer_read(
    lane: EntryLane,
    copy: PartitionCopy,
    name: str,
    held: MapReplica | None,
    confirms_reads: cython.bint,
    uses: cython.bint,
    out: bytearray,
    unsealed: bytearray,
    bulk: list[Bulk] | None,
    kind: cython.int,
    raw: cython.p_uchar,
    at: cython.Py_ssize_t,
    key_at: cython.Py_ssize_t,
    key_size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Add the answer to the read at `at`, straight from a table; answers what its value counts for, 0 without one. -1:
    nothing was done, for it is no table, or the entry has ended. `uses`: whether an entry that ends may be read here,
    which counts as a use of it.
    """
    if held is None:
        return -1
    state: MapState = held.state
    kept = state.entries
    if type(kept) is not EntryTable:
        return -1
    ends: cython.bint = False
    if cython.cast(EntryTable, kept).some_end():
        now_ns: cython.longlong = lane.now_ns
        if cython.cast(EntryTable, kept).has_ended(
            cython.address(raw[key_at]), key_size, now_ns, uses, cython.address(ends)
        ) or (ends and not uses):
            return -1
        if ends:
            out = unsealed
    if confirms_reads and lane.confirmed(name):
        lane.rest_on(copy, name)
        out = unsealed
    size: cython.Py_ssize_t = 0
    found = cython.cast(
        cython.p_uchar,
        cython.cast(EntryTable, kept).look(cython.address(raw[key_at]), key_size, cython.address(size)),
    )
    if found != cython.NULL and kind == GET:
        if size >= BULK_BYTES and bulk is not None and out is not unsealed:
            _begin_answer(_room(out, VALUE_AT), _GOT_VALUE, raw, at, size)
            bulk.append((len(out), kept[raw[key_at : key_at + key_size]]))
            return size + 10
        _answer_from(out, _GOT_VALUE, raw, at, found, size)
        return size + 10
    _answer_without(out, kind, found != cython.NULL, raw, at)
    return 0


@cython.cfunc
@cython.inline
def _answer_to_write(
    out: bytearray, kind: cython.int, old: bytes | None, raw: cython.p_uchar, at: cython.Py_ssize_t
) -> cython.void:
    """The same to a write that has found this value (`answer_write`)."""
    if kind == SET:
        _answer(out, _SET_ANSWER, raw, at)
    elif kind == DELETE:
        _answer(out, _WAS_DELETED if old is not None else _NOT_DELETED, raw, at)
    elif old is None:
        _answer(out, _PUT_NULL if kind == PUT else _REMOVED_NULL, raw, at)
    else:
        _answer_with(out, _PUT_VALUE if kind == PUT else _REMOVED_VALUE, raw, at, old)


@cython.cfunc
@cython.inline
def _store(lane: EntryLane, copy: PartitionCopy, name: str, key: bytes, value: bytes) -> bytes | None:
    """What `Lane.set` does, of an entry without expiry or hash word, while nobody listens."""
    maps: dict[str, MapReplica] = copy.maps
    held: MapReplica | None = maps.get(name)
    if held is None or held.changes:
        return lane.set(copy, name, key, value, 0, 0, 0)
    state: MapState = held.state
    updates: UpdateCounter = held.updates
    if state.expiries or updates.hwm != updates.lwm:
        return lane.set(copy, name, key, value, 0, 0, 0)
    entries = state.entries
    old = entries.get(key)
    touched: dict[bytes, bytes | None] | None = state.touched
    if touched is not None and key not in touched:
        touched[key] = old
    entries[key] = value
    number = updates.hwm + 1
    updates.lwm = updates.hwm = number
    if held.recorded:
        lane.record(copy, held, Record(name, number, _SET_CHANGE, key, value))
    return old


@cython.cfunc
def _noted(touched: dict[bytes, bytes | None], key: bytes, kept: Any, counts: cython.bint) -> cython.bint:
    """Note what an entry is before it changes, unless its table `counts` that: answers whether it has to."""
    if key in touched:
        return False
    if not counts:
        touched[key] = kept.get(key)
    return counts


@cython.cfunc
@cython.inline
def _value(
    raw: cython.p_uchar, begin: cython.Py_ssize_t, end: cython.Py_ssize_t, apart: bytes | None
) -> bytes:
    """The value there, or the one that came apart."""
    found: bytes = raw[begin:end] if apart is None else apart
    return found


@cython.cfunc
@cython.inline
def _end_with(end: cython.Py_ssize_t, apart: bytes | None) -> cython.Py_ssize_t:
    """Where what has come would end with the value that came apart."""
    return end if apart is None else end + len(apart) - TYPE_BYTES


@cython.cfunc
@cython.inline
def _put(
    lane: EntryLane,
    puts: list[MapReplica],
    copy: PartitionCopy,
    name: str,
    wants_old: cython.bint,
    ttl_ms: cython.longlong,
    max_idle_ms: cython.longlong,
    raw: cython.p_uchar,
    key_at: cython.Py_ssize_t,
    key_size: cython.Py_ssize_t,
    value_at: cython.Py_ssize_t,
    value_size: cython.Py_ssize_t,
    apart: bytes | None,
) -> Any:
    """`_store` straight from the read buffer into a table, and packed to where it waits for the backups, with objects
    of only what others want to have; of an entry that ends a record is made. Answers the old value, if it is wanted;
    `_GENERAL`: nothing was done.
    """
    maps: dict[str, MapReplica] = copy.maps
    held: MapReplica | None = maps.get(name)
    if held is None or held.changes:
        return _GENERAL
    state: MapState = held.state
    updates: UpdateCounter = held.updates
    kept = state.entries
    if type(kept) is not EntryTable or updates.hwm != updates.lwm:
        return _GENERAL
    ending: cython.bint = ttl_ms != 0 or max_idle_ms != 0
    recorded: cython.bint = held.recorded
    unsent: UnsentPuts | None = held.unsent if recorded and not ending else None
    if not ending and ((unsent is None and recorded) or (unsent is not None and value_size >= LONG_VALUE)):
        return _GENERAL
    ends: cython.bint = False
    now_ns: cython.longlong = 0
    if ending or cython.cast(EntryTable, kept).some_end():
        now_ns = lane.now_ns
        if cython.cast(EntryTable, kept).has_ended(
            cython.address(raw[key_at]), key_size, now_ns, False, cython.address(ends)
        ):
            return _GENERAL
    touched: dict[bytes, bytes | None] | None = state.touched
    counted: cython.bint = state.counts
    old: Any = None
    if wants_old:
        old = kept.get(raw[key_at : key_at + key_size])
    if touched is not None and (touched or not counted):
        counted = _noted(touched, raw[key_at : key_at + key_size], kept, counted)
    if ending or ends:
        cython.cast(EntryTable, kept).put_ending(
            cython.address(raw[key_at]),
            key_size,
            cython.address(raw[value_at]),
            value_size,
            ttl_ms,
            max_idle_ms,
            now_ns,
            apart,
            counted,
        )
    else:
        cython.cast(EntryTable, kept).put(
            cython.address(raw[key_at]), key_size, cython.address(raw[value_at]), value_size, apart, counted
        )
    number = updates.hwm + 1
    updates.lwm = updates.hwm = number
    if ending and recorded:
        key, value = raw[key_at : key_at + key_size], _value(raw, value_at, value_at + value_size, apart)
        lane.record(copy, held, Record(name, number, _SET_CHANGE, key, value, ttl_ms, max_idle_ms))
    if unsent is not None:
        to: cython.p_uchar = _room(unsent.sizes, PAIR_BYTES)
        _put_word(to, key_size)
        _put_word(cython.address(to[4]), value_size)
        to = _room(unsent.data, key_size + value_size)
        memcpy(to, cython.address(raw[key_at]), key_size)
        memcpy(cython.address(to[key_size]), cython.address(raw[value_at]), value_size)
        if not unsent.opened:
            unsent.opened = True
            puts.append(held)
    return old


@cython.cfunc
@cython.inline
def _take_out(lane: EntryLane, copy: PartitionCopy, name: str, key: bytes) -> bytes | None:
    """What `Lane.remove` does, of such an entry; of any other it is called."""
    maps: dict[str, MapReplica] = copy.maps
    held: MapReplica | None = maps.get(name)
    if held is None or held.changes:
        return lane.remove(copy, name, key)
    state: MapState = held.state
    updates: UpdateCounter = held.updates
    entries = state.entries
    if state.hashes or key not in entries or updates.hwm != updates.lwm:
        return lane.remove(copy, name, key)
    if state.expiries:
        if state.endings.ended(key, lane.now_ns, False):
            return lane.remove(copy, name, key)
        state.endings.drop(key)
    old = entries.pop(key)
    touched: dict[bytes, bytes | None] | None = state.touched
    if touched is not None and key not in touched:
        touched[key] = old
    number = updates.hwm + 1
    updates.lwm = updates.hwm = number
    if held.recorded:
        lane.record(copy, held, Record(name, number, _REMOVE_CHANGE, key))
    return old


@cython.cfunc
def _count_reads(
    tally: Tally | None, name: str, told: cython.longlong, reads: cython.longlong
) -> cython.longlong:
    """So many reads there were of this map; `told` are counted already. Answers how many are now."""
    if tally is not None and reads > told:
        tally.read(name, reads - told)
    return reads


def value_to_come(data: bytes, at: int, longest: tuple[int, int]) -> tuple[int, int]:
    """Where the value begins of the message at `at`, and how many bytes it will have: when the message is a write of a
    large value and has come as far as that value's type. Otherwise both are 0. Until it is whole and was given to
    `serve_entries` nothing is said about whether it can be carried out.
    """
    if len(data) - at < WRITE_HEAD + SHORTEST_DATA:
        return 0, 0
    length, flags, kind, _, _, _, _ = head_of(data, at)
    if length != WRITE_HEAD or flags & 0xE000 != 0xC000 or kind not in (SET, PUT):
        return 0, 0
    _, name_length, name_flags = ttl_and_name_of(data, at + 30)
    key_at = at + WRITE_HEAD + name_length
    if name_length < 6 or name_flags or len(data) < key_at + SHORTEST_DATA:
        return 0, 0
    key_length, key_flags, _, _ = data_head_of(data, key_at)
    value_at = key_at + key_length
    if not SHORTEST_DATA <= key_length <= longest[0] or key_flags or len(data) < value_at + SHORTEST_DATA:
        return 0, 0
    value_length, value_flags, _, _ = data_head_of(data, value_at)
    size = value_length - DATA_AT
    if value_flags != 0x2000 or not APART_BYTES <= size <= APART_MOST or value_length > longest[1]:
        return 0, 0
    begin = value_at + DATA_AT
    return (begin, size) if len(data) < begin + size else (0, 0)


def serve_entries(
    data: bytes,
    at: cython.Py_ssize_t,
    lane: EntryLane,
    names: dict[bytes, Served],
    out: bytearray,
    unsealed: bytearray,
    longest: tuple[int, int],
    room: cython.Py_ssize_t,
    tally: Tally | None = None,
    bulk: list[Bulk] | None = None,
    apart: bytes | None = None,
) -> cython.Py_ssize_t:
    """Carry out messages from `data[at:]` until one is not for this lane, or the values that were answered with take
    more than `room` bytes; answers where the next one begins.

    Answers to reads are added to `out`; those to writes to `unsealed`, which the caller holds back until the
    lane's batch is sealed. `names` are the map names that clients of this connection may use, by their
    encoding. `tally` is told how many operations of each kind there were. `bulk`: large values go there instead of into
    `out`. `apart`: the data is one write, cut where `value_to_come` says, and this is its value; then where the next
    message begins is told as if it had come whole.
    """
    compiled: cython.bint = cython.compiled
    raw: cython.p_uchar = data
    end: cython.Py_ssize_t = len(data)
    whole_end: cython.Py_ssize_t = _end_with(end, apart)
    limit: cython.Py_ssize_t
    length: cython.int
    flags: cython.uint
    kind: cython.int
    correlation: cython.longlong
    partition: cython.int
    name_length: cython.int
    name_flags: cython.uint
    ttl_ms: cython.longlong
    name_at: cython.Py_ssize_t
    key_at: cython.Py_ssize_t
    key_end: cython.Py_ssize_t
    value_end: cython.Py_ssize_t
    key_length: cython.int
    key_flags: cython.uint
    key_hash: cython.uint
    key_type: cython.uint
    value_length: cython.int
    value_flags: cython.uint
    value_type: cython.uint
    writes: cython.bint
    size: cython.Py_ssize_t
    key: bytes
    answers: bytearray
    copy: PartitionCopy | None
    maps: dict[str, MapReplica]
    held: MapReplica | None
    serving: list[PartitionCopy | None] = lane.serving
    partitions: cython.Py_ssize_t = len(serving)
    confirms_reads: cython.bint = lane.confirms_reads
    locks_entries: cython.bint = lane.locks_entries
    got: cython.longlong = 0
    looked: cython.longlong = 0
    stored: cython.longlong = 0
    swapped: cython.longlong = 0
    removed: cython.longlong = 0
    deleted: cython.longlong = 0
    told: cython.longlong = 0
    """How many of the reads are counted by their map."""
    name = ""
    known: Any = None
    reads_only: cython.bint = False
    """Whether the client may do nothing else with this map."""
    named_at: cython.Py_ssize_t = 0
    named_length: cython.Py_ssize_t = -1
    judged = ""
    default_ttl_ms: cython.longlong = 0
    max_idle_ms: cython.longlong = 0
    lasting: cython.bint = False
    """Whether writes are made here, and entries of the map `judged` end only when they are told to."""
    opened = lane.open_puts if FLAT else None
    flat: cython.bint = opened is not None and not lane.listening
    puts: list[MapReplica] = _NO_PUTS if opened is None else opened
    while end - at >= SHORTEST:
        if compiled:
            length = cython.cast(cython.int, _word(raw, at))
            flags = _word(raw, at + 4) & 0xFFFF
            kind = cython.cast(cython.int, _word(raw, at + 6))
            partition = cython.cast(cython.int, _word(raw, at + 18))
            name_length = cython.cast(cython.int, _word(raw, at + 30))
            name_flags = raw[at + 34] | raw[at + 35]
        else:
            length, flags, kind, correlation, partition, name_length, name_flags = head_of(data, at)
        if length == READ_HEAD:
            writes = False
            ttl_ms = 0
            name_at = at + 36
        elif length == WRITE_HEAD and end - at >= 44:
            writes = True
            if compiled:
                ttl_ms = _word(raw, at + 30) | (cython.cast(cython.longlong, _word(raw, at + 34)) << 32)
                name_length = cython.cast(cython.int, _word(raw, at + 38))
                name_flags = raw[at + 42] | raw[at + 43]
            else:
                ttl_ms, name_length, name_flags = ttl_and_name_of(data, at + 30)
            if ttl_ms < -1 or ttl_ms > LONGEST_TTL_MS:
                break
            name_at = at + 44
        else:
            break
        if flags & 0xE000 != 0xC000 or name_flags or name_length < 6 or not 0 <= partition < partitions:
            break
        key_at = name_at + name_length - 6
        if key_at + SHORTEST_DATA > end:
            break
        if compiled:
            key_length = cython.cast(cython.int, _word(raw, key_at))
            key_flags = raw[key_at + 4] | (raw[key_at + 5] << 8)
            key_hash = _word(raw, key_at + 6)
            key_type = _word(raw, key_at + 10)
        else:
            key_length, key_flags, key_hash, key_type = data_head_of(data, key_at)
        if key_length < SHORTEST_DATA or not key_type:
            break
        key_end = key_at + key_length
        if key_end > end:
            break
        if (
            not compiled
            or named_length != name_length
            or memcmp(cython.address(raw[named_at]), cython.address(raw[name_at]), name_length - 6)
        ):
            known = names.get(raw[name_at:key_at])
            if known is None:
                break
            if known is not name and got + looked > told:
                told = _count_reads(tally, name, told, got + looked)
            reads_only = type(known) is tuple
            name = known[0] if reads_only else known
            named_at = name_at
            named_length = name_length
        copy = serving[partition]
        if copy is None:
            # While some writes are refused reads go on here.
            if kind != GET and kind != CONTAINS_KEY:
                break
            copy = lane.leading[partition]
            if copy is None:
                break
        if not compiled:
            key = raw[key_at + DATA_AT : key_end]

        if not writes:
            if key_flags != 0x2000:
                break
            if kind == GET or kind == CONTAINS_KEY:
                if kind == GET:
                    got += 1
                else:
                    looked += 1
                maps = copy.maps
                held = maps.get(name)
                answers = out
                if compiled:
                    size = _answer_read(
                        lane,
                        copy,
                        name,
                        held,
                        confirms_reads,
                        opened is not None,
                        out,
                        unsealed,
                        bulk,
                        kind,
                        raw,
                        at,
                        key_at + DATA_AT,
                        key_length - DATA_AT,
                    )
                    if size >= 0:
                        at = key_end
                        if size > SMALL and (room := room - size) < 0:
                            break
                        continue
                    key = raw[key_at + DATA_AT : key_end]
                if held is None:
                    found = None
                elif held.state.expiries and key in held.state.expiries:
                    # This may find that the entry has ended and take it out, so it is answered like a write.
                    found = lane.read(copy, name, key)
                    answers = unsealed
                else:
                    found = held.state.entries.get(key)
                if confirms_reads and lane.confirmed(name):
                    lane.rest_on(copy, name)
                    answers = unsealed
                if found is not None and kind == GET:
                    size = len(found) + 10
                    if len(found) >= BULK_BYTES and bulk is not None and answers is out:
                        if compiled:
                            _begin_answer(_room(out, VALUE_AT), _GOT_VALUE, raw, at, len(found))
                        else:
                            out += value_answer(GOT, correlation, size, VALUE)
                        bulk.append((len(out), found))
                    elif compiled:
                        _answer_with(answers, _GOT_VALUE, raw, at, found)
                    else:
                        answers += value_answer(GOT, correlation, size, VALUE) + found
                    if size > SMALL:
                        room -= size
                        if room < 0:
                            at = key_end
                            break
                elif compiled:
                    _answer_without(answers, kind, found is not None, raw, at)
                elif kind == GET:
                    answers += null_answer(GOT, correlation, NULL)
                else:
                    answers += truth_answer(CONTAINED, correlation, found is not None)
            elif kind == REMOVE or kind == DELETE:
                if reads_only:
                    break
                if compiled:
                    key = raw[key_at + DATA_AT : key_end]
                if locks_entries and LOCKS in copy.maps and lane.locked(copy, name, key):
                    break
                if kind == REMOVE:
                    removed += 1
                else:
                    deleted += 1
                if flat:
                    old = _take_out(lane, copy, name, key)
                else:
                    old = lane.remove(copy, name, key)
                if compiled:
                    _answer_to_write(unsealed, kind, old, raw, at)
                elif kind == DELETE:
                    unsealed += truth_answer(_DELETED, correlation, old is not None)
                elif old is None:
                    unsealed += null_answer(_REMOVED, correlation, NULL)
                else:
                    unsealed += value_answer(_REMOVED, correlation, len(old) + 10, VALUE) + old
                if kind == REMOVE and old is not None and (size := len(old) + 10) > SMALL:
                    room -= size
                    if room < 0:
                        at = key_end
                        break
            else:
                break
            at = key_end
            continue

        limit = longest[0]
        if reads_only or key_length > limit:
            break
        if key_flags or key_end + SHORTEST_DATA > end or (kind != SET and kind != PUT):
            break
        if compiled:
            value_length = cython.cast(cython.int, _word(raw, key_end))
            value_flags = raw[key_end + 4] | (raw[key_end + 5] << 8)
            value_type = _word(raw, key_end + 10)
        else:
            value_length, value_flags, _, value_type = data_head_of(data, key_end)
        value_end = key_end + value_length
        limit = longest[1]
        if (
            value_length < SHORTEST_DATA
            or not value_type
            or value_end > whole_end
            or value_flags != 0x2000
            or value_length > limit
        ):
            break
        if locks_entries and LOCKS in copy.maps and lane.locked(copy, name, raw[key_at + DATA_AT : key_end]):
            break
        if kind == SET:
            stored += 1
        else:
            swapped += 1
        if flat and name is not judged:
            judged = name
            default_ttl_ms, max_idle_ms = lane.lifetimes(name)
            lasting = not default_ttl_ms and not max_idle_ms
        old = _GENERAL
        if compiled:
            if flat and not key_hash:
                old = _put(
                    lane,
                    puts,
                    copy,
                    name,
                    kind == PUT,
                    default_ttl_ms if ttl_ms < 0 else ttl_ms,
                    max_idle_ms,
                    raw,
                    key_at + DATA_AT,
                    key_length - DATA_AT,
                    key_end + DATA_AT,
                    value_length - DATA_AT,
                    apart,
                )
            if old is _GENERAL:
                key = raw[key_at + DATA_AT : key_end]
        if old is _GENERAL:
            value = _value(raw, key_end + DATA_AT, value_end, apart)
            if key_hash:
                hash_word = int.from_bytes(data[key_at + 6 : key_at + DATA_AT], "big", signed=True)
                old = lane.set(copy, name, key, value, ttl_ms, -1, hash_word)
            elif lasting and ttl_ms <= 0:
                old = _store(lane, copy, name, key, value)
            else:
                old = lane.set(copy, name, key, value, ttl_ms, -1, 0)
        if compiled:
            _answer_to_write(unsealed, kind, old, raw, at)
        elif kind == SET:
            unsealed += nothing_answer(_SET_DONE, correlation)
        elif old is None:
            unsealed += null_answer(_PUT_DONE, correlation, NULL)
        else:
            unsealed += value_answer(_PUT_DONE, correlation, len(old) + 10, VALUE) + old
        at = value_end
        if kind == PUT and old is not None and (size := len(old) + 10) > SMALL:
            room -= size
            if room < 0:
                break
    if tally is not None:
        _count_reads(tally, name, told, got + looked)
        tally.gets += got
        tally.looks += looked
        tally.sets += stored
        tally.puts += swapped
        tally.removes += removed
        tally.deletes += deleted
    return at
