"""The data lane of maps that live in zones: single-entry reads and writes straight from a read buffer, where this
member leads the partition's group.

What a buffer wants goes to the member as one batch (`ZoneBatch`). Reads are done while the buffer is looked at, and are
answered when it is confirmed that this member has led since (raft_partition/Z-2). Like `entries_cy` this leaves
whatever is not exactly as expected to the general way.
"""

from __future__ import annotations

# ruff: noqa: SIM109 -- one loop without calls, tuples or lookups that it can do without, as in `entries_cy`
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core.model.operations import DEFAULT_TTL, Status
from holdfast.core.model.zone_batches import ZoneBatch, ZoneBatchDone, ZoneWrite
from holdfast.core.raft_partition.leader_routing import ZoneEntries
from holdfast.server.hazelcast.entries_cy import (
    CONTAINED,
    CONTAINS_KEY,
    DATA_AT,
    DELETE,
    GET,
    GOT,
    LONGEST_TTL_MS,
    NULL,
    PUT,
    READ_HEAD,
    REMOVE,
    SET,
    SHORTEST,
    SHORTEST_DATA,
    SMALL,
    VALUE,
    WRITE_HEAD,
    answer_write,
    data_head_of,
    head_of,
    null_answer,
    truth_answer,
    ttl_and_name_of,
    value_answer,
)
from holdfast.wire.hazelcast.hazelcast_frames import REQUEST, Scan
from holdfast.wire.hazelcast.refusals import AGAIN, INDETERMINATE, UNKNOWN_OUTCOME, error

ANSWER_BYTES = 64
"""What an answer is taken for until it is known."""


@dataclass(frozen=True, slots=True)
class ZoneMap:
    """A map that lives in a zone."""

    name: str
    entries: ZoneEntries
    local: bool
    """Whether reads are answered at once (`reads = "local"`)."""
    ttl_ms: int
    """The map's own time to live; 0: for ever."""
    reads_only: bool = False
    """Whether the client may do nothing else with it."""


class ZoneBuffer:
    """What is wanted by a part of a read buffer, and what to answer."""

    __slots__ = ("_begin", "asked", "batch", "data", "end", "found", "read", "size", "writes")

    def __init__(self, data: bytes, begin: int, zone: int) -> None:
        self.data = data
        self._begin = self.end = begin
        """Which part of the read buffer this is."""
        self.batch = ZoneBatch(zone)
        self.found: list[bytes] = []
        """The answers to reads."""
        self.read: dict[int, None] = {}
        """The partitions that were read."""
        self.writes: dict[int, list[ZoneWrite]] = {}
        """By partition."""
        self.asked: dict[int, list[tuple[int, int]]] = {}
        """Of the writes, by partition: kind and correlation id."""
        self.size = 0
        """Bytes of the answers, at about."""

    def close(self, end: int) -> ZoneBatch:
        """Nothing more comes in."""
        self.end = end
        self.batch.reads = list(self.read)
        self.batch.writes = list(self.writes.items())
        self.size = ANSWER_BYTES * sum(map(len, self.asked.values())) + sum(map(len, self.found))
        return self.batch

    def answers(self, done: ZoneBatchDone) -> list[bytes]:
        """The answers to all that was done."""
        out = self.found if done.unconfirmed is None else []
        for partition, former in done.former:
            asked = self.asked[partition]
            assert len(asked) == len(former), "of each write it is told what was there"
            out += [
                answer_write(kind, correlation, old)
                for (kind, correlation), old in zip(asked, former, strict=True)
            ]
        return out

    def rest(self, done: ZoneBatchDone) -> tuple[list[bytes], list[tuple[int, int]]]:
        """Of what was not done, or does not count: what to answer, and where those requests begin and end that take the
        general way now, because nothing was done of them. If a read does not count, none does.
        """
        refused: list[bytes] = []
        again: list[tuple[int, int]] = []
        scan, start, lost = Scan(), self._begin, dict(done.failed)
        while start < self.end:
            scan.begin(start)
            end = scan.look(self.data, self.end - start)
            kind, correlation, partition = REQUEST.unpack_from(self.data, start)[2:5]
            writes = kind != GET and kind != CONTAINS_KEY
            failed = lost.get(partition)
            if not writes and self.read:
                failed = done.unconfirmed
            if failed is not None and failed.status is Status.MOVED:
                again.append((start, end))
            elif failed is not None and writes:
                refused.append(error(correlation, INDETERMINATE, f"{UNKNOWN_OUTCOME} ({failed.detail})"))
            elif failed is not None:
                refused.append(error(correlation, AGAIN, f"nothing was changed; ask again: {failed.detail}"))
            start = end
        return refused, again


def serve_zone_entries(
    data: bytes,
    at: int,
    maps: dict[bytes, ZoneMap],
    out: bytearray,
    longest: tuple[int, int],
    room: int,
    read: Callable[[str, int], None],
) -> tuple[int, ZoneBuffer | None]:
    """Take in messages from `data[at:]` until one is not for this lane, or for another zone, or read in another way, or
    answers may take more than `room` bytes. Answers where the next one begins, and what is wanted; None: nothing. Local
    reads are answered in `out` at once. `read` is told of each map how often it is read.
    """
    end = len(data)
    entries: ZoneEntries | None = None
    local = False
    while end - at >= SHORTEST:
        length, flags, kind, correlation, partition, name_length, name_flags = head_of(data, at)
        if length == READ_HEAD:
            name_at = at + 36
        elif length == WRITE_HEAD and end - at >= 44:
            ttl_ms, name_length, name_flags = ttl_and_name_of(data, at + 30)
            if ttl_ms < -1 or ttl_ms > LONGEST_TTL_MS:
                break
            name_at = at + 44
        else:
            break
        if flags & 0xE000 != 0xC000 or name_flags or name_length < 6 or partition < 0:
            break
        key_at = name_at + name_length - 6
        if key_at + SHORTEST_DATA > end:
            break
        key_length, key_flags, key_hash, key_type = data_head_of(data, key_at)
        key_end = key_at + key_length
        if key_length < SHORTEST_DATA or not key_type or key_end > end:
            break
        chosen = maps.get(data[name_at:key_at])
        if chosen is None:
            break
        if chosen.entries is not entries or chosen.local is not local:
            if entries is not None:
                break
            entries, local = chosen.entries, chosen.local
            serving = entries.serving
            partitions = len(serving)
            buffer = ZoneBuffer(data, at, entries.zone)
            found_here, writes, asked = buffer.found, buffer.writes, buffer.asked
        if partition >= partitions:
            break
        replica = serving[partition]
        if replica is None:
            break
        key = data[key_at + DATA_AT : key_end]
        if length == READ_HEAD and key_flags != 0x2000:
            break
        if chosen.reads_only and kind != GET and kind != CONTAINS_KEY:
            break
        if kind == GET or kind == CONTAINS_KEY:
            if length != READ_HEAD:
                break
            read(chosen.name, 1)
            held = replica.state.maps.get(chosen.name)
            if held is None:
                found = None
            elif (state := held.state).expiries and key in state.expiries:
                found = replica.look(chosen.name, key)
            else:
                found = state.entries.get(key)
            if found is None or kind == CONTAINS_KEY:
                if kind == GET:
                    answer = null_answer(GOT, correlation, NULL)
                else:
                    answer = truth_answer(CONTAINED, correlation, found is not None)
            else:
                size = len(found) + 10
                answer = value_answer(GOT, correlation, size, VALUE) + found
                if size > SMALL:
                    room -= size
            if local:
                out += answer
            else:
                found_here.append(answer)
                buffer.read[partition] = None
            at = key_end
        elif kind == REMOVE or kind == DELETE:
            if length != READ_HEAD:
                break
            if partition not in asked:
                asked[partition], writes[partition] = [], []
            writes[partition].append((chosen.name, key, None, 0, 0))
            asked[partition].append((kind, correlation))
            at = key_end
        elif kind == SET or kind == PUT:
            if length != WRITE_HEAD or key_flags or key_end + SHORTEST_DATA > end or key_length > longest[0]:
                break
            value_length, value_flags, _, value_type = data_head_of(data, key_end)
            value_end = key_end + value_length
            if (
                value_length < SHORTEST_DATA
                or not value_type
                or value_end > end
                or value_flags != 0x2000
                or value_length > longest[1]
            ):
                break
            if key_hash:
                key_hash = int.from_bytes(data[key_at + 6 : key_at + DATA_AT], "big", signed=True)
            if ttl_ms == DEFAULT_TTL:
                ttl_ms = chosen.ttl_ms
            if partition not in asked:
                asked[partition], writes[partition] = [], []
            value = data[key_end + DATA_AT : value_end]
            writes[partition].append((chosen.name, key, value, ttl_ms, key_hash))
            asked[partition].append((kind, correlation))
            if kind == PUT and value_length > SMALL:
                room -= value_length  # The old value may be as long.
            at = value_end
        else:
            break
        if room < 0:
            break
    if entries is None or not (buffer.read or buffer.asked):
        return at, None
    return at, buffer
