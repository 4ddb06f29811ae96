"""Entries as rows, and the entries that are not rows of the schema.

A batch is decoded whole columns at a time. Only if that fails, the bad entries are searched (`sift`) and
decoded cell by cell: a JSON object whose field `delay` does not fit loses only `delay`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from holdfast.errors import ConfigError
from holdfast.spark.rows.bad_rows import UNREADABLE, BadRow, BadRows, advice, short, sift
from holdfast.spark.rows.compact import CompactDecoder
from holdfast.spark.rows.nested import inward
from holdfast.spark.rows.primitive import can_be_primitive, check_primitive, primitive_column
from holdfast.spark.rows.stored import (
    BINARY_SCHEMA,
    cell_text,
    check_binary,
    check_columns,
    key_text,
    plain_type,
)
from holdfast.wire.hazelcast.layouts import Schema
from holdfast.wire.values import JSON

Cells = Any

Column = Any

_WIDTHS = {-3: 1, -6: 2, -7: 4, -8: 8}

_JSON_ID = struct.pack(">i", JSON)
_JSON_HEAD = np.frombuffer(_JSON_ID, np.uint8)
_HEAD_BYTES = 8
_BETWEEN = np.frombuffer(b",       ", np.uint8)
"""Replaces the headers between values, to form one JSON array."""


@dataclass(frozen=True, slots=True)
class Layout:
    map: str
    value_format: str
    key: tuple[str, ...] = ()
    """The key columns. `primitive` reads them from keys, other formats only if the value is bad."""
    bad: BadRows = field(default_factory=BadRows)


@dataclass(frozen=True, slots=True)
class Rows:
    columns: dict[str, Column]
    bad: dict[int, str]
    kept: Sequence[int] | None = None
    """Numbers of the entries that have a row; None: all."""


class RowReader:
    """Reads entries as rows of one schema. JSON fields that are not in the schema are skipped."""

    def __init__(
        self, schema: pa.Schema, layout: Layout, fetch: Callable[[int], Schema | None] | None = None
    ) -> None:
        """`fetch`: returns the schema of a Compact value. Raises ConfigError if columns and format do not fit
        together.
        """
        self.schema = schema
        self.layout = layout
        self._marked = layout.bad.column if layout.bad.mode == "column" else ""
        if self._marked and (
            self._marked not in schema.names or schema.field(self._marked).type != pa.string()
        ):
            raise ConfigError(
                f"the option bad names the column {self._marked!r}, which the schema does not have as a string: add it"
            )
        self._fields = [one for one in schema if one.name != self._marked]
        inner = pa.schema(self._fields)
        self._format: _Format | None = None
        if layout.value_format == "json":
            self._format = _Json(inner)
        elif layout.value_format == "compact":
            self._format = _Compact(inner, fetch)
        elif layout.value_format == "primitive":
            self._format = _Primitive(inner, layout.key)
        elif not {(one.name, one.type) for one in inner} <= {(one.name, one.type) for one in BINARY_SCHEMA}:
            check_binary(inner)

    @property
    def needs_values(self) -> bool:
        """Otherwise members need not send them."""
        if self._marked:
            return True
        if self.layout.value_format == "binary":
            return "value" in self.schema.names
        if self.layout.value_format == "primitive":
            return any(one.name not in self.layout.key for one in self._fields)
        return bool(self._fields)

    def read(self, keys: Cells, values: Cells, place: Callable[[int], str] = lambda _: "") -> Rows:
        """The entries as columns. Raises BadRow, which names the entry, if one does not fit and the mode is `fail`.

        `place`: describes the location of an entry in errors.
        """
        made = self._format
        if made is None or not self._fields:
            found = {"key": keys, "value": values}
            columns = {one.name: found[one.name] for one in self._fields}
            return Rows(self._with_raw(columns, keys, values, {}), {})

        def piece(start: int, end: int) -> list[Column]:
            some = slice(start, end)
            return made.columns(keys[some], values[some])

        mode = self.layout.bad.mode
        good, bad = sift(len(keys), piece, first_only=mode == "fail")
        if bad and mode == "fail":
            at, why = min(bad.items())
            raise BadRow(
                f"{self._unfit(keys[at].as_py(), place(at), why)}. {advice()}; or read the map with valueFormat=binary"
            )
        kept = None
        parts = dict(good)
        if bad and mode == "skip":
            kept = [at for at in range(len(keys)) if at not in bad]
        else:
            parts |= {at: self._partial(keys[at].as_py(), values[at].as_py()) for at in bad}
        pieces = [columns for _, columns in sorted(parts.items(), key=lambda part: part[0])]
        columns = {
            one.name: _joined([piece[at] for piece in pieces], one.type)
            for at, one in enumerate(self._fields)
        }
        return Rows(self._with_raw(columns, keys, values, bad), bad, kept)

    def _unfit(self, key: bytes, place: str, why: str) -> str:
        where = f" ({place})" if place else ""
        names = ", ".join(one.name for one in self._fields)
        return (
            f"the entry with key {short(key_text(key))} of map {self.layout.map!r}{where} does not fit the columns "
            f"{names}: {why}"
        )

    def _partial(self, key: bytes, value: bytes) -> list[Column]:
        """A row with the fitting parts of an entry. Key columns that the value lacks are read from the key."""
        assert self._format is not None
        cells = self._format.cells(key, value)
        for one in self._fields:
            if one.name in self.layout.key and one.name not in cells:
                cells |= _fitting({one.name: _bound(self._of_key, one, key)})
        return [cells[one.name] if one.name in cells else pa.nulls(1, one.type) for one in self._fields]

    def _of_key(self, wanted: Any, key: bytes) -> Column:
        return key_columns([wanted], self.layout.key, [key])[wanted.name]

    def _with_raw(
        self, columns: dict[str, Column], keys: Cells, values: Cells, bad: Mapping[int, str]
    ) -> dict[str, Column]:
        if self._marked:
            raw: list[str | None] = [None] * len(keys)
            for at in bad:
                raw[at] = self._raw(keys[at].as_py(), values[at].as_py())
            columns[self._marked] = pa.array(raw, pa.string())
        return columns

    def _raw(self, key: bytes, value: bytes) -> str:
        # Only `primitive` reads keys, and its single value can only be bad together with its key.
        if self._format is not None and self._format.only_key_unfit(key, value):
            return f"key {cell_text(key)}: {cell_text(value)}"
        return cell_text(value)


class _Format(Protocol):
    def columns(self, keys: Cells, values: Cells) -> list[Column]:
        """The columns in the order of the schema. Raises one of UNREADABLE."""

    def cells(self, key: bytes, value: bytes) -> dict[str, Column]:
        """The readable columns of one entry, one row each."""

    def only_key_unfit(self, key: bytes, value: bytes) -> bool:
        """Whether the value fits and the key does not."""


def _fitting(wanted: Mapping[str, Callable[[], Column]]) -> dict[str, Column]:
    found = {}
    for name, read in wanted.items():
        try:
            found[name] = read()
        except UNREADABLE:
            continue
    return found


def _joined(parts: list[Column], kind: Any) -> Column:
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts) if parts else pa.array([], kind)


# -- JSON


class _Json:
    """JSON objects. A text column accepts any value: a text as it is, others as JSON text."""

    def __init__(self, schema: pa.Schema) -> None:
        check_columns(schema)
        self._schema = schema
        self._names = [f"c{at}" for at in range(len(schema))]
        kinds = [plain_type(one.type) for one in schema]
        renamed = dict(zip(self._names, schema.names, strict=True))
        fields = [(name, kind, None) for name, kind in zip(self._names, kinds, strict=True)]
        self._rows = msgspec.json.Decoder(list[msgspec.defstruct("Row", fields, rename=renamed, gc=False)])  # type: ignore[misc]
        loose = [
            (name, msgspec.Raw if pa.types.is_string(one.type) else kind, None)
            for name, one, kind in zip(self._names, schema, kinds, strict=True)
        ]
        self._loose: Any = None
        if any(pa.types.is_string(one.type) for one in schema):
            self._loose = msgspec.json.Decoder(
                list[msgspec.defstruct("Loose", loose, rename=renamed, gc=False)]  # type: ignore[misc]
            )
        self._one = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._cells = [msgspec.json.Decoder(kind) for kind in kinds]

    def columns(self, keys: Cells, values: Cells) -> list[Column]:
        glued = _glue(values)
        try:
            return self._arrays(self._rows.decode(glued), len(values))
        except UNREADABLE:
            if self._loose is None:
                raise
        return self._arrays(self._loose.decode(glued), len(values))

    def _arrays(self, rows: list[Any], wanted: int) -> list[Column]:
        if len(rows) != wanted:
            raise ValueError("it is not one JSON value")
        return [
            _typed([getattr(row, name) for row in rows], one.type)
            for name, one in zip(self._names, self._schema, strict=True)
        ]

    def cells(self, key: bytes, value: bytes) -> dict[str, Column]:
        if not value.startswith(_JSON_ID):
            return {}
        try:
            raws = self._one.decode(value[_HEAD_BYTES:])
        except UNREADABLE:
            return {}

        def cell(at: int, one: Any) -> Column:
            raw = raws.get(one.name)
            if raw is None:
                return pa.nulls(1, one.type)
            return _typed([raw if pa.types.is_string(one.type) else self._cells[at].decode(raw)], one.type)

        return _fitting({one.name: _bound(cell, at, one) for at, one in enumerate(self._schema)})

    def only_key_unfit(self, key: bytes, value: bytes) -> bool:
        return False


def _bound(read: Callable[..., Column], *arguments: Any) -> Callable[[], Column]:
    return lambda: read(*arguments)


def _typed(cells: list[Any], kind: pa.DataType) -> Column:
    if pa.types.is_nested(kind):
        change = inward(kind)
        return pa.array([None if cell is None else change(cell) for cell in cells], kind)
    if pa.types.is_floating(kind):
        return pa.array([float(cell) if isinstance(cell, str) else cell for cell in cells], kind)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_decimal(kind):
        return pa.array(cells, pa.string()).cast(kind)
    if pa.types.is_string(kind):
        cells = [_text(cell) if isinstance(cell, msgspec.Raw) else cell for cell in cells]
    return pa.array(cells, kind)


def _text(raw: msgspec.Raw) -> str | None:
    written = bytes(raw)
    if written[:1] in (b'"', b"n"):
        found: str | None = msgspec.json.decode(written, type=str | None)
        return found
    return written.decode()


def _glue(values: Cells) -> bytearray:
    """Raises ValueError if a value is not JSON."""
    rows = len(values)
    if not rows:
        return bytearray(b"[]")
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, "<i4", rows + 1, 4 * values.offset)
    start = int(ends[0])
    starts = ends[:-1] - start
    if (np.diff(ends) <= _HEAD_BYTES).any():
        raise ValueError("it is no JSON value")
    glued = bytearray(memoryview(data)[start : int(ends[-1])])
    glued += b"]"
    whole = np.frombuffer(glued, np.uint8)
    heads = starts[:, None] + np.arange(_HEAD_BYTES, dtype=np.int32)
    if (whole[heads[:, :4]] != _JSON_HEAD).any():
        raise ValueError("it is no JSON value")
    whole[heads] = _BETWEEN
    whole[0] = ord("[")
    return glued


# -- Compact


class _Compact:
    def __init__(self, schema: pa.Schema, fetch: Callable[[int], Schema | None] | None) -> None:
        self._schema = schema
        self._decoder = CompactDecoder(fetch or _unknown)

    def columns(self, keys: Cells, values: Cells) -> list[Column]:
        rows = [self._decoder.read(value) for value in values.to_pylist()]
        return [pa.array([row.get(one.name) for row in rows], one.type) for one in self._schema]

    def cells(self, key: bytes, value: bytes) -> dict[str, Column]:
        try:
            row = self._decoder.read(value)
        except UNREADABLE:
            return {}

        def cell(one: Any) -> Column:
            return pa.array([row.get(one.name)], one.type)

        return _fitting({one.name: _bound(cell, one) for one in self._schema})

    def only_key_unfit(self, key: bytes, value: bytes) -> bool:
        return False


def _unknown(number: int) -> Schema | None:  # noqa: ARG001 - the signature of a schema lookup
    return None


# -- primitive


class _Primitive:
    """A plain value; key columns are read from the key."""

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        self._schema = schema
        self._key = key
        self._keys = [one for one in schema if one.name in key]
        self._rest = [one for one in schema if one.name not in key]
        if len(self._rest) > 1:
            raise ConfigError(
                f"valueFormat 'primitive' has the key ({', '.join(key)}) and one more column, "
                f"not {', '.join(one.name for one in self._rest)}"
            )
        for one in self._rest:
            check_primitive(one.name, one.type)

    def columns(self, keys: Cells, values: Cells) -> list[Column]:
        found = {}
        if self._keys:
            found = key_columns(self._keys, self._key, keys.to_pylist())
        for one in self._rest:
            found[one.name] = _primitive(one, values.to_pylist())
        return [found[name] for name in self._schema.names]

    def cells(self, key: bytes, value: bytes) -> dict[str, Column]:
        return _fitting({one.name: _bound(_primitive, one, [value]) for one in self._rest})

    def only_key_unfit(self, key: bytes, value: bytes) -> bool:
        return len(self.cells(key, value)) == len(self._rest)


def _primitive(wanted: Any, stored: list[bytes]) -> Column:
    if pa.types.is_integer(wanted.type):
        return _integers(stored, wanted.type)
    return primitive_column(stored, wanted.type)


def _integers(stored: list[bytes], kind: Any) -> Column:
    """Integers of any width in a column that is wide enough."""
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


def key_columns(wanted: Sequence[Any], key: Sequence[str], stored: list[bytes]) -> dict[str, Column]:
    """Columns of a key (`rows.stored`): one integer or text, or the texts of all key columns joined by `|`."""
    if len(key) == 1:
        one = wanted[0]
        if pa.types.is_integer(one.type):
            return {one.name: _integers(stored, one.type)}
        if can_be_primitive(one.type):
            try:
                return {one.name: primitive_column(stored, one.type)}
            except ValueError:
                pass
    texts = primitive_column(stored, pa.string()).to_pylist()
    parts = [split_key(text) if len(key) > 1 else [text] for text in texts]
    if any(len(row) != len(key) for row in parts):
        raise ValueError(f"the key has not {len(key)} parts")
    return {
        one.name: pa.array([row[key.index(one.name)] for row in parts], pa.string()).cast(one.type)
        for one in wanted
    }


def split_key(text: str) -> list[str]:
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
