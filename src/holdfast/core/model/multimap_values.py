"""The values of one key of a multimap: one entry, so they are replicated, moved and locked as one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

_COUNT_BYTES = 4
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


def encode_values(values: Sequence[bytes]) -> bytes:
    return len(values).to_bytes(_COUNT_BYTES, "big") + _encode(values)


def decode_values(encoded: bytes) -> list[bytes]:
    return _decode(memoryview(encoded)[_COUNT_BYTES:])


def count_values(encoded: bytes) -> int:
    """Takes no time for the values."""
    return int.from_bytes(encoded[:_COUNT_BYTES], "big")
