"""The frequent messages of a read buffer, and the requests of a turn, share the end of a step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.effects import Effect, Stop
from holdfast.core.events import Event, Received, StepEnded, TimerFired
from holdfast.core.messages import (
    Answer,
    Forward,
    ForwardFrames,
    FramesAnswer,
    Message,
    MessageBatch,
    Replicate,
    Replicated,
    Summary,
)
from holdfast.core.model.collections import CollectionKind, CollectionStep, StepKind
from holdfast.core.model.collections import encode_step as encode_collection_step
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.transaction_orders import BeginTransaction
from holdfast.core.model.transactions import LockKeys, RollBackBranch, TransactionStep
from holdfast.core.model.transactions import encode as encode_step
from holdfast.core.open_step import SHARING
from holdfast.engine import driver as driver_under_test
from holdfast.errors import ProtocolError
from holdfast.wire.codec import decode, encode
from holdfast_lab.sim.cluster import Cluster, simulated_settings
from holdfast_lab.sim.transacting import with_transactions
from holdfast_lab.sim.world import Process, World

LINK_HEADER_BYTES = 24


def forward(ticket: int, key: bytes = b"k", op: Op = Op.SET) -> Forward:
    return Forward(ticket, Request(op, "m", [0], key, b"value"))


class Stage:
    """The primary of partition 0, which gets packets of the other member and records what it handles and sends."""

    def __init__(self) -> None:
        self.world = World(1, None)
        cluster = Cluster(self.world, with_transactions(simulated_settings(1, 7), 1), 2)
        processes = [cluster.start(0, bootstrap=True), cluster.start(1)]
        self.world.run_until(60 * SECOND, cluster.settled)
        assert cluster.settled()
        owner = processes[0].driver.member.table.rows[0].owner
        self.primary: Process = next(one for one in processes if one.driver.member.me == owner)
        other = next(one for one in processes if one is not self.primary)
        self.driver = self.primary.driver
        self.member = self.driver.member
        self.other: MemberId = other.driver.member.me
        self._link = other.driver.links[self.member.me]
        self.sent: list[Message] = []
        self.batches = 0
        self.steps: list[str] = []
        self.held: list[str] = []
        self._handle = self.member.handle
        carry = self.primary.carry

        def carried(to: MemberId, packet: bytes) -> None:
            payload = packet[LINK_HEADER_BYTES:]
            if payload:
                message = decode(payload)
                batched = isinstance(message, MessageBatch)
                self.sent += message.messages if batched else [message]
                self.batches += batched
            carry(to, packet)

        self.primary.carry = carried  # type: ignore[method-assign]
        self.primary.hold = lambda: self.held.append("hold")  # type: ignore[method-assign]
        self.primary.release = lambda: self.held.append("release")  # type: ignore[method-assign]
        self.member.handle = self._watched  # type: ignore[method-assign]

    def _watched(self, event: Event, now_ns: int) -> list[Effect]:
        self.steps.append(type(event.message if isinstance(event, Received) else event).__name__)
        return self._handle(event, now_ns)

    def packet(self, message: Message, *, more: bool = True) -> None:
        packet = self._link.send(encode(message), self.world.now_ns)
        self.driver.packet(self.other, packet, more=more)

    def buffer(self, *messages: Message) -> None:
        """The last of these is followed by a part of another one."""
        for message in messages:
            self.packet(message)
        self.driver.end_buffer()

    def of(self, kind: type) -> list[Any]:
        return [message for message in self.sent if isinstance(message, kind)]

    def answers(self) -> list[Answer]:
        return self.of(Answer)

    def later(self) -> None:
        self.world.run_until(self.world.now_ns + SECOND)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_the_writes_of_a_read_buffer_leave_in_one_message(stage: Stage) -> None:
    for ticket in range(3):
        stage.packet(forward(ticket, b"%d" % ticket))
    assert stage.of(Replicate) == []
    stage.driver.end_buffer()
    assert stage.steps == ["Forward", "Forward", "Forward", "StepEnded"]
    (replicate,) = stage.of(Replicate)
    assert [record.key for record in replicate.sections[0].all_records()] == [b"0", b"1", b"2"]
    stage.later()
    assert sorted((one.ticket, one.outcome.status) for one in stage.answers()) == [
        (ticket, Status.OK) for ticket in range(3)
    ]


def test_requests_that_come_in_one_message_are_handled_one_after_the_other(stage: Stage) -> None:
    """The second one releases the lock that the third one asks for and the first one has waited for."""

    def step(ticket: int, content: TransactionStep, op: Op = Op.TRANSACT) -> Forward:
        return Forward(ticket, Request(op, TRANSACTIONS_MAP, [0], value=encode_step(content)))

    def lock(ticket: int) -> Forward:
        return step(ticket, LockKeys(b"%016d" % ticket, stage.other, [("m", b"k")], 5_000))

    stage.packet(lock(1), more=False)
    stage.later()
    release = step(9, RollBackBranch(b"%016d" % 1, stage.other, [0], False), Op.SETTLE)
    stage.packet(MessageBatch([lock(2), release, lock(3), forward(7, b"other")]), more=False)
    assert stage.steps[-4:] == ["Forward"] * 4
    stage.later()
    assert sorted(answer.ticket for answer in stage.answers()) == [1, 2, 7, 9], "3 waits for 2"


def test_a_request_that_waits_for_an_item_comes_before_the_next_one_in_the_same_message(stage: Stage) -> None:
    def step(ticket: int, kind: StepKind, *items: bytes, wait_ms: int = 0) -> Forward:
        content = encode_collection_step(CollectionStep(kind, wait_ms=wait_ms))
        return Forward(
            ticket,
            Request(kind.op, CollectionKind.QUEUE.map_of("q"), [0], value=content, items=list(items)),
        )

    stage.packet(step(1, StepKind.POLL, wait_ms=20_000), more=False)
    stage.packet(MessageBatch([step(2, StepKind.ADD, b"a"), step(3, StepKind.POLL)]), more=False)
    stage.later()
    assert {answer.ticket: answer.outcome.value for answer in stage.answers()} == {1: b"a", 2: True, 3: None}


def test_answers_to_requests_of_one_message_leave_in_one_message(stage: Stage) -> None:
    stage.packet(MessageBatch([forward(ticket, b"%d" % ticket) for ticket in range(3)]), more=False)
    (replicate,) = stage.of(Replicate)
    assert [record.key for record in replicate.sections[0].all_records()] == [b"0", b"1", b"2"]
    stage.later()
    assert sorted(answer.ticket for answer in stage.answers()) == [0, 1, 2]
    assert stage.batches == 1


def test_answers_of_a_buffer_leave_at_its_end(stage: Stage) -> None:
    stage.packet(forward(1, op=Op.GET))
    stage.packet(forward(2, op=Op.GET))
    assert stage.answers() == []
    stage.driver.end_buffer()
    assert [answer.ticket for answer in stage.answers()] == [1, 2]
    assert stage.batches == 1


def test_a_request_that_waits_for_a_lock_gets_it_before_the_next_one_of_the_buffer(stage: Stage) -> None:
    def step(ticket: int, content: TransactionStep, op: Op = Op.TRANSACT) -> Forward:
        return Forward(ticket, Request(op, TRANSACTIONS_MAP, [0], value=encode_step(content)))

    def lock(ticket: int) -> Forward:
        return step(ticket, LockKeys(b"%016d" % ticket, stage.other, [("m", b"k")], 5_000))

    stage.buffer(lock(1))
    stage.later()
    stage.buffer(lock(2))
    stage.buffer(step(9, RollBackBranch(b"%016d" % 1, stage.other, [0], False), Op.SETTLE), lock(3))
    stage.later()
    assert sorted(answer.ticket for answer in stage.answers()) == [1, 2, 9], "3 waits for 2"


def test_a_step_of_requests_alone_lets_zones_gather_more(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share entries of a Raft log with all other requests of the turn."""
    calls: list[str] = []
    for name in ("gather", "flush"):
        monkeypatch.setattr(stage.member.agreed, name, partial(calls.append, name))
    stage.buffer(forward(1), forward(2))
    stage.buffer(forward(3), Replicated([], []))
    stage.buffer(Replicated([], []), forward(4))
    stage.buffer(MessageBatch([forward(5), forward(6)]))
    stage.buffer(MessageBatch([forward(7), Replicated([], [])]))
    assert calls == ["gather", "flush", "flush", "gather", "flush"]


def test_a_packet_outside_of_a_buffer_is_a_step_of_its_own(stage: Stage) -> None:
    stage.packet(forward(1), more=False)
    assert stage.steps == ["Forward"]
    assert len(stage.of(Replicate)) == 1
    assert not stage.member.open_step.is_open


def test_the_last_packet_of_a_buffer_ends_the_step(stage: Stage) -> None:
    stage.packet(forward(1))
    stage.packet(forward(2), more=False)
    assert stage.steps == ["Forward", "Forward"]
    assert len(stage.of(Replicate)) == 1
    assert not stage.member.open_step.is_open
    stage.driver.end_buffer()
    assert len(stage.steps) == 2


def test_a_session_that_the_end_of_a_step_wakes_has_its_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response leads to a write on the data lane, in a turn that has only begun to end."""
    copy = stage.member.lane.serving[0]
    assert copy is not None

    def write(outcome: Outcome) -> None:
        stage.driver.enter()
        stage.member.lane.set(copy, "m", b"lane", b"value", 0, 0, 0)
        stage.member.lane.close_batch(lambda known: None)
        stage.driver.leave_lane()

    sent_at_once: list[int] = []
    packet = stage.driver.packet

    def arrives(sender: MemberId, data: bytes | memoryview, *, more: bool = False) -> None:
        packet(sender, data, more=more)
        sent_at_once.append(len(stage.of(Replicate)))

    monkeypatch.setattr(stage.driver, "packet", arrives)
    stage.driver.execute(Request(Op.SET, "m", [0], b"a", b"value"), write)
    stage.later()
    assert sent_at_once[0] == 1, "it waits for other sessions of the turn"
    assert [record.key for record in stage.of(Replicate)[1].sections[0].all_records()] == [b"lane"]
    assert [name for name in stage.steps if name != "TimerFired"][:4] == [
        "ClientRequest",
        "StepEnded",
        "Replicated",
        "StepEnded",
    ]


def test_another_kind_of_message_finds_the_step_ended(stage: Stage) -> None:
    stage.buffer(forward(1), Summary(0, 0, [], []), forward(2))
    assert stage.steps == ["Forward", "StepEnded", "Summary", "Forward", "StepEnded"]
    assert len(stage.of(Replicate)) == 2


def test_another_event_in_the_middle_of_a_buffer_finds_the_step_ended(stage: Stage) -> None:
    """Example: a session that a response wakes in the middle of the buffer."""
    stage.packet(forward(1))
    stage.driver.handle(TimerFired(TimerName.GATHER))
    assert stage.steps == ["Forward", "StepEnded", "TimerFired"]
    stage.driver.end_buffer()
    assert len(stage.steps) == 3


def test_the_data_lane_leaves_with_the_buffer(stage: Stage) -> None:
    copy = stage.member.lane.serving[0]
    assert copy is not None
    stage.driver.enter()
    stage.member.lane.set(copy, "m", b"lane", b"value", 0, 0, 0)
    stage.member.lane.close_batch(lambda known: None)
    stage.driver.leave_lane()
    stage.buffer(forward(1, b"k"))
    (replicate,) = stage.of(Replicate)
    assert [record.key for record in replicate.sections[0].all_records()] == [b"lane", b"k"]
    stage.driver._run()
    assert stage.steps == ["Forward", "StepEnded"], "nothing is left for the end of the turn"


def test_a_long_buffer_ends_its_step_now_and_then(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_under_test, "TURN_MESSAGES", 3)
    stage.buffer(*(forward(ticket) for ticket in range(7)))
    assert stage.steps == [*["Forward"] * 3, "StepEnded"] * 2 + ["Forward", "StepEnded"]


def test_messages_that_are_left_for_the_next_turn_end_their_step_there(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first packet comes last, and all others are due at once."""
    monkeypatch.setattr(driver_under_test, "TURN_MESSAGES", 3)
    first, *others = [stage._link.send(encode(forward(ticket)), stage.world.now_ns) for ticket in range(5)]
    turns: list[Callable[[], None]] = []
    monkeypatch.setattr(stage.driver.world, "soon", turns.append)
    for packet in [*others, first]:
        stage.driver.packet(stage.other, packet, more=True)
    stage.driver.end_buffer()
    assert stage.steps == [*["Forward"] * 3, "StepEnded"]
    for turn in turns:
        turn()
    assert stage.steps == [*["Forward"] * 3, "StepEnded", *["Forward"] * 2, "StepEnded"]


def test_a_malformed_packet_leaves_no_step_open(stage: Stage) -> None:
    stage.packet(forward(1))
    with pytest.raises(ProtocolError):
        stage.driver.packet(stage.other, stage._link.send(b"\xff" * 40, stage.world.now_ns), more=True)
    stage.driver.end_buffer()
    assert not stage.member.open_step.is_open
    assert len(stage.of(Replicate)) == 1


def test_a_member_that_stops_in_the_middle_of_a_buffer_handles_no_more(stage: Stage) -> None:
    stage.packet(forward(1))
    stage.driver._deed(Stop("test"))
    stage.packet(forward(2))
    stage.driver.end_buffer()
    assert stage.steps == ["Forward"]


def test_requests_and_orders_of_a_turn_share_a_step(stage: Stage) -> None:
    outcomes: list[Outcome] = []
    for key in (b"a", b"b"):
        stage.driver.execute(Request(Op.SET, "m", [0], key, b"value"), outcomes.append)
    stage.driver.callers.order_transaction(BeginTransaction(), lambda answer: None)
    assert stage.steps == ["ClientRequest", "ClientRequest", "TransactionAsked"]
    assert stage.held == ["hold"], "packets wait for others of the turn"
    stage.later()
    assert stage.steps[3] == "StepEnded"
    assert stage.held[:2] == ["hold", "release"]
    assert [[record.key for record in one.sections[0].all_records()] for one in stage.of(Replicate)] == [
        [b"a", b"b"]
    ]
    assert [outcome.status for outcome in outcomes] == [Status.OK] * 2


@pytest.mark.parametrize("count", [3, 4, 7])
def test_a_turn_of_many_requests_ends_its_step_now_and_then(
    stage: Stage, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_under_test, "TURN_MESSAGES", 3)
    outcomes: list[Outcome] = []
    for number in range(count):
        stage.driver.execute(Request(Op.SET, "m", [0], b"%d" % number, b"value"), outcomes.append)
    full, rest = divmod(count - 1, 3)
    assert stage.steps == [*["ClientRequest"] * 3, "StepEnded"] * full + ["ClientRequest"] * (rest + 1)
    stage.later()
    assert stage.steps[count + full] == "StepEnded"
    assert [outcome.status for outcome in outcomes] == [Status.OK] * count
    assert not stage.member.open_step.is_open
    assert stage.held.count("hold") == stage.held.count("release")


def test_held_packets_leave_when_the_member_stops(stage: Stage) -> None:
    stage.driver.execute(Request(Op.SET, "m", [0], b"a", b"value"), lambda outcome: None)
    stage.driver._deed(Stop("test"))
    stage.driver._run()
    assert stage.held == ["hold", "release"]


def test_a_request_made_in_the_middle_of_a_step_shares_it(stage: Stage) -> None:
    def again(outcome: Outcome) -> None:
        stage.driver.execute(Request(Op.SET, "m", [0], b"b", b"value"), lambda outcome: None)

    stage.driver.execute(Request(Op.GET, "m", [0], b"a"), again)
    assert stage.steps == ["ClientRequest", "ClientRequest"]
    stage.later()
    assert stage.steps[2] == "StepEnded"
    assert not stage.member.open_step.is_open


def test_a_member_never_handles_a_rare_event_in_an_open_step(stage: Stage) -> None:
    stage._handle(Received(stage.other, forward(1), more=True), stage.world.now_ns)
    assert stage.member.open_step.is_open
    with pytest.raises(AssertionError, match="an open step is ended"):
        stage._handle(TimerFired(TimerName.GATHER), stage.world.now_ns)
    stage._handle(StepEnded(), stage.world.now_ns)
    with pytest.raises(AssertionError, match="rare messages"):
        stage._handle(Received(stage.other, Summary(0, 0, [], []), more=True), stage.world.now_ns)


def test_only_messages_that_change_neither_view_nor_table_share_a_step() -> None:
    assert {kind for kind in SHARING if kind.__module__ == Forward.__module__} == {
        Forward,
        Answer,
        ForwardFrames,
        FramesAnswer,
        Replicate,
        Replicated,
    }
