"""Encodes record batches as entries, whole columns at a time, and reports rows that cannot be stored."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.operations import DEFAULT_TTL
from holdfast.errors import ConfigError
from holdfast.spark.rows.bad_rows import BadRow
from holdfast.spark.rows.cells import Cells, Numbers, big_endian, counted, headed, lengths
from holdfast.spark.rows.compact import CompactEncoder
from holdfast.spark.rows.primitive import as_numpy, check_primitive, nulls_inside, primitive_cells
from holdfast.spark.rows.stored import EntryMaker
from holdfast.wire.values import JSON, LONG, STRING

TTL_S_MAX = 2**40
"""Longer than anyone waits, and small enough in milliseconds for a member."""

CELL_BYTES_MAX = 64
"""Most bytes of a number, date or time in JSON or Compact, with its offset."""
ESCAPED_BYTES_MAX = 6
"""Most bytes in JSON for one byte of a text."""

_EPOCH = dt.date(1970, 1, 1)
FIRST_DAY = (dt.date.min - _EPOCH).days
LAST_DAY = (dt.date.max - _EPOCH).days
DAY_US = 86_400_000_000

_FAILURES = (ValueError, OverflowError, pa.ArrowException, msgspec.MsgspecError)


@dataclass(frozen=True, slots=True)
class Shape:
    key: tuple[str, ...]
    value_format: str = "json"
    value_column: str | None = None
    type_name: str = ""
    ttl_column: str | None = None
    ttl_ms: int = DEFAULT_TTL
    """For rows without a value in `ttl_column`."""
    corrupt_column: str | None = None
    """Not null in rows that could not be parsed."""


@dataclass(frozen=True, slots=True)
class Wrong:
    row: int
    why: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a member in bytes of the stored form; 0: none."""

    key_bytes: int = 0
    value_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Entries:
    keys: Cells
    values: Cells
    ttls_ms: Numbers | None = None
    wrong: list[Wrong] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.keys)

    def slice(self, start: int, rows: int) -> Entries:
        ttls = None if self.ttls_ms is None else self.ttls_ms[start : start + rows]
        return Entries(self.keys.slice(start, rows), self.values.slice(start, rows), ttls)


class EntryEncoder:
    def __init__(self, schema: pa.Schema, shape: Shape) -> None:
        """Raises ConfigError if columns and shape do not fit together."""
        self.shape = shape
        self._schema = schema
        for name in (shape.ttl_column, shape.corrupt_column):
            if name is not None and name not in schema.names:
                raise ConfigError(f"there is no column {name!r}; the columns are {', '.join(schema.names)}")
        if shape.ttl_column is not None:
            if shape.ttl_column in shape.key:
                raise ConfigError(f"the column {shape.ttl_column!r} cannot be key and ttlColumn")
            kind = schema.field(shape.ttl_column).type
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
                raise ConfigError(f"ttlColumn {shape.ttl_column!r} is {kind}; it holds seconds, so a number")
        aside = {shape.ttl_column, shape.corrupt_column}
        self.rows_schema = pa.schema([one for one in schema if one.name not in aside])
        self._maker: EntryMaker | None = None
        self._compact: CompactEncoder | None = None
        self._value = ""
        if shape.value_format == "json" or shape.value_format == "binary":
            self._maker = EntryMaker(self.rows_schema, shape.key, shape.value_format)
        else:
            # Checks the key columns in the same way as for JSON.
            EntryMaker(
                pa.schema([one for one in self.rows_schema if one.name in shape.key]), shape.key, "json"
            )
        if shape.value_format == "compact":
            self._compact = CompactEncoder(self.rows_schema, shape.type_name)
        if shape.value_format == "primitive":
            self._value = self._value_column()
        self._key = shape.key or ("key",)

    @property
    def compact(self) -> CompactEncoder | None:
        return self._compact

    def _value_column(self) -> str:
        shape = self.shape
        rest = [name for name in self.rows_schema.names if name not in shape.key]
        name = shape.value_column or (rest[0] if len(rest) == 1 else None)
        if name is None or name in shape.key or rest != [name]:
            raise ConfigError(
                f"valueFormat 'primitive' stores one column beside the key, and there are {', '.join(rest) or 'none'}: "
                "select the key and the value column" + (f" {name!r}" if name else "")
            )
        check_primitive(name, self.rows_schema.field(name).type)
        return name

    # -- all at once

    def encode(self, batch: pa.RecordBatch, limits: Limits) -> Entries:
        """Rows that cannot be stored are in `wrong`, in order."""
        batch, wrong = self._plainly_wrong(batch, self._schema)
        good, numbers = _without(batch, wrong)
        rows = _columns(good, self.rows_schema.names)
        try:
            keys, values = self.keys(rows), self._values(rows)
        except _FAILURES:
            failed = list(self._unserialisable(rows, numbers))
            if not failed:
                raise
            wrong += failed
            good, numbers = _without(batch, wrong)
            rows = _columns(good, self.rows_schema.names)
            keys, values = self.keys(rows), self._values(rows)
        ttls = self._ttls_ms(good)
        fit = _too_large(keys, values, limits)
        if fit:
            wrong += [Wrong(int(numbers[row]), why) for row, why in fit.items()]
            stay = np.ones(len(keys), bool)
            stay[list(fit)] = False
            mask = pa.array(stay)
            keys, values = keys.filter(mask), values.filter(mask)
            ttls = None if ttls is None else ttls[stay]
        return Entries(keys, values, ttls, sorted(wrong, key=lambda one: one.row))

    def columns_to_check(self) -> list[str]:
        """The columns that `check` usually needs to decide whether a row can be stored, if all have the types
        of the schema.
        """
        wanted = {*self._key, self._value, self.shape.ttl_column, self.shape.corrupt_column}
        if self.shape.value_format == "binary":
            wanted.add("value")
        return [
            one.name
            for one in self._schema
            if one.name in wanted or not _is_short(one.type) or moment_bounds(one.type) is not None
        ]

    def check(self, batch: pa.RecordBatch, limits: Limits) -> list[Wrong] | None:
        """The errors that `encode` would report; values are only made if they may be too large or fail.

        None: all columns are needed, and these are not all.
        """
        if batch.num_columns < len(self._schema):
            schema = pa.schema([one for one in self._schema if one.name in batch.schema.names])
        else:
            schema = self._schema
        found, wrong = self._plainly_wrong(batch, schema)
        if self._may_fail(found, limits):
            return self.encode(batch, limits).wrong if schema is self._schema else None
        batch = found
        good, numbers = _without(batch, wrong)
        keys = self.keys(good)
        wrong += [Wrong(int(numbers[row]), why) for row, why in _too_large(keys, None, limits).items()]
        return sorted(wrong, key=lambda one: one.row)

    def _may_fail(self, batch: pa.RecordBatch, limits: Limits) -> bool:
        bound = 8 + sum(
            CELL_BYTES_MAX + ESCAPED_BYTES_MAX * len(name.encode()) for name in self._schema.names
        )
        for column in batch.columns:
            if pa.types.is_nested(column.type):
                return True
            if not _is_short(column.type):
                cells: Any = column
                longest = pc.max(pc.binary_length(cells)).as_py() or 0
                bound += ESCAPED_BYTES_MAX * int(longest)
        return bool(limits.value_bytes and bound > limits.value_bytes)

    # -- errors of rows

    def _plainly_wrong(self, batch: pa.RecordBatch, schema: pa.Schema) -> tuple[pa.RecordBatch, list[Wrong]]:
        """The batch in the types of the schema, and rows with visible errors: each once, in order."""
        batch, failed = _cast(batch, schema)
        found = {one.row: one for one in [*self.plainly_wrong(batch), *failed]}
        return batch, [found[row] for row in sorted(found)]

    def plainly_wrong(self, batch: pa.RecordBatch) -> list[Wrong]:
        """Rows with errors that are visible without encoding them: each once, in order."""
        found: dict[int, str] = {}
        names = batch.schema.names

        def note(mask: Any, why: str) -> None:
            for row in np.flatnonzero(mask):
                found.setdefault(int(row), why)

        def column(name: str) -> Any:
            return batch.column(names.index(name))

        corrupt = self.shape.corrupt_column
        if corrupt is not None and column(corrupt).null_count < batch.num_rows:
            note(_mask(column(corrupt).is_valid()), "it does not fit the columns")
        for name in self._key:
            if column(name).null_count:
                note(_mask(column(name).is_null()), f"no value in the column {name!r}, part of the key")
        value = self._value or ("value" if self.shape.value_format == "binary" else "")
        if value and column(value).null_count:
            note(_mask(column(value).is_null()), f"no value in the column {value!r}: a map holds no nulls")
        if self.shape.value_format == "binary":
            for name in ("key", "value"):
                short = pc.less(pc.binary_length(column(name)), pa.scalar(4, pa.int32())).fill_null(False)
                note(_mask(short), f"the {name} is no stored form: it begins with a 4-byte type id")
        for name in names:
            if self.shape.value_format in ("primitive", "compact") and pa.types.is_list(column(name).type):
                inside = nulls_inside(column(name))
                if inside is not None:
                    note(inside, f"the array in the column {name!r} has a null element")
            if pa.types.is_string(column(name).type) and not _is_text(column(name)):
                # Files may contain texts that are not valid UTF-8.
                none = [not _is_text(column(name).slice(row, 1)) for row in range(batch.num_rows)]
                note(none, f"the column {name!r} holds no text: its bytes are no UTF-8")
            outside = _outside(column(name))
            if outside is not None:
                note(
                    outside,
                    f"the column {name!r} is not within the years 1 to 9999, and could not be read again",
                )
        if self.shape.ttl_column is not None:
            seconds = _seconds(column(self.shape.ttl_column))
            with np.errstate(invalid="ignore"):
                bad = ~((seconds > 0) & (seconds < TTL_S_MAX))
            bad &= _mask(column(self.shape.ttl_column).is_valid())
            note(bad, f"the column {self.shape.ttl_column!r} holds no number of seconds above 0")
        return [Wrong(row, why) for row, why in sorted(found.items())]

    def _unserialisable(self, rows: pa.RecordBatch, numbers: Numbers) -> Iterator[Wrong]:
        for at in range(rows.num_rows):
            one = rows.slice(at, 1)
            try:
                self.keys(one)
                self._values(one)
            except _FAILURES as failed:
                yield Wrong(int(numbers[at]), f"it cannot be stored: {failed}")

    # -- columns as cells

    def keys(self, rows: pa.RecordBatch) -> Cells:
        if self.shape.value_format == "binary":
            return rows.column(rows.schema.names.index("key"))
        parts = [rows.column(rows.schema.names.index(name)) for name in self.shape.key]
        if len(parts) == 1 and pa.types.is_integer(parts[0].type):
            return headed(LONG, big_endian(as_numpy(parts[0]), ">i8"))
        texts = [key_texts(part) for part in parts]
        if len(texts) == 1:
            return counted(STRING, texts[0].cast(pa.binary()))
        texts = [pc.replace_substring(pc.replace_substring(one, "\\", "\\\\"), "|", "\\|") for one in texts]
        whole: Any = pc.binary_join_element_wise(*texts, "|")
        return counted(STRING, whole.cast(pa.binary()))

    def _values(self, rows: pa.RecordBatch) -> Cells:
        if self._compact is not None:
            return self._compact.cells(rows)
        if self._maker is None:
            return primitive_cells(rows.column(rows.schema.names.index(self._value)))
        if self.shape.value_format == "binary":
            return rows.column(rows.schema.names.index("value"))
        return counted(JSON, pa.array(self._maker.json(rows), pa.binary()))

    def _ttls_ms(self, batch: pa.RecordBatch) -> Numbers | None:
        if self.shape.ttl_column is None:
            return None
        column = batch.column(batch.schema.names.index(self.shape.ttl_column))
        seconds = _seconds(column)
        missing = _mask(column.is_null())
        whole = np.maximum(1, np.rint(np.where(missing, 1, seconds) * 1000)).astype(np.int64)
        whole[missing] = self.shape.ttl_ms
        found: Numbers = whole
        return found


def key_texts(column: Any) -> Any:
    if pa.types.is_string(column.type):
        return column
    texts = column.cast(pa.string())
    return pc.replace_substring(texts, " ", "T") if pa.types.is_timestamp(column.type) else texts


def _columns(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    return batch if batch.schema.names == list(names) else batch.select(list(names))


def _without(batch: pa.RecordBatch, wrong: Sequence[Wrong]) -> tuple[pa.RecordBatch, Numbers]:
    if not wrong:
        return batch, np.arange(batch.num_rows)
    stay = np.ones(batch.num_rows, bool)
    stay[[one.row for one in wrong]] = False
    return batch.filter(pa.array(stay)), np.flatnonzero(stay)


def _is_text(column: Any) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowException:
        return False
    return True


def _is_short(kind: Any) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind))


def moment_bounds(kind: Any) -> tuple[int, int] | None:
    """First and last date or time of the years 1 to 9999, in the column's unit; None for other types.

    ISO 8601 has four digits for a year, as do the decoders of JSON and Compact values.
    """
    if pa.types.is_date32(kind):
        return FIRST_DAY, LAST_DAY
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return FIRST_DAY * DAY_US, (LAST_DAY + 1) * DAY_US - 1
    return None


def _outside(column: Any) -> Any:
    """Mask of dates or times outside the years 1 to 9999; None if there are none."""
    bounds = moment_bounds(column.type)
    if bounds is None:
        return None
    numbers: Any = column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    extremes = pc.min_max(numbers)
    least, most = extremes["min"].as_py(), extremes["max"].as_py()
    if least is None or (least >= bounds[0] and most <= bounds[1]):
        return None
    first, last = (pa.scalar(bound, numbers.type) for bound in bounds)
    outside: Any = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
    return _mask(outside.fill_null(False))


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> tuple[pa.RecordBatch, list[Wrong]]:
    """Columns cast to exactly the types of a schema, without other time zones, large offsets and dictionaries.

    Cells that do not fit become null; their rows are returned, each once.
    """
    if batch.schema.equals(schema):
        return batch, []
    columns: list[Any] = []
    wrong: dict[int, Wrong] = {}
    for wanted in schema:
        column: Any = batch.column(batch.schema.names.index(wanted.name))
        if column.type != wanted.type:
            failed: dict[int, str] = {}
            column = _cast_cells(column, wanted.type, 0, failed)
            for row, why in failed.items():
                words = f"the column {wanted.name!r} cannot become {wanted.type}: {why}"
                wrong.setdefault(row, Wrong(row, words))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=schema.names), [wrong[row] for row in sorted(wrong)]


def _cast_cells(column: Any, kind: Any, start: int, failed: dict[int, str]) -> Any:
    """The cells as this type; those that do not fit become null, and their rows, from `start` on, are added to
    `failed`.
    """
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as broken:
        if isinstance(broken, pa.ArrowNotImplementedError):
            raise BadRow(f"a column of type {column.type} cannot become {kind}: {broken}") from None
        if len(column) == 1:
            failed[start] = str(broken)
            return pa.nulls(1, kind)
    half = len(column) // 2
    parts = (
        _cast_cells(column.slice(0, half), kind, start, failed),
        _cast_cells(column.slice(half), kind, start + half, failed),
    )
    return pa.concat_arrays(parts)


def _too_large(keys: Cells, values: Cells | None, limits: Limits) -> dict[int, str]:
    found: dict[int, str] = {}
    for what, cells, most in (("value", values, limits.value_bytes), ("key", keys, limits.key_bytes)):
        if most and cells is not None:
            sizes = lengths(cells)
            for row in np.flatnonzero(sizes > most):
                found[int(row)] = (
                    f"a {what} of {sizes[row]} bytes; the most is {most} (limits.{what}_bytes of the members)"
                )
    return found


def _mask(flags: Any) -> Any:
    return flags.to_numpy(zero_copy_only=False)


def _seconds(column: Any) -> Numbers:
    found: Numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return found
