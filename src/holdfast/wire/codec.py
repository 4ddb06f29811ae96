"""Messages between members as bytes: MessagePack arrays, each message with its number. Decoding checks every type, and
every number that names something (`wire.bounds`).
"""

from __future__ import annotations

import msgspec

from holdfast.core.messages import Message
from holdfast.errors import ProtocolError
from holdfast.wire.bounds import why_nonsense

ANY_COUNT = 1 << 31
"""More partitions than any cluster has: for readers that only look at messages, and act on none."""

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """The message as bytes."""
    return _encoder.encode(message)


def decode(data: bytes | memoryview, partition_count: int = ANY_COUNT) -> Message:
    """The message in these bytes. Raises ProtocolError when they are none that a member of a cluster with so many
    partitions can have sent, whatever is wrong with them.
    """
    try:
        message = _decoder.decode(data)
        why = why_nonsense(message, partition_count)
    except Exception as error:
        # Broken UTF-8, arrays without end, numbers that contradict each other: the ways to be no message are not a
        # list that could be complete.
        raise ProtocolError(f"not a message between members: {error}") from error
    if why:
        raise ProtocolError(f"{type(message).__name__}: {why}")
    return message
