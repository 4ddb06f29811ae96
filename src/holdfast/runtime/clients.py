"""The client door: one TCP port for two protocols, told apart by the first three bytes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, cast

from holdfast import __version__
from holdfast.config import LimitSettings
from holdfast.core.machine import MILLISECOND
from holdfast.core.replication.backlog import Backlog
from holdfast.runtime.strangers import Strangers, quoted
from holdfast.server.grid import Grid
from holdfast.server.hazelcast.session import HazelcastSession
from holdfast.server.session import OwnSession
from holdfast.wire import doors

log = logging.getLogger("holdfast")

PREAMBLE_BYTES = 3
LAST_WORDS_S, LAST_WORDS_LOOK_S = 0.5, 0.01
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

    @property
    def held_bytes(self) -> int:
        """Bytes of a message that has not come whole."""


Make = Callable[[Callable[[bytes], None], Callable[[str], None]], Session]


class Door:
    """What all client connections share."""

    def __init__(
        self,
        grid: Grid,
        limits: LimitSettings,
        enter: Callable[[], None],
        leave: Callable[[], None],
        failed: Callable[[Exception], None],
        *,
        backlog: Backlog | None = None,
        request_ids: int = 0,
        client_acks: bool = False,
        strangers: Strangers | None = None,
        came: Callable[[int], None] = lambda size: None,
    ) -> None:
        """`failed` hears of errors that leave the member's own state in doubt: whatever a client sends causes none.
        `backlog`: what is kept for backups; while that is too much, clients are not read. `request_ids`: how many
        requests a partition remembers. `client_acks`: clients that can may wait for backups themselves. `strangers`
        hears of what happens at the door, `came` how many bytes have come.
        """
        self.limits = limits
        self.strangers = strangers or Strangers()
        self.backlog = backlog or Backlog(limits)
        self._held: list[Connection] = []
        """Connections that are not read because of the backlog."""
        self.enter = enter
        self.leave = leave
        self.failed = failed
        self.came = came
        self.connections: set[Connection] = set()
        self._unwritten: list[Connection] = []
        self.sessions: dict[bytes, Make] = {
            doors.HAZELCAST_CLIENT: lambda send, close: HazelcastSession(
                grid, send, close, limits=limits, client_acks=client_acks
            ),
            doors.OWN_CLIENT: lambda send, close: OwnSession(
                grid, send, close, limits=limits, request_ids=request_ids, release=__version__
            ),
        }

    def hold(self, connection: Connection) -> None:
        """Read nothing more from this client for now."""
        self._held.append(connection)
        connection.hold(True)

    def backlog_changed(self) -> None:
        """Read clients again, if the backlog is small enough, or if they will be refused."""
        if not self.backlog.crowded or self.backlog.refusing:
            held, self._held = self._held, []
            for connection in held:
                connection.hold(False)

    def relieve(self, allowed: int) -> None:
        """There is no room in memory: at most so many bytes are kept of messages that have not come whole.

        The largest go first, with their connections; what they asked for was not done.
        """
        held = sorted(self.connections, key=lambda each: each.held_bytes)
        size = sum(each.held_bytes for each in held)
        closed = 0
        while size > allowed:
            size -= held[-1].held_bytes
            closed += 1
            held.pop().close("memory is full, and a message of it had not come whole")
        if closed:
            log.warning("memory is full: %d clients whose messages had not come whole were closed", closed)

    def write_soon(self, connection: Connection) -> None:
        """Let the connection write its answers when all that has arrived by now has been looked at.

        Answers of many connections that are written one after the other cost less than answers between reads: a client
        is woken once for several of them, and not by the first before the second is ready.
        """
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write)
        self._unwritten.append(connection)

    def _write(self) -> None:
        connections, self._unwritten = self._unwritten, []
        for connection in connections:
            connection.write()

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


class Connection(asyncio.Protocol):
    """One client."""

    __slots__ = (
        "_answers",
        "_backlog",
        "_came",
        "_door",
        "_enter",
        "_first",
        "_held",
        "_leave",
        "_receive",
        "_session",
        "_timeout",
        "_transport",
        "_unread",
        "_why",
    )

    def __init__(self, door: Door) -> None:
        self._door = door
        self._answers: list[bytes] = []
        self._first = b""
        self._session: Session | None = None
        self._held = self._unread = False
        self._backlog = door.backlog
        self._enter = door.enter
        self._leave = door.leave
        self._came = door.came
        self._receive: Callable[[bytes], None] = self._begin
        self._transport: asyncio.Transport | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self._why = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        limits = self._door.limits
        if len(self._door.connections) >= limits.connections:
            self._door.strangers.tell(
                "clients refused, because too many are connected",
                "client refused: limits.connections = %s are open",
                limits.connections,
            )
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
        try:
            self._enter()
            self._receive(data)
            self._leave()
            self._came(len(data))
        except Exception as error:  # noqa: BLE001  (the member stops, whatever it is)
            self._door.failed(error)
        backlog = self._backlog
        if backlog.crowded and not backlog.refusing and not self._held:
            self._door.hold(self)

    def _begin(self, data: bytes) -> None:
        self._first += data
        if len(self._first) < PREAMBLE_BYTES:
            return
        make = self._door.sessions.get(self._first[:PREAMBLE_BYTES])
        if make is None or self._transport is None:
            self._turn_away()
            return
        self._session = make(self.send, self.close)
        self._receive = self._session.receive
        rest = self._first[PREAMBLE_BYTES:]
        self._first = b""
        if rest:
            self._receive(rest)

    def _turn_away(self) -> None:
        """Whoever this is has the wrong port: say so, to him if he can hear it, and once to the log."""
        stranger = doors.who(self._first)
        if stranger == doors.HTTP and self._transport is not None:
            self._transport.write(doors.NOT_HTTP)
        if stranger:
            self._door.strangers.tell(
                "wrong doors", "%s came to %s, and was turned away", stranger, doors.CLIENTS_PORT
            )
        self.close("unknown protocol: a client begins with CP2 (Hazelcast) or HF1 (Holdfast)")

    def send(self, answer: bytes) -> None:
        """Write this soon."""
        if not self._answers:
            self._door.write_soon(self)
        self._answers.append(answer)

    def write(self) -> None:
        """Write what has gathered."""
        answers = self._answers
        if answers and self._transport is not None:
            whole = answers[0] if len(answers) == 1 else b"".join(answers)
            answers.clear()
            self._transport.write(whole)

    def pause_writing(self) -> None:
        """The client does not read its answers: take no more of its requests."""
        self._unread = True
        self._read_or_not()

    def resume_writing(self) -> None:
        self._unread = False
        self._read_or_not()

    def hold(self, held: bool) -> None:
        """Take no more of its requests, or take them again."""
        self._held = held
        self._read_or_not()

    def _read_or_not(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._held or self._unread:
            transport.pause_reading()
        else:
            transport.resume_reading()

    @property
    def held_bytes(self) -> int:
        """Bytes of a message of its client that has not come whole."""
        return self._session.held_bytes if self._session is not None and not self._why else 0

    def close(self, why: str) -> None:
        """End this connection, after what was sent is written."""
        if not self._why:
            self._why = why
            self._door.strangers.counts["client connections closed by this member"] += 1
            log.debug("client connection closed: %s", quoted(why))
        if self._transport is not None:
            self.write()
            self._transport.close()

    def abort(self) -> None:
        """End this connection now."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.connections.discard(self)
        self._answers.clear()
        if self._timeout is not None:
            self._timeout.cancel()
        if self._session is not None:
            try:
                self._door.enter()
                self._session.closed()
                self._door.leave()
            except Exception as error:  # noqa: BLE001  (the member stops, whatever it is)
                self._door.failed(error)
            self._session = None
