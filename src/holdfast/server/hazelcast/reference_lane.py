"""The data lane in plain Python: requests for entries, straight from a read buffer.

`serve_entries` is the loop, and a sink carries out the requests: `PrimarySink` for maps with a primary and
backups, `ZoneEntrySink` for maps in zones. `compiled_lane` has the same names in C; a differential test
compares the two, and this module is the reference.
"""

from __future__ import annotations

from struct import Struct
from typing import Protocol, TypeVar

from holdfast.core.model.forwarded_frames import OutgoingFrames
from holdfast.core.operations.conditions import takes_effect
from holdfast.core.operations.map_operations import view_of
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.server.frame_forwards import FrameForwards
from holdfast.server.grid import EntryLane
from holdfast.server.hazelcast.entry_views import NO_VIEW, view_response
from holdfast.server.hazelcast.frame_parser import (
    CORRELATION_AT,
    DATA_AT,
    HASH_AT,
    NAME_HEADER,
    TYPE_BYTES,
    frame_of,
    parse,
    parse_batch,
)
from holdfast.server.hazelcast.keyed_requests import (
    END_FRAME,
    VALUE_FLAGS,
    LaneAction,
    LaneRow,
    respond,
    value_head,
)
from holdfast.server.hazelcast.lane_tally import LaneTally

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
Bulk = tuple[int, bytes]
"""A value that is not copied into the responses: its place among them, and the value."""
Served = str | tuple[str]
"""A map of the lane: its name; in a tuple, if the client may only read it."""
EntryWrite = tuple[bytes | None, int, int, int, bytes]
"""Value (None: no value is stored), time to live and maximum idle time in ms (-1: the map's own), partition-hash
word, and expected value.
"""
BatchEntry = tuple[bytes, bytes, int]
"""Key, value, and partition-hash word."""

NO_HASH = bytes(4)
GENERAL = -1
"""The session has to serve this request."""
SMALL = 512
"""Shorter values do not count as `room`: requests take a tenth of that, and a read buffer has an end."""
BULK_BYTES = 32 * 1024
"""Values from this size on are not copied into a response, if `bulk` takes them: one more piece to send costs
less.
"""
EXPECTED_BYTES = 64
"""Estimated size of a response without values."""
BATCH_ANSWER_BYTES = 64 * 1024
"""A batch with more keys and values in its response is left to the session, which makes it in slices. Not above the
lowest `limits.answer_bytes`.
"""
_DATA_HEAD = Struct("<iHi")
"""Length, flags, and no hash word."""


class Sink(Protocol[T_contra]):
    """Carries out the requests of a read buffer. `T_contra`: its knowledge of a map. `read` and `write`
    return the room that the response takes, or `GENERAL`; then nothing was done.
    """

    served: int
    """Requests carried out, or forwarded."""

    def forward(self, row: LaneRow, partition: int, served: T_contra, whole: bytes, keys: int, /) -> int:
        """Send a request to the owner of its partition, if that is another member and nothing was done here.
        `whole`: the message. `keys`: their number.
        """

    def read(
        self, row: LaneRow, partition: int, served: T_contra, key: bytes, correlation: bytes, /
    ) -> int: ...

    def view(
        self,
        row: LaneRow,
        partition: int,
        served: T_contra,
        key: bytes,
        hash_word: bytes,
        correlation: bytes,
        /,
    ) -> int: ...

    def write(
        self,
        row: LaneRow,
        partition: int,
        served: T_contra,
        key: bytes,
        write: EntryWrite,
        correlation: bytes,
        /,
    ) -> int: ...

    def read_batch(
        self, row: LaneRow, partition: int, served: T_contra, keys: list[bytes], correlation: bytes, /
    ) -> int: ...

    def write_batch(
        self, row: LaneRow, partition: int, served: T_contra, entries: list[BatchEntry], correlation: bytes, /
    ) -> int: ...

    def end(self) -> None:
        """No more requests of this buffer follow."""


class RequestIds(Protocol):
    """Ids of requests that another member has forwarded."""

    def write(
        self,
        number: int,
        row: LaneRow,
        copy: PartitionCopy,
        name: str,
        key: bytes,
        write: EntryWrite,
        /,
    ) -> bytes | None:
        """As `carry_out`, and the copy remembers the response. `number`: of the request, from 0."""

    def write_batch(
        self, number: int, copy: PartitionCopy, name: str, entries: list[BatchEntry], /
    ) -> None: ...


class PrimarySink:
    """Requests for maps whose primary may be this member."""

    def __init__(
        self,
        lane: EntryLane,
        out: bytearray,
        unsealed: bytearray,
        tally: LaneTally | None = None,
        bulk: list[Bulk] | None = None,
        forwards: FrameForwards | None = None,
    ) -> None:
        """Responses are added to `out`; those that wait for other members to `unsealed`, until the lane's
        batch is closed. `bulk` gets large values. `forwards`: None if no requests are for other members.
        """
        self.lane = lane
        self.out = out
        self.unsealed = unsealed
        self.bulk = bulk
        self.tally = tally
        self.forwards = forwards
        self.departing: list[OutgoingFrames] = []
        """With requests of this buffer. The caller empties it."""
        self.ids: RequestIds | None = None
        """Ids of the requests; None: they have none."""
        self.served = 0
        """Requests carried out or skipped since `ids` was set."""

    def forward(self, row: LaneRow, partition: int, served: Served, whole: bytes, keys: int) -> int:
        forwards = self.forwards
        if forwards is None or partition >= len(forwards.away):
            return GENERAL
        away = forwards.away[partition]
        if away is None or self.lane.leading[partition] is not None:
            return GENERAL
        name, reads_only = (served, False) if type(served) is str else (served[0], True)
        if (reads_only and not row.reads) or forwards.stays(name):
            return GENERAL
        if not away.frames:
            self.departing.append(away)
        away.frames += whole
        away.kinds.append(row.counter)
        expected = forwards.expected_bytes if row.shows else EXPECTED_BYTES
        away.expected += expected
        if row.reads and self.tally is not None:
            self.tally.read(name, keys)
        return expected

    def read(self, row: LaneRow, partition: int, served: Served, key: bytes, correlation: bytes) -> int:
        lane, out = self.lane, self.out
        if partition >= len(lane.serving):
            return GENERAL
        copy = lane.serving[partition]
        if copy is None:
            # While some writes are rejected reads continue here.
            copy = lane.leading[partition]
            if copy is None:
                return GENERAL
        name = served if type(served) is str else served[0]
        held = copy.maps.get(name)
        if held is None:
            found = None
        elif (state := held.state).expiries and key in state.expiries:
            # This may remove the entry, because it has ended, so the response waits like that to a write.
            found = lane.read(copy, name, key)
            out = self.unsealed
        else:
            found = state.entries.get(key)
        if lane.confirms_reads and lane.confirmed(name):
            lane.rest_on(copy, name)
            out = self.unsealed
        tally = self.tally
        if tally is not None:
            tally.counts[row.counter] += 1
            tally.read(name, 1)
        if found is None or not row.answers_value:
            out += row.first + correlation + (row.missing if found is None else row.found)
            return 0
        head = value_head(row.first, correlation, len(found) + DATA_AT, VALUE_FLAGS)
        if len(found) >= BULK_BYTES and self.bulk is not None and out is self.out:
            out += head
            self.bulk.append((len(out), found))
        else:
            out += head + found
        return room_of(found)

    def view(
        self, row: LaneRow, partition: int, served: Served, key: bytes, hash_word: bytes, correlation: bytes
    ) -> int:
        lane = self.lane
        copy = lane.leading[partition] if partition < len(lane.leading) else None
        if copy is None:
            return GENERAL
        name = served if type(served) is str else served[0]
        rest, waits = entry_view(lane, copy, name, key, hash_word)
        out = self.unsealed if waits else self.out
        out += row.first + correlation + rest
        if self.tally is not None:
            self.tally.counts[row.counter] += 1
            self.tally.read(name, 1)
        return len(rest) if len(rest) > SMALL else 0

    def write(
        self, row: LaneRow, partition: int, served: Served, key: bytes, write: EntryWrite, correlation: bytes
    ) -> int:
        lane = self.lane
        copy = lane.serving[partition] if partition < len(lane.serving) else None
        if copy is None or type(served) is not str:
            return GENERAL
        if copy.locks.closed and lane.locked(copy, served, key):
            return GENERAL
        if self.ids is not None:
            old = self.ids.write(self.served, row, copy, served, key, write)
        else:
            old = carry_out(lane, row, copy, served, key, write)
        if self.tally is not None:
            self.tally.counts[row.counter] += 1
        self.unsealed += respond(row, correlation, old)
        return room_of(old) if row.answers_value else 0

    def read_batch(
        self, row: LaneRow, partition: int, served: Served, keys: list[bytes], correlation: bytes
    ) -> int:
        lane = self.lane
        copy = lane.leading[partition] if partition < len(lane.leading) else None
        if copy is None:
            return GENERAL
        name = served if type(served) is str else served[0]
        held = copy.maps.get(name)
        expiries = held.state.expiries if held is not None else {}
        # Reads of entries that expire may remove some; then the response waits like that to a write.
        out = self.unsealed if expiries else self.out
        made = [row.first + correlation + row.found]
        size = 0
        distinct = dict.fromkeys(keys)
        for key in distinct:
            found = None
            if expiries and key in expiries:
                found = lane.read(copy, name, key)
            elif held is not None:
                found = held.state.entries.get(key)
            if found is not None:
                for part in (key, found):
                    made += (_DATA_HEAD.pack(len(part) + DATA_AT, 0, 0), part)
                size += len(key) + len(found) + 2 * DATA_AT
                if size > BATCH_ANSWER_BYTES:
                    return GENERAL
        made.append(END_FRAME)
        if lane.confirms_reads and lane.confirmed(name):
            lane.rest_on(copy, name)
            out = self.unsealed
        if self.tally is not None:
            self.tally.counts[row.counter] += 1
            self.tally.read(name, len(distinct))
        out += b"".join(made)
        return size if size > SMALL else 0

    def write_batch(
        self, row: LaneRow, partition: int, served: Served, entries: list[BatchEntry], correlation: bytes
    ) -> int:
        lane = self.lane
        copy = lane.serving[partition] if partition < len(lane.serving) else None
        if copy is None or type(served) is not str:
            return GENERAL
        if copy.locks.closed and any(lane.locked(copy, served, key) for key, _, _ in entries):
            return GENERAL
        if self.ids is not None:
            self.ids.write_batch(self.served, copy, served, entries)
        else:
            for key, value, key_hash in entries:
                lane.set(copy, served, key, value, -1, -1, key_hash)
        if self.tally is not None:
            self.tally.counts[row.counter] += 1
        self.unsealed += respond(row, correlation, None)
        return 0

    def end(self) -> None:
        pass


def entry_view(
    lane: EntryLane, copy: PartitionCopy, name: str, key: bytes, hash_word: bytes
) -> tuple[bytes, bool]:
    """The response to a getEntryView behind its correlation id, and whether it waits like that to a write."""
    held = copy.maps.get(name)
    found, waits = None, False
    if held is not None:
        waits = bool(held.state.expiries) and key in held.state.expiries
        found = lane.read(copy, name, key) if waits else held.state.entries.get(key)
    if lane.confirms_reads and lane.confirmed(name):
        lane.rest_on(copy, name)
        waits = True
    if held is None or found is None:
        return NO_VIEW, waits
    view = view_of(held.state, key, found, lane.now_ns, used=True)
    return view_response(key, hash_word, view, lane.wall_ms()), waits


def carry_out(
    lane: EntryLane, row: LaneRow, copy: PartitionCopy, name: str, key: bytes, write: EntryWrite
) -> bytes | None:
    """Write an entry. Returns the value that was found, or, for a conditional write, as `write_if`."""
    value, ttl_ms, max_idle_ms, key_hash, _ = write
    if row.looks:
        return write_if(lane, row, copy, name, key, write)
    if value is not None:
        return lane.set(copy, name, key, value, ttl_ms, max_idle_ms, key_hash)
    return lane.remove(copy, name, key)


def write_if(
    lane: EntryLane, row: LaneRow, copy: PartitionCopy, name: str, key: bytes, write: EntryWrite
) -> bytes | None:
    """Write if the entry is as the request demands. Returns the value for the response, which is any value if
    the response only says that the write took effect.
    """
    value, ttl_ms, max_idle_ms, key_hash, expected = write
    held = copy.maps.get(name)
    if held is None:
        present = None
    elif held.state.expiries and key in held.state.expiries:
        present = lane.read(copy, name, key)
    else:
        present = held.state.entries.get(key)
    if not takes_effect(row.condition, present is not None, present == expected):
        lane.rest_on(copy, name)
        return present if row.answers_value else None
    if value is not None:
        lane.set(copy, name, key, value, ttl_ms, max_idle_ms, key_hash)
    elif row.action is LaneAction.EVICT:
        lane.evict(copy, name, key)
    elif row.action is LaneAction.SET_TTL:
        lane.set_ttl(copy, name, key, ttl_ms)
    else:
        lane.remove(copy, name, key)
    return present if row.answers_value else b""


def room_of(value: bytes | None) -> int:
    size = 0 if value is None else len(value) + DATA_AT
    return size if size > SMALL else 0


def hash_of(word: bytes) -> int:
    return int.from_bytes(word, "big", signed=True) if word != NO_HASH else 0


def parts_of(data: bytes, at: int, count: int) -> list[tuple[bytes, int]]:
    """The stored bytes of so many frames of `Data`, with their hash words."""
    found = []
    for _ in range(count):
        length, _ = frame_of(data, at)
        found.append((data[at + DATA_AT : at + length], hash_of(data[at + HASH_AT : at + DATA_AT])))
        at += length
    return found


def serve_batch(
    data: bytes, at: int, sink: Sink[T], names: dict[bytes, T], longest: tuple[int, int]
) -> tuple[int, int]:
    """Carry out the batch at `at`; returns the offset of what follows, and the room that the response takes,
    or `GENERAL`.
    """
    after, row, partition, name_at, list_at, count = parse_batch(data, at, len(data), *longest)
    served = names.get(data[name_at:list_at])
    if row is None or served is None:
        return at, GENERAL
    correlation = data[at + CORRELATION_AT : at + CORRELATION_AT + 8]
    if row.reads:
        keys = [key for key, _ in parts_of(data, list_at + NAME_HEADER, count)]
        taken = sink.read_batch(row, partition, served, keys, correlation)
    else:
        parts = parts_of(data, list_at + NAME_HEADER, 2 * count)
        entries = [
            (key, value, key_hash)
            for (key, key_hash), (value, _) in zip(parts[::2], parts[1::2], strict=True)
        ]
        taken = sink.write_batch(row, partition, served, entries, correlation)
    if taken < 0:
        taken = sink.forward(row, partition, served, data[at:after], count)
    return after, taken


def serve_entries(
    data: bytes,
    at: int,
    sink: Sink[T],
    names: dict[bytes, T],
    longest: tuple[int, int],
    room: int,
    apart: bytes | None = None,
) -> int:
    """Carry out messages from `data[at:]` until one is not for this lane, or the values in responses take
    more than `room` bytes; returns the offset of the next one. `names`: maps that clients of this connection
    may use, by their encoding. `longest`: limits for frames of keys and values. `apart`: the data is one
    message, cut by `value_to_come`, and this is its value.
    """
    end = len(data)
    whole_end = end if apart is None else end + len(apart) - TYPE_BYTES
    longest_key, longest_value = longest
    while room >= 0:
        after, row, partition, ttl_ms, max_idle_ms, name_at, key_at, key_end, value_at, expected_end = parse(
            data, at, end, whole_end, longest_key, longest_value
        )
        if row is None:
            after, taken = serve_batch(data, at, sink, names, longest)
            if taken < 0:
                break
            room -= taken
            at = after
            sink.served += 1
            continue
        served = names.get(data[name_at:key_at])
        if served is None:
            break
        key = data[key_at + DATA_AT : key_end]
        correlation = data[at + CORRELATION_AT : at + CORRELATION_AT + 8]
        if row.views:
            hash_word = data[key_at + HASH_AT : key_at + DATA_AT]
            taken = sink.view(row, partition, served, key, hash_word, correlation)
        elif row.reads:
            taken = sink.read(row, partition, served, key, correlation)
        else:
            value, key_hash = None, 0
            if row.stores:
                value = data[value_at:after] if apart is None else apart
                key_hash = hash_of(data[key_at + HASH_AT : key_at + DATA_AT])
            expected = data[key_end + DATA_AT : expected_end]
            write = (value, ttl_ms, max_idle_ms, key_hash, expected)
            taken = sink.write(row, partition, served, key, write, correlation)
        if taken < 0 and apart is None:
            taken = sink.forward(row, partition, served, data[at:after], 1)
        if taken < 0:
            break
        room -= taken
        at = after
        sink.served += 1
    sink.end()
    return at


class LaneCode(Protocol):
    """This module, or `compiled_lane`."""

    PrimarySink: type[PrimarySink]
    LaneTally: type[LaneTally]

    def serve_entries(
        self,
        data: bytes,
        at: int,
        sink: Sink[T],
        names: dict[bytes, T],
        longest: tuple[int, int],
        room: int,
        apart: bytes | None = None,
        /,
    ) -> int: ...


__all__ = ["Bulk", "LaneCode", "LaneTally", "PrimarySink", "Served", "Sink", "serve_entries"]
