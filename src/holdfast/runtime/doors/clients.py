"""The client port over asyncio and over `poll_cy` (`server.door` has its rules)."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from time import monotonic_ns
from typing import TYPE_CHECKING, cast

from holdfast.actions.member_process import ClientConnection as ClientOfMember
from holdfast.config import LimitSettings
from holdfast.core.model.ids import MILLISECOND
from holdfast.runtime.doors.connection_log import ConnectionLog
from holdfast.server import door
from holdfast.server.door import DoorMember, DoorOptions
from holdfast.server.grid import Grid
from holdfast.version import __version__

if TYPE_CHECKING:
    from holdfast.runtime.doors.poll_cy import Wire

LAST_WORDS_S, LAST_WORDS_LOOK_S = 0.5, 0.01
UNANSWERED_S = 2.0
"""How long a member that has left waits for clients,"""
QUIET_NS = 200 * MILLISECOND
"""which must have been silent for so long. Java clients retry after pauses that grow from 1 ms to 1 s."""
LEAVES = "the member is shutting down"
KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""A host that has sent nothing for two minutes, not even an acknowledgement, is gone."""


class Door(door.Door):
    def __init__(
        self,
        grid: Grid,
        limits: LimitSettings,
        member: DoorMember,
        connection_log: ConnectionLog | None = None,
        options: DoorOptions | None = None,
    ) -> None:
        options = replace(options or DoorOptions(), release=__version__)
        loop = asyncio.get_running_loop()
        super().__init__(grid, limits, loop, monotonic_ns, connection_log or ConnectionLog(), member, options)

    async def close_unused(self) -> None:
        """Close each connection when nothing of its client is unanswered. A client that was rejected pauses before it
        retries (routing/R-17); a request that came at the moment of the close would have an unknown outcome.
        """
        for _ in range(round(UNANSWERED_S / LAST_WORDS_LOOK_S)):
            if not self.close_quiet(QUIET_NS, LEAVES):
                return
            await asyncio.sleep(LAST_WORDS_LOOK_S)

    async def close_all(self) -> None:
        for connection in list(self.connections):
            connection.close(LEAVES)
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

    def _check_idle(self) -> None:
        self._note_activity()
        super()._check_idle()

    def is_quiet(self, silent_ns: int) -> bool:
        self._note_activity()
        return super().is_quiet(silent_ns)

    def described(self, now_ns: int) -> ClientOfMember:
        self._note_activity()
        return super().described(now_ns)

    def _note_activity(self) -> None:
        if self._wire.heard():
            # The data lane served the client without the session; an empty call notifies the session that the
            # client is active.
            self._receive(b"")
