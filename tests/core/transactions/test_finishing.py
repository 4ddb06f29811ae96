"""How a transaction ends that has begun to be prepared: what the branches are asked and told, and when it is over."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.transactions.one_member import BEN, ME, NOT_READY, UNKNOWN, One, key_in

from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import Outcome, Status
from holdfast.core.model.transactions import (
    AskBranch,
    BranchState,
    CommitBranch,
    ForgetBranches,
    PrepareBranch,
    RollBackBranch,
    StepFate,
    TransactionalWrite,
    TransactionId,
    TransactionStep,
)
from holdfast.core.transactions import finishing
from holdfast.core.transactions.finishing import Finishing

T1, T2 = b"1" * 16, b"2" * 16
NOWHERE: frozenset[int] = frozenset()


class Ended:
    """Hears how transactions have ended."""

    def __init__(self) -> None:
        self.told: list[tuple[TransactionId, bool]] = []

    def on_finished(self, transaction: TransactionId, *, committed: bool) -> None:
        self.told.append((transaction, committed))


class Ending(One):
    """One member that ends transactions; the test serves what partitions are asked."""

    def __init__(self) -> None:
        super().__init__()
        self.slow()
        self.ended = Ended()
        self.finishing.observer = self.ended

    @property
    def finishing(self) -> Finishing:
        return self.transactions.finishing

    def steps(self) -> list[tuple[int, TransactionStep]]:
        """What partitions are asked now, in this order."""
        return [(asked.partition, asked.step) for asked in self.partitions.asked]

    def say(self, *fates: StepFate | None) -> None:
        """The oldest requests are answered so; None: nobody knows."""
        for fate in fates:
            asked = self.next()
            if fate is None:
                asked.answer(UNKNOWN)
            else:
                asked.fate(fate)
            self.deliver()

    def prepare(self, *partitions: int, transaction: TransactionId = T1, all_of: Iterable[int] = ()) -> None:
        """These branches are prepared; `all_of`: of these participants."""
        for partition in partitions:
            writes = [TransactionalWrite("m", key_in(partition), transaction)]
            step = PrepareBranch(transaction, ME, list(all_of or partitions), writes, [], False)
            self.partitions.decide(partition, step)

    def states(self, *partitions: int, transaction: TransactionId = T1) -> list[BranchState | None]:
        found = [self.partitions.branches(partition).branch(transaction) for partition in partitions]
        return [branch.state if branch is not None else None for branch in found]

    def wrote(self, *partitions: int, transaction: TransactionId = T1) -> list[bool]:
        return [self.partitions.value(one, key_in(one)) == transaction for one in partitions]


# -- transactions/F-1: what the outcome is

FATES = (StepFate.PREPARED, StepFate.COMMITTED, StepFate.ROLLED_BACK, StepFate.GONE)


@pytest.mark.rule("transactions/F-1")
@pytest.mark.rule("transactions/F-4")
@given(st.lists(st.sampled_from(FATES), min_size=1, max_size=4), st.randoms())
def test_it_commits_if_one_has_committed_or_all_are_prepared(
    fates: list[StepFate], order: random.Random
) -> None:
    """Asked in any order, the first that is not prepared decides; one whose zone is gone has no say."""
    partitions = list(range(len(fates)))
    one = Ending()
    one.finishing.ask(T1, BEN, partitions)
    assert one.steps() == [(each, AskBranch(T1, BEN, partitions)) for each in partitions]
    asked = one.take()
    order.shuffle(asked)
    seen: list[StepFate] = []
    for question in asked:
        assert one.steps() == []
        assert one.ended.told == []
        fate = fates[question.partition]
        question.fate(fate)
        seen.append(fate)
        one.deliver()
        if fate in (StepFate.COMMITTED, StepFate.ROLLED_BACK):
            break
    commits = StepFate.COMMITTED in seen or set(seen) == {StepFate.PREPARED}
    if not commits:
        wanted: list[TransactionStep] = [RollBackBranch(T1, BEN, partitions, True)] * len(partitions)
    else:
        wanted = [CommitBranch(T1)] * len(partitions)
    assert one.steps() == list(zip(partitions, wanted, strict=True)), (
        "every branch is told, also who was asked"
    )
    for late in asked[len(seen) :]:
        late.fate(fates[late.partition])
    one.deliver()
    assert one.steps() == list(zip(partitions, wanted, strict=True)), (
        "whatever the others answer to the question"
    )
    assert one.ended.told == []
    one.say(*[StepFate.DONE] * len(partitions))
    assert one.ended.told == [(T1, commits)]
    assert not one.finishing.runs(T1)
    assert (one.transactions.steps.waiting, one.finishing._of_ticket) == (0, {}), "nothing is left of it"


@pytest.mark.rule("transactions/F-1")
def test_nothing_is_decided_while_one_branch_has_not_answered() -> None:
    one = Ending()
    one.finishing.ask(T1, BEN, [1, 2, 3])
    one.say(StepFate.PREPARED, None, StepFate.PREPARED)
    assert one.steps() == []
    assert one.timer_ms == 100
    one.pass_time(99.9)
    assert one.steps() == []
    one.pass_time(0.1)
    assert one.steps() == [(2, AskBranch(T1, BEN, [1, 2, 3]))], "it alone is asked again"
    one.pass_time(100)
    assert len(one.steps()) == 1, "while it is being asked it is not asked once more"
    one.say(StepFate.PREPARED)
    assert one.steps() == [(each, CommitBranch(T1)) for each in (1, 2, 3)]


@pytest.mark.parametrize("outcome", [UNKNOWN, NOT_READY])
@pytest.mark.rule("transactions/F-2")
def test_a_branch_is_told_again_until_it_has_answered(outcome: Outcome) -> None:
    for begin, step in (
        (lambda one: one.finishing.commit(T1, ME, [1, 2], NOWHERE), CommitBranch(T1)),
        (
            lambda one: one.finishing.roll_back(T1, ME, [1, 2], frozenset({2})),
            RollBackBranch(T1, ME, [1, 2], True),
        ),
    ):
        one = Ending()
        begin(one)
        first, second = one.take()
        first.fate(StepFate.DONE)
        second.answer(outcome)
        one.deliver()
        for _ in range(3):
            assert one.steps() == []
            assert one.ended.told == []
            assert one.finishing.running == 1
            one.pass_time(100)
            assert one.steps() == [(2, step)]
            one.say(None)
        one.pass_time(100)
        one.say(StepFate.DONE)
        assert len(one.ended.told) == 1
        assert one.finishing.running == 0


@pytest.mark.rule("transactions/F-3")
def test_only_where_a_step_may_be_on_its_way_a_rollback_is_fenced() -> None:
    one = Ending()
    one.finishing.roll_back(T1, BEN, [1, 4, 5], frozenset({4}))
    assert one.steps() == [(each, RollBackBranch(T1, BEN, [1, 4, 5], each == 4)) for each in (1, 4, 5)]
    asked = {each.partition: each for each in one.take()}
    for partition in (5, 1):
        asked[partition].serve()
        one.deliver()
        assert one.ended.told == []
    asked[4].serve()
    one.deliver()
    assert one.ended.told == [(T1, False)]
    assert one.states(1, 4, 5) == [None, BranchState.ROLLED_BACK, None]


@pytest.mark.parametrize(
    ("commits", "fate", "noted"),
    [
        (True, StepFate.DONE, False),
        (True, StepFate.ROLLED_BACK, True),
        (True, StepFate.COMMITTED, False),
        (True, StepFate.REFUSED, True),
        (False, StepFate.DONE, False),
        (False, StepFate.COMMITTED, True),
        (False, StepFate.ROLLED_BACK, False),
        (False, StepFate.REFUSED, True),
    ],
)
def test_an_outcome_that_contradicts_is_told_to_the_operator(
    commits: bool, fate: StepFate, noted: bool
) -> None:
    one = Ending()
    if commits:
        one.finishing.commit(T1, ME, [1, 2], NOWHERE)
    else:
        one.finishing.roll_back(T1, ME, [1, 2], NOWHERE)
    one.say(fate, StepFate.DONE)
    assert one.ended.told == [(T1, commits)], "it goes on nevertheless"
    fields = [(note.kind, note.level, note.fields) for note in one.notes]
    ending = "committing" if commits else "rolling back"
    assert fields == (
        [
            (
                "transaction has two outcomes",
                "error",
                {"transaction": T1.hex(), "partition": 1, "reason": f"{ending}: {fate.name} "},
            )
        ]
        if noted
        else []
    )


def test_what_is_no_answer_to_a_step_is_told_to_the_operator() -> None:
    one = Ending()
    one.finishing.commit(T1, ME, [1], NOWHERE)
    asked = one.next()
    asked.answer(Outcome(Status.OK, b"\xc1"))
    one.deliver()
    [note] = one.notes
    assert str(note.fields["reason"]).startswith("committing: REFUSED ")


# -- transactions/F-3: how long outcomes are kept


@pytest.mark.rule("transactions/F-3")
@pytest.mark.parametrize("doubted", [False, True])
def test_branches_forget_an_outcome_when_all_have_it_and_nothing_is_on_its_way(doubted: bool) -> None:
    """The call timeout of this member is 10 s: a step of unknown outcome may be on its way for two of them."""
    one = Ending()
    one.prepare(1, 2)
    one.finishing.commit(T1, ME, [1, 2], frozenset({2} if doubted else ()))
    one.serve()
    assert one.ended.told == [(T1, True)]
    assert one.states(1, 2) == [BranchState.COMMITTED] * 2
    assert one.wrote(1, 2) == [True, True]
    assert (one.finishing.keeps(T1), one.finishing.remembered) == (True, 1)
    kept_ms = 20_000 if doubted else 2500
    assert one.timer_ms == kept_ms
    one.pass_time(kept_ms - 1)
    assert one.steps() == []
    one.pass_time(1)
    assert one.steps() == [(1, ForgetBranches([T1])), (2, ForgetBranches([T1]))]
    assert (one.finishing.keeps(T1), one.finishing.remembered) == (False, 0)
    one.serve()
    assert one.states(1, 2) == [None, None]
    assert one.transactions.steps.waiting == 0
    one.pass_time(60_000)
    assert one.steps() == []
    assert one.timer_ms is None, "there is nothing to look at"


@pytest.mark.rule("transactions/F-3")
def test_a_late_prepare_is_refused_as_long_as_it_may_come() -> None:
    """The coordinator heard nothing of its prepare, and gave up: then the prepare arrives."""
    one = Ending()
    one.finishing.roll_back(T1, ME, [1, 2], frozenset({2}))
    one.serve()
    one.pass_time(19_999)
    one.prepare(2, all_of=[1, 2])
    assert one.states(2) == [BranchState.ROLLED_BACK]
    assert one.partitions.kept == 1, "it has locked nothing"
    one.pass_time(1)
    assert one.steps() == [(2, ForgetBranches([T1]))], "the others keep nothing"
    one.serve()
    assert one.partitions.kept == 0


def test_nothing_is_kept_of_a_rollback_of_which_nothing_is_on_its_way() -> None:
    one = Ending()
    one.finishing.roll_back(T1, ME, [1, 2], NOWHERE)
    one.serve()
    assert (one.finishing.keeps(T1), one.finishing.remembered) == (False, 0)
    one.pass_time(60_000)
    assert one.steps() == []


def test_what_is_forgotten_at_one_time_is_one_step_for_each_partition() -> None:
    """At multiples of `FORGET_NS`, however long an outcome has been known."""
    one = Ending()
    one.finishing.commit(T1, ME, [1, 2], NOWHERE)
    one.serve()
    one.out.now_ns += 2400 * MILLISECOND
    one.finishing.commit(T2, ME, [2, 3], NOWHERE)
    one.serve()
    assert one.finishing.remembered == 2
    assert one.timer_ms == 100
    one.pass_time(99)
    assert one.steps() == []
    one.pass_time(1)
    assert one.steps() == [
        (1, ForgetBranches([T1])),
        (2, ForgetBranches([T1, T2])),
        (3, ForgetBranches([T2])),
    ]
    one.take()
    one.finishing.commit(T1, ME, [5], NOWHERE)
    one.serve()
    one.pass_time(2499)
    assert one.steps() == []
    one.pass_time(1)
    assert one.steps() == [(5, ForgetBranches([T1]))]


def test_few_partitions_forget_in_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finishing, "FORGET_AT_ONCE", 2)
    one = Ending()
    one.finishing.commit(T1, ME, [1, 2, 3], NOWHERE)
    one.serve()
    one.pass_time(2500)
    assert one.steps() == [(1, ForgetBranches([T1])), (2, ForgetBranches([T1]))]
    one.take()
    one.pass_time(9)
    assert one.steps() == []
    one.pass_time(1)
    assert one.steps() == [(3, ForgetBranches([T1]))]
    one.take()
    one.pass_time(10_000)
    assert one.steps() == []


def test_the_timer_comes_back_for_what_is_kept_longest() -> None:
    one = Ending()
    one.finishing.commit(T1, ME, [1], frozenset({1}))
    one.serve()
    one.finishing.commit(T2, ME, [1], NOWHERE)
    one.serve()
    one.pass_time(2500)
    one.serve()
    assert one.timer_ms == 17_500
    one.pass_time(5000)
    one.finishing.commit(T2, ME, [2], frozenset({2}))
    one.serve()
    one.pass_time(12_499)
    assert one.steps() == []
    one.pass_time(1)
    assert one.steps() == [(1, ForgetBranches([T1]))]
    one.take()
    one.pass_time(7499)
    assert one.steps() == []
    one.pass_time(1)
    assert one.steps() == [(2, ForgetBranches([T2]))]


@pytest.mark.rule("transactions/F-3")
def test_an_outcome_that_a_late_step_may_ask_for_is_kept_no_shorter() -> None:
    """Its time ends between two multiples of `FORGET_NS`: it is forgotten at the later one."""
    one = Ending()
    one.out.now_ns += 300 * MILLISECOND
    one.finishing.commit(T1, ME, [1], frozenset({1}))
    one.serve()
    one.pass_time(22_199)
    assert one.steps() == []
    one.pass_time(1)
    assert one.steps() == [(1, ForgetBranches([T1]))]


def test_whether_a_branch_has_forgotten_does_not_matter() -> None:
    one = Ending()
    one.finishing.commit(T1, ME, [1], NOWHERE)
    one.serve()
    one.pass_time(2500)
    one.say(None)
    one.pass_time(60_000)
    assert one.steps() == []


# -- cuts that show each transaction whole


def test_while_commits_are_held_up_none_of_several_partitions_begins() -> None:
    one = Ending()
    one.finishing.commit(T1, ME, [1, 2], NOWHERE)
    assert not one.finishing.quiet
    one.finishing.hold(b"cut", 5000 * MILLISECOND)
    assert len(one.take()) == 2, "it had begun"
    one.finishing.commit(T2, ME, [1, 2], NOWHERE)
    one.finishing.ask(b"3" * 16, ME, [3])
    one.finishing.roll_back(b"4" * 16, ME, [4], NOWHERE)
    assert [partition for partition, _ in one.steps()] == [4], "who rolls back does not wait"
    one.deliver()
    assert one.timer_ms == 100
    one.pass_time(4999)
    assert [partition for partition, _ in one.steps()] == [4]
    one.pass_time(101)
    assert [partition for partition, _ in one.steps()] == [4, 1, 2, 3], "the hold has ended by itself"


def test_they_go_on_when_nobody_holds_them_up_any_more() -> None:
    one = Ending()
    one.finishing.hold(b"one", 5000 * MILLISECOND)
    one.finishing.hold(b"two", 5000 * MILLISECOND)
    one.finishing.commit(T1, ME, [1], NOWHERE)
    assert one.finishing.quiet, "it has not begun"
    assert one.finishing.resume(b"one")
    assert one.steps() == []
    assert one.finishing.resume(b"two")
    assert one.steps() == [(1, CommitBranch(T1))]
    assert not one.finishing.quiet
    assert not one.finishing.resume(b"two"), "it was resumed already"


def test_who_has_begun_goes_on_though_it_is_held_up() -> None:
    one = Ending()
    one.finishing.commit(T1, ME, [1, 2], NOWHERE)
    one.finishing.hold(b"cut", 5000 * MILLISECOND)
    one.say(None, StepFate.DONE)
    one.pass_time(100)
    assert one.steps() == [(1, CommitBranch(T1))]
    one.say(StepFate.DONE)
    assert one.finishing.quiet


@pytest.mark.parametrize(("passed_ms", "held"), [(4999, True), (5000, False), (5001, False)])
def test_a_hold_ends_after_its_time(passed_ms: int, held: bool) -> None:
    """Who took the cut is told whether anything may have gone on."""
    one = Ending()
    one.finishing.hold(b"cut", 5000 * MILLISECOND)
    one.deliver()
    assert one.timer_ms == 5000
    one.out.now_ns += passed_ms * MILLISECOND
    assert one.finishing.resume(b"cut") is held


@pytest.mark.rule("transactions/M-1")
def test_only_transactions_of_others_that_have_not_begun_are_held_up() -> None:
    one = Ending()
    one.finishing.ask(T1, BEN, [1, 2])
    one.finishing.hold(b"cut", 5000 * MILLISECOND)
    one.finishing.roll_back(T2, BEN, [3], NOWHERE)
    one.finishing.commit(b"3" * 16, ME, [4], NOWHERE)
    assert not one.finishing.holds_up_others(ME)
    one.finishing.ask(b"4" * 16, BEN, [5])
    assert one.finishing.holds_up_others(ME)
    one.finishing.resume(b"cut")
    assert not one.finishing.holds_up_others(ME)


def test_which_are_quiet() -> None:
    one = Ending()
    assert one.finishing.quiet
    one.finishing.roll_back(T1, ME, [1], NOWHERE)
    assert one.finishing.quiet, "nothing of it will be done"
    one.finishing.ask(T2, ME, [1])
    assert not one.finishing.quiet, "it may come to be committed"
    one.serve()
    assert one.finishing.quiet


# -- what is told of it


def test_one_that_is_being_ended_is_known() -> None:
    one = Ending()
    assert not (one.finishing.runs(T1) or one.finishing.keeps(T1))
    one.finishing.roll_back(T1, ME, [1], NOWHERE)
    assert one.finishing.runs(T1)
    assert one.finishing.keeps(T1)
    assert one.finishing.running == 1
    assert not one.finishing.keeps(T2)
    with pytest.raises(AssertionError, match="ends once"):
        one.finishing.commit(T1, ME, [1], NOWHERE)


def test_one_without_partitions_is_over_at_once() -> None:
    one = Ending()
    one.finishing.roll_back(T1, ME, [], NOWHERE)
    assert one.ended.told == [(T1, False)]
    assert one.finishing.running == 0


def test_nobody_has_to_hear_of_it() -> None:
    one = Ending()
    alone = Finishing(one.out, one.transactions.steps, 1000)
    alone.roll_back(T1, ME, [1], NOWHERE)
    one.serve()
    assert alone.running == 0


def test_a_member_that_is_in_no_cluster_any_more_ends_none() -> None:
    one = Ending()
    one.finishing.commit(T1, ME, [1], NOWHERE)
    one.serve()
    one.finishing.commit(T2, ME, [1], NOWHERE)
    one.finishing.forget_all()
    assert (one.finishing.running, one.finishing.remembered) == (0, 0)
    assert (one.transactions.steps.waiting, one.finishing._of_ticket) == (0, {})
    one.serve()
    one.pass_time(60_000)
    assert one.steps() == []
    assert one.ended.told == [(T1, True)]
    one.finishing.roll_back(T2, ME, [2], NOWHERE)
    one.serve()
    assert one.ended.told == [(T1, True), (T2, False)], "and may be in one again"


# -- several end one transaction, over partitions that lose answers


@pytest.mark.rule("transactions/F-1")
@pytest.mark.rule("transactions/F-2")
@pytest.mark.parametrize("seed", range(60))
def test_all_who_end_it_come_to_the_same_and_so_do_all_branches(seed: int) -> None:
    """Any members ask, in any order, while answers are lost, steps are done twice, and prepares come late."""
    chance = random.Random(seed)
    partitions = [0, 1, 2, 3]
    prepared = [each for each in partitions if chance.random() < (0.95 if seed % 2 else 0.6)]
    late = [each for each in partitions if each not in prepared]
    world = Ending()
    world.prepare(*prepared, all_of=partitions)
    enders = [world, *(Ending() for _ in range(chance.randrange(1, 3)))]
    for one in enders:
        one.partitions.copies = world.partitions.copies
        one.finishing.ask(T1, ME, partitions)
    for step in range(1000):
        quiet = step >= 60
        one = chance.choice(enders)
        if late and chance.random() < 0.05:
            world.prepare(late.pop(), all_of=partitions)
        elif one.partitions.asked:
            asked = one.partitions.asked.pop(chance.randrange(len(one.partitions.asked)))
            answers = [None] if quiet else [None, None, None, NOT_READY, UNKNOWN]
            answer = chance.choice(answers)
            if answer is NOT_READY:
                asked.answer(NOT_READY)
            else:
                asked.serve(answer)
            one.deliver()
        elif not one.ended.told:
            one.pass_time(100)
        elif quiet and all(each.ended.told for each in enders):
            break
    [committed] = {committed for one in enders for _, committed in one.ended.told}
    for partition in late:
        world.prepare(partition, all_of=partitions)
    states = world.states(*partitions)
    assert states == [BranchState.COMMITTED if committed else BranchState.ROLLED_BACK] * 4
    assert world.wrote(*partitions) == [committed] * 4
    assert world.partitions.kept == 4, "no lock is left"
    assert committed or len(prepared) < 4
