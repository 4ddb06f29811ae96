"""Python values in the stored form of Hazelcast clients, and back; used by `Member.map`.

Stored form: big-endian int32 type id and payload (the partition-hash word before it is not stored). Nothing executable
is ever read: a value of an unknown type is returned as `Serialized`, bytes untouched.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgspec

NULL, BOOLEAN, INTEGER, LONG, DOUBLE, STRING, BYTES, BIG_INTEGER, JSON = (
    0,
    -4,
    -7,
    -8,
    -10,
    -11,
    -12,
    -26,
    -130,
)

Plain = None | bool | int | float | str | bytes | list["Plain"] | dict[str, "Plain"]

_TYPE = struct.Struct(">i")
_INT = struct.Struct(">ii")
_LONG = struct.Struct(">iq")
_DOUBLE = struct.Struct(">id")
_BLOCK = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class Serialized:
    """A stored value of a type that only its writer knows (Compact, Portable, pickle, ...): type id and payload."""

    data: bytes

    @property
    def type_id(self) -> int:
        return int(_TYPE.unpack_from(self.data)[0])


def _block(kind: int, payload: bytes) -> bytes:
    return _BLOCK.pack(kind, len(payload)) + payload


STORABLE = (
    "use bool, int, float, str, bytes, a date, time, datetime, Decimal or UUID, or a list, tuple, set or dict of these"
    "; other classes need a Codec in `Serializers`"
)
"""For error messages. The types beyond JSON are those of `serialization.serializers`."""


def to_stored(value: object) -> bytes:
    """Integers take 32, 64 or more bits as needed; lists and dictionaries become JSON. Raises TypeError for a
    type that cannot be stored.
    """
    if isinstance(value, bool):
        return _TYPE.pack(BOOLEAN) + (b"\x01" if value else b"\x00")
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return _INT.pack(INTEGER, value)
        if -(2**63) <= value < 2**63:
            return _LONG.pack(LONG, value)
        return _block(BIG_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
    if isinstance(value, str):
        return _block(STRING, value.encode())
    if isinstance(value, float):
        return _DOUBLE.pack(DOUBLE, value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _block(BYTES, bytes(value))
    if isinstance(value, Serialized):
        return value.data
    if isinstance(value, list | dict | tuple):
        return _block(JSON, msgspec.json.encode(value))
    if value is None:
        return _TYPE.pack(NULL)
    raise TypeError(f"{type(value).__name__} cannot be stored: {STORABLE}")


def from_stored(data: bytes) -> object:
    """`Serialized` if `to_stored` does not make the value's type."""
    (kind,) = _TYPE.unpack_from(data)
    if kind == STRING:
        return data[8:].decode()
    if kind == INTEGER:
        return int(_INT.unpack_from(data)[1])
    if kind == LONG:
        return int(_LONG.unpack_from(data)[1])
    if kind == DOUBLE:
        return float(_DOUBLE.unpack_from(data)[1])
    if kind == BOOLEAN:
        return data[4] != 0
    if kind == BYTES:
        return data[8:]
    if kind == JSON:
        return msgspec.json.decode(data[8:])
    if kind == BIG_INTEGER:
        return int.from_bytes(data[8:], "big", signed=True)
    if kind == NULL:
        return None
    return Serialized(data)
