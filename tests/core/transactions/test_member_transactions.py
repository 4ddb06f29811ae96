"""The transactions of a member as one machine: what each order and each occasion sets going."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.core.transactions.one_member import BEN, CAT, COUNT, MAP, ME, UNKNOWN, One, key_in

from holdfast.actions.list_transactions import ListTransactions, RollBackRunning
from holdfast.config import MapSettings
from holdfast.core.messages import DeadlockFound, LocksAwaited, OwnersAsked, OwnersGone
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.levels import PRIMARY_LOCKS
from holdfast.core.model.member_status import TransactionCounts
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.topology import MappedOn, TopologyVersion
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    HoldCommits,
    LockWait,
    ResumeCommits,
    RollBackTransaction,
    StoreTogether,
    TransactionFate,
    TransactionOrder,
)
from holdfast.core.model.transactions import (
    CommitBranch,
    ForgetBranches,
    LockKeys,
    PrepareBranch,
    RollBackBranch,
    StepFate,
    StepResult,
    TransactionalWrite,
    encode,
)
from holdfast.core.transactions.mapping import Mapping
from holdfast.core.transactions.member_transactions import HALF_DONE
from holdfast.core.transactions.orphans import BEGUN_MOST
from holdfast.core.transactions.steps import result_of
from holdfast.errors import Refused

GONE = MemberId("gone")
K1, K2 = key_in(1), key_in(2)
DONE, NOT_DONE, NOT_ACTIVE = TransactionFate.DONE, TransactionFate.NOT_DONE, TransactionFate.NOT_ACTIVE
T1 = b"1" * 16


def view_changes(one: One, *, gone: Sequence[MemberId] = (), admitted: bool = True) -> None:
    view = one.standing.view
    one.transactions.on_view(ViewInstalled(view, view, admitted, frozenset(gone), frozenset()))
    one.deliver()


def lock(one: One, partition: int, transaction: bytes, owner: MemberId, number: int = 0) -> None:
    step = LockKeys(transaction, owner, [(MAP, key_in(partition, number))], 1000)
    one.partitions.decide(partition, step)


def committing(one: One) -> int:
    """A transaction of two partitions whose commit has begun; the test serves what is asked."""
    one.prompt()
    tx = one.begin()
    one.do(tx, Op.SET, K1, b"v")
    one.do(tx, Op.SET, K2, b"v")
    one.slow()
    token = one.commit(tx)
    for asked in one.take():
        asked.serve()
    one.deliver()
    return token


@pytest.mark.rule("operations/T-6")
def test_locks_outlive_a_member_that_goes_while_backups_hold_them() -> None:
    for level in (PRIMARY_LOCKS - 1, PRIMARY_LOCKS):
        one = One()
        tx = one.begin()
        one.do(tx, Op.SET, K1, b"v")
        one.table.rows[1] = Assignment(2, (GONE, ME))
        one.out.level = level
        view_changes(one, gone=[GONE])
        fate = one.fate(one.commit(tx))
        assert fate is (TransactionFate.ROLLED_BACK if level >= PRIMARY_LOCKS else DONE)


# -- orders


ORDERS: list[TransactionOrder] = [
    BeginTransaction(),
    RollBackTransaction(b"0" * 16),
    StoreTogether(MAP, [], []),
    HoldCommits(b"cut", 1000),
    ResumeCommits(b"cut"),
]


@pytest.mark.parametrize("order", ORDERS)
def test_a_member_in_no_cluster_takes_no_orders(order: TransactionOrder) -> None:
    one = One()
    one.standing.view = None
    one.standing.state = type(one.standing.state).JOINING
    answer = one.answer(one.order(order))
    assert (answer.fate, answer.why) == (NOT_ACTIVE, "this member is in no cluster")


def test_operators_see_what_runs_who_waits_and_what_is_orphaned() -> None:
    one = One()
    holder, waiter = one.begin(), one.begin()
    one.do(holder, Op.SET, K1, b"v")
    one.operate(waiter, Op.SET, K1, b"w")
    lock(one, 2, T1, GONE)
    one.transactions.orphans.look()
    one.out.now_ns += 7 * MILLISECOND
    running = one.transactions.coordinator.running.told()
    assert [each.transaction for each in running] == [holder, waiter]
    assert one.transactions.deadlocks.waits() == [LockWait(waiter, ME, holder, (MAP, K1), 7)]
    assert one.transactions.orphans.count == 1
    member: Any = SimpleNamespace(transactions=one.transactions)
    answers: list[Any] = []
    ListTransactions().apply(member, answers.append)
    [listed] = answers
    assert [each.transaction for each in listed.transactions] == [holder.hex(), waiter.hex()]
    [key] = listed.transactions[0].keys
    assert key.startswith(f"{MAP}[")
    [wait] = listed.waits
    assert (wait.waiter, wait.holder, wait.since_ms) == (waiter.hex(), holder.hex(), 7)
    assert listed.orphans == 1
    assert one.transactions.counts == TransactionCounts(2, 7, 1)


def test_an_operator_rolls_one_back_and_says_why() -> None:
    one = One()
    tx = one.begin()
    member: Any = SimpleNamespace(transactions=one.transactions)
    answers: list[Any] = []
    RollBackRunning(tx.hex()).apply(member, answers.append)
    assert one.answer(one.commit(tx)).why == "an operator has rolled it back"
    RollBackRunning("00" * 16).apply(member, answers.append)
    assert answers[0] is None
    assert (type(answers[1]), str(answers[1])) == (
        Refused,
        f"{'00' * 16}: not rolled back: there is no such transaction, or it has ended",
    )


# -- cuts: commits are held up


def test_who_holds_commits_up_is_told_when_none_is_under_way() -> None:
    one = One()
    told = one.order(HoldCommits(b"cut", 5000))
    assert (one.fate(told), one.answer(told).value) == (DONE, [5, 3])
    told = one.order(ResumeCommits(b"cut"))
    assert (one.fate(told), one.answer(told).value) == (DONE, [5, 3])
    told = one.order(ResumeCommits(b"cut"))
    assert (one.fate(told), one.answer(told).value) == (NOT_DONE, [5, 3]), "it was resumed before"


def test_who_holds_commits_up_waits_for_those_that_have_begun() -> None:
    one = One()
    token = committing(one)
    held = one.order(HoldCommits(b"cut", 5000))
    first, second = one.take()
    first.serve()
    one.deliver()
    assert one.fate(held) is None
    second.serve()
    one.deliver()
    assert (one.fate(held), one.fate(token)) == (DONE, DONE)
    later = committing(one)
    assert one.partitions.asked == [], "it is prepared, and goes no further"
    one.order(ResumeCommits(b"cut"))
    assert [asked.step.__class__ for asked in one.partitions.asked] == [CommitBranch] * 2
    one.serve()
    assert one.fate(later) is DONE


def test_a_cut_learns_when_a_commit_does_not_end() -> None:
    one = One()
    committing(one)
    held = one.order(HoldCommits(b"cut", 5000))
    longer = one.order(HoldCommits(b"other", 6000))
    one.pass_time(4999)
    assert one.fate(held) is None
    one.pass_time(1)
    assert (one.fate(held), one.answer(held).why) == (
        NOT_DONE,
        "a transaction that is being committed does not come to its end",
    )
    assert one.fate(longer) is None
    one.serve()
    assert one.fate(longer) is DONE


@pytest.mark.parametrize(
    ("wanted_ms", "held_ms"), [(-5, 1), (0, 1), (1, 1), (2, 2), (30_000, 30_000), (30_001, 30_000)]
)
def test_a_hold_is_bounded(wanted_ms: int, held_ms: int) -> None:
    one = One()
    one.order(HoldCommits(b"a", wanted_ms))
    one.out.now_ns += held_ms * MILLISECOND - 1
    assert one.fate(one.order(ResumeCommits(b"a"))) is DONE
    one.order(HoldCommits(b"b", wanted_ms))
    one.out.now_ns += held_ms * MILLISECOND
    assert one.fate(one.order(ResumeCommits(b"b"))) is NOT_DONE


def prepared_by(one: One, owner: MemberId, transaction: bytes = T1) -> None:
    writes = [TransactionalWrite(MAP, K1, b"v")]
    one.partitions.decide(1, PrepareBranch(transaction, owner, [1, 2], writes, [], False))


@pytest.mark.rule("transactions/M-1")
def test_a_cut_is_valid_if_only_transactions_of_this_member_wait_for_its_end() -> None:
    """None of them has begun to commit: the cut has nothing of them."""
    one = One()
    one.order(HoldCommits(b"cut", 5000))
    token = committing(one)
    assert one.fate(token) is None
    answer = one.answer(one.order(ResumeCommits(b"cut")))
    assert (answer.fate, answer.why) == (DONE, "")


@pytest.mark.rule("transactions/M-1")
def test_a_cut_is_rejected_for_an_orphan_that_no_periodic_check_has_found() -> None:
    """Its coordinator was removed after the last check, and may have committed it elsewhere."""
    one = One()
    one.order(HoldCommits(b"cut", 5000))
    prepared_by(one, GONE)
    answer = one.answer(one.order(ResumeCommits(b"another")))
    assert (answer.fate, answer.why) == (NOT_DONE, ""), "it holds nothing"
    answer = one.answer(one.order(ResumeCommits(b"cut")))
    assert (answer.fate, answer.why) == (NOT_DONE, HALF_DONE)


@pytest.mark.rule("transactions/M-1")
def test_a_cut_is_rejected_while_more_orphans_are_to_be_checked() -> None:
    one = One()
    for number in range(BEGUN_MOST + 1):
        step = LockKeys(number.to_bytes(16, "big"), GONE, [(MAP, b"\0\0\0\1%d" % number)], 1000)
        one.partitions.decide(1, step)
    one.order(HoldCommits(b"cut", 5000))
    answer = one.answer(one.order(ResumeCommits(b"cut")))
    assert (answer.fate, answer.why) == (NOT_DONE, HALF_DONE)
    one.order(HoldCommits(b"next", 5000))
    assert one.fate(one.order(ResumeCommits(b"next"))) is DONE, "the last one has only locks"


def nothing_takes_part() -> One:
    return One(maps={MAP: MapSettings(transactional=False)})


def test_where_no_map_takes_part_nothing_is_held_up() -> None:
    one = nothing_takes_part()
    answer = one.answer(one.order(HoldCommits(b"cut", 1000)))
    assert (answer.fate, answer.why) == (NOT_ACTIVE, "no map takes part in transactions")
    assert one.timer_ms is None


# -- occasions


def test_the_sweep_looks_for_waits_and_once_a_second_for_orphans() -> None:
    one = One(BEN, ME)
    holder, waiter = one.begin(), one.begin()
    one.do(holder, Op.SET, K1, b"v")
    one.operate(waiter, Op.SET, K1, b"w")
    one.slow()
    one.transactions.sweep()
    lock(one, 2, T1, GONE)
    one.out.now_ns += 999 * MILLISECOND
    one.transactions.sweep()
    one.deliver()
    assert one.sent == [(BEN, LocksAwaited([(waiter, ME, holder)]))]
    assert one.partitions.asked == []
    one.out.now_ns += MILLISECOND
    one.transactions.sweep()
    one.deliver()
    assert [asked.step for asked in one.partitions.asked] == [
        RollBackBranch(T1, GONE, [2], False, only_locks=True)
    ]
    one.standing.state = type(one.standing.state).PARTING
    lock(one, 3, b"3" * 16, GONE)
    one.out.now_ns += 2000 * MILLISECOND
    one.transactions.sweep()
    one.deliver()
    assert len(one.partitions.asked) == 1, "who leaves begins nothing"


def test_where_no_map_takes_part_nothing_is_looked_for() -> None:
    one = nothing_takes_part()
    lock(one, 2, T1, GONE)
    one.transactions.sweep()
    view_changes(one, gone=[GONE])
    assert one.partitions.asked == []
    assert one.transactions.orphans.count == 0


def test_the_timer_looks_for_waits_too() -> None:
    one = One(BEN, ME)
    holder, waiter = one.begin(), one.begin()
    one.do(holder, Op.SET, K1, b"v")
    one.operate(waiter, Op.SET, K1, b"w")
    one.pass_time(750)
    assert (BEN, LocksAwaited([(waiter, ME, holder)])) in one.sent


def test_when_members_go_what_they_keep_here_is_ended_at_once() -> None:
    one = One()
    lock(one, 1, T1, CAT)
    one.slow()
    one.enter(ME, BEN)
    view_changes(one)
    assert one.partitions.asked == []
    view_changes(one, gone=[CAT])
    assert [asked.step for asked in one.partitions.asked] == [
        RollBackBranch(T1, CAT, [1], False, only_locks=True)
    ]


def test_many_that_a_member_leaves_are_ended_part_by_part() -> None:
    one = One()
    for number in range(70):
        step = LockKeys(number.to_bytes(16, "big"), GONE, [(MAP, b"\0\0\0\1%d" % number)], 1000)
        one.partitions.decide(1, step)
    view_changes(one, gone=[GONE])
    assert (one.partitions.kept, one.timer_ms) == (38, 10)
    one.pass_time(10)
    assert (one.partitions.kept, one.timer_ms) == (6, 10)
    one.pass_time(10)
    assert one.partitions.kept == 0
    assert one.timer_ms is None


def test_what_comes_with_a_partition_is_looked_at_soon() -> None:
    one = One()
    lock(one, 1, T1, GONE)
    lock(one, 2, b"2" * 16, GONE)
    one.transactions.on_served(3)
    one.deliver()
    assert one.timer_ms is None, "there is nothing of transactions in it"
    one.leading[4] = None
    one.transactions.on_served(4)
    one.deliver()
    assert one.timer_ms is None
    one.transactions.on_served(1)
    one.transactions.on_served(2)
    one.deliver()
    assert (one.timer_ms, one.partitions.kept) == (10, 2)
    one.pass_time(10)
    assert one.partitions.kept == 0
    assert one.timer_ms is None


def test_a_member_that_is_removed_ends_nothing_any_more() -> None:
    one = One()
    token = committing(one)
    tx = one.begin()
    view_changes(one, admitted=False)
    assert one.fate(token) is TransactionFate.UNKNOWN
    assert one.fate(one.commit(tx)) is TransactionFate.ROLLED_BACK
    assert set(one.transactions.leftovers.values()) == {0}


def test_what_is_under_way_is_left_over() -> None:
    one = One()
    committing(one)
    assert one.transactions.leftovers == {
        "transactions": 1,
        "transactions that are being ended": 1,
        "steps of transactions": 2,
    }
    one.serve()
    assert set(one.transactions.leftovers.values()) == {0}


def test_members_hear_each_other_about_owners_and_circles() -> None:
    one = One()
    lock(one, 1, T1, BEN)
    one.transactions.orphans.look()
    one.transactions.on_owners_asked(CAT, OwnersAsked([T1]))
    one.deliver()
    assert one.sent == [(CAT, OwnersGone([T1]))]
    one.slow()
    one.transactions.on_owners_gone(BEN, OwnersGone([T1]))
    one.deliver()
    one.pass_time(10)
    assert [asked.step for asked in one.partitions.asked] == [
        RollBackBranch(T1, BEN, [1], False, only_locks=True)
    ]
    tx = one.begin()
    one.transactions.on_deadlock(BEN, DeadlockFound(tx, [T1]))
    one.deliver()
    assert one.answer(one.commit(tx)).why.startswith("a deadlock")


def test_owners_that_answer_together_cause_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    one = One()
    looks: list[int] = []
    look = one.transactions.orphans.look
    monkeypatch.setattr(one.transactions.orphans, "look", lambda: looks.append(one.out.now_ns) or look())
    for _ in range(20):
        one.transactions.on_owners_gone(BEN, OwnersGone([T1]))
        one.deliver()
    assert looks == []
    one.pass_time(30)
    assert len(looks) == 1


def test_an_answer_that_comes_too_late_for_its_step_is_heard_in_the_next() -> None:
    one = One()
    tx = one.begin()
    one.slow()
    one.pass_time(250)
    token = one.operate(tx, Op.GET, K1)
    asked = one.next()
    asked.serve()
    one.transactions.wake_if_late()
    assert one.fate(token) is None
    [timer] = one.out.effects
    assert timer.after_ns == 1  # type: ignore[union-attr]
    one.transactions.on_timer()
    one.deliver()
    assert one.fate(token) is DONE


def test_a_hold_that_is_over_is_looked_at_with_the_timer() -> None:
    one = One()
    committing(one)
    held = one.order(HoldCommits(b"cut", 100))
    one.pass_time(100)
    assert one.fate(held) is NOT_DONE


def test_an_answer_that_is_there_counts_before_the_time_is_over() -> None:
    one = One()
    tx = one.begin()
    one.do(tx, Op.SET, K1, b"v")
    one.slow()
    token = one.commit(tx)
    prepare = one.next(PrepareBranch)
    one.pass_time(9800)
    prepare.serve()
    one.out.now_ns += 200 * MILLISECOND
    one.transactions.on_timer()
    one.deliver()
    assert one.fate(token) is DONE


def test_orphans_are_not_looked_for_with_each_timer() -> None:
    """That is the sweep's affair: it looks at all partitions."""
    one = One()
    one.begin()
    lock(one, 1, T1, GONE)
    one.pass_time(5000)
    assert one.partitions.kept == 1


def test_what_branches_need_not_keep_is_forgotten_with_the_timer() -> None:
    one = One()
    committing(one)
    one.serve()
    assert one.partitions.kept == 2
    one.prompt()
    one.pass_time(2500)
    assert one.partitions.kept == 0


def test_who_holds_commits_up_on_a_member_that_is_removed_is_told_of_no_view() -> None:
    one = One()
    committing(one)
    held = one.order(HoldCommits(b"cut", 5000))
    one.standing.view = None
    view_changes(one, admitted=False)
    assert (one.fate(held), one.answer(held).value) == (DONE, [0, 0])


def test_the_master_hears_who_waits_elsewhere() -> None:
    one = One()
    first, second = b"1" * 16, b"2" * 16
    one.transactions.on_awaited(CAT, LocksAwaited([(first, BEN, second), (second, CAT, first)]))
    one.deliver()
    assert one.sent == [(CAT, DeadlockFound(second, [first]))]


def test_entries_are_stored_together() -> None:
    one = One()
    assert one.fate(one.order(StoreTogether(MAP, [K1, K2], [b"1", b"2"]))) is DONE
    assert [one.partitions.value(1, K1), one.partitions.value(2, K2)] == [b"1", b"2"]


# -- steps


class Hearer:
    def __init__(self) -> None:
        self.told: list[tuple[int, Outcome]] = []

    def on_outcome(self, ticket: int, outcome: Outcome) -> None:
        self.told.append((ticket, outcome))


def test_steps_are_requests_to_the_map_of_transactions() -> None:
    one = One()
    one.slow()
    steps, hearer = one.transactions.steps, Hearer()
    lock_step = LockKeys(T1, ME, [], 1)
    prepare = PrepareBranch(T1, ME, [1], [], [], True)
    for step, op in (
        (lock_step, Op.TRANSACT),
        (prepare, Op.TRANSACT),
        (CommitBranch(T1), Op.SETTLE),
        (ForgetBranches([T1]), Op.SETTLE),
    ):
        steps.send(step, 3, hearer)
        assert one.next().request == Request(op, "__transactions", [3], value=encode(step))
    steps.send(prepare, 4, hearer, request_id=b"id")
    assert one.next().request == Request(Op.TRANSACT, "__transactions", [4], value=encode(prepare), id=b"id")


def test_each_answer_is_heard_once_in_order_at_the_end_of_the_step() -> None:
    one = One()
    one.slow()
    steps, hearer = one.transactions.steps, Hearer()
    tickets = [steps.send(CommitBranch(T1), partition, hearer) for partition in range(3)]
    assert tickets == [1, 2, 3]
    assert steps.waiting == 3
    steps.drop(tickets[1])
    steps.drop(99)
    assert steps.waiting == 2
    asked = one.take()
    for each in (asked[2], asked[1], asked[0]):
        each.answer(UNKNOWN)
    assert hearer.told == []
    steps.deliver()
    assert hearer.told == [(3, UNKNOWN), (1, UNKNOWN)], "nobody wants to hear of the second"
    steps.deliver()
    assert (len(hearer.told), steps.waiting) == (2, 0)


def test_who_hears_an_answer_may_ask_again_at_once() -> None:
    one = One()
    steps = one.transactions.steps

    class Twice(Hearer):
        def on_outcome(self, ticket: int, outcome: Outcome) -> None:
            super().on_outcome(ticket, outcome)
            if len(self.told) == 1:
                steps.send(CommitBranch(T1), 1, self)

    hearer = Twice()
    steps.send(CommitBranch(T1), 1, hearer)
    steps.deliver()
    assert [ticket for ticket, _ in hearer.told] == [1, 2]


def test_the_timer_is_set_for_the_soonest() -> None:
    one = One()
    steps = one.transactions.steps
    steps.wake(100)
    steps.wake(200)
    steps.wake(100)
    steps.wake(50)
    assert [effect.after_ns for effect in one.out.take()] == [100, 50]  # type: ignore[union-attr]
    steps.on_timer()
    steps.wake(70)
    assert [effect.after_ns for effect in one.out.take()] == [70]  # type: ignore[union-attr]
    steps.wake_if_late()
    assert one.out.take() == []


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (Outcome(Status.UNKNOWN, encode(StepResult(StepFate.DONE))), None),
        (Outcome(Status.NOT_READY), None),
        (
            Outcome(Status.OK, encode(StepResult(StepFate.LOCKED, [b"x"]))),
            StepResult(StepFate.LOCKED, [b"x"]),
        ),
        (Outcome(Status.OK, 5), StepResult(StepFate.REFUSED, why="this is no answer to a step")),
    ],
)
def test_what_a_partition_has_answered(outcome: Outcome, result: StepResult | None) -> None:
    assert result_of(outcome) == result


def test_bytes_that_are_no_answer_are_a_refusal() -> None:
    result = result_of(Outcome(Status.OK, b"\xc1"))
    assert result is not None
    assert result.fate is StepFate.REFUSED
    assert result.why


def test_what_is_refused_outside_is_asked_of_the_router() -> None:
    one = One()
    one.partitions.refuses = lambda request: UNKNOWN if request.map == "x" else None
    rejection = one.transactions.steps.rejection
    assert rejection(Request(Op.GET, "x", [1])) == UNKNOWN
    assert rejection(Request(Op.GET, MAP, [1])) is None


# -- on which topology it is mapped


@pytest.mark.rule("transactions/P-1")
def test_the_topology_is_the_view_and_the_table() -> None:
    one = One()
    mapping = Mapping(one.standing, one.table, one.partitions)
    assert mapping.version == TopologyVersion(5, COUNT)
    one.table.apply(2, Assignment(4, (BEN,)))
    assert mapping.of(2, holds=True) == MappedOn(TopologyVersion(5, COUNT + 3), 4, True)
    assert mapping.of(3, holds=False) == MappedOn(TopologyVersion(5, COUNT + 3), 1, False)
    assert [mapping.knows(2, row) for row in (3, 4, 5)] == [True, True, False]
    one.standing.view = None
    assert mapping.version == TopologyVersion(0, COUNT + 3)


def test_a_write_of_a_transaction_says_of_which_entry_it_is() -> None:
    assert TransactionalWrite(MAP, K1, None).entry == (MAP, K1)
