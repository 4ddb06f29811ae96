"""Columns of a DataFrame as keys and values of a map, and back.

A row becomes one entry, in a form that every Hazelcast client can read:

- the value is a JSON object of all columns (`HazelcastJsonValue`);
- the key is a long for one integer key column, else a string: the texts of the key columns joined by `|` (a `|` or a
  backslash inside a text is preceded by a backslash).

In JSON, integers, booleans and texts are themselves. A double that is not finite is the text `NaN`, `Infinity`
or `-Infinity`; a timestamp is ISO 8601 in UTC (`2013-01-01T10:00:00.000000Z`), without `Z` if it has no time
zone; a date is `2013-01-01`; a decimal is its exact text; binary is base64; arrays are arrays; structs, and
maps with texts as keys, are objects; a missing value is `null`. All of them survive the round trip exactly.

With the format `binary` the columns `key` and `value` have the stored form itself: a big-endian int32 type id and the
payload.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pyarrow as pa

from holdfast.errors import ConfigError
from holdfast.spark.rows.bad_rows import UNREADABLE, BadRow
from holdfast.spark.rows.nested import can_nest, outward
from holdfast.wire.values import JSON, LONG, STRING, Serialized, from_stored

_HEAD = struct.Struct(">ii")
_LONG = struct.Struct(">iq")

BINARY_SCHEMA = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary())])


def string_data(text: str) -> bytes:
    encoded = text.encode()
    return _HEAD.pack(STRING, len(encoded)) + encoded


def json_data(encoded: bytes) -> bytes:
    return _HEAD.pack(JSON, len(encoded)) + encoded


def long_data(number: int) -> bytes:
    return _LONG.pack(LONG, number)


# -- columns to entries


class EntryMaker:
    def __init__(self, schema: pa.Schema, key: Sequence[str], value_format: str) -> None:
        """Raises ConfigError if schema, key and format do not fit together."""
        self._binary = value_format == "binary"
        self._key = list(key)
        if self._binary:
            check_binary(schema)
            if self._key not in ([], ["key"]):
                raise ConfigError(
                    "valueFormat 'binary' takes its keys from the column 'key'; leave the option key out"
                )
            return
        check_columns(schema)
        if not self._key:
            raise ConfigError("the option key is missing: name the column(s) whose values identify a row")
        for name in self._key:
            if name not in schema.names:
                raise ConfigError(
                    f"there is no key column {name!r}; the columns are {', '.join(schema.names)}"
                )
            if _is_no_key(schema.field(name).type):
                raise ConfigError(
                    f"the key column {name!r} is {schema.field(name).type}; keys must compare exactly"
                )
        if len(set(self._key)) != len(self._key):
            raise ConfigError("the option key names a column twice")
        fields = [(f"c{at}", Any) for at in range(len(schema))]
        names = {f"c{at}": name for at, name in enumerate(schema.names)}
        self._row = msgspec.defstruct("Row", fields, rename=names, gc=False)
        self._encode = msgspec.json.Encoder().encode

    def entries(self, batch: pa.RecordBatch) -> tuple[list[bytes], list[bytes]]:
        """Keys and values, in order. Raises BadRow if a key is missing."""
        names = batch.schema.names
        for name in self._key or ["key", "value"]:
            missing = batch.column(names.index(name)).null_count
            if missing:
                raise BadRow(
                    f"{missing} of {batch.num_rows} rows have no value in the column {name!r}, part of the key"
                )
        if self._binary:
            return self._verbatim(batch)
        columns = {name: _plain(batch.column(at)) for at, name in enumerate(names)}
        return self._keys(batch, columns), [json_data(one) for one in self._objects(columns)]

    def json(self, batch: pa.RecordBatch) -> list[bytes]:
        return self._objects({name: _plain(batch.column(at)) for at, name in enumerate(batch.schema.names)})

    def _objects(self, columns: dict[str, list[Any]]) -> list[bytes]:
        make, encode = self._row, self._encode
        return [encode(make(*row)) for row in zip(*columns.values(), strict=True)]

    def _keys(self, batch: pa.RecordBatch, columns: dict[str, list[Any]]) -> list[bytes]:
        parts = [columns[name] for name in self._key]
        types = [batch.schema.field(name).type for name in self._key]
        if len(parts) == 1 and pa.types.is_integer(types[0]):
            return [long_data(number) for number in parts[0]]
        if len(parts) == 1:
            return [string_data(text) for text in _texts(parts[0], types[0])]
        texts = [
            [_escape(text) for text in _texts(part, kind)] for part, kind in zip(parts, types, strict=True)
        ]
        return [string_data("|".join(row)) for row in zip(*texts, strict=True)]

    @staticmethod
    def _verbatim(batch: pa.RecordBatch) -> tuple[list[bytes], list[bytes]]:
        names = batch.schema.names
        keys, values = (
            cast("list[bytes]", batch.column(names.index(name)).to_pylist()) for name in ("key", "value")
        )
        for cell in (*keys, *values):
            if len(cell) < 4:
                raise BadRow(f"{cell!r} is no stored form: it begins with a 4-byte type id")
        return keys, values


def _is_no_key(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_binary(kind) or pa.types.is_nested(kind)


def check_columns(schema: pa.Schema) -> None:
    """Raises ConfigError, which names the first column that cannot be stored."""
    if len(set(schema.names)) != len(schema.names):
        raise ConfigError(f"column names must differ: {', '.join(schema.names)}")
    for field in schema:
        if any(letter in '"\\' or letter < " " for letter in field.name):
            raise ConfigError(
                f"the column name {field.name!r} has a quote, a backslash or a control character; rename the column"
            )
        if plain_type(field.type) is None:
            raise ConfigError(
                f"the column {field.name!r} is {field.type}, which cannot be stored; "
                "leave it out, or make a string of it (to_json, cast)"
            )


def check_binary(schema: pa.Schema) -> None:
    """Raises ConfigError unless these are the columns of the format `binary`."""
    wanted = {"key": pa.binary(), "value": pa.binary()}
    if {field.name: field.type for field in schema} != wanted:
        raise ConfigError(
            f"valueFormat 'binary' has the two binary columns key and value, not {', '.join(schema.names)}"
        )


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|") if "|" in text or "\\" in text else text


def _texts(cells: list[Any], kind: pa.DataType) -> list[str]:
    """Texts of key cells, which are not null."""
    if pa.types.is_boolean(kind):
        return ["true" if cell else "false" for cell in cells]
    return cells if isinstance(cells[0] if cells else "", str) else list(map(str, cells))


_NOT_FINITE = {float("inf"): "Infinity", float("-inf"): "-Infinity"}


def _plain(column: pa.Array[Any]) -> list[Any]:
    kind = column.type
    if pa.types.is_nested(kind):
        change = outward(kind)
        return [None if cell is None else change(cell) for cell in column.to_pylist()]
    if pa.types.is_floating(kind):
        cells: list[Any] = column.to_pylist()
        return [cell if cell is None or cell - cell == 0 else _NOT_FINITE.get(cell, "NaN") for cell in cells]
    if pa.types.is_timestamp(kind):
        return [cell and cell.replace(" ", "T") for cell in column.cast(pa.string()).to_pylist()]
    if pa.types.is_date(kind) or pa.types.is_decimal(kind):
        return list(column.cast(pa.string()).to_pylist())
    return list(column.to_pylist())


def plain_type(kind: pa.DataType) -> Any:
    """The type to which JSON decodes a column's cells; None if the column cannot be stored."""
    if pa.types.is_boolean(kind):
        return bool | None
    if pa.types.is_signed_integer(kind):
        return int | None
    if pa.types.is_floating(kind):
        return float | str | None
    if pa.types.is_binary(kind):
        return bytes | None
    if pa.types.is_string(kind):
        return str | None
    if pa.types.is_date32(kind) or pa.types.is_decimal128(kind):
        return str | None
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return str | None
    return Any if pa.types.is_nested(kind) and can_nest(kind) else None


# -- for display


def key_text(key: bytes) -> str:
    try:
        read = from_stored(key)
    except UNREADABLE:
        return key.hex()
    return key.hex() if isinstance(read, Serialized) else repr(read)


def cell_text(cell: bytes) -> str:
    """A stored key or value as text: a text itself, else JSON, or hexadecimal if its type is unknown."""
    try:
        if cell.startswith(struct.pack(">i", JSON)):
            return cell[8:].decode()
        read = from_stored(cell)
        if isinstance(read, Serialized):
            return cell.hex()
        text = read if isinstance(read, str) else msgspec.json.encode(read).decode()
        text.encode()  # half of a surrogate pair is no text for Arrow
    except UNREADABLE:
        return cell.hex()
    return text
