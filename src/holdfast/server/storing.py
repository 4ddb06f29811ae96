"""Many entries that a client stores at once (`wire.own.PutColumns`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat

from holdfast.core.placement.key import partition_of, partitions_of
from holdfast.core.store.operations import DEFAULT_TTL, Op, Request
from holdfast.core.store.partition import PartitionCopy
from holdfast.errors import ProtocolError
from holdfast.server.grid import Grid
from holdfast.wire import own

_KIND_MAX = max(own.PutKind)
_SET, _REMOVE = int(own.PutKind.SET), int(own.PutKind.REMOVE)


def as_request(put: own.PutColumns) -> Request:
    """What it amounts to, without keys: does it store entries, or only remove some?"""
    removes = len(put.kinds) > 0 and min(put.kinds) == max(put.kinds) == _REMOVE
    return Request(Op.REMOVE if removes else Op.PUT_ALL, put.map, put.partitions)


@dataclass(frozen=True, slots=True)
class Stored:
    """The rows of one question."""

    put: own.PutColumns
    keys: list[bytes]
    values: list[bytes]

    @classmethod
    def read(cls, put: own.PutColumns, partition_count: int) -> Stored:
        """Raises ProtocolError when groups and rows do not go together, or a key is in the wrong group."""
        keys, values = put.columns.split()
        if (
            len(put.counts) != len(put.partitions)
            or min(put.counts, default=0) < 0
            or sum(put.counts) != len(keys)
        ):
            raise ProtocolError("the groups of PutColumns do not add up to its rows")
        for column in (put.kinds, put.ttls_ms, put.max_idles_ms, put.key_hashes):
            if len(column) not in (0, len(keys)):
                raise ProtocolError(f"a column of PutColumns has {len(column)} rows instead of {len(keys)}")
        if put.key_hashes:
            pairs = zip(keys, put.key_hashes, strict=True)
            found = [partition_of(key, word, partition_count) for key, word in pairs]
        else:
            found = partitions_of(keys, partition_count)
        at = 0
        for partition, rows in zip(put.partitions, put.counts, strict=True):
            if found[at : at + rows].count(partition) != rows:
                raise ProtocolError(f"a key in the group of partition {partition} does not belong to it")
            at += rows
        return cls(put, keys, values)

    def why_wrong(self, lifetime_ms_max: int) -> tuple[own.FaultKind, str] | None:
        """Why nothing of it can be stored; None when it can."""
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

    def store(self, grid: Grid, say: Callable[[own.PutDone], None]) -> None:
        """Store what is served here; `Grid.why_refused` has let it pass.

        `say` is called once, when the backups hold it or when that cannot be known.
        """
        put, lane = self.put, grid.lane
        plain = not (put.kinds or put.ttls_ms or put.max_idles_ms or put.key_hashes)
        moved: list[int] = []
        at = stored = kept = 0
        for partition, rows in zip(put.partitions, put.counts, strict=True):
            copy = lane.in_office[partition]
            if copy is None:
                moved.append(partition)
            elif plain:
                name, ttl_ms, take = put.map, put.ttl_ms, lane.set
                end = at + rows
                for key, value in zip(self.keys[at:end], self.values[at:end], strict=True):
                    take(copy, name, key, value, ttl_ms, DEFAULT_TTL, 0)
                stored += rows
            else:
                there = self._store_each(grid, copy, slice(at, at + rows))
                kept += there
                stored += rows - there
            at += rows

        def done(known: bool) -> None:
            say(own.PutDone(put.id, stored, moved, known, "" if known else lane.unknown_because, kept))

        lane.seal(done)

    def _store_each(self, grid: Grid, copy: PartitionCopy, rows: slice) -> int:
        """Do with each of these rows as its kind says. Answers how many to be added were there with another value."""
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
                    # Perhaps it came before: that must be safe, too.
                    lane.rest_on(copy, name)
                    kept += present != value
        return kept
