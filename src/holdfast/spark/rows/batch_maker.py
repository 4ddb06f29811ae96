"""Pages of entries as record batches.

Pages have Arrow's own layout (`wire.columns`): stored forms become binary columns without a copy, after a check
of their offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.errors import ConfigError, ProtocolError
from holdfast.spark.rows.row_reader import Cells, Layout, RowReader
from holdfast.wire.columns import ColumnBatch
from holdfast.wire.hazelcast.layouts import Schema

PARTITION = "__partition"


def page_cells(rows: int, offsets: bytes, data: bytes) -> Cells:
    """A column of a page as a binary array over its bytes. Raises ProtocolError if the offsets do not fit."""
    if rows < 0 or len(offsets) != 4 * (rows + 1):
        raise ProtocolError(f"{rows} rows with {len(offsets)} bytes of offsets")
    ends = np.frombuffer(offsets, "<i4")
    if ends[0] != 0 or ends[-1] != len(data) or (ends[1:] < ends[:-1]).any():
        raise ProtocolError("the offsets of a column do not fit its bytes")
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


class BatchMaker:
    def __init__(
        self, schema: pa.Schema, layout: Layout, fetch: Callable[[int], Schema | None] | None = None
    ) -> None:
        """`fetch`: returns the schema of a Compact value. Raises ConfigError if columns and format do not fit
        together.
        """
        self.schema = schema
        self.bad = 0
        self._partition_at = schema.get_field_index(PARTITION)
        if self._partition_at >= 0 and schema.field(PARTITION).type != pa.int32():
            raise ConfigError(f"the column {PARTITION} is an int, not {schema.field(PARTITION).type}")
        self._rows = RowReader(pa.schema([one for one in schema if one.name != PARTITION]), layout, fetch)
        self.needs_values = self._rows.needs_values

    def batch(self, pages: Sequence[tuple[int, ColumnBatch]]) -> pa.RecordBatch:
        """Raises BadRow, which names the entry."""
        return self.rows(pages)[0]

    def rows(self, pages: Sequence[tuple[int, ColumnBatch]]) -> tuple[pa.RecordBatch, Cells]:
        keys = _joined([page_cells(page.rows, page.key_offsets, page.keys) for _, page in pages])
        if not self.schema.names:
            # Only a struct array keeps the number of rows without columns.
            empty: Any = pa.array([{}] * len(keys), pa.struct([]))
            return pa.RecordBatch.from_struct_array(empty), keys
        numbers = np.array([number for number, _ in pages], np.int32)
        partitions = np.repeat(numbers, [page.rows for _, page in pages])
        values = keys
        if self.needs_values:
            values = _joined([page_cells(page.rows, page.value_offsets, page.values) for _, page in pages])
        found = self._rows.read(keys, values, lambda row: f"partition {partitions[row]}")
        self.bad += len(found.bad)
        columns = found.columns
        if found.kept is not None:
            keys, partitions = keys.take(pa.array(found.kept, pa.int64())), partitions[found.kept]
        if self._partition_at >= 0:
            columns[PARTITION] = pa.array(partitions, pa.int32())
        made = pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)
        return made, keys


def _joined(parts: list[Cells]) -> Cells:
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())
