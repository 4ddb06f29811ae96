"""Changes as rows: where and when, what was done, and the key and values before and after.

| format | `key` | `before`, `after` |
|--------|-------|-------------------|
| json   | a long where the map's key is one integer column, else a text | the columns of the map, as a struct |
| text   | a text | texts: JSON, unless the value is a text itself |
| binary | the stored form | the stored form |
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    IntegralType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from holdfast.errors import ConfigError
from holdfast.spark.rows.column_schemas import StoredSchema, arrow_schema, nullable
from holdfast.spark.rows.stored import BadRow, RowMaker, key_text
from holdfast.wire.values import JSON, Serialized, from_stored

INSERT, UPDATE, REMOVE, RESTART = "insert", "update", "remove", "restart"
"""What a change is. `restart`: what was told of this partition does not hold any more; its entries follow."""

BATCH_ROWS = 8192
BATCH_BYTES = 4 << 20
"""A record batch is handed to Spark once it has so many rows, or so many bytes of keys and values."""


def change_columns(value_format: str, stored: StoredSchema | None) -> StructType:
    """The columns of a change stream. `stored`: what is known of the map; needed for values in columns."""
    if value_format in ("binary", "text"):
        key: DataType = BinaryType() if value_format == "binary" else StringType()
        value = key
    else:
        assert stored is not None, value_format
        value = nullable(stored.struct)
        key = LongType() if _is_long(stored) else StringType()
    return (
        StructType()
        .add("map", StringType())
        .add("partition", IntegerType())
        .add("term", LongType())
        .add("counter", LongType())
        .add("time", TimestampType())
        .add("op", StringType())
        .add("key", key)
        .add("before", value)
        .add("after", value)
        .add("transaction", StringType())
    )


def _is_long(stored: StoredSchema) -> bool:
    if len(stored.key) != 1:
        return False
    kinds = {one.name: one.dataType for one in stored.struct.fields}
    return isinstance(kinds.get(stored.key[0]), IntegralType)


@dataclass(slots=True)
class ChangeRow:
    """One row of a change stream, key and values in their stored form."""

    map: str
    partition: int
    term: int
    counter: int
    op: str
    time_ms: int | None = None
    """Milliseconds since 1970; None of entries that are told first."""
    key: bytes | None = None
    before: bytes | None = None
    after: bytes | None = None
    transaction: bytes | None = None
    """The id of the transaction that has made the change, if one has."""

    @property
    def size(self) -> int:
        """Bytes of key and values."""
        return sum(len(cell) for cell in (self.key, self.before, self.after) if cell is not None)


@dataclass(slots=True)
class _Waiting:
    rows: list[ChangeRow] = field(default_factory=list)
    size: int = 0


class ChangeMaker:
    """Makes record batches of changes."""

    def __init__(self, schema: StructType, value_format: str, map_names: Sequence[str]) -> None:
        """`schema`: what Spark expects. Raises ConfigError when it is not that of a change stream."""
        names = change_columns("binary", None).names
        if schema.names != names:
            raise ConfigError(
                f"a change stream has the columns {', '.join(names)}, not {', '.join(schema.names)}"
            )
        self.schema = arrow_schema(schema)
        self._values: RowMaker | None = None
        self._format = value_format
        self._long_keys = pa.types.is_int64(self.schema.field("key").type)
        value = schema["after"].dataType
        if isinstance(value, StructType):
            self._values = RowMaker(arrow_schema(value), value_format, ", ".join(map_names))

    def batches(self, rows: Iterable[ChangeRow]) -> Iterator[pa.RecordBatch]:
        """The rows in batches, in order. Raises BadRow, naming the entry, for what does not fit the columns."""
        waiting = _Waiting()
        for row in rows:
            waiting.rows.append(row)
            waiting.size += row.size
            if len(waiting.rows) >= BATCH_ROWS or waiting.size >= BATCH_BYTES:
                yield self.batch(waiting.rows)
                waiting = _Waiting()
        if waiting.rows:
            yield self.batch(waiting.rows)

    def batch(self, rows: Sequence[ChangeRow]) -> pa.RecordBatch:
        """The rows as one batch. Raises BadRow."""
        times = [None if row.time_ms is None else row.time_ms * 1000 for row in rows]
        keys = [row.key for row in rows]
        arrays: list[pa.Array[Any]] = [
            pa.array([row.map for row in rows], pa.string()),
            pa.array([row.partition for row in rows], pa.int32()),
            pa.array([row.term for row in rows], pa.int64()),
            pa.array([row.counter for row in rows], pa.int64()),
            pa.array(times, pa.int64()).cast(self.schema.field("time").type),
            pa.array([row.op for row in rows], pa.string()),
            self._keys(keys),
            self._cells(keys, [row.before for row in rows]),
            self._cells(keys, [row.after for row in rows]),
            pa.array([row.transaction and row.transaction.hex() for row in rows], pa.string()),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _keys(self, keys: Sequence[bytes | None]) -> pa.Array[Any]:
        if self._format == "binary":
            return pa.array(keys, pa.binary())
        if self._long_keys:
            return pa.array([None if key is None else _long(key) for key in keys], pa.int64())
        return pa.array([None if key is None else cell_text(key) for key in keys], pa.string())

    def _cells(self, keys: Sequence[bytes | None], cells: Sequence[bytes | None]) -> pa.Array[Any]:
        if self._format == "binary":
            return pa.array(cells, pa.binary())
        if self._values is None:
            return pa.array([None if cell is None else cell_text(cell) for cell in cells], pa.string())
        present = [(key or b"", cell) for key, cell in zip(keys, cells, strict=True) if cell is not None]
        made = self._values.batch([key for key, _ in present], [cell for _, cell in present])
        columns = pa.StructArray.from_arrays(made.columns, fields=list(self._values.schema))
        at = iter(range(len(present)))
        return columns.take(pa.array([None if cell is None else next(at) for cell in cells], pa.int64()))


def _long(key: bytes) -> int:
    try:
        read = from_stored(key)
    except (ValueError, IndexError, struct.error, msgspec.MsgspecError):
        read = None
    if isinstance(read, bool) or not isinstance(read, int) or not -(2**63) <= read < 2**63:
        raise BadRow(
            f"the key {key_text(key)} is no integer, as the other keys of its map are; "
            "follow the map with valueFormat=text or binary"
        )
    return read


def cell_text(cell: bytes) -> str:
    """A stored key or value as text: JSON, unless it is a text; hexadecimal where its type is not known."""
    try:
        if cell.startswith(struct.pack(">i", JSON)):
            return cell[8:].decode()
        read = from_stored(cell)
    except (ValueError, IndexError, struct.error, msgspec.MsgspecError):
        return cell.hex()
    if isinstance(read, Serialized):
        return cell.hex()
    return read if isinstance(read, str) else msgspec.json.encode(read).decode()
