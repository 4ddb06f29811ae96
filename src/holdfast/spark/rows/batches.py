"""Pages of entries as record batches.

Pages come in Arrow's own layout (`wire.columns`): stored forms become binary columns where they lie, once their
offsets are known to fit. JSON is decoded many values at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from holdfast.errors import ConfigError, ProtocolError
from holdfast.server.hazelcast.layouts import Schema
from holdfast.spark.rows.compact import CompactDecoder
from holdfast.spark.rows.primitive import can_be_primitive, check_primitive, primitive_column
from holdfast.spark.rows.stored import BadRow, RowMaker, key_text
from holdfast.wire.columns import ColumnBatch
from holdfast.wire.values import JSON

PARTITION = "__partition"
"""The column that says in which partition of the grid a row is."""

Cells = Any
"""A `pa.BinaryArray` without nulls."""

_FAILURES = (ValueError, IndexError, OverflowError, TypeError, struct.error, pa.ArrowException)
_WIDTHS = {-3: 1, -6: 2, -7: 4, -8: 8}
"""Type ids of integers, and their bytes."""

_JSON_HEAD = np.frombuffer(JSON.to_bytes(4, "big", signed=True), np.uint8)
_HEAD_BYTES = 8
"""Of a stored JSON value: type id and length."""
_BETWEEN = np.frombuffer(b",       ", np.uint8)
"""What takes the place of those between the values of a JSON array."""


def page_cells(rows: int, offsets: bytes, data: bytes) -> Cells:
    """A column of a page as a binary array that uses its bytes. Raises ProtocolError when the offsets do not fit."""
    if rows < 0 or len(offsets) != 4 * (rows + 1):
        raise ProtocolError(f"{rows} rows with {len(offsets)} bytes of offsets")
    ends = np.frombuffer(offsets, "<i4")
    if ends[0] != 0 or ends[-1] != len(data) or (ends[1:] < ends[:-1]).any():
        raise ProtocolError("the offsets of a column do not fit its bytes")
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


@dataclass(frozen=True, slots=True)
class Layout:
    """How the entries of a map are to be read."""

    map: str
    value_format: str
    key: tuple[str, ...] = ()
    """The columns that are the key; needed for `primitive` alone, where values do not hold them."""


class BatchMaker:
    """Makes record batches of one schema of pages; `__partition` in the schema is the partition of each row."""

    def __init__(
        self, schema: pa.Schema, layout: Layout, fetch: Callable[[int], Schema | None] | None = None
    ) -> None:
        """`fetch`: how the schema of a Compact value is found out. Raises ConfigError when the columns do not go with
        the format.
        """
        self.schema = schema
        self._layout = layout
        inner = pa.schema([field for field in schema if field.name != PARTITION])
        self._inner = inner
        self._partition_at = schema.get_field_index(PARTITION)
        if self._partition_at >= 0 and schema.field(PARTITION).type != pa.int32():
            raise ConfigError(f"the column {PARTITION} is an int, not {schema.field(PARTITION).type}")
        self._json: _JsonRows | None = None
        self._compact = CompactDecoder(fetch or _nobody_knows)
        self._keys = [field for field in inner if field.name in layout.key]
        if layout.value_format == "json":
            self._json = _JsonRows(inner, "json", layout.map)
        elif layout.value_format == "binary":
            if not {(field.name, field.type) for field in inner} <= {
                ("key", pa.binary()),
                ("value", pa.binary()),
            }:
                raise ConfigError(
                    f"valueFormat 'binary' has the two binary columns key and value, not {', '.join(inner.names)}"
                )
        elif layout.value_format == "primitive":
            self._check_primitive()

    def _check_primitive(self) -> None:
        key = self._layout.key
        rest = [field for field in self._inner if field.name not in key]
        if len(rest) > 1:
            raise ConfigError(
                f"valueFormat 'primitive' has the key ({', '.join(key)}) and one more column, "
                f"not {', '.join(field.name for field in rest)}"
            )
        for field in rest:
            check_primitive(field.name, field.type)

    @property
    def needs_values(self) -> bool:
        """Whether anything of the values is wanted; else members need not send them."""
        if self._layout.value_format == "binary":
            return "value" in self._inner.names
        if self._layout.value_format == "primitive":
            return len(self._inner) > len(self._keys)
        return bool(self._inner.names)

    def batch(self, pages: Sequence[tuple[int, ColumnBatch]]) -> pa.RecordBatch:
        """The entries of these pages, each with the partition that it is of. Raises BadRow, naming the entry."""
        rows = sum(page.rows for _, page in pages)
        if not self.schema.names:
            # Arrow has no other way to say how many rows there are without columns.
            return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))  # type: ignore[arg-type]
        keys = _joined([page_cells(page.rows, page.key_offsets, page.keys) for _, page in pages])
        columns: dict[str, Any] = {}
        if self._partition_at >= 0:
            numbers = np.array([number for number, _ in pages], np.int32)
            columns[PARTITION] = pa.array(np.repeat(numbers, [page.rows for _, page in pages]), pa.int32())
        values = keys
        if self.needs_values:
            values = _joined([page_cells(page.rows, page.value_offsets, page.values) for _, page in pages])
        columns |= self._columns(keys, values)
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)

    def _columns(self, keys: Cells, values: Cells) -> dict[str, Any]:
        value_format = self._layout.value_format
        if value_format == "binary":
            return {"key": keys, "value": values}
        if not self._inner.names:
            return {}
        if self._json is not None:
            return self._json.columns(keys, values)
        if value_format == "compact":
            return self._read(keys, values, self._compact_columns)
        found: dict[str, Any] = {}
        for field in self._inner:
            if field.name not in self._layout.key:
                found |= self._read(keys, values, partial(_primitive, field))
        if self._keys:
            found |= self._read(keys, keys, partial(_key_columns, self._keys, self._layout.key))
        return found

    def _read(
        self, keys: Cells, cells: Cells, read: Callable[[list[bytes]], dict[str, Any]]
    ) -> dict[str, Any]:
        stored = cells.to_pylist()
        try:
            return read(stored)
        except _FAILURES as failed:
            why: Exception = failed
        for key, cell in zip(keys.to_pylist(), stored, strict=True):
            try:
                read([cell])
            except _FAILURES as broken:
                raise BadRow(
                    f"the entry with key {key_text(key)} of map {self._layout.map!r} does not fit the columns "
                    f"{', '.join(self._inner.names)}: {broken}; give others with .schema(...), or read the map with "
                    "valueFormat 'binary'"
                ) from None
        raise BadRow(f"entries of map {self._layout.map!r} do not fit together: {why}")

    def _compact_columns(self, stored: list[bytes]) -> dict[str, Any]:
        rows = [self._compact.read(value) for value in stored]
        return {
            field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in self._inner
        }


def _nobody_knows(number: int) -> Schema | None:  # noqa: ARG001 - as whoever knows would be asked
    return None


def _primitive(field: Any, stored: list[bytes]) -> dict[str, Any]:
    if pa.types.is_integer(field.type):
        return {field.name: _integers(stored, field.type)}
    return {field.name: primitive_column(stored, field.type)}


def _integers(stored: list[bytes], kind: Any) -> Any:
    """Integers of any width as a column that is wide enough for them."""
    try:
        return primitive_column(stored, kind)
    except ValueError:
        pass
    numbers = []
    for one in stored:
        width = _WIDTHS.get(int.from_bytes(one[:4], "big", signed=True))
        if width != len(one) - 4:
            raise ValueError("it is no integer")
        numbers.append(int.from_bytes(one[4:], "big", signed=True))
    return pa.array(numbers, kind)


def _key_columns(wanted: Sequence[Any], key: Sequence[str], stored: list[bytes]) -> dict[str, Any]:
    """Columns of a key (`rows.stored`): one integer or text, or the texts of all of its columns, joined by `|`."""
    if len(key) == 1:
        field = wanted[0]
        if pa.types.is_integer(field.type):
            return {field.name: _integers(stored, field.type)}
        if can_be_primitive(field.type):
            try:
                return {field.name: primitive_column(stored, field.type)}
            except ValueError:
                pass
    texts = primitive_column(stored, pa.string()).to_pylist()
    parts = [split_key(text) if len(key) > 1 else [text] for text in texts]
    if any(len(row) != len(key) for row in parts):
        raise ValueError(f"the key has not {len(key)} parts")
    return {
        field.name: pa.array([row[key.index(field.name)] for row in parts], pa.string()).cast(field.type)
        for field in wanted
    }


def split_key(text: str) -> list[str]:
    """The texts of the columns of a key of several (`rows.stored`)."""
    if "\\" not in text:
        return text.split("|")
    parts = [""]
    letters = iter(text)
    for letter in letters:
        if letter == "|":
            parts.append("")
        else:
            parts[-1] += next(letters, "") if letter == "\\" else letter
    return parts


def _joined(parts: list[Cells]) -> Cells:
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())


class _JsonRows(RowMaker):
    """JSON values as columns. A text column takes what is there: a text as it is, anything else as its JSON text."""

    def __init__(self, schema: pa.Schema, value_format: str, map_name: str) -> None:
        super().__init__(schema, value_format, map_name)
        self._texts = [
            name for name, field in zip(self._fields, schema, strict=True) if pa.types.is_string(field.type)
        ]
        self._loose: msgspec.json.Decoder[Any] | None = None

    def columns(self, keys: Cells, values: Cells) -> dict[str, Any]:
        """The columns of these values. Raises BadRow, naming the entry, when a value does not fit the columns."""
        names = self.schema.names
        glued = _glue(values)
        if glued is not None:
            try:
                rows = self._rows.decode(glued)
                if len(rows) == len(values):
                    return dict(zip(names, self._arrays(rows), strict=True))
            except (msgspec.MsgspecError, pa.ArrowException, ValueError, OverflowError):
                pass
        stored = values.to_pylist()
        batch = self.batch(keys.to_pylist(), self._plain_texts(stored) if self._texts else stored)
        return dict(zip(names, batch.columns, strict=True))

    def _plain_texts(self, stored: list[bytes]) -> list[bytes]:
        """The values, with text columns that hold something else made texts; those that are no JSON as they are."""
        if self._loose is None:
            fields: Any = [(name, msgspec.Raw, msgspec.UNSET) for name in self._texts]
            renamed = {name: self.schema.names[int(name[1:])] for name in self._texts}
            self._loose = msgspec.json.Decoder(msgspec.defstruct("Texts", fields, rename=renamed, gc=False))
        found = []
        for value in stored:
            try:
                texts = self._loose.decode(value[_HEAD_BYTES:])
                whole = msgspec.json.decode(value[_HEAD_BYTES:], type=dict[str, msgspec.Raw])
            except msgspec.MsgspecError:
                found.append(value)
                continue
            for name in self._texts:
                raw = getattr(texts, name)
                if raw is not msgspec.UNSET and bytes(raw)[:1] not in (b'"', b"n"):
                    column = self.schema.names[int(name[1:])]
                    whole[column] = msgspec.Raw(msgspec.json.encode(bytes(raw).decode()))
            found.append(value[:_HEAD_BYTES] + msgspec.json.encode(whole))
        return found


def _glue(values: Cells) -> bytearray | None:
    """Stored JSON values as one JSON array; None when some value is no JSON."""
    rows = len(values)
    if not rows:
        return bytearray(b"[]")
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, "<i4", rows + 1, 4 * values.offset)
    start = int(ends[0])
    starts = ends[:-1] - start
    if (np.diff(ends) <= _HEAD_BYTES).any():
        return None
    glued = bytearray(memoryview(data)[start : int(ends[-1])])
    glued += b"]"
    whole = np.frombuffer(glued, np.uint8)
    heads = starts[:, None] + np.arange(_HEAD_BYTES, dtype=np.int32)
    if (whole[heads[:, :4]] != _JSON_HEAD).any():
        return None
    whole[heads] = _BETWEEN
    whole[0] = ord("[")
    return glued
