"""What caches store beside the values that all clients know: nothing, and numbers that end.

A cache may hold None, which a map cannot. And a number that is counted up keeps its time to live, while a map gives a
replaced entry a new one; so such a number says itself when it ends, and ends then whatever its entry does.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from typing import Any

from holdfast.serialization.serializers import Codec, Identified, Serializers

NOTHING, COUNTED = 1_214_211_588, 1_214_211_589
"""Type ids of the two, by which other clients can register them."""
_COUNTED = struct.Struct(">qq")


class Nothing:
    """None, as the value of a key."""


class Counted:
    """A whole number of 64 bits that ends at a moment, in ms since 1970."""

    __slots__ = ("number", "until_ms")

    def __init__(self, number: int, until_ms: int) -> None:
        self.number = number
        self.until_ms = until_ms

    def left_s(self) -> float:
        """Seconds until it ends; 0 or less: it has."""
        return (self.until_ms - time.time_ns() // 1_000_000) / 1000


_CODECS: tuple[Codec, ...] = (
    Codec(Nothing, NOTHING, lambda _: b"", lambda _: Nothing()),
    Codec(
        Counted,
        COUNTED,
        lambda counted: _COUNTED.pack(counted.number, counted.until_ms),
        lambda stored: Counted(*_COUNTED.unpack(stored)),
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
    if ttl_s and type(value) is int and -(1 << 63) <= value < 1 << 63:
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
