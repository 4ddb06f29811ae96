"""Base of simulated clients of both protocols: finds members, keeps connections, sends, retries and gives up.

The user passes requests, and gets exactly one callback with the outcome of each:

- OK: acknowledged by the member, with the value of the answer. If `detail` begins with `REPEATED`, an earlier
  try was in doubt: it was not acknowledged, but its effect may have been seen, even if the last try changed
  nothing;
- a rejection: certainly not applied, by no try;
- UNKNOWN: it may have been applied, or may still be.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.operations import READS, Op, Outcome, Request, Status
from holdfast_lab.sim.clients.simulated_doors import Doors
from holdfast_lab.sim.clients.streams import Stream
from holdfast_lab.sim.marks import ANSWER
from holdfast_lab.sim.world import World

TEND_NS = (100 * MILLISECOND, 400 * MILLISECOND)
REPEATED = "an earlier try may have been applied"
Told = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class Manners:
    """Behaviour of one client. Times in nanoseconds; shares of all checks of its connections."""

    patience_ns: int = 20 * SECOND
    retry_ns: int = 200 * MILLISECOND
    heartbeat_ns: int = SECOND
    silence_ns: int = 6 * SECOND
    """Longest silence of a connection with outstanding answers before it is given up."""
    window: int = 65_536
    """Bytes that may be in flight, or unread, in each direction of a connection."""
    choppy: float = 0.1
    """How often a read buffer ends at a random place."""
    resets: float = 0.0
    stalls: float = 0.0
    smart: bool = True
    """Hazelcast client: whether it connects to all members, or to one."""
    backup_acks: bool = True
    backup_timeout_ns: int = 2 * SECOND
    """How long it waits for them (`operation_backup_timeout`)."""
    indeterminate_fails: bool = True
    """Whether a write without acknowledgements of backups is unknown
    (`fail_on_indeterminate_operation_state`). Otherwise silence counts as success, which no member has
    promised.
    """
    redo: bool = False
    """Hazelcast client: whether it retries writes that may have been applied (`redo_operation`). Some are
    then applied twice, or long after they were answered.
    """
    repeats: bool = True
    """The same for the own protocol, which gives each write an id: it is applied once, as long as its
    partition remembers the id (`replication.request_ids`; fewer if answers are large).
    """

    @classmethod
    def drawn(cls, draw: random.Random) -> Manners:
        """Random behaviour; never one that takes silence for success, or applies writes twice."""
        return cls(
            patience_ns=draw.choice([5, 20, 75]) * SECOND,
            retry_ns=draw.choice([20, 200, 1000]) * MILLISECOND,
            silence_ns=draw.choice([3, 6, 20]) * SECOND,
            window=draw.choice([2_000, 65_536, 1 << 20]),
            choppy=draw.choice([0.0, 0.1, 0.6]),
            resets=draw.choice([0.0, 0.0, 0.01, 0.05]),
            stalls=draw.choice([0.0, 0.0, 0.02]),
            smart=draw.random() < 0.8,
            backup_acks=draw.random() < 0.8,
            backup_timeout_ns=draw.choice([500, 2000, 5000]) * MILLISECOND,
            repeats=draw.random() < 0.8,
        )


@dataclass(slots=True, eq=False)
class Ask:
    request: Request
    told: Told
    flying: bool = False
    doubt: bool = False
    done: bool = False


@dataclass(slots=True, eq=False)
class Line:
    client: Client
    host: str
    stream: Stream = field(init=False)
    ready: bool = False
    heard_ns: int = 0
    wrote_ns: int = 0
    waits_ns: int = 0
    lost_already: bool = False

    def received(self, data: bytes) -> None:
        self.heard_ns = self.client.world.now_ns
        self.client.received(self, data)

    def lost(self) -> None:
        if not self.lost_already:
            self.lost_already = True
            self.client.lost(self)

    def write(self, data: bytes) -> None:
        now_ns = self.client.world.now_ns
        if self.wrote_ns <= self.heard_ns:
            self.waits_ns = now_ns
        self.wrote_ns = now_ns
        self.stream.send(data)


class Client:
    OPS: ClassVar[frozenset[Op]]
    KIND: ClassVar[str]

    def __init__(
        self, name: str, world: World, doors: Doors, draw: random.Random, manners: Manners | None = None
    ) -> None:
        self.name = name
        self.world = world
        self.doors = doors
        self.random = draw
        self.manners = manners or Manners.drawn(draw)
        self.counts: Counter[str] = Counter()
        self.running = False
        self.calm = False
        self.lines: dict[str, Line] = {}
        self._waiting: dict[Ask, None] = {}
        self._again: list[Ask] = []

    # -- interface

    def start(self) -> None:
        self.running = True
        self._tend()

    def close(self) -> None:
        self.running = False
        for line in list(self.lines.values()):
            line.stream.hang_up()
            self._drop(line)
        self._give_up(list(self._waiting))

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def ask(self, requests: Iterable[tuple[Request, Told]]) -> None:
        """Send these, with one write for each member; each callback is called once with the outcome, later."""
        asks = [Ask(self.prepared(request), told) for request, told in requests]
        assert all(ask.request.op in self.OPS for ask in asks), (
            "a request that this kind of client does not have"
        )
        self._waiting.update(dict.fromkeys(asks))
        self.counts[f"{self.KIND} requests"] += len(asks)
        self.world.after(self.manners.patience_ns, partial(self._give_up, asks))
        self._send(asks)

    # -- requests

    def _send(self, asks: list[Ask]) -> None:
        parts: dict[Line, list[Ask]] = {}
        for ask in asks:
            if ask.done:
                continue
            line = self.line_for(ask.request)
            if line is None:
                self.later(ask)
            else:
                ask.flying = True
                parts.setdefault(line, []).append(ask)
        for line, part in parts.items():
            self.post(line, part)

    def later(self, ask: Ask) -> None:
        if not self._again:
            pause_ns = self.manners.retry_ns
            self.world.after(self.random.randint(pause_ns // 2, pause_ns), self.send_again)
        self._again.append(ask)

    def send_again(self) -> None:
        again, self._again = self._again, []
        self._send(again)

    def answered(self, ask: Ask, outcome: Outcome) -> None:
        """A member has answered: final, unless an earlier try is in doubt."""
        ask.flying = False
        if ask.doubt:
            status = Status.OK if outcome.status is Status.OK else Status.UNKNOWN
            outcome = Outcome(status, outcome.value, f"{REPEATED}; then: {outcome.detail}")
        self.finish(ask, outcome)

    def refused_for_now(self, ask: Ask, status: Status) -> None:
        ask.flying = False
        self.counts[f"refused for now: {status.name}"] += 1
        self.world.marks.hit(ANSWER + status.name)
        self.later(ask)

    def in_doubt(self, ask: Ask, why: str) -> None:
        ask.flying = False
        if ask.done:
            return
        if self.may_repeat(ask.request):
            ask.doubt = ask.doubt or ask.request.op not in READS
            self.counts["redone"] += 1
            self.later(ask)
        else:
            self.finish(ask, Outcome(Status.UNKNOWN, None, why))

    def finish(self, ask: Ask, outcome: Outcome) -> None:
        if ask.done:
            return
        ask.done = True
        del self._waiting[ask]
        self.world.trace(self.name, repr((outcome.status, outcome.value)).encode())
        self.counts[f"{self.KIND} {outcome.status.name}"] += 1
        ask.told(outcome)

    def _give_up(self, asks: list[Ask]) -> None:
        for ask in asks:
            if not ask.done:
                self.counts["given up"] += 1
                status = Status.UNKNOWN if ask.flying or ask.doubt else Status.NOT_READY
                self.finish(ask, Outcome(status, None, "the client has given up"))

    # -- connections

    def _tend(self) -> None:
        if not self.running:
            return
        manners, now_ns = self.manners, self.world.now_ns
        for line in list(self.lines.values()):
            silent = now_ns - max(line.heard_ns, line.waits_ns) > manners.silence_ns
            if silent and (not line.ready or self.expects(line)):
                self.counts["silent connections given up"] += 1
                line.stream.reset()
                line.lost()
            elif not self.calm and self.random.random() < manners.resets:
                self.break_line(line)
            elif not self.calm and self.random.random() < manners.stalls:
                self.stall(line, self.random.randint(MILLISECOND, 2 * SECOND))
            elif line.ready and now_ns - line.wrote_ns > manners.heartbeat_ns:
                self.heartbeat(line)
        for host in self.wanted():
            if host not in self.lines:
                self.connect(host)
        self.world.after(self.random.randint(*TEND_NS), self._tend)

    def break_line(self, line: Line) -> None:
        self.counts["connections broken"] += 1
        line.stream.reset()

    def stall(self, line: Line, for_ns: int) -> None:
        self.counts["connections stalled"] += 1
        line.stream.stall(True)
        self.world.after(for_ns, lambda: line.stream.stall(False))

    def connect(self, host: str) -> Line:
        line = self.make_line(host)
        line.stream = Stream(
            self.world,
            self.random,
            self.name,
            host,
            line,
            window=self.manners.window,
            choppy=self.manners.choppy,
        )
        line.heard_ns = self.world.now_ns
        self.lines[host] = line
        self.doors.connect(line.stream)
        self.greet(line)
        return line

    def lost(self, line: Line) -> None:
        if line.ready:
            self.counts["connections lost"] += 1
        self._drop(line)

    def _drop(self, line: Line) -> None:
        line.lost_already = True
        line.ready = False
        if self.lines.get(line.host) is line:
            del self.lines[line.host]
        self.forget(line)

    def on_admitted(self, line: Line) -> None:
        line.ready = True
        self.counts["connections made"] += 1

    def turned_away(self, line: Line) -> None:
        self.counts["turned away"] += 1
        line.stream.hang_up()
        self._drop(line)

    def anyone(self) -> Line | None:
        ready = [line for line in self.lines.values() if line.ready]
        return self.random.choice(ready) if ready else None

    # -- methods of each kind

    def prepared(self, request: Request) -> Request:
        """The request in the form in which all its tries are sent."""
        return request

    def make_line(self, host: str) -> Line:
        return Line(self, host)

    def wanted(self) -> list[str]:
        raise NotImplementedError

    def greet(self, line: Line) -> None:
        raise NotImplementedError

    def received(self, line: Line, data: bytes) -> None:
        raise NotImplementedError

    def heartbeat(self, line: Line) -> None: ...

    def expects(self, line: Line) -> bool:
        raise NotImplementedError

    def forget(self, line: Line) -> None:
        raise NotImplementedError

    def line_for(self, request: Request) -> Line | None:
        """None: no connection yet."""
        raise NotImplementedError

    def post(self, line: Line, asks: list[Ask]) -> None:
        raise NotImplementedError

    def may_repeat(self, request: Request) -> bool:
        raise NotImplementedError
