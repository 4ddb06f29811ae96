"""The seam between requests and replication: the same router and the same operations, over three protocols.

Besides the primary copy there are two here: one without replicas, and one around it that is told when to decide, in
which order, and what to refuse. So it is seen that the router and the operations know nothing of how it is replicated.
"""

from __future__ import annotations

import msgspec
import pytest
from tests.core.routing.around import Around, Told

from holdfast.config import PartitionSettings, Settings
from holdfast.core.journal.log import Log
from holdfast.core.model.decisions import Decision
from holdfast.core.model.ids import MemberId
from holdfast.core.model.map_moves import NoMoves
from holdfast.core.model.operations import READS, EntryEvent, Op, Outcome, Request, Status, Value
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Record
from holdfast.core.operations.map_operations import decide, decide_whole, merge, version_of
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.primary_copy import PrimaryCopy
from holdfast.core.replication_engine import Decided, ReplicationEngine, ReplicationEngineDelegate, ShareDone
from holdfast.core.routing.router import Router
from holdfast.core.store.map_state import MapState
from holdfast.core.store.partition_copy import PartitionCopy

ME, BEN = MemberId("me"), MemberId("ben")


class Alone:
    """No replicas: a request is decided and applied when it comes, and that is all."""

    def __init__(self, out: Outbox) -> None:
        self._out = out
        self.maps: dict[str, MapState] = {}
        self.applied = 0
        self.delegate: ReplicationEngineDelegate | None = None
        self.crowded = self.refusing = self.decides_later = False
        self.running = 0
        self.told: list[EntryEvent] = []

    def serve(self, delegate: ReplicationEngineDelegate) -> None:
        self.delegate = delegate

    def leads(self, partition: int) -> bool:
        return True

    def joining(self, partition: int) -> MemberId | None:
        return None

    def on_timer(self) -> None:
        pass

    def publish(self, event: EntryEvent) -> None:
        self.told.append(event)

    def submit(self, request: Request, done: Decided, *, late: bool = False, behind: bool = False) -> None:
        decision = decide(self.maps.get(request.map), request, self._out.now_ns)
        self._apply(request.map, decision)
        done(Outcome(Status.OK, decision.answer))

    def submit_whole(self, request: Request, done: ShareDone) -> int:
        decision = decide_whole(self.maps.get(request.map), request, self._out.now_ns)
        self._apply(request.map, decision)
        done(Outcome(Status.OK, decision.answer), [], [])
        return 1

    def _apply(self, name: str, decision: Decision) -> None:
        for update in decision.updates:
            self.applied += 1
            state = self.maps.setdefault(name, MapState(name))
            record = Record(name, self.applied, *msgspec.structs.astuple(update)[:6])
            state.apply(record, self._out.now_ns)


class Scripted(Alone):
    """Takes requests into a log, and decides them when it is told to, in the order that it is told: as a protocol that
    has to agree with others first.
    """

    def __init__(self, out: Outbox) -> None:
        super().__init__(out)
        self.log: list[tuple[Request, Decided]] = []

    def submit(self, request: Request, done: Decided, *, late: bool = False, behind: bool = False) -> None:
        self.log.append((request, done))

    def commit(self, *places: int) -> None:
        """These are decided now, in this order; all, when none is named."""
        log, self.log = self.log, []
        order = places or range(len(log))
        for place in order:
            super().submit(*log[place])
        self.log = [one for place, one in enumerate(log) if place not in order]

    def refuse(self) -> None:
        """What is in the log will never be decided here."""
        log, self.log = self.log, []
        for request, done in log:
            done(Outcome(Status.NOT_READY if request.op in READS else Status.UNKNOWN, None, "no quorum"))


class Desk(Told):
    """A router that talks to this protocol."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        settings = Settings(partitions=PartitionSettings(count=1))
        rows = [Assignment(1, (ME,))]
        around = Around()
        self.replication: ReplicationEngine
        if kind == "primary copy":
            lane = Lane(ME, settings, self.out, Log(self.out, on=False))
            lane.attach(rows)
            lane.leading[0] = lane.serving[0] = PartitionCopy(0, 0)
            self.replication = PrimaryCopy(settings, self.out, lane, NoMoves())
        else:
            self.replication = Alone(self.out) if kind == "no replicas" else Scripted(self.out)
        self.router = Router(
            ME, settings, self.out, rows, self.replication, held={}, neighbours=around, offers=around
        )

    def ask(self, op: Op, key: bytes = b"k", value: bytes = b"", **more: object) -> Value:
        """Ask, let the protocol decide what is in its log, and answer what came of it."""
        self.router.execute(Request(op, "m", [0], key, value, **more), 1)  # type: ignore[arg-type]
        if isinstance(self.replication, Scripted):
            self.replication.commit()
        outcome = self.told.pop()
        assert outcome.status is Status.OK
        assert not self.told
        return outcome.value


@pytest.mark.parametrize("kind", ["primary copy", "no replicas", "scripted"])
def test_the_operations_answer_the_same_over_every_protocol(kind: str) -> None:
    desk = Desk(kind)
    ask = desk.ask
    assert ask(Op.GET) is None
    assert ask(Op.REMOVE) is None
    assert ask(Op.PUT, value=b"1") is None
    assert ask(Op.PUT, value=b"2") == b"1"
    assert ask(Op.PUT_IF_ABSENT, value=b"3") == b"2"
    assert ask(Op.REPLACE, b"none", b"3") is None
    assert ask(Op.REPLACE, value=b"3") == b"2"
    assert ask(Op.REPLACE_IF_SAME, value=b"4", expected=b"2") is False
    assert ask(Op.REPLACE_IF_SAME, value=b"4", expected=b"3") is True
    assert ask(Op.REMOVE_IF_SAME, expected=b"3") is False
    assert ask(Op.PUT_ALL, items=[b"a", b"1", b"b", b"2"]) is None
    assert ask(Op.GET_ALL, items=[b"a", b"none", b"k"]) == [b"a", b"1", b"k", b"4"]
    assert ask(Op.SET_TTL, ttl_ms=5) is True
    assert ask(Op.SIZE) == 3
    desk.out.now_ns += 5_000_000
    assert ask(Op.SIZE) == 2
    assert ask(Op.CONTAINS_KEY) is False
    assert ask(Op.ENTRY_VIEW, b"a") == [b"1", 0, 0, -1, version_of(b"1")]
    assert ask(Op.EVICT, b"a") is True
    assert ask(Op.TRY_REMOVE, b"a") is False
    assert ask(Op.ENTRIES) == [b"b", b"2"]
    assert ask(Op.CLEAR) == 1
    assert ask(Op.IS_EMPTY) is True
    assert not any(desk.router.leftovers.values())


def test_who_decides_later_decides_by_what_is_so_then() -> None:
    """Two that want to be first: the order of the log counts, not that of the asking."""
    desk = Desk("scripted")
    scripted = desk.replication
    assert isinstance(scripted, Scripted)
    for value in (b"1", b"2"):
        desk.router.execute(Request(Op.PUT_IF_ABSENT, "m", [0], b"k", value), 1)
    assert desk.told == [], "nobody is answered before the protocol has decided"
    scripted.commit(1, 0)
    assert [outcome.value for outcome in desk.told] == [None, b"2"]


def test_what_a_protocol_refuses_is_refused() -> None:
    desk = Desk("scripted")
    scripted = desk.replication
    assert isinstance(scripted, Scripted)
    for op in (Op.GET, Op.SET):
        desk.router.execute(Request(op, "m", [0], b"k", b"v"), 1)
    scripted.refuse()
    assert [outcome.status for outcome in desk.told] == [Status.NOT_READY, Status.UNKNOWN]
    assert scripted.maps == {}


def test_whole_maps_are_merged_alike() -> None:
    state = MapState("m")
    state.store(b"k", b"v", 0, 0, 0, 0)
    for op in (Op.KEYS, Op.VALUES, Op.ENTRIES, Op.SIZE, Op.IS_EMPTY):
        request = Request(op, "m", [0, 1])
        some, none = (decide_whole(one, request, 0).answer for one in (state, None))
        assert merge(op, some, none) == some
        assert merge(op, none, some) == some
