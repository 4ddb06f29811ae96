"""What caches store beside the values that all clients know: None, numbers that end, and frozen sets.

A cache may hold None, which a map cannot. And a number that is counted up keeps its time to live, while a map gives a
replaced entry a new one; so such a number says itself when it ends, and ends then whatever its entry does.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from typing import Any

from holdfast.serialization.serializers import Codec, Identified, Serializers

NOTHING, COUNTED, FROZEN_SET = 1_214_211_588, 1_214_211_589, 1_214_211_592
"""Type ids of the three, by which other clients can register them."""
_COUNTED = struct.Struct(">qq")
_UNTIL = struct.Struct(">q")
_PLAIN = Serializers()


class Nothing:
    """None, as the value of a key."""


class Counted:
    """A whole number that ends at a moment, in ms since 1970."""

    __slots__ = ("number", "until_ms")

    def __init__(self, number: int, until_ms: int) -> None:
        self.number = number
        self.until_ms = until_ms

    def left_s(self) -> float:
        """Seconds until it ends; 0 or less: it has."""
        return (self.until_ms - time.time_ns() // 1_000_000) / 1000


def _dump_counted(counted: Counted) -> bytes:
    """Number and end; of a number beyond 64 bits the end comes first, and the number takes all the rest."""
    number = counted.number
    if -(1 << 63) <= number < 1 << 63:
        return _COUNTED.pack(number, counted.until_ms)
    return _UNTIL.pack(counted.until_ms) + number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def _load_counted(stored: bytes) -> Counted:
    if len(stored) == _COUNTED.size:  # a number beyond 64 bits takes 9 bytes or more
        return Counted(*_COUNTED.unpack(stored))
    (until_ms,) = _UNTIL.unpack_from(stored)
    return Counted(int.from_bytes(stored[_UNTIL.size :], "big", signed=True), until_ms)


_CODECS: tuple[Codec, ...] = (
    Codec(Nothing, NOTHING, lambda _: b"", lambda _: Nothing()),
    Codec(Counted, COUNTED, _dump_counted, _load_counted),
    # Serializers write a frozenset as a set; a cache gives back what it was given.
    Codec(
        frozenset,
        FROZEN_SET,
        lambda value: _PLAIN.dump(set(value)),
        lambda stored: frozenset(_PLAIN.load(stored)),
    ),
)


def cache_serializers(codecs: Iterable[Codec | Identified] = ()) -> Serializers:
    """The usual ones, these codecs, and what caches store beside them."""
    return Serializers([*_CODECS, *codecs])


CACHE_SERIALIZERS = cache_serializers()
"""Those that caches use that name none."""


def wrapped(value: object, ttl_s: float) -> object:
    """What is stored for a value that lives so long (0: for ever)."""
    if value is None:
        return Nothing()
    if ttl_s and type(value) is int:
        return Counted(value, time.time_ns() // 1_000_000 + round(ttl_s * 1000))
    return value


def unwrapped(stored: Any, absent: Any) -> Any:
    """The value of what was stored; `absent` if there is none, or it has ended."""
    if stored is None:
        return absent
    kind = type(stored)
    if kind is Nothing:
        return None
    if kind is Counted:
        return stored.number if stored.left_s() > 0 else absent
    return stored
