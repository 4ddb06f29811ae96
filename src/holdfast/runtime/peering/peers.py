"""TCP connections between members.

A member opens one connection to each address that it sends to, and receives on the connections that other members have
opened to it. So two members that send to each other have two connections, one for each direction.

A connection begins with a handshake, in which both members prove that they know `security.member_secret`
(`runtime/peering/greetings.py`). Nothing else is parsed before. Then come frames: packets of a link, which the link
repeats if they are lost, or datagrams, which may be lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import cast

from holdfast.config import LimitSettings, Settings, parse_address
from holdfast.config.client_tls import handshake_problem
from holdfast.core.events import PeerSilent, SeedAbsent, SeedBehind
from holdfast.core.model.ids import Address, MemberId
from holdfast.core.model.protocols import Speaks, protocol_mismatch, spoken
from holdfast.engine.driver import Driver
from holdfast.errors import ProtocolError, UnknownMessage
from holdfast.runtime.doors.strangers import Strangers
from holdfast.runtime.doors.tls import MemberTls
from holdfast.runtime.peering.dns_names import Names, Place, shown
from holdfast.runtime.peering.greetings import (
    NONCE_BYTES,
    OF_THIS_BUILD,
    OPENING_BYTES,
    WELCOME_BYTES,
    Greeting,
    channel_of,
    framed,
    greeting_of,
    is_welcome,
    opened_by,
    opening_of,
    read_greeting,
    secrets_of,
    shown_secrets,
    spoken_there,
    welcome_of,
)
from holdfast.runtime.peering.seed_places import SeedPlaces
from holdfast.server.logins import net_of
from holdfast.server.quota import Quota
from holdfast.wire import doors
from holdfast.wire.bounds import address_problem, uuid_problem

FRAME = struct.Struct("<IB")
"""Header of a frame: length of everything after the length field, and kind."""
PACKET, WHISPER = 0, 1
LENGTH_BYTES = 4
GREETING_BYTES_MAX = 4096
FRAME_BYTES_MAX = 256 * 1024 * 1024
RETRY_S = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Pauses after failed attempts to connect. After the last one, the next attempt is made when something is sent."""
REFUSALS_TO_SILENCE = 3
"""Refused connections after which the members at an address are reported as silent."""
GREETING_TIMEOUT_S = 5.0
SPEAK_AFTER_S = 2.0
"""A connecting member that has received nothing for so long sends its first bytes. If the port is one for clients, the
other side has waited for them, and now replies with the right port."""
SAME_MEMBER_MAX = 4
"""Connections that one member may have open to this one. It needs one, and one more for each other address by which it
finds this member; this side may not have noticed yet that older ones have ended. Beyond the limit the oldest is closed.
"""
WHISPERS_KEPT = 16
"""Datagrams that wait for a connection; further ones are dropped."""
READ_BYTES = 1024 * 1024
"""Size of a receive buffer. A longer frame gets a larger buffer, which grows while the frame arrives."""
APART_BYTES = 16 * 1024
"""Packets of this size or more are written separately from their header, which saves a copy."""
TURN_NS = 500_000
"""Time for the frames of one connection in one turn of the event loop, because clients wait meanwhile. Then the
responses are sent, and the next turn begins with the remaining frames."""
UNREAD_BYTES_MAX = 64 * 1024 * 1024
"""Limit of the write buffer of one connection. Packets above it are dropped, and their link repeats them."""
SILENT_TCP_MS = 10_000
"""A connection whose data is not acknowledged by TCP for so long is closed and replaced."""

log = logging.getLogger("holdfast")


REFUSED = "members refused: wrong secret"
REFUSED_KEPT = 16
"""Maximum number of rejected addresses that are remembered for the status."""
REFUSED_S = 60.0
"""Seconds for which the status shows a rejected address."""
DENIED = (
    "it does not let this member in: its security.member_secret is another one. Give this member the same; do not "
    "start it with --bootstrap, which would form a second cluster"
)


class SecretRefused(ProtocolError):
    """One of the two members does not know the other's secret."""


class ProtocolNotSpoken(ProtocolError):
    """The two members have no version of the member protocol in common."""


class OwnDoor(Exception):
    """The address leads back to this member."""


class Incoming(asyncio.BufferedProtocol):
    """A connection that another member has opened. Frames are parsed in the receive buffer, without a copy."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._room = memoryview(bytearray(GREETING_BYTES_MAX + FRAME.size))
        self._start = self._end = 0
        """Where the received bytes that are not parsed yet begin and end in the buffer."""
        self._wanted = LENGTH_BYTES
        """Length of the next frame with its length field, as far as it is known."""
        self._greeting: Greeting | None = None
        self._opening = opening_of(network.uuid, os.urandom(NONCE_BYTES), network.speaks)
        self._transport: asyncio.Transport | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self._rests = False
        """Whether reading is paused so that other connections have their turn."""
        self.host = ""
        """IP address of the peer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        self.host = str((transport.get_extra_info("peername") or ("",))[0])
        self._network.knock(self)
        transport.write(self._opening)
        loop = asyncio.get_running_loop()
        self._timeout = loop.call_later(GREETING_TIMEOUT_S, self._too_late)

    def _too_late(self) -> None:
        if self._greeting is None:
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._network.gone(self)
        if self._timeout is not None:
            self._timeout.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self._handle()
        self._network.came(nbytes)

    def _handle(self) -> None:
        """Handle the complete frames, for about `TURN_NS`. The rest waits for the next turn; nothing is read before."""
        until_ns = time.monotonic_ns() + TURN_NS
        self._network.gather()
        try:
            while self._frame():
                if time.monotonic_ns() >= until_ns and self._start < self._end:
                    self._rest()
                    return
            self._make_room()
            if self._rests:
                self._rests = False
                if self._transport is not None:
                    self._transport.resume_reading()
        except Exception as error:  # noqa: BLE001  (malformed bytes end their connection, and nothing else)
            self._network.strangers.tell(
                "member connections closed: protocol error", "connection of a member closed: %s", error
            )
            self.close()
        finally:
            self._network.send_gathered()

    def _rest(self) -> None:
        """Pause reading, and continue in the next turn of the event loop."""
        if not self._rests and self._transport is not None:
            self._rests = True
            self._transport.pause_reading()
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Continue after `_rest`. If the connection has ended, the rest is dropped, and the links repeat it."""
        if self._transport is not None and not self._transport.is_closing():
            self._handle()

    def _frame(self) -> bool:
        """Handle the next frame if it is complete. Returns whether it was."""
        start, here = self._start, self._end - self._start
        self._wanted = LENGTH_BYTES
        if here < LENGTH_BYTES:
            return False
        length = int.from_bytes(self._room[start : start + LENGTH_BYTES], "little")
        if length > (FRAME_BYTES_MAX if self._greeting else GREETING_BYTES_MAX):
            stranger = "" if self._greeting else doors.who(bytes(self._room[start : start + LENGTH_BYTES]))
            if stranger.endswith("TLS client"):
                raise ProtocolError(
                    f"{stranger} came to {doors.MEMBERS_PORT}, which speaks none (tls.certificate)"
                )
            if stranger:
                self._tell_port(stranger)
                raise ProtocolError(f"{stranger} came to {doors.MEMBERS_PORT}; clients have another one")
            raise ProtocolError(f"a frame of {length} bytes is too long")
        self._wanted += length
        if here < self._wanted:
            return False
        frame = self._room[start : start + self._wanted]
        self._start += self._wanted
        assert self._start <= self._end <= len(self._room), "a frame is handled when all of it is here"
        if self._greeting is None:
            self._greet(frame[LENGTH_BYTES:])
        elif len(frame) < FRAME.size:
            raise ProtocolError(f"a frame of {length} bytes is too short")
        else:
            _, kind = FRAME.unpack_from(frame)
            if kind not in (PACKET, WHISPER):
                raise ProtocolError(f"there are no frames of kind {kind}")
            self._network.arrived(self._greeting, kind, frame[FRAME.size :])
        return True

    def _tell_port(self, stranger: str) -> None:
        """Send a client the port that it should use. Only without TLS: with TLS, only members get this far."""
        transport = self._transport
        if transport is not None:
            http = stranger == doors.HTTP
            transport.write(doors.NOT_HTTP if http else doors.other_port(self._network.client_port))
            transport.close()  # Not abort(), so that the client receives the reply.
            self._transport = None

    def _make_room(self) -> None:
        """Make room in the buffer for the rest of the next frame.

        The buffer for a long frame at most doubles each time it is full. So a length field alone cannot make this
        member allocate the 256 MiB of the longest frame: the peer has to send them.
        """
        here, size = self._end - self._start, len(self._room)
        if self._greeting is not None:
            if self._wanted <= READ_BYTES:
                size = READ_BYTES
            elif here >= size:
                size = min(self._wanted, max(READ_BYTES, 2 * size))
        same = size == len(self._room)
        if here and same and self._end < size and self._start + min(self._wanted, size) <= size:
            return
        left = self._room[self._start : self._end]
        if not same:
            self._room = memoryview(bytearray(size))
        self._room[:here] = left
        self._start, self._end = 0, here

    def _greet(self, body: memoryview) -> None:
        network, transport = self._network, self._transport
        greeting = read_greeting(body)
        why = uuid_problem(greeting.uuid) or address_problem(greeting.host, greeting.port)
        if why:
            raise ProtocolError(f"invalid handshake: {why}")
        channel = channel_of(transport.get_extra_info("ssl_object")) if transport is not None else b""
        shown = shown_secrets(network.secrets, self._opening, greeting, channel)
        if not any(shown):
            if transport is not None:
                transport.write(doors.REFUSED_SECRET)
                transport.close()  # Not abort(), so that the member receives the reason.
                self._transport = None
            network.refuses(greeting)
            # Drop what follows: another greeting would be a second guess, and be checked without a channel binding.
            self._start = self._end
            return
        protocol = spoken(network.speaks, greeting.speaks)
        if not protocol:
            if transport is not None:
                transport.write(doors.REFUSED_PROTOCOL)
                transport.close()
                self._transport = None
            network.not_spoken(greeting)
            self._start = self._end
            return
        self._greeting = greeting
        if transport is not None:
            secret = network.secrets[shown.index(True)]
            transport.write(welcome_of(secret, self._opening, greeting, channel))
        network.shown[greeting.uuid] = shown
        network.protocols[greeting.uuid] = protocol
        network.greeted(self, greeting)

    @property
    def member(self) -> str:
        """UUID of the member; empty until it is authenticated."""
        return self._greeting.uuid if self._greeting else ""


class Outgoing:
    """The connection to one address: opened when there is something to send, and again if it breaks while a member of
    the view has the address.
    """

    def __init__(self, network: Network, address: Address, name: str = "") -> None:
        """`name`: host name that the certificate there must have; empty: that of the address."""
        self._network = network
        self.address = address
        self._name = name
        self._transport: asyncio.Transport | None = None
        self._protocol: Handshake | None = None
        self._task: asyncio.Task[None] | None = None
        self._gathered: list[bytes] = []
        self._whispers: list[bytes] = []
        self._closed = False
        self._refusals = 0

    @property
    def member(self) -> str:
        """The UUID of the member at the other end; empty while there is no connection."""
        return self._protocol.member if self._protocol is not None else ""

    def send(self, frame: bytes, body: bytes = b"", *, whisper: bool) -> None:
        """Send a frame (`body`: its second part, if that is separate) now, or with others that are being collected.
        Without a connection a datagram waits for one, and a packet is dropped, because its link repeats it.
        """
        transport = self._transport
        if transport is not None:
            if whisper or transport.get_write_buffer_size() < UNREAD_BYTES_MAX:
                self._gathered.append(frame)
                if body:
                    self._gathered.append(body)
                if not self._network.gathers(self):
                    self.send_gathered()
            # Otherwise the peer does not read. The link repeats this packet when it does.
            return
        if whisper and len(self._whispers) < WHISPERS_KEPT:
            self._whispers.append(frame)
            assert len(self._whispers) <= WHISPERS_KEPT
        self._connect()

    def send_gathered(self) -> None:
        """Write the collected frames in one call."""
        frames, self._gathered = self._gathered, []
        if self._transport is None:
            return  # The connection was lost meanwhile: links repeat their packets.
        if len(frames) == 1:
            self._transport.write(frames[0])
        else:
            self._transport.writelines(frames)

    def _connect(self) -> None:
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._connecting())

    async def _connecting(self) -> None:
        try:
            for pause_s in RETRY_S:
                try:
                    await self._once()
                    return
                except OwnDoor:
                    self._whispers.clear()
                    self._network.seed_places.at(self.address, self._network.uuid)
                    return
                except ConnectionRefusedError:
                    self._refusals += 1
                    self._network.refused(self.address, self._refusals)
                except TimeoutError:
                    silent = f"no handshake: a member that hangs, or not {doors.MEMBERS_PORT}"
                    self._network.trouble(self.address, silent)
                except SecretRefused as error:
                    self._network.trouble(self.address, str(error), final=True)
                except ProtocolError as error:
                    self._network.trouble(self.address, str(error))
                except ssl.SSLError as error:
                    self._network.trouble(
                        self.address, f"no TLS with the one there: {handshake_problem(error)}"
                    )
                except Exception as error:  # noqa: BLE001  (also errors of the resolver for impossible host names)
                    self._network.strangers.tell(
                        "failed connections to members",
                        "no connection to member %s: %s",
                        self.address,
                        error,
                        level=logging.DEBUG,
                    )
                await asyncio.sleep(pause_s)
            self._whispers.clear()
            self._network.given_up(self)
        finally:
            self._task = None

    async def _once(self) -> None:
        loop = asyncio.get_running_loop()
        network = self._network
        async with asyncio.timeout(GREETING_TIMEOUT_S):
            context = network.tls.contexts.outgoing if network.tls is not None else None
            transport, protocol = await loop.create_connection(
                lambda: Handshake(self),
                self.address.host,
                self.address.port,
                ssl=context,
                server_hostname=(self._name or None) if context is not None else None,
            )
            try:
                await self._greet(transport, protocol)
            except BaseException:
                transport.abort()
                raise
        self._refusals = 0
        sock = transport.get_extra_info("socket")
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_TCP_MS)
        whispers, self._whispers = self._whispers, []
        for frame in whispers:
            transport.write(frame)
        self._transport, self._protocol = transport, protocol
        network.seed_places.at(self.address, protocol.member)
        network.connected(self.address)

    async def _greet(self, transport: asyncio.Transport, protocol: Handshake) -> None:
        """Authenticate both members. Raises SecretRefused, ProtocolError, OwnDoor, OSError."""
        network = self._network
        opening = await self._opening(transport, protocol)
        protocol.member = opened_by(opening)
        if protocol.member == network.uuid:
            raise OwnDoor
        channel = channel_of(transport.get_extra_info("ssl_object"))
        who = (network.uuid, network.address.host, network.address.port)
        greeting = greeting_of(network.secrets, opening, who, channel, network.speaks)
        # Even without a common version, so that the other member can report the mismatch too.
        transport.write(framed(greeting))
        there = spoken_there(opening)
        if not spoken(network.speaks, there):
            with suppress(ProtocolNotSpoken, OSError):
                await protocol.welcome
            raise ProtocolNotSpoken(protocol_mismatch(network.speaks, there))
        if not is_welcome(await protocol.welcome, network.secrets, opening, greeting, channel):
            raise SecretRefused(
                "the one there does not know security.member_secret: it is none of this cluster"
            )

    async def _opening(self, transport: asyncio.Transport, protocol: Handshake) -> bytes:
        """Wait for the other side's first message. A server for clients sends none, so after a while this sends the
        first bytes of a member, to which such a server replies with the right port.
        """
        done, _ = await asyncio.wait({protocol.opening}, timeout=SPEAK_AFTER_S)
        if not done:
            transport.write(doors.MEMBER)
        return await protocol.opening

    def lost(self, protocol: Handshake) -> None:
        """A connection broke. If it is the present one, connect again while a member of the view has the address."""
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


class Handshake(asyncio.Protocol):
    """Receiving side of an outgoing connection: opening, welcome, and then only the loss of the connection. The other
    member sends its frames on a connection of its own.
    """

    def __init__(self, outgoing: Outgoing) -> None:
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
                self._fails(SecretRefused(DENIED))
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
        """End the handshake with this error."""
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
                exc if isinstance(exc, ssl.SSLError) else ConnectionResetError("closed before the greeting")
            )


class Network:
    """All connections of this member with other members."""

    def __init__(
        self,
        settings: Settings,
        uuid: str,
        address: Address,
        strangers: Strangers | None = None,
        tls: MemberTls | None = None,
        speaks: Speaks = OF_THIS_BUILD,
    ) -> None:
        """`tls`: TLS contexts for connections between members; None: they use none. `speaks`: the supported versions of
        the member protocol.
        """
        self.tls = tls
        self.speaks = speaks
        self.protocols: dict[str, int] = {}
        """Version of the member protocol in use with each connected member, by UUID."""
        self.secrets = secrets_of(settings.security)
        self.shown: dict[str, list[bool]] = {}
        """For each connected member, by UUID: which of this member's secrets its latest greeting has proved."""
        self._refused: dict[Address, float] = {}
        """Members that were rejected because of their secret, by address, and when (monotonic seconds)."""
        self.strangers = strangers or Strangers()
        self.uuid = uuid
        self.address = address
        self.client_port = 0
        """Port for clients; clients that connect to this port are sent there."""
        self.driver: Driver
        self.failed: Callable[[Exception], None]
        """Called for an internal error, which stops the member. Malformed bytes of a peer only end its connection."""
        self.came: Callable[[int], None] = lambda size: None
        """Called with the number of bytes of each read."""
        seeds = self._seeds = [Address(host, port) for host, port in settings.seed_addresses()]
        servers = [parse_address(one, "cluster.dns_servers") for one in settings.cluster.dns_servers]
        self.seed_places = SeedPlaces(seeds, Names(seeds, servers), uuid, self)
        self.incoming: set[Incoming] = set()
        self.troubles: dict[Address, str] = {}
        """Why a process that listens at an address cannot be used, or why a name has no address; in words."""
        self.denied_by: set[Address] = set()
        """Addresses where the handshake failed because the secrets differ."""
        self._half_open: Quota[Incoming] = Quota(settings.limits.unauthenticated_connections)
        self._greeted: Quota[Incoming] = Quota(settings.limits.member_connections)
        self._of_member: dict[str, list[Incoming]] = {}
        """Connections of each authenticated member, by UUID, oldest first."""
        self._outgoing: dict[Address, Outgoing] = {}
        self._peers: dict[MemberId, Address] = {}
        self._server: asyncio.Server | None = None
        self._running = False
        """From `begin` to `stop`. The port is open before `begin`; frames that arrive then are dropped as if lost."""
        self._gathering = False
        """While received frames are handled: what is sent meanwhile leaves together."""
        self._unsent: list[Outgoing] = []

    def begin(self, driver: Driver) -> None:
        """Deliver what arrives to this driver from now on."""
        self.driver = driver
        self._running = True

    async def listen(self, server: asyncio.Server) -> None:
        """Take over the listening socket."""
        self._server = server

    # -- calls of the engine (`engine/ports.py`)

    def open(self, member: MemberId, address: Address) -> None:
        """Send packets for this member to this address; the first one opens a connection."""
        self._peers[member] = address

    def close(self, member: MemberId) -> None:
        """Drop further packets for this member. The connection is closed unless another member has the address."""
        address = self._peers.pop(member, None)
        if address is not None and not self.needed(address):
            outgoing = self._outgoing.pop(address, None)
            if outgoing is not None:
                outgoing.close()

    def carry(self, member: MemberId, packet: bytes) -> None:
        address = self._peers.get(member)
        if address is not None:
            header = FRAME.pack(FRAME.size - LENGTH_BYTES + len(packet), PACKET)
            if len(packet) < APART_BYTES:
                self._to(address).send(header + packet, whisper=False)
            else:
                self._to(address).send(header, packet, whisper=False)

    def send_datagram(self, address: Address, data: bytes) -> None:
        """Send a message that may be lost. A seed that is a DNS name gets it at each of its addresses."""
        if self._running:
            frame = FRAME.pack(FRAME.size - LENGTH_BYTES + len(data), WHISPER) + data
            if self.seed_places.has(address) and not self.needed(address):
                self.seed_places.ask(address, frame)
            else:
                self._to(address).send(frame, whisper=True)

    # -- seeds that are DNS names

    def ask_place(self, place: Place, frame: bytes) -> MemberId | None:
        """Send a frame to an address of a seed. Returns the member there if it is connected already."""
        if not self._running:
            return None
        outgoing = self._to(place.address, place.name)
        outgoing.send(frame, whisper=True)
        return MemberId(outgoing.member) if outgoing.member else None

    def found_behind(self, seed: Address, members: tuple[MemberId, ...]) -> None:
        """All addresses of the seed were tried, and these members are there."""
        if self._running:
            self._tell(partial(self.driver.handle, SeedBehind(seed, members)))

    def found_absent(self, seed: Address) -> None:
        """The name has no address in the DNS."""
        if self._running:
            self._tell(partial(self.driver.handle, SeedAbsent(seed)))

    def no_trouble(self, address: Address) -> None:
        """The name can be resolved again."""
        self.troubles.pop(address, None)

    def denied_everywhere(self) -> str:
        """The seeds, if the secret differs at all their addresses; empty otherwise."""
        seeds = [seed for seed in self._seeds if seed != self.address]
        denied = all(self.seed_places.addresses(seed) <= self.denied_by for seed in seeds)
        return ", ".join(sorted(map(shown, seeds))) if denied else ""

    def told_troubles(self) -> list[str]:
        """One line for each address that cannot be used, with the reason."""
        return [f"{shown(address)}: {why}" for address, why in self.troubles.items()]

    def gather(self) -> None:
        """Collect frames until `send_gathered`, so that they leave together."""
        self._gathering = True

    def gathers(self, outgoing: Outgoing) -> bool:
        """Whether frames are being collected; if so, `send_gathered` sends those of this connection too."""
        if self._gathering and outgoing not in self._unsent:
            self._unsent.append(outgoing)
        return self._gathering

    def send_gathered(self) -> None:
        """Send the collected frames, and stop collecting."""
        self._gathering = False
        unsent, self._unsent = self._unsent, []
        for outgoing in unsent:
            outgoing.send_gathered()

    def _to(self, address: Address, name: str = "") -> Outgoing:
        outgoing = self._outgoing.get(address)
        if outgoing is None:
            outgoing = self._outgoing[address] = Outgoing(self, address, name)
        return outgoing

    # -- incoming connections

    def allow(self, limits: LimitSettings) -> None:
        """Apply changed limits. Present connections stay."""
        self._greeted.allow(limits.member_connections)

    def knock(self, incoming: Incoming) -> None:
        """Count a new connection that is not authenticated yet. The oldest one of the greediest network may be closed
        for it (`server/quota.py`).
        """
        self.incoming.add(incoming)
        oldest = self._half_open.add(incoming, net_of(incoming.host))
        self._make_way(oldest, "limits.unauthenticated_connections")

    def greeted(self, incoming: Incoming, greeting: Greeting) -> None:
        """The connection is authenticated."""
        self._half_open.remove(incoming)
        self._make_way(self._greeted.add(incoming, incoming.host), "limits.member_connections")
        mine = self._of_member.setdefault(greeting.uuid, [])
        mine.append(incoming)
        if len(mine) > SAME_MEMBER_MAX:
            self._make_way(mine[0], f"{SAME_MEMBER_MAX} connections of one member")

    def refuses(self, greeting: Greeting) -> None:
        """The member knows no secret of this one: log and remember that."""
        address = Address(greeting.host, greeting.port)
        self.strangers.tell(
            REFUSED,
            "security.member_secret of %s differs from this member's: it is rejected",
            address,
        )
        self._refused.pop(address, None)
        self._refused[address] = time.monotonic()
        if len(self._refused) > REFUSED_KEPT:
            del self._refused[next(iter(self._refused))]

    def not_spoken(self, greeting: Greeting) -> None:
        """The member knows the secret, but has no common version of the member protocol with this one."""
        self.strangers.tell(
            "members refused: incompatible protocol",
            "no connection from a member at %s: %s",
            Address(greeting.host, greeting.port),
            protocol_mismatch(self.speaks, greeting.speaks),
        )

    def protocol_figures(self) -> dict[str, object]:
        """Supported versions of the member protocol, and the one in use with each member by UUID; for the status."""
        spoken_with = dict(sorted(self.protocols.items()))
        return {"lowest": self.speaks.lowest, "highest": self.speaks.highest, "versions": spoken_with}

    def secret_figures(self) -> dict[str, object]:
        """Which members, by UUID, have not proved which secret, and which addresses were rejected; for the status."""
        now_s = time.monotonic()
        return {
            "set": bool(self.secrets[0]),
            "second": len(self.secrets) > 1,
            "lacking_first": sorted(uuid for uuid, shown in self.shown.items() if not shown[0]),
            "lacking_second": sorted(uuid for uuid, shown in self.shown.items() if not shown[-1]),
            "refused": [str(at) for at, when_s in self._refused.items() if now_s - when_s < REFUSED_S],
        }

    def _make_way(self, oldest: Incoming | None, limit: str) -> None:
        if oldest is not None:
            log.debug("connection of a member from %s closed for a newer one: %s", oldest.host, limit)
            self.gone(oldest)
            oldest.close()

    def gone(self, incoming: Incoming) -> None:
        """The connection has ended."""
        self.incoming.discard(incoming)
        self._half_open.remove(incoming)
        self._greeted.remove(incoming)
        mine = self._of_member.get(incoming.member, [])
        if incoming in mine:
            mine.remove(incoming)
            if not mine:
                del self._of_member[incoming.member]
                self.shown.pop(incoming.member, None)
                self.protocols.pop(incoming.member, None)
        assert incoming not in self._half_open and incoming not in self._greeted, "who is gone takes no place"

    # -- events of connections

    def needed(self, address: Address) -> bool:
        """Whether a member of the view has this address."""
        return any(home == address for home in self._peers.values())

    def arrived(self, greeting: Greeting, kind: int, body: bytes | memoryview) -> None:
        """Handle a frame: a packet of a link, or a datagram. Raises ProtocolError if it cannot be read."""
        if not self._running:
            return
        if kind == WHISPER:
            try:
                self._tell(partial(self.driver.whispered, Address(greeting.host, greeting.port), body))
            except UnknownMessage as error:
                # A datagram may come from a process that does not know the feature level in force: a newer build may
                # use a message that this one does not know (wire/C-2).
                self.strangers.tell(
                    "messages dropped: unknown kind",
                    "left out: %s",
                    error,
                    level=logging.DEBUG,
                )
        else:
            self._tell(partial(self.driver.packet, MemberId(greeting.uuid), body))

    def _tell(self, deed: Callable[[], None]) -> None:
        try:
            deed()
        except ProtocolError:
            raise  # The bytes are malformed, and nothing has changed.
        except Exception as error:  # noqa: BLE001  (any error here stops the member)
            self.failed(error)

    def trouble(self, address: Address, why: str, *, final: bool = False) -> None:
        """Record and log why an address cannot be used. `final`: the secrets differ, so a setting must change first."""
        if self.troubles.get(address) != why:
            self.strangers.tell(
                "failed connections to members", "no connection to a member at %s: %s", shown(address), why
            )
        self.troubles[address] = why
        if final:
            self.denied_by.add(address)

    def connected(self, address: Address) -> None:
        """A new connection is open. Packets sent on the old one may be lost, so the links repeat them."""
        self.denied_by.discard(address)
        self.troubles.pop(address, None)
        for member, home in list(self._peers.items()):
            if home == address:
                self._tell(partial(self.driver.reconnected, member))

    def given_up(self, outgoing: Outgoing) -> None:
        """All attempts failed. Forget the address unless a member of the view has it: a process outside the view can
        name any address in its greeting, and they would add up.
        """
        address = outgoing.address
        if not self.needed(address) and self._outgoing.get(address) is outgoing:
            del self._outgoing[address]

    def refused(self, address: Address, times: int) -> None:
        """The connection was refused, so nothing listens there."""
        self.seed_places.refuses(address)
        self._tell(partial(self.driver.handle, SeedAbsent(address)))
        if times >= REFUSALS_TO_SILENCE:
            for member, home in list(self._peers.items()):
                if home == address:
                    self._tell(partial(self.driver.handle, PeerSilent(member)))

    async def stop(self) -> None:
        self._running = False
        self.seed_places.stop()
        if self._server is not None:
            self._server.close()
        for outgoing in self._outgoing.values():
            outgoing.close()
        for incoming in list(self.incoming):
            incoming.close()
        self._outgoing.clear()
