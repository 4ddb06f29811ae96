"""Entries as messages: sorted by owner and partition with numpy, sent as the buffers of Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from holdfast.client.row_sender import Parcel, Span
from holdfast.client_core.routing import RoutingTable
from holdfast.spark.rows.cells import Cells, Numbers, partitions_of, to_buffers
from holdfast.spark.rows.entry_encoder import Entries
from holdfast.wire.own import ColumnBatch, PutKind


class EntryRows:
    """Entries to send (`client.row_sender.RowBatch`)."""

    def __init__(
        self,
        keys: Cells,
        values: Cells,
        partitions: Numbers,
        ttls_ms: Numbers | None,
        *,
        insert: bool,
        owners: Sequence[str | None] = (),
    ) -> None:
        """`owners`: owner of each partition, for rows in sending order."""
        self._keys = keys
        self._values = values
        self._partitions = partitions
        self._ttls_ms = ttls_ms
        self._insert = insert
        self._owners = owners

    @classmethod
    def of(cls, entries: Entries, partition_count: int, *, insert: bool) -> EntryRows:
        partitions = partitions_of(entries.keys, partition_count)
        return cls(entries.keys, entries.values, partitions, entries.ttls_ms, insert=insert)

    def __len__(self) -> int:
        return len(self._keys)

    def ordered(self, table: RoutingTable) -> EntryRows:
        owners = [row.owner for row in table]
        by_owner = sorted(range(len(owners)), key=lambda partition: (owners[partition] or "", partition))
        rank = np.empty(len(owners), np.int32)
        rank[by_owner] = np.arange(len(owners), dtype=np.int32)
        ranks = rank[self._partitions]
        # numpy sorts 16-bit numbers by radix, several times faster.
        narrow = ranks.astype(np.uint16) if len(owners) <= 1 << 16 else ranks
        return self._take(np.argsort(narrow, kind="stable"), owners)

    def only(self, spans: Sequence[Span]) -> EntryRows:
        return self._take(np.concatenate([np.arange(start, end) for start, end in sorted(spans)]), ())

    def _take(self, order: Numbers, owners: Sequence[str | None]) -> EntryRows:
        rows = pa.array(order)
        ttls = None if self._ttls_ms is None else self._ttls_ms[order]
        return EntryRows(
            self._keys.take(rows),
            self._values.take(rows),
            self._partitions[order],
            ttls,
            insert=self._insert,
            owners=owners,
        )

    def parcels(self, *, rows_max: int, bytes_max: int) -> Iterator[Parcel]:
        """Messages of at most so many rows and bytes, but at least one row each."""
        key_ends, keys = to_buffers(self._keys)
        value_ends, values = to_buffers(self._values)
        ends = key_ends.astype(np.int64) + value_ends
        partitions = self._partitions
        rows = len(partitions)
        numbers = {owner: number for number, owner in enumerate(dict.fromkeys(self._owners))}
        owner_of = np.array([numbers[owner] for owner in self._owners], np.int32)[partitions]
        turns = [*(np.flatnonzero(np.diff(owner_of)) + 1).tolist(), rows]
        start = 0
        for turn in turns:
            while start < turn:
                full = int(np.searchsorted(ends, ends[start] + bytes_max, side="right")) - 1
                end = max(start + 1, min(turn, start + rows_max, full))
                mine = partitions[start:end]
                firsts = np.concatenate(([0], np.flatnonzero(np.diff(mine)) + 1))
                ttls = [] if self._ttls_ms is None else self._ttls_ms[start:end].tolist()
                columns = ColumnBatch(
                    end - start,
                    (key_ends[start : end + 1] - key_ends[start]).astype("<i4").tobytes(),
                    keys[key_ends[start] : key_ends[end]].tobytes(),
                    (value_ends[start : end + 1] - value_ends[start]).astype("<i4").tobytes(),
                    values[value_ends[start] : value_ends[end]].tobytes(),
                )
                yield Parcel(
                    self._owners[int(mine[0])],
                    mine[firsts].tolist(),
                    np.diff(np.append(firsts, end - start)).tolist(),
                    columns,
                    start,
                    bytes([PutKind.ADD]) * (end - start) if self._insert else b"",
                    ttls,
                )
                start = end
