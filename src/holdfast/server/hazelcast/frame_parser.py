"""The parser of messages about a single entry, for the data lane and for large values that are still
arriving.

Frames of `put` (each begins with its length and flags; `Data` has a hash word, a type id and a payload):

    first frame    length flags | kind | correlation id | partition | thread, ttl, max idle as in the row
    name           length flags | text
    key            length flags | hash | type payload
    expected       length flags | hash | type payload (replaceIfSame, removeIfSame)
    value          length flags | hash | type payload

A batch (getAll, putAll) has a list instead of the key: a frame that begins it, keys or keys and values, and a frame
that ends it.

Anything unexpected (another message, a fragment, a null, a frame that ends behind the buffer) is left to the
session, which handles every case and error. The second part of this file is also compiled, as part of
`compiled_lane`, which reads through pointers: its names of C stand for those above.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeAlias

from holdfast.core.store import uncompiled as cython
from holdfast.server.hazelcast.keyed_requests import LaneRow, batch_row_of, row_of

Bytes: TypeAlias = bytes
Row: TypeAlias = LaneRow | None
Parsed = tuple[int, Row, int, int, int, int, int, int, int, int]
"""End of the message, its row, partition, time to live, maximum idle time, and the offsets of: name (its
text), key (its frame), end of the key, value (its stored bytes), end of the expected value, whose frame follows the
key. The row is None if it is not for the lane.
"""
NOTHING: Parsed = (0, None, 0, 0, 0, 0, 0, 0, 0, 0)
ParsedBatch = tuple[int, Row, int, int, int, int]
"""End of the message, its row, partition, the offsets of the name's text and of the frame that begins the list, and
the number of keys. The row is None if it is not for the lane.
"""
NO_BATCH: ParsedBatch = (0, None, 0, 0, 0, 0)

head_of = Struct("<iHi8xi8xiH").unpack_from
"""A first frame with a thread id, and the name's frame behind it."""
batch_head_of = Struct("<iHi8xi").unpack_from
"""A first frame without parameters."""
frame_of = Struct("<iH").unpack_from
time_of = Struct("<q").unpack_from
ttl_and_name_of = Struct("<qiH").unpack_from
times_and_name_of = Struct("<qqiH").unpack_from
data_head_of = Struct("<iH4xI").unpack_from
"""Length and flags of a frame of `Data`, and whether its type is not null (only as 0 or not 0: its byte order
differs).
"""

CORRELATION_AT = 10
SHORTEST = 36
"""Bytes needed to look at a message's head: the first frame with a thread id, and the header of the name."""
NAME_HEADER = 6
THREAD_AT = 22
BATCH_HEAD = 22
"""Length of the first frame of a batch; some clients have a byte more."""
SHORTEST_BATCH = 40
BATCH_KEYS = 1000
"""A batch with more keys is left to the session, which serves it in slices,"""
BATCH_BYTES = 256 * 1024
"""and so is one with more bytes."""
DATA_AT = 10
"""Where stored bytes begin in a frame of `Data`: after the header and the partition-hash word."""
HASH_AT = 6
SHORTEST_DATA = 14
"""A frame of `Data` with a type id and no payload."""
TYPE_BYTES = 4
"""The type id, with which stored bytes begin: both a message and its value have it when the value comes apart."""
DEFAULT_TIME = -1
"""The map's own time to live, or maximum idle time."""
LONGEST_MS = 1 << 41
"""Longer times (70 years) are left to the session, for which they mean "never"."""
APART_BYTES = 32 * 1024
"""Values from this size on may be received apart from their message,"""
APART_MOST = 16 * 1024 * 1024
"""up to this one: room for all of it is allocated when its message begins."""


def value_to_come(data: bytes, at: int, longest: tuple[int, int]) -> tuple[int, int]:
    """Offset of the value of the message at `at`, and its size: if the message stores a large value and has
    arrived as far as that value's type. Otherwise both are 0. The lane may still reject the message.
    """
    parsed = parse(data, at, len(data), len(data) + APART_MOST, *longest)
    end, row, begin = parsed[0], parsed[1], parsed[8]
    if row is None or not row.stores or not APART_BYTES <= end - begin <= APART_MOST or end <= len(data):
        return 0, 0
    return begin, end - begin


# -- compiled as well


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def end_of_data(
    data: Bytes,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    whole_end: cython.Py_ssize_t,
    flags: cython.uint,
) -> cython.Py_ssize_t:
    """Where the frame of `Data` at `at` ends, which is at most at `whole_end`; its type is in the first `end`
    bytes. 0: it is not such a frame, has other flags, or is null.
    """
    length: cython.int
    found_flags: cython.uint
    type_id: cython.uint
    if at + SHORTEST_DATA > end:
        return 0
    length, found_flags, type_id = data_head_of(data, at)
    if length < SHORTEST_DATA or found_flags != flags or not type_id or at + length > whole_end:
        return 0
    return at + length


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def parse(
    data: Bytes,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    whole_end: cython.Py_ssize_t,
    longest_key: cython.Py_ssize_t,
    longest_value: cython.Py_ssize_t,
) -> Parsed:
    """Parse the message at `at`. Its value may end at `whole_end`, everything else within the `end` available
    bytes. `longest_key`, `longest_value`: lengths of their frames, for messages with a value.
    """
    length: cython.int
    flags: cython.uint
    kind: cython.int
    partition: cython.int
    name_length: cython.int
    name_flags: cython.uint
    ttl_ms: cython.longlong = DEFAULT_TIME
    max_idle_ms: cython.longlong = DEFAULT_TIME
    if end - at < SHORTEST:
        return NOTHING
    length, flags, kind, partition, name_length, name_flags = head_of(data, at)
    row = row_of(kind)
    if not row or length != row.head or flags & 0xE000 != 0xC000:
        return NOTHING
    name_at: cython.Py_ssize_t = at + length + NAME_HEADER
    if length != SHORTEST - NAME_HEADER:
        if end < name_at:
            return NOTHING
        if length == SHORTEST - NAME_HEADER + 8:
            ttl_ms, name_length, name_flags = ttl_and_name_of(data, at + 30)
        else:
            ttl_ms, max_idle_ms, name_length, name_flags = times_and_name_of(data, at + 30)
        if not row.ttl:
            ttl_ms = DEFAULT_TIME
        if not (-1 <= ttl_ms <= LONGEST_MS and -1 <= max_idle_ms <= LONGEST_MS):
            return NOTHING
    elif row.ttl_first:
        (ttl_ms,) = time_of(data, at + THREAD_AT)
        if not -1 <= ttl_ms <= LONGEST_MS:
            return NOTHING
    if name_flags or name_length < NAME_HEADER or partition < 0:
        return NOTHING
    key_at: cython.Py_ssize_t = name_at + name_length - NAME_HEADER
    key_end: cython.Py_ssize_t = end_of_data(data, key_at, end, end, row.key_flags)
    part_at: cython.Py_ssize_t = key_end
    if part_at and row.expects:
        part_at = end_of_data(data, key_end, end, end, row.expected_flags)
    if not part_at:
        return NOTHING
    if not row.stores:
        return part_at, row, partition, ttl_ms, max_idle_ms, name_at, key_at, key_end, part_at, part_at
    value_end: cython.Py_ssize_t = end_of_data(data, part_at, end, whole_end, 0x2000)
    if not value_end or key_end - key_at > longest_key or value_end - part_at > longest_value:
        return NOTHING
    value_at: cython.Py_ssize_t = part_at + DATA_AT
    return value_end, row, partition, ttl_ms, max_idle_ms, name_at, key_at, key_end, value_at, part_at


@cython.cfunc
@cython.exceptval(check=False)
def parse_batch(
    data: Bytes,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    longest_key: cython.Py_ssize_t,
    longest_value: cython.Py_ssize_t,
) -> ParsedBatch:
    """Parse the batch at `at`, up to `end`. All of it is checked, so that the lane can step through it."""
    length: cython.int
    flags: cython.uint
    kind: cython.int
    partition: cython.int
    if end - at < SHORTEST_BATCH:
        return NO_BATCH
    length, flags, kind, partition = batch_head_of(data, at)
    row = batch_row_of(kind)
    if not row or not BATCH_HEAD <= length <= BATCH_HEAD + 1 or flags & 0xE000 != 0xC000 or partition < 0:
        return NO_BATCH
    name_at: cython.Py_ssize_t = at + length + NAME_HEADER
    length, flags = frame_of(data, name_at - NAME_HEADER)
    list_at: cython.Py_ssize_t = name_at + length - NAME_HEADER
    if flags or length < NAME_HEADER or list_at + NAME_HEADER > end:
        return NO_BATCH
    length, flags = frame_of(data, list_at)
    if length != NAME_HEADER or flags != 0x1000:
        return NO_BATCH
    most: cython.Py_ssize_t = min(end, at + BATCH_BYTES)
    part_at: cython.Py_ssize_t = list_at + NAME_HEADER
    count: cython.Py_ssize_t = 0
    while count < BATCH_KEYS:
        key_end: cython.Py_ssize_t = end_of_data(data, part_at, most, most, 0)
        if not key_end:
            break
        if row.stores:
            value_end: cython.Py_ssize_t = end_of_data(data, key_end, most, most, 0)
            if not value_end or key_end - part_at > longest_key or value_end - key_end > longest_value:
                return NO_BATCH
            key_end = value_end
        part_at = key_end
        count += 1
    if not count or part_at + NAME_HEADER > most:
        return NO_BATCH
    length, flags = frame_of(data, part_at)
    if length != NAME_HEADER or flags != 0x2800:
        return NO_BATCH
    return part_at + NAME_HEADER, row, partition, name_at, list_at, count
