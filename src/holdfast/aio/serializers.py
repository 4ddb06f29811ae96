"""Which bytes stand for which values: what the official Python client writes, as far as nothing in it can be executed.

Plain values are those of `holdfast.wire.values`. Beside these: dates, times, UUIDs, decimals, arrays and lists of
values as other clients write them, and what the user has registered. Pickles are neither written nor read.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from holdfast.errors import ConfigError, ProtocolError
from holdfast.wire.values import STRING, Serialized, from_stored, to_stored

UUID_TYPE, DECIMAL, ARRAY, ARRAY_LIST, LINKED_LIST = -21, -27, -28, -29, -30
DATE, TIME, DATETIME, OFFSET_DATETIME = -51, -52, -53, -54
BYTE, CHAR, SHORT, FLOAT = -3, -5, -6, -9
BOOLEANS, CHARS, SHORTS, INTEGERS, LONGS, FLOATS, DOUBLES, STRINGS = -13, -14, -15, -16, -17, -18, -19, -20
NESTED_MAX = 64
"""Lists in lists beyond this depth are not read."""

IDENTIFIED = -2
_TYPE = struct.Struct(">i")
_IDENTIFIED = struct.Struct(">i?ii")
_DATE, _TIME = struct.Struct(">ibb"), struct.Struct(">bbbi")
_DATETIME = struct.Struct(">ibbbbbi")
_PACKED = {BOOLEANS: "?", CHARS: "H", SHORTS: "h", INTEGERS: "i", LONGS: "q", FLOATS: "f", DOUBLES: "d"}
_SINGLE = {BYTE: "b", CHAR: "H", SHORT: "h", FLOAT: "f"}
_OF_FIXED_SIZE = {
    0: 0,
    -3: 1,
    -4: 1,
    -5: 2,
    -6: 2,
    -7: 4,
    -8: 8,
    -9: 4,
    -10: 8,
    -21: 16,
    -51: 6,
    -52: 7,
    -53: 13,
    -54: 17,
}
_STRING_BEGINS = struct.Struct(">ii")
_INT = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class Codec:
    """How values of one class are written: a serializer of one's own, which other clients know by its number."""

    kind: type
    """Objects of exactly this class are written with it."""
    type_id: int
    """Above 0, and the same in all programs."""
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Identified:
    """The same for a class that other clients know as `IdentifiedDataSerializable`, by two numbers. What is encoded is
    what these write in `write_data`.
    """

    kind: type
    factory_id: int
    class_id: int
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


class Serializers:
    """Values to bytes and back."""

    def __init__(self, codecs: Iterable[Codec | Identified] = (), *, lists: str = "json") -> None:
        """`lists`: whether lists are written as `json`, which all clients of Holdfast read, or as `objects`: as the
        official Python client does, with any values in them. Both are read. Raises ConfigError.
        """
        if lists not in ("json", "objects"):
            raise ConfigError(f"lists: json or objects, not {lists!r}")
        self._lists = lists == "objects"
        self._writers: dict[type, tuple[bytes, Callable[[Any], bytes]]] = {}
        """By class: what comes before the payload, and what makes that."""
        self._by_id: dict[int, Codec] = {}
        self._identified: dict[tuple[int, int], Identified] = {}
        for codec in codecs:
            self._register(codec)

    def _register(self, codec: Codec | Identified) -> None:
        if codec.kind in self._writers:
            raise ConfigError(f"{codec.kind.__name__} is named twice")
        if isinstance(codec, Codec):
            if codec.type_id <= 0 or codec.type_id in self._by_id:
                raise ConfigError(f"{codec.kind.__name__}: the type id is above 0, and nobody else's")
            self._by_id[codec.type_id] = codec
            begins = _TYPE.pack(codec.type_id)
        else:
            numbers = (codec.factory_id, codec.class_id)
            if numbers in self._identified:
                raise ConfigError(f"{codec.kind.__name__}: another class has the numbers {numbers}")
            self._identified[numbers] = codec
            begins = _IDENTIFIED.pack(IDENTIFIED, True, *numbers)
        self._writers[codec.kind] = (begins, codec.encode)

    # -- writing

    def dump(self, value: object) -> bytes:
        """The stored form. Raises TypeError for what cannot be stored."""
        kind = type(value)
        if kind is str:
            encoded: bytes = value.encode()  # type: ignore[attr-defined]
            return _STRING_BEGINS.pack(STRING, len(encoded)) + encoded
        if kind is int and -0x8000_0000 <= value <= 0x7FFF_FFFF:  # type: ignore[operator]
            return _INT.pack(-7, value)
        writer = self._writers.get(kind)
        if writer is not None:
            return writer[0] + writer[1](value)
        if self._lists and isinstance(value, list):
            return b"".join((_INT.pack(ARRAY_LIST, len(value)), *map(self.dump, value)))
        special = _special(value)
        return to_stored(value) if special is None else special

    def dump_value(self, value: object) -> bytes:
        """The same for the value of a key, which is never None."""
        if value is None:
            raise TypeError("None cannot be the value of a key: remove the key instead")
        return self.dump(value)

    # -- reading

    def load(self, stored: bytes | None) -> Any:
        """The value; `Serialized` when only its writer knows what it is. Raises ProtocolError."""
        if stored is None:
            return None
        if stored[:4] == b"\xff\xff\xff\xf5":
            try:
                return stored[8:].decode()
            except UnicodeDecodeError as broken:
                raise ProtocolError(f"a stored text is broken: {broken}") from broken
        try:
            return self._load(stored)
        except (struct.error, ValueError, IndexError, OverflowError, msgspec.MsgspecError) as broken:
            raise ProtocolError(f"a stored value is broken: {broken}") from broken

    def _load(self, stored: bytes) -> Any:
        (kind,) = _TYPE.unpack_from(stored)
        codec = self._by_id.get(kind)
        if codec is not None:
            return codec.decode(stored[4:])
        if kind == IDENTIFIED and self._identified and len(stored) >= _IDENTIFIED.size:
            _, identified, *numbers = _IDENTIFIED.unpack_from(stored)
            known = self._identified.get((numbers[0], numbers[1])) if identified else None
            return Serialized(stored) if known is None else known.decode(stored[_IDENTIFIED.size :])
        if kind in (ARRAY, ARRAY_LIST, LINKED_LIST):
            return self._list(stored)
        if kind in _SPECIAL:
            return _SPECIAL[kind](stored)
        return from_stored(stored)

    def _list(self, stored: bytes) -> object:
        found, end = self._elements(stored, 4, 0)
        if isinstance(found, list) and end == len(stored):
            return found
        return Serialized(stored)

    def _elements(self, stored: bytes, at: int, depth: int) -> tuple[list[Any] | None, int]:
        """The elements of a list that begins there, and where it ends; None if one of them has no end that is known."""
        (count,) = _TYPE.unpack_from(stored, at)
        at += 4
        if count < 0 or depth > NESTED_MAX:
            return None, at
        found: list[Any] = []
        for _ in range(count):
            (kind,) = _TYPE.unpack_from(stored, at)
            if kind in (ARRAY, ARRAY_LIST, LINKED_LIST):
                inner, at = self._elements(stored, at + 4, depth + 1)
                if inner is None:
                    return None, at
                found.append(inner)
                continue
            size = _size_at(stored, at, kind)
            if size < 0:
                return None, at
            if at + size > len(stored):
                raise ValueError("a list is cut short")
            found.append(self._load(stored[at : at + size]))
            at += size
        return found, at


def _int_at(stored: bytes, at: int) -> int:
    return int(_TYPE.unpack_from(stored, at)[0])


def _size_at(stored: bytes, at: int, kind: int) -> int:
    """Bytes of a value with its type id; -1 for types that do not say."""
    fixed = _OF_FIXED_SIZE.get(kind)
    if fixed is not None:
        return 4 + fixed
    if kind in (-11, -12, -26, -130):
        return 8 + max(0, _int_at(stored, at + 4))
    if kind == DECIMAL:
        return 12 + max(0, _int_at(stored, at + 4))
    if kind in _PACKED:
        return 8 + max(0, _int_at(stored, at + 4)) * struct.calcsize(">" + _PACKED[kind])
    return -1


# -- what is written


def _special(value: object) -> bytes | None:
    """The stored form of a date, time, UUID or decimal; None for anything else."""
    if isinstance(value, dt.datetime):
        offset = value.utcoffset()
        moment = _DATETIME.pack(
            value.year,
            value.month,
            value.day,
            value.hour,
            value.minute,
            value.second,
            value.microsecond * 1000,
        )
        seconds = 0 if offset is None else round(offset.total_seconds())
        return _TYPE.pack(OFFSET_DATETIME) + moment + _TYPE.pack(seconds)
    if isinstance(value, dt.date):
        return _TYPE.pack(DATE) + _DATE.pack(value.year, value.month, value.day)
    if isinstance(value, dt.time):
        return _TYPE.pack(TIME) + _TIME.pack(value.hour, value.minute, value.second, value.microsecond * 1000)
    if isinstance(value, UUID):
        return _TYPE.pack(UUID_TYPE) + value.bytes
    if isinstance(value, Decimal):
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            raise TypeError(f"{value} cannot be stored: a decimal has to be a number")
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        # Like the official client, which takes as few bytes as it can.
        payload = unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
        return _INT.pack(DECIMAL, len(payload)) + payload + _TYPE.pack(-exponent)
    return None


# -- what is read


def _datetime(stored: bytes) -> dt.datetime:
    year, month, day, hour, minute, second, nanos = _DATETIME.unpack_from(stored, 4)
    return dt.datetime(year, month, day, hour, minute, second, nanos // 1000)  # noqa: DTZ001 - it has none


def _offset_datetime(stored: bytes) -> dt.datetime:
    (seconds,) = _TYPE.unpack_from(stored, 4 + _DATETIME.size)
    zone = dt.timezone(dt.timedelta(seconds=seconds))
    return _datetime(stored).replace(tzinfo=zone)


def _time(stored: bytes) -> dt.time:
    hour, minute, second, nanos = _TIME.unpack_from(stored, 4)
    return dt.time(hour, minute, second, nanos // 1000)


def _decimal(stored: bytes) -> Decimal:
    size = _TYPE.unpack_from(stored, 4)[0]
    if size < 0 or len(stored) < 12 + size:
        raise ValueError("a decimal is cut short")
    unscaled = int.from_bytes(stored[8 : 8 + size], "big", signed=True)
    scale = _TYPE.unpack_from(stored, 8 + size)[0]
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


def _packed(stored: bytes) -> list[Any]:
    kind, count = _INT.unpack_from(stored)
    count = max(0, count)
    if len(stored) < 8 + count * struct.calcsize(">" + _PACKED[kind]):
        raise ValueError("an array is cut short")
    found = list(struct.unpack_from(f">{count}{_PACKED[kind]}", stored, 8))
    return list(map(chr, found)) if kind == CHARS else found


def _single(stored: bytes) -> Any:
    (kind,) = _TYPE.unpack_from(stored)
    (found,) = struct.unpack_from(">" + _SINGLE[kind], stored, 4)
    return chr(found) if kind == CHAR else found


def _strings(stored: bytes) -> list[str]:
    count = _TYPE.unpack_from(stored, 4)[0]
    at, found = 8, []
    for _ in range(max(0, count)):
        size = max(0, _TYPE.unpack_from(stored, at)[0])
        if at + 4 + size > len(stored):
            raise ValueError("a list of texts is cut short")
        found.append(stored[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return found


_SPECIAL: dict[int, Callable[[bytes], Any]] = {
    UUID_TYPE: lambda stored: UUID(bytes=stored[4:20]),
    DECIMAL: _decimal,
    DATE: lambda stored: dt.date(*_DATE.unpack_from(stored, 4)),
    TIME: _time,
    DATETIME: _datetime,
    OFFSET_DATETIME: _offset_datetime,
    STRINGS: _strings,
    **dict.fromkeys(_PACKED, _packed),
    **dict.fromkeys(_SINGLE, _single),
}
