"""The data lane of maps in zones, where this member leads the partition's group.

The requests of a buffer go to the member as one batch (`ZoneBatch`). Reads run at once, and again when it is
confirmed that this member has led since (raft_partition/Z-2). The later value is the answer: otherwise an
invalidation of the entry could have been sent before the value that it invalidates (server/N-1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core.model.operations import DEFAULT_TTL, Status
from holdfast.core.model.zone_batches import ZoneBatch, ZoneBatchDone, ZoneWrite
from holdfast.core.raft_partition.map_homes import ZoneEntries
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast.core.store.replica import MapReplica
from holdfast.server.hazelcast.keyed_requests import BY_KIND, LaneRow, respond
from holdfast.server.hazelcast.reference_lane import GENERAL, BatchEntry, EntryWrite, room_of
from holdfast.wire.hazelcast.hazelcast_frames import REQUEST, Scan
from holdfast.wire.hazelcast.refusals import AGAIN, INDETERMINATE, UNKNOWN_OUTCOME, error

ANSWER_BYTES = 64
"""Estimated size of a response that is not known yet."""

_Read = tuple[LaneRow, bytes, ZonePartition, int, str, MapReplica | None, bytes, bytes | None]
"""Row, correlation id, replica, partition, map, the map's replica and the key; and the value when it came."""


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


def _answer(read: _Read) -> bytes:
    """The response with the present value; with the former one if the map has moved or was destroyed since."""
    row, correlation, replica, partition, name, held, key, found = read
    present = replica.state.copies[partition].maps.get(name)
    if present is not None and (held is None or held is present):
        state = present.state
        if state.expiries and key in state.expiries:
            found = replica.look(partition, name, key)
        else:
            found = state.entries.get(key)
    return respond(row, correlation, found)


class ZoneEntrySink:
    """Gathers the requests of a part of a read buffer to one zone, with one kind of reads."""

    __slots__ = (
        "_begin", "_chosen", "_count_read", "_found", "_found_bytes", "_out", "_read", "_writes",
        "_written", "batch", "data", "end_at", "served", "size",
    )  # fmt: skip

    def __init__(
        self, data: bytes, begin: int, out: bytearray, count_read: Callable[[str, int], None]
    ) -> None:
        """`out` gets the responses to local reads. `count_read` counts the reads of each map."""
        self.data = data
        self._begin = self.end_at = begin
        """The part of the read buffer."""
        self._out = out
        self._count_read = count_read
        self._chosen: ZoneMap | None = None
        """The first map; the others live in its zone, and are read like it."""
        self.batch = ZoneBatch(0)
        self._found: list[_Read] = []
        self._found_bytes = 0
        self._read: dict[int, None] = {}
        self._writes: dict[int, list[ZoneWrite]] = {}
        """By partition."""
        self._written: dict[int, list[tuple[LaneRow, bytes]]] = {}
        """Rows and correlation ids of the writes, by partition."""
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

    def read(self, row: LaneRow, partition: int, served: ZoneMap, key: bytes, correlation: bytes) -> int:
        replica = self._replica(served, partition)
        if replica is None:
            return GENERAL
        name = served.name
        held = replica.state.copies[partition].maps.get(name)
        if held is None:
            found = None
        elif (state := held.state).expiries and key in state.expiries:
            if replica.must_log_use(held, key):
                return GENERAL
            found = replica.look(partition, name, key)
        else:
            found = state.entries.get(key)
        self._count_read(name, 1)
        if served.local:
            self._out += respond(row, correlation, found)
        else:
            self._found.append((row, correlation, replica, partition, name, held, key, found))
            self._read[partition] = None
            if row.answers_value and found is not None:
                self._found_bytes += len(found)
        return room_of(found) if row.answers_value else 0

    def view(
        self, row: LaneRow, partition: int, served: ZoneMap, key: bytes, hash_word: bytes, correlation: bytes
    ) -> int:
        return GENERAL

    def write(
        self, row: LaneRow, partition: int, served: ZoneMap, key: bytes, write: EntryWrite, correlation: bytes
    ) -> int:
        value, ttl_ms, max_idle_ms, key_hash, _ = write
        if (
            row.looks
            or served.reads_only
            or max_idle_ms != DEFAULT_TTL
            or (row.stores and served.max_idle_ms)
            or self._replica(served, partition) is None
        ):
            return GENERAL
        if ttl_ms == DEFAULT_TTL:
            ttl_ms = served.ttl_ms if row.stores else 0
        if partition not in self._writes:
            self._writes[partition], self._written[partition] = [], []
        self._writes[partition].append((served.name, key, value, ttl_ms, key_hash))
        self._written[partition].append((row, correlation))
        # The former value may be as long.
        return room_of(value) if row.answers_value else 0

    def read_batch(
        self, row: LaneRow, partition: int, served: ZoneMap, keys: list[bytes], correlation: bytes
    ) -> int:
        return GENERAL

    def write_batch(
        self, row: LaneRow, partition: int, served: ZoneMap, entries: list[BatchEntry], correlation: bytes
    ) -> int:
        return GENERAL

    def end(self) -> None:
        pass

    def close(self, end_at: int) -> ZoneBatch | None:
        """End of input. None: nothing waits for the zone."""
        self.end_at = end_at
        if self._chosen is None or not (self._read or self._writes):
            return None
        self.batch = ZoneBatch(self._chosen.entries.zone, list(self._writes.items()), list(self._read))
        unanswered = sum(map(len, self._writes.values())) + len(self._found)
        self.size = ANSWER_BYTES * unanswered + self._found_bytes
        return self.batch

    def responses(self, done: ZoneBatchDone) -> list[bytes]:
        out = [_answer(read) for read in self._found] if done.unconfirmed is None else []
        for partition, former in done.former:
            written = self._written[partition]
            assert len(written) == len(former), "each write has a former value, or none"
            out += [
                respond(row, correlation, old)
                for (row, correlation), old in zip(written, former, strict=True)
            ]
        return out

    def rest(self, done: ZoneBatchDone) -> tuple[list[bytes], list[tuple[int, int]]]:
        """Errors of requests that failed, and the bounds of those that the session has to serve, because they
        had no effect. If one read is not confirmed, none is.
        """
        refused: list[bytes] = []
        again: list[tuple[int, int]] = []
        scan, start, lost = Scan(), self._begin, dict(done.failed)
        while start < self.end_at:
            scan.begin(start)
            end = scan.look(self.data, self.end_at - start)
            kind, correlation, partition = REQUEST.unpack_from(self.data, start)[2:5]
            writes = not BY_KIND[kind].reads
            failed = lost.get(partition)
            if not writes and self._read:
                failed = done.unconfirmed
            if failed is not None and failed.status is Status.MOVED:
                again.append((start, end))
            elif failed is not None and writes:
                refused.append(error(correlation, INDETERMINATE, f"{UNKNOWN_OUTCOME} ({failed.detail})"))
            elif failed is not None:
                refused.append(error(correlation, AGAIN, f"nothing was changed; ask again: {failed.detail}"))
            start = end
        return refused, again
