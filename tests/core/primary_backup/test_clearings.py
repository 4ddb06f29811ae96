"""Clearing a map whose changes are told: slice by slice, within what may be kept for backups."""

from __future__ import annotations

import pytest
from tests.core.routing.test_retries import ASKER, BEN, NEW, Desk

from holdfast.config import LimitSettings
from holdfast.core.messages import Answer, Forward, Replicate
from holdfast.core.model.decisions import LockChanges
from holdfast.core.model.ids import SECOND
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.records import Change, Record
from holdfast.core.model.transactions import KeyLock, lock_key
from holdfast.core.primary_backup import clearings
from holdfast.core.primary_backup.clearings import EASE_NS, PAUSE_NS
from holdfast.core.store.partition_copy import PartitionCopy

CLEAR = Request(Op.CLEAR, "m", [0])
VALUE = b"v" * 800


class ClearedDesk(Desk):
    """It serves a map of a hundred entries, of which ten go in a slice."""

    def __init__(self, **more: int) -> None:
        super().__init__(limits=LimitSettings(**more), changes_bytes=1 << 20)
        self.copy = self.serve()
        for number in range(100):
            self.put(f"{number:02}")
        self.acknowledge()
        self.told.clear()
        self.entries = self.copy.maps["m"].state.entries

    def put(self, key: str, name: str = "m") -> None:
        self.ask(Request(Op.SET, name, [0], key.encode(), VALUE))

    def records(self) -> list[Record]:
        """Of the messages to the backup since the last time."""
        return [
            record
            for to, message in self.sent()
            if isinstance(message, Replicate) and to == BEN
            for section in message.sections
            for record in section.all_records()
        ]

    def pass_time(self, time_ns: int) -> None:
        super().pass_time(time_ns)
        self.router._replication.on_timer()

    def run(self) -> None:
        for _ in range(20):
            self.acknowledge()
            self.pass_time(PAUSE_NS)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clearings, "SLICE_BYTES", 10_000)


@pytest.mark.rule("primary_backup/L-1", "primary_backup/L-4")
def test_a_step_of_the_member_removes_a_slice_and_the_caller_waits_for_all() -> None:
    desk = ClearedDesk()
    desk.ask(CLEAR)
    assert len(desk.entries) == 90
    seen = desk.records()
    while desk.entries:
        before = len(desk.entries)
        desk.pass_time(PAUSE_NS)
        assert before - len(desk.entries) == 10
        seen += desk.records()
    assert [(record.change, record.key, record.old) for record in seen] == [
        (Change.REMOVE, b"%02d" % number, VALUE) for number in range(100)
    ]
    first, *_, last = desk.lane.batches_of(0)
    for batch in list(desk.lane.batches_of(0)):
        assert desk.told == []
        batch.need.clear()
        desk.lane.batches.look(batch)
    assert first is not last
    assert desk.told == [Outcome(Status.OK, 100)]
    assert set(desk.router.leftovers.values()) == {0}


@pytest.mark.rule("primary_backup/L-1")
def test_what_is_written_meanwhile_to_removed_keys_stays() -> None:
    desk = ClearedDesk()
    desk.ask(CLEAR)
    desk.put("00")
    desk.put("99")
    desk.put("new")
    desk.run()
    assert sorted(desk.entries) == [b"00", b"new"]
    assert desk.told[-1] == Outcome(Status.OK, 100)


def test_a_write_of_the_same_buffer_is_waited_for() -> None:
    """Before the first slice is sealed nothing else is: who wrote before in the same step waits for his own batch."""
    desk = ClearedDesk()
    told: list[bool] = []
    desk.lane.set(desk.copy, "other", b"k", b"v", 0, 0, 0)
    desk.lane.close_batch(told.append)
    desk.ask(CLEAR)
    desk.sent()
    assert told == []
    desk.run()
    assert told == []


@pytest.mark.rule("primary_backup/L-2")
def test_while_too_much_is_kept_for_backups_nothing_more_is_removed() -> None:
    desk = ClearedDesk(backlog_bytes=65_536)
    desk.ask(CLEAR)
    for _ in range(20):
        desk.pass_time(EASE_NS)
    assert desk.lane.backlog.crowded
    assert not desk.lane.backlog.refusing
    assert 20 < len(desk.entries) < 50
    desk.run()
    assert not desk.entries
    assert desk.told == [Outcome(Status.OK, 100)]


@pytest.mark.rule("primary_backup/L-2")
def test_after_the_call_timeout_the_rest_is_left_and_nobody_says_that_it_is_done() -> None:
    desk = ClearedDesk(backlog_bytes=65_536)
    desk.ask(CLEAR)
    for _ in range(130):
        desk.pass_time(SECOND)
    assert 20 < len(desk.entries) < 50
    assert desk.told == [], "of what was removed it is not known yet"
    desk.acknowledge()
    desk.pass_time(SECOND)
    assert [outcome.status for outcome in desk.told] == [Status.UNKNOWN]
    assert set(desk.router.leftovers.values()) == {0}


@pytest.mark.rule("primary_backup/L-3")
@pytest.mark.parametrize("again", [False, True])
def test_what_is_left_in_a_partition_that_goes_is_cleared_by_whoever_has_it_then(again: bool) -> None:
    desk = ClearedDesk()
    desk.ask(CLEAR)
    desk.acknowledge()
    if again:
        # It has gone and come back meanwhile, with another copy.
        desk.copy = PartitionCopy(0, 0)
        desk.copy.term = 3
        desk.lane.leading[0] = desk.copy
        desk.lane.retarget(desk.copy)
        desk.put("00")
        desk.run()
        desk.pass_time(SECOND)
        desk.run()
        assert not desk.copy.maps["m"].state.entries
        assert desk.told[-1] == Outcome(Status.OK, 11)
        return
    desk.lane.leading[0] = None
    desk.moved(NEW)
    desk.around.absent.discard(NEW)
    desk.pass_time(PAUSE_NS)
    assert len(desk.entries) == 90
    desk.pass_time(SECOND)
    forward = desk.forwarded()
    assert (forward.request.op, forward.request.partitions) == (Op.CLEAR, [0])
    desk.router.on_answer(NEW, Answer(forward.ticket, Outcome(Status.OK, 90), []))
    assert desk.told == [Outcome(Status.OK, 100)]


@pytest.mark.rule("primary_backup/L-3")
def test_another_member_is_told_what_is_left() -> None:
    desk = ClearedDesk()
    desk.router.on_forward(ASKER, Forward(7, CLEAR))
    desk.acknowledge()
    desk.router.refusals.passive = True
    answers = []
    for _ in range(3):
        desk.pass_time(PAUSE_NS)
        answers += [message for _, message in desk.sent() if isinstance(message, Answer)]
    (answer,) = answers
    assert (answer.ticket, answer.outcome, answer.missed) == (7, Outcome(Status.OK, 10), [0])
    assert len(desk.entries) == 90


@pytest.mark.rule("operations/T-1")
def test_a_partition_with_a_locked_entry_is_cleared_later() -> None:
    desk = ClearedDesk()
    lock = KeyLock(b"1" * 16, ASKER)
    desk.copy.locks.change(LockChanges([(lock_key("other", b"00"), lock), (lock_key("m", b"00"), lock)]))
    desk.router.on_forward(ASKER, Forward(7, CLEAR))
    desk.acknowledge()
    answers = [message for _, message in desk.sent() if isinstance(message, Answer)]
    assert len(desk.entries) == 100
    assert [answer.missed for answer in answers] == [[0]]


def test_several_take_turns() -> None:
    desk = ClearedDesk()
    for number in range(50):
        desk.put(f"{number:02}", "n")
    desk.acknowledge()
    desk.told.clear()
    desk.ask(CLEAR)
    desk.ask(Request(Op.EVICT_ALL, "n", [0]))
    for _ in range(6):
        desk.pass_time(PAUSE_NS)
    assert len(desk.entries) in (60, 70)
    assert len(desk.copy.maps["n"].state.entries) == 20
    desk.run()
    assert [outcome.value for outcome in desk.told] == [50, 100]


def test_when_a_slice_becomes_unknown_the_caller_hears_that_once() -> None:
    desk = ClearedDesk()
    desk.router.on_forward(ASKER, Forward(7, CLEAR))
    desk.sent()
    desk.lane.leading[0] = None
    desk.lane.abandon(0)
    answers = [message for _, message in desk.sent() if isinstance(message, Answer)]
    assert [answer.outcome.status for answer in answers] == [Status.UNKNOWN]
    for _ in range(3):
        desk.pass_time(PAUSE_NS)
    assert desk.sent() == []
    assert set(desk.router.leftovers.values()) == {0}
