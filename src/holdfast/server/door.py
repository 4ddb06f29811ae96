"""The client port: one port for two protocols, distinguished by the first three bytes. Real sockets and the
simulator use the same code.

- server/D-1: A connection with more than `limits.output_buffer_bytes` of unread responses is served again
  when the client has read them.
- server/D-2: While all connections together have more than `limits.total_output_buffer_bytes` of unread
  responses, only connections without any are served. Above twice the limit the connection with the most is
  closed.
- server/D-3: In one turn of the loop clients are served for some ms. The rest waits for later turns, in which
  each connection gets a slice; messages of members and timers run in between.
- server/D-4: Connections that have not logged in have few places: when these are full, a new one replaces the
  oldest of the address with the most. So unauthenticated peers cannot keep out a client that logs in at once.
  Logged-in clients are limited in total and for each address; operators have places of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from holdfast.actions.member_process import ClientConnection as ClientOfMember
from holdfast.config import LimitSettings
from holdfast.core.member_view import ReplicationBacklog
from holdfast.core.model.forwarded_frames import OutgoingFrames
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.primary_backup.backlog import Backlog
from holdfast.server.fast_path import FastPath, ServedMaps
from holdfast.server.flow import Flow, Pressure
from holdfast.server.frame_forwards import FrameForwards
from holdfast.server.grid import Grid
from holdfast.server.handshake import Capabilities
from holdfast.server.hazelcast import reference_lane
from holdfast.server.hazelcast.hazelcast_session import HazelcastSession
from holdfast.server.hazelcast.lane_tally import LaneTally
from holdfast.server.hazelcast.reference_lane import LaneCode
from holdfast.server.logins import net_of
from holdfast.server.own_session import OwnSession
from holdfast.server.quota import Quota
from holdfast.server.session_client import STRANGER, SessionClient
from holdfast.wire import doors

PREAMBLE_BYTES = 3
CLOSE_TIMEOUT_S = 5.0
"""How long a closing connection may take to read the responses that were written before."""
IDLE_CHECKS = 10
"""Idle checks per `limits.idle_timeout_ms`."""
TURN_NS = 8 * MILLISECOND
"""Time for clients in one turn of the loop,"""
SLICES_NS = 4 * MILLISECOND
"""and for connections with work left over from earlier turns."""
CHECK_BYTES = 16 * 1024
"""The clock is read, and input reported, after so many bytes"""
CHECK_UNITS = 1000
"""or so many units of work (`server.flow`)."""
COUNTED_BYTES = 64 * 1024
"""Responses are counted at once above this size, otherwise when this much has gathered."""
ROOM_CHECK_S = 0.05
"""Interval at which connections that wait for room are checked."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Loop(Protocol):
    def call_soon(self, callback: Callable[[], object], /) -> object: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer: ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> Timer: ...

    def time(self) -> float:
        """Seconds of a monotonic clock."""


class Transport(Protocol):
    """The subset of `asyncio.Transport` that is used here."""

    def write(self, data: bytes, /) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def is_closing(self) -> bool: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int: ...

    def set_write_buffer_limits(self, high: int) -> None:
        """Set the size above which `pause_writing` is called."""


class ConnectionEvents(Protocol):
    """Receives events of connections, for the log and the status."""

    def report(self, kind: str, line: str, /, *args: object) -> None:
        """Count an event of this kind, and log it. `args`: foreign text."""

    def closed(self, why: str, /) -> None: ...


class Session(Protocol):
    """The interface that the sessions of both protocols share."""

    def receive(self, data: bytes) -> None: ...

    def fast_path(self) -> FastPath | None:
        """The data lane's inputs to serve the next read buffer instead of `receive`; None: use `receive`."""

    def served(self, data: bytes, at: int, out: bytes, unsealed: bytes) -> None:
        """The data lane has served a read buffer up to `at`. The responses are not written yet; those to
        writes (`unsealed`) wait for backups.
        """

    def forward(self, departing: list[OutgoingFrames]) -> None:
        """Forward these requests, which the data lane took from a read buffer."""

    def unknown(self, answers: bytes) -> None:
        """The outcomes of writes that the data lane served, and whose responses were held back, will never be
        known.
        """

    def resume(self) -> None:
        """Resume the work that was left when the session stopped."""

    def closed(self) -> None: ...

    @property
    def coming(self) -> int:
        """Bytes of input that cannot be processed yet."""

    @property
    def admitted(self) -> bool: ...

    @property
    def unanswered(self) -> bool: ...

    def silent_ns(self) -> int: ...

    def client(self) -> SessionClient: ...


_NUMBERS = count(1)
"""Numbers of connections, for operators."""
Admit = Callable[[bool], str]
"""Admits an authenticated client; takes whether it is an operator. Returns the reason for a rejection; empty:
admitted.
"""
Make = Callable[[Callable[[bytes], None], Callable[[str], None], Flow, Admit, str], Session]
"""Makes the session of a connection; the last argument is the client's address."""


@dataclass(frozen=True, slots=True)
class DoorMember:
    enter: Callable[[], None]
    """Called before a session works: the member's core is at rest."""
    leave: Callable[[], None]
    """Called after that: effects of the core are carried out."""
    failed: Callable[[Exception], None]
    """Takes errors that leave the member's own state in doubt. No client input causes one."""
    came: Callable[[int], None] = lambda size: None
    """Takes the number of bytes received."""
    backlog: ReplicationBacklog | None = None
    """The records kept for backups: while they are too many, clients are not read."""
    forwards: FrameForwards | None = None
    """Takes requests that other members serve; None: the data lane forwards none."""


@dataclass(frozen=True, slots=True)
class DoorOptions:
    """How clients are served."""

    request_ids: int = 0
    client_acks: bool = False
    """Whether capable clients may wait for acknowledgements of backups themselves."""
    release: str = ""
    """The version of Holdfast, reported to clients."""
    lane_code: LaneCode = reference_lane
    """The data lane, plain or compiled."""
    tally: LaneTally | None = None
    """Counts what the data lane has served."""


class Door:
    def __init__(
        self,
        grid: Grid,
        limits: LimitSettings,
        loop: Loop,
        clock: Callable[[], int],
        connection_log: ConnectionEvents,
        member: DoorMember,
        options: DoorOptions | None = None,
    ) -> None:
        """`clock` returns nanoseconds; it limits how long clients are served in a turn. `connection_log` is notified
        of connections that are rejected or closed.
        """
        options = options or DoorOptions()
        self.limits = limits
        self.loop = loop
        self.clock = clock
        self.connection_log = connection_log
        self.enter, self.leave = member.enter, member.leave
        self.failed, self.came = member.failed, member.came
        self.backlog: ReplicationBacklog = member.backlog or Backlog(limits)
        self.tally = options.tally
        self.began_ns = 0
        """By `clock`, when the first request was read whose response leaves with the next write."""
        self._held: list[ClientConnection] = []
        """Connections that are not read because of the backlog."""
        self.member_port = 0
        """The port for members, sent to members that connect to this port by mistake."""
        self.come = 0
        """Bytes received since the last `check_turn`."""
        self.spent = 0
        self.connections: dict[ClientConnection, None] = {}
        """Oldest first."""
        self.unwritten: list[ClientConnection] = []
        self.sessions = _sessions(grid, limits, options, member.forwards)
        self._half_open: Quota[ClientConnection] = Quota(limits.unauthenticated_connections)
        self._clients: Quota[ClientConnection] = Quota(limits.connections)
        self._operators: Quota[ClientConnection] = Quota(limits.operator_connections)
        self._turn_ends_ns = 0
        """End of the time for clients in this turn of the loop; 0: the clock was not read yet. Turns without
        responses go unnoticed, so a turn may seem too long: then the next client waits for one more turn,
        which is harmless.
        """
        self.late = False
        """Whether that time is over."""
        self._waiting: deque[ClientConnection] = deque()
        self._woken = False
        self._stuck: list[ClientConnection] = []
        """Connections that wait for room for their responses."""
        self.pressure = Pressure()
        self._dropping = False
        """Whether connections are being closed for their unread responses."""
        self._recounted = False
        """Whether all connections were counted in this turn of the loop."""
        self._unread = 0
        """Bytes of unread responses and incomplete messages, when last counted."""

    def hold(self, connection: ClientConnection) -> None:
        self._held.append(connection)
        connection.hold(True)

    def backlog_changed(self) -> None:
        """Resume reading if the backlog has shrunk, or if writes are rejected anyway."""
        if not self.backlog.crowded or self.backlog.refusing:
            held, self._held = self._held, []
            for connection in held:
                connection.hold(False)

    def relieve(self, allowed: int) -> None:
        """Memory is full: keep at most `allowed` bytes of incomplete messages. Connections with the largest
        are closed; their requests were not applied.
        """
        held = sorted(self.connections, key=lambda each: each.coming)
        size = sum(each.coming for each in held)
        closed = 0
        while size > allowed:
            size -= held[-1].coming
            closed += 1
            held.pop().close("memory is full, and a message of it had not come whole")
        if closed:
            self.connection_log.report(
                "clients disconnected: memory full",
                "memory is full: %s clients whose messages had not come whole were closed",
                closed,
            )

    def close_quiet(self, silent_ns: int, why: str) -> int:
        """Close the connections whose clients have been silent for so long and wait for nothing. Returns how many
        clients' connections are left, without those of operators.
        """
        clients = [each for each in self.connections if not each.operates]
        quiet = [each for each in clients if each.is_quiet(silent_ns)]
        for connection in quiet:
            connection.close(why)
        return len(clients) - len(quiet)

    def check_turn(self) -> None:
        """Report the received bytes, and check whether clients have used up their time in this turn."""
        size, self.come, self.spent = self.come, 0, 0
        self.came(size)
        now_ns = self.clock()
        if not self._turn_ends_ns:
            self._turn_ends_ns = now_ns + TURN_NS
        self.late = now_ns > self._turn_ends_ns

    def new_turn(self) -> None:
        """A new turn of the loop: clients may be served for some ms again."""
        self._turn_ends_ns = 0
        self.late = self._recounted = False

    def write_soon(self, connection: ClientConnection) -> None:
        """Write the connection's responses when all input that has arrived by now has been served.

        Writing the responses of many connections in a row costs less than writing between reads: a client
        wakes once for several responses, not for the first before the second is ready.
        """
        if not self.unwritten:
            self.loop.call_soon(self._write)
        self.unwritten.append(connection)

    def _write(self) -> None:
        self.new_turn()
        connections, self.unwritten = self.unwritten, []
        for connection in connections:
            connection.write()
        if self.tally is not None:
            self.tally.close(self.clock, self.began_ns)

    # -- admission

    def accept(self, connection: ClientConnection) -> None:
        connection.number, connection.since_ns = next(_NUMBERS), self.clock()
        assert connection not in self.connections, "a connection is made once"
        self.connections[connection] = None
        oldest = self._half_open.add(connection, net_of(connection.peer))
        if oldest is not None:
            self.connection_log.report(
                "clients disconnected: too many not logged in",
                "client %s disconnected: limits.unauthenticated_connections have not logged in",
                oldest.peer,
            )
            oldest.abort()

    def set_limits(self, limits: LimitSettings) -> None:
        """Apply changed limits. Existing connections stay."""
        self.limits = limits
        self._clients.allow(limits.connections)
        self._operators.allow(limits.operator_connections)

    def admit(self, connection: ClientConnection, *, operates: bool) -> str:
        """Give an authenticated connection a place. Returns the reason why there is none; empty: admitted."""
        limits, peer = self.limits, connection.peer
        if connection not in self._half_open:
            return ""
        why = ""
        if len(self._clients) >= limits.connections:
            why = f"{limits.connections} clients are connected, which is the limit (limits.connections)"
        elif self._clients.of(peer) >= limits.connections_per_address:
            why = (
                f"{limits.connections_per_address} clients of this address are connected, which is the limit "
                "(limits.connections_per_address)"
            )
        if not why:
            self._clients.add(connection, peer)
        elif operates:
            oldest = self._operators.add(connection, "")
            if oldest is not None:
                oldest.close("another operator has come, and all places are taken")
            why = ""
        else:
            self.connection_log.report(
                "clients refused: too many connections", "client %s refused: %s", peer, why
            )
        if not why:
            self._half_open.remove(connection)
            connection.operates = operates
            connection.watch_idle()
        return why

    def gone(self, connection: ClientConnection) -> None:
        self.connections.pop(connection, None)
        for kind in (self._half_open, self._clients, self._operators):
            kind.remove(connection)

    # -- for operators

    def described(self) -> list[ClientOfMember]:
        now_ns = self.clock()
        return [connection.described(now_ns) for connection in self.connections]

    def end(self, number: int, reason: str) -> bool:
        """Close the connection with this number; returns whether there is one."""
        for connection in self.connections:
            if connection.number == number:
                connection.close(reason)
                return True
        return False

    # -- turns

    def queue(self, connection: ClientConnection) -> None:
        """Give the connection a slice in one of the next turns."""
        self._waiting.append(connection)
        if not self._woken:
            self._woken = True
            self.loop.call_soon(self._run_slices)

    def _run_slices(self) -> None:
        """Give each waiting connection a slice, for some ms; one that got none is the first in the next turn."""
        self._woken = False
        self.new_turn()
        waiting = self._waiting
        ends_ns = self.clock() + SLICES_NS
        for _ in range(len(waiting)):
            waiting.popleft().run_slice()
            if self.clock() >= ends_ns:
                break
        if waiting and not self._woken:
            self._woken = True
            self.loop.call_soon(self._run_slices)

    # -- room for answers

    def counted(self, more: int) -> None:
        self._unread += more
        most, pressure = self.limits.total_output_buffer_bytes, self.pressure
        if self._unread > most and not self._recounted:
            # Clients have read since; only a count shows it.
            self._recounted = True
            self._unread = sum(connection.count() for connection in self.connections)
        pressure.crowded = self._unread > most
        if self._unread > 2 * most and not self._dropping:
            self._dropping = True
            self._drop_greediest()
            self._dropping = False

    def _drop_greediest(self) -> None:
        while self._unread > 2 * self.limits.total_output_buffer_bytes:
            greediest = max(self.connections, key=lambda connection: connection.unread, default=None)
            if greediest is None or not greediest.unread:
                return
            self.connection_log.report(
                "clients disconnected: output buffers full",
                "client %s disconnected: it has %s bytes of answers and requests under way, and all clients together "
                "have more than twice limits.total_output_buffer_bytes = %s",
                greediest.peer,
                greediest.unread,
                self.limits.total_output_buffer_bytes,
            )
            greediest.abort()

    def stuck(self, connection: ClientConnection) -> None:
        """Resume the connection when it has room for responses."""
        if not self._stuck:
            self.loop.call_later(ROOM_CHECK_S, self._check_stuck)
        self._stuck.append(connection)

    def _check_stuck(self) -> None:
        stuck, self._stuck = self._stuck, []
        self._recounted = False
        self.counted(0)
        for connection in stuck:
            connection.retry()


def _sessions(
    grid: Grid, limits: LimitSettings, options: DoorOptions, forwards: FrameForwards | None
) -> dict[bytes, Make]:
    served_maps = ServedMaps(grid.lane_access, forwards)
    capabilities = Capabilities(options.request_ids, options.release)
    return {
        doors.HAZELCAST_CLIENT: lambda send, close, flow, admit, peer: HazelcastSession(
            grid,
            send,
            close,
            limits=limits,
            client_acks=options.client_acks,
            flow=flow,
            admit=admit,
            lane_code=options.lane_code,
            peer=peer,
            tally=options.tally,
            served_maps=served_maps,
        ),
        doors.OWN_CLIENT: lambda send, close, flow, admit, peer: OwnSession(
            grid,
            send,
            close,
            limits=limits,
            capabilities=capabilities,
            flow=flow,
            admit=admit,
            peer=peer,
        ),
    }


def _drop_input(_: bytes) -> None: ...


class ClientConnection:
    """One client connection; its methods are those of an `asyncio.Protocol`."""

    __slots__ = (
        "_answers",
        "_backlog",
        "_close_reason",
        "_door",
        "_enter",
        "_flow",
        "_held",
        "_input",
        "_leave",
        "_preamble",
        "_queued",
        "_receive",
        "_session",
        "_stuck",
        "_timeout",
        "_transport",
        "_unread",
        "number",
        "operates",
        "peer",
        "since_ns",
        "unread",
    )

    def __init__(self, door: Door) -> None:
        self._door = door
        self._answers: list[bytes] = []
        self._preamble = b""
        self._session: Session | None = None
        self._flow = Flow(self._room, self._wake, door.limits.output_buffer_bytes, door.pressure)
        self._input: deque[bytes] = deque()
        """Input that was not given to the session yet."""
        self._held = self._unread = self._queued = self._stuck = False
        self._backlog = door.backlog
        self._enter = door.enter
        self._leave = door.leave
        self._receive: Callable[[bytes], None] = self._begin
        self._transport: Transport | None = None
        self._timeout: Timer | None = None
        self._close_reason = ""
        self.peer = ""
        self.number = 0
        """Unique in this process."""
        self.operates = False
        """It is an operator's: it writes no entries, and is read though the backlog is crowded."""
        self.since_ns = 0
        self.unread = 0

    def begin(self, transport: Transport, peer: str) -> None:
        self._transport = transport
        self.peer = peer
        limits = self._door.limits
        self._door.accept(self)
        transport.set_write_buffer_limits(high=limits.output_buffer_bytes)
        self._timeout = self._door.loop.call_later(limits.auth_timeout_ms / 1000, self._check_idle)

    def _check_idle(self) -> None:
        session = self._session
        if session is None or not session.admitted:
            self.close("it did not say who it is in time")
            return
        idle_timeout_ms = self._door.limits.idle_timeout_ms
        if session.silent_ns() > idle_timeout_ms * MILLISECOND:
            self.close(f"nothing came from it for {idle_timeout_ms} ms")
            return
        self.watch_idle()

    def watch_idle(self) -> None:
        """The client was admitted: check now and then whether it is still active."""
        if self._timeout is not None:
            self._timeout.cancel()
        pause_s = self._door.limits.idle_timeout_ms / IDLE_CHECKS / 1000
        self._timeout = self._door.loop.call_later(pause_s, self._check_idle)

    # -- input

    def data_received(self, data: bytes) -> None:
        if self._queued or self._stuck or self._input or self._door.late:
            self._input.append(data)
            self._wake()
            if len(data) > COUNTED_BYTES:
                # A whole message, maybe: a large value may be received apart.
                self.recount()
        else:
            self._serve(self._receive, data)

    def fast_path(self) -> FastPath | None:
        """The data lane's inputs to serve the next read buffer, if neither this connection nor its session
        is needed for it. Valid until reading is paused or resumed, or this connection gets input.
        """
        if self._queued or self._stuck or self._input or self._held or self._unread or self._session is None:
            return None
        return self._session.fast_path()

    def served(self, data: bytes, at: int, out: bytes, unsealed: bytes) -> None:
        """The data lane has served input up to `at` (`Session.served`)."""
        session = self._session
        assert session is not None, "the session allowed the data lane"
        self._serve(lambda data: session.served(data, at, out, unsealed), data)

    def forward(self, departing: list[OutgoingFrames]) -> None:
        if self._session is not None:
            self._session.forward(departing)

    def unknown(self, answers: bytes) -> None:
        if self._session is not None:
            self._session.unknown(answers)

    def recount(self) -> None:
        """The size of this connection's buffers has changed without it."""
        self._door.counted(-self.unread + self.count())

    def _serve(self, callback: Callable[[bytes], None], data: bytes) -> None:
        door, flow = self._door, self._flow
        if door.tally is not None and not door.unwritten:
            door.began_ns = door.clock()
        try:
            self._enter()
            callback(data)
            self._leave()
            door.come += len(data)
            door.spent += flow.spent
            if door.come > CHECK_BYTES or door.spent > CHECK_UNITS:
                door.check_turn()
        except Exception as error:  # noqa: BLE001  (the member stops, whatever it is)
            door.failed(error)
        if flow.rest or flow.works or self._input:
            self._wake()
        if flow.gathered > COUNTED_BYTES or flow.held > COUNTED_BYTES or flow.coming or flow.rest:
            self._door.counted(-self.unread + self.count())
        backlog = self._backlog
        if backlog.crowded and not backlog.refusing and not self._held and not self.operates:
            self._door.hold(self)

    def _begin(self, data: bytes) -> None:
        self._preamble += data
        if len(self._preamble) < PREAMBLE_BYTES:
            return
        make = self._door.sessions.get(self._preamble[:PREAMBLE_BYTES])
        if make is None or self._transport is None:
            self._reject_protocol()
            return
        self._session = make(
            self.send,
            self.close,
            self._flow,
            lambda operates: self._door.admit(self, operates=operates),
            self.peer,
        )
        self._receive = self._session.receive
        rest = self._preamble[PREAMBLE_BYTES:]
        self._preamble = b""
        if rest:
            self._receive(rest)

    def _reject_protocol(self) -> None:
        """Reject an unknown protocol: reply if the peer can understand it, and log once."""
        stranger = doors.who(self._preamble)
        if stranger == doors.HTTP and self._transport is not None:
            self._transport.write(doors.NOT_HTTP)
        if self._preamble.startswith(doors.MEMBER[:PREAMBLE_BYTES]) and self._transport is not None:
            self._transport.write(doors.other_port(self._door.member_port))
        if stranger:
            hint = (
                "; it does not use TLS without tls.certificate"
                if self._preamble.startswith(doors.TLS)
                else ""
            )
            self._door.connection_log.report(
                "connections to the wrong port",
                f"%s came to %s, and was turned away{hint}",
                stranger,
                doors.CLIENTS_PORT,
            )
        self.close("unknown protocol: a client begins with CP2 (Hazelcast) or HF1 (Holdfast)")

    # -- later slices

    def _wake(self) -> None:
        """Schedule a slice, as there is work without new input."""
        if not self._queued and not self._stuck:
            self._queued = True
            self._door.queue(self)
            self._read_or_not()

    def run_slice(self) -> None:
        """Run one slice of the remaining work, if there is room for responses and the backlog permits it."""
        self._queued = False
        session, flow = self._session, self._flow
        if self._transport is None or self._transport.is_closing():
            return
        if self._held or (session is not None and not flow.works and flow.left < 0):
            self._stuck = True
            self._door.stuck(self)
            self._read_or_not()
        elif session is not None and flow.halted:
            self._serve(self._resume, b"")
        elif self._input:
            self._serve(self._receive, self._input.popleft())
        if not self._queued:
            self._read_or_not()

    def _resume(self, _: bytes) -> None:
        if self._session is not None:
            self._session.resume()

    def retry(self) -> None:
        if self._stuck:
            self._stuck = False
            self._wake()

    def _room(self) -> int:
        unread = self._flow.gathered
        if self._transport is not None:
            unread += self._transport.get_write_buffer_size()
        if unread > COUNTED_BYTES:
            self._door.counted(-self.unread + self.count())
        if self._door.pressure.crowded:
            return -1 if unread else 0
        return self._door.limits.output_buffer_bytes - unread

    def is_quiet(self, silent_ns: int) -> bool:
        """Whether nothing of its client is unanswered, and nothing has come from it for so long."""
        session = self._session
        if session is None:
            return True
        silent = session.silent_ns() >= silent_ns
        return silent and not (session.unanswered or self._input or self._answers)

    def described(self, now_ns: int) -> ClientOfMember:
        session = self._session
        client = session.client() if session is not None and session.admitted else STRANGER
        return ClientOfMember(
            self.number,
            self.peer,
            client.user,
            client.kind,
            client.type,
            client.name,
            (now_ns - self.since_ns) // MILLISECOND,
            0 if session is None else session.silent_ns() // MILLISECOND,
            self.count(),
            client.transactions,
        )

    def count(self) -> int:
        self.unread = self._flow.gathered + self._flow.held
        if self._transport is not None:
            self.unread += self._transport.get_write_buffer_size()
        if self._session is not None:
            self.unread += self._session.coming
        if self._input:
            self.unread += sum(map(len, self._input))
        return self.unread

    # -- output

    def send(self, answer: bytes) -> None:
        if not self._answers:
            self._door.write_soon(self)
        self._answers.append(answer)
        self._flow.gathered += len(answer)

    def write(self) -> None:
        answers = self._answers
        if answers and self._transport is not None:
            whole = answers[0] if len(answers) == 1 else b"".join(answers)
            answers.clear()
            self._flow.gathered = 0
            self._transport.write(whole)
            if self.unread or len(whole) > COUNTED_BYTES:
                self._door.counted(-self.unread + self.count())
            if self._stuck:
                self.retry()

    def pause_writing(self) -> None:
        """The client does not read its responses: process no more of its requests."""
        self._unread = self._flow.paused = True
        self._read_or_not()

    def resume_writing(self) -> None:
        self._unread = self._flow.paused = False
        self.retry()
        self._read_or_not()

    def hold(self, held: bool) -> None:
        """Stop or resume processing requests."""
        self._held = held
        self.retry()
        self._read_or_not()

    def _read_or_not(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._held or self._unread or self._queued or self._stuck or self._input:
            transport.pause_reading()
        else:
            transport.resume_reading()

    @property
    def coming(self) -> int:
        """Bytes of incomplete or waiting messages of its client."""
        if self._session is None or self._close_reason:
            return 0
        return self._session.coming + sum(map(len, self._input))

    def close(self, why: str) -> None:
        """Close this connection after writing what was sent."""
        if not self._close_reason:
            self._close_reason = why
            self._door.connection_log.closed(why)
        if self._transport is not None:
            self.write()
            self._transport.close()
            if self._timeout is not None:
                self._timeout.cancel()
            self._timeout = self._door.loop.call_later(CLOSE_TIMEOUT_S, self.abort)

    def abort(self) -> None:
        """Close this connection now and drop its buffers."""
        self._answers.clear()
        self._input.clear()
        self._door.counted(-self.unread)
        self._flow.gathered = self.unread = 0
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.gone(self)
        self._door.counted(-self.unread)
        self.unread = 0
        self._answers.clear()
        self._input.clear()
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
        # Without a circle this goes when the last answer is in, and leaves nothing to the collector.
        self._flow.end()
        self._receive = _drop_input
        self._timeout = None
