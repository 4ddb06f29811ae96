"""The client door: one port for two protocols, told apart by the first three bytes.

The same in both worlds: it is given a loop that calls it, and transports that carry bytes.

- server/D-1: A connection with more than `limits.output_buffer_bytes` of unread answers is served again when they have
  left.
- server/D-2: While all connections together have more than `limits.total_output_buffer_bytes`, only those are served
  that have read all their answers. Above twice as much the connection with the most ends.
- server/D-3: In one turn of the loop clients are served for some ms. What came of others waits for the next turns, in
  which each connection has its slice: what members send, and timers, have theirs in between.
- server/D-4: Who has not proved who it is has a place only while there are few such connections: for one more the
  oldest of the address with the most is closed. So strangers cannot keep out who logs in at once. Clients that are
  logged in are counted apart, in all and for each address; the operator has places of its own.
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
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.primary_backup.backlog import Backlog
from holdfast.server.flow import Flow, Pressure
from holdfast.server.grid import Grid
from holdfast.server.handshake import Capabilities
from holdfast.server.hazelcast import reference_lane
from holdfast.server.hazelcast.hazelcast_session import HazelcastSession
from holdfast.server.hazelcast.lane_tally import LaneTally
from holdfast.server.hazelcast.reference_lane import LaneCode
from holdfast.server.logins import net_of
from holdfast.server.own_session import OwnSession
from holdfast.server.plain import KnownNames, Plain
from holdfast.server.quota import Quota
from holdfast.server.session_client import STRANGER, SessionClient
from holdfast.wire import doors

PREAMBLE_BYTES = 3
REST_S = 5.0
"""How long a connection that is closed may take to read what was answered before."""
LOOKS = 10
"""How often within `limits.idle_timeout_ms` a connection is looked at."""
TURN_NS = 8 * MILLISECOND
"""How long clients are served in one turn of the loop,"""
SLICES_NS = 4 * MILLISECOND
"""and how long those whose work was left over from turns before."""
LOOK_BYTES = 16 * 1024
"""When so many bytes have come it is looked how long that took, and told how many there were."""
LOOK_UNITS = 1000
"""And when so much work was done (`server.flow`)."""
COUNTED_BYTES = 64 * 1024
"""Answers of more bytes are counted at once, others when there are as many as that."""
STUCK_S = 0.05
"""How often it is looked whether connections that wait for room have some."""


class Timer(Protocol):
    """Something that will be done."""

    def cancel(self) -> None:
        """Do not do it."""


class Loop(Protocol):
    """What calls the door: the event loop, or the simulator's."""

    def call_soon(self, deed: Callable[[], object], /) -> object:
        """Call this when everything that has arrived by now has been looked at."""

    def call_later(self, delay: float, deed: Callable[[], object], /) -> Timer:
        """Call this after so many seconds."""

    def call_at(self, when: float, deed: Callable[[], object], /) -> Timer:
        """Call this at that `time`."""

    def time(self) -> float:
        """Seconds, since whenever."""


class Transport(Protocol):
    """What carries the bytes of one connection: of `asyncio.Transport` what is used here."""

    def write(self, data: bytes, /) -> None:
        """Send this after what was written before."""

    def close(self) -> None:
        """End the connection when everything is written."""

    def abort(self) -> None:
        """End it now."""

    def is_closing(self) -> bool:
        """Whether it is about to end."""

    def pause_reading(self) -> None:
        """Give the connection nothing more."""

    def resume_reading(self) -> None:
        """Give it what comes, again."""

    def get_write_buffer_size(self) -> int:
        """Bytes that were written and have not left."""

    def set_write_buffer_limits(self, high: int) -> None:
        """From how many on the connection is told (`pause_writing`)."""


class Ears(Protocol):
    """Who hears what strangers do: the log and the status."""

    def tell(self, kind: str, line: str, /, *said: object) -> None:
        """Count this kind, and tell it with what they said."""

    def closed(self, why: str, /) -> None:
        """This member has closed a client's connection."""


class Session(Protocol):
    """What both protocols' sessions have in common."""

    def receive(self, data: bytes) -> None:
        """A read buffer has come."""

    def plain(self) -> Plain | None:
        """What serves the next read buffer in place of `receive`; None: nothing does."""

    def served(self, data: bytes, at: int, out: bytes, unsealed: bytes) -> None:
        """The data lane was given a read buffer that way, and came as far as `at`. The answers are not written yet, and
        those to writes (`unsealed`) wait for backups.
        """

    def unknown(self, answers: bytes) -> None:
        """Answers to writes that were served that way and held back, by whoever served: nobody will know of them."""

    def go_on(self) -> None:
        """Do some more of what was left when the session stopped, as its flow says."""

    def closed(self) -> None:
        """The connection is gone."""

    @property
    def coming(self) -> int:
        """Bytes that have come in and cannot be worked on yet."""

    @property
    def admitted(self) -> bool:
        """Whether the client has shown that it may come in."""

    def silent_ns(self) -> int:
        """For how long nothing has come."""

    def client(self) -> SessionClient:
        """The client that has logged in."""


_NUMBERS = count(1)
"""Numbers of connections, for operators."""
LetIn = Callable[[bool], str]
"""Why a client that has proved who it is may not come in all the same; empty: it may. Takes whether it operates."""
Make = Callable[[Callable[[bytes], None], Callable[[str], None], Flow, LetIn, str], Session]
"""Makes the session of a connection; the last is the client's address."""


@dataclass(frozen=True, slots=True)
class DoorMember:
    """The member behind a door."""

    enter: Callable[[], None]
    """Called before a session works: the member's core is at rest."""
    leave: Callable[[], None]
    """Called after that: what the core wants now is carried out."""
    failed: Callable[[Exception], None]
    """Takes errors that leave the member's own state in doubt. Nothing that a client sends causes one."""
    came: Callable[[int], None] = lambda size: None
    """Takes how many bytes have arrived."""
    backlog: ReplicationBacklog | None = None
    """The records that are kept for backups: while they are too many, clients are not read."""


@dataclass(frozen=True, slots=True)
class DoorOptions:
    """How clients are served."""

    request_ids: int = 0
    """How many requests a partition remembers."""
    client_acks: bool = False
    """Whether clients that can do so may wait for backups themselves."""
    release: str = ""
    """The version of Holdfast, for clients."""
    lane_code: LaneCode = reference_lane
    """The data lane, plain or compiled."""
    tally: LaneTally | None = None
    """Counts what the data lane has served."""


class Door:
    """What all client connections share."""

    def __init__(
        self,
        grid: Grid,
        limits: LimitSettings,
        loop: Loop,
        clock: Callable[[], int],
        strangers: Ears,
        member: DoorMember,
        options: DoorOptions | None = None,
    ) -> None:
        """`clock` returns nanoseconds, and bounds how long clients are served in a turn. `strangers` is notified of
        connections that are rejected or closed.
        """
        options = options or DoorOptions()
        self.limits = limits
        self.loop = loop
        self.clock = clock
        self.strangers = strangers
        self.enter, self.leave = member.enter, member.leave
        self.failed, self.came = member.failed, member.came
        self.backlog: ReplicationBacklog = member.backlog or Backlog(limits)
        self.tally = options.tally
        self.began_ns = 0
        """When the first request was read whose answer leaves with the next write, by `clock`."""
        self._held: list[ClientConnection] = []
        """Connections that are not read because of the backlog."""
        self.member_port = 0
        """The port for members: members that connect to this door get it as the answer."""
        self.come = 0
        """Bytes that have arrived since the last `look`."""
        self.spent = 0
        """Units of work that were done since then."""
        self.connections: dict[ClientConnection, None] = {}
        """Oldest first."""
        self.unwritten: list[ClientConnection] = []
        """Connections with answers that leave next."""
        self.sessions = _sessions(grid, limits, options)
        self._half_open: Quota[ClientConnection] = Quota(limits.unauthenticated_connections)
        self._clients: Quota[ClientConnection] = Quota(limits.connections)
        self._operators: Quota[ClientConnection] = Quota(limits.operator_connections)
        self._turn_ends_ns = 0
        """When clients have been served for long enough in this turn of the loop; 0: the clock was not read yet. The
        door does not see turns in which nothing is answered, so a turn may seem too long: then the next client waits
        for one more turn, which does no harm."""
        self.late = False
        """Whether that time is over."""
        self._waiting: deque[ClientConnection] = deque()
        """Connections that have work without new bytes."""
        self._woken = False
        self._stuck: list[ClientConnection] = []
        """Connections that wait for room for their answers."""
        self.pressure = Pressure()
        self._dropping = False
        """Whether connections are being closed for their unread answers."""
        self._recounted = False
        """Whether all connections were counted in this turn of the loop."""
        self._unread = 0
        """Bytes of unread answers and of incomplete messages, when last counted."""

    def hold(self, connection: ClientConnection) -> None:
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
        held = sorted(self.connections, key=lambda each: each.coming)
        size = sum(each.coming for each in held)
        closed = 0
        while size > allowed:
            size -= held[-1].coming
            closed += 1
            held.pop().close("memory is full, and a message of it had not come whole")
        if closed:
            self.strangers.tell(
                "clients disconnected: memory full",
                "memory is full: %s clients whose messages had not come whole were closed",
                closed,
            )

    def look(self) -> None:
        """Some has come: tell how much, and see whether clients have been served for long enough in this turn."""
        size, self.come, self.spent = self.come, 0, 0
        self.came(size)
        now_ns = self.clock()
        if not self._turn_ends_ns:
            self._turn_ends_ns = now_ns + TURN_NS
        self.late = now_ns > self._turn_ends_ns

    def new_turn(self) -> None:
        """The loop has done something else: clients may be served for some ms again."""
        self._turn_ends_ns = 0
        self.late = self._recounted = False

    def write_soon(self, connection: ClientConnection) -> None:
        """Let the connection write its answers when all that has arrived by now has been looked at.

        Answers of many connections that are written one after the other cost less than answers between reads: a client
        is woken once for several of them, and not by the first before the second is ready.
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

    # -- who comes in

    def knock(self, connection: ClientConnection) -> None:
        """A stranger has connected."""
        connection.number, connection.since_ns = next(_NUMBERS), self.clock()
        assert connection not in self.connections, "a connection is made once"
        self.connections[connection] = None
        oldest = self._half_open.add(connection, net_of(connection.peer))
        if oldest is not None:
            self.strangers.tell(
                "clients disconnected: too many not logged in",
                "client %s disconnected: limits.unauthenticated_connections have not logged in",
                oldest.peer,
            )
            oldest.abort()

    def allow(self, limits: LimitSettings) -> None:
        """Go on with other limits. Clients that are here stay, however many they are."""
        self.limits = limits
        self._clients.allow(limits.connections)
        self._operators.allow(limits.operator_connections)

    def let_in(self, connection: ClientConnection, *, operates: bool) -> str:
        """Give it a place; answers why there is none."""
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
            self.strangers.tell("clients refused: too many connections", "client %s refused: %s", peer, why)
        if not why:
            self._half_open.remove(connection)
            connection.look_later()
        return why

    def gone(self, connection: ClientConnection) -> None:
        """The connection has ended."""
        self.connections.pop(connection, None)
        for kind in (self._half_open, self._clients, self._operators):
            kind.remove(connection)

    # -- for operators

    def described(self) -> list[ClientOfMember]:
        """All connections, oldest first."""
        now_ns = self.clock()
        return [connection.described(now_ns) for connection in self.connections]

    def end(self, number: int, reason: str) -> bool:
        """End the connection with this number; returns whether there is one."""
        for connection in self.connections:
            if connection.number == number:
                connection.close(reason)
                return True
        return False

    # -- turns

    def queue(self, connection: ClientConnection) -> None:
        """The connection is to go on in one of the next turns."""
        self._waiting.append(connection)
        if not self._woken:
            self._woken = True
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Let each connection make one slice, for some ms; who had none is the first in the next turn."""
        self._woken = False
        self.new_turn()
        waiting = self._waiting
        ends_ns = self.clock() + SLICES_NS
        for _ in range(len(waiting)):
            waiting.popleft().go_on()
            if self.clock() >= ends_ns:
                break
        if waiting and not self._woken:
            self._woken = True
            self.loop.call_soon(self._go_on)

    # -- room for answers

    def counted(self, more: int) -> None:
        """A connection has so many unread bytes more than it had when it was counted before."""
        self._unread += more
        most, pressure = self.limits.total_output_buffer_bytes, self.pressure
        if self._unread > most and not self._recounted:
            # What they have read since nobody has said.
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
            self.strangers.tell(
                "clients disconnected: output buffers full",
                "client %s disconnected: it has %s bytes of answers and requests under way, and all clients together "
                "have more than twice limits.total_output_buffer_bytes = %s",
                greediest.peer,
                greediest.unread,
                self.limits.total_output_buffer_bytes,
            )
            greediest.abort()

    def stuck(self, connection: ClientConnection) -> None:
        """The connection is to go on when it has room for answers."""
        if not self._stuck:
            self.loop.call_later(STUCK_S, self._look_at_stuck)
        self._stuck.append(connection)

    def _look_at_stuck(self) -> None:
        stuck, self._stuck = self._stuck, []
        self._recounted = False
        self.counted(0)
        for connection in stuck:
            connection.look()


def _sessions(grid: Grid, limits: LimitSettings, options: DoorOptions) -> dict[bytes, Make]:
    """What makes the session of a connection, by the preamble of its protocol."""
    known_names = KnownNames(grid.losses)
    capabilities = Capabilities(options.request_ids, options.release)
    return {
        doors.HAZELCAST_CLIENT: lambda send, close, flow, let_in, peer: HazelcastSession(
            grid,
            send,
            close,
            limits=limits,
            client_acks=options.client_acks,
            flow=flow,
            let_in=let_in,
            lane_code=options.lane_code,
            peer=peer,
            tally=options.tally,
            known_names=known_names,
        ),
        doors.OWN_CLIENT: lambda send, close, flow, let_in, peer: OwnSession(
            grid,
            send,
            close,
            limits=limits,
            capabilities=capabilities,
            flow=flow,
            admit=let_in,
            peer=peer,
        ),
    }


def _unheard(_: bytes) -> None:
    """The connection is over."""


class ClientConnection:
    """One client: what its transport tells it, as an `asyncio.Protocol` is told."""

    __slots__ = (
        "_answers",
        "_backlog",
        "_door",
        "_early",
        "_enter",
        "_first",
        "_flow",
        "_held",
        "_leave",
        "_queued",
        "_receive",
        "_session",
        "_stuck",
        "_timeout",
        "_transport",
        "_unread",
        "_why",
        "number",
        "peer",
        "since_ns",
        "unread",
    )

    def __init__(self, door: Door) -> None:
        self._door = door
        self._answers: list[bytes] = []
        self._first = b""
        self._session: Session | None = None
        self._flow = Flow(self._room, self._wake, door.limits.output_buffer_bytes, door.pressure)
        self._early: deque[bytes] = deque()
        """What has come and was not given to the session."""
        self._held = self._unread = self._queued = self._stuck = False
        self._backlog = door.backlog
        self._enter = door.enter
        self._leave = door.leave
        self._receive: Callable[[bytes], None] = self._begin
        self._transport: Transport | None = None
        self._timeout: Timer | None = None
        self._why = ""
        self.peer = ""
        """The client's address, for the log."""
        self.number = 0
        """Its number in this process."""
        self.since_ns = 0
        self.unread = 0
        """Bytes of unread answers and unfinished requests, when last counted."""

    def begin(self, transport: Transport, peer: str) -> None:
        """The connection is there. `peer`: the client's address."""
        self._transport = transport
        self.peer = peer
        limits = self._door.limits
        self._door.knock(self)
        transport.set_write_buffer_limits(high=limits.output_buffer_bytes)
        self._timeout = self._door.loop.call_later(limits.auth_timeout_ms / 1000, self._look)

    def _look(self) -> None:
        """Once when the greeting should have come, and then now and again: is there still a client?"""
        session = self._session
        if session is None or not session.admitted:
            self.close("it did not say who it is in time")
            return
        idle_timeout_ms = self._door.limits.idle_timeout_ms
        if session.silent_ns() > idle_timeout_ms * MILLISECOND:
            self.close(f"nothing came from it for {idle_timeout_ms} ms")
            return
        self.look_later()

    def look_later(self) -> None:
        """The client is let in: look now and again whether it is there."""
        if self._timeout is not None:
            self._timeout.cancel()
        pause_s = self._door.limits.idle_timeout_ms / LOOKS / 1000
        self._timeout = self._door.loop.call_later(pause_s, self._look)

    # -- what comes

    def data_received(self, data: bytes) -> None:
        if self._queued or self._stuck or self._early or self._door.late:
            self._early.append(data)
            self._wake()
            if len(data) > COUNTED_BYTES:
                # A whole message, maybe: a large value may be received apart.
                self.recount()
        else:
            self._serve(self._receive, data)

    def plain(self) -> Plain | None:
        """What serves what comes next, if neither this connection nor its session is needed for it. Good until reading
        is paused or resumed, or this connection is given something.
        """
        if self._queued or self._stuck or self._early or self._held or self._unread or self._session is None:
            return None
        return self._session.plain()

    def served(self, data: bytes, at: int, out: bytes, unsealed: bytes) -> None:
        """Something has come and was served in that way as far as `at` (`Session.served`)."""
        session = self._session
        assert session is not None, "there was somebody whom it was plain to"
        self._serve(lambda data: session.served(data, at, out, unsealed), data)

    def unknown(self, answers: bytes) -> None:
        """Of answers that were held back for this connection nobody will ever know (`Session.unknown`)."""
        if self._session is not None:
            self._session.unknown(answers)

    def recount(self) -> None:
        """What this connection keeps has changed without it."""
        self._door.counted(-self.unread + self.count())

    def _serve(self, deed: Callable[[bytes], None], data: bytes) -> None:
        """Let the session work."""
        door, flow = self._door, self._flow
        if door.tally is not None and not door.unwritten:
            door.began_ns = door.clock()
        try:
            self._enter()
            deed(data)
            self._leave()
            door.come += len(data)
            door.spent += flow.spent
            if door.come > LOOK_BYTES or door.spent > LOOK_UNITS:
                door.look()
        except Exception as error:  # noqa: BLE001  (the member stops, whatever it is)
            door.failed(error)
        if flow.rest or flow.works or self._early:
            self._wake()
        if flow.gathered > COUNTED_BYTES or flow.held > COUNTED_BYTES or flow.coming or flow.rest:
            self._door.counted(-self.unread + self.count())
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
        self._session = make(
            self.send,
            self.close,
            self._flow,
            lambda operates: self._door.let_in(self, operates=operates),
            self.peer,
        )
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
        if self._first.startswith(doors.MEMBER[:PREAMBLE_BYTES]) and self._transport is not None:
            self._transport.write(doors.other_port(self._door.member_port))
        if stranger:
            hint = (
                "; it does not use TLS without tls.certificate" if self._first.startswith(doors.TLS) else ""
            )
            self._door.strangers.tell(
                "connections to the wrong port",
                f"%s came to %s, and was turned away{hint}",
                stranger,
                doors.CLIENTS_PORT,
            )
        self.close("unknown protocol: a client begins with CP2 (Hazelcast) or HF1 (Holdfast)")

    # -- going on later

    def _wake(self) -> None:
        """There is something to do without anything more coming: in one of the next turns."""
        if not self._queued and not self._stuck:
            self._queued = True
            self._door.queue(self)
            self._read_or_not()

    def go_on(self) -> None:
        """Do a slice of what is left, if there is room for answers and what is kept for backups allows it."""
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
        elif self._early:
            self._serve(self._receive, self._early.popleft())
        if not self._queued:
            self._read_or_not()

    def _resume(self, _: bytes) -> None:
        if self._session is not None:
            self._session.go_on()

    def look(self) -> None:
        """Is there room again?"""
        if self._stuck:
            self._stuck = False
            self._wake()

    def _room(self) -> int:
        """How many bytes of answers there is room for."""
        unread = self._flow.gathered
        if self._transport is not None:
            unread += self._transport.get_write_buffer_size()
        if unread > COUNTED_BYTES:
            self._door.counted(-self.unread + self.count())
        if self._door.pressure.crowded:
            return -1 if unread else 0
        return self._door.limits.output_buffer_bytes - unread

    def described(self, now_ns: int) -> ClientOfMember:
        """This connection, for operators."""
        session = self._session
        client = session.client() if session is not None and session.admitted else STRANGER
        return ClientOfMember(
            self.number,
            self.peer,
            client.user,
            client.kind,
            client.name,
            (now_ns - self.since_ns) // MILLISECOND,
            0 if session is None else session.silent_ns() // MILLISECOND,
            self.count(),
            client.transactions,
        )

    def count(self) -> int:
        """Count what this connection keeps here; answers `unread`."""
        self.unread = self._flow.gathered + self._flow.held
        if self._transport is not None:
            self.unread += self._transport.get_write_buffer_size()
        if self._session is not None:
            self.unread += self._session.coming
        if self._early:
            self.unread += sum(map(len, self._early))
        return self.unread

    # -- what leaves

    def send(self, answer: bytes) -> None:
        """Write this soon."""
        if not self._answers:
            self._door.write_soon(self)
        self._answers.append(answer)
        self._flow.gathered += len(answer)

    def write(self) -> None:
        """Write what has gathered."""
        answers = self._answers
        if answers and self._transport is not None:
            whole = answers[0] if len(answers) == 1 else b"".join(answers)
            answers.clear()
            self._flow.gathered = 0
            self._transport.write(whole)
            if self.unread or len(whole) > COUNTED_BYTES:
                self._door.counted(-self.unread + self.count())
            if self._stuck:
                self.look()

    def pause_writing(self) -> None:
        """The client does not read its answers: take no more of its requests."""
        self._unread = self._flow.paused = True
        self._read_or_not()

    def resume_writing(self) -> None:
        self._unread = self._flow.paused = False
        self.look()
        self._read_or_not()

    def hold(self, held: bool) -> None:
        """Take no more of its requests, or take them again."""
        self._held = held
        self.look()
        self._read_or_not()

    def _read_or_not(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._held or self._unread or self._queued or self._stuck or self._early:
            transport.pause_reading()
        else:
            transport.resume_reading()

    @property
    def coming(self) -> int:
        """Bytes of a message of its client that has not come whole, or that waits to be looked at."""
        if self._session is None or self._why:
            return 0
        return self._session.coming + sum(map(len, self._early))

    def close(self, why: str) -> None:
        """End this connection, after what was sent is written."""
        if not self._why:
            self._why = why
            self._door.strangers.closed(why)
        if self._transport is not None:
            self.write()
            self._transport.close()
            if self._timeout is not None:
                self._timeout.cancel()
            self._timeout = self._door.loop.call_later(REST_S, self.abort)

    def abort(self) -> None:
        """End this connection now, and keep nothing for it."""
        self._answers.clear()
        self._early.clear()
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
        self._early.clear()
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
        self._receive = _unheard
        self._timeout = None
