"""The client door: one TCP port for two protocols, told apart by the first three bytes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, cast

from holdfast.config import LimitSettings
from holdfast.core.machine import MILLISECOND
from holdfast.server.grid import Grid
from holdfast.server.hazelcast.session import HazelcastSession
from holdfast.server.session import OwnSession

log = logging.getLogger("holdfast")

PREAMBLE_BYTES = 3
LOOKS = 10
"""How often within `limits.silent_ms` a connection is looked at."""


class Session(Protocol):
    """What both protocols' sessions have in common."""

    def receive(self, data: bytes) -> None:
        """A read buffer has come."""

    def closed(self) -> None:
        """The connection is gone."""

    @property
    def admitted(self) -> bool:
        """Whether the client has shown that it may come in."""

    def silent_ns(self) -> int:
        """For how long nothing has come."""


Make = Callable[[Callable[[bytes], None], Callable[[str], None]], Session]


class Door:
    """What all client connections share."""

    def __init__(
        self, grid: Grid, limits: LimitSettings, enter: Callable[[], None], leave: Callable[[], None]
    ) -> None:
        self.limits = limits
        self.enter = enter
        self.leave = leave
        self.connections: set[Connection] = set()
        self.sessions: dict[bytes, Make] = {
            b"CP2": lambda send, close: HazelcastSession(grid, send, close, limits=limits),
            b"HF1": lambda send, close: OwnSession(grid, send, close, limits=limits),
        }

    def close_all(self) -> None:
        """End every connection."""
        for connection in list(self.connections):
            connection.close("the member is shutting down")


class Connection(asyncio.Protocol):
    """One client."""

    __slots__ = ("_door", "_first", "_reading", "_session", "_timeout", "_transport", "_why")

    def __init__(self, door: Door) -> None:
        self._door = door
        self._first = b""
        self._session: Session | None = None
        self._transport: asyncio.Transport | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self._why = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        limits = self._door.limits
        if len(self._door.connections) >= limits.connections:
            log.warning("client refused: limits.connections = %d are open", limits.connections)
            transport.abort()
            return
        self._door.connections.add(self)
        transport.set_write_buffer_limits(high=limits.unread_bytes)
        loop = asyncio.get_running_loop()
        self._timeout = loop.call_later(limits.greeting_timeout_ms / 1000, self._look)

    def _look(self) -> None:
        """Once when the greeting should have come, and then now and again: is there still a client?"""
        session = self._session
        if session is None or not session.admitted:
            self.close("it did not say who it is in time")
            return
        silent_ms = self._door.limits.silent_ms
        if session.silent_ns() > silent_ms * MILLISECOND:
            self.close(f"nothing came from it for {silent_ms} ms")
            return
        self._timeout = asyncio.get_running_loop().call_later(silent_ms / LOOKS / 1000, self._look)

    def data_received(self, data: bytes) -> None:
        session = self._session
        if session is None:
            self._begin(data)
            return
        self._door.enter()
        session.receive(data)
        self._door.leave()

    def _begin(self, data: bytes) -> None:
        self._first += data
        if len(self._first) < PREAMBLE_BYTES:
            return
        make = self._door.sessions.get(self._first[:PREAMBLE_BYTES])
        if make is None or self._transport is None:
            self.close("unknown protocol: a client begins with CP2 (Hazelcast) or HF1 (Holdfast)")
            return
        self._session = make(self._transport.write, self.close)
        rest = self._first[PREAMBLE_BYTES:]
        self._first = b""
        if rest:
            self.data_received(rest)

    def pause_writing(self) -> None:
        """The client does not read its answers: take no more of its requests."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self, why: str) -> None:
        """End this connection, after what was sent is written."""
        if not self._why:
            self._why = why
            log.debug("client connection closed: %s", why)
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.connections.discard(self)
        if self._timeout is not None:
            self._timeout.cancel()
        if self._session is not None:
            self._door.enter()
            self._session.closed()
            self._door.leave()
