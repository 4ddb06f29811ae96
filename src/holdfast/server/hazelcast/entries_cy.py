"""The data lane of the client protocol: single-entry reads and writes of maps this member serves, straight
from a read buffer, with no object per operation.

Plain typed Python that Cython may compile. Whatever is not exactly as expected (another message, a partition
that is served elsewhere, an odd flag, a cut-off tail) is left to the general way, which knows every case and
every error.
"""

from __future__ import annotations

# ruff: noqa: C901, SIM109 -- one loop without calls, tuples or lookups that it can do without: that
# is its point
from struct import Struct

from holdfast.config import TRANSACTIONS_MAP
from holdfast.server.grid import EntryLane

PUT = 0x010100
GET = 0x010200
REMOVE = 0x010300
CONTAINS_KEY = 0x010600
DELETE = 0x010900
SET = 0x010F00

LOCKS = TRANSACTIONS_MAP
SHORTEST = 36
"""Bytes that a look at a message's head needs: the first frame of a get, and the header of the name."""
READ_HEAD = 30
"""Length of the first frame when it carries a thread id."""
WRITE_HEAD = 38
"""And when a time to live follows it."""
DATA_AT = 10
"""Where stored bytes begin in a frame of `Data`: after the header and the partition-hash word."""
SHORTEST_DATA = 14
"""A frame of `Data` with a type id and no payload."""
SMALL = 512
"""Shorter answers are not counted one by one: requests take a tenth of that, and a read buffer has an end."""
LONGEST_TTL_MS = 1 << 41
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


def found_nothing(answer: bytes, kind: int) -> bool:
    """Whether this answer of the lane to a request of this kind says that there was nothing to remove."""
    if kind == DELETE:
        return not answer[-1]
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


def serve_entries(
    data: bytes,
    at: int,
    lane: EntryLane,
    names: dict[bytes, str],
    out: list[bytes],
    unsealed: list[bytes],
    longest: tuple[int, int],
    room: int,
) -> int:
    """Carry out messages from `data[at:]` until one is not for this lane, or the values that were answered with take
    more than `room` bytes; answers where the next one begins.

    Answers to reads go to `out`; those to writes go to `unsealed`, which the caller holds back until the
    lane's batch is sealed. `names` are the map names that clients of this connection may use, by their
    encoding.
    """
    end = len(data)
    serving = lane.serving
    partitions = len(serving)
    confirms_reads = lane.confirms_reads
    locks_entries = lane.locks_entries
    while end - at >= SHORTEST:
        length, flags, kind, correlation, partition, name_length, name_flags = head_of(data, at)
        if length == READ_HEAD:
            writes = False
            ttl_ms = 0
            name_at = at + 36
        elif length == WRITE_HEAD and end - at >= 44:
            writes = True
            ttl_ms, name_length, name_flags = ttl_and_name_of(data, at + 30)
            if ttl_ms < -1 or ttl_ms > LONGEST_TTL_MS:
                return at
            name_at = at + 44
        else:
            return at
        if flags & 0xE000 != 0xC000 or name_flags or name_length < 6 or not 0 <= partition < partitions:
            return at
        key_at = name_at + name_length - 6
        if key_at + SHORTEST_DATA > end:
            return at
        key_length, key_flags, key_hash, key_type = data_head_of(data, key_at)
        if key_length < SHORTEST_DATA or not key_type:
            return at
        key_end = key_at + key_length
        if key_end > end:
            return at
        name = names.get(data[name_at:key_at])
        if name is None:
            return at
        copy = serving[partition]
        if copy is None:
            # While some writes are refused reads go on here.
            if kind != GET and kind != CONTAINS_KEY:
                return at
            copy = lane.leading[partition]
            if copy is None:
                return at
        key = data[key_at + DATA_AT : key_end]

        if not writes:
            if key_flags != 0x2000:
                return at
            if kind == GET or kind == CONTAINS_KEY:
                held = copy.maps.get(name)
                answers = out
                if held is None:
                    found = None
                elif (state := held.state).expiries and key in state.expiries:
                    # This may find that the entry has ended and take it out, so it is answered like a write.
                    found = lane.read(copy, name, key)
                    answers = unsealed
                else:
                    found = state.entries.get(key)
                if confirms_reads and lane.confirmed(name):
                    lane.rest_on(copy, name)
                    answers = unsealed
                if kind == CONTAINS_KEY:
                    answers.append(truth_answer(CONTAINED, correlation, found is not None))
                elif found is None:
                    answers.append(null_answer(GOT, correlation, NULL))
                else:
                    size = len(found) + 10
                    answers.append(value_answer(GOT, correlation, size, VALUE) + found)
                    if size > SMALL:
                        room -= size
                        if room < 0:
                            at = key_end
                            break
            elif kind == REMOVE or kind == DELETE:
                if locks_entries and LOCKS in copy.maps and lane.locked(copy, name, key):
                    return at
                old = lane.remove(copy, name, key)
                if kind == DELETE:
                    unsealed.append(truth_answer(_DELETED, correlation, old is not None))
                elif old is None:
                    unsealed.append(null_answer(_REMOVED, correlation, NULL))
                else:
                    size = len(old) + 10
                    unsealed.append(value_answer(_REMOVED, correlation, size, VALUE) + old)
                    if size > SMALL:
                        room -= size
                        if room < 0:
                            at = key_end
                            break
            else:
                return at
            at = key_end
            continue

        if key_length > longest[0]:
            return at
        if key_flags or key_end + SHORTEST_DATA > end or (kind != SET and kind != PUT):
            return at
        value_length, value_flags, _, value_type = data_head_of(data, key_end)
        value_end = key_end + value_length
        if (
            value_length < SHORTEST_DATA
            or not value_type
            or value_end > end
            or value_flags != 0x2000
            or value_length > longest[1]
        ):
            return at
        if locks_entries and LOCKS in copy.maps and lane.locked(copy, name, key):
            return at
        if key_hash:
            key_hash = int.from_bytes(data[key_at + 6 : key_at + DATA_AT], "big", signed=True)
        old = lane.set(copy, name, key, data[key_end + DATA_AT : value_end], ttl_ms, -1, key_hash)
        if kind == SET:
            unsealed.append(nothing_answer(_SET_DONE, correlation))
        elif old is None:
            unsealed.append(null_answer(_PUT_DONE, correlation, NULL))
        else:
            size = len(old) + 10
            unsealed.append(value_answer(_PUT_DONE, correlation, size, VALUE) + old)
            if size > SMALL:
                room -= size
                if room < 0:
                    at = value_end
                    break
        at = value_end
    return at
