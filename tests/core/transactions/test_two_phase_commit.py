"""How a coordinator commits: one phase or two, and what its caller is told when answers are missing."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.core.transactions.one_member import (
    BEN,
    COUNT,
    MAP,
    ME,
    NOT_READY,
    UNKNOWN,
    Asked,
    One,
    key_in,
)

from holdfast.config import ReplicationSettings
from holdfast.core.model.decisions import Update
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.operations import Op, Outcome, Status
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change
from holdfast.core.model.topology import MappedOn, TopologyVersion
from holdfast.core.model.transaction_orders import TransactionFate
from holdfast.core.model.transactions import (
    AskBranch,
    BranchState,
    CommitBranch,
    LockKeys,
    PrepareBranch,
    RollBackBranch,
    StepFate,
    TransactionId,
    TransactionStep,
    lock_key,
)
from holdfast.core.transactions.two_phase_commit import CHECK_WAIT_MS, NOT_HELD
from holdfast_lab.sim.ablations.switching import ablated

K1, K2, K3 = key_in(1), key_in(2), key_in(3)
DONE, NOT_DONE, ROLLED_BACK, UNKNOWN_FATE = (
    TransactionFate.DONE,
    TransactionFate.NOT_DONE,
    TransactionFate.ROLLED_BACK,
    TransactionFate.UNKNOWN,
)
UNSURE = "it is unknown whether it was committed"
REFUSED = [
    (StepFate.CHANGED, {"why": MAP}, "an entry of map 'm' that it has read was changed by another writer"),
    (
        StepFate.LOCKED,
        {"holder": b"h"},
        f"transaction {b'h'.hex()} has locked an entry that it has read or written",
    ),
    (
        StepFate.NOT_HELD,
        {},
        NOT_HELD,
    ),
    (StepFate.OVER, {}, "it could not be prepared: OVER"),
    (StepFate.REFUSED, {"why": "x"}, "it could not be prepared: REFUSED x"),
]


def phase(one: One) -> str:
    [running] = one.transactions.coordinator.running.told()
    return running.phase


def written(*keys: bytes, **chosen: Any) -> tuple[One, TransactionId]:
    """A transaction that has written to these entries; from now on the test serves what is asked."""
    settings = {name: chosen.pop(name) for name in ("replication",) if name in chosen}
    one = One(**settings)
    tx = one.begin(**chosen)
    for key in keys:
        one.do(tx, Op.SET, key, b"v")
    one.slow()
    return one, tx


def steps(one: One) -> list[tuple[int, TransactionStep]]:
    return [(asked.partition, asked.step) for asked in one.partitions.asked]


def told(one: One, token: int) -> tuple[TransactionFate, str]:
    answer = one.answer(token)
    return answer.fate, answer.why


def values(one: One) -> list[bytes | None]:
    return [one.partitions.value(partition, key_in(partition)) for partition in (1, 2, 3)]


def serve_checks(one: One, tx: TransactionId, *partitions: int) -> None:
    """The locks of entries that were not written are confirmed before anything else is asked."""
    asked = one.take()
    mapped = MappedOn(TopologyVersion(5, one.table.version), 1, True)
    assert [(each.partition, each.step) for each in asked] == [
        (each, LockKeys(tx, ME, [(MAP, key_in(each))], CHECK_WAIT_MS, mapped, confirm=True))
        for each in partitions
    ]
    for each in asked:
        each.serve()
    one.deliver()


# -- one partition


@pytest.mark.rule("transactions/C-3")
def test_one_partition_needs_one_phase() -> None:
    one, tx = written(K1, key_in(1, 1))
    token = one.commit(tx)
    assert phase(one) == "preparing"
    asked = one.next(PrepareBranch)
    assert asked.step.participants == [1]  # type: ignore[union-attr]
    assert asked.request.id == tx + b"1", "so that it is done once, however often it is sent"
    asked.serve()
    assert one.fate(token) is None
    one.deliver()
    assert told(one, token) == (DONE, "")
    assert (one.running, one.partitions.kept, steps(one)) == (0, 0, [])
    one.pass_time(60_000)
    assert steps(one) == []


def test_without_request_ids_it_has_none() -> None:
    one, tx = written(K1, replication=ReplicationSettings(request_ids=0))
    one.commit(tx)
    assert one.next().request.id == b""


def test_locks_elsewhere_are_released_when_one_phase_is_done() -> None:
    one, tx = written(K1)
    one.prompt()
    one.do(tx, Op.GET, K2, for_update=True)
    one.do(tx, Op.GET, K3, for_update=True)
    one.slow()
    token = one.commit(tx)
    serve_checks(one, tx, 2, 3)
    one.next(PrepareBranch).serve()
    one.deliver()
    assert told(one, token) == (DONE, ""), "it does not wait for that"
    assert phase(one) == "committing"
    assert steps(one) == [(each, RollBackBranch(tx, ME, [2, 3], False)) for each in (2, 3)]
    one.serve()
    assert (one.running, one.partitions.kept) == (0, 0)
    assert one.answer(one.commit(tx)).fate is TransactionFate.NOT_ACTIVE


@pytest.mark.parametrize("locks", [False, True])
def test_nothing_written_is_nothing_to_prepare(locks: bool) -> None:
    one, tx = written()
    if locks:
        one.prompt()
        one.do(tx, Op.GET, K1, for_update=True)
        one.slow()
    token = one.commit(tx)
    if locks:
        serve_checks(one, tx, 1)
    assert told(one, token) == (DONE, "")
    assert steps(one) == ([(1, RollBackBranch(tx, ME, [1], False))] if locks else [])
    if locks:
        assert phase(one) == "committing"
    one.serve()
    assert (one.running, one.partitions.kept) == (0, 0)


@pytest.mark.rule("transactions/C-4")
@pytest.mark.parametrize(("fate", "more", "why"), REFUSED)
def test_one_phase_that_is_refused_is_rolled_back(fate: StepFate, more: dict[str, Any], why: str) -> None:
    one, tx = written(K1)
    token = one.commit(tx)
    one.next().fate(fate, **more)
    one.deliver()
    assert told(one, token) == (ROLLED_BACK, why)
    assert steps(one) == [(1, RollBackBranch(tx, ME, [1], False))]
    one.serve()
    assert (one.running, one.partitions.kept) == (0, 0)
    assert told(one, one.commit(tx)) == (ROLLED_BACK, why)


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (NOT_READY, "it could not be prepared: no primary"),
        (Outcome(Status.PASSIVE), "it could not be prepared: PASSIVE"),
    ],
)
def test_one_phase_that_was_not_carried_out_is_rolled_back(outcome: Outcome, why: str) -> None:
    one, tx = written(K1)
    token = one.commit(tx)
    one.next().answer(outcome)
    one.deliver()
    assert told(one, token) == (ROLLED_BACK, why)


@pytest.mark.rule("transactions/C-4")
@pytest.mark.parametrize("fate", [fate for fate, _, _ in REFUSED])
@pytest.mark.parametrize("carried_out", [True, False])
def test_one_phase_that_may_have_been_carried_out_is_never_called_rolled_back(
    fate: StepFate, carried_out: bool
) -> None:
    """The first try gets no answer. If it was done, its locks are gone: so a second try may be refused."""
    one, tx = written(K1)
    token = one.commit(tx)
    first = one.next()
    if carried_out:
        first.carry_out()
    first.answer(UNKNOWN)
    one.deliver()
    assert one.fate(token) is None
    assert (steps(one), one.timer_ms) == ([], 50)
    one.pass_time(50)
    second = one.next(PrepareBranch)
    assert (second.step, second.request.id) == (first.step, first.request.id)
    second.fate(fate)
    one.deliver()
    assert told(one, token) == (UNKNOWN_FATE, UNSURE)
    assert phase(one) == "rolling back"
    assert steps(one) == [(1, RollBackBranch(tx, ME, [1], True))], "what may be on its way is fenced"
    one.serve()
    first.carry_out()
    assert values(one)[0] == (b"v" if carried_out else None), "it comes too late"
    one.prompt()
    one.pass_time(30_000)
    assert (one.running, one.partitions.kept) == (0, 0)


@pytest.mark.rule("transactions/C-4")
@pytest.mark.parametrize("tries", [1, 2, 4])
def test_one_phase_in_doubt_is_tried_again_until_it_is_known(tries: int) -> None:
    one, tx = written(K1)
    token = one.commit(tx)
    for number in range(tries):
        asked = one.next(PrepareBranch)
        if number == 0:
            asked.carry_out()
        # A refusal says nothing of the first try.
        asked.answer(UNKNOWN if number % 2 == 0 else NOT_READY)
        one.deliver()
        assert (one.fate(token), phase(one)) == (None, "preparing")
        one.pass_time(50)
    one.next().fate(StepFate.DONE)
    one.deliver()
    assert told(one, token) == (DONE, "")
    assert (one.running, values(one)[0]) == (0, b"v")


@pytest.mark.rule("transactions/C-4")
@pytest.mark.parametrize("carried_out", [True, False])
@pytest.mark.parametrize("answered", [True, False])
def test_one_phase_without_an_answer_is_unknown_after_the_call_timeout(
    carried_out: bool, answered: bool
) -> None:
    one, tx = written(K1)
    token = one.commit(tx)
    prepare = one.next(PrepareBranch)
    if carried_out:
        prepare.carry_out()
    if answered:
        prepare.answer(UNKNOWN)
        one.deliver()
        one.pass_time(9999)
        prepare = one.next(PrepareBranch)
    else:
        one.pass_time(9999)
    assert one.fate(token) is None
    one.pass_time(250)
    assert told(one, token) == (UNKNOWN_FATE, f"{UNSURE}: its partition did not answer")
    assert [each for each in steps(one) if isinstance(each[1], RollBackBranch)] == [
        (1, RollBackBranch(tx, ME, [1], True))
    ]
    one.prompt()
    one.serve()
    prepare.serve()
    one.deliver()
    one.pass_time(30_000)
    assert (one.running, one.partitions.kept) == (0, 0)
    assert values(one)[0] == (b"v" if carried_out else None)


# -- several partitions


@pytest.mark.rule("transactions/C-3")
def test_several_partitions_commit_when_all_are_prepared() -> None:
    one, tx = written(K1, K2, K3)
    token = one.commit(tx)
    prepares = one.take()
    assert [(each.partition, each.request.id) for each in prepares] == [(1, b""), (2, b""), (3, b"")]
    for asked in (prepares[2], prepares[0]):
        asked.serve()
        one.deliver()
        assert (steps(one), phase(one)) == ([], "preparing")
    prepares[1].serve()
    one.deliver()
    assert phase(one) == "committing"
    assert steps(one) == [(each, CommitBranch(tx)) for each in (1, 2, 3)]
    assert one.fate(token) is None, "nothing of it can be read yet"
    one.serve()
    assert told(one, token) == (DONE, "")
    assert values(one) == [b"v"] * 3
    one.prompt()
    one.pass_time(2500)
    assert (one.running, one.partitions.kept) == (0, 0)


def test_partitions_with_locks_alone_are_told_the_outcome_too() -> None:
    one, tx = written(K1, K2)
    one.prompt()
    one.do(tx, Op.GET, K3, for_update=True)
    one.slow()
    token = one.commit(tx)
    serve_checks(one, tx, 3)
    assert [partition for partition, _ in steps(one)] == [1, 2]
    for asked in one.take():
        asked.serve()
    one.deliver()
    assert steps(one) == [
        (1, CommitBranch(tx)),
        (2, CommitBranch(tx)),
        (3, RollBackBranch(tx, ME, [1, 2], False)),
    ]
    one.serve()
    assert one.fate(token) is DONE
    assert one.partitions.branches(3).lock(MAP, K3) is None


@pytest.mark.rule("transactions/F-1")
@pytest.mark.rule("transactions/C-4")
@pytest.mark.parametrize(("fate", "more", "why"), REFUSED)
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_if_one_branch_is_refused_all_are_rolled_back_when_all_have_answered(
    fate: StepFate, more: dict[str, Any], why: str, order: tuple[int, ...]
) -> None:
    one, tx = written(K1, K2, K3)
    token = one.commit(tx)
    prepares = one.take()
    for answered, index in enumerate(order, 1):
        if index == 1:
            prepares[index].fate(fate, **more)
        else:
            prepares[index].serve()
        one.deliver()
        if index == 1 or one.answers[token]:
            assert told(one, token) == (ROLLED_BACK, why)
            assert phase(one) == "rolling back"
        assert bool(steps(one)) is (answered == 3), "else a prepare might come after the rollback"
    assert steps(one) == [(each, RollBackBranch(tx, ME, [1, 2, 3], False)) for each in (1, 2, 3)]
    one.serve()
    assert (one.running, one.partitions.kept, values(one)) == (0, 0, [None] * 3)


@ablated("all-prepared")
def test_without_the_consent_of_all_branches_half_of_it_would_be_committed() -> None:
    one, tx = written(K1, K2, K3)
    token = one.commit(tx)
    first, *others = one.take()
    first.fate(StepFate.CHANGED, why=MAP)
    for prepare in others:
        prepare.serve()
    one.deliver()
    one.serve()
    assert one.fate(token) is DONE
    assert values(one) == [None, b"v", b"v"]


def test_what_is_answered_after_the_refusal_does_not_change_the_reason() -> None:
    one, tx = written(K1, K2, K3)
    token = one.commit(tx)
    first, second, third = one.take()
    first.fate(StepFate.OVER)
    second.fate(StepFate.CHANGED, why=MAP)
    third.answer(NOT_READY)
    one.deliver()
    assert told(one, token) == (ROLLED_BACK, "it could not be prepared: OVER")
    assert told(one, one.commit(tx)) == (ROLLED_BACK, "it could not be prepared: OVER")


@pytest.mark.rule("transactions/F-3")
def test_a_prepare_that_may_still_come_is_fenced() -> None:
    """Nobody knows whether the second branch was prepared; the first one was refused."""
    one, tx = written(K1, K2)
    one.commit(tx)
    first, second = one.take()
    first.fate(StepFate.OVER)
    second.answer(UNKNOWN)
    one.deliver()
    assert steps(one) == [(each, RollBackBranch(tx, ME, [1, 2], each == 2)) for each in (1, 2)]
    one.serve()
    second.carry_out()
    branch = one.partitions.branches(2).branch(tx)
    assert branch is not None
    assert branch.state is BranchState.ROLLED_BACK


@pytest.mark.rule("transactions/F-3")
def test_who_does_not_answer_at_all_is_fenced_after_the_call_timeout() -> None:
    one, tx = written(K1, K2, K3)
    token = one.commit(tx)
    first, second, third = one.take()
    first.fate(StepFate.OVER)
    second.serve()
    one.deliver()
    assert one.fate(token) is ROLLED_BACK
    one.pass_time(9999)
    assert steps(one) == []
    one.pass_time(250)
    assert steps(one) == [(each, RollBackBranch(tx, ME, [1, 2, 3], each == 3)) for each in (1, 2, 3)]
    one.pass_time(250)
    assert len(steps(one)) == 3
    assert one.transactions.coordinator.running.of_ticket == {}
    one.serve()
    third.serve()
    one.deliver()
    one.prompt()
    one.pass_time(30_000)
    assert (one.running, one.partitions.kept) == (0, 0)
    assert one.transactions.steps.waiting == 0


def test_a_branch_in_doubt_is_prepared_again() -> None:
    one, tx = written(K1, K2)
    token = one.commit(tx)
    first, second = one.take()
    first.serve(UNKNOWN)
    one.deliver()
    assert (steps(one), one.timer_ms) == ([], 50)
    one.pass_time(50)
    assert steps(one) == [(1, first.step)], "the second one is still being asked"
    one.pass_time(50)
    assert len(steps(one)) == 1, "and so is this now"
    one.next().answer(NOT_READY)
    one.deliver()
    assert one.fate(token) is None, "the first try may have prepared it"
    one.pass_time(250)
    second.serve()
    one.next().serve()
    one.deliver()
    assert [step for _, step in steps(one)] == [CommitBranch(tx)] * 2
    one.serve()
    assert told(one, token) == (DONE, "")
    one.pass_time(20_000)
    assert one.partitions.kept == 2, "the first try may still be on its way"
    first.carry_out()
    assert one.partitions.kept == 2
    one.prompt()
    one.pass_time(2500)
    assert one.partitions.kept == 0


def test_a_later_branch_in_doubt_is_prepared_again_while_an_earlier_one_is_being_asked() -> None:
    one, tx = written(K1, K2, K3)
    one.commit(tx)
    _, second, _ = one.take()
    second.answer(UNKNOWN)
    one.deliver()
    one.pass_time(50)
    assert steps(one) == [(2, second.step)]


@pytest.mark.rule("transactions/C-4")
def test_a_branch_in_doubt_that_is_refused_is_rolled_back() -> None:
    """Of several: the branch is not prepared, so nothing was done anywhere."""
    one, tx = written(K1, K2)
    token = one.commit(tx)
    first, second = one.take()
    second.serve()
    first.answer(UNKNOWN)
    one.deliver()
    one.pass_time(50)
    one.next().fate(StepFate.OVER)
    one.deliver()
    assert told(one, token) == (ROLLED_BACK, "it could not be prepared: OVER")
    assert steps(one) == [(each, RollBackBranch(tx, ME, [1, 2], each == 1)) for each in (1, 2)]


@pytest.mark.rule("transactions/F-1")
@pytest.mark.parametrize("prepared", [True, False])
def test_when_a_branch_does_not_answer_the_branches_decide(prepared: bool) -> None:
    one, tx = written(K1, K2)
    token = one.commit(tx)
    first, second = one.take()
    first.serve()
    if prepared:
        second.carry_out()
    one.pass_time(9999)
    assert (one.fate(token), phase(one), steps(one)) == (None, "preparing", [])
    one.pass_time(250)
    assert told(one, token) == (
        UNKNOWN_FATE,
        "some partition cannot be reached; the transaction is in doubt, and will be done whole or not at all",
    )
    assert phase(one) == "in doubt"
    assert steps(one) == [(each, AskBranch(tx, ME, [1, 2])) for each in (1, 2)]
    assert one.transactions.coordinator.running.of_ticket == {}
    one.serve()
    second.serve()
    one.deliver()
    assert values(one)[:2] == [b"v" if prepared else None] * 2
    assert one.running == 0
    late = one.answer(one.commit(tx))
    assert late.fate is TransactionFate.NOT_ACTIVE
    one.prompt()
    one.pass_time(30_000)
    assert one.partitions.kept == 0
    assert one.transactions.steps.waiting == 0


def test_who_waits_for_a_commit_that_does_not_end_is_told_so_once() -> None:
    one, tx = written(K1, K2)
    token = one.commit(tx)
    for asked in one.take():
        asked.serve()
    one.deliver()
    first, second = one.take()
    first.serve()
    second.answer(UNKNOWN)
    one.deliver()
    one.pass_time(9000)
    assert one.fate(token) is None
    one.pass_time(1250)
    assert told(one, token) == (
        UNKNOWN_FATE,
        "some partition cannot be reached; the transaction is committing, and will be done whole or not at all",
    )
    one.serve()
    assert (one.running, values(one)[:2]) == (0, [b"v"] * 2)


@pytest.mark.rule("transactions/C-5")
def test_one_that_is_being_prepared_is_not_stopped_any_more() -> None:
    one, tx = written(K1, K2, timeout_ms=1000)
    token = one.commit(tx)
    answer = one.answer(one.roll_back(tx))
    assert (answer.fate, answer.why) == (NOT_DONE, "it is preparing")
    one.pass_time(1250)
    assert one.fate(token) is None, "its time is over, but it goes on"
    one.serve()
    assert one.fate(token) is DONE


def test_while_it_is_rolled_back_a_rollback_is_no_news() -> None:
    one, tx = written(K1, K2)
    one.commit(tx)
    one.next().fate(StepFate.OVER)
    one.deliver()
    answer = one.answer(one.roll_back(tx))
    assert (answer.fate, answer.why) == (DONE, "it could not be prepared: OVER")
    one.transactions.coordinator.commits.roll_back(tx, "x", None)
    one.transactions.coordinator.commits.roll_back(b"0" * 16, "x", None)


def test_while_it_commits_nothing_more_is_done_in_it() -> None:
    one, tx = written(K1, K2)
    first = one.commit(tx)
    for token in (one.commit(tx), one.operate(tx, Op.GET, K1)):
        assert one.answer(token).fate is TransactionFate.NOT_ACTIVE
    assert one.fate(first) is None
    one.serve()
    assert one.fate(first) is DONE


def test_while_an_operation_is_under_way_it_does_not_commit() -> None:
    one, tx = written(K1)
    operation = one.operate(tx, Op.SET, K2, b"v")
    token = one.commit(tx)
    assert told(one, token) == (NOT_DONE, "an operation of it is under way")
    one.serve()
    assert one.fate(operation) is DONE
    token = one.commit(tx)
    one.serve()
    assert one.fate(token) is DONE


@pytest.mark.rule("transactions/P-1")
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_prepare_that_is_sent_back_is_mapped_again(elsewhere: bool) -> None:
    one, tx = written(K1, K2, optimistic=True)
    one.partitions.copies[1].term = 9
    token = one.commit(tx)
    first, second = one.take()
    if elsewhere:
        second.serve()
        one.deliver()
    one.table.apply(1, Assignment(9, (BEN,)))
    first.serve()
    one.deliver()
    assert (steps(one), one.timer_ms) == ([], 5)
    one.pass_time(5)
    again = one.next(PrepareBranch)
    assert isinstance(again.step, PrepareBranch)
    assert isinstance(first.step, PrepareBranch)
    newer = TopologyVersion(5, one.table.version)
    assert again.step.mapped == MappedOn(newer, 9, elsewhere), "where it is prepared it holds locks"
    assert again.step.writes == first.step.writes
    assert again.partition == 1
    again.serve()
    if not elsewhere:
        second.serve()
    one.deliver()
    one.serve()
    assert one.fate(token) is DONE
    assert values(one)[:2] == [b"v"] * 2


def test_of_several_that_are_sent_back_each_is_asked_again() -> None:
    one, tx = written(K1, K2, optimistic=True)
    one.partitions.copies[1].term = one.partitions.copies[2].term = 9
    token = one.commit(tx)
    for _ in range(3):
        for asked in one.take():
            asked.serve()
        one.deliver()
        one.pass_time(5)
        assert [partition for partition, _ in steps(one)] == [1, 2]
    for partition in (1, 2):
        one.table.apply(partition, Assignment(9, (BEN,)))
    one.prompt()
    one.serve()
    one.pass_time(5)
    assert one.fate(token) is DONE


# -- a member that is in no cluster any more


def test_a_removed_member_runs_nothing_and_says_what_it_knows() -> None:
    one = One()
    active, committing = one.begin(), one.begin()
    one.do(committing, Op.SET, K1, b"v")
    one.do(committing, Op.SET, K2, b"v")
    idle = one.begin()
    one.slow()
    waiting = [one.operate(active, Op.SET, K3, b"v"), one.operate(active, Op.SET, K1, b"v")]
    token = one.commit(committing)
    one.transactions.coordinator.removed()
    one.deliver()
    why = "the member that ran it was removed from its cluster"
    assert [told(one, each) for each in waiting] == [(ROLLED_BACK, why)] * 2
    assert told(one, token) == (UNKNOWN_FATE, why)
    assert told(one, one.commit(idle)) == (ROLLED_BACK, why)
    assert (one.running, one.transactions.coordinator.running.size) == (0, 0)
    assert one.transactions.steps.waiting == 0
    assert one.transactions.coordinator.running.of_ticket == {}
    one.serve()
    one.pass_time(30_000)
    assert steps(one) == []


def test_ends_of_transactions_that_are_not_its_own_are_no_news() -> None:
    one = One()
    one.transactions.finishing.roll_back(b"0" * 16, BEN, [1], frozenset())
    one.deliver()
    assert one.running == 0


# -- any answers, in any order: nobody sees half of one, and what its caller was told is true


Late = list[tuple[int, Asked, bool]]
"""When a request is carried out (True) that was not answered in time, or answered without having been (False)."""


def deliver(one: One, chance: random.Random, late: Late) -> None:
    """One request is answered, or not. Each is answered within a call timeout, and carried out within two, if ever."""
    asked = one.partitions.asked.pop(chance.randrange(len(one.partitions.asked)))
    how = chance.random()
    if how < 0.55:
        asked.serve()
    elif how < 0.65:
        asked.answer(NOT_READY)
    elif how < 0.8:
        asked.serve(UNKNOWN)
    else:
        late.append((one.out.now_ns + chance.randrange(15_000) * MILLISECOND, asked, True))
        if how < 0.95:
            asked.answer(UNKNOWN)
        else:
            late.append((one.out.now_ns + 10_000 * MILLISECOND, asked, False))
    one.deliver()


def arrive(one: One, late: Late) -> None:
    for at_ns, asked, arrives in list(late):
        if at_ns <= one.out.now_ns:
            late.remove((at_ns, asked, arrives))
            if arrives:
                asked.carry_out()
            else:
                asked.answer(UNKNOWN)
    one.deliver()


@pytest.mark.rule("transactions/C-4")
@pytest.mark.parametrize("seed", range(40))
def test_what_a_caller_is_told_is_true(seed: int) -> None:
    chance = random.Random(seed)
    one = One(transactions={"lock_wait_ms": 2000, "deadlock_after_ms": 50})
    late: Late = []
    ids = [one.begin(optimistic=chance.random() < 0.3, repeatable=True) for _ in range(3)]
    keys = {tx: [key_in(chance.randrange(COUNT), index) for _ in range(3)] for index, tx in enumerate(ids)}
    shared = key_in(1, 5)
    one.slow()
    commits: dict[TransactionId, int] = {}
    doing: dict[TransactionId, int] = {}
    left = {tx: [*mine, shared] if chance.random() < 0.6 else list(mine) for tx, mine in keys.items()}
    for _ in range(600):
        arrive(one, late)
        tx = chance.choice(ids)
        if chance.random() < 0.3 and tx not in commits and (tx not in doing or one.answers[doing[tx]]):
            if left[tx]:
                doing[tx] = one.operate(tx, Op.SET, left[tx].pop(), tx)
            else:
                commits[tx] = one.commit(tx)
        elif one.partitions.asked:
            deliver(one, chance, late)
        else:
            one.pass_time(chance.choice([5, 50, 250]))
    one.prompt()
    for _ in range(10):
        one.serve()
        one.pass_time(10_000)
        arrive(one, late)
        one.transactions.sweep()
        one.deliver()
    for tx in ids:
        found = {
            one.partitions.value(p, key_in(p, n)) == tx
            for p in range(COUNT)
            for n in range(3)
            if key_in(p, n) in keys[tx]
        }
        fate = one.fate(commits[tx]) if tx in commits else ROLLED_BACK
        assert len(found) == 1, "whole, or not at all"
        if fate is not UNKNOWN_FATE:
            assert found == {fate is DONE}, fate
        assert fate is not None
    one.pass_time(200_000)
    for _ in range(3):
        one.transactions.sweep()
        one.deliver()
        one.pass_time(30_000)
        arrive(one, late)
    assert one.running == 0
    assert one.partitions.kept == 0, "no lock and no branch is left"
    assert one.transactions.leftovers == dict.fromkeys(one.transactions.leftovers, 0)
    assert one.transactions.coordinator.running.size == 0
    assert not [note for note in one.notes if note.level == "error"]


# -- locks that ended with their primary


def read_and_written() -> tuple[One, TransactionId]:
    """A transaction that has locked and read an entry in partition 1, and written one in 2."""
    one, tx = written()
    one.prompt()
    one.do(tx, Op.GET, K1, for_update=True)
    one.do(tx, Op.SET, K2, b"v")
    one.slow()
    return one, tx


@pytest.mark.rule("transactions/C-7")
@pytest.mark.parametrize("lost", [1, 2])
def test_a_transaction_that_has_lost_a_lock_is_rolled_back(lost: int) -> None:
    """Whether it has written the entry, or only read it."""
    one, tx = read_and_written()
    one.partitions.copies[lost].locks.clear()
    other = one.begin()
    one.prompt()
    one.do(other, Op.SET, key_in(lost), b"changed")
    assert one.fate(one.commit(other)) is DONE
    token = one.commit(tx)
    assert told(one, token) == (ROLLED_BACK, NOT_HELD)
    assert one.partitions.value(2, K2) == (b"changed" if lost == 2 else None)
    assert not any(copy.locks.held for copy in one.partitions.copies)


@pytest.mark.rule("transactions/C-7")
def test_prepare_looks_at_the_locks_of_all_entries_of_its_partition() -> None:
    """Also those that were only read; they need no step of their own."""
    for lost in (False, True):
        one, tx = written(K1)
        read = key_in(1, 1)
        one.prompt()
        one.do(tx, Op.GET, read, for_update=True)
        one.slow()
        token = one.commit(tx)
        prepare = one.next(PrepareBranch)
        assert steps(one) == []
        assert prepare.step.held == [(MAP, read)]  # type: ignore[union-attr]
        if lost:
            del one.partitions.copies[1].locks.held[lock_key(MAP, read)]
        prepare.serve()
        one.deliver()
        assert told(one, token) == ((ROLLED_BACK, NOT_HELD) if lost else (DONE, ""))


@pytest.mark.rule("transactions/C-7")
def test_no_prepare_is_sent_before_the_locks_are_confirmed() -> None:
    """Or recovery could commit a transaction whose locks had been lost: all its branches would be prepared."""
    one, tx = read_and_written()
    one.commit(tx)
    [check] = one.take()
    assert isinstance(check.step, LockKeys)
    assert check.step.confirm
    one.deliver()
    assert steps(one) == []
    check.serve()
    one.deliver()
    assert [type(step) for _, step in steps(one)] == [PrepareBranch]


@pytest.mark.rule("transactions/C-7")
def test_a_lock_that_was_lost_is_not_taken_again() -> None:
    """The entry may have been changed, and changed back, while another entry of the transaction was, too."""
    one, tx = read_and_written()
    one.partitions.copies[1].locks.clear()
    one.prompt()
    assert told(one, one.commit(tx)) == (ROLLED_BACK, NOT_HELD)
    assert one.partitions.kept == 0


@pytest.mark.rule("transactions/C-7")
def test_an_entry_that_has_expired_under_its_lock_does_not_prevent_the_commit() -> None:
    one = One()
    tx = one.begin()
    one.partitions.change(1, Update(Change.SET, K1, b"old", 5_000, map=MAP))
    assert one.do(tx, Op.GET, K1, for_update=True) == b"old"
    one.do(tx, Op.SET, K2, b"v")
    one.pass_time(6_000)
    assert one.fate(one.commit(tx)) is DONE


@pytest.mark.rule("transactions/C-7")
def test_a_confirmation_that_gets_no_answer_is_asked_for_again() -> None:
    one, tx = read_and_written()
    token = one.commit(tx)
    late = one.next(LockKeys)
    late.answer(UNKNOWN)
    one.deliver()
    one.pass_time(50)
    one.next(LockKeys).serve()
    one.deliver()
    one.next(PrepareBranch).serve()
    one.deliver()
    assert told(one, token) == (DONE, "")
    assert steps(one) == [(1, RollBackBranch(tx, ME, [1], False))]
    one.serve()
    one.prompt()
    late.carry_out()
    assert not one.partitions.copies[1].locks.held


@pytest.mark.rule("transactions/C-7")
@pytest.mark.parametrize("waits", [False, True])
def test_a_transaction_whose_locks_cannot_be_confirmed_is_rolled_back(waits: bool) -> None:
    one, tx = read_and_written()
    token = one.commit(tx)
    if waits:
        one.pass_time(10_000)
        assert told(one, token) == (ROLLED_BACK, "a partition with locks of it did not answer")
    else:
        one.next(LockKeys).answer(NOT_READY)
        one.deliver()
        fate, why = told(one, token)
        assert fate is ROLLED_BACK
        assert why.startswith("it could not be prepared: ")
    one.prompt()
    one.serve()
    one.pass_time(10_000)
    assert one.running == 0
    assert one.partitions.value(2, K2) is None


@pytest.mark.rule("store/K-1")
def test_when_a_member_goes_the_transactions_with_locks_there_are_told_at_once() -> None:
    one, tx = read_and_written()
    optimistic = one.begin(optimistic=True)
    one.prompt()
    elsewhere = one.begin()
    one.do(elsewhere, Op.SET, K3, b"v")
    one.table.rows[1] = Assignment(2, (BEN, ME))
    commits = one.transactions.coordinator.commits
    commits.primaries_gone({MemberId("someone")})
    assert one.running == 3
    commits.primaries_gone({BEN})
    one.deliver()
    assert one.running == 2
    assert told(one, one.commit(tx)) == (ROLLED_BACK, NOT_HELD)
    for still in (optimistic, elsewhere):
        assert one.fate(one.commit(still)) is DONE
