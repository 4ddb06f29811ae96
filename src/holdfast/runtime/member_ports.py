"""The ports of a member for other members and for clients: taken, secured by TLS, opened and closed."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import partial

from holdfast.config import Settings
from holdfast.runtime.data_lane import DataLane
from holdfast.runtime.doors.clients import Connection, Door
from holdfast.runtime.doors.connection_log import ConnectionLog
from holdfast.runtime.doors.polled_door import PolledDoor, sockets_way
from holdfast.runtime.doors.taken_ports import begin, close, listen, loop_server, polled_door, secured
from holdfast.runtime.doors.tls import MemberTls
from holdfast.runtime.doors.tls_handshake import TlsEntrance
from holdfast.runtime.peering.incoming_connection import IncomingConnection
from holdfast.runtime.peering.member_handshake import HANDSHAKE_TIMEOUT_S
from holdfast.runtime.peering.member_network import MemberNetwork
from holdfast.wire import doors

log = logging.getLogger("holdfast")

MEMBER_PORT, CLIENT_PORT = "member.member_port", "member.client_port"


class MemberPorts:
    """Both ports of one member.

    They are taken first and accept connections last (`begin`): others learn the numbers of the ports when the member
    joins, and no connection may arrive before the member can answer.
    """

    def __init__(self, settings: Settings, connection_log: ConnectionLog) -> None:
        self._settings = settings
        self._connection_log = connection_log
        chosen = settings.member
        self.sockets = sockets_way(chosen.sockets, chosen.lane)
        self.tls = MemberTls(settings.tls) if settings.tls.enabled else None
        self.member_port = self.client_port = 0
        self._members: asyncio.Server
        self._clients: asyncio.Server | PolledDoor | None = None
        self._entrances: list[TlsEntrance] = []
        self._reloading: asyncio.TimerHandle | None = None

    async def take_member_port(self, network: MemberNetwork) -> asyncio.Server:
        """The network closes the port. Raises ConfigError."""
        chosen, tls = self._settings.member, self.tls
        make: Callable[[], asyncio.BaseProtocol] = lambda: IncomingConnection(network)  # noqa: E731
        if tls is not None:
            entrance = self._entrance(lambda: tls.contexts.members, doors.MEMBERS_PORT, HANDSHAKE_TIMEOUT_S)
            make = secured(make, entrance)
        given = self._settings.is_given(MEMBER_PORT)
        server = partial(loop_server, make)
        self._members, self.member_port = await listen(
            server, chosen.host, chosen.member_port, given=given, key=MEMBER_PORT
        )
        return self._members

    async def take_client_port(self, door: Callable[[], Door]) -> None:
        chosen, tls = self._settings.member, self.tls
        given = self._settings.is_given(CLIENT_PORT)
        entrance = None
        if tls is not None:
            timeout_s = self._settings.limits.auth_timeout_ms / 1000
            entrance = self._entrance(lambda: tls.contexts.clients, doors.CLIENTS_PORT, timeout_s)
        if self.sockets.kind == "poll":
            polled = partial(polled_door, entrance=entrance)
            self._clients, self.client_port = await listen(
                polled, chosen.host, chosen.client_port, given=given, key=CLIENT_PORT
            )
            return
        make: Callable[[], asyncio.BaseProtocol] = lambda: Connection(door())  # noqa: E731
        server = partial(loop_server, make if entrance is None else secured(make, entrance))
        self._clients, self.client_port = await listen(
            server, chosen.host, chosen.client_port, given=given, key=CLIENT_PORT
        )

    def _entrance(self, context: Callable[[], ssl.SSLContext], name: str, timeout_s: float) -> TlsEntrance:
        handshakes = self._settings.limits.unauthenticated_connections
        entrance = TlsEntrance(
            context, self._connection_log, name=name, handshakes=handshakes, handshake_s=timeout_s
        )
        self._entrances.append(entrance)
        return entrance

    def serve(self, door: Door, lane: DataLane, loop: asyncio.AbstractEventLoop) -> None:
        if isinstance(self._clients, PolledDoor):
            assert self.sockets.module is not None, "there is a poll"
            self._clients.serve(door, self.sockets.module, lane.code)
        if self.tls is not None:
            log.info("TLS %s and newer at both doors", self._settings.tls.minimum_version)
            self._reload_later(self.tls, loop)

    def _reload_later(self, tls: MemberTls, loop: asyncio.AbstractEventLoop) -> None:
        def reload() -> None:
            tls.look()
            self._reload_later(tls, loop)

        self._reloading = loop.call_later(self._settings.tls.reload_s, reload)

    async def begin(self) -> None:
        """Accept connections from now on. Raises ConfigError."""
        assert self._clients is not None, "the port was taken"
        await begin(self._members, MEMBER_PORT)
        await begin(self._clients, CLIENT_PORT)

    async def close_client_port(self) -> None:
        if self._reloading is not None:
            self._reloading.cancel()
        if self._clients is not None:
            await close(self._clients)

    def end(self) -> None:
        for entrance in self._entrances:
            entrance.close()
        if isinstance(self._clients, PolledDoor):
            self._clients.end()
