"""Transactions over simulated members: nobody sees half of one, whoever dies when."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest
from tests.lab.sim.stage import Stage, clean
from tests.lab.sim.transaction_stage import (
    Desk,
    Told,
    done,
    kept,
    keys_at,
    partition,
    put,
    transactional,
    values,
)

from holdfast.actions.drain import Drain
from holdfast.actions.evict import Evict
from holdfast.actions.upgrade import Upgrade
from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.events import ActionRequested
from holdfast.core.model.ids import SECOND
from holdfast.core.model.levels import OF_THIS_BUILD, PRIMARY_LOCKS, FeatureLevels
from holdfast.core.model.operations import Op, Outcome, Request
from holdfast.core.model.topology import MappedOn, TopologyVersion
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    HoldCommits,
    ResumeCommits,
    RollBackTransaction,
    StoreTogether,
    TransactionFate,
)
from holdfast.core.model.transactions import BranchState, LockKeys, StepFate, StepResult, encode
from holdfast.core.operations.transaction_branches import TransactionBranches
from holdfast.core.primary_backup.primary_copy import PrimaryCopy
from holdfast.core.transactions import running_transactions
from holdfast.core.transactions.orphans import BEGUN_MOST
from holdfast.core.transactions.steps import result_of
from holdfast.core.transactions.two_phase_commit import TwoPhaseCommit
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process

BEFORE = FeatureLevels(OF_THIS_BUILD.lowest, PRIMARY_LOCKS - 1)
"""The build before locks left the backups."""


def stage_of(hosts: int = 3, backups: int = 1, **changed: object) -> tuple[Stage, list[Desk]]:
    stage = Stage(hosts, settings=transactional(backups, **changed))
    return stage, [Desk(stage, process) for process in stage.processes]


def spread(stage: Stage) -> tuple[str, str, str]:
    """A key of each of the first three members."""
    a, b, c = (keys_at(stage, process, 1)[0] for process in stage.processes[:3])
    return a, b, c


def crossed(after_ms: int) -> float:
    """The seconds from the beginning of a deadlock to its end."""
    stage, (one, two, _) = stage_of(transactions={"deadlock_after_ms": after_ms})
    a, b, _ = spread(stage)
    first, second = one.begin(), two.begin()
    one.set(first, **{a: "1"})
    two.set(second, **{b: "2"})
    began_ns = stage.world.now_ns
    both = [one.start(first, Op.SET, b, "1"), two.start(second, Op.SET, a, "2")]
    stage.until(lambda: all(told.fate is not None for told in both), what="both still wait")
    assert sorted(told.fate.name for told in both if told.fate is not None) == ["DONE", "ROLLED_BACK"]
    return (stage.world.now_ns - began_ns) / SECOND


def test_a_deadlock_ends_soon_after_the_time_that_is_set() -> None:
    assert 0.02 <= crossed(20) < 0.15
    assert 0.3 <= crossed(300) < 0.43


def die(stage: Stage, *desks: Desk) -> None:
    for desk in desks:
        desk.process.crash()
        stage.processes.remove(desk.process)


def test_entries_on_several_members_change_together() -> None:
    stage, (one, two, _) = stage_of()
    a, b, c = spread(stage)
    stage.put(one.process, a, "old")
    tx = one.begin()
    assert one.do(tx, Op.PUT, a, "new") == b"old"
    one.set(tx, **{b: "v", c: "w"})
    assert one.do(tx, Op.GET, b) == b"v", "it sees its own writes"
    assert values(stage, two.process, a, b, c) == ["old", None, None], "and nobody else does"
    told = one.commit(tx)
    stage.wait(1)
    assert told.fate is TransactionFate.DONE
    assert values(stage, two.process, a, b, c) == ["new", "v", "w"]
    assert kept(stage) == 0
    clean(stage)


def test_nothing_is_left_of_one_that_is_rolled_back() -> None:
    stage, (one, two, _) = stage_of()
    a, b, _ = spread(stage)
    tx = one.begin()
    one.set(tx, **{a: "v", b: "w"})
    told = one.roll_back(tx)
    stage.wait(1)
    assert told.fate is TransactionFate.DONE
    assert values(stage, two.process, a, b) == [None, None]
    assert one.commit(tx).answer.fate is TransactionFate.ROLLED_BACK
    clean(stage)


def test_of_why_one_was_rolled_back_only_so_much_is_kept() -> None:
    """It is kept of 10,000, and clients say it."""
    stage, (one, _, _) = stage_of()
    tx = one.begin()
    one.order(RollBackTransaction(tx, "x" * 1_000_000))
    stage.wait(1)
    told = one.commit(tx).answer
    assert told.fate is TransactionFate.ROLLED_BACK
    assert told.why == "x" * 200
    clean(stage)


@pytest.mark.rule("transactions/C-1")
def test_who_wants_a_locked_entry_waits_in_turn() -> None:
    stage, (one, two, three) = stage_of()
    a, _, _ = spread(stage)
    tx = two.begin()
    two.set(tx, **{a: "first"})
    plain = put(stage, three.process, a, "second")
    later = three.begin()
    waiting = three.start(later, Op.GET, a, for_update=True)
    stage.wait(2)
    assert not plain
    assert waiting.fate is None
    [wait] = one.listed().waits
    assert (wait.waiter, wait.holder) == (later.hex(), tx.hex())
    two.commit(tx)
    stage.wait(1)
    assert done(plain)
    assert waiting.answer.value == b"second", "it came after the other one"
    three.roll_back(later)
    stage.wait(1)
    clean(stage)


@pytest.mark.rule("transactions/C-2")
def test_an_optimistic_one_locks_nothing_and_is_rolled_back_when_what_it_read_has_changed() -> None:
    stage, (one, two, _) = stage_of()
    a, b, _ = spread(stage)
    for change in (False, True):
        tx = one.begin(optimistic=True)
        read = one.start(tx, Op.GET, a)
        stage.wait(1)
        assert read.answer.value == (None if not change else b"0")
        one.set(tx, **{b: f"v{change}"})
        stage.wait(3)  # Until the outcome of the one before is forgotten.
        assert kept(stage) == 0
        if change:
            stage.put(two.process, a, "meanwhile")
        told = one.commit(tx)
        stage.wait(1)
        assert told.fate is (TransactionFate.ROLLED_BACK if change else TransactionFate.DONE)
        if not change:
            stage.put(two.process, a, "0")
    assert "changed" in told.answer.why
    assert values(stage, two.process, a, b) == ["meanwhile", "vFalse"]
    clean(stage)


@pytest.mark.rule("transactions/C-3")
def test_one_partition_alone_needs_no_second_phase() -> None:
    stage, (one, two, _) = stage_of()
    key = keys_at(stage, two.process, 1)[0]
    near = next(f"x{n}" for n in range(1000) if partition(f"x{n}") == partition(key))
    before = stage.owner_of(key).driver.member.transactions.finishing.remembered
    tx = one.begin()
    one.set(tx, **{key: "v", near: "w"})
    told = one.commit(tx)
    stage.wait(0.3)
    assert told.fate is TransactionFate.DONE
    assert one.process.driver.member.transactions.finishing.remembered == before == 0
    assert kept(stage) == 0
    assert values(stage, two.process, key, near) == ["v", "w"]
    clean(stage)


@pytest.mark.rule("transactions/C-5")
def test_one_whose_time_is_over_is_rolled_back_and_its_owner_is_told() -> None:
    stage, (one, two, _) = stage_of()
    a, _, _ = spread(stage)
    tx = one.begin(timeout_ms=2000)
    one.set(tx, **{a: "v"})
    plain = put(stage, two.process, a, "other")
    stage.wait(4)
    assert done(plain)
    late = one.start(tx, Op.GET, a)
    stage.wait(0.1)
    assert late.answer.fate is TransactionFate.ROLLED_BACK
    assert "timeout" in late.answer.why
    assert values(stage, two.process, a) == ["other"]
    clean(stage)


@pytest.mark.rule("transactions/C-6")
def test_what_transactions_keep_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"frame_bytes": 65_536, "value_bytes": 20_000, "key_bytes": 1000, "waiting_bytes": 100_000}
    stage, (one, _, _) = stage_of(limits=limits)
    keys = keys_at(stage, one.process, 8)
    first, second = one.begin(), one.begin()
    one.set(first, **dict.fromkeys(keys[:3], "x" * 20_000))
    told = one.start(first, Op.SET, keys[3], "x" * 20_000)
    stage.wait(1)
    assert told.fate is TransactionFate.NOT_DONE
    assert "frame_bytes" in told.answer.why
    one.set(first, **dict.fromkeys(keys[:3], "y"))
    one.set(second, **{keys[4]: "x" * 20_000, keys[5]: "x" * 20_000})
    third = one.begin()
    one.set(third, **{keys[6]: "x" * 20_000, keys[7]: "x" * 20_000})
    told = one.start(third, Op.SET, keys[3], "x" * 20_000)
    stage.wait(1)
    assert "waiting_bytes" in told.answer.why
    one.roll_back(second)
    stage.wait(1)
    one.set(third, **{keys[3]: "x" * 20_000})
    one.roll_back(third)
    one.commit(first)
    stage.wait(1)
    assert one.process.driver.member.transactions.coordinator.running.size == 0
    assert values(stage, one.process, *keys[:3]) == ["y"] * 3
    monkeypatch.setattr(running_transactions, "RUNNING_MAX", 1)
    one.begin()
    told = one.order(BeginTransaction())
    assert told.fate is TransactionFate.NOT_DONE


def together(keys: list[str], value: str, name: str = MAP) -> StoreTogether:
    return StoreTogether(name, [wire_key(key) for key in keys], [value.encode()] * len(keys))


def test_entries_are_stored_together_or_not_at_all() -> None:
    stage, (one, two, _) = stage_of()
    a, b, c = spread(stage)
    stage.put(one.process, a, "old")
    told = two.order(together([a, b, c, a], "v"))
    stage.wait(1)
    assert told.fate is TransactionFate.DONE
    assert values(stage, one.process, a, b, c) == ["v"] * 3
    tx = one.begin()
    one.set(tx, **{b: "locked"})
    late = two.order(together([a, b, c], "w"))
    stage.wait(1)
    assert late.fate is TransactionFate.ROLLED_BACK, "it waits for no lock"
    one.commit(tx)
    stage.wait(1)
    assert values(stage, one.process, a, b, c) == ["v", "locked", "v"]
    assert [two.order(together([], "", name)).fate for name in (MAP, TRANSACTIONS_MAP)] == [
        TransactionFate.DONE,
        TransactionFate.NOT_DONE,
    ]
    for desk in (one, two):
        assert desk.process.driver.member.transactions.coordinator.running.size == 0
    assert kept(stage) == 0
    clean(stage)


@pytest.mark.rule("transactions/C-6")
def test_what_is_stored_together_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"frame_bytes": 65_536, "value_bytes": 20_000, "key_bytes": 1000, "waiting_bytes": 70_000}
    stage, (one, _, _) = stage_of(limits=limits)
    keys = keys_at(stage, one.process, 8)
    tx = one.begin()
    one.set(tx, **{keys[0]: "x" * 20_000})
    for count, size, fate, why in (
        (1, 20_001, TransactionFate.NOT_DONE, "value_bytes"),
        (4, 20_000, TransactionFate.ROLLED_BACK, "waiting_bytes"),
        (2, 20_000, TransactionFate.DONE, ""),
    ):
        told = one.order(together(keys[1 : 1 + count], "y" * size))
        stage.wait(1)
        assert told.fate is fate, told.answers
        assert why in told.answer.why
    one.roll_back(tx)
    stage.wait(1)
    told = one.order(together(keys[1:5], "z" * 20_000))
    stage.wait(1)
    assert (told.fate, "frame_bytes" in told.answer.why) == (TransactionFate.NOT_DONE, True)
    assert values(stage, one.process, keys[1], keys[3]) == ["y" * 20_000, None]
    monkeypatch.setattr(running_transactions, "RUNNING_MAX", 1)
    tx = one.begin()
    assert one.order(together(keys[1:2], "z")).fate is TransactionFate.ROLLED_BACK
    one.roll_back(tx)
    clean(stage, again=False)


@pytest.mark.rule("transactions/D-1")
def test_of_transactions_that_wait_for_each_other_the_younger_gives_way() -> None:
    stage, (one, two, three) = stage_of()
    a, b, c = spread(stage)
    older, middle = one.begin(), two.begin()
    two.begin()
    younger = two.begin()
    one.set(older, **{a: "1"})
    two.set(middle, **{b: "2"})
    two.set(younger, **{c: "3"})
    waits = [
        one.start(older, Op.SET, b, "x"),
        two.start(middle, Op.SET, c, "x"),
        two.start(younger, Op.SET, a, "x"),
    ]
    stage.wait(3)
    assert [each.fate for each in waits] == [None, TransactionFate.DONE, TransactionFate.ROLLED_BACK]
    assert "deadlock" in waits[2].answer.why
    two.commit(middle)
    stage.wait(1)
    assert waits[0].fate is TransactionFate.DONE
    told = one.commit(older)
    stage.wait(1)
    assert told.fate is TransactionFate.DONE
    assert values(stage, three.process, a, b, c) == ["1", "x", "x"]


def until(stage: Stage, what: Callable[[], bool], seconds: float = 5) -> None:
    for _ in range(round(seconds * 2000)):
        if what():
            return
        stage.wait(0.0005)
    raise AssertionError("it did not come to that")


def state(stage: Stage, key: str) -> BranchState | None:
    """How the branch in this key's partition stands at its primary."""
    member = stage.owner_of(key).driver.member
    copy = member.copies.held[partition(key)]
    found = [branch.state for _, branch in TransactionBranches(copy, 0).all_branches()]
    return found[0] if found else None


def begun_at_three(stage: Stage, three: Desk) -> tuple[bytes, str, str]:
    """A transaction of the third member that has written to entries of the first and the second."""
    a, b, _ = spread(stage)
    tx = three.begin()
    three.set(tx, **{a: "v", b: "w"})
    return tx, a, b


@pytest.mark.parametrize("graceful", [False, True])
@pytest.mark.rule("transactions/F-2")
def test_all_prepared_and_the_coordinator_dies(graceful: bool) -> None:
    """F1: committed everywhere."""
    stage, (one, _, three) = stage_of()
    tx, a, b = begun_at_three(stage, three)
    told = three.commit(tx)
    until(stage, lambda: state(stage, a) is state(stage, b) is BranchState.PREPARED)
    stage.isolate(three.process)
    assert told.fate is None
    if graceful:
        three.process.step(partial(three.process.driver.handle, ActionRequested(Drain())))
    die(stage, three)
    stage.heal()
    stage.wait(30)
    assert values(stage, one.process, a, b) == ["v", "w"]
    clean(stage)


def half_prepared(stage: Stage, one: Desk, two: Desk, three: Desk) -> tuple[str | None, str | None]:
    """F2: the coordinator dies, and one of two branches is not prepared. What is there afterwards?"""
    tx, a, b = begun_at_three(stage, three)
    stage.cut(three.process, two.process)
    three.commit(tx)
    until(stage, lambda: state(stage, a) is BranchState.PREPARED)
    die(stage, three)
    stage.heal()
    stage.wait(30)
    first, second = values(stage, one.process, a, b)
    return first, second


@pytest.mark.rule("transactions/F-1")
def test_one_branch_is_not_prepared_and_the_coordinator_dies() -> None:
    stage, (one, two, three) = stage_of()
    assert half_prepared(stage, one, two, three) == (None, None)
    clean(stage)
    with ablated("all-asked"):
        # Whom who recovers it asks first is a matter of the moment.
        found = set()
        for pause_s in (0, 0.1, 0.2, 0.3, 0.4, 0.5):
            stage, (one, two, three) = stage_of()
            stage.wait(pause_s)
            found.add(half_prepared(stage, one, two, three))
            if ("v", None) in found:
                break
        assert ("v", None) in found, "half of it"


def half_committed(stage: Stage, one: Desk, two: Desk, three: Desk) -> tuple[str | None, str | None]:
    """F3: the coordinator dies when one of two branches has committed. What is there afterwards?"""
    tx, a, b = begun_at_three(stage, three)
    stage.cut(one.process, three.process)
    three.commit(tx)
    until(stage, lambda: state(stage, a) is state(stage, b) is BranchState.PREPARED)
    stage.wait(0.2)
    stage.heal()
    stage.cut(three.process, two.process)
    until(stage, lambda: state(stage, a) is BranchState.COMMITTED)
    assert state(stage, b) is BranchState.PREPARED
    die(stage, three)
    stage.heal()
    stage.wait(30)
    first, second = values(stage, one.process, a, b)
    return first, second


@pytest.mark.rule("transactions/F-1")
def test_one_branch_has_committed_and_the_coordinator_dies() -> None:
    stage, (one, two, three) = stage_of()
    assert half_committed(stage, one, two, three) == ("v", "w")
    clean(stage)
    with ablated("branches-decide"):
        stage, (one, two, three) = stage_of()
        assert half_committed(stage, one, two, three) == ("v", None), "half of it"


def test_the_owner_of_a_branch_dies_when_it_has_committed_before_the_others() -> None:
    """F6: the near node is alive, and sees to it that the backup commits."""
    stage, (one, two, three) = stage_of()
    tx, a, b = begun_at_three(stage, three)
    told = three.commit(tx)
    until(stage, lambda: state(stage, a) is BranchState.PREPARED)
    die(stage, one)
    stage.wait(30)
    assert told.fate in (TransactionFate.DONE, TransactionFate.ROLLED_BACK)
    expected = ["v", "w"] if told.fate is TransactionFate.DONE else [None, None]
    assert values(stage, two.process, a, b) == expected
    clean(stage)


@pytest.mark.covering(1)
@pytest.mark.rule("transactions/C-4")
@pytest.mark.parametrize("at_ms", [0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 40])
@pytest.mark.parametrize("who", ["coordinator", "primary", "both"])
def test_whoever_dies_at_any_moment_of_a_commit_nobody_sees_half(at_ms: int, who: str) -> None:
    stage, (one, two, three) = stage_of(backups=2)
    tx, a, b = begun_at_three(stage, three)
    told = three.commit(tx)
    stage.wait(at_ms / 1000)
    die(stage, *{"coordinator": [three], "primary": [one], "both": [three, one]}[who])
    if who == "both":
        # A majority is gone: the operator evicts both.
        gone = (one.process.driver.member.me, three.process.driver.member.me)
        stage.wait(5)
        two.process.step(
            partial(two.process.driver.handle, ActionRequested(Evict(list(gone), without_majority=True)))
        )
    stage.wait(40)
    found = values(stage, two.process, a, b)
    assert found in ([None, None], ["v", "w"])
    if told.fate is TransactionFate.DONE:
        assert found == ["v", "w"]
    if told.fate is TransactionFate.ROLLED_BACK:
        assert found == [None, None]
    stage.wait(20)
    assert kept(stage) == 0 or who != "primary"
    again = put(stage, two.process, a, "later")
    stage.wait(5)
    assert done(again), "and no lock is left"


@pytest.mark.rule("transactions/F-3")
def test_outcomes_are_forgotten_when_all_have_them() -> None:
    stage, (_, _, three) = stage_of()
    tx, a, b = begun_at_three(stage, three)
    three.commit(tx)
    until(stage, lambda: state(stage, a) is state(stage, b) is BranchState.COMMITTED)
    assert kept(stage)
    stage.wait(3)
    assert kept(stage) == 0


def overwritten(stage: Stage, one: Desk, two: Desk) -> str | None:
    """A transaction adds to an entry that somebody else writes to meanwhile, outside of any."""
    a, _, _ = spread(stage)
    stage.put(two.process, a, "0")
    tx = one.begin()
    before = one.do(tx, Op.GET, a)
    assert before == b"0"
    plain = put(stage, two.process, a, "other")
    stage.wait(1)
    one.set(tx, **{a: "0+1"})
    one.commit(tx)
    stage.wait(2)
    assert done(plain)
    return values(stage, two.process, a)[0]


def test_a_write_outside_of_transactions_is_not_lost_in_one() -> None:
    stage, (one, two, _) = stage_of()
    assert overwritten(stage, one, two) == "other"
    with ablated("lock-respected"):
        stage, (one, two, _) = stage_of()
        assert overwritten(stage, one, two) == "0+1", "the other write is lost"


def read_and_changed(stage: Stage, one: Desk, two: Desk) -> str | None:
    """An optimistic transaction adds to what it has read, and somebody else writes before it is prepared."""
    a, b = keys_at(stage, one.process, 1)[0], keys_at(stage, two.process, 1)[0]
    stage.put(two.process, a, "0")
    tx = one.begin(optimistic=True)
    one.start(tx, Op.GET, a)
    stage.wait(0.5)
    stage.put(two.process, a, "other")
    one.set(tx, **{a: "0+1", b: "w"})
    one.commit(tx)
    stage.wait(5)
    return values(stage, two.process, a)[0]


def test_a_write_between_an_optimistic_read_and_its_end_is_not_lost() -> None:
    stage, (one, two, _) = stage_of()
    assert read_and_changed(stage, one, two) == "other"
    with ablated("seen-compared"):
        stage, (one, two, _) = stage_of()
        assert read_and_changed(stage, one, two) == "0+1", "the other write is lost"


@pytest.mark.rule("transactions/R-1")
def test_locks_of_a_coordinator_that_has_gone_are_released() -> None:
    """F2: the near node fails before it has prepared."""
    stage, (one, two, three) = stage_of()
    a, b, _ = keys_at(stage, one.process, 3)
    tx = three.begin()
    three.set(tx, **{a: "v", b: "w"})
    stage.wait(5)
    assert kept(stage), "whoever runs it is asked, and goes on"
    die(stage, three)
    plain = put(stage, two.process, a, "other")
    stage.wait(30)
    assert done(plain)
    assert values(stage, two.process, a, b) == ["other", None]
    clean(stage)


def test_locks_in_partitions_of_the_dead_coordinator_itself_are_released_as_soon_as_these_are_served() -> (
    None
):
    for later in range(4):
        stage, (_, _, three) = stage_of()
        mine = keys_at(stage, three.process, 1)[0]
        tx = three.begin()
        three.set(tx, **{mine: "v"})
        stage.wait(later / 4)
        die(stage, three)
        until(stage, partial(stage.lives, mine), 30)
        stage.wait(0.2)
        assert kept(stage) == 0, later


def test_many_transactions_of_a_dead_member_are_ended_part_by_part() -> None:
    stage, (one, two, three) = stage_of()
    keys = keys_at(stage, one.process, 3 * BEGUN_MOST)
    others = keys_at(stage, two.process, len(keys))
    begun_there = [three.begin() for _ in keys]
    for tx, key, other in zip(begun_there, keys, others, strict=True):
        three.start(tx, Op.SET, key, "v")
        three.start(tx, Op.SET, other, "v")
    stage.wait(1)
    three.order(HoldCommits(b"until it dies", 60_000))
    for tx in begun_there:
        three.commit(tx)
    stage.wait(1)
    die(stage, three)
    begun = [0]

    def ended() -> bool:
        begun.append(one.process.driver.member.transactions.finishing.running)
        copies = [copy for member in stage.cluster.members() for copy in member.copies.held.values()]
        return not any(copy.locks.held for copy in copies)

    until(stage, ended, 30)
    grown = [after - before for before, after in pairwise(begun)]
    assert 0 < max(grown) <= BEGUN_MOST, "so many are begun at a time"
    assert values(stage, two.process, *keys[:3], *others[:3]) == ["v"] * 6


def test_a_transaction_of_a_dead_member_that_is_decided_does_not_count_as_one_to_be_ended() -> None:
    """Its branches stay for a while, to answer those that ask how it ended; its keys are free."""
    stage, (_, two, three) = stage_of(backups=2)
    tx, a, _ = begun_at_three(stage, three)
    three.commit(tx)
    stage.wait(0.0005)  # The prepares leave at the end of the turn.
    die(stage, three)
    stage.wait(15)
    assert kept(stage) > 0
    assert [one.picture.transactions.orphans for one in stage.processes] == [0, 0]
    plain = put(stage, two.process, a, "other")
    stage.wait(1)
    assert done(plain)


def test_without_the_sweep_of_orphans_their_locks_would_stay() -> None:
    with ablated("orphans-end"):
        stage, (one, two, three) = stage_of()
        a, _ = keys_at(stage, one.process, 2)
        tx = three.begin()
        three.set(tx, **{a: "v"})
        die(stage, three)
        plain = put(stage, two.process, a, "other")
        stage.wait(30)
        assert not done(plain)
        assert one.process.picture.transactions.orphans == 1


def on_old_topology(stage: Stage, process: Process, key: str, *, holds: bool) -> StepResult:
    """A first lock, asked for by somebody who knows the table only as it was in the beginning."""
    mapped = MappedOn(TopologyVersion(1, 7), 0, holds)
    step = LockKeys(b"\0" * 16, process.driver.member.me, [("m", key.encode())], 100, mapped)
    asked = Request(Op.TRANSACT, TRANSACTIONS_MAP, [partition(key)], value=encode(step))
    outcomes: list[Outcome] = []
    process.step(partial(process.driver.execute, asked, outcomes.append))
    stage.wait(1)
    result = result_of(outcomes[0])
    assert result is not None
    return result


@pytest.mark.rule("transactions/P-1")
def test_a_first_lock_that_was_mapped_on_an_old_topology_is_sent_back() -> None:
    stage, (one, two, _) = stage_of()
    key = keys_at(stage, two.process, 1)[0]
    told = on_old_topology(stage, one.process, key, holds=False)
    assert told.fate is StepFate.REMAP
    assert told.row == two.process.driver.member.copies.held[partition(key)].term
    assert kept(stage) == 0
    assert on_old_topology(stage, one.process, key, holds=True).fate is StepFate.DONE, "it goes on"


def moved_unheard() -> bool:
    """A partition moves while one member hears nothing of the table. Then it locks an entry there: mapped on what?"""
    stage, (one, two, three, _) = stage_of(4)
    key = keys_at(stage, three.process, 1)[0]
    tx = two.begin()
    three.process.step(partial(three.process.driver.handle, ActionRequested(Drain())))
    until(stage, lambda: stage.owner_of(key) is not three.process, 30)
    stage.cut(one.process, two.process)
    old = two.process.driver.member.table.rows[partition(key)]
    assert old.owner == three.process.driver.member.me, "it has not heard of it"
    moved = TopologyVersion(*one.process.driver.member.picture.topology)
    told = two.start(tx, Op.SET, key, "v")
    stage.wait(0.2)
    stage.heal()
    stage.wait(5)
    assert told.fate is TransactionFate.DONE
    first = two.listed().transactions[0].topology
    mapped = TopologyVersion(first.major, first.minor)
    two.commit(tx)
    stage.wait(2)
    assert values(stage, two.process, key) == ["v"]
    return mapped >= moved


@pytest.mark.rule("transactions/P-1")
def test_who_has_not_heard_that_a_partition_moved_maps_its_transaction_anew() -> None:
    assert moved_unheard()
    with ablated("topology-compared"):
        assert not moved_unheard(), "its first lock rests on who led the partition before"


# -- locks that a crash of their primary ends


def outlived(stage: Stage, one: Desk, three: Desk, *, reads: bool) -> tuple[Told, list[str | None]]:
    """A transaction locks `a`; the primary of `a` dies, and somebody else changes it. Returns how the transaction ends,
    and the values of `a` and `b` after that. `reads`: it writes what it has read in `a` to `b`; else back to `a`.
    """
    a, b = keys_at(stage, one.process, 1)[0], keys_at(stage, three.process, 1)[0]
    stage.put(three.process, a, "0")
    tx = three.begin()
    found = three.do(tx, Op.GET, a)
    assert found == b"0"
    die(stage, one)
    until(stage, partial(stage.lives, a), 30)
    plain = put(stage, three.process, a, "other")
    stage.wait(2)
    assert done(plain), "the lock is gone"
    three.set(tx, **{b if reads else a: "0+1"})
    told = three.commit(tx)
    stage.wait(10)
    return told, values(stage, three.process, a, b)


@pytest.fixture
def unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coordinators do not notice that a member with locks has gone."""
    monkeypatch.setattr(TwoPhaseCommit, "primaries_gone", lambda *_: None)


@pytest.mark.rule("operations/T-5")
@pytest.mark.usefixtures("unnoticed")
def test_a_write_is_rejected_when_a_crash_has_ended_the_lock_of_its_entry() -> None:
    stage, (one, _, three) = stage_of()
    told, found = outlived(stage, one, three, reads=False)
    assert told.fate is TransactionFate.ROLLED_BACK
    assert found == ["other", None]
    clean(stage)
    with ablated("locks-checked"):
        stage, (one, _, three) = stage_of()
        told, found = outlived(stage, one, three, reads=False)
        assert told.fate is TransactionFate.DONE
        assert found == ["0+1", None], "the other write is lost"


@pytest.mark.rule("transactions/C-7")
@pytest.mark.usefixtures("unnoticed")
def test_a_write_is_rejected_when_a_crash_has_ended_the_lock_of_what_it_rests_on() -> None:
    stage, (one, _, three) = stage_of()
    told, found = outlived(stage, one, three, reads=True)
    assert told.fate is TransactionFate.ROLLED_BACK
    assert found == ["other", None]
    clean(stage)
    with ablated("reads-checked"):
        stage, (one, _, three) = stage_of()
        told, found = outlived(stage, one, three, reads=True)
        assert told.fate is TransactionFate.DONE
        assert found == ["other", "0+1"], "it has read an older value"


@pytest.mark.rule("store/K-1")
@pytest.mark.parametrize("master", [False, True])
def test_the_owner_of_a_transaction_is_told_when_its_locks_have_gone(*, master: bool) -> None:
    """Also if its coordinator is the master, which names the new primaries in the same step."""
    stage, desks = stage_of()
    owner, primary = (desks[0], desks[2]) if master else (desks[2], desks[0])
    a = keys_at(stage, primary.process, 1)[0]
    tx = owner.begin()
    owner.set(tx, **{a: "v"})
    die(stage, primary)
    stage.wait(10)
    told = owner.start(tx, Op.GET, a)
    stage.wait(0.1)
    assert told.fate is TransactionFate.ROLLED_BACK
    assert "its locks" in told.answer.why


def freed_early(stage: Stage, one: Desk, three: Desk, *, optimistic: bool) -> bool:
    """Whether somebody can change an entry of a prepared transaction after the primary of the entry has died."""
    a, b = keys_at(stage, one.process, 1)[0], keys_at(stage, three.process, 1)[0]
    stage.put(three.process, a, "0")
    tx = three.begin(optimistic=optimistic)
    three.start(tx, Op.GET, a)
    stage.wait(0.5)
    three.set(tx, **{a: "0+1", b: "w"})
    three.order(HoldCommits(b"hold", 60_000))
    told = three.commit(tx)
    stage.wait(1)
    assert told.fate is None
    die(stage, one)
    until(stage, partial(stage.lives, a), 30)
    plain = put(stage, three.process, a, "other")
    stage.wait(2)
    early = done(plain)
    three.order(ResumeCommits(b"hold"))
    stage.wait(5)
    assert told.fate is TransactionFate.DONE
    assert done(plain)
    assert values(stage, three.process, a, b) == ["0+1" if early else "other", "w"]
    return early


@pytest.mark.rule("store/K-1")
@pytest.mark.parametrize("optimistic", [False, True])
def test_what_is_prepared_stays_locked_when_its_primary_dies(optimistic: bool) -> None:
    stage, (one, _, three) = stage_of()
    assert not freed_early(stage, one, three, optimistic=optimistic)
    clean(stage)
    with ablated("prepared-locked"):
        stage, (one, _, three) = stage_of()
        assert freed_early(stage, one, three, optimistic=optimistic), "the other write is lost"


def drained(stage: Stage, one: Desk, three: Desk) -> tuple[bool, Told]:
    """The primary of a locked entry leaves. Returns whether the entry stayed locked, and how the transaction ends."""
    a = keys_at(stage, one.process, 1)[0]
    tx = three.begin()
    three.set(tx, **{a: "v"})
    one.process.step(partial(one.process.driver.handle, ActionRequested(Drain())))
    until(stage, lambda: stage.owner_of(a) is not one.process, 30)
    plain = put(stage, three.process, a, "other")
    stage.wait(2)
    locked = not done(plain)
    told = three.commit(tx)
    stage.wait(5)
    assert done(plain)
    return locked, told


@pytest.mark.rule("store/K-1")
def test_locks_move_with_their_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, (one, _, three) = stage_of()
    locked, told = drained(stage, one, three)
    assert (locked, told.fate) == (True, TransactionFate.DONE)
    clean(stage)
    monkeypatch.setattr(PrimaryCopy, "store_locks", lambda *_: None)
    stage, (one, _, three) = stage_of()
    locked, told = drained(stage, one, three)
    assert (locked, told.fate) == (False, TransactionFate.ROLLED_BACK)


def of_levels(*builds: FeatureLevels) -> tuple[Stage, list[Desk]]:
    stage = Stage(len(builds), settings=transactional(), builds=builds)
    return stage, [Desk(stage, process) for process in stage.processes]


@pytest.mark.rule("operations/T-6")
def test_locks_outlive_their_primary_while_a_member_of_an_older_build_is_there() -> None:
    stage, (one, _, three) = of_levels(BEFORE, OF_THIS_BUILD, OF_THIS_BUILD)
    a = keys_at(stage, one.process, 1)[0]
    tx = three.begin()
    three.set(tx, **{a: "v"})
    die(stage, one)
    until(stage, partial(stage.lives, a), 30)
    plain = put(stage, three.process, a, "other")
    stage.wait(2)
    assert not done(plain)
    told = three.commit(tx)
    stage.wait(5)
    assert told.fate is TransactionFate.DONE
    assert done(plain)
    assert values(stage, three.process, a) == ["other"]
    clean(stage)


@pytest.mark.rule("operations/T-6")
@pytest.mark.parametrize("dies", [False, True])
def test_locks_that_backups_hold_are_released_after_the_level_was_raised(*, dies: bool) -> None:
    """A transaction has locked one entry before, and another one after that."""
    stage, (one, two, three, four) = of_levels(BEFORE, *[OF_THIS_BUILD] * 3)
    one.process.step(partial(one.process.driver.handle, ActionRequested(Drain())))
    stage.wait(30)
    die(stage, one)
    stage.rest()
    a, b = keys_at(stage, three.process, 2)
    tx = two.begin()
    two.set(tx, **{a: "v"})
    before = kept(stage)
    assert before > 1, "a backup holds it, too"
    raised = Upgrade(OF_THIS_BUILD.highest)
    two.process.step(partial(two.process.driver.handle, ActionRequested(raised)))
    until(stage, lambda: {each.level for each in stage.cluster.pictures()} == {raised.level}, 30)
    two.set(tx, **{b: "w"})
    assert kept(stage) == before + 1, "the primary alone knows this one"
    if dies:
        die(stage, three)
        until(stage, partial(stage.lives, a), 30)
        stage.wait(5)
    told = two.commit(tx)
    stage.wait(10)
    assert told.fate is (TransactionFate.ROLLED_BACK if dies else TransactionFate.DONE)
    assert values(stage, four.process, a, b) == ([None, None] if dies else ["v", "w"])
    assert kept(stage) == 0
    clean(stage)
