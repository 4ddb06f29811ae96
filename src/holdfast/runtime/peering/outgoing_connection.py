"""Connection that this member opens to an address, to send frames there."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from contextlib import suppress
from typing import Protocol

from holdfast.config.client_tls import handshake_problem
from holdfast.core.model.ids import Address
from holdfast.core.model.protocols import ProtocolRange, common_version, protocol_mismatch
from holdfast.errors import ProtocolError
from holdfast.runtime.doors.connection_log import ConnectionLog
from holdfast.runtime.doors.tls import MemberTls
from holdfast.runtime.peering.member_handshake import (
    HANDSHAKE_TIMEOUT_S,
    OPENING_BYTES,
    WELCOME_BYTES,
    channel_of,
    framed,
    is_welcome,
    protocols_of,
    request_of,
    uuid_of,
)
from holdfast.runtime.peering.seed_places import SeedPlaces
from holdfast.wire import doors

RETRY_S = (0.01, 0.03, 0.1, 0.3, 0.9)
"""Pauses after failed attempts to connect. After the last one, the next attempt is made when something is
sent. The first ones are short, because requests wait until a member whose process has ended is removed: after
40 ms its port has refused three connections (`member_network.REFUSALS_TO_SILENCE`).
"""
SPEAK_AFTER_S = 2.0
"""A connecting member that has received nothing for so long sends its first bytes. A port for clients waits
for these, and responds with the right port.
"""
DATAGRAMS_KEPT = 16
UNREAD_BYTES_MAX = 64 * 1024 * 1024
"""Limit of the write buffer of one connection. Packets above it are dropped, and their link repeats them."""
SILENT_TCP_MS = 10_000
"""A connection whose data is not acknowledged by TCP for so long is closed and replaced."""
NOT_ADMITTED = (
    "it does not let this member in: its security.member_secret is another one. Give this member the same; do not "
    "start it with --bootstrap, which would form a second cluster"
)


class SecretRefused(ProtocolError):
    """One of the two members does not know the other's secret."""


class ProtocolNotSpoken(ProtocolError):
    """The two members have no version of the member protocol in common."""


class OwnAddress(Exception):
    """The address leads back to this member."""


class OutgoingOwner(Protocol):
    uuid: str
    address: Address
    tls: MemberTls | None
    speaks: ProtocolRange
    secrets: tuple[str, ...]
    connection_log: ConnectionLog
    seed_places: SeedPlaces

    def gathers(self, outgoing: OutgoingConnection) -> bool: ...

    def needed(self, address: Address) -> bool: ...

    def on_open(self, address: Address) -> None: ...

    def on_refused(self, address: Address, times: int) -> None: ...

    def on_given_up(self, outgoing: OutgoingConnection) -> None: ...

    def record_failure(self, address: Address, problem: str, *, final: bool = False) -> None: ...


class OutgoingConnection:
    """The connection to one address, opened when there is something to send, and again if it breaks while a
    member of the view has the address.
    """

    def __init__(self, network: OutgoingOwner, address: Address, name: str = "") -> None:
        """`name`: host name that the certificate there must have; empty: that of the address."""
        self._network = network
        self.address = address
        self._name = name
        self._transport: asyncio.Transport | None = None
        self._protocol: OutgoingHandshake | None = None
        self._task: asyncio.Task[None] | None = None
        self._gathered: list[bytes] = []
        self._datagrams: list[bytes] = []
        self._closed = False
        self._refusals = 0

    @property
    def member(self) -> str:
        return self._protocol.member if self._protocol is not None else ""

    def send(self, frame: bytes, body: bytes = b"", *, datagram: bool) -> None:
        """Send a frame (`body`: its second part) now, or with others that are being collected. Without a
        connection a datagram waits, and a packet is dropped, because its link repeats it.
        """
        transport = self._transport
        if transport is not None:
            if datagram or transport.get_write_buffer_size() < UNREAD_BYTES_MAX:
                self._gathered.append(frame)
                if body:
                    self._gathered.append(body)
                if not self._network.gathers(self):
                    self.send_gathered()
            # The peer does not read. The link repeats this packet when it does.
            return
        if datagram and len(self._datagrams) < DATAGRAMS_KEPT:
            self._datagrams.append(frame)
            assert len(self._datagrams) <= DATAGRAMS_KEPT
        self._connect()

    def send_gathered(self) -> None:
        frames, self._gathered = self._gathered, []
        if self._transport is None:
            return  # The connection was lost meanwhile: links repeat their packets.
        if len(frames) == 1:
            self._transport.write(frames[0])
        else:
            self._transport.writelines(frames)

    def _connect(self) -> None:
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._connect_with_retries())

    async def _connect_with_retries(self) -> None:
        try:
            for pause_s in RETRY_S:
                try:
                    await self._connect_once()
                    return
                except OwnAddress:
                    self._datagrams.clear()
                    self._network.seed_places.at(self.address, self._network.uuid)
                    return
                except ConnectionRefusedError:
                    self._refusals += 1
                    self._network.on_refused(self.address, self._refusals)
                except TimeoutError:
                    silent = f"no handshake: a member that hangs, or not {doors.MEMBERS_PORT}"
                    self._network.record_failure(self.address, silent)
                except SecretRefused as error:
                    self._network.record_failure(self.address, str(error), final=True)
                except ProtocolError as error:
                    self._network.record_failure(self.address, str(error))
                except ssl.SSLError as error:
                    self._network.record_failure(
                        self.address, f"no TLS with the one there: {handshake_problem(error)}"
                    )
                except Exception as error:  # noqa: BLE001  (also errors of the resolver for impossible host names)
                    self._network.connection_log.report(
                        "failed connections to members",
                        "no connection to member %s: %s",
                        self.address,
                        error,
                        level=logging.DEBUG,
                    )
                await asyncio.sleep(pause_s)
            self._datagrams.clear()
            self._network.on_given_up(self)
        finally:
            self._task = None

    async def _connect_once(self) -> None:
        loop = asyncio.get_running_loop()
        network = self._network
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            context = network.tls.contexts.outgoing if network.tls is not None else None
            transport, protocol = await loop.create_connection(
                lambda: OutgoingHandshake(self),
                self.address.host,
                self.address.port,
                ssl=context,
                server_hostname=(self._name or None) if context is not None else None,
            )
            try:
                await self._authenticate(transport, protocol)
            except BaseException:
                transport.abort()
                raise
        self._refusals = 0
        sock = transport.get_extra_info("socket")
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_TCP_MS)
        datagrams, self._datagrams = self._datagrams, []
        for frame in datagrams:
            transport.write(frame)
        self._transport, self._protocol = transport, protocol
        network.seed_places.at(self.address, protocol.member)
        network.on_open(self.address)

    async def _authenticate(self, transport: asyncio.Transport, protocol: OutgoingHandshake) -> None:
        """Raises SecretRefused, ProtocolError, OwnAddress, OSError."""
        network = self._network
        opening = await self._opening(transport, protocol)
        protocol.member = uuid_of(opening)
        if protocol.member == network.uuid:
            raise OwnAddress
        channel = channel_of(transport.get_extra_info("ssl_object"))
        who = (network.uuid, network.address.host, network.address.port)
        request = request_of(network.secrets, opening, who, channel, network.speaks)
        # Even without a common version, so that the other member can report the mismatch too.
        transport.write(framed(request))
        there = protocols_of(opening)
        if not common_version(network.speaks, there):
            with suppress(ProtocolNotSpoken, OSError):
                await protocol.welcome
            raise ProtocolNotSpoken(protocol_mismatch(network.speaks, there))
        if not is_welcome(await protocol.welcome, network.secrets, opening, request, channel):
            raise SecretRefused(
                "the one there does not know security.member_secret: it is none of this cluster"
            )

    async def _opening(self, transport: asyncio.Transport, protocol: OutgoingHandshake) -> bytes:
        """Wait for the peer's first message. A port for clients sends none, so after a while this sends the
        first bytes of a member, to which such a port responds with the right one.
        """
        done, _ = await asyncio.wait({protocol.opening}, timeout=SPEAK_AFTER_S)
        if not done:
            transport.write(doors.MEMBER)
        return await protocol.opening

    def lost(self, protocol: OutgoingHandshake) -> None:
        """If the present connection broke, connect again while a member of the view has the address."""
        if protocol is not self._protocol:
            return
        self._transport = self._protocol = None
        self._network.seed_places.unknown(self.address)
        if not self._closed and self._network.needed(self.address):
            self._connect()

    def close(self) -> None:
        """Close the connection, send nothing more to this address, and drop what waits."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()
            self._transport = None


class OutgoingHandshake(asyncio.Protocol):
    """Receiving side of an outgoing connection: opening, welcome, then only the loss of the connection. The
    peer sends its frames on a connection of its own.
    """

    def __init__(self, outgoing: OutgoingConnection) -> None:
        self._outgoing = outgoing
        self._buffer = b""
        loop = asyncio.get_running_loop()
        self.opening: asyncio.Future[bytes] = loop.create_future()
        self.welcome: asyncio.Future[bytes] = loop.create_future()
        self.member = ""
        """UUID that the other side claims; proved once its welcome is verified."""

    def data_received(self, data: bytes) -> None:
        if self.welcome.done():
            return
        self._buffer += data
        if not self.opening.done():
            self._open()
        if self.opening.done() and not self.opening.cancelled() and self._buffer:
            if self._buffer.startswith(doors.REFUSED_SECRET):
                self._fails(SecretRefused(NOT_ADMITTED))
            elif self._buffer.startswith(doors.REFUSED_PROTOCOL):
                self._fails(
                    ProtocolNotSpoken("it speaks no version of the member protocol that this one does")
                )
            elif len(self._buffer) >= WELCOME_BYTES:
                self.welcome.set_result(self._buffer[:WELCOME_BYTES])

    def _open(self) -> None:
        port = doors.port_of(self._buffer)
        if port:
            self._fails(
                ProtocolError(f"there is {doors.CLIENTS_PORT}; give {doors.MEMBERS_PORT}, which is {port}")
            )
        elif doors.OTHER_PORT.startswith(self._buffer[: len(doors.OTHER_PORT)]):
            return  # The rest has not arrived yet.
        elif not doors.MEMBER.startswith(self._buffer[: len(doors.MEMBER)]):
            there = doors.who(self._buffer) or "no Holdfast member"
            if there == doors.A_TLS_SERVER:
                there += ", and this member speaks no TLS (tls.certificate); a member with the same settings is wanted"
            self._fails(ProtocolError(f"there is {there}; give {doors.MEMBERS_PORT}"))
        elif len(self._buffer) >= OPENING_BYTES:
            self.opening.set_result(self._buffer[:OPENING_BYTES])
            self._buffer = self._buffer[OPENING_BYTES:]

    def _fails(self, error: Exception) -> None:
        waiting = self.welcome if self.opening.done() else self.opening
        if not waiting.done():
            waiting.set_exception(error)
            # asyncio reports an exception that is never retrieved, and such a report stops the member
            # (`runtime/process.py`). Retrieve it here, since nothing may be waiting for it any more.
            waiting.exception()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.welcome.done():
            self._outgoing.lost(self)
        else:
            self._fails(
                exc if isinstance(exc, ssl.SSLError) else ConnectionResetError("closed before the request")
            )
