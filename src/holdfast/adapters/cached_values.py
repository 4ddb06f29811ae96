"""Stored forms of values that only caches have: None, numbers with an expiry, and frozen sets.

A map cannot hold None. And a counter must keep its time to live, while a map gives a replaced entry a new one: so the
expiry is stored inside the number and is checked when it is read.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from typing import Any

from holdfast.serialization.serializers import Codec, Identified, Serializers

NOTHING, COUNTED, FROZEN_SET = 1_214_211_588, 1_214_211_589, 1_214_211_592
"""Type ids of the three, for registration in other clients."""
_COUNTED = struct.Struct(">qq")
_UNTIL = struct.Struct(">q")
_PLAIN = Serializers()


class Nothing:
    """None as a stored value."""


class Counted:
    """An integer that expires at a moment, in ms since 1970."""

    __slots__ = ("number", "until_ms")

    def __init__(self, number: int, until_ms: int) -> None:
        self.number = number
        self.until_ms = until_ms

    def left_s(self) -> float:
        """Seconds until it expires; 0 or less: it has expired."""
        return (self.until_ms - time.time_ns() // 1_000_000) / 1000


def _dump_counted(counted: Counted) -> bytes:
    """Number and expiry. For a number beyond 64 bits the expiry comes first, and the rest is the number."""
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
    # Serializers write a frozenset as a set; a cache must return the type that it was given.
    Codec(
        frozenset,
        FROZEN_SET,
        lambda value: _PLAIN.dump(set(value)),
        lambda stored: frozenset(_PLAIN.load(stored)),
    ),
)


def cache_serializers(codecs: Iterable[Codec | Identified] = ()) -> Serializers:
    """The default serializers, these codecs, and those of caches."""
    return Serializers([*_CODECS, *codecs])


CACHE_SERIALIZERS = cache_serializers()
"""Serializers of caches without codecs of their own."""


def wrapped(value: object, ttl_s: float) -> object:
    """The stored form of a value with this time to live (0: for ever)."""
    if value is None:
        return Nothing()
    if ttl_s and type(value) is int:
        return Counted(value, time.time_ns() // 1_000_000 + round(ttl_s * 1000))
    return value


def unwrapped(stored: Any, absent: Any) -> Any:
    """The value of a stored form; `absent` if there is none, or it has expired."""
    if stored is None:
        return absent
    kind = type(stored)
    if kind is Nothing:
        return None
    if kind is Counted:
        return stored.number if stored.left_s() > 0 else absent
    return stored
