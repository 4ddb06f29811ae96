"""Rows as Hazelcast Compact objects, and back: type id -55, schema id, fields.

Non-null numbers have fixed offsets, the widest first, followed by booleans as bits. The other fields follow in
the order of their names; their offsets are at the end, with one, two or four bytes each, depending on the
length of the data. Clients read such a row with a `CompactSerializer` for the type name, whichever fields they
use.
"""

from __future__ import annotations

import datetime as dt
import decimal
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.errors import ConfigError
from holdfast.spark.rows.cells import (
    Bytes,
    Cells,
    Numbers,
    big_endian,
    fixed,
    from_buffers,
    joined,
    lengths,
)
from holdfast.spark.rows.primitive import array_cells, as_numpy, read_array
from holdfast.wire.hazelcast.compact_schemas import schema_id
from holdfast.wire.hazelcast.layouts import Schema

COMPACT = -55
SHORT_MAX, MIDDLE_MAX = 255, 65_535
"""Shorter data has offsets of one byte, of two bytes."""

BOOLEAN, BINARY, BOOLEANS = 1, 4, 2
NUMBERS: dict[Any, tuple[int, int, str]] = {
    pa.bool_(): (BOOLEAN, 33, "?"),
    pa.int8(): (3, 35, ">i1"),
    pa.int16(): (7, 37, ">i2"),
    pa.int32(): (9, 39, ">i4"),
    pa.int64(): (11, 41, ">i8"),
    pa.float32(): (13, 43, ">f4"),
    pa.float64(): (15, 45, ">f8"),
}
"""Field kind if the column cannot be null, if it can, and the numpy type."""

STRING, DECIMAL, DATE, TIMESTAMP, TIMESTAMP_ZONED = 17, 19, 23, 25, 27
ARRAYS = {pa.bool_(): BOOLEANS, pa.int8(): 4, pa.int16(): 8, pa.int32(): 10, pa.int64(): 12}
ARRAYS |= {pa.float32(): 14, pa.float64(): 16}

_EXACT = decimal.Context(prec=1_000_000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
"""Python's default context rounds to 28 digits."""

DECIMAL_BYTES_MAX = 4096
"""Columns have 38 digits. Longer numbers may end in zeros, but one of megabytes would take minutes to convert."""

_FIXED = {kind: code for kind, _, code in NUMBERS.values()}
_NULLABLE = {kind: code for _, kind, code in NUMBERS.values()}
_ELEMENTS = {kind: element for element, kind in ARRAYS.items()}


def field_kind(kind: Any, *, nullable: bool) -> int | None:
    if kind in NUMBERS:
        needed, loose, _ = NUMBERS[kind]
        return loose if nullable else needed
    if pa.types.is_list(kind):
        return ARRAYS.get(kind.value_type)
    if kind == pa.binary():
        return BINARY
    if kind == pa.string():
        return STRING
    if pa.types.is_decimal128(kind):
        return DECIMAL
    if pa.types.is_date32(kind):
        return DATE
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return TIMESTAMP if kind.tz is None else TIMESTAMP_ZONED
    return None


def compact_schema(schema: pa.Schema, type_name: str) -> Schema:
    fields: list[tuple[str, int]] = []
    for field in sorted(schema, key=lambda one: one.name):
        kind = field_kind(field.type, nullable=field.nullable)
        if kind is None:
            raise ConfigError(
                f"the column {field.name!r} is {field.type}, which Compact rows cannot have; "
                "leave it out, or make a string of it (to_json, cast)"
            )
        fields.append((field.name, kind))
    return Schema(type_name, fields)


@dataclass(frozen=True, slots=True)
class _Places:
    fixed: dict[str, int]
    bits: dict[str, tuple[int, int]]
    variable: list[str]
    fixed_bytes: int

    @classmethod
    def of(cls, schema: Schema) -> _Places:
        kinds = dict(sorted(schema.fields))
        numbers = [name for name, kind in kinds.items() if kind in _FIXED and kind != BOOLEAN]
        numbers.sort(key=lambda name: -np.dtype(_FIXED[kinds[name]]).itemsize)
        at = 0
        places: dict[str, int] = {}
        for name in numbers:
            places[name] = at
            at += np.dtype(_FIXED[kinds[name]]).itemsize
        booleans = [name for name, kind in kinds.items() if kind == BOOLEAN]
        bits = {name: (at + number // 8, number % 8) for number, name in enumerate(booleans)}
        variable = [name for name, kind in kinds.items() if kind not in _FIXED]
        return cls(places, bits, variable, at + (len(booleans) + 7) // 8)


class CompactEncoder:
    def __init__(self, schema: pa.Schema, type_name: str) -> None:
        self.schema = compact_schema(schema, type_name)
        self.id = schema_id(self.schema)
        self._kinds = dict(self.schema.fields)
        self._places = _Places.of(self.schema)
        head = struct.pack(">iq", COMPACT, self.id)
        self._head = np.frombuffer(head, np.uint8)

    def cells(self, batch: pa.RecordBatch) -> Cells:
        """Raises ValueError for a null in a column that the schema declares non-null."""
        rows = batch.num_rows
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        fixed_part = self._fixed_part(columns, rows)
        variable = self._places.variable
        if not variable:
            return joined(self._heads(rows, fixed_part))
        parts = [_variable(columns[name], self._kinds[name]) for name in variable]
        sizes = [lengths(part) for part in parts]
        starts = np.empty((rows, len(parts)), np.int64)
        end = np.full(rows, self._places.fixed_bytes, np.int64)
        for at, (name, size) in enumerate(zip(variable, sizes, strict=True)):
            missing = columns[name].is_null().to_numpy(zero_copy_only=False)
            starts[:, at] = np.where(missing, -1, end)
            end += size
        with_length = np.concatenate([big_endian(end, ">i4"), fixed_part], axis=1)
        return joined(self._heads(rows, with_length), *parts, _positions(starts, end))

    def _heads(self, rows: int, more: Bytes) -> Cells:
        whole = np.empty((rows, len(self._head) + more.shape[1]), np.uint8)
        whole[:, : len(self._head)] = self._head
        whole[:, len(self._head) :] = more
        return fixed(whole)

    def _fixed_part(self, columns: Mapping[str, Any], rows: int) -> Bytes:
        found = np.zeros((rows, self._places.fixed_bytes), np.uint8)
        for name in (*self._places.fixed, *self._places.bits):
            if columns[name].null_count:
                raise ValueError(f"the column {name!r} has nulls, but its schema says that it has none")
        for name, at in self._places.fixed.items():
            matrix = big_endian(as_numpy(columns[name]), _FIXED[self._kinds[name]])
            found[:, at : at + matrix.shape[1]] = matrix
        for name, (at, bit) in self._places.bits.items():
            found[:, at] |= as_numpy(columns[name]).astype(np.uint8) << np.uint8(bit)
        return found


def _positions(starts: Numbers, end: Numbers) -> Cells:
    """Offsets as wide as the length of the row's data requires."""
    count = starts.shape[1]
    widths = np.where(end < SHORT_MAX, 1, np.where(end < MIDDLE_MAX, 2, 4))
    offsets = np.concatenate(([0], np.cumsum(widths * count)))
    found = np.empty(int(offsets[-1]), np.uint8)
    for width, code in ((1, ">u1"), (2, ">u2"), (4, ">u4")):
        mine = np.flatnonzero(widths == width)
        if len(mine):
            wrapped = (starts[mine] & ((1 << (8 * width)) - 1)).astype(code)
            matrix = np.ascontiguousarray(wrapped).view(np.uint8).reshape(len(mine), width * count)
            found[offsets[mine][:, None] + np.arange(width * count)] = matrix
    return from_buffers(offsets, found)


def _variable(column: Any, kind: int) -> Cells:
    present = column.drop_null()
    if kind in _NULLABLE:
        cells = fixed(big_endian(as_numpy(present), _NULLABLE[kind]))
    elif kind in (STRING, BINARY) and not pa.types.is_list(column.type):
        texts = present.cast(pa.binary())
        cells = joined(fixed(big_endian(lengths(texts), ">i4")), texts)
    elif kind == BOOLEANS:
        cells = pa.array([_bits(one) for one in present.to_pylist()], pa.binary())
    elif kind in _ELEMENTS:
        cells = array_cells(present)
    elif kind == DECIMAL:
        cells = pa.array([_decimal(one) for one in present.to_pylist()], pa.binary())
    elif kind == DATE:
        cells = fixed(_day(present.cast(pa.int32()).to_numpy().astype("M8[D]")))
    else:
        cells = fixed(_moment(present.cast(pa.int64()).to_numpy(), zoned=kind == TIMESTAMP_ZONED))
    if not column.null_count:
        return cells
    sizes = np.zeros(len(column), np.int64)
    sizes[column.is_valid().to_numpy(zero_copy_only=False)] = lengths(cells)
    _, _, data = cells.buffers()
    whole = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return from_buffers(np.concatenate(([0], np.cumsum(sizes))), whole)


def _day(days: Numbers) -> Bytes:
    months = days.astype("M8[M]")
    year = months.astype("M8[Y]").astype(np.int64) + 1970
    month = months.astype(np.int64) % 12 + 1
    day = (days - months.astype("M8[D]")).astype(np.int64) + 1
    return np.concatenate([big_endian(year, ">i4"), big_endian(month, ">i1"), big_endian(day, ">i1")], axis=1)


def _moment(micros: Numbers, *, zoned: bool) -> Bytes:
    """Microseconds since 1970 as date, time and nanoseconds; with a zone, which is always UTC."""
    seconds, rest = np.divmod(micros, 1_000_000)
    days, second = np.divmod(seconds, 86_400)
    parts = [
        _day(days.astype("M8[D]")),
        big_endian(second // 3600, ">i1"),
        big_endian(second // 60 % 60, ">i1"),
        big_endian(second % 60, ">i1"),
        big_endian(rest * 1000, ">i4"),
    ]
    if zoned:
        parts.append(np.zeros((len(micros), 4), np.uint8))
    return np.concatenate(parts, axis=1)


def _decimal(number: decimal.Decimal) -> bytes:
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), number
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    size = unscaled.bit_length() // 8 + 1
    return (
        struct.pack(">i", size) + unscaled.to_bytes(size, "big", signed=True) + struct.pack(">i", -exponent)
    )


def _bits(flags: Sequence[bool]) -> bytes:
    return struct.pack(">i", len(flags)) + np.packbits(np.array(flags, bool), bitorder="little").tobytes()


# -- decoding


class CompactDecoder:
    def __init__(self, fetch: Callable[[int], Schema | None]) -> None:
        self._fetch = fetch
        self._readers: dict[int, Callable[[bytes], dict[str, Any]]] = {}
        self._missing: set[int] = set()

    def read(self, value: bytes) -> dict[str, Any]:
        if len(value) < 12 or int.from_bytes(value[:4], "big", signed=True) != COMPACT:
            raise ValueError("it is no Compact value")
        number = int.from_bytes(value[4:12], "big", signed=True)
        reader = self._readers.get(number)
        if reader is None:
            schema = None if number in self._missing else self._fetch(number)
            if schema is None:
                # Schemas are registered before the first value is stored, so asking again would not help.
                self._missing.add(number)
                raise ValueError(f"the cluster does not know the Compact schema {number}")
            reader = partial(_read, dict(sorted(schema.fields)), _Places.of(schema))
            self._readers[number] = reader
        return reader(value[12:])


def _read(kinds: Mapping[str, int], places: _Places, payload: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    start = 4 if places.variable else 0
    for name, at in places.fixed.items():
        found[name] = np.frombuffer(payload, _FIXED[kinds[name]], 1, start + at)[0].item()
    for name, (at, bit) in places.bits.items():
        found[name] = bool(payload[start + at] >> bit & 1)
    if places.variable:
        size = int.from_bytes(payload[:4], "big")
        width = 1 if size < SHORT_MAX else 2 if size < MIDDLE_MAX else 4
        for number, name in enumerate(places.variable):
            place = int.from_bytes(payload[(at := 4 + size + width * number) : at + width], "big")
            null = place == (1 << (8 * width)) - 1
            found[name] = None if null else _field(payload[4 + place :], kinds[name])
    return found


def _field(data: bytes, kind: int) -> Any:
    if kind in _NULLABLE:
        return np.frombuffer(data, _NULLABLE[kind], 1)[0].item()
    count = int.from_bytes(data[:4], "big", signed=True)
    if kind == STRING:
        return data[4 : 4 + count].decode()
    if kind == BINARY:
        return data[4 : 4 + count]
    if kind == BOOLEANS:
        bits = np.frombuffer(data, np.uint8, (count + 7) // 8, 4)
        return np.unpackbits(bits, count=count, bitorder="little").astype(bool).tolist()
    if kind in _ELEMENTS:
        return read_array(data, _ELEMENTS[kind])[0]
    if kind == DECIMAL:
        if count > DECIMAL_BYTES_MAX:
            raise ValueError(f"a decimal of {count} bytes fits no column")
        unscaled = int.from_bytes(data[4 : 4 + count], "big", signed=True)
        (scale,) = struct.unpack_from(">i", data, 4 + count)
        return decimal.Decimal(unscaled).scaleb(-scale, _EXACT)
    if kind == DATE:
        return dt.date(*struct.unpack_from(">ibb", data))
    if kind in (TIMESTAMP, TIMESTAMP_ZONED):
        year, month, day, hour, minute, second, nanos = struct.unpack_from(">ibbbbbi", data)
        moment = dt.datetime(year, month, day, hour, minute, second, nanos // 1000)  # noqa: DTZ001 - it has none
        if kind == TIMESTAMP:
            return moment
        (offset_s,) = struct.unpack_from(">i", data, 13)
        return moment.replace(tzinfo=dt.timezone(dt.timedelta(seconds=offset_s)))
    raise ValueError(f"a Compact field of kind {kind} cannot be read")
