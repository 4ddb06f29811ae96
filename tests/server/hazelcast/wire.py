"""The client's end of a session, in the codecs of the official Python client: an independent judge of bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any
from uuid import UUID

from hazelcast.protocol.builtin import ListMultiFrameCodec
from hazelcast.protocol.client_message import Frame, InboundMessage, OutboundMessage
from hazelcast.protocol.codec import client_authentication_codec
from hazelcast.protocol.codec.custom.error_holder_codec import ErrorHolderCodec
from hazelcast.serialization.data import Data
from tests.server.hazelcast.one_member import OneMemberGrid

from holdfast.config import LimitSettings
from holdfast.server.fast_path import ServedMaps
from holdfast.server.frame_forwards import FrameForwards
from holdfast.server.hazelcast import reference_lane
from holdfast.server.hazelcast.hazelcast_session import HazelcastSession
from holdfast.server.hazelcast.reference_lane import LaneCode

CLIENT = UUID("d3e876ca-5ea6-4a08-8b0c-7ed4e208d063")
FRAME = struct.Struct("<iH")


class AnsweredError(Exception):
    """The answer was an error."""

    def __init__(self, code: int, class_name: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.class_name = class_name


def split(data: bytes) -> list[InboundMessage]:
    """Every message in `data`, which must hold whole ones."""
    messages = []
    current: InboundMessage | None = None
    at = 0
    while at < len(data):
        length, flags = FRAME.unpack_from(data, at)
        assert length >= 6
        assert at + length <= len(data)
        frame = Frame(data[at + 6 : at + length], flags)
        at += length
        if current is None:
            current = InboundMessage(frame)
        else:
            current.add_frame(frame)
        if flags & 0x2000:
            messages.append(current)
            current = None
    assert current is None
    return messages


def error_of(message: InboundMessage) -> AnsweredError | None:
    """The error, if the message is one."""
    if message.get_message_type() != 0:
        return None
    message.next_frame()
    holder = ListMultiFrameCodec.decode(message, ErrorHolderCodec.decode)[0]
    return AnsweredError(holder.error_code, holder.class_name, holder.message)


class Wire:
    """A session and what came out of it."""

    def __init__(
        self,
        grid: OneMemberGrid,
        *,
        limits: LimitSettings | None = None,
        lane_code: LaneCode = reference_lane,
        forwards: FrameForwards | None = None,
    ) -> None:
        self.grid = grid
        self.sent: list[bytes] = []
        self.closed: list[str] = []
        self.session = HazelcastSession(
            grid,
            self.sent.append,
            self.closed.append,
            limits=limits,
            lane_code=lane_code,
            served_maps=ServedMaps(grid.lane_access, forwards),
        )
        self._correlation = 0

    def take(self) -> list[InboundMessage]:
        """The messages that came out since the last look."""
        out = split(b"".join(self.sent))
        self.sent.clear()
        return out

    def number(self, request: OutboundMessage, partition: int = -1) -> tuple[int, bytes]:
        """Give a request its correlation id; answers that and the bytes."""
        self._correlation += 1
        request.set_correlation_id(self._correlation)
        request.set_partition_id(partition)
        return self._correlation, bytes(request.buf)

    def tell(self, request: OutboundMessage, partition: int = -1) -> int:
        """Send a request without looking for the answer; answers its correlation id."""
        correlation, data = self.number(request, partition)
        self.session.receive(data)
        self.resume()
        return correlation

    def resume(self) -> None:
        """Let the session do what it has left for later."""
        while self.session._flow.halted:
            self.session.resume()

    def ask(self, codec: ModuleType, *parameters: Any, partition: int = -1) -> Any:
        """Send a request and decode its answer. Raises AnsweredError for an error."""
        correlation = self.tell(codec.encode_request(*parameters), partition)
        (answer,) = self.take()
        assert answer.get_correlation_id() == correlation
        refused = error_of(answer)
        if refused is not None:
            raise refused
        assert answer.get_number_of_backup_acks() == 0
        decode: Callable[[InboundMessage], Any] | None = getattr(codec, "decode_response", None)
        return decode(answer) if decode else None

    def login(
        self,
        name: str = "dev",
        username: str | None = None,
        password: str | None = None,
        client: UUID = CLIENT,
    ) -> dict[str, Any]:
        """Authenticate; answers the decoded answer."""
        answer: dict[str, Any] = self.ask(
            client_authentication_codec, name, username, password, client, "PYH", 1, "5.7.0", "c1", ["x"]
        )
        return answer


def data(stored: bytes, key_hash: int = 0) -> Data:
    """Stored bytes as the client's `Data`."""
    return Data(key_hash.to_bytes(4, "big", signed=True) + stored)


def stored(found: Data | None) -> bytes | None:
    """And back: what the client got, as it is stored."""
    return None if found is None else bytes(found.buffer[4:])
