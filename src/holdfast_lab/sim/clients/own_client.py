"""A simulated client of Holdfast's own protocol. Like `client.blocking`, but with many questions at a time,
it fetches the table, asks the owner of a partition, and retries a write, with the same id, until its outcome
is known.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from holdfast.client_core.routing import RoutingTable
from holdfast.core.model.operations import BETWEEN_MEMBERS, READS, WHOLE, Op, Outcome, Request, Status
from holdfast.errors import ProtocolError, TooLarge
from holdfast.wire import own
from holdfast_lab.sim.clients.client import Ask, Client, Line, Manners
from holdfast_lab.sim.clients.simulated_doors import Doors
from holdfast_lab.sim.world import World
from holdfast_lab.sim.zone_runs import ZONED

ANSWER_BYTES_MAX = 2**31 - 1
COLUMNS = 0.5
"""How often a put of several entries travels in columns, like those of Spark, which have no id."""
ZONE_MARKS: dict[type[own.Answer], str] = {own.Page: "zone: scan", own.PutDone: "zone: bulk write"}
PASSING = (Status.MOVED, Status.NOT_READY, Status.CLOSING)
"""Rejections that a newer table, or another member, may resolve."""
_STATUSES = {
    own.FaultKind.MOVED: Status.MOVED,
    own.FaultKind.NOT_READY: Status.NOT_READY,
    own.FaultKind.CLOSING: Status.CLOSING,
    own.FaultKind.TOO_LARGE: Status.TOO_LARGE,
    own.FaultKind.UNKNOWN: Status.UNKNOWN,
    own.FaultKind.PASSIVE: Status.PASSIVE,
    own.FaultKind.NO_ROOM: Status.NO_ROOM,
    own.FaultKind.NO_MEMORY: Status.NO_MEMORY,
    own.FaultKind.LOST: Status.LOST,
}


@dataclass(slots=True, eq=False)
class OwnLine(Line):
    frames: own.Frames = field(default_factory=lambda: own.Frames(ANSWER_BYTES_MAX))
    asked: dict[int, Ask] = field(default_factory=dict)
    hello: int = 0
    table: int = 0
    remembers: bool = False


class OwnClient(Client):
    OPS = frozenset(Op) - {Op.CALL, Op.ASK} - BETWEEN_MEMBERS
    KIND = "own"

    def __init__(
        self, name: str, world: World, doors: Doors, draw: random.Random, manners: Manners | None = None
    ) -> None:
        super().__init__(name, world, doors, draw, manners)
        self._uuid = draw.getrandbits(128).to_bytes(16, "big")
        self._requests = 0
        self._number = 0
        self._table: RoutingTable | None = None
        self._stale = True
        self._asked_ns = -(1 << 62)
        self._remembers = False

    # -- connections

    def make_line(self, host: str) -> OwnLine:
        return OwnLine(self, host)

    def wanted(self) -> list[str]:
        return [] if self.lines else [self.random.choice(self.doors.hosts())]

    def _next(self) -> int:
        self._number += 1
        return self._number

    def greet(self, line: Line) -> None:
        assert isinstance(line, OwnLine)
        line.hello = self._next()
        cluster = self.doors.cluster.settings.cluster.name
        line.write(own.PREAMBLE + own.frame(own.Hello(line.hello, own.VERSION, cluster)))

    def expects(self, line: Line) -> bool:
        assert isinstance(line, OwnLine)
        return bool(line.asked or line.table)

    def forget(self, line: Line) -> None:
        assert isinstance(line, OwnLine)
        self._stale = True
        asked, line.asked = line.asked, {}
        line.table = 0
        for ask in asked.values():
            self.in_doubt(ask, f"the connection to {line.host} broke")

    def _welcomed(self, line: OwnLine, hello: own.HelloOk) -> None:
        count = self.doors.cluster.settings.partitions.count
        if hello.partition_count != count:
            self.world.failures.append(
                f"{self.name} gets {hello.partition_count} partitions; there are {count}"
            )
        line.remembers = self._remembers = hello.request_ids > 0
        self.on_admitted(line)
        self._refresh()

    # -- the table

    def _refresh(self) -> None:
        """Fetch the table, unless it is being fetched, and not too often while no member has a newer one."""
        if any(isinstance(line, OwnLine) and line.table for line in self.lines.values()):
            return
        if self.world.now_ns - self._asked_ns < self.manners.retry_ns:
            return
        line = self.anyone()
        if isinstance(line, OwnLine):
            line.table = self._next()
            self._asked_ns = self.world.now_ns
            line.write(own.frame(own.AskTable(line.table)))

    def _take_table(self, told: own.TableIs) -> None:
        self.counts["tables"] += 1
        self._table = RoutingTable(told)
        self._stale = False
        self.send_again()

    # -- requests

    def prepared(self, request: Request) -> Request:
        if request.op in READS or request.op in WHOLE:
            return request
        if request.op is Op.PUT_ALL and not request.id and self.random.random() < COLUMNS:
            return request
        self._requests += 1
        return msgspec.structs.replace(request, id=self._uuid + self._requests.to_bytes(8, "big"))

    def line_for(self, request: Request) -> Line | None:
        if self._table is None or self._stale:
            self._refresh()
            return None
        if len(request.partitions) != 1:
            return self.anyone()
        owner = self._table.owner(request.partitions[0])
        row = self._table.members.get(owner) if owner is not None else None
        if row is None:
            self._stale = True
            return None
        line = self.lines.get(row.host)
        if line is None:
            line = self.connect(row.host)
        return line if line.ready else None

    def post(self, line: Line, asks: list[Ask]) -> None:
        assert isinstance(line, OwnLine)
        pieces: list[bytes] = []
        for ask in asks:
            number = self._next()
            line.asked[number] = ask
            pieces.append(own.frame(_question(number, ask.request)))
        line.write(b"".join(pieces))

    def may_repeat(self, request: Request) -> bool:
        return request.op in READS or (bool(request.id) and self._remembers and self.manners.repeats)

    # -- what comes

    def received(self, line: Line, data: bytes) -> None:
        assert isinstance(line, OwnLine)
        line.frames.feed(data)
        while not line.lost_already:
            try:
                body = line.frames.take()
                answer = own.read_answer(body) if body is not None else None
            except (ProtocolError, TooLarge) as broken:
                self.world.failures.append(f"{self.name} is answered with what it cannot read: {broken}")
                return
            if answer is None:
                return
            self._take(line, answer)

    def _take(self, line: OwnLine, answer: own.Answer) -> None:
        if isinstance(answer, own.HelloOk):
            self._welcomed(line, answer)
        elif isinstance(answer, own.TableIs):
            line.table = 0
            self._take_table(answer)
        elif isinstance(answer, own.Fault) and answer.id in (0, line.hello):
            self.turned_away(line)
        elif (ask := line.asked.pop(answer.id, None)) is not None:
            if ask.request.map == ZONED and (mark := ZONE_MARKS.get(type(answer))):
                self.world.marks.hit(mark)
            self._outcome(ask, _outcome_of(answer))

    def _outcome(self, ask: Ask, outcome: Outcome) -> None:
        if outcome.status is Status.UNKNOWN:
            self._stale = True
            self.in_doubt(ask, outcome.detail)
        elif outcome.status in PASSING:
            self._stale = True
            self.refused_for_now(ask, outcome.status)
        else:
            self.answered(ask, outcome)


def _question(number: int, request: Request) -> own.Question:
    if request.op is Op.GET_ALL and request.map == ZONED and number % 2:
        # Such a scan is as fresh as a get, which is judged. (Of other maps it may be stale.)
        return own.Scan(number, request.map, request.partitions[0], keys=request.items)
    if request.op is not Op.PUT_ALL or request.id:
        return own.Execute(number, request)
    columns = own.ColumnBatch.of(request.items[::2], request.items[1::2])
    rows = len(request.items) // 2
    return own.PutColumns(number, request.map, request.partitions, [rows], columns, request.ttl_ms)


def _outcome_of(answer: own.Answer) -> Outcome:
    match answer:
        case own.Executed():
            return answer.outcome
        case own.Page():
            assert not answer.more, "some keys fit on a page"
            return Outcome(Status.OK, list(chain(*zip(*answer.columns.split(), strict=True))))
        case own.PutDone():
            if answer.moved:
                return Outcome(Status.MOVED, None, "its partition has moved")
            return Outcome(Status.OK if answer.known else Status.UNKNOWN, None, answer.why)
        case own.Fault():
            return Outcome(_STATUSES.get(answer.kind, Status.FAILED), None, answer.detail)
        case _:
            raise TypeError(f"{type(answer).__name__} is no answer to a request")


__all__ = ["OwnClient"]
