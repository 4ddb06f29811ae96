"""The client port over asyncio and over `poll_cy` (`server.door` has its rules)."""

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
"""A host that has sent nothing for two minutes, not even an acknowledgement, is gone."""


class Door(door.Door):
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
        """Close all connections, and give pending output a moment to leave."""
        for connection in list(self.connections):
            connection.close("the member is shutting down")
        for _ in range(round(LAST_WORDS_S / LAST_WORDS_LOOK_S)):
            if not self.connections:
                return
            await asyncio.sleep(LAST_WORDS_LOOK_S)
        for connection in list(self.connections):
            connection.abort()


def keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Connection(door.ClientConnection, asyncio.Protocol):
    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        self.begin(transport, str((transport.get_extra_info("peername") or ("an unknown address",))[0]))
        sock = transport.get_extra_info("socket")
        if sock is not None:
            keep_alive(sock)


class PolledConnection(door.ClientConnection):
    __slots__ = ("_wire",)

    def attach(self, wire: Wire, peer: str) -> None:
        self._wire = wire
        self.begin(wire, peer)

    def _look(self) -> None:
        if self._wire.heard():
            # The data lane served the client without the session; an empty call tells the session that the client is
            # active.
            self._receive(b"")
        super()._look()
