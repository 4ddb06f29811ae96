"""The failure scenarios of the notes on transactions (A1 to G11), as far as they can arise here, each with its end: all
copies equal, no lock left, every transaction whole or not at all, also after a restart of everybody from files.

Numbers are handed out when updates are applied (docs/transactions.md). So where the notes speak of ranges that are
reserved, reordered or rolled back, what can be seen is asked for: the entries, and counters without gaps (`clean`).
"""

from __future__ import annotations

import pytest
from tests.sim.stage import Stage, clean
from tests.sim.test_transactions import begun_at_three, die, stage_of, state, until
from tests.sim.transaction_stage import Desk, Told, done, kept, keys_at, partition, put, transactional, values

from holdfast.core.model.operations import Op
from holdfast.core.model.transaction_orders import TransactionFate
from holdfast.core.model.transactions import BranchState

GRACEFUL = pytest.mark.parametrize("graceful", [False, True], ids=["killed", "graceful"])


def keys_together(stage: Stage, desk: Desk, count: int) -> list[str]:
    """Keys of one partition, of which this member is the primary."""
    first = keys_at(stage, desk.process, 1)[0]
    found = [key for n in range(3000) if partition(key := f"t{n}") == partition(first)]
    return found[:count]


def stop(stage: Stage, desk: Desk, *, graceful: bool) -> None:
    """A member is told to leave, or dies."""
    if graceful:
        desk.process.step(desk.process.driver.leave)
        stage.wait(20)
        stage.processes.remove(desk.process)
    else:
        die(stage, desk)


def two_in_one_partition(stage: Stage, owner: Desk, other: Desk) -> tuple[list[str], bytes, bytes, str]:
    """Two transactions with entries in one partition; each has another one elsewhere, and so takes two phases."""
    keys = keys_together(stage, owner, 5)
    x, y = keys_at(stage, other.process, 2)
    first, second = other.begin(), other.begin()
    other.set(first, **dict.fromkeys([*keys[:3], x], "1"))
    other.set(second, **dict.fromkeys([*keys[3:], y], "2"))
    return keys, first, second, y


@GRACEFUL
def test_a1_two_transactions_of_one_partition_commit_in_the_other_order(graceful: bool) -> None:
    stage, (one, two, three) = stage_of(backups=2)
    keys, first, second, _ = two_in_one_partition(stage, one, two)
    later = two.commit(second)
    stage.wait(0.5)
    assert later.fate is TransactionFate.DONE
    earlier = two.commit(first)
    until(stage, lambda: state(stage, keys[0]) is BranchState.PREPARED)
    stop(stage, one, graceful=graceful)
    stage.wait(20)
    assert earlier.fate is TransactionFate.DONE, "it was prepared, and its coordinator lives"
    assert values(stage, three.process, *keys) == ["1", "1", "1", "2", "2"]
    clean(stage)


@GRACEFUL
def test_a3_a_prepare_never_reaches_the_backups(graceful: bool) -> None:
    stage, (one, two, three) = stage_of(backups=2)
    keys, first, second, _ = two_in_one_partition(stage, one, two)
    assert two.commit(second)
    stage.wait(0.5)
    stage.isolate(one.process)
    told = two.commit(first)
    stage.wait(0.5)
    assert told.fate is None
    if graceful:
        stage.heal()
    stop(stage, one, graceful=graceful)
    stage.heal()
    stage.wait(30)
    assert told.fate in (TransactionFate.DONE, TransactionFate.ROLLED_BACK)
    written = ["1"] * 3 if told.fate is TransactionFate.DONE else [None] * 3
    assert values(stage, three.process, *keys) == [*written, "2", "2"]
    clean(stage)


def test_a4_a_prepare_reaches_one_backup_alone() -> None:
    stage, (one, two, three) = stage_of(backups=2)
    keys, first, second, _ = two_in_one_partition(stage, one, two)
    two.commit(second)
    stage.wait(0.5)
    stage.cut(one.process, three.process)
    told = two.commit(first)
    stage.wait(0.3)
    die(stage, one)
    stage.heal()
    stage.wait(30)
    written = ["1"] * 3 if told.fate is TransactionFate.DONE else [None] * 3
    assert told.fate in (TransactionFate.DONE, TransactionFate.ROLLED_BACK)
    assert values(stage, three.process, *keys) == [*written, "2", "2"]
    assert values(stage, two.process, *keys) == [*written, "2", "2"]
    clean(stage)


def test_b3_the_only_survivor_commits_what_was_prepared_everywhere() -> None:
    stage, desks = stage_of(4, backups=2)
    one, two, three, four = desks
    keys, first, second, _ = two_in_one_partition(stage, one, two)
    told = [two.commit(first), two.commit(second)]
    until(stage, lambda: state(stage, keys[0]) is BranchState.PREPARED)
    die(stage, one)
    stage.wait(15)
    die(stage, three)
    stage.wait(30)
    assert [each.fate for each in told] == [TransactionFate.DONE] * 2
    assert values(stage, four.process, *keys) == ["1", "1", "1", "2", "2"]
    clean(stage)


def test_b8_and_b9_one_owner_without_backups_keeps_what_is_committed_and_nothing_else() -> None:
    stage, (one,) = stage_of(1, backups=0)
    committed, prepared = one.begin(), one.begin()
    one.set(committed, a="1", b="2", c="3")
    one.set(prepared, d="4", e="5")
    told = one.commit(committed)
    stage.wait(1)
    assert told.fate is TransactionFate.DONE
    stage.cluster.power_cut_everywhere()
    stage.processes = [stage.cluster.start(0, bootstrap=True)]
    stage.rest()
    stage.wait(10)
    assert values(stage, stage.processes[0], *"abcde") == ["1", "2", "3", None, None]
    assert kept(stage) == 0, "locks that came back from the files are released: their owner has gone"
    clean(stage)


@pytest.mark.parametrize("near_too", [False, True], ids=["E1", "E2"])
def test_e_prepared_at_one_primary_and_blocked_before_the_other(near_too: bool) -> None:
    stage, desks = stage_of(5, backups=2)
    one, two, three = desks[:3]
    tx, a, b = begun_at_three(stage, three)
    stage.cut(three.process, two.process)
    told = three.commit(tx)
    until(stage, lambda: state(stage, a) is BranchState.PREPARED)
    assert state(stage, b) is None
    die(stage, two, *([three] if near_too else []))
    stage.heal()
    stage.wait(40)
    found = values(stage, one.process, a, b)
    committed = not near_too and told.fate is TransactionFate.DONE
    assert found == (["v", "w"] if committed else [None, None])
    clean(stage)


def test_f4_a_rollback_reaches_one_primary_and_the_coordinator_dies() -> None:
    stage, (one, two, three) = stage_of()
    tx, a, b = begun_at_three(stage, three)
    stage.cut(three.process, two.process)
    told = three.roll_back(tx)
    stage.wait(0.3)
    assert told.fate is TransactionFate.DONE
    die(stage, three)
    stage.heal()
    stage.wait(30)
    assert values(stage, one.process, a, b) == [None, None]
    clean(stage)


def test_f5_coordinator_and_primary_die_after_the_primary_rolled_back() -> None:
    stage, desks = stage_of(5, backups=2)
    one, two, three = desks[:3]
    a, b = keys_at(stage, one.process, 1)[0], keys_at(stage, two.process, 1)[0]
    tx = three.begin(optimistic=True)
    three.start(tx, Op.GET, a)
    stage.wait(0.5)
    three.set(tx, **{a: "v", b: "w"})
    stage.put(one.process, a, "meanwhile")
    told = three.commit(tx)
    until(stage, lambda: told.fate is TransactionFate.ROLLED_BACK)
    die(stage, three, two)
    stage.wait(40)
    assert values(stage, one.process, a, b) == ["meanwhile", None]
    clean(stage)


def test_f8_who_is_asked_dies_during_the_recovery() -> None:
    stage, desks = stage_of(5, backups=2)
    one, two, three = desks[:3]
    a, b = keys_at(stage, one.process, 1)[0], keys_at(stage, two.process, 1)[0]
    tx = three.begin()
    three.set(tx, **{a: "v", b: "w"})
    three.commit(tx)
    until(stage, lambda: state(stage, a) is state(stage, b) is BranchState.PREPARED)
    die(stage, three)
    stage.wait(3.2)
    die(stage, two)
    stage.wait(40)
    found = values(stage, one.process, a, b)
    assert found in (["v", "w"], [None, None])
    clean(stage)


@pytest.mark.parametrize("ends", [False, True], ids=["without a timeout", "with one"])
def test_g11_a_transaction_that_never_ends_holds_no_drain(ends: bool) -> None:
    """In the source it holds the exchange of the whole cluster; here its locks move with their partitions."""
    stage, (one, two, three) = stage_of()
    a, b = keys_at(stage, two.process, 1)[0], keys_at(stage, one.process, 1)[0]
    tx = one.begin(timeout_ms=4000 if ends else 600_000)
    one.set(tx, **{a: "v", b: "w"})
    two.process.step(two.process.driver.leave)
    stage.wait(20)
    assert two.process.dead, "it has left"
    stage.processes.remove(two.process)
    told: Told = one.commit(tx)
    stage.wait(1)
    fate = TransactionFate.ROLLED_BACK if ends else TransactionFate.DONE
    assert told.fate is fate
    assert values(stage, three.process, a, b) == ([None, None] if ends else ["v", "w"])
    clean(stage)


def test_d9_a_key_whose_partition_moves_while_it_is_locked() -> None:
    stage = Stage(2, settings=transactional(), spare=1)
    one, two = (Desk(stage, process) for process in stage.processes)
    locked = [next(key for n in range(200) if partition(key := f"k{n}") == each) for each in range(7)]
    tx = one.begin()
    one.set(tx, **dict.fromkeys(locked, "v"))
    stage.processes.append(stage.cluster.start(2))
    stage.wait(15)
    moved = [key for key in locked if stage.owner_of(key) is stage.processes[2]]
    assert moved, "some of their partitions live elsewhere now"
    plain = put(stage, two.process, moved[0], "other")
    stage.wait(1)
    assert not done(plain), "the lock has moved, too"
    told = one.commit(tx)
    stage.wait(2)
    assert told.fate is TransactionFate.DONE
    assert done(plain)
    expected = ["other" if key == moved[0] else "v" for key in locked]
    assert values(stage, one.process, *locked) == expected
    clean(stage)
