"""TCP between members: one connection to each address for what this member sends, others for what it hears.

Every connection begins with a greeting by which both members prove that they know `security.member_secret`
(`runtime/peering/greetings.py`), before which nothing else is parsed. Then come frames: packets of a link, or whispered
messages.
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
"""Length of what follows the length word, kind."""
PACKET, WHISPER = 0, 1
LENGTH_BYTES = 4
GREETING_BYTES_MAX = 4096
FRAME_BYTES_MAX = 256 * 1024 * 1024
RETRY_S = (0.05, 0.1, 0.2, 0.4, 0.8)
REFUSALS_TO_SILENCE = 3
GREETING_TIMEOUT_S = 5.0
SPEAK_AFTER_S = 2.0
"""Who connects, and is not greeted for so long, says who it is: the port may be another one."""
SAME_MEMBER_MAX = 4
"""Connections that one member has opened to this one. It needs one, and one more for each other address by which it
looks for this one; what it has replaced may not have ended here yet. For one more the oldest is closed."""
WHISPERS_KEPT = 16
READ_BYTES = 1024 * 1024
"""Room for what has arrived on one connection; a longer frame gets a room of its own size while it comes."""
APART_BYTES = 16 * 1024
"""From this size on a packet is not copied behind its header."""
TURN_NS = 500_000
"""So long the frames of one connection are handled in one turn of the loop, for clients wait meanwhile. What answers
there are leaves then, and the next turn begins with the rest."""
UNREAD_BYTES_MAX = 64 * 1024 * 1024
"""What may wait in the buffer of one connection; above it packets are left to their link to repeat."""
SILENT_TCP_MS = 10_000
"""After so long without a TCP acknowledgement a connection is given up, and made anew."""

log = logging.getLogger("holdfast")


REFUSED = "members refused: wrong secret"
REFUSED_KEPT = 16
"""Addresses of members of another secret that are remembered for the status,"""
REFUSED_S = 60.0
"""for so long."""
DENIED = (
    "it does not let this member in: its security.member_secret is another one. Give this member the same; do not "
    "start it with --bootstrap, which would form a second cluster"
)


class SecretRefused(ProtocolError):
    """The other member does not know the secret, or this one does not."""


class ProtocolNotSpoken(ProtocolError):
    """The two members have no version of the member protocol in common."""


class OwnDoor(Exception):
    """It is this member's own door, under another address."""


class Incoming(asyncio.BufferedProtocol):
    """A connection that another member has opened. What arrives is read in place, where the network has put it."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._room = memoryview(bytearray(GREETING_BYTES_MAX + FRAME.size))
        self._start = self._end = 0
        """Where in the room that begins and ends what was not read yet."""
        self._wanted = LENGTH_BYTES
        """How long the next frame is, as far as known."""
        self._greeting: Greeting | None = None
        self._opening = opening_of(network.uuid, os.urandom(NONCE_BYTES), network.speaks)
        self._transport: asyncio.Transport | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self._rests = False
        """Whether it lets others have their turn, and reads nothing."""
        self.host = ""
        """The address that it comes from."""

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
        """End the connection."""
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
        """Handle the frames that are here. What takes too long is left to the next turn, and nothing is read before."""
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
        except Exception as error:  # noqa: BLE001  (whatever bytes can do ends their connection, and nothing else)
            self._network.strangers.tell(
                "member connections closed: protocol error", "connection of a member closed: %s", error
            )
            self.close()
        finally:
            self._network.send_gathered()

    def _rest(self) -> None:
        """Let others have their turn before the next frame."""
        if not self._rests and self._transport is not None:
            self._rests = True
            self._transport.pause_reading()
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """The next turn has come. Of a connection that has ended nothing more is taken: its links repeat it."""
        if self._transport is not None and not self._transport.is_closing():
            self._handle()

    def _frame(self) -> bool:
        """Handle the next frame if all of it is here."""
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
        """Tell a client which port is for it. Without TLS only: with it nobody comes so far who is no member."""
        transport = self._transport
        if transport is not None:
            http = stranger == doors.HTTP
            transport.write(doors.NOT_HTTP if http else doors.other_port(self._network.client_port))
            transport.close()  # Not aborted: it is to hear that.
            self._transport = None

    def _make_room(self) -> None:
        """See to it that the rest of the next frame has a place behind what is here of it.

        Room for a long frame grows as it comes: what its first bytes announce is only said so far.
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
                transport.close()  # Not aborted: it is to hear why.
                self._transport = None
            network.refuses(greeting)
            self._start = self._end  # A second greeting behind it would be a second guess, of no channel.
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
        """The UUID of the member that has greeted; empty before."""
        return self._greeting.uuid if self._greeting else ""


class Outgoing:
    """The connection to one address, made again whenever it breaks and there is something to say."""

    def __init__(self, network: Network, address: Address, name: str = "") -> None:
        """`name`: which one a certificate there must have; empty: that of the address."""
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
        """Send it, with its body if that is apart, now or with what else is gathered. Without a connection a whisper
        waits for one, and a packet is left to its link to repeat.
        """
        transport = self._transport
        if transport is not None:
            if whisper or transport.get_write_buffer_size() < UNREAD_BYTES_MAX:
                self._gathered.append(frame)
                if body:
                    self._gathered.append(body)
                if not self._network.gathers(self):
                    self.send_gathered()
            # Else the peer does not read: what is left out here is sent again by the link when it does.
            return
        if whisper and len(self._whispers) < WHISPERS_KEPT:
            self._whispers.append(frame)
            assert len(self._whispers) <= WHISPERS_KEPT
        self._connect()

    def send_gathered(self) -> None:
        """Write what is gathered, in one piece."""
        frames, self._gathered = self._gathered, []
        if self._transport is None:
            return  # Lost in between: the links repeat it.
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
                except Exception as error:  # noqa: BLE001  (also what a resolver says of a host that none can be)
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
        """Prove to each other that both are of one cluster. Raises SecretRefused, ProtocolError, OSError."""
        network = self._network
        opening = await self._opening(transport, protocol)
        protocol.member = opened_by(opening)
        if protocol.member == network.uuid:
            raise OwnDoor
        channel = channel_of(transport.get_extra_info("ssl_object"))
        who = (network.uuid, network.address.host, network.address.port)
        greeting = greeting_of(network.secrets, opening, who, channel, network.speaks)
        # Also if they have no version in common: so both know.
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
        """What a member says first. Where nobody says anything, somebody may wait to be spoken to: clients' port."""
        done, _ = await asyncio.wait({protocol.opening}, timeout=SPEAK_AFTER_S)
        if not done:
            transport.write(doors.MEMBER)
        return await protocol.opening

    def lost(self, protocol: Handshake) -> None:
        """A connection broke; if it is the present one, make another."""
        if protocol is not self._protocol:
            return
        self._transport = self._protocol = None
        self._network.seed_places.unknown(self.address)
        if not self._closed and self._network.needed(self.address):
            self._connect()

    def close(self) -> None:
        """No more to this address, and nothing of what waits."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()
            self._transport = None


class Handshake(asyncio.Protocol):
    """The listening half of an outgoing connection: the opening, the welcome, and then only its end."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._buffer = b""
        loop = asyncio.get_running_loop()
        self.opening: asyncio.Future[bytes] = loop.create_future()
        self.welcome: asyncio.Future[bytes] = loop.create_future()
        self.member = ""
        """Who is there, as it says; after the welcome it is proved."""

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
            return  # The rest is still to come.
        elif not doors.MEMBER.startswith(self._buffer[: len(doors.MEMBER)]):
            there = doors.who(self._buffer) or "no Holdfast member"
            if there == doors.A_TLS_SERVER:
                there += ", and this member speaks no TLS (tls.certificate); a member with the same settings is wanted"
            self._fails(ProtocolError(f"there is {there}; give {doors.MEMBERS_PORT}"))
        elif len(self._buffer) >= OPENING_BYTES:
            self.opening.set_result(self._buffer[:OPENING_BYTES])
            self._buffer = self._buffer[OPENING_BYTES:]

    def _fails(self, error: Exception) -> None:
        """Nothing comes of this connection."""
        waiting = self.welcome if self.opening.done() else self.opening
        if not waiting.done():
            waiting.set_exception(error)
            waiting.exception()  # Seen, also if nobody waits any more: what is never seen stops the member.

    def connection_lost(self, exc: Exception | None) -> None:
        if self.welcome.done():
            self._outgoing.lost(self)
        else:
            self._fails(
                exc if isinstance(exc, ssl.SSLError) else ConnectionResetError("closed before the greeting")
            )


class Network:
    """Everything that this member sends to other members and hears from them."""

    def __init__(
        self,
        settings: Settings,
        uuid: str,
        address: Address,
        strangers: Strangers | None = None,
        tls: MemberTls | None = None,
        speaks: Speaks = OF_THIS_BUILD,
    ) -> None:
        """`tls`: in which the members speak with each other; None: they speak without. `speaks`: the versions of the
        member protocol.
        """
        self.tls = tls
        self.speaks = speaks
        self.protocols: dict[str, int] = {}
        """The version of the member protocol that each member speaks with this one."""
        self.secrets = secrets_of(settings.security)
        self.shown: dict[str, list[bool]] = {}
        """Which of the secrets each member has shown when it greeted last."""
        self._refused: dict[Address, float] = {}
        """Who was refused because of its secret, and when (monotonic seconds)."""
        self.strangers = strangers or Strangers()
        self.uuid = uuid
        self.address = address
        self.client_port = 0
        """Which port is for clients: they are told when they come to this one."""
        self.driver: Driver
        self.failed: Callable[[Exception], None]
        """Hears of errors inside the member, which stop it; what is wrong with a peer's bytes ends the connection."""
        self.came: Callable[[int], None] = lambda size: None
        """Hears how many bytes have come."""
        seeds = self._seeds = [Address(host, port) for host, port in settings.seed_addresses()]
        servers = [parse_address(one, "cluster.dns_servers") for one in settings.cluster.dns_servers]
        self.seed_places = SeedPlaces(seeds, Names(seeds, servers), uuid, self)
        self.incoming: set[Incoming] = set()
        self.troubles: dict[Address, str] = {}
        """Why there is no connection to an address at which somebody listens, in words."""
        self.denied_by: set[Address] = set()
        """Where this member is not let in, because of its secret."""
        self._half_open: Quota[Incoming] = Quota(settings.limits.unauthenticated_connections)
        self._greeted: Quota[Incoming] = Quota(settings.limits.member_connections)
        self._of_member: dict[str, list[Incoming]] = {}
        """The connections of each member that has greeted, oldest first."""
        self._outgoing: dict[Address, Outgoing] = {}
        self._peers: dict[MemberId, Address] = {}
        self._server: asyncio.Server | None = None
        self._running = False
        """Between `begin` and `stop`. The door is open before: what comes then is as good as lost."""

    def begin(self, driver: Driver) -> None:
        """From now on there is somebody to tell of what arrives."""
        self.driver = driver
        self._running = True

        self._gathering = False
        """While what has arrived at once is handled: then also the answers leave at once."""
        self._unsent: list[Outgoing] = []

    async def listen(self, server: asyncio.Server) -> None:
        """Take over the listening socket."""
        self._server = server

    # -- the engine's door

    def open(self, member: MemberId, address: Address) -> None:
        """Be ready to carry packets to a member."""
        self._peers[member] = address

    def close(self, member: MemberId) -> None:
        """Carry nothing more to it."""
        address = self._peers.pop(member, None)
        if address is not None and not self.needed(address):
            outgoing = self._outgoing.pop(address, None)
            if outgoing is not None:
                outgoing.close()

    def carry(self, member: MemberId, packet: bytes) -> None:
        """Carry a packet."""
        address = self._peers.get(member)
        if address is not None:
            header = FRAME.pack(FRAME.size - LENGTH_BYTES + len(packet), PACKET)
            if len(packet) < APART_BYTES:
                self._to(address).send(header + packet, whisper=False)
            else:
                self._to(address).send(header, packet, whisper=False)

    def send_datagram(self, address: Address, data: bytes) -> None:
        """Carry a message that may be lost."""
        if self._running:
            frame = FRAME.pack(FRAME.size - LENGTH_BYTES + len(data), WHISPER) + data
            if self.seed_places.has(address) and not self.needed(address):
                self.seed_places.ask(address, frame)
            else:
                self._to(address).send(frame, whisper=True)

    # -- seeds that are names

    def ask_place(self, place: Place, frame: bytes) -> MemberId | None:
        """Send it to whoever is there. Answers who that is, if there is a connection already."""
        if not self._running:
            return None
        outgoing = self._to(place.address, place.name)
        outgoing.send(frame, whisper=True)
        return MemberId(outgoing.member) if outgoing.member else None

    def found_behind(self, seed: Address, members: tuple[MemberId, ...]) -> None:
        """Each address of the seed was tried: these members are there."""
        if self._running:
            self._tell(partial(self.driver.handle, SeedBehind(seed, members)))

    def found_absent(self, seed: Address) -> None:
        """The DNS has nothing under this name."""
        if self._running:
            self._tell(partial(self.driver.handle, SeedAbsent(seed)))

    def no_trouble(self, address: Address) -> None:
        """Somebody can be asked there again."""
        self.troubles.pop(address, None)

    def denied_everywhere(self) -> str:
        """The seeds, if this member is let in behind none of them, because of its secret; else nothing."""
        seeds = [seed for seed in self._seeds if seed != self.address]
        denied = all(self.seed_places.addresses(seed) <= self.denied_by for seed in seeds)
        return ", ".join(sorted(map(shown, seeds))) if denied else ""

    def told_troubles(self) -> list[str]:
        """Addresses at which somebody listens, and why there is no talking to him."""
        return [f"{shown(address)}: {why}" for address, why in self.troubles.items()]

    def gather(self) -> None:
        """What is sent from now on leaves together."""
        self._gathering = True

    def gathers(self, outgoing: Outgoing) -> bool:
        """Whether what this connection has to send waits for more."""
        if self._gathering and outgoing not in self._unsent:
            self._unsent.append(outgoing)
        return self._gathering

    def send_gathered(self) -> None:
        """Send what was gathered, and gather no more."""
        self._gathering = False
        unsent, self._unsent = self._unsent, []
        for outgoing in unsent:
            outgoing.send_gathered()

    def _to(self, address: Address, name: str = "") -> Outgoing:
        outgoing = self._outgoing.get(address)
        if outgoing is None:
            outgoing = self._outgoing[address] = Outgoing(self, address, name)
        return outgoing

    # -- who comes in

    def allow(self, limits: LimitSettings) -> None:
        """Go on with other limits. Members that are connected stay so."""
        self._greeted.allow(limits.member_connections)

    def knock(self, incoming: Incoming) -> None:
        """Somebody has connected."""
        self.incoming.add(incoming)
        oldest = self._half_open.add(incoming, net_of(incoming.host))
        self._make_way(oldest, "limits.unauthenticated_connections")

    def greeted(self, incoming: Incoming, greeting: Greeting) -> None:
        """It has shown that it is a member."""
        self._half_open.remove(incoming)
        self._make_way(self._greeted.add(incoming, incoming.host), "limits.member_connections")
        mine = self._of_member.setdefault(greeting.uuid, [])
        mine.append(incoming)
        if len(mine) > SAME_MEMBER_MAX:
            self._make_way(mine[0], f"{SAME_MEMBER_MAX} connections of one member")

    def refuses(self, greeting: Greeting) -> None:
        """It has shown no secret that is known here."""
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
        """It knows the secret, and speaks no version of the member protocol that this one does."""
        self.strangers.tell(
            "members refused: incompatible protocol",
            "no connection from a member at %s: %s",
            Address(greeting.host, greeting.port),
            protocol_mismatch(self.speaks, greeting.speaks),
        )

    def protocol_figures(self) -> dict[str, object]:
        """Which versions of the member protocol it speaks, and which one with whom, by UUID; for the status."""
        spoken_with = dict(sorted(self.protocols.items()))
        return {"lowest": self.speaks.lowest, "highest": self.speaks.highest, "versions": spoken_with}

    def secret_figures(self) -> dict[str, object]:
        """How the members stand to the secrets, for the status; members by their UUIDs."""
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

    # -- what the connections tell

    def needed(self, address: Address) -> bool:
        """Whether a member of the view lives at this address."""
        return any(home == address for home in self._peers.values())

    def arrived(self, greeting: Greeting, kind: int, body: bytes | memoryview) -> None:
        """A frame: a packet of a link, or a whisper. Raises ProtocolError when it cannot be read."""
        if not self._running:
            return
        if kind == WHISPER:
            try:
                self._tell(partial(self.driver.whispered, Address(greeting.host, greeting.port), body))
            except UnknownMessage as error:
                # Said without knowing who this is: a newer member may say more than this one knows (wire/C-2).
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
            raise  # The bytes could not be read; nothing has happened.
        except Exception as error:  # noqa: BLE001  (the member stops, whatever it is)
            self.failed(error)

    def trouble(self, address: Address, why: str, *, final: bool = False) -> None:
        """Somebody listens at an address, and there is no talking to him. `final`: until a setting is changed."""
        if self.troubles.get(address) != why:
            self.strangers.tell(
                "failed connections to members", "no connection to a member at %s: %s", shown(address), why
            )
        self.troubles[address] = why
        if final:
            self.denied_by.add(address)

    def connected(self, address: Address) -> None:
        """A new connection: what went into the old one may be lost."""
        self.denied_by.discard(address)
        self.troubles.pop(address, None)
        for member, home in list(self._peers.items()):
            if home == address:
                self._tell(partial(self.driver.reconnected, member))

    def given_up(self, outgoing: Outgoing) -> None:
        """Nobody could be reached there. Where no member lives that is forgotten: strangers may name any address."""
        address = outgoing.address
        if not self.needed(address) and self._outgoing.get(address) is outgoing:
            del self._outgoing[address]

    def refused(self, address: Address, times: int) -> None:
        """Nothing listens there."""
        self.seed_places.refuses(address)
        self._tell(partial(self.driver.handle, SeedAbsent(address)))
        if times >= REFUSALS_TO_SILENCE:
            for member, home in list(self._peers.items()):
                if home == address:
                    self._tell(partial(self.driver.handle, PeerSilent(member)))

    async def stop(self) -> None:
        """Close everything."""
        self._running = False
        self.seed_places.stop()
        if self._server is not None:
            self._server.close()
        for outgoing in self._outgoing.values():
            outgoing.close()
        for incoming in list(self.incoming):
            incoming.close()
        self._outgoing.clear()
