"""Changes as rows: place and time, operation, key, and the values before and after.

| format | `key` | `before`, `after` |
|--------|-------|-------------------|
| json   | a long if the map's key is one integer column, else a text | the columns of the map, as a struct |
| text   | a text | texts: JSON, unless the value is a text itself |
| binary | the stored form | the stored form |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

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
from holdfast.spark.rows.bad_rows import UNREADABLE, BadRow, BadRows, advice, short
from holdfast.spark.rows.column_schemas import StoredSchema, arrow_schema, nullable
from holdfast.spark.rows.row_reader import Layout, RowReader, Rows
from holdfast.spark.rows.stored import cell_text, key_text
from holdfast.wire.values import from_stored

INSERT, UPDATE, REMOVE, RESTART = "insert", "update", "remove", "restart"
"""`restart`: all earlier rows of this partition are void; its present entries follow."""

BATCH_ROWS = 8192
BATCH_BYTES = 4 << 20
"""A record batch is passed to Spark at so many bytes of keys and values."""


FAIL = BadRows()

Current = Callable[["ChangeRow"], "bytes | None"]


def change_columns(value_format: str, stored: StoredSchema | None, bad: BadRows = FAIL) -> StructType:
    """Columns of a change stream. `stored`: description of the map, needed for values in columns.

    Raises ConfigError if the option `bad` names one of them.
    """
    if value_format in ("binary", "text"):
        key: DataType = BinaryType() if value_format == "binary" else StringType()
        value = key
    else:
        assert stored is not None, value_format
        value = nullable(stored.struct)
        key = LongType() if _is_long(stored) else StringType()
    columns = (
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
    if bad.mode == "column":
        if bad.column in columns.names:
            raise ConfigError(
                f"the option bad names {bad.column!r}, which is a column of every change stream"
            )
        columns.add(bad.column, StringType())
    return columns


def _is_long(stored: StoredSchema) -> bool:
    if len(stored.key) != 1:
        return False
    kinds = {one.name: one.dataType for one in stored.struct.fields}
    return isinstance(kinds.get(stored.key[0]), IntegralType)


@dataclass(slots=True)
class ChangeRow:
    map: str
    partition: int
    term: int
    counter: int
    op: str
    time_ms: int | None = None
    """Since 1970; None for entries that are delivered first."""
    key: bytes | None = None
    before: bytes | None = None
    after: bytes | None = None
    transaction: bytes | None = None

    @property
    def size(self) -> int:
        return sum(len(cell) for cell in (self.key, self.before, self.after) if cell is not None)


@dataclass(slots=True)
class _Waiting:
    rows: list[ChangeRow] = field(default_factory=list)
    size: int = 0


class ChangeMaker:
    """Makes record batches of changes.

    A change is bad if its key or its new value does not fit. An old value that does not fit becomes null;
    otherwise the correction of a bad value would be bad itself. With `bad=fail` a change fails only while the
    entry's present value does not fit, so that a query continues after the entry was corrected or removed.
    """

    def __init__(
        self,
        schema: StructType,
        value_format: str,
        map_names: Sequence[str],
        bad: BadRows = FAIL,
        current: Current | None = None,
    ) -> None:
        """`schema`: expected by Spark. `current`: needed for `bad=fail`; without it no entry counts as corrected.

        Raises ConfigError if the schema is not that of a change stream.
        """
        names = change_columns("binary", None, bad).names
        if schema.names != names:
            raise ConfigError(
                f"a change stream has the columns {', '.join(names)}, not {', '.join(schema.names)}"
            )
        self.schema = arrow_schema(schema)
        self._values: RowReader | None = None
        self._format = value_format
        self._bad = bad
        self._current = current
        self._long_keys = pa.types.is_int64(self.schema.field("key").type)
        value = schema["after"].dataType
        if isinstance(value, StructType):
            layout = Layout(", ".join(map_names), value_format, bad=BadRows("null"))
            self._values = RowReader(arrow_schema(value), layout)

    def batches(self, rows: Iterable[ChangeRow]) -> Iterator[pa.RecordBatch]:
        """Record batches of the changes, in order. Raises BadRow, which names the entry, if one does not fit."""
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
        """The option `bad` decides about bad rows. Raises BadRow."""
        keys, unfit_keys = self._keys([row.key for row in rows])
        after, unfit = self._cells([row.after for row in rows])
        unfit = {**unfit, **unfit_keys}
        before, _ = self._cells([row.before for row in rows])
        if self._bad.mode == "fail":
            self._check(rows, unfit)
        times = [None if row.time_ms is None else row.time_ms * 1000 for row in rows]
        arrays: list[pa.Array[Any]] = [
            pa.array([row.map for row in rows], pa.string()),
            pa.array([row.partition for row in rows], pa.int32()),
            pa.array([row.term for row in rows], pa.int64()),
            pa.array([row.counter for row in rows], pa.int64()),
            pa.array(times, pa.int64()).cast(self.schema.field("time").type),
            pa.array([row.op for row in rows], pa.string()),
            keys,
            before,
            after,
            pa.array([row.transaction and row.transaction.hex() for row in rows], pa.string()),
        ]
        if self._bad.mode == "column":
            raw = [_raw(row, at in unfit_keys) if at in unfit else None for at, row in enumerate(rows)]
            arrays.append(pa.array(raw, pa.string()))
        made = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if unfit and self._bad.mode in ("fail", "skip"):
            made = made.filter(pa.array([at not in unfit for at in range(len(rows))]))
        return made

    def _check(self, rows: Sequence[ChangeRow], unfit: dict[int, str]) -> None:
        """Raises BadRow for the first change whose entry still does not fit."""
        for at, why in sorted(unfit.items()):
            row = rows[at]
            if self._current is not None:
                now = self._current(row)
                if now is None or not (self._keys([row.key])[1] or self._cells([now])[1]):
                    continue
            raise BadRow(
                f"update {row.counter} of map {row.map!r}, partition {row.partition}, key "
                f"{short(key_text(row.key or b''))} does not fit the columns of the stream: {why}. "
                f"{advice(stream=True)}; or follow the map with valueFormat=text or binary"
            )

    def _keys(self, keys: Sequence[bytes | None]) -> tuple[pa.Array[Any], dict[int, str]]:
        if self._format == "binary":
            return pa.array(keys, pa.binary()), {}
        if not self._long_keys:
            return pa.array([None if key is None else cell_text(key) for key in keys], pa.string()), {}
        numbers = [None if key is None else _long(key) for key in keys]
        why = "the key is no integer, as the other keys of its map are"
        unfit = {at: why for at, key in enumerate(keys) if key is not None and numbers[at] is None}
        return pa.array(numbers, pa.int64()), unfit

    def _cells(self, cells: Sequence[bytes | None]) -> tuple[pa.Array[Any], dict[int, str]]:
        """A column of values, and the reasons by row for those that do not fit."""
        if self._format == "binary":
            return pa.array(cells, pa.binary()), {}
        if self._values is None:
            return pa.array([None if cell is None else cell_text(cell) for cell in cells], pa.string()), {}
        places = [at for at, cell in enumerate(cells) if cell is not None]
        present = pa.array([cells[at] for at in places], pa.binary())
        found: Rows = self._values.read(present, present)
        fields = list(self._values.schema)
        columns = pa.StructArray.from_arrays([found.columns[one.name] for one in fields], fields=fields)
        at_of = {place: at for at, place in enumerate(places)}
        whole = columns.take(pa.array([at_of.get(at) for at in range(len(cells))], pa.int64()))
        return whole, {places[at]: why for at, why in found.bad.items()}


def _raw(row: ChangeRow, unfit_key: bool) -> str:
    value = row.after if row.after is not None else row.before
    text = "" if value is None else cell_text(value)
    return f"key {cell_text(row.key or b'')}: {text}" if unfit_key else text


def _long(key: bytes) -> int | None:
    try:
        read = from_stored(key)
    except UNREADABLE:
        return None
    return read if type(read) is int and -(2**63) <= read < 2**63 else None
