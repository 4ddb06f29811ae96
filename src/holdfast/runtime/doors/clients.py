"""The client door on TCP (`server.door`)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, cast

from holdfast.config import LimitSettings
from holdfast.core.member_view import ReplicationBacklog
from holdfast.runtime.doors.strangers import Strangers
from holdfast.server import door
from holdfast.server.grid import Grid
from holdfast.server.hazelcast.entries_cy import ServeEntries, Tally, serve_entries
from holdfast.version import __version__

if TYPE_CHECKING:
    from holdfast.runtime.doors.poll_cy import Wire

LAST_WORDS_S, LAST_WORDS_LOOK_S = 0.5, 0.01
KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""A host of which nothing comes for two minutes, not even an acknowledgement, is gone."""


class Door(door.Door):
    """What all client connections share."""

    def __init__(
        self,
        grid: Grid,
        limits: LimitSettings,
        enter: Callable[[], None],
        leave: Callable[[], None],
        failed: Callable[[Exception], None],
        *,
        backlog: ReplicationBacklog | None = None,
        request_ids: int = 0,
        client_acks: bool = False,
        strangers: Strangers | None = None,
        came: Callable[[int], None] = lambda size: None,
        serve: ServeEntries = serve_entries,
        tally: Tally | None = None,
    ) -> None:
        """Of the running event loop; see there."""
        super().__init__(
            grid,
            limits,
            asyncio.get_running_loop(),
            monotonic_ns,
            strangers or Strangers(),
            enter,
            leave,
            failed,
            backlog=backlog,
            request_ids=request_ids,
            client_acks=client_acks,
            release=__version__,
            came=came,
            serve=serve,
            tally=tally,
        )

    async def close_all(self) -> None:
        """End every connection, and give what was answered a moment to leave."""
        for connection in list(self.connections):
            connection.close("the member is shutting down")
        for _ in range(round(LAST_WORDS_S / LAST_WORDS_LOOK_S)):
            if not self.connections:
                return
            await asyncio.sleep(LAST_WORDS_LOOK_S)
        for connection in list(self.connections):
            connection.abort()


def keep_alive(sock: socket.socket) -> None:
    """Let the system find out when the other host is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Connection(door.ClientConnection, asyncio.Protocol):
    """One client."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        self.begin(transport, str((transport.get_extra_info("peername") or ("an unknown address",))[0]))
        sock = transport.get_extra_info("socket")
        if sock is not None:
            keep_alive(sock)


class PolledConnection(door.ClientConnection):
    """One client, on a `poll_cy.Wire`."""

    __slots__ = ("_wire",)

    def attach(self, wire: Wire, peer: str) -> None:
        """The connection is there."""
        self._wire = wire
        self.begin(wire, peer)

    def _look(self) -> None:
        if self._wire.heard():
            # The session was not told of that, and knows how long its client has been silent.
            self._receive(b"")
        super()._look()
