"""Messages between members as bytes: MessagePack arrays, each message with its number. Decoding checks every type, and
every number that names something (`wire.bounds`).

- wire/C-1: A message of a newer member is read as far as this one knows it: fields are only ever added at the end, with
  a default that means what a member that does not know them means. What is behind the last known one is left out.
- wire/C-2: A message, or a value of an enumeration, that is new is only sent at the feature level that it came with, or
  a later one; so nobody who does not know it is in the cluster. If it comes all the same, a message that may be lost is
  left out, and told as unknown; in a link, where each message counts, it ends the connection.
"""

from __future__ import annotations

from typing import get_args

import msgspec

from holdfast.core.messages import Message
from holdfast.errors import ProtocolError, UnknownMessage
from holdfast.wire.bounds import message_problem

ANY_COUNT = 1 << 31
"""More partitions than any cluster has: for readers that only look at messages, and act on none."""

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


ARRAY_16, UINT_8 = 0xDC, b"\xcc"
_KINDS = frozenset(kind.__struct_config__.tag for kind in get_args(Message))


def _unknown_kind(data: bytes | memoryview) -> int | None:
    """The number of the message, if these bytes begin as one does, and it is not known. No more is looked at."""
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
    """The message as bytes."""
    return _encoder.encode(message)


def decode(data: bytes | memoryview, partition_count: int = ANY_COUNT) -> Message:
    """The message in these bytes. Raises ProtocolError when they are none that a member of a cluster with so many
    partitions can have sent, whatever is wrong with them.
    """
    try:
        message = _decoder.decode(data)
        why = message_problem(message, partition_count)
    except Exception as error:
        if (kind := _unknown_kind(data)) is not None:
            raise UnknownMessage(f"a message of kind {kind}, which this Holdfast does not know") from error
        # Broken UTF-8, arrays without end, numbers that contradict each other: the ways to be no message are not a
        # list that could be complete.
        raise ProtocolError(f"not a message between members: {error}") from error
    if why:
        raise ProtocolError(f"{type(message).__name__}: {why}")
    return message
