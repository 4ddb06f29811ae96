"""Selection of the I/O backend for clients (asyncio transports or `poll_cy`), and the listener of the latter."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from holdfast.config.schema import LaneChoice, SocketsChoice
from holdfast.runtime.compiled import compiled_from
from holdfast.runtime.doors.clients import Door, PolledConnection, keep_alive
from holdfast.runtime.doors.handshaking_socket import HandshakingSocket
from holdfast.runtime.doors.tls_handshake import TlsEntrance
from holdfast.runtime.doors.tls_records import TlsRecords
from holdfast.server.hazelcast.reference_lane import LaneCode

if TYPE_CHECKING:
    from holdfast.runtime.doors.poll_cy import Poll

COMPILED = "holdfast.runtime.doors.poll_compiled"
SOURCES = tuple(Path(__file__).with_name(name) for name in ("poll_cy.py", "system_calls.pxd"))
BACKLOG = 1024
AT_ONCE = 64
FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
FULL_S = 0.2


@dataclass(frozen=True, slots=True)
class Sockets:
    kind: Literal["poll", "loop"]
    module: ModuleType | None = None
    why: str = ""


def sockets_way(choice: SocketsChoice = "auto", lane: LaneChoice = "auto") -> Sockets:
    """`poll` if it is compiled, or requested by `member.sockets` where epoll exists."""
    if choice == "loop":
        return Sockets("loop", None, "member.sockets = 'loop'")
    if not sys.platform.startswith("linux"):
        return Sockets("loop", None, "this system has no epoll")
    module, why = compiled_from(COMPILED, *SOURCES) if lane == "auto" else (None, f"member.lane = {lane!r}")
    if module is not None:
        return Sockets("poll", module)
    if choice == "auto":
        return Sockets("loop", None, why)
    from holdfast.runtime.doors import poll_cy

    return Sockets("poll", poll_cy, why)


class PolledDoor:
    def __init__(self, listening: list[socket.socket], entrance: TlsEntrance | None = None) -> None:
        """`entrance`: None without TLS."""
        self.sockets = listening
        self._entrance = entrance
        self._handshaking: set[HandshakingSocket] = set()
        self._loop = asyncio.get_running_loop()
        self._door: Door | None = None
        self._poll: Poll | None = None
        self._pausing: asyncio.TimerHandle | None = None

    def serve(self, door: Door, module: ModuleType, lane: LaneCode) -> None:
        self._door = door
        self._poll = module.Poll(door, self._loop, lane)
        self._loop.add_reader(self._poll.fileno(), self._poll.ready)

    async def start_serving(self) -> None:
        for each in self.sockets:
            each.listen(BACKLOG)
        self._watch()

    def _watch(self) -> None:
        for each in self.sockets:
            self._loop.add_reader(each.fileno(), self._take, each)

    def _take(self, listening: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                taken, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in FULL:
                    self._pause(error)
                else:
                    self._could_not_take(error)
                return
            self._begin(taken, str(address[0]))

    def _begin(self, taken: socket.socket, peer: str) -> None:
        taken.setblocking(False)
        try:
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(taken)
        except OSError:
            taken.close()  # It has gone already.
            return
        if self._entrance is None:
            self._admit(taken, peer, None)
        else:
            try:
                handshaking = HandshakingSocket(
                    taken, peer, self._entrance, self._handshake_done, self._handshaking.discard
                )
            except OSError as error:
                taken.close()
                self._could_not_take(error)
                return
            self._handshaking.add(handshaking)

    def _handshake_done(self, handshaking: HandshakingSocket, records: TlsRecords) -> None:
        self._handshaking.discard(handshaking)
        if self._poll is None:
            handshaking.sock.close()
        else:
            self._admit(handshaking.sock, handshaking.peer, records)

    def _admit(self, taken: socket.socket, peer: str, records: TlsRecords | None) -> None:
        assert self._door is not None and self._poll is not None, "served before anybody was let in"
        connection = PolledConnection(self._door)
        fd = taken.detach()
        try:
            wire = self._poll.add(fd, connection, records)
        except OSError as error:
            os.close(fd)
            self._could_not_take(error)
            return
        connection.attach(wire, peer)
        if records is not None:
            # The first request may have come with the end of the handshake.
            self._poll.take_records(wire, b"")

    def _could_not_take(self, error: OSError) -> None:
        if self._door is not None:
            self._door.connection_log.report(
                "failed accepts", "cannot accept the connection of a client: %s", error
            )

    def _pause(self, error: OSError) -> None:
        """No descriptor is free: stop accepting for a while. The system queues connections."""
        for each in self.sockets:
            self._loop.remove_reader(each.fileno())
        if self._door is not None:
            self._door.connection_log.report("no file descriptors left", "cannot accept clients: %s", error)
        self._pausing = self._loop.call_later(FULL_S, self._watch)

    def close(self) -> None:
        if self._pausing is not None:
            self._pausing.cancel()
        for each in self.sockets:
            if each.fileno() >= 0:
                self._loop.remove_reader(each.fileno())
                each.close()
        for handshaking in list(self._handshaking):
            handshaking.close()

    def end(self) -> None:
        if self._poll is not None:
            self._loop.remove_reader(self._poll.fileno())
            self._poll.close()
            self._poll = None


async def bound(host: str, port: int) -> list[socket.socket]:
    """Sockets bound to all addresses of this host. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            one = socket.socket(family, kind, protocol)
            sockets.append(one)
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
    except OSError:
        for one in sockets:
            one.close()
        raise
    return sockets


__all__ = ["PolledDoor", "Sockets", "bound", "sockets_way"]
