"""Serializers: values as bytes and back. A value for which Hazelcast has a type is written in that type, so that other
clients can read it, and comes back as it was. Pickles are neither written nor read.

Plain values are those of `holdfast.wire.values`. Others are dates, times, UUIDs, decimals, tuples, sets, lists and
dictionaries of any values, the equivalents of other clients, and classes that the user has registered.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Any, Literal, get_args
from uuid import UUID

import msgspec

from holdfast.errors import ConfigError, ProtocolError
from holdfast.wire.values import BIG_INTEGER, STRING, Serialized, from_stored, to_stored

UUID_TYPE, DECIMAL, ARRAY, ARRAY_LIST, LINKED_LIST = -21, -27, -28, -29, -30
HASH_MAP, LINKED_HASH_MAP, HASH_SET, LINKED_HASH_SET = -32, -35, -37, -39
CONTAINERS = frozenset({ARRAY, ARRAY_LIST, LINKED_LIST, HASH_MAP, LINKED_HASH_MAP, HASH_SET, LINKED_HASH_SET})
"""Types that contain values of any types."""
DATE, TIME, DATETIME, OFFSET_DATETIME = -51, -52, -53, -54
BYTE, CHAR, SHORT, FLOAT = -3, -5, -6, -9
BOOLEANS, CHARS, SHORTS, INTEGERS, LONGS, FLOATS, DOUBLES, STRINGS = -13, -14, -15, -16, -17, -18, -19, -20
NESTED_MAX = 64
"""Lists in lists beyond this depth are neither written nor read."""
Integers = Literal["fitting", "byte", "short", "int", "long", "big_int", "var"]
"""Width of written integers. `fitting`: 32, 64 or more bits, as needed. The others are `default_int_type` of the
official Python client: one width, or (`var`) 8 bits or more, as needed.
"""

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
_WIDTHS = {
    "byte": (struct.Struct(">ib"), BYTE),
    "short": (struct.Struct(">ih"), SHORT),
    "int": (_INT, -7),
    "long": (struct.Struct(">iq"), -8),
}


@dataclass(frozen=True, slots=True)
class Codec:
    """A custom serializer for one class; other clients know it by its type id."""

    kind: type
    """Objects of exactly this class are written with it."""
    type_id: int
    """Above 0, and the same in all programs."""
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Identified:
    """The same for a class that other clients know as `IdentifiedDataSerializable`, by two numbers. `encode` writes
    what their `write_data` writes.
    """

    kind: type
    factory_id: int
    class_id: int
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


class _Opaque(Exception):
    """Part of a list has no known end: only its writer can read it."""


class Serializers:
    def __init__(
        self,
        codecs: Iterable[Codec | Identified] = (),
        *,
        lists: Literal["json", "objects"] = "json",
        integers: Integers = "fitting",
    ) -> None:
        """`lists`: lists of JSON values are written as `json`, which members can look into, or as `objects`, like the
        official Python client does. Both are read; other lists are always written as objects. `integers`: see
        `Integers`; two keys are equal if their bytes are, so all programs that share a map must write the same width.
        Raises ConfigError.
        """
        if lists not in ("json", "objects"):
            raise ConfigError(f"lists: json or objects, not {lists!r}")
        if integers not in get_args(Integers):
            raise ConfigError(f"integers: one of {', '.join(get_args(Integers))}, not {integers!r}")
        self._lists = lists == "objects"
        self._integers = integers
        self._int32 = integers in ("fitting", "int")
        """Whether an integer that fits into 32 bits is written with 32 bits."""
        self._writers: dict[type, tuple[bytes, Callable[[Any], bytes]]] = {}
        """By class: bytes before the payload, and the encoder of the payload."""
        self._by_id: dict[int, Codec] = {}
        self._identified: dict[tuple[int, int], Identified] = {}
        for codec in codecs:
            self._register(codec)

    def _register(self, codec: Codec | Identified) -> None:
        if codec.kind in self._writers:
            raise ConfigError(f"{codec.kind.__name__} is named twice")
        if isinstance(codec, Codec):
            if codec.type_id <= 0 or codec.type_id in self._by_id:
                raise ConfigError(f"{codec.kind.__name__}: the type id must be above 0 and unique")
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
        """The stored form. Raises TypeError for what cannot be stored, OverflowError for too large an integer."""
        kind = type(value)
        if kind is str:
            encoded: bytes = value.encode()  # type: ignore[attr-defined]
            return _STRING_BEGINS.pack(STRING, len(encoded)) + encoded
        if kind is int and self._int32 and -0x8000_0000 <= value <= 0x7FFF_FFFF:  # type: ignore[operator]
            return _INT.pack(-7, value)
        writer = self._writers.get(kind)
        if writer is not None:
            return writer[0] + writer[1](value)
        try:
            return self._dump(value, 0)
        except RecursionError:
            raise TypeError(
                f"a {kind.__name__} that contains itself, or is nested too deeply, cannot be stored"
            ) from None

    def _dump(self, value: object, depth: int) -> bytes:
        """The stored form at a depth of nested lists. Registered classes are written in lists only if `lists` is
        `objects`.
        """
        if isinstance(value, int) and not isinstance(value, bool):
            return self._integer(value)
        if isinstance(value, list | tuple | set | frozenset | dict):
            if not (self._lists and isinstance(value, list)) and _is_json(value):
                return to_stored(value)
            if depth > NESTED_MAX:
                raise TypeError(f"lists in lists cannot be stored beyond a depth of {NESTED_MAX}")
            return self._container(value, depth)
        if depth and self._lists and type(value) in self._writers:
            return self.dump(value)
        special = _special(value)
        return to_stored(value) if special is None else special

    def _container(
        self, value: list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any] | dict[Any, Any], depth: int
    ) -> bytes:
        if isinstance(value, dict):
            kind, inside = LINKED_HASH_MAP, [part for pair in value.items() for part in pair]
        else:
            kind = ARRAY_LIST if isinstance(value, list) else ARRAY if isinstance(value, tuple) else HASH_SET
            inside = list(value)
        written = [self._dump(one, depth + 1) for one in inside]
        if kind == HASH_SET:
            written.sort()  # Equal sets have equal bytes.
        return b"".join((_INT.pack(kind, len(value)), *written))

    def _integer(self, value: int) -> bytes:
        width = self._integers
        if width in ("fitting", "var"):
            if width == "var" and -0x8000 <= value <= 0x7FFF:
                width = "byte" if -0x80 <= value <= 0x7F else "short"
            else:
                return to_stored(int(value))
        if width == "big_int":
            payload = value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)
            return _INT.pack(BIG_INTEGER, len(payload)) + payload
        form = _WIDTHS[width]
        try:
            return form[0].pack(form[1], value)
        except struct.error:
            bits = 8 * (form[0].size - 4)
            raise OverflowError(
                f"{value} has no room in {bits} bits: integers = {width!r} was chosen"
            ) from None

    def dump_value(self, value: object) -> bytes:
        """The same for the value of an entry, which is never None."""
        if value is None:
            raise TypeError("None cannot be a value: to store no value, remove the key")
        return self.dump(value)

    def dump_key(self, key: object) -> bytes:
        """The same for a key, which is never None."""
        if type(key) is str:  # without a second call: most keys are texts
            encoded = key.encode()
            return _STRING_BEGINS.pack(STRING, len(encoded)) + encoded
        if key is None:
            raise TypeError("None cannot be a key")
        return self.dump(key)

    # -- reading

    def load(self, stored: bytes | None) -> Any:
        """The value; `Serialized` if only its writer knows its type. Raises ProtocolError."""
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
        if kind in CONTAINERS:
            return self._whole(stored)
        if kind in _SPECIAL:
            return _SPECIAL[kind](stored)
        return from_stored(stored)

    def _whole(self, stored: bytes) -> object:
        try:
            found, end = self._contained(stored, 0, 0)
        except _Opaque:
            return Serialized(stored)
        return found if end == len(stored) else Serialized(stored)

    def _contained(self, stored: bytes, at: int, depth: int) -> tuple[Any, int]:
        """The list, tuple, set or dictionary at this place, and its end. Raises _Opaque."""
        kind, count = _INT.unpack_from(stored, at)
        at += _INT.size
        pairs = kind in (HASH_MAP, LINKED_HASH_MAP)
        if count < 0 or depth > NESTED_MAX:
            raise _Opaque
        found: list[Any] = []
        for _ in range(2 * count if pairs else count):
            one, at = self._element(stored, at, depth + 1)
            found.append(one)
        try:
            if pairs:
                return dict(zip(found[::2], found[1::2], strict=True)), at
            if kind in (HASH_SET, LINKED_HASH_SET):
                return set(found), at
        except TypeError:  # Python cannot hash it: a list as a key.
            raise _Opaque from None
        return tuple(found) if kind == ARRAY else found, at

    def _element(self, stored: bytes, at: int, depth: int) -> tuple[Any, int]:
        (kind,) = _TYPE.unpack_from(stored, at)
        if kind in CONTAINERS:
            return self._contained(stored, at, depth)
        size = _size_at(stored, at, kind)
        if size < 0:
            raise _Opaque
        if at + size > len(stored):
            raise ValueError("a list is cut short")
        return self._load(stored[at : at + size]), at + size


def _int_at(stored: bytes, at: int) -> int:
    return int(_TYPE.unpack_from(stored, at)[0])


def _size_at(stored: bytes, at: int, kind: int) -> int:
    """Size of a value with its type id; -1 for types without a known size."""
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


# -- writing


def _is_json(value: object) -> bool:
    """Whether JSON preserves the value."""
    if value is None or isinstance(value, str | int):
        return True
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(one) for key, one in value.items())
    return False


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
        if offset is None:
            return _TYPE.pack(DATETIME) + moment
        return _TYPE.pack(OFFSET_DATETIME) + moment + _TYPE.pack(round(offset.total_seconds()))
    if isinstance(value, dt.date):
        return _TYPE.pack(DATE) + _DATE.pack(value.year, value.month, value.day)
    if isinstance(value, dt.time):
        if value.tzinfo is not None:
            raise TypeError(f"{value} cannot be stored: a time has no zone there; store a datetime")
        return _TYPE.pack(TIME) + _TIME.pack(value.hour, value.minute, value.second, value.microsecond * 1000)
    if isinstance(value, UUID):
        return _TYPE.pack(UUID_TYPE) + value.bytes
    if isinstance(value, Decimal):
        return _stored_decimal(value)
    return None


def _stored_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or not -(2**31) < exponent < 2**31:
        raise TypeError(
            f"{value} cannot be stored: a decimal has to be a number, with an exponent of 32 bits"
        )
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    # As few bytes as possible, like the official client.
    payload = unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
    return _INT.pack(DECIMAL, len(payload)) + payload + _TYPE.pack(-exponent)


# -- reading


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
