"""When the driver carries out what sessions cause through the data lane."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from holdfast.core.effects import Effect, OpenLink
from holdfast.core.events import ClockSet, Event, Received, TimerFired
from holdfast.core.messages import Replicate, TableFetch
from holdfast.core.model.ids import MILLISECOND, SECOND, Address, MemberId
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.zone_batches import ZoneBatch, ZoneBatchDone
from holdfast.engine import driver as driver_under_test
from holdfast.engine.link import Link, road_between
from holdfast.wire.codec import decode, encode
from holdfast_lab.sim.cluster import Cluster, simulated_settings
from holdfast_lab.sim.world import Process, World

LINK_HEADER_BYTES = 24


class Pair:
    """Two members, safe; partition 0's primary and what it sends."""

    def __init__(self) -> None:
        self.world = World(1, None)
        cluster = Cluster(self.world, simulated_settings(1, 7), 2)
        processes = [cluster.start(0, bootstrap=True), cluster.start(1)]
        self.world.run_until(60 * SECOND, cluster.settled)
        assert cluster.settled()
        owner = processes[0].driver.member.table.rows[0].owner
        self.primary: Process = next(one for one in processes if one.driver.member.me == owner)
        self.other: Process = next(one for one in processes if one is not self.primary)
        self.driver = self.primary.driver
        self.lane = self.driver.member.lane
        self.told: list[tuple[str, bool]] = []
        self.sent: list[Replicate] = []
        carry = self.primary.carry

        def watched(member: str, packet: bytes) -> None:
            payload = packet[LINK_HEADER_BYTES:]
            message = decode(payload) if payload else None
            if isinstance(message, Replicate):
                self.sent.append(message)
            carry(member, packet)  # type: ignore[arg-type]

        self.primary.carry = watched  # type: ignore[method-assign, assignment]

    def session(self, name: str) -> None:
        """A session with one write in its buffer."""
        copy = self.lane.serving[0]
        assert copy is not None
        self.driver.enter()
        self.lane.set(copy, "m", name.encode(), b"value", 0, 0, 0)
        self.lane.close_batch(lambda known: self.told.append((name, known)))
        self.driver.leave_lane()

    def later(self, seconds: int = 1) -> None:
        self.world.run_until(self.world.now_ns + seconds * SECOND)


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_sessions_of_one_turn_share_a_message(pair: Pair) -> None:
    pair.session("a")
    pair.session("b")
    assert pair.sent == []
    pair.later()
    assert [record.key for message in pair.sent for record in message.sections[0].all_records()] == [
        b"a",
        b"b",
    ]
    assert len(pair.sent) == 1
    assert pair.told == [("a", True), ("b", True)]


def test_the_next_turn_has_a_message_of_its_own(pair: Pair) -> None:
    pair.session("a")
    pair.later()
    pair.session("b")
    pair.later()
    assert len(pair.sent) == 2
    assert pair.told == [("a", True), ("b", True)]


def test_a_request_leaves_with_what_the_lane_has_caused_before(pair: Pair) -> None:
    outcomes: list[Outcome] = []
    pair.session("a")
    pair.driver.execute(Request(Op.SET, "m", [0], b"key", b"value"), outcomes.append)
    assert pair.sent == []
    pair.later()
    assert [[record.key for record in message.sections[0].all_records()] for message in pair.sent] == [
        [b"a", b"key"],
    ]
    assert pair.told == [("a", True)]
    assert [outcome.status for outcome in outcomes] == [Status.OK]


def test_an_event_comes_after_what_the_lane_has_caused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    sent_before: list[int] = []
    handle = pair.driver.member.handle

    def watched(event: Event, now_ns: int) -> list[Effect]:
        sent_before.append(len(pair.sent))
        return handle(event, now_ns)

    monkeypatch.setattr(pair.driver.member, "handle", watched)
    pair.session("a")
    pair.driver.handle(TimerFired("sweep"))
    assert sent_before == [0, 1], "with what the lane has caused, and with the event"
    pair.later()
    assert pair.told == [("a", True)]


def test_a_stopped_member_sends_nothing_more(pair: Pair) -> None:
    pair.session("a")
    pair.driver.stopped = True
    pair.later()
    assert pair.sent == []
    assert pair.told == []


@pytest.mark.rule("routing/R-4")
def test_a_stopped_member_rejects_no_request_that_may_have_been_applied(pair: Pair) -> None:
    outcomes: list[Outcome] = []
    pair.driver.stopped = True
    for doubt in ("", "another member left before it answered"):
        pair.driver.execute(Request(Op.SET, "m", [0], b"k", b"v"), outcomes.append, doubt)
    assert [outcome.status for outcome in outcomes] == [Status.CLOSING, Status.UNKNOWN]


def test_a_stopped_member_leaves_the_requests_of_a_zone_to_the_session(pair: Pair) -> None:
    told: list[ZoneBatchDone] = []
    pair.driver.stopped = True
    pair.driver.zone_batch(ZoneBatch(1, [(0, []), (1, [])], [2]), told.append)
    (done,) = told
    assert done.answers == []
    assert [(place, outcome.status) for place, outcome in done.failed] == [
        (0, Status.MOVED),
        (1, Status.MOVED),
    ]
    assert done.unconfirmed is not None
    assert done.unconfirmed.status is Status.MOVED


def test_events_leave_at_the_end_of_the_turn_too(pair: Pair) -> None:
    heard: list[bytes | None] = []
    pair.other.driver.callers.listen(
        "m", key=None, local_only=False, on_event=lambda event: heard.append(event.key)
    )
    pair.later()
    pair.session("a")
    pair.later()
    assert heard == [b"a"]
    held = pair.lane.serving[0].maps["m"]  # type: ignore[union-attr]
    held.targets, held.sync, held.recorded = (
        (),
        frozenset(),
        False,
    )  # as without backups: only the event leaves
    for name in ("b", "c", "d"):
        pair.session(name)
        pair.world.run_until(pair.world.now_ns + 20 * MILLISECOND)
    assert heard == [b"a", b"b", b"c", b"d"]


class Alone(Pair):
    """A member whose updates of the map "m" go to no backup and are needed by nobody at once, and the steps that it
    makes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.session("first")
        self.later()
        held = self.held = self.lane.serving[0].maps["m"]  # type: ignore[union-attr]
        held.targets, held.sync = (), frozenset()
        self.steps: list[tuple[str, int]] = []
        handle = self.driver.member.handle

        def watched(event: Event, now_ns: int) -> list[Effect]:
            if not isinstance(event, TimerFired | Received):
                self.steps.append((type(event).__name__, now_ns))
            return handle(event, now_ns)

        self.driver.member.handle = watched  # type: ignore[method-assign]

    def session(self, name: str) -> None:
        copy = self.lane.serving[0]
        assert copy is not None
        self.driver.enter()
        self.lane.set(copy, "m", name.encode(), b"value", 0, 0, 0)
        if not self.lane.settle():
            self.lane.close_batch(lambda known: self.told.append((name, known)))
        self.driver.leave_lane()

    def wait(self, milliseconds: int) -> None:
        self.world.run_until(self.world.now_ns + milliseconds * MILLISECOND)

    @property
    def unsent(self) -> list[bytes]:
        return [update.key for _, _, update in self.lane.unsent]  # type: ignore[union-attr]


@pytest.fixture
def alone() -> Alone:
    return Alone()


def test_updates_that_nothing_waits_for_are_held_and_share_a_step(alone: Alone) -> None:
    begun_ns = alone.world.now_ns
    alone.session("a")
    alone.wait(1)
    alone.session("b")
    assert alone.unsent == [b"a", b"b"]
    assert alone.steps == []
    alone.wait(3)
    assert alone.unsent == []
    assert alone.steps == [("StepEnded", begun_ns + 2 * MILLISECOND)]
    alone.session("c")
    alone.wait(3)
    assert [kind for kind, _ in alone.steps] == ["StepEnded", "StepEnded"], "held anew"


def test_held_updates_come_before_another_event(alone: Alone) -> None:
    alone.session("a")
    alone.driver.handle(ClockSet(alone.driver._out.epoch_ms))
    assert [kind for kind, _ in alone.steps] == ["StepEnded", "ClockSet"]
    assert alone.unsent == []
    alone.wait(5)
    assert len(alone.steps) == 2, "once"


def test_held_updates_leave_with_a_request(alone: Alone) -> None:
    alone.session("a")
    alone.driver.execute(Request(Op.SET, "m", [0], b"key", b"value"), lambda outcome: None)
    alone.wait(5)
    assert [kind for kind, _ in alone.steps] == ["ClientRequest", "StepEnded"]
    assert alone.unsent == []


def test_held_updates_leave_with_those_that_a_backup_waits_for(alone: Alone) -> None:
    alone.session("a")
    begun_ns = alone.world.now_ns
    alone.held.targets = (alone.other.driver.member.me,)
    alone.held.sync = frozenset(alone.held.targets)
    alone.session("b")
    alone.wait(0)
    assert alone.steps == [("StepEnded", begun_ns)]
    alone.wait(100)
    assert alone.told[1:] == [("b", True)]


def test_held_updates_leave_when_the_member_is_about_to_stop(alone: Alone) -> None:
    alone.session("a")
    alone.driver.flush()
    assert alone.unsent == []
    alone.session("b")
    alone.driver.stopped = True
    alone.driver.flush()
    assert [kind for kind, _ in alone.steps] == ["StepEnded"]


class Stranger:
    """A member that knows a view which the other one of the pair has not heard of yet."""

    def __init__(self, pair: Pair, life: int) -> None:
        self.pair = pair
        self.driver = pair.other.driver
        self.me = MemberId("stranger")
        self.life = life
        member = self.driver.member
        ends = (self.me, life), (member.me, member.membership.info.life)
        self.link = Link(road_between(*ends))
        self.heard: list[Event] = []

        def handle(event: Event, now_ns: int) -> list[Effect]:
            if isinstance(event, Received):
                self.heard.append(event)
            return []

        member.handle = handle  # type: ignore[method-assign]

    def send(self, number: int) -> None:
        self.driver.packet(self.me, self.link.send(encode(TableFetch(number)), 0))

    def admitted(self) -> None:
        self.driver._deed(OpenLink(self.me, self.life, Address("host9", 1)))
        self.driver._run()

    def told(self) -> list[int]:
        return [event.message.view for event in self.heard if isinstance(event, Received)]  # type: ignore[union-attr]


def test_packets_of_a_member_that_is_not_known_yet_wait_until_it_is(pair: Pair) -> None:
    stranger = Stranger(pair, 4)
    stranger.send(1)
    stranger.send(2)
    assert stranger.told() == []
    stranger.admitted()
    stranger.send(3)
    assert stranger.told() == [1, 2, 3]


def test_packets_of_a_life_that_is_over_are_dropped_when_the_next_begins(pair: Pair) -> None:
    earlier, stranger = Stranger(pair, 3), Stranger(pair, 4)
    earlier.send(1)
    stranger.send(2)
    stranger.admitted()
    assert stranger.told() == [2]
    assert not stranger.driver._early
    assert stranger.driver._early_bytes == 0


def test_what_waits_is_limited(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = Stranger(pair, 4)
    monkeypatch.setattr(driver_under_test, "EARLY_BYTES_MAX", 60)
    for number in range(3):
        stranger.send(number)
    stranger.admitted()
    assert stranger.told() == [0, 1]


def test_what_has_waited_for_long_is_dropped(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets of members that have left would fill what may be kept."""
    monkeypatch.setattr(driver_under_test, "EARLY_BYTES_MAX", 60)
    gone, stranger = Stranger(pair, 3), Stranger(pair, 4)
    gone.me = MemberId("gone")
    for number in range(3):
        gone.send(number)
    pair.later(2)
    stranger.send(7)
    stranger.admitted()
    assert stranger.told() == [7]


def test_what_one_packet_frees_is_handled_in_several_turns(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer may send a thousand packets and the one before them last: others have their turns in between."""
    monkeypatch.setattr(driver_under_test, "TURN_MESSAGES", 10)
    stranger = Stranger(pair, 4)
    stranger.admitted()
    first, *others = [stranger.link.send(encode(TableFetch(number)), 0) for number in range(35)]
    for packet in others:
        stranger.driver.packet(stranger.me, packet)
    assert stranger.told() == []
    turns: list[Callable[[], None]] = []
    monkeypatch.setattr(stranger.driver.world, "soon", turns.append)
    stranger.driver.packet(stranger.me, first)
    handled = [len(stranger.told())]
    stranger.driver.handle(Received(stranger.me, TableFetch(35)))
    while turns:
        assert len(turns) == 1, "what is left is not handled twice in one turn"
        turns.pop()()
        handled.append(len(stranger.told()))
    assert handled[0] == 10
    assert max(after - before for before, after in pairwise(handled)) <= 2 * 10, "and what came beside it"
    assert stranger.told() == [*range(36)]


def test_packets_that_waited_are_read_in_several_turns(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = Stranger(pair, 4)
    for number in range(12):
        stranger.send(number)
    monkeypatch.setattr(driver_under_test, "EARLY_TURN_BYTES", 100)
    turns: list[Callable[[], None]] = []
    monkeypatch.setattr(stranger.driver.world, "soon", turns.append)
    stranger.admitted()
    assert 0 < len(stranger.told()) < 6
    stranger.send(12)
    assert len(stranger.told()) < 6, "it came later, and waits for those before it"
    rounds = 0
    while turns:
        turns.pop()()
        rounds += 1
    assert rounds > 1
    assert stranger.told() == [*range(13)]
