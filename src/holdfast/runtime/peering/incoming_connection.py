"""Connection that another member has opened: authentication, then frames.

Frames are packets of a link, which the link repeats if they are lost, or datagrams, which may be lost.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Protocol, cast

from holdfast.core.model.protocols import ProtocolRange, common_version
from holdfast.errors import ProtocolError
from holdfast.runtime.doors.connection_log import ConnectionLog
from holdfast.runtime.peering.member_frames import (
    DATAGRAM,
    FRAME,
    FRAME_BYTES_MAX,
    LENGTH_BYTES,
    PACKET,
    REQUEST_BYTES_MAX,
)
from holdfast.runtime.peering.member_handshake import (
    HANDSHAKE_TIMEOUT_S,
    NONCE_BYTES,
    HandshakeRequest,
    channel_of,
    opening_of,
    proved_secrets,
    read_request,
    welcome_of,
)
from holdfast.wire import doors
from holdfast.wire.bounds import address_problem, uuid_problem

READ_BYTES = 1024 * 1024
"""Size of a receive buffer. A longer frame gets a larger buffer, which grows while the frame arrives."""
TURN_NS = 500_000
"""Time for the frames of one connection in one turn of the event loop, because clients wait meanwhile."""


class IncomingOwner(Protocol):
    uuid: str
    client_port: int
    speaks: ProtocolRange
    secrets: tuple[str, ...]
    connection_log: ConnectionLog
    on_bytes: Callable[[int], None]

    def on_connected(self, incoming: IncomingConnection) -> None: ...

    def on_authenticated(
        self, incoming: IncomingConnection, request: HandshakeRequest, proved: list[bool], protocol: int
    ) -> None: ...

    def on_wrong_secret(self, request: HandshakeRequest) -> None: ...

    def on_incompatible(self, request: HandshakeRequest) -> None: ...

    def on_frame(
        self, request: HandshakeRequest, kind: int, body: bytes | memoryview, *, more: bool = False
    ) -> None: ...

    def on_closed(self, incoming: IncomingConnection) -> None: ...

    def hold(self) -> None: ...

    def end_buffer(self) -> None: ...


class IncomingConnection(asyncio.BufferedProtocol):
    def __init__(self, network: IncomingOwner) -> None:
        self._network = network
        self._buffer = memoryview(bytearray(REQUEST_BYTES_MAX + FRAME.size))
        self._start = self._end = 0
        self._wanted = LENGTH_BYTES
        """Length of the next frame with its length field, as far as it is known."""
        self._request: HandshakeRequest | None = None
        self._opening = opening_of(network.uuid, os.urandom(NONCE_BYTES), network.speaks)
        self._transport: asyncio.Transport | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self._paused = False
        self.host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        self.host = str((transport.get_extra_info("peername") or ("",))[0])
        self._network.on_connected(self)
        transport.write(self._opening)
        loop = asyncio.get_running_loop()
        self._timeout = loop.call_later(HANDSHAKE_TIMEOUT_S, self._on_timeout)

    def _on_timeout(self) -> None:
        if self._request is None:
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._network.on_closed(self)
        if self._timeout is not None:
            self._timeout.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self._handle()
        self._network.on_bytes(nbytes)

    def _handle(self) -> None:
        until_ns = time.monotonic_ns() + TURN_NS
        self._network.hold()
        try:
            while self._frame():
                if time.monotonic_ns() >= until_ns and self._start < self._end:
                    self._pause()
                    return
            self._make_space()
            if self._paused:
                self._paused = False
                if self._transport is not None:
                    self._transport.resume_reading()
        except Exception as error:  # noqa: BLE001  (malformed bytes end their connection, and nothing else)
            self._network.connection_log.report(
                "member connections closed: protocol error", "connection of a member closed: %s", error
            )
            self.close()
        finally:
            self._network.end_buffer()

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        """If the connection has ended, the rest is dropped, and the links repeat it."""
        if self._transport is not None and not self._transport.is_closing():
            self._handle()

    def _frame(self) -> bool:
        start, here = self._start, self._end - self._start
        self._wanted = LENGTH_BYTES
        if here < LENGTH_BYTES:
            return False
        length = int.from_bytes(self._buffer[start : start + LENGTH_BYTES], "little")
        if length > (FRAME_BYTES_MAX if self._request else REQUEST_BYTES_MAX):
            sender = "" if self._request else doors.who(bytes(self._buffer[start : start + LENGTH_BYTES]))
            if sender.endswith("TLS client"):
                raise ProtocolError(
                    f"{sender} came to {doors.MEMBERS_PORT}, which speaks none (tls.certificate)"
                )
            if sender:
                self._send_port(sender)
                raise ProtocolError(f"{sender} came to {doors.MEMBERS_PORT}; clients have another one")
            raise ProtocolError(f"a frame of {length} bytes is too long")
        self._wanted += length
        if here < self._wanted:
            return False
        frame = self._buffer[start : start + self._wanted]
        self._start += self._wanted
        assert self._start <= self._end <= len(self._buffer), "a frame is handled when all of it is here"
        if self._request is None:
            self._authenticate(frame[LENGTH_BYTES:])
        elif len(frame) < FRAME.size:
            raise ProtocolError(f"a frame of {length} bytes is too short")
        else:
            _, kind = FRAME.unpack_from(frame)
            if kind not in (PACKET, DATAGRAM):
                raise ProtocolError(f"there are no frames of kind {kind}")
            more = self._start < self._end
            self._network.on_frame(self._request, kind, frame[FRAME.size :], more=more)
        return True

    def _send_port(self, sender: str) -> None:
        """Send a client the port that it should use. Only without TLS: with TLS, only members get this far."""
        transport = self._transport
        if transport is not None:
            http = sender == doors.HTTP
            transport.write(doors.NOT_HTTP if http else doors.other_port(self._network.client_port))
            transport.close()  # Not abort(), so that the client receives the reply.
            self._transport = None

    def _make_space(self) -> None:
        """Make room in the buffer for the rest of the next frame. The buffer for a long frame at most doubles
        each time it is full, so a length field alone cannot make this member allocate 256 MiB: the peer has
        to send them.
        """
        here, size = self._end - self._start, len(self._buffer)
        if self._request is not None:
            if self._wanted <= READ_BYTES:
                size = READ_BYTES
            elif here >= size:
                size = min(self._wanted, max(READ_BYTES, 2 * size))
        same = size == len(self._buffer)
        if here and same and self._end < size and self._start + min(self._wanted, size) <= size:
            return
        left = self._buffer[self._start : self._end]
        if not same:
            self._buffer = memoryview(bytearray(size))
        self._buffer[:here] = left
        self._start, self._end = 0, here

    def _authenticate(self, body: memoryview) -> None:
        network, transport = self._network, self._transport
        request = read_request(body)
        problem = uuid_problem(request.uuid) or address_problem(request.host, request.port)
        if problem:
            raise ProtocolError(f"invalid handshake: {problem}")
        channel = channel_of(transport.get_extra_info("ssl_object")) if transport is not None else b""
        proved = proved_secrets(network.secrets, self._opening, request, channel)
        if not any(proved):
            if transport is not None:
                transport.write(doors.REFUSED_SECRET)
                transport.close()  # Not abort(), so that the member receives the reason.
                self._transport = None
            network.on_wrong_secret(request)
            # Drop the rest: another request would be a second guess, checked without a channel binding.
            self._start = self._end
            return
        protocol = common_version(network.speaks, request.speaks)
        if not protocol:
            if transport is not None:
                transport.write(doors.REFUSED_PROTOCOL)
                transport.close()
                self._transport = None
            network.on_incompatible(request)
            self._start = self._end
            return
        self._request = request
        if transport is not None:
            secret = network.secrets[proved.index(True)]
            transport.write(welcome_of(secret, self._opening, request, channel))
        network.on_authenticated(self, request, proved, protocol)

    @property
    def member(self) -> str:
        return self._request.uuid if self._request else ""
