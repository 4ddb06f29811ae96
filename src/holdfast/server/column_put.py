"""Bulk writes of the own protocol (`wire.own.PutColumns`), stored in slices."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import repeat

from holdfast.core.model.keys import partition_of, partitions_of
from holdfast.core.model.operations import DEFAULT_TTL, Op, Request
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.errors import ProtocolError
from holdfast.server.flow import SLICE_BYTES, SLICE_ITEMS, Work, slices
from holdfast.server.grid import EntryLane, Grid
from holdfast.wire import own

PUT_ROWS_MAX = 16_384
"""Maximum rows per request, because splitting them is not sliced. Holdfast's clients send 4,096."""
SLICE_ROWS = 8192
"""Rows whose partitions are computed per slice."""
STORED_ROWS = SLICE_ITEMS // 2
ROW_BYTES = SLICE_BYTES // STORED_ROWS
"""Cost of a row in a slice, in addition to its value's bytes."""
NOTHING = [(0, 0)]
_KIND_MAX = max(own.PutKind)
_SET, _REMOVE = int(own.PutKind.SET), int(own.PutKind.REMOVE)


def as_request(put: own.PutColumns) -> Request:
    """The equivalent request without keys, for checks."""
    removes = len(put.kinds) > 0 and min(put.kinds) == max(put.kinds) == _REMOVE
    return Request(Op.REMOVE if removes else Op.PUT_ALL, put.map, put.partitions)


@dataclass(frozen=True, slots=True)
class ColumnPut:
    put: own.PutColumns
    keys: list[bytes]
    values: list[bytes]

    @classmethod
    def reading(cls, put: own.PutColumns, partition_count: int) -> Generator[None, None, ColumnPut]:
        """Split the columns, in slices. Raises ProtocolError for inconsistent groups, too many rows, or a key
        in the wrong group.
        """
        if put.columns.rows > PUT_ROWS_MAX:
            raise ProtocolError(f"PutColumns has at most {PUT_ROWS_MAX} rows: send several")
        many = put.columns.rows > SLICE_ROWS
        keys = put.columns.split_keys()
        if many:
            yield
        values = put.columns.split_values()
        if many:
            yield
        if (
            len(put.counts) != len(put.partitions)
            or min(put.counts, default=0) < 0
            or sum(put.counts) != len(keys)
        ):
            raise ProtocolError("the groups of PutColumns do not add up to its rows")
        for column in (put.kinds, put.ttls_ms, put.max_idles_ms, put.key_hashes):
            if len(column) not in (0, len(keys)):
                raise ProtocolError(f"a column of PutColumns has {len(column)} rows instead of {len(keys)}")
        found: list[int] = []
        for begin in range(0, len(keys), SLICE_ROWS):
            some = keys[begin : begin + SLICE_ROWS]
            if put.key_hashes:
                words = put.key_hashes[begin : begin + SLICE_ROWS]
                pairs = zip(some, words, strict=True)
                found += [partition_of(key, word, partition_count) for key, word in pairs]
            else:
                found += partitions_of(some, partition_count)
            if many:
                yield
        at = 0
        for partition, rows in zip(put.partitions, put.counts, strict=True):
            if found[at : at + rows].count(partition) != rows:
                raise ProtocolError(f"a key in the group of partition {partition} does not belong to it")
            at += rows
        return cls(put, keys, values)

    def rejection(self, lifetime_ms_max: int) -> tuple[own.FaultKind, str] | None:
        put = self.put
        if put.kinds and max(put.kinds) > _KIND_MAX:
            return own.FaultKind.MALFORMED, f"kinds of rows are 0 to {_KIND_MAX}"
        for lifetimes in (put.ttls_ms, put.max_idles_ms):
            if lifetimes and not DEFAULT_TTL <= min(lifetimes) <= max(lifetimes) <= lifetime_ms_max:
                return (
                    own.FaultKind.MALFORMED,
                    f"lifetimes are {DEFAULT_TTL} to {lifetime_ms_max} milliseconds",
                )
        if put.key_hashes and not -(2**31) <= min(put.key_hashes) <= max(put.key_hashes) < 2**31:
            return own.FaultKind.MALFORMED, "the hash word of a key is an int32"
        return None

    def storing(self, grid: Grid, say: Callable[[own.PutDone], None]) -> Work:
        """Store the groups that are served here, in slices, after `Grid.rejection` has allowed it. `say` is
        called once, when the backups have acknowledged everything or the outcome is unknown. Groups whose
        partition moves away meanwhile are reported as moved.
        """
        put, lane = self.put, grid.lane
        plain = not (put.kinds or put.ttls_ms or put.max_idles_ms or put.key_hashes)
        moved: list[int] = []
        kept = [0] * len(put.partitions)
        sealing = Sealing(lane)
        size = at = 0
        refused = not _is_served(grid, put.map)
        """Whether writes are rejected by now; the client retries the rest and gets the reason."""
        for group, (partition, rows) in enumerate(zip(put.partitions, put.counts, strict=True)):
            for begin, end in (
                slices([len(value) for value in self.values[at : at + rows]], STORED_ROWS)
                if rows
                else NOTHING
            ):
                if size >= SLICE_BYTES:
                    lane.close_batch(sealing.begin())
                    yield
                    size = 0
                    refused = refused or grid.rejection(as_request(put)) is not None
                    refused = refused or not _is_served(grid, put.map)
                size += ROW_BYTES  # For the group, which may be empty.
                copy = lane.leading[partition] if not refused else None
                if copy is None:
                    moved.append(partition)
                    kept[group] = rows
                    break
                some = slice(at + begin, at + end)
                if copy.locks.closed and any(lane.locked(copy, put.map, key) for key in self.keys[some]):
                    # Reported as moved, so that the client retries after the transaction has ended.
                    moved.append(partition)
                    kept[group] = rows
                    break
                size += ROW_BYTES * (end - begin) + sum(map(len, self.values[some]))
                if plain:
                    name, ttl_ms, take = put.map, put.ttl_ms, lane.set
                    for key, value in zip(self.keys[some], self.values[some], strict=True):
                        take(copy, name, key, value, ttl_ms, DEFAULT_TTL, 0)
                else:
                    kept[group] += self._store_each(grid, copy, some)
            at += rows
        left_alone, gone = sum(kept), set(moved)
        there = left_alone - sum(
            rows for partition, rows in zip(put.partitions, put.counts, strict=True) if partition in gone
        )

        def done(known: bool) -> None:
            why = "" if known else sealing.why or lane.unknown_because
            say(own.PutDone(put.id, at - left_alone, moved, known, why, there))

        lane.close_batch(sealing.last(done))

    def _store_each(self, grid: Grid, copy: PartitionCopy, rows: slice) -> int:
        """Store, add or remove each row. Returns the rows to add whose key had another value."""
        put, lane, name = self.put, grid.lane, self.put.map
        kept = 0
        columns = zip(
            self.keys[rows],
            self.values[rows],
            put.kinds[rows] or repeat(_SET),
            put.ttls_ms[rows] or repeat(put.ttl_ms),
            put.max_idles_ms[rows] or repeat(DEFAULT_TTL),
            put.key_hashes[rows] or repeat(0),
            strict=False,
        )
        for key, value, kind, ttl_ms, max_idle_ms, key_hash in columns:
            if kind == _SET:
                lane.set(copy, name, key, value, ttl_ms, max_idle_ms, key_hash)
            elif kind == _REMOVE:
                lane.remove(copy, name, key)
            else:
                present = lane.read(copy, name, key)
                if present is None:
                    lane.set(copy, name, key, value, ttl_ms, max_idle_ms, key_hash)
                else:
                    # It may be an earlier attempt of this request, and must be safe before it is acknowledged.
                    lane.rest_on(copy, name)
                    kept += present != value
        return kept


class Sealing:
    """The batches of one request; calls back when the outcome of all is known."""

    __slots__ = ("_done", "_known", "_lane", "_waits", "why")

    def __init__(self, lane: EntryLane) -> None:
        self._lane = lane
        self._waits = 0
        self._known = True
        self._done: Callable[[bool], None] | None = None
        self.why = ""
        """The reason for an unknown outcome."""

    def begin(self) -> Callable[[bool], None]:
        self._waits += 1
        return self._sealed

    def last(self, done: Callable[[bool], None]) -> Callable[[bool], None]:
        self._done = done
        return self.begin()

    def _sealed(self, known: bool) -> None:
        assert self._waits > 0, "each batch ends once"
        self._waits -= 1
        if not known:
            self._known, self.why = False, self._lane.unknown_because
        if not self._waits and self._done is not None:
            self._done(self._known)


def _is_served(grid: Grid, name: str) -> bool:
    """Whether primaries serve the map: it is not being moved, and has not moved into a zone."""
    return not grid.lane_access.is_closed(name) and not grid.zone_of(name)
