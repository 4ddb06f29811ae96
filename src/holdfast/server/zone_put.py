"""Bulk writes of the own protocol on maps in zones, stored in slices: one log entry for each partition and slice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.core.model.levels import ZONE_IDLE_TIMES
from holdfast.core.model.operations import DEFAULT_TTL, Op, Outcome, Request, Status
from holdfast.core.model.zone_batches import ZoneBatch, ZoneBatchDone, ZoneWrite, ZoneWrites
from holdfast.core.raft_partition.map_homes import NO_MAX_IDLE
from holdfast.server.flow import SLICE_BYTES, SLICE_ITEMS, Work
from holdfast.server.grid import Grid
from holdfast.wire import own

ROW_BYTES = SLICE_BYTES // SLICE_ITEMS
"""Cost of a row in a slice, in addition to its bytes."""
REQUEST_BYTES = 10 * ROW_BYTES
"""Cost of a row that is a request of its own, in addition to its bytes."""
_SET, _REMOVE, _ADD = own.PutKind.SET, own.PutKind.REMOVE, own.PutKind.ADD


def zone_put_rejection(put: own.PutColumns, level: int) -> tuple[own.FaultKind, str] | None:
    if max(put.max_idles_ms, default=0) > 0 and level < ZONE_IDLE_TIMES:
        return own.FaultKind.FAILED, NO_MAX_IDLE
    return None


class ZonePut:
    """Stores the rows of one request, which were checked.

    Rows of kind ADD depend on what is there, so a partition that has some gets a request for each of its rows; also one
    with rows that have a maximum idle time, which the records of a batch have no room for. A group
    of rows whose leader is another member, or steps down before they are in its log, is reported as moved: the client
    sends it again. Storing or removing a row twice equals doing it once.
    """

    def __init__(
        self,
        grid: Grid,
        put: own.PutColumns,
        keys: list[bytes],
        values: list[bytes],
        on_done: Callable[[own.PutDone], None],
    ) -> None:
        """`on_done` is called once, when the outcome of all rows is known, or cannot be known."""
        self._grid = grid
        self._put = put
        self._keys = keys
        self._values = values
        self._on_done = on_done
        entries = grid.zone_entries(put.map)
        self._zone = entries.zone if entries is not None else 0
        _, self._ttl_ms, self._max_idle_ms = grid.zone_map(put.map)
        self._waiting = 1
        """Batches and requests without an outcome, and one for those to come."""
        self._moved: dict[int, None] = {}
        self._kept: dict[int, int] = {}
        """By partition: rows to add whose key had another value."""
        self._why = ""

    def storing(self) -> Work:
        put = self._put
        at = size = 0
        for partition, count in zip(put.partitions, put.counts, strict=True):
            rows = range(at, at + count)
            at += count
            alone = bool(put.kinds) and _ADD in put.kinds[rows.start : rows.stop]
            alone = alone or any(map(self._max_idle_of, rows))
            writes: list[ZoneWrite] = []
            for row in rows:
                if size >= SLICE_BYTES:
                    self._write(partition, writes)
                    writes = []
                    yield
                    size = 0
                if alone:
                    self._request(partition, row)
                    size += REQUEST_BYTES
                else:
                    writes.append(self._row(row))
                    size += ROW_BYTES
                size += len(self._keys[row]) + len(self._values[row])
            self._write(partition, writes)
        self._one_less()

    def _row(self, row: int) -> ZoneWrite:
        put, key = self._put, self._keys[row]
        key_hash = put.key_hashes[row] if put.key_hashes else 0
        if put.kinds and put.kinds[row] == _REMOVE:
            return put.map, key, None, 0, key_hash
        ttl_ms = put.ttls_ms[row] if put.ttls_ms else put.ttl_ms
        return put.map, key, self._values[row], self._ttl_ms if ttl_ms == DEFAULT_TTL else ttl_ms, key_hash

    def _write(self, partition: int, writes: list[ZoneWrite]) -> None:
        if writes:
            self._waiting += 1
            batch = ZoneBatch(self._zone, [(partition, [ZoneWrites(writes, partition)])])
            self._grid.zone_batch(batch, partial(self._on_batch, partition))

    def _max_idle_of(self, row: int) -> int:
        """The maximum idle time in ms; 0: for ever."""
        idles_ms = self._put.max_idles_ms
        max_idle_ms = idles_ms[row] if idles_ms else DEFAULT_TTL
        return self._max_idle_ms if max_idle_ms == DEFAULT_TTL else max_idle_ms

    def _on_batch(self, partition: int, done: ZoneBatchDone) -> None:
        for _, outcome in done.failed:
            self._on_failed(partition, outcome)
        self._one_less()

    def _request(self, partition: int, row: int) -> None:
        """Store, add or remove one row, wherever the leader is."""
        put, (name, key, value, ttl_ms, key_hash) = self._put, self._row(row)
        kind = put.kinds[row] if put.kinds else _SET
        op = Op.PUT_IF_ABSENT if kind == _ADD else Op.SET if kind == _SET else Op.DELETE
        request = Request(
            op,
            name,
            [partition],
            key,
            value or b"",
            ttl_ms=ttl_ms,
            max_idle_ms=self._max_idle_of(row),
            key_hash=key_hash,
        )
        self._waiting += 1
        self._grid.execute(request, partial(self._on_request, partition, row))

    def _on_request(self, partition: int, row: int, outcome: Outcome) -> None:
        if outcome.status is not Status.OK:
            self._on_failed(partition, outcome)
        elif (
            self._put.kinds
            and self._put.kinds[row] == _ADD
            and outcome.value not in (None, self._values[row])
        ):
            self._kept[partition] = self._kept.get(partition, 0) + 1
        self._one_less()

    def _on_failed(self, partition: int, outcome: Outcome) -> None:
        if outcome.status is Status.UNKNOWN:
            self._why = self._why or outcome.detail or "the outcome is unknown"
        else:
            self._moved[partition] = None

    def _one_less(self) -> None:
        self._waiting -= 1
        assert self._waiting >= 0, "each batch has one outcome"
        if self._waiting:
            return
        put, moved = self._put, self._moved
        there = sum(
            rows for partition, rows in zip(put.partitions, put.counts, strict=True) if partition not in moved
        )
        kept = sum(count for partition, count in self._kept.items() if partition not in moved)
        self._on_done(own.PutDone(put.id, there - kept, list(moved), not self._why, self._why, kept))
