"""Encodes and decodes the messages between members: MessagePack arrays that begin with the number of the message.
Decoding checks all types, and that partitions, members and columns are possible (`wire.bounds`).

- wire/C-1: An older member reads the fields that it knows of a newer member's message. New fields are only added at the
  end, with a default that means what a member without them means; unknown fields at the end are ignored.
- wire/C-2: A new message, or a new value of an enumeration, is only sent at its feature level or above, so every member
  of the cluster knows it. If an unknown one arrives anyway, a datagram is ignored and reported as unknown; in a link,
  where each message counts, it ends the connection.
"""

from __future__ import annotations

from typing import get_args

import msgspec

from holdfast.core.messages import Message, MessageBatch
from holdfast.errors import ProtocolError, UnknownMessage
from holdfast.wire.bounds import AreSound, message_problem

ANY_COUNT = 1 << 31
"""More partitions than any cluster has: for readers that only show messages and do not act on them."""

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


ARRAY_16, UINT_8 = 0xDC, b"\xcc"
_KINDS = frozenset(kind.__struct_config__.tag for kind in get_args(Message))


def _unknown_kind(data: bytes | memoryview) -> int | None:
    """The number of the message that these bytes begin, if it is of an unknown kind; nothing more is checked."""
    first = bytes(data[:6])
    if not first:
        return None
    numbered = first[1:] if 0x91 <= first[0] <= 0x9F else first[3:] if first[0] == ARRAY_16 else b""
    if numbered[:1] == UINT_8 and len(numbered) > 1:
        kind = numbered[1]
    elif numbered and numbered[0] < 0x80:
        kind = numbered[0]
    else:
        return None
    return None if kind in _KINDS else kind


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


class _EncodedBatch(msgspec.Struct, array_like=True, tag=MessageBatch.__struct_config__.tag):
    messages: list[msgspec.Raw]


def encode_batch(messages: list[bytes]) -> bytes:
    """A `MessageBatch` of encoded messages."""
    return _encoder.encode(_EncodedBatch([msgspec.Raw(message) for message in messages]))


def decode(
    data: bytes | memoryview, partition_count: int = ANY_COUNT, are_sound: AreSound | None = None
) -> Message:
    """`are_sound`: compiled code that checks packed stores (`packed_puts_cy`).

    Raises ProtocolError unless a member of a cluster with this number of partitions can have sent these bytes, and
    UnknownMessage if their kind of message is unknown.
    """
    try:
        message = _decoder.decode(data)
        why = message_problem(message, partition_count, are_sound)
    except Exception as error:
        if (kind := _unknown_kind(data)) is not None:
            raise UnknownMessage(f"a message of kind {kind}, which this Holdfast does not know") from error
        # Broken UTF-8, arrays without end, contradicting numbers: there is no complete list of the ways to be
        # invalid.
        raise ProtocolError(f"not a message between members: {error}") from error
    if why:
        raise ProtocolError(f"{type(message).__name__}: {why}")
    return message
