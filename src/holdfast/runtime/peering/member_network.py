"""TCP connections between members.

A member opens one connection to each address that it sends to, and receives on the connections that others
have opened to it. So two members that send to each other have two connections.

A connection begins with a handshake, in which both members prove that they know `security.member_secret`
(`member_handshake.py`). Nothing else is parsed before. Then come frames (`member_frames.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from holdfast.config import LimitSettings, Settings, parse_address
from holdfast.core.events import PeerSilent, SeedAbsent, SeedBehind
from holdfast.core.model.ids import Address, MemberId
from holdfast.core.model.member_status import MemberProtocol, MemberSecret
from holdfast.core.model.protocols import ProtocolRange, protocol_mismatch
from holdfast.engine.driver import Driver
from holdfast.errors import ProtocolError, UnknownMessage
from holdfast.runtime.doors.connection_log import ConnectionLog
from holdfast.runtime.doors.taken_ports import close
from holdfast.runtime.doors.tls import MemberTls
from holdfast.runtime.peering.dns_names import Names, Place, shown
from holdfast.runtime.peering.incoming_connection import IncomingConnection
from holdfast.runtime.peering.member_frames import DATAGRAM, FRAME, LENGTH_BYTES, PACKET
from holdfast.runtime.peering.member_handshake import OF_THIS_BUILD, HandshakeRequest, secrets_of
from holdfast.runtime.peering.outgoing_connection import OutgoingConnection
from holdfast.runtime.peering.seed_places import SeedPlaces
from holdfast.server.logins import net_of
from holdfast.server.quota import Quota

REFUSALS_TO_SILENCE = 3
"""Refused connections after which the members at an address are reported as silent."""
SAME_MEMBER_MAX = 4
"""Connections that one member may have open to this one. It needs one, and one more for each other address by
which it finds this member; old ones may linger. Beyond the limit the oldest is closed.
"""
APART_BYTES = 16 * 1024
"""Packets of this size or more are written separately from their header, which saves a copy."""
REFUSED = "members refused: wrong secret"
REFUSED_KEPT = 16
REFUSED_S = 60.0

log = logging.getLogger("holdfast")


class MemberNetwork:
    def __init__(
        self,
        settings: Settings,
        uuid: str,
        address: Address,
        connection_log: ConnectionLog | None = None,
        tls: MemberTls | None = None,
        speaks: ProtocolRange = OF_THIS_BUILD,
    ) -> None:
        """`tls`: TLS contexts for connections between members; None: they use none. `speaks`: the supported
        versions of the member protocol.
        """
        self.tls = tls
        self.speaks = speaks
        self.protocols: dict[str, int] = {}
        self.secrets = secrets_of(settings.security)
        self.proved: dict[str, list[bool]] = {}
        """By UUID of connected members: which of this member's secrets its latest request has proved."""
        self._refused: dict[Address, float] = {}
        """Members that were rejected because of their secret, by address, and when (monotonic)."""
        self.connection_log = connection_log or ConnectionLog()
        self.uuid = uuid
        self.address = address
        self.client_port = 0
        """Clients that connect to the member port are sent to this one."""
        self.driver: Driver
        self.failed: Callable[[Exception], None]
        """Called for an internal error, which stops the member. Malformed bytes of a peer only end its
        connection.
        """
        self.on_bytes: Callable[[int], None] = lambda size: None
        seeds = self._seeds = [Address(host, port) for host, port in settings.seed_addresses()]
        servers = [parse_address(one, "cluster.dns_servers") for one in settings.cluster.dns_servers]
        self.seed_places = SeedPlaces(seeds, Names(seeds, servers), uuid, self)
        self.incoming: set[IncomingConnection] = set()
        self.failures: dict[Address, str] = {}
        """Why processes at these addresses cannot be used, or names have no address."""
        self.denied_by: set[Address] = set()
        self._half_open: Quota[IncomingConnection] = Quota(settings.limits.unauthenticated_connections)
        self._authenticated: Quota[IncomingConnection] = Quota(settings.limits.member_connections)
        self._of_member: dict[str, list[IncomingConnection]] = {}
        self._outgoing: dict[Address, OutgoingConnection] = {}
        self._peers: dict[MemberId, Address] = {}
        self._server: asyncio.Server | None = None
        self._running = False
        """The port is open before `begin`; frames that arrive then are dropped as if lost."""
        self._gathering = False
        """While received frames are handled: frames sent meanwhile are collected."""
        self._unsent: list[OutgoingConnection] = []

    def begin(self, driver: Driver) -> None:
        self.driver = driver
        self._running = True

    async def listen(self, server: asyncio.Server) -> None:
        self._server = server

    # -- calls of the engine (`engine/ports.py`)

    def open(self, member: MemberId, address: Address) -> None:
        self._peers[member] = address

    def close(self, member: MemberId) -> None:
        """Drop further packets for this member. The connection is closed unless another member has the
        address.
        """
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
                self._to(address).send(header + packet, datagram=False)
            else:
                self._to(address).send(header, packet, datagram=False)

    def send_datagram(self, address: Address, data: bytes) -> None:
        """The message may be lost. A seed that is a DNS name gets it at each of its addresses."""
        if self._running:
            frame = FRAME.pack(FRAME.size - LENGTH_BYTES + len(data), DATAGRAM) + data
            if self.seed_places.has(address) and not self.needed(address):
                self.seed_places.ask(address, frame)
            else:
                self._to(address).send(frame, datagram=True)

    # -- seeds that are DNS names

    def ask_place(self, place: Place, frame: bytes) -> MemberId | None:
        """Send a frame to an address of a seed. Returns the member there if it is connected already."""
        if not self._running:
            return None
        outgoing = self._to(place.address, place.name)
        outgoing.send(frame, datagram=True)
        return MemberId(outgoing.member) if outgoing.member else None

    def found_behind(self, seed: Address, members: tuple[MemberId, ...]) -> None:
        """All addresses of the seed were tried."""
        if self._running:
            self._tell(partial(self.driver.handle, SeedBehind(seed, members)))

    def found_absent(self, seed: Address) -> None:
        if self._running:
            self._tell(partial(self.driver.handle, SeedAbsent(seed)))

    def clear_failure(self, address: Address) -> None:
        self.failures.pop(address, None)

    def denied_everywhere(self) -> str:
        """The seeds, if the secret differs at all their addresses; empty otherwise."""
        seeds = [seed for seed in self._seeds if seed != self.address]
        denied = all(self.seed_places.addresses(seed) <= self.denied_by for seed in seeds)
        return ", ".join(sorted(map(shown, seeds))) if denied else ""

    def failure_lines(self) -> list[str]:
        return [f"{shown(address)}: {problem}" for address, problem in self.failures.items()]

    def hold(self) -> None:
        """Collect frames until `release`, so that they leave together."""
        self._gathering = True

    def gathers(self, outgoing: OutgoingConnection) -> bool:
        """Whether frames are being collected; if so, `release` sends those of this connection too."""
        if self._gathering and outgoing not in self._unsent:
            self._unsent.append(outgoing)
        return self._gathering

    def end_buffer(self) -> None:
        """A read buffer, which began with `hold`, was handled."""
        if self._running:
            self._tell(self.driver.end_buffer)
        self.release()

    def release(self) -> None:
        self._gathering = False
        unsent, self._unsent = self._unsent, []
        for outgoing in unsent:
            outgoing.send_gathered()

    def _to(self, address: Address, name: str = "") -> OutgoingConnection:
        outgoing = self._outgoing.get(address)
        if outgoing is None:
            outgoing = self._outgoing[address] = OutgoingConnection(self, address, name)
        return outgoing

    # -- incoming connections

    def set_limits(self, limits: LimitSettings) -> None:
        self._authenticated.allow(limits.member_connections)

    def on_connected(self, incoming: IncomingConnection) -> None:
        """Register an unauthenticated connection. The oldest one of the greediest network may be closed for
        it (`server/quota.py`).
        """
        self.incoming.add(incoming)
        oldest = self._half_open.add(incoming, net_of(incoming.host))
        self._close_oldest(oldest, "limits.unauthenticated_connections")

    def on_authenticated(
        self, incoming: IncomingConnection, request: HandshakeRequest, proved: list[bool], protocol: int
    ) -> None:
        self.proved[request.uuid] = proved
        self.protocols[request.uuid] = protocol
        self._half_open.remove(incoming)
        self._close_oldest(self._authenticated.add(incoming, incoming.host), "limits.member_connections")
        mine = self._of_member.setdefault(request.uuid, [])
        mine.append(incoming)
        if len(mine) > SAME_MEMBER_MAX:
            self._close_oldest(mine[0], f"{SAME_MEMBER_MAX} connections of one member")

    def on_wrong_secret(self, request: HandshakeRequest) -> None:
        """The member knows no secret of this one: log and remember that."""
        address = Address(request.host, request.port)
        self.connection_log.report(
            REFUSED,
            "security.member_secret of %s differs from this member's: it is rejected",
            address,
        )
        self._refused.pop(address, None)
        self._refused[address] = time.monotonic()
        if len(self._refused) > REFUSED_KEPT:
            del self._refused[next(iter(self._refused))]

    def on_incompatible(self, request: HandshakeRequest) -> None:
        """The member knows the secret, but has no common version of the member protocol with this one."""
        self.connection_log.report(
            "members refused: incompatible protocol",
            "no connection from a member at %s: %s",
            Address(request.host, request.port),
            protocol_mismatch(self.speaks, request.speaks),
        )

    def protocol_status(self) -> MemberProtocol:
        return MemberProtocol(self.speaks.lowest, self.speaks.highest, dict(sorted(self.protocols.items())))

    def secret_status(self) -> MemberSecret:
        """Which members, by UUID, have not proved which secret, and which addresses were rejected; for the
        status.
        """
        now_s = time.monotonic()
        return MemberSecret(
            bool(self.secrets[0]),
            len(self.secrets) > 1,
            lacking_first=sorted(uuid for uuid, proved in self.proved.items() if not proved[0]),
            lacking_second=sorted(uuid for uuid, proved in self.proved.items() if not proved[-1]),
            refused=[str(at) for at, when_s in self._refused.items() if now_s - when_s < REFUSED_S],
        )

    def _close_oldest(self, oldest: IncomingConnection | None, limit: str) -> None:
        if oldest is not None:
            log.debug("connection of a member from %s closed for a newer one: %s", oldest.host, limit)
            self.on_closed(oldest)
            oldest.close()

    def on_closed(self, incoming: IncomingConnection) -> None:
        self.incoming.discard(incoming)
        self._half_open.remove(incoming)
        self._authenticated.remove(incoming)
        mine = self._of_member.get(incoming.member, [])
        if incoming in mine:
            mine.remove(incoming)
            if not mine:
                del self._of_member[incoming.member]
                self.proved.pop(incoming.member, None)
                self.protocols.pop(incoming.member, None)
        assert incoming not in self._half_open and incoming not in self._authenticated, (
            "who is gone takes no place"
        )

    # -- events of connections

    def needed(self, address: Address) -> bool:
        return any(home == address for home in self._peers.values())

    def on_frame(
        self, request: HandshakeRequest, kind: int, body: bytes | memoryview, *, more: bool = False
    ) -> None:
        """Handle a packet of a link, or a datagram. Raises ProtocolError if it cannot be read. `more`: its read buffer
        has more bytes.
        """
        if not self._running:
            return
        if kind == DATAGRAM:
            try:
                self._tell(partial(self.driver.datagram_received, Address(request.host, request.port), body))
            except UnknownMessage as error:
                # A datagram may come from a process that does not know the feature level in force: a newer
                # build may use a message that this one does not know (wire/C-2).
                self.connection_log.report(
                    "messages dropped: unknown kind",
                    "left out: %s",
                    error,
                    level=logging.DEBUG,
                )
        else:
            self._tell(partial(self.driver.packet, MemberId(request.uuid), body, more=more))

    def _tell(self, deed: Callable[[], None]) -> None:
        try:
            deed()
        except ProtocolError:
            raise  # The bytes are malformed, and nothing has changed.
        except Exception as error:  # noqa: BLE001  (any error here stops the member)
            self.failed(error)

    def record_failure(self, address: Address, problem: str, *, final: bool = False) -> None:
        """Record why an address cannot be used, and log it once. `final`: the secrets differ."""
        if self.failures.get(address) != problem:
            self.connection_log.report(
                "failed connections to members",
                "no connection to a member at %s: %s",
                shown(address),
                problem,
            )
        self.failures[address] = problem
        if final:
            self.denied_by.add(address)

    def on_open(self, address: Address) -> None:
        """Packets sent on the old connection may be lost, so the links repeat them."""
        self.denied_by.discard(address)
        self.failures.pop(address, None)
        for member, home in list(self._peers.items()):
            if home == address:
                self._tell(partial(self.driver.reconnected, member))

    def on_given_up(self, outgoing: OutgoingConnection) -> None:
        """All attempts failed. Forget the address unless a member of the view has it: processes outside the
        view can name any address, and those would add up.
        """
        address = outgoing.address
        if not self.needed(address) and self._outgoing.get(address) is outgoing:
            del self._outgoing[address]

    def on_refused(self, address: Address, times: int) -> None:
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
            await close(self._server)
        for outgoing in self._outgoing.values():
            outgoing.close()
        for incoming in list(self.incoming):
            incoming.close()
        self._outgoing.clear()
