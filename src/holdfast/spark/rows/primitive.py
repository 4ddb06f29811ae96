"""One column as plain Hazelcast values, and back: numbers, texts, byte arrays, and arrays of numbers.

| Spark | Hazelcast |
|---|---|
| boolean, byte, short, integer, long | Boolean, Byte, Short, Integer, Long |
| float, double | Float, Double |
| string, binary | String, byte[] |
| array of boolean, short, integer, long | boolean[], short[], int[], long[] |
| array of float, double, string | float[], double[], String[] |

Numbers are big-endian after the type id; arrays begin with their length as an int32.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import ConfigError
from holdfast.spark.rows.cells import (
    Cells,
    Numbers,
    big_endian,
    counted,
    fixed,
    from_buffers,
    headed,
    joined,
    to_buffers,
)

PLAIN: dict[Any, tuple[int, str]] = {
    pa.bool_(): (-4, "?"),
    pa.int8(): (-3, ">i1"),
    pa.int16(): (-6, ">i2"),
    pa.int32(): (-7, ">i4"),
    pa.int64(): (-8, ">i8"),
    pa.float32(): (-9, ">f4"),
    pa.float64(): (-10, ">f8"),
}

COUNTED = {pa.string(): -11, pa.binary(): -12}

ARRAYS: dict[Any, tuple[int, str]] = {
    pa.bool_(): (-13, "?"),
    pa.int16(): (-15, ">i2"),
    pa.int32(): (-16, ">i4"),
    pa.int64(): (-17, ">i8"),
    pa.float32(): (-18, ">f4"),
    pa.float64(): (-19, ">f8"),
}
TEXTS = -20


def can_be_primitive(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return kind.value_type in ARRAYS or kind.value_type == pa.string()
    return kind in PLAIN or kind in COUNTED


def check_primitive(name: str, kind: pa.DataType) -> None:
    """Raises ConfigError if this type has no plain Hazelcast form."""
    if not can_be_primitive(kind):
        raise ConfigError(
            f"the value column {name!r} is {kind}, which has no plain Hazelcast form; cast it, "
            "or use valueFormat 'json' or 'compact'"
        )


def primitive_cells(column: Any) -> Cells:
    kind = column.type
    if kind in PLAIN:
        type_id, code = PLAIN[kind]
        return headed(type_id, big_endian(as_numpy(column), code))
    if kind in COUNTED:
        return counted(COUNTED[kind], column.cast(pa.binary()))
    return joined(headed(_array_id(kind), np.zeros((len(column), 0), np.uint8)), array_cells(column))


def array_cells(column: Any) -> Cells:
    """Lists as a count and their elements; elements of lists of numbers must not be null."""
    offsets = column.offsets.to_numpy()
    counts = fixed(big_endian(np.diff(offsets), ">i4"))
    flat = column.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    if flat.type == pa.string():
        elements = joined(
            fixed(big_endian(_text_lengths(flat), ">i4")), flat.cast(pa.binary()).fill_null(b"")
        )
        ends, data = to_buffers(elements)
        return joined(counts, from_buffers(ends[offsets - offsets[0]], data))
    _, code = ARRAYS.get(flat.type, PLAIN.get(flat.type, (0, "")))
    matrix = big_endian(as_numpy(flat), code)
    return joined(counts, from_buffers((offsets - offsets[0]) * matrix.shape[1], matrix.reshape(-1)))


def _text_lengths(texts: Any) -> Numbers:
    found: Numbers = pc.binary_length(texts).fill_null(-1).to_numpy(zero_copy_only=False)
    return found


def as_numpy(column: Any) -> Numbers:
    found: Numbers = column.to_numpy(zero_copy_only=False)
    return found


def nulls_inside(column: Any) -> Any:
    flat = column.values
    if flat.type == pa.string() or not flat.null_count:
        return None
    offsets = column.offsets.to_numpy()
    before = np.concatenate(([0], np.cumsum(flat.is_null().to_numpy(zero_copy_only=False))))
    return (before[offsets[1:]] - before[offsets[:-1]]) > 0


def _array_id(kind: Any) -> int:
    return TEXTS if kind.value_type == pa.string() else ARRAYS[kind.value_type][0]


# -- decoding


def primitive_column(values: list[bytes], kind: Any) -> Any:
    """Raises ValueError if a value is of another type."""
    cells = pa.array(values, pa.binary())
    offsets, data = to_buffers(cells)
    wanted = (
        _array_id(kind) if pa.types.is_list(kind) else (PLAIN[kind][0] if kind in PLAIN else COUNTED[kind])
    )
    head = np.frombuffer(wanted.to_bytes(4, "big", signed=True), np.uint8)
    short = np.diff(offsets) < 4
    if short.any() or (len(values) and (data[offsets[:-1, None] + np.arange(4)] != head).any()):
        at = next(at for at, value in enumerate(values) if value[:4] != head.tobytes())
        raise ValueError(f"it is of type {_type_of(values[at])}, not {wanted}")
    if kind in PLAIN:
        code = PLAIN[kind][1]
        width = 4 + np.dtype(code).itemsize
        if (np.diff(offsets) != width).any():
            raise ValueError("a number has the wrong length")
        numbers = np.ascontiguousarray(data.reshape(len(values), width)[:, 4:]).view(code)[:, 0]
        return pa.array(numbers.astype(numbers.dtype.newbyteorder("=")), kind)
    if kind in COUNTED:
        return pa.array([value[8:] for value in values], pa.binary()).cast(kind)
    return pa.array([read_array(value[4:], kind.value_type)[0] for value in values], kind)


def read_array(payload: bytes, kind: Any) -> tuple[list[Any], int]:
    (count,) = struct.unpack_from(">i", payload)
    if kind == pa.string():
        found: list[str | None] = []
        at = 4
        for _ in range(count):
            (size,) = struct.unpack_from(">i", payload, at)
            at += 4
            found.append(None if size < 0 else payload[at : at + size].decode())
            at += max(size, 0)
        return found, at
    code = np.dtype(ARRAYS.get(kind, PLAIN.get(kind, (0, "")))[1])
    return np.frombuffer(payload, code, count, 4).tolist(), 4 + count * code.itemsize


def _type_of(value: bytes) -> int:
    return int.from_bytes(value[:4], "big", signed=True)
