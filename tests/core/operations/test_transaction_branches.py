"""What a partition answers to the steps of transactions, and keeps of them."""

from __future__ import annotations

import itertools
import random

import pytest
from msgspec import structs

from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.model.decisions import Decision, Update, Wait
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import EventKind, Op, Request
from holdfast.core.model.records import Change, Record
from holdfast.core.model.transactions import (
    AskBranch,
    BranchState,
    CommitBranch,
    EntryKey,
    ForgetBranches,
    KeyLock,
    LockKeys,
    PrepareBranch,
    RollBackBranch,
    StepFate,
    StepResult,
    TransactionalWrite,
    TransactionStep,
    ValueSeen,
    decode_result,
    decode_step,
    encode,
    entry_of,
    lock_key,
    step_problem,
)
from holdfast.core.operations.transaction_branches import TransactionBranches, wait_for_lock
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import map_replica
from holdfast_lab.sim.ablations.switching import ablated

ME = MemberId("a")
T1, T2 = b"1" * 16, b"2" * 16
K1, K2 = ("m", b"k1"), ("n", b"k2")


class Partition:
    """The maps of one partition, and the steps that change them."""

    def __init__(self) -> None:
        self.copy = PartitionCopy(0, 1)
        self.maps = self.copy.maps

    def hold(self, entry: EntryKey, value: bytes) -> None:
        self.carry_out([Update(Change.SET, entry[1], value, map=entry[0])])

    def carry_out(self, updates: list[Update]) -> None:
        for update in updates:
            held = self.maps.setdefault(update.map, map_replica(update.map))
            record = Record(update.map, held.updates.next(), update.change, update.key, update.value)
            held.state.apply(record, 0)

    def branches(self) -> TransactionBranches:
        return TransactionBranches(self.copy, 0)

    def decide(self, step: TransactionStep) -> Decision | Wait:
        return self.branches().decide(step)

    def do(self, step: TransactionStep) -> StepResult:
        assert decode_step(encode(step)) == step
        decision = self.decide(step)
        assert isinstance(decision, Decision), decision
        assert decision.locks is not None
        self.copy.locks.change(decision.locks)
        self.carry_out(list(decision.updates))
        assert isinstance(decision.answer, bytes)
        return decode_result(decision.answer)

    def value(self, entry: EntryKey) -> bytes | None:
        held = self.maps.get(entry[0])
        return held.state.entries.get(entry[1]) if held is not None else None

    @property
    def kept(self) -> int:
        held = self.maps.get(TRANSACTIONS_MAP)
        return len(held.state.entries) if held is not None else 0

    @property
    def left(self) -> tuple[int, int]:
        """Entries of transactions, and locks."""
        return self.kept, len(self.copy.locks.held)

    def updates(self, step: TransactionStep) -> list[tuple[Change, str, bytes]]:
        """What a step would change."""
        decision = self.decide(step)
        assert isinstance(decision, Decision)
        return [(update.change, update.map, update.key) for update in decision.updates]


def lock(transaction: bytes, *keys: EntryKey) -> LockKeys:
    return LockKeys(transaction, ME, list(keys), 1000)


def write(entry: EntryKey, value: bytes | None) -> TransactionalWrite:
    return TransactionalWrite(entry[0], entry[1], value)


def prepare(
    transaction: bytes,
    *writes: TransactionalWrite,
    participants: tuple[int, ...] = (0, 1),
    seen: tuple[ValueSeen, ...] = (),
    locked: bool = True,
) -> PrepareBranch:
    return PrepareBranch(transaction, ME, list(participants), list(writes), list(seen), locked)


def roll_back(transaction: bytes, *, fence: bool = False) -> RollBackBranch:
    return RollBackBranch(transaction, ME, [0, 1], fence)


@pytest.mark.rule("operations/T-1")
def test_an_entry_has_one_lock_and_who_else_wants_it_waits() -> None:
    partition = Partition()
    partition.hold(K1, b"v")
    assert partition.do(lock(T1, K1, K2)).values == [b"v", None]
    assert partition.do(lock(T1, K1)).fate is StepFate.DONE, "its own lock is in nobody's way"
    waits = partition.decide(lock(T2, K1))
    assert isinstance(waits, Wait)
    assert (waits.waiter, waits.holder, waits.key, waits.ms) == (T2, T1, K1, 1000)
    assert waits.answer is not None
    assert decode_result(waits.answer) == StepResult(StepFate.LOCKED, holder=T1)
    assert partition.updates(roll_back(T1)) == [], "backups do not know of the lock"
    partition.do(roll_back(T1))
    assert partition.left == (0, 0)
    assert partition.do(lock(T2, K1)).fate is StepFate.DONE


def test_a_step_that_may_not_wait_is_answered_at_once() -> None:
    partition = Partition()
    partition.do(lock(T1, K1))
    wanted = LockKeys(T2, ME, [K2, K1], 0)
    assert partition.do(wanted) == StepResult(StepFate.LOCKED, holder=T1)
    assert partition.left == (0, 1), "it has taken nothing"
    decision = partition.decide(wanted)
    assert isinstance(decision, Decision) and decision.unconfirmed


@ablated("lock-exclusive")
def test_without_exclusive_locks_two_transactions_would_write_from_the_same_value() -> None:
    partition = Partition()
    partition.hold(K1, b"v")
    assert partition.do(lock(T1, K1)).values == [b"v"]
    assert partition.do(lock(T2, K1)).values == [b"v"], "it does not wait for the first"


@pytest.mark.rule("operations/T-1")
def test_who_is_in_no_transaction_waits_for_its_end_and_a_try_fails() -> None:
    partition = Partition()
    partition.do(lock(T1, K1))

    waits = wait_for_lock(partition.copy.locks, Request(Op.SET, "m", [0], b"k1", b"x"), 77)
    assert isinstance(waits, Wait)
    assert (waits.ms, waits.holder, waits.key) == (77, T1, K1)
    assert waits.refused
    tried = wait_for_lock(partition.copy.locks, Request(Op.TRY_PUT, "m", [0], b"k1", b"x"), 77)
    assert tried == Decision(answer=False)
    many = Request(Op.PUT_ALL, "m", [0], items=[b"a", b"1", b"k1", b"2"])
    assert isinstance(wait_for_lock(partition.copy.locks, many, 77), Wait)
    assert wait_for_lock(partition.copy.locks, Request(Op.SET, "n", [0], b"k1", b"x"), 77) is None
    assert partition.copy.locks.guards("m")
    assert not partition.copy.locks.guards("n")
    assert not partition.copy.locks.guards("")


def test_the_lock_of_an_entry_is_of_that_entry_alone() -> None:
    entries = [("m", b"k"), ("mk", b""), ("m", b""), ("", b"mk"), ("ä", b"\0")]
    assert len({lock_key(*entry) for entry in entries}) == len(entries)
    assert [entry_of(lock_key(*entry)) for entry in entries] == entries


def test_one_partition_alone_needs_one_step() -> None:
    partition = Partition()
    partition.hold(K2, b"old")
    partition.do(lock(T1, K1, K2))
    step = prepare(T1, write(K1, b"v"), write(K2, None), participants=(0,))
    assert partition.do(step).fate is StepFate.DONE
    assert (partition.value(K1), partition.value(K2), partition.left) == (b"v", None, (0, 0))


def test_listeners_get_what_a_transaction_has_done_to_an_entry() -> None:
    partition = Partition()
    partition.hold(K2, b"old")
    for writes, kind in (
        (write(K1, b"v"), EventKind.ADDED),
        (write(K2, b"v"), EventKind.UPDATED),
        (write(K2, None), EventKind.REMOVED),
    ):
        decision = partition.decide(prepare(T1, writes, participants=(0,), locked=False))
        assert isinstance(decision, Decision)
        assert [update.kind for update in decision.updates] == [kind]


def test_a_branch_that_is_rolled_back_leaves_its_fence_or_nothing() -> None:
    for fence in (False, True):
        partition = Partition()
        partition.do(lock(T1, K1))
        partition.do(prepare(T1, write(K1, b"v")))
        for _ in range(2):
            assert partition.do(roll_back(T1, fence=fence)).fate is StepFate.DONE
            found = list(partition.branches().all_branches())
            assert [branch.state for _, branch in found] == [BranchState.ROLLED_BACK] * fence
            assert partition.left == (fence, 0)
            assert partition.updates(roll_back(T1, fence=fence)) == [], "nothing is left to be done"
        assert partition.value(K1) is None


def test_removing_what_is_not_there_takes_no_number() -> None:
    partition = Partition()
    partition.do(lock(T1, K1))
    partition.do(prepare(T1, write(K1, None), participants=(0,)))
    assert "m" not in partition.maps


def test_a_prepared_branch_shows_nothing_until_it_commits() -> None:
    partition = Partition()
    partition.do(lock(T1, K1))
    assert partition.do(prepare(T1, write(K1, b"v"))).fate is StepFate.DONE
    assert partition.value(K1) is None
    assert isinstance(partition.decide(lock(T2, K1)), Wait)
    assert partition.do(prepare(T1, write(K1, b"v"))).fate is StepFate.DONE, "asked again"
    assert partition.do(CommitBranch(T1)).fate is StepFate.DONE
    assert partition.value(K1) == b"v"
    assert partition.left == (1, 0), "its outcome"
    assert partition.updates(CommitBranch(T1)) == [], "it is done once"
    assert partition.do(CommitBranch(T1)).fate is StepFate.DONE
    assert partition.do(lock(T2, K1)).values == [b"v"]


@pytest.mark.rule("operations/T-2")
def test_a_branch_that_is_prepared_stays_so_whoever_asks() -> None:
    partition = Partition()
    partition.do(lock(T1, K1))
    partition.do(prepare(T1, write(K1, b"v")))
    for _ in range(2):
        assert partition.do(AskBranch(T1, ME, [0, 1])).fate is StepFate.PREPARED
    partition.do(ForgetBranches([T1]))
    assert partition.do(AskBranch(T1, ME, [0, 1])).fate is StepFate.PREPARED


@pytest.mark.rule("operations/T-3")
def test_who_was_asked_and_is_not_prepared_never_will_be() -> None:
    partition = Partition()
    partition.do(lock(T1, K1))
    assert partition.do(AskBranch(T1, ME, [0, 1])).fate is StepFate.ROLLED_BACK
    assert partition.do(prepare(T1, write(K1, b"v"))).fate is StepFate.OVER
    assert partition.do(lock(T1, K1)).fate is StepFate.OVER
    assert partition.do(lock(T2, K1)).fate is StepFate.DONE, "and holds nobody up"
    late = Partition()
    late.do(roll_back(T1, fence=True))
    assert late.do(prepare(T1, write(K1, b"v"), locked=False)).fate is StepFate.OVER
    assert late.do(CommitBranch(T1)).fate is StepFate.ROLLED_BACK, "which must not happen, and is told"


def test_without_the_fence_one_that_was_counted_as_rolled_back_could_be_prepared_later() -> None:
    with ablated("asked-is-fenced"):
        late, other = Partition(), Partition()
        other.do(prepare(T1, write(K2, b"w"), locked=False))
        assert late.do(AskBranch(T1, ME, [0, 1])).fate is StepFate.ROLLED_BACK
        other.do(roll_back(T1))
        assert late.do(prepare(T1, write(K1, b"v"), locked=False)).fate is StepFate.DONE
        late.do(CommitBranch(T1))
        assert (late.value(K1), other.value(K2)) == (b"v", None), "half of it"


@pytest.mark.rule("operations/T-4")
def test_the_outcome_is_kept_until_it_may_be_forgotten() -> None:
    partition = Partition()
    partition.do(lock(T1, K1))
    partition.do(prepare(T1, write(K1, b"v")))
    partition.do(CommitBranch(T1))
    branch = partition.branches().branch(T1)
    assert branch is not None
    assert (branch.state, branch.writes, branch.participants) == (BranchState.COMMITTED, [], [0, 1])
    assert partition.do(AskBranch(T1, ME, [0, 1])).fate is StepFate.COMMITTED
    assert partition.do(roll_back(T1)).fate is StepFate.COMMITTED, "which must not happen, and is told"
    partition.do(ForgetBranches([T1, T2]))
    assert partition.kept == 0


@pytest.mark.rule("operations/T-7")
def test_a_step_that_comes_again_changes_nothing() -> None:
    partition = Partition()
    outcome: list[TransactionStep] = [CommitBranch(T1), roll_back(T1), roll_back(T1, fence=True)]
    for end in [*outcome, AskBranch(T1, ME, [0, 1]), ForgetBranches([T1])]:
        for step in (prepare(T1, write(K1, b"v"), locked=False), end):
            fate = partition.do(step).fate
            assert partition.updates(step) == []
            assert partition.do(step).fate is fate
        partition = Partition()


def test_without_the_outcome_a_branch_that_comes_late_would_be_told_something_else() -> None:
    with ablated("outcome-kept"):
        first, second = Partition(), Partition()
        for one in (first, second):
            one.do(prepare(T1, write(K1, b"v"), locked=False))
        first.do(CommitBranch(T1))
        assert first.do(AskBranch(T1, ME, [0, 1])).fate is StepFate.ROLLED_BACK
        second.do(roll_back(T1, fence=True))
        assert (first.value(K1), second.value(K1)) == (b"v", None), "half of it"


def test_locks_that_are_not_held_any_more_are_seen_when_it_is_prepared() -> None:
    partition = Partition()
    assert partition.do(prepare(T1, write(K1, b"v"))).fate is StepFate.NOT_HELD
    partition.do(lock(T2, K1))
    assert partition.do(prepare(T1, write(K1, b"v"))).fate is StepFate.NOT_HELD
    assert partition.value(K1) is None


def test_an_optimistic_transaction_finds_what_it_has_read_or_does_nothing() -> None:
    partition = Partition()
    partition.hold(K1, b"v")
    seen = ValueSeen("m", b"k1", b"v")
    other = prepare(T1, write(K2, b"w"), seen=(ValueSeen("m", b"k1", b"u"),), locked=False)
    assert partition.do(other).fate is StepFate.CHANGED
    assert partition.kept == 0
    partition.do(lock(T2, K1))
    step = prepare(T1, write(K2, b"w"), seen=(seen,), locked=False)
    assert partition.do(step).fate is StepFate.LOCKED
    partition.do(roll_back(T2))
    assert partition.do(step).fate is StepFate.DONE
    assert isinstance(partition.decide(lock(T2, K1)), Wait), "what it has read is locked, too"
    partition.do(CommitBranch(T1))
    assert partition.value(K2) == b"w"


def test_a_rollback_lets_go_and_a_commit_of_locks_alone_does_too() -> None:
    for last in (roll_back(T1), CommitBranch(T1)):
        partition = Partition()
        partition.do(lock(T1, K1, K2))
        partition.do(lock(T2, ("m", b"other")))
        partition.do(last)
        assert [entry_of(kept) for kept in partition.copy.locks.held] == [("m", b"other")]


@pytest.mark.parametrize("seed", range(20))
def test_steps_in_any_order_and_number_leave_one_outcome(seed: int) -> None:
    """Two partitions, one transaction, steps of its coordinator and of who recovers it, each repeated and shuffled: as
    long as each goes by the rules nobody sees half of it.
    """
    draw = random.Random(seed)
    partitions = [Partition(), Partition()]
    for one in partitions:
        one.do(lock(T1, K1))
    outcome: StepFate | None = None
    prepared = [False, False]
    for _ in itertools.repeat(None, 30):
        place = draw.randrange(2)
        one = partitions[place]
        match draw.randrange(4):
            case 0:
                prepared[place] |= one.do(prepare(T1, write(K1, b"v"))).fate is StepFate.DONE
            case 1 if all(prepared) and outcome in (None, StepFate.COMMITTED):
                assert one.do(CommitBranch(T1)).fate is StepFate.DONE
                outcome = StepFate.COMMITTED
            case 2:
                fates = {each.do(AskBranch(T1, ME, [0, 1])).fate for each in partitions}
                found = (
                    StepFate.COMMITTED
                    if StepFate.COMMITTED in fates or fates == {StepFate.PREPARED}
                    else StepFate.ROLLED_BACK
                )
                assert outcome in (None, found)
                outcome = found
            case _ if outcome is StepFate.ROLLED_BACK:
                assert one.do(roll_back(T1, fence=True)).fate is StepFate.DONE
    values = {one.value(K1) for one in partitions}
    assert not (outcome is StepFate.ROLLED_BACK and b"v" in values)
    for one in partitions:
        last = CommitBranch(T1) if outcome is StepFate.COMMITTED else roll_back(T1, fence=True)
        if outcome is not None:
            assert one.do(last).fate is StepFate.DONE
    if outcome is not None:
        assert len({one.value(K1) for one in partitions}) == 1


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (CommitBranch(b"short"), "16 bytes"),
        (ForgetBranches([T1, b""]), "16 bytes"),
        (AskBranch(T1, ME, [7]), "partitions"),
        (AskBranch(T1, ME, []), "partitions"),
        (prepare(T1, TransactionalWrite("m", b"k", b"v", ttl_ms=-1)), "lifetimes"),
        (prepare(T1, TransactionalWrite(TRANSACTIONS_MAP, b"k", b"v")), "take no part"),
        (LockKeys(T1, ME, [K1], -1), "waited for"),
        (lock(T1, K1), ""),
    ],
)
def test_what_no_member_can_mean_is_seen(step: TransactionStep, why: str) -> None:
    assert (why in step_problem(step, 7)) if why else (step_problem(step, 7) == "")


# -- locks that backups do not know


@pytest.mark.rule("operations/T-5")
def test_a_transaction_without_its_locks_is_not_prepared() -> None:
    for lost in (K1, K2):
        partition = Partition()
        partition.do(lock(T1, K1, K2))
        partition.copy.locks.clear()
        partition.do(lock(T1, K2 if lost == K1 else K1))
        step = structs.replace(prepare(T1, write(K1, b"w")), held=[K2])
        for participants in ([0, 1], [0]):
            refused = partition.do(structs.replace(step, participants=participants))
            assert refused.fate is StepFate.NOT_HELD, lost
        partition.do(lock(T1, lost))
        assert partition.do(step).fate is StepFate.DONE


@pytest.mark.rule("operations/T-5")
def test_a_transaction_whose_lock_another_has_now_is_not_prepared() -> None:
    partition = Partition()
    partition.do(lock(T2, K2))
    partition.do(lock(T1, K1))
    step = structs.replace(prepare(T1, write(K1, b"w")), held=[K2])
    assert partition.do(step).fate is StepFate.NOT_HELD


@pytest.mark.rule("operations/T-5")
def test_the_answer_to_a_lock_is_confirmed_only_on_request() -> None:
    partition = Partition()
    for confirm in (False, True):
        decision = partition.decide(structs.replace(lock(T1, K1), confirm=confirm))
        assert isinstance(decision, Decision)
        assert decision.unconfirmed is not confirm
        assert not decision.updates, "backups do not need to know"


@pytest.mark.rule("transactions/C-7")
def test_a_confirmation_takes_no_lock_and_waits_for_none() -> None:
    """The lock has gone with a primary. Others have locked and changed the entry since, or may do so at once."""
    partition = Partition()
    confirmation = structs.replace(lock(T1, K1, K2), confirm=True)
    partition.do(lock(T1, K1))
    for holder in (None, T2):
        if holder is not None:
            partition.do(lock(holder, K2))
        assert partition.do(confirmation).fate is StepFate.NOT_HELD
        assert partition.branches().lock(*K2) == (holder and KeyLock(holder, ME))
    partition.do(roll_back(T2))
    partition.do(lock(T1, K2))
    assert partition.do(confirmation) == StepResult(StepFate.DONE)


@pytest.mark.parametrize("fence", [False, True])
@pytest.mark.parametrize("prepared", [False, True])
def test_only_a_rollback_that_releases_locks_alone_is_not_confirmed(fence: bool, prepared: bool) -> None:
    partition = Partition()
    partition.do(lock(T1, K1))
    if prepared:
        partition.do(prepare(T1, write(K1, b"w")))
    decision = partition.decide(roll_back(T1, fence=fence))
    assert isinstance(decision, Decision)
    assert decision.unconfirmed is not (fence or prepared)
    for step in (CommitBranch(T2), AskBranch(T2, ME, [0, 1]), ForgetBranches([T2])):
        decision = partition.decide(step)
        assert isinstance(decision, Decision)
        assert not decision.unconfirmed, "an earlier primary may know less"


@pytest.mark.rule("store/K-1")
def test_what_a_prepared_branch_has_read_and_written_is_locked_on_the_next_primary() -> None:
    partition = Partition()
    partition.hold(K2, b"v")
    seen = (ValueSeen(*K2, b"v"),)
    partition.do(prepare(T1, write(K1, b"w"), seen=seen, locked=False))
    partition.copy.follow()
    partition.copy.lead(7)
    for entry in (K1, K2):
        assert isinstance(partition.decide(lock(T2, entry)), Wait)
    partition.do(CommitBranch(T1))
    assert partition.do(lock(T2, K1, K2)).values == [b"w", b"v"]


@pytest.mark.rule("store/K-1")
def test_locks_that_were_stored_are_removed_when_they_are_released() -> None:
    partition = Partition()
    partition.do(lock(T1, K1))
    partition.do(lock(T2, K2))
    branches = partition.branches()
    branches.store_locks(partition.copy.locks.held.items())
    partition.carry_out(branches.updates)
    assert partition.kept == 2
    again = partition.branches()
    again.store_locks(partition.copy.locks.held.items())
    assert not again.updates, "they are stored"
    partition.copy.follow()
    partition.copy.lead(7)
    assert partition.do(roll_back(T1)).fate is StepFate.DONE
    assert partition.kept == 1
    assert partition.do(lock(T1, K1)).fate is StepFate.DONE
    assert isinstance(partition.decide(lock(T1, K2)), Wait)
    assert partition.kept == 1


@pytest.mark.rule("operations/T-6")
def test_locks_are_stored_at_once_while_members_expect_them_on_backups() -> None:
    partition = Partition()
    stores = TransactionBranches(partition.copy, 0, stores=True)
    decision = stores.decide(lock(T1, K1, K1))
    assert isinstance(decision, Decision)
    [update] = decision.updates
    assert (update.map, update.key) == (TRANSACTIONS_MAP, lock_key(*K1))
    assert update.value == encode(KeyLock(T1, ME))
    assert decision.locks is not None
    partition.copy.locks.change(decision.locks)
    again = TransactionBranches(partition.copy, 0, stores=True).decide(lock(T1, K1))
    assert isinstance(again, Decision)
    assert again.updates == [], "it holds the lock"
