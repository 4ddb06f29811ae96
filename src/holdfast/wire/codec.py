"""Messages between members as bytes: MessagePack arrays, each message with its number. Decoding checks every type."""

from __future__ import annotations

import msgspec

from holdfast.core.messages import Message
from holdfast.errors import ProtocolError

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """The message as bytes."""
    return _encoder.encode(message)


def decode(data: bytes | memoryview) -> Message:
    """The message in these bytes. Raises ProtocolError when they are none."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ProtocolError(f"not a message between members: {error}") from error
