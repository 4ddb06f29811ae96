"""Transactions over collections: one lock for all items, nothing lost and nothing taken twice."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.lab.sim.stage import Stage, clean
from tests.lab.sim.transaction_stage import Desk, Told, kept, transactional

from holdfast.actions.drain import Drain
from holdfast.core.collections import multimap_steps
from holdfast.core.events import ActionRequested
from holdfast.core.model.collections import (
    CollectionKind,
    CollectionStep,
    StepKind,
    encode_step,
    partition_of_name,
)
from holdfast.core.model.keys import partition_of
from holdfast.core.model.levels import OF_THIS_BUILD, STRUCTURES, FeatureLevels
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.transaction_orders import OperateIn, TransactionFate
from holdfast.core.operations import transaction_branches
from holdfast.core.transactions.finishing import Finishing
from holdfast.core.transactions.two_phase_commit import TwoPhaseCommit
from holdfast_lab.sim.world import Process

JOBS = "jobs"
QUEUE, SET, MULTIMAP = CollectionKind.QUEUE, CollectionKind.SET, CollectionKind.MULTIMAP


class Collections:
    """Requests for the collections of this name."""

    def __init__(self, hosts: int = 3, backups: int = 1, **changed: Any) -> None:
        self.stage = Stage(hosts, settings=transactional(backups), **changed)
        self.desks = [Desk(self.stage, process) for process in self.stage.processes]

    def request(
        self, kind: StepKind, *items: bytes, of: CollectionKind = QUEUE, wait_ms: int = 0, end: int = -1
    ) -> Request:
        value = encode_step(CollectionStep(kind, wait_ms=wait_ms, end=end))
        place = partition_of_name(JOBS, 7)
        return Request(kind.op, of.map_of(JOBS), [place], value=value, items=list(items))

    def ask(
        self, kind: StepKind, *items: bytes, process: Process | None = None, **step: Any
    ) -> list[Outcome]:
        answers: list[Outcome] = []
        asked = process or self.stage.processes[0]
        asked.step(partial(asked.driver.execute, self.request(kind, *items, **step), answers.append))
        return answers

    def do(self, kind: StepKind, *items: bytes, **step: Any) -> Any:
        answers = self.ask(kind, *items, **step)
        self.stage.until(lambda: bool(answers), what="no answer")
        assert answers[0].status is Status.OK, answers
        return answers[0].value

    def start(self, desk: Desk, transaction: bytes, kind: StepKind, *items: bytes, **step: Any) -> Told:
        return desk.order(OperateIn(transaction, self.request(kind, *items, **step)))

    def take(self, desk: Desk, transaction: bytes, kind: StepKind, *items: bytes, **step: Any) -> Any:
        told = self.start(desk, transaction, kind, *items, **step)
        self.stage.until(lambda: bool(told.answers), what="no answer")
        assert told.fate is TransactionFate.DONE, told.answers
        return told.answer.value

    def end(self, told: Told) -> TransactionFate | None:
        self.stage.until(lambda: bool(told.answers), what="no end")
        return told.fate

    def items(self, of: CollectionKind = QUEUE) -> Any:
        return self.do(StepKind.ITEMS, of=of)

    @property
    def primary(self) -> Process:
        row = self.stage.processes[0].driver.member.table.rows[partition_of_name(JOBS, 7)]
        return next(each for each in self.stage.processes if each.driver.member.me == row.owner)

    def away_from_primary(self) -> Desk:
        return next(desk for desk in self.desks if desk.process is not self.primary)

    def crash(self, process: Process) -> None:
        process.crash()
        self.stage.processes.remove(process)
        self.desks = [desk for desk in self.desks if desk.process is not process]


def test_items_move_between_collections_at_once() -> None:
    all_of = Collections()
    desk = all_of.desks[0]
    all_of.do(StepKind.ADD, b"a", b"b")
    tx = desk.begin()
    assert all_of.take(desk, tx, StepKind.POLL) == b"a"
    assert all_of.take(desk, tx, StepKind.ADD, b"a", of=SET) is True
    assert all_of.take(desk, tx, StepKind.SIZE) == 1
    desk.set(tx, done="a")
    assert (all_of.items(), all_of.items(SET)) == ([b"a", b"b"], [])
    assert all_of.end(desk.commit(tx)) is TransactionFate.DONE
    assert (all_of.items(), all_of.items(SET)) == ([b"b"], [b"a"])
    all_of.stage.wait(1)
    assert kept(all_of.stage) == 0
    clean(all_of.stage)


@pytest.mark.rule("operations/T-8")
def test_changes_by_others_wait_until_the_transaction_ends() -> None:
    all_of = Collections()
    one = all_of.desks[0]
    all_of.do(StepKind.ADD, b"a", b"b")
    tx = one.begin()
    assert all_of.take(one, tx, StepKind.POLL) == b"a"
    polled = all_of.ask(StepKind.POLL)
    offered = all_of.ask(StepKind.ADD, b"c")
    waiting = all_of.ask(StepKind.POLL, wait_ms=5000)
    all_of.stage.wait(1)
    assert polled == offered == waiting == []
    assert all_of.items() == [b"a", b"b"], "reads do not wait"
    assert all_of.end(one.roll_back(tx)) is TransactionFate.DONE
    all_of.stage.wait(0.5)
    assert ([polled[0].value], [waiting[0].value], offered[0].value) == ([b"a"], [b"b"], True)
    assert all_of.items() == [b"c"]
    clean(all_of.stage)


def test_a_commit_wakes_those_who_wait_for_an_item() -> None:
    all_of = Collections()
    waiting = all_of.ask(StepKind.POLL, wait_ms=5000)
    one = all_of.desks[1]
    tx = one.begin()
    assert all_of.take(one, tx, StepKind.ADD, b"a") is True
    all_of.stage.wait(0.5)
    assert waiting == []
    assert all_of.end(one.commit(tx)) is TransactionFate.DONE
    all_of.stage.wait(0.1)
    assert [each.value for each in waiting] == [b"a"]
    clean(all_of.stage)


def test_a_poll_in_a_transaction_waits_without_a_lock() -> None:
    all_of = Collections()
    one, two, three = all_of.desks
    first, second = one.begin(), two.begin()
    polls = [
        all_of.start(one, first, StepKind.POLL, wait_ms=5000),
        all_of.start(two, second, StepKind.POLL, wait_ms=5000),
    ]
    all_of.stage.wait(0.5)
    assert kept(all_of.stage) == 0
    all_of.do(StepKind.ADD, b"a")
    all_of.stage.wait(0.5)
    assert [told.answer.value for told in polls if told.answers] == [b"a"], "one has it, and the other waits"
    winner, loser = ((one, first), (two, second)) if polls[0].answers else ((two, second), (one, first))
    other = polls[1] if polls[0].answers else polls[0]
    assert all_of.end(winner[0].commit(winner[1])) is TransactionFate.DONE
    all_of.stage.wait(0.5)
    assert not other.answers
    assert kept(all_of.stage) == 0, "it has released the lock to wait again"
    third = three.begin()
    assert all_of.take(three, third, StepKind.ADD, b"b") is True
    assert all_of.end(three.commit(third)) is TransactionFate.DONE
    all_of.stage.until(lambda: bool(other.answers), what="no item")
    assert other.answer.value == b"b"
    assert all_of.end(loser[0].commit(loser[1])) is TransactionFate.DONE
    assert all_of.items() == []
    clean(all_of.stage)


def test_a_wait_in_a_transaction_ends_in_time() -> None:
    all_of = Collections()
    desk = all_of.desks[0]
    tx = desk.begin()
    told = all_of.start(desk, tx, StepKind.POLL, wait_ms=300)
    all_of.stage.wait(0.2)
    assert not told.answers
    all_of.stage.wait(0.2)
    assert (told.fate, told.answer.value) == (TransactionFate.DONE, None)
    assert all_of.take(desk, tx, StepKind.PEEK) is None
    assert all_of.end(desk.commit(tx)) is TransactionFate.DONE
    clean(all_of.stage)


@pytest.mark.parametrize("seen", [True, False])
def test_a_crash_of_the_primary_ends_the_lock_and_the_transaction(
    seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise two would take the same item. `seen`: its coordinator notices the crash."""
    if not seen:
        monkeypatch.setattr(TwoPhaseCommit, "primaries_gone", lambda *_: None)
    all_of = Collections()
    desk = all_of.away_from_primary()
    all_of.do(StepKind.ADD, b"a", b"b")
    tx = desk.begin()
    assert all_of.take(desk, tx, StepKind.POLL) == b"a"
    all_of.crash(all_of.primary)
    all_of.stage.until(all_of.stage.cluster.settled, what="it does not settle")
    assert all_of.do(StepKind.POLL, process=desk.process) == b"a"
    assert all_of.end(desk.commit(tx)) is TransactionFate.ROLLED_BACK
    assert all_of.do(StepKind.ITEMS, process=desk.process) == [b"b"]
    clean(all_of.stage)


@pytest.mark.rule("operations/T-8")
def test_a_prepared_branch_keeps_the_lock_of_its_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its coordinator and its primary die: nothing takes the item that it may have taken."""
    monkeypatch.setattr(Finishing, "commit", lambda *_: None)
    monkeypatch.setattr(Finishing, "ask", lambda *_: None)
    all_of = Collections(4, backups=2)
    desk = all_of.away_from_primary()
    all_of.do(StepKind.ADD, b"a", b"b")
    tx = desk.begin()
    assert all_of.take(desk, tx, StepKind.POLL) == b"a"
    elsewhere = next(
        key for key in map(str, range(99)) if all_of.stage.partition(key) != partition_of_name(JOBS, 7)
    )
    desk.set(tx, **{elsewhere: "v"})
    desk.commit(tx)
    all_of.stage.wait(0.5)
    all_of.crash(all_of.primary)
    all_of.stage.until(all_of.stage.cluster.settled, what="it does not settle")
    taken = all_of.ask(StepKind.POLL, process=desk.process)
    all_of.stage.wait(1)
    assert not taken, "the outcome of the transaction is not known yet"


def test_locks_of_collections_move_with_their_partition() -> None:
    all_of = Collections()
    desk = all_of.away_from_primary()
    all_of.do(StepKind.ADD, b"a", b"b")
    tx = desk.begin()
    assert all_of.take(desk, tx, StepKind.POLL) == b"a"
    before = all_of.primary
    before.step(partial(before.driver.handle, ActionRequested(Drain())))
    all_of.stage.until(lambda: before.driver.stopped, seconds=30, what="it does not leave")
    all_of.stage.processes.remove(before)
    polled = all_of.ask(StepKind.POLL, process=desk.process)
    all_of.stage.wait(0.5)
    assert not polled
    assert all_of.take(desk, tx, StepKind.POLL) == b"b"
    assert all_of.end(desk.commit(tx)) is TransactionFate.DONE
    all_of.stage.wait(0.5)
    assert [each.value for each in polled] == [None]


# -- multimaps


def values_of(key: bytes, kind: StepKind, *items: bytes) -> Request:
    value = encode_step(CollectionStep(kind))
    place = partition_of(key, 0, 7)
    return Request(kind.op, MULTIMAP.map_of(JOBS), [place], key=key, value=value, items=list(items))


def asked(all_of: Collections, request: Request) -> list[Outcome]:
    answers: list[Outcome] = []
    process = all_of.stage.processes[0]
    process.step(partial(process.driver.execute, request, answers.append))
    return answers


def size_of(all_of: Collections, desk: Desk, transaction: bytes) -> Any:
    request = Request(Op.SIZE, MULTIMAP.map_of(JOBS), list(range(7)))
    told = desk.order(OperateIn(transaction, request))
    all_of.stage.until(lambda: bool(told.answers), what="no size")
    return told.answer.value


def test_a_multimap_changes_with_the_rest() -> None:
    all_of = Collections()
    desk = all_of.desks[0]

    def do(kind: StepKind, key: bytes, *items: bytes) -> Any:
        told = desk.order(OperateIn(tx, values_of(key, kind, *items)))
        all_of.stage.until(lambda: bool(told.answers), what="no answer")
        assert told.fate is TransactionFate.DONE, told.answers
        return told.answer.value

    tx = desk.begin()
    assert do(StepKind.ADD, b"k", b"1") is True
    assert do(StepKind.ADD, b"k", b"1") is False, "each value once"
    assert do(StepKind.ADD, b"k", b"2") is True
    assert do(StepKind.ADD, b"other", b"3") is True
    assert do(StepKind.ITEMS, b"k") == [b"1", b"2"]
    assert do(StepKind.REMOVE, b"k", b"1") is True
    assert do(StepKind.SIZE, b"k") == 1
    assert size_of(all_of, desk, tx) == 2
    assert do(StepKind.DRAIN, b"other") == [b"3"]
    blocked = asked(all_of, values_of(b"k", StepKind.ADD, b"4"))
    all_of.stage.wait(1)
    assert not blocked
    assert all_of.end(desk.commit(tx)) is TransactionFate.DONE
    all_of.stage.wait(0.1)
    assert [each.value for each in blocked] == [True], "it is woken"
    read = asked(all_of, values_of(b"k", StepKind.ITEMS))
    all_of.stage.wait(0.1)
    assert [each.value for each in read] == [[b"2", b"4"]]
    tx = desk.begin()
    assert size_of(all_of, desk, tx) == 2
    assert do(StepKind.DRAIN, b"k") == [b"2", b"4"]
    assert size_of(all_of, desk, tx) == 0
    blocked = asked(all_of, values_of(b"k", StepKind.ADD, b"5"))
    all_of.stage.wait(0.5)
    assert all_of.end(desk.roll_back(tx)) is TransactionFate.DONE
    all_of.stage.wait(0.1)
    assert [each.value for each in blocked] == [True], "also by a rollback"
    clean(all_of.stage)


def test_too_many_values_are_refused_and_the_transaction_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multimap_steps, "LOOKED_MAX", 2)
    all_of = Collections(1)
    desk = all_of.desks[0]
    tx = desk.begin()
    told = [desk.order(OperateIn(tx, values_of(b"k", StepKind.ADD, item))) for item in (b"1", b"2", b"3")]
    all_of.stage.wait(0.2)
    assert [each.fate for each in told] == [
        TransactionFate.DONE,
        TransactionFate.DONE,
        TransactionFate.NOT_DONE,
    ]
    assert "at most 2 values" in told[2].answer.why
    assert all_of.end(desk.commit(tx)) is TransactionFate.DONE
    read = asked(all_of, values_of(b"k", StepKind.ITEMS))
    all_of.stage.wait(0.1)
    assert read[0].value == [b"1", b"2"]


@pytest.mark.parametrize(
    ("kind", "items", "of", "why"),
    [
        (StepKind.DRAIN, [], QUEUE, "DRAIN is not done in a transaction on a queue"),
        (StepKind.ADD, [b"a", b"b"], QUEUE, "one at a time"),
        (StepKind.ADD, [], SET, "one at a time"),
        (StepKind.POLL, [], SET, "POLL is no step of a set"),
        (StepKind.LOOK, [], QUEUE, "LOOK is not done in a transaction"),
        (StepKind.HEAD, [], CollectionKind.RINGBUFFER, "HEAD is not done in a transaction on a ringbuffer"),
    ],
)
def test_other_steps_are_refused(kind: StepKind, items: list[bytes], of: CollectionKind, why: str) -> None:
    all_of = Collections(1)
    desk = all_of.desks[0]
    told = all_of.start(desk, desk.begin(), kind, *items, of=of)
    all_of.stage.wait(0.1)
    assert told.fate is TransactionFate.NOT_DONE
    assert why in told.answer.why


def test_old_members_do_not_look_at_locks_of_collections() -> None:
    before = FeatureLevels(OF_THIS_BUILD.lowest, STRUCTURES - 1)
    all_of = Collections(2, builds=[before, before])
    desk = all_of.desks[0]
    told = all_of.start(desk, desk.begin(), StepKind.ADD, b"a")
    all_of.stage.wait(0.1)
    assert "below feature level 13" in told.answer.why


def test_if_changes_do_not_wait_for_the_lock_an_item_is_taken_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    found = transaction_branches.locked_entry
    monkeypatch.setattr(
        transaction_branches,
        "locked_entry",
        lambda locks, request: None if request.op is Op.TAKE_FROM_COLLECTION else found(locks, request),
    )
    all_of = Collections()
    desk = all_of.desks[0]
    all_of.do(StepKind.ADD, b"a")
    tx = desk.begin()
    assert all_of.take(desk, tx, StepKind.POLL) == b"a"
    assert all_of.do(StepKind.POLL) == b"a"
    assert all_of.end(desk.commit(tx)) is TransactionFate.DONE


@pytest.mark.rule("routing/R-23")
def test_an_end_wakes_those_that_wait_for_the_lock_behind_one_that_waits_for_more() -> None:
    all_of = Collections()
    one = all_of.desks[0]
    waiting = all_of.ask(StepKind.POLL, wait_ms=10_000)
    tx = one.begin()
    assert all_of.take(one, tx, StepKind.PEEK) is None
    polled = all_of.ask(StepKind.POLL)
    drained = all_of.ask(StepKind.DRAIN)
    all_of.stage.wait(0.5)
    assert polled == drained == waiting == []
    assert all_of.end(one.commit(tx)) is TransactionFate.DONE
    all_of.stage.wait(0.1)
    assert ([polled[0].value], [drained[0].value]) == ([None], [[]])
    assert waiting == []


@pytest.mark.rule("routing/R-23")
def test_one_that_waited_before_the_lock_is_served_before_those_that_came_later() -> None:
    all_of = Collections()
    one = all_of.desks[0]
    first = all_of.ask(StepKind.POLL, wait_ms=10_000)
    tx = one.begin()
    assert all_of.take(one, tx, StepKind.ADD, b"a") is True
    second = all_of.ask(StepKind.POLL, wait_ms=10_000)
    all_of.stage.wait(0.5)
    assert all_of.end(one.commit(tx)) is TransactionFate.DONE
    all_of.stage.wait(0.1)
    assert ([each.value for each in first], second) == ([b"a"], [])
    all_of.do(StepKind.ADD, b"b")
    all_of.stage.wait(0.1)
    assert [each.value for each in second] == [b"b"]


@pytest.mark.rule("routing/R-21")
@pytest.mark.parametrize("away", [True, False])
def test_a_transaction_that_has_ended_waits_for_no_item(away: bool) -> None:
    all_of = Collections()
    at_primary = next(desk for desk in all_of.desks if desk.process is all_of.primary)
    desk = all_of.away_from_primary() if away else at_primary
    tx = desk.begin()
    all_of.start(desk, tx, StepKind.POLL, wait_ms=10_000)
    all_of.stage.wait(0.2)
    router = all_of.primary.driver.member.router
    assert router.leftovers["requests that wait for a change"] == 1
    assert all_of.end(desk.roll_back(tx)) is TransactionFate.DONE
    all_of.stage.wait(0.2)
    assert router.leftovers["requests that wait for a change"] == 0
    clean(all_of.stage)
