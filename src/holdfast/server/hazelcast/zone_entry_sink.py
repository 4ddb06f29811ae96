"""The data lane of maps in zones, where this member leads the partition's group.

The requests of a buffer go to the member as one batch (`ZoneBatch`): a plain write as a row, and one that depends on
the entry as a request, which the group decides when it applies it. Reads run at once, and again when it is confirmed
that this member has led since (raft_partition/Z-2). The later value is the answer: otherwise an invalidation of the
entry could have been sent before the value that it invalidates (server/N-1).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple, Protocol

from holdfast.core.model.levels import ZONE_IDLE_TIMES
from holdfast.core.model.operations import DEFAULT_TTL, Outcome, Request, Status, Value
from holdfast.core.model.zone_batches import (
    ZoneBatch,
    ZoneBatchDone,
    ZoneChanges,
    ZoneRequests,
    ZoneWrite,
    ZoneWrites,
)
from holdfast.core.operations.map_operations import view_of
from holdfast.core.raft_partition.map_homes import ZoneEntries
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast.core.store.replica import MapReplica
from holdfast.server.hazelcast.entry_views import NO_VIEW, view_response
from holdfast.server.hazelcast.keyed_requests import END_FRAME, LaneRow, respond
from holdfast.server.hazelcast.reference_lane import (
    BATCH_ANSWER_BYTES,
    GENERAL,
    SMALL,
    BatchEntry,
    EntryWrite,
    room_of,
)
from holdfast.wire.hazelcast.hazelcast_frames import REQUEST, Scan
from holdfast.wire.hazelcast.hazelcast_frames import data as data_frame
from holdfast.wire.hazelcast.refusals import AGAIN, INDETERMINATE, UNKNOWN_OUTCOME, error

ANSWER_BYTES = 64
"""Estimated size of a response that is not known yet."""
ANSWERED: Final = -1
"""Place of a request that has its response,"""
READS: Final = -2
"""and of a read that waits for confirmation."""


@dataclass(frozen=True, slots=True)
class ZoneMap:
    name: str
    entries: ZoneEntries
    local: bool
    """Whether reads are answered at once (`reads = "local"`)."""
    ttl_ms: int
    """The map's own time to live; 0: no limit."""
    max_idle_ms: int = 0
    """The same for its maximum idle time."""
    reads_only: bool = False


class SinkGrid(Protocol):
    @property
    def level(self) -> int: ...

    def read(self, name: str, count: int) -> None:
        """Count the reads of a map."""

    def wall_ms(self) -> int: ...


class _Source(NamedTuple):
    """The entries from which a read was answered."""

    replica: ZonePartition
    partition: int
    name: str
    held: MapReplica | None

    def held_now(self) -> MapReplica | None:
        """None if the map has moved, or was destroyed, since: then what was found before counts."""
        present = self.replica.state.copies[self.partition].maps.get(self.name)
        return present if self.held is None or self.held is present else None

    def look(self, held: MapReplica, key: bytes) -> bytes | None:
        if held.state.expiries and key in held.state.expiries:
            return self.replica.look(self.partition, self.name, key)
        return held.state.entries.get(key)

    def must_log_use(self, key: bytes) -> bool:
        """raft_partition/Z-9"""
        held = self.held
        if held is None or not held.state.expiries or key not in held.state.expiries:
            return False
        return self.replica.must_log_use(held, key)


_Read = tuple[LaneRow, bytes, _Source, bytes, bytes | None]
"""Row, correlation id, and the key; and the value when it came."""
_View = tuple[LaneRow, bytes, _Source, bytes, bytes, bytes]
"""Row, correlation id, the key and its hash word; and the response when it came."""
_List = tuple[LaneRow, bytes, _Source, dict[bytes, bytes | None]]
"""Row, correlation id, and the keys with their values when it came."""


def _answer(read: _Read) -> bytes:
    row, correlation, source, key, found = read
    held = source.held_now()
    if held is not None:
        found = source.look(held, key)
    return respond(row, correlation, found)


class _Changes:
    """Changes of one map in one partition."""

    __slots__ = ("asked", "parts", "place")

    def __init__(self, place: int) -> None:
        self.place = place
        self.parts: list[ZoneChanges] = []
        self.asked: list[tuple[LaneRow, bytes, int]] = []
        """Row and correlation id of each request of the client, and its number of changes."""

    def write(self, write: ZoneWrite, partition: int) -> None:
        last = self.parts[-1] if self.parts else None
        if isinstance(last, ZoneWrites):
            last.writes.append(write)
        else:
            self.parts.append(ZoneWrites([write], partition))

    def request(self, request: Request) -> None:
        last = self.parts[-1] if self.parts else None
        if isinstance(last, ZoneRequests):
            last.requests.append(request)
        else:
            self.parts.append(ZoneRequests([request]))

    def responses(self, answers: list[Value]) -> list[bytes]:
        found, at = [], 0
        for row, correlation, count in self.asked:
            value = answers[at] if count else None
            if value is not None and not isinstance(value, bytes):
                value = b"" if value else None
            found.append(respond(row, correlation, value))
            at += count
        assert at == len(answers), "each change has an answer"
        return found


class ZoneEntrySink:
    """Gathers the requests of a part of a read buffer to one zone, with one kind of reads."""

    __slots__ = (
        "_begin", "_changes", "_chosen", "_found", "_found_bytes", "_grid", "_lists", "_out", "_places", "_read",
        "_views", "batch", "data", "end_at", "served", "size",
    )  # fmt: skip

    def __init__(self, data: bytes, begin: int, out: bytearray, grid: SinkGrid) -> None:
        """`out` gets the responses to local reads."""
        self.data = data
        self._begin = self.end_at = begin
        """The part of the read buffer."""
        self._out = out
        self._grid = grid
        self._chosen: ZoneMap | None = None
        """The first map; the others live in its zone, and are read like it."""
        self.batch = ZoneBatch(0)
        self._found: list[_Read] = []
        """Reads that wait for confirmation;"""
        self._views: list[_View] = []
        """those of an entry with its metadata;"""
        self._lists: list[_List] = []
        """and those of several keys."""
        self._found_bytes = 0
        self._read: dict[int, None] = {}
        self._changes: dict[tuple[int, str], _Changes] = {}
        """By partition and map."""
        self._places: list[int] = []
        """By request: its place in `ZoneBatch.changes`, `READS` or `ANSWERED`."""
        self.size = 0
        self.served = 0

    def _replica(self, served: ZoneMap, partition: int) -> ZonePartition | None:
        """The replica that serves the request here, if the request fits the others."""
        chosen = self._chosen
        if chosen is None:
            self._chosen = chosen = served
        entries = served.entries
        if chosen.entries is not entries or chosen.local is not served.local:
            return None
        return entries.serving[partition] if partition < len(entries.serving) else None

    def forward(self, row: LaneRow, partition: int, served: ZoneMap, whole: bytes, keys: int) -> int:
        """Requests for zones are forwarded by the router."""
        return GENERAL

    # -- reads

    def _source(self, served: ZoneMap, partition: int) -> _Source | None:
        replica = self._replica(served, partition)
        if replica is None:
            return None
        name = served.name
        return _Source(replica, partition, name, replica.state.copies[partition].maps.get(name))

    def _waits(self, source: _Source, count: int) -> None:
        """The read waits for confirmation."""
        self._grid.read(source.name, count)
        self._read[source.partition] = None
        self._places.append(READS)

    def read(self, row: LaneRow, partition: int, served: ZoneMap, key: bytes, correlation: bytes) -> int:
        source = self._source(served, partition)
        if source is None or source.must_log_use(key):
            return GENERAL
        found = source.look(source.held, key) if source.held is not None else None
        if served.local:
            self._grid.read(served.name, 1)
            self._places.append(ANSWERED)
            self._out += respond(row, correlation, found)
        else:
            self._waits(source, 1)
            self._found.append((row, correlation, source, key, found))
            if row.answers_value and found is not None:
                self._found_bytes += len(found)
        return room_of(found) if row.answers_value else 0

    def view(
        self, row: LaneRow, partition: int, served: ZoneMap, key: bytes, hash_word: bytes, correlation: bytes
    ) -> int:
        source = self._source(served, partition)
        if source is None or source.must_log_use(key):
            return GENERAL
        response = self._view(row, correlation, source, source.held, key, hash_word)
        if served.local:
            self._grid.read(served.name, 1)
            self._places.append(ANSWERED)
            self._out += response
        else:
            self._waits(source, 1)
            self._views.append((row, correlation, source, key, hash_word, response))
            self._found_bytes += len(response)
        return len(response) if len(response) > SMALL else 0

    def _view(
        self,
        row: LaneRow,
        correlation: bytes,
        source: _Source,
        held: MapReplica | None,
        key: bytes,
        hash_word: bytes,
    ) -> bytes:
        found = source.look(held, key) if held is not None else None
        if held is None or found is None:
            return row.first + correlation + NO_VIEW
        shown = view_of(held.state, key, found, source.replica.now_ns(), used=True)
        return row.first + correlation + view_response(key, hash_word, shown, self._grid.wall_ms())

    def _view_now(self, view: _View) -> bytes:
        row, correlation, source, key, hash_word, response = view
        held = source.held_now()
        return self._view(row, correlation, source, held, key, hash_word) if held is not None else response

    def read_batch(
        self, row: LaneRow, partition: int, served: ZoneMap, keys: list[bytes], correlation: bytes
    ) -> int:
        source = self._source(served, partition)
        if source is None:
            return GENERAL
        held = source.held
        found: dict[bytes, bytes | None] = dict.fromkeys(keys)
        size = 0
        if held is not None:
            for key in found:
                if source.must_log_use(key):
                    return GENERAL
                value = found[key] = source.look(held, key)
                if value is not None:
                    size += len(key) + len(value)
            if size > BATCH_ANSWER_BYTES:
                return GENERAL
        if served.local:
            self._grid.read(served.name, len(found))
            self._places.append(ANSWERED)
            self._out += _listed(row, correlation, found)
        else:
            self._waits(source, len(found))
            self._lists.append((row, correlation, source, found))
            self._found_bytes += size
        return size if size > SMALL else 0

    # -- changes

    def _changes_of(self, served: ZoneMap, partition: int) -> _Changes | None:
        """None: the session serves the request."""
        if served.reads_only or self._replica(served, partition) is None:
            return None
        key = (partition, served.name)
        found = self._changes.get(key)
        if found is None:
            found = self._changes[key] = _Changes(len(self._changes))
        self._places.append(found.place)
        return found

    def write(
        self, row: LaneRow, partition: int, served: ZoneMap, key: bytes, write: EntryWrite, correlation: bytes
    ) -> int:
        value, ttl_ms, max_idle_ms, key_hash, expected = write
        if max_idle_ms > 0 and self._grid.level < ZONE_IDLE_TIMES:
            return GENERAL
        changes = self._changes_of(served, partition)
        if changes is None:
            return GENERAL
        changes.asked.append((row, correlation, 1))
        if row.looks or max_idle_ms > 0 or (row.stores and served.max_idle_ms):
            changes.request(
                Request(
                    row.op,
                    served.name,
                    [partition],
                    key,
                    value or b"",
                    expected,
                    ttl_ms=ttl_ms,
                    max_idle_ms=max_idle_ms,
                    key_hash=key_hash,
                )
            )
        else:
            if ttl_ms == DEFAULT_TTL:
                ttl_ms = served.ttl_ms if row.stores else 0
            changes.write((served.name, key, value, ttl_ms, key_hash), partition)
        # The former value may be as long.
        return room_of(value) if row.answers_value else 0

    def write_batch(
        self, row: LaneRow, partition: int, served: ZoneMap, entries: list[BatchEntry], correlation: bytes
    ) -> int:
        changes = self._changes_of(served, partition) if entries else None
        if changes is None:
            return GENERAL
        if served.max_idle_ms:
            items = list(chain.from_iterable((key, value) for key, value, _ in entries))
            changes.request(Request(row.op, served.name, [partition], items=items))
            changes.asked.append((row, correlation, 1))
            return 0
        for key, value, key_hash in entries:
            changes.write((served.name, key, value, served.ttl_ms, key_hash), partition)
        changes.asked.append((row, correlation, len(entries)))
        return 0

    # -- the end

    def end(self) -> None:
        pass

    def close(self, end_at: int) -> ZoneBatch | None:
        """End of input. None: nothing waits for the zone."""
        self.end_at = end_at
        if self._chosen is None or not (self._read or self._changes):
            return None
        changes = [(partition, each.parts) for (partition, _), each in self._changes.items()]
        self.batch = ZoneBatch(self._chosen.entries.zone, changes, list(self._read))
        unanswered = sum(place != ANSWERED for place in self._places)
        self.size = ANSWER_BYTES * unanswered + self._found_bytes
        return self.batch

    def responses(self, done: ZoneBatchDone) -> list[bytes]:
        out: list[bytes] = []
        if done.unconfirmed is None:
            out += map(_answer, self._found)
            out += map(self._view_now, self._views)
            out += map(_list_now, self._lists)
        if done.answers:
            by_place = list(self._changes.values())
            for place, answers in done.answers:
                out += by_place[place].responses(answers)
        return out

    def rest(self, done: ZoneBatchDone) -> tuple[list[bytes], list[tuple[int, int]]]:
        """Errors of requests that failed, and the bounds of those that the session has to serve, because they
        had no effect. If one read is not confirmed, none is.
        """
        refused: list[bytes] = []
        again: list[tuple[int, int]] = []
        failures: dict[int, Outcome] = dict(done.failed)
        if done.unconfirmed is not None:
            failures[READS] = done.unconfirmed
        scan, start = Scan(), self._begin
        for place in self._places:
            scan.begin(start)
            end = scan.look(self.data, self.end_at - start)
            failed = failures.get(place)
            if failed is not None and failed.status is Status.MOVED:
                again.append((start, end))
            elif failed is not None:
                correlation = REQUEST.unpack_from(self.data, start)[3]
                if place == READS:
                    refused.append(
                        error(correlation, AGAIN, f"nothing was changed; ask again: {failed.detail}")
                    )
                else:
                    refused.append(error(correlation, INDETERMINATE, f"{UNKNOWN_OUTCOME} ({failed.detail})"))
            start = end
        assert start == self.end_at, "each request has its place"
        return refused, again


def _list_now(read: _List) -> bytes:
    row, correlation, source, found = read
    held = source.held_now()
    if held is not None:
        found = {key: source.look(held, key) for key in found}
    return _listed(row, correlation, found)


def _listed(row: LaneRow, correlation: bytes, found: dict[bytes, bytes | None]) -> bytes:
    parts = [row.first + correlation + row.found]
    for key, value in found.items():
        if value is not None:
            parts += (data_frame(key), data_frame(value))
    parts.append(END_FRAME)
    return b"".join(parts)
