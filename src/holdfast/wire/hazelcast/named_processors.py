"""Entry processors as clients send them: objects of `IdentifiedDataSerializable`, or names for Holdfast's members."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from holdfast.wire.hazelcast.refusals import SERIALIZATION, UNSUPPORTED, CallRefused

HOLDFAST_FACTORY = 0x484F4C44
NAMED_CLASS = 1
"""An object of this factory and class is the name of a processor and its argument, a stored value or nothing."""
_IDENTIFIED = -2
_HEAD = Struct(">i?ii")
_LENGTH = Struct(">i")


@dataclass(frozen=True, slots=True)
class NamedProcessor:
    name: str
    argument: bytes


@dataclass(frozen=True, slots=True)
class IdentifiedProcessor:
    factory_id: int
    class_id: int
    payload: bytes


def write_processor(name: str, argument: bytes) -> bytes:
    """`argument`: a stored value; empty: none."""
    encoded = name.encode()
    head = _HEAD.pack(_IDENTIFIED, True, HOLDFAST_FACTORY, NAMED_CLASS)
    return head + _LENGTH.pack(len(encoded)) + encoded + argument


def read_processor(stored: bytes, asked: str) -> NamedProcessor | IdentifiedProcessor:
    """`asked`: the name of the request. Raises CallRefused."""
    if (
        len(stored) < _HEAD.size
        or int.from_bytes(stored[:4], "big", signed=True) != _IDENTIFIED
        or not stored[4]
    ):
        raise CallRefused(
            UNSUPPORTED,
            f"{asked} with an object other than an IdentifiedDataSerializable is not supported by Holdfast, whose "
            "members know entry processors by a factory id and a class id",
        )
    _, _, factory_id, class_id = _HEAD.unpack_from(stored)
    payload = stored[_HEAD.size :]
    if (factory_id, class_id) != (HOLDFAST_FACTORY, NAMED_CLASS):
        return IdentifiedProcessor(factory_id, class_id, payload)
    size = _LENGTH.unpack_from(payload)[0] if len(payload) >= _LENGTH.size else -1
    end = _LENGTH.size + size
    try:
        if not 0 < size <= len(payload) - _LENGTH.size:
            raise ValueError
        return NamedProcessor(payload[_LENGTH.size : end].decode(), payload[end:])
    except ValueError:
        raise CallRefused(SERIALIZATION, "the name of an entry processor is broken") from None
