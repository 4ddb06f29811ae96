"""Keys and values as users type and read them: texts with a type, and their stored form, which all clients share."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

import msgspec

from holdfast.errors import ConfigError, ProtocolError
from holdfast.serialization import Integers, Serialized, Serializers
from holdfast.wire.values import JSON

_TYPE_ID = struct.Struct(">i")
_JSON = struct.Struct(">ii")
_PLAIN = Serializers()

NAMES = {
    0: "null",
    -3: "byte",
    -4: "bool",
    -6: "short",
    -7: "int",
    -8: "long",
    -9: "float",
    -10: "double",
    -11: "string",
    -12: "bytes",
    -21: "uuid",
    -26: "big_int",
    -27: "decimal",
    -51: "date",
    -52: "time",
    -53: "datetime",
    -54: "datetime",
    -55: "compact",
    -130: "json",
}
"""Names of the most frequent types; others are shown as `type` and a number."""


def _integer(width: Integers) -> Callable[[str], bytes]:
    serializers = Serializers(integers=width)
    return lambda text: serializers.dump(int(text))


def _bool(text: str) -> bytes:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return _PLAIN.dump(text.lower() == "true")


def _json(text: str) -> bytes:
    payload = msgspec.json.format(text.encode(), indent=-1)
    return _JSON.pack(JSON, len(payload)) + payload


_WRITERS: dict[str, tuple[Callable[[str], bytes], str]] = {
    "string": (_PLAIN.dump, "a text"),
    "byte": (_integer("byte"), "a whole number of 8 bits"),
    "short": (_integer("short"), "a whole number of 16 bits"),
    "int": (_integer("int"), "a whole number of 32 bits"),
    "long": (_integer("long"), "a whole number of 64 bits"),
    "big_int": (_integer("big_int"), "a whole number"),
    "double": (lambda text: _PLAIN.dump(float(text)), "a number"),
    "bool": (_bool, "true or false"),
    "json": (_json, 'JSON, such as {"a": 1}'),
    "uuid": (lambda text: _PLAIN.dump(UUID(text)), "a UUID"),
    "decimal": (lambda text: _PLAIN.dump(Decimal(text)), "a decimal number"),
    "date": (lambda text: _PLAIN.dump(dt.date.fromisoformat(text)), "a date, such as 2024-02-29"),
    "datetime": (
        lambda text: _PLAIN.dump(dt.datetime.fromisoformat(text)),
        "a date and time, such as 2024-02-29T12:00:00+01:00",
    ),
    "bytes": (lambda text: _PLAIN.dump(bytes.fromhex(text)), "bytes in hexadecimal digits"),
    "stored": (bytes.fromhex, "a stored form in hexadecimal digits: type id and payload"),
}
TYPES = tuple(_WRITERS)


def stored_of(text: str, kind: str, what: str) -> bytes:
    """The stored form of a text of this type. `what`: its description in messages. Raises ConfigError."""
    write, meaning = _WRITERS[kind]
    try:
        found = write(text)
    except (ValueError, TypeError, OverflowError, InvalidOperation, msgspec.MsgspecError):
        raise ConfigError(f"{what} {text!r} is no {kind}: give {meaning}") from None
    if len(found) < _TYPE_ID.size:
        raise ConfigError(f"{what} {text!r} is no {kind}: give {meaning}")
    return found


def type_of(stored: bytes) -> str:
    (number,) = _TYPE_ID.unpack_from(stored)
    return NAMES.get(number, f"type {number}")


def plain_of(stored: bytes) -> Any:
    """A stored value for JSON; bytes, and types that only their writer can read, in hexadecimal."""
    try:
        value = _PLAIN.load(stored)
    except ProtocolError:
        return stored.hex()
    return _plain(value)


def _plain(value: object) -> Any:
    match value:
        case Serialized(data):
            return data.hex()
        case bytes() | bytearray():
            return value.hex()
        case dict():
            return {
                key if isinstance(key, str) else str(_plain(key)): _plain(one) for key, one in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [_plain(one) for one in value]
        case None | bool() | int() | float() | str():
            return value
        case dt.date() | dt.time():
            return value.isoformat()
        case _:
            return str(value)


def text_of(plain: Any) -> str:
    """A value of `plain_of` for people: a string as it is, any other value as JSON."""
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
