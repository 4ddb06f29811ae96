"""Scenarios B1 to B10: transactions of one partition that are half prepared or half committed when somebody stops."""

from __future__ import annotations

from functools import partial

import pytest
from tests.lab.sim.scenarios.keeping import NO_HISTORY, PARTITION, Files, kept, keys_in
from tests.lab.sim.transaction_scenarios.scenario_stage import (
    GRACEFUL,
    HISTORICAL,
    ToldTransaction,
    TransactingStage,
)

from holdfast.core.model.sync_request import How
from holdfast.core.model.transaction_orders import TransactionFate
from holdfast.core.model.transactions import BranchState

BEFORE, KEYS, LATER = keys_in(PARTITION, 4), keys_in(PARTITION, 15, 4), keys_in(PARTITION, 10, 19)
SIZES = (slice(0, 5), slice(5, 12), slice(12, 15))
"""Three transactions, of five, seven and three entries of the partition."""
ENDED = (TransactionFate.DONE, TransactionFate.ROLLED_BACK)
NEAR_TOO = pytest.mark.parametrize("near_too", [False, True], ids=["", "and the coordinator"])


def begun(
    stage: TransactingStage, near: int, order: str = "012", *, elsewhere: int | None = None, phases: int = 2
) -> list[ToldTransaction]:
    """Transactions that are begun, and so lock, in this order. In two phases they have an entry elsewhere, too."""
    other = stage.elsewhere(near if elsewhere is None else elsewhere, 3)
    found = {}
    for each in order:
        mine = KEYS[SIZES[int(each)]]
        found[each] = stage.begin(near, stage.values([*mine, other[int(each)]] if phases == 2 else mine))
    return [found[each] for each in sorted(order)]


@pytest.mark.covering(2)
@pytest.mark.parametrize("phases", [1, 2])
@HISTORICAL
@GRACEFUL
def test_b1_a_backup_stops_in_the_middle_and_the_primary_when_it_is_back(
    graceful: bool, history: bool, phases: int
) -> None:
    stage = TransactingStage(3, kept(2) if history else kept(2, **NO_HISTORY))
    one, b1, b2 = stage.holders()
    stage.transact(b2, [*BEFORE, *stage.elsewhere(b2)])
    tx = begun(stage, b2, phases=phases)
    stage.commit(tx[1])
    stage.answered(tx[1])
    stage.cut_off(one, b1)
    stage.commit(tx[2])
    stage.wait(0.5)
    stage.stop(b1, graceful=graceful)
    stage.heal()
    stage.commit(tx[0])
    stage.answered(*tx)
    assert [each.done for each in tx] == [True] * 3
    stage.gone(b1)
    many = 0 if history else 60
    for _ in range(many):
        stage.transact(b2, [*BEFORE, *stage.elsewhere(b2)])
    stage.start(b1)
    stage.rest()
    assert stage.sizes() == {len(BEFORE) + 15}
    if not graceful:
        assert stage.synchronised(b1)[0][0] == ("history" if history else "full")
    stage.stop(one, graceful=graceful)
    stage.gone(one)
    for _ in range(1 + many // 2):
        stage.transact(b2, LATER)
    stage.start(one)
    stage.rest()
    if not graceful:
        assert stage.synchronised(one)[0][0] == ("history" if history else "full")
    stage.whole()
    assert stage.sizes() == {len(BEFORE) + 25}


# -- partial prepare


REACHED = {"no backup": (), "the first": (0,), "the second": (1,)}


def partly_prepared(
    tx: list[ToldTransaction], stage: TransactingStage, near: int, other: int, reached: str
) -> None:
    """Prepares reach the primary and some backup; other branches, and the coordinator, hear of nothing."""
    one, *backups = stage.holders()
    stage.cut_off(one, near, *(host for at, host in enumerate(backups) if at not in REACHED[reached]))
    stage.cut_off(near, other)
    stage.commit(*tx)
    told = [one, *(backups[at] for at in REACHED[reached])]
    stage.soon(lambda: all(stage.prepared(each, *told) for each in tx))
    for host in {*backups} - {*told}:
        assert not any(stage.prepared(each, host) for each in tx)


def fails_over(
    stage: TransactingStage, tx: list[ToldTransaction], *gone: int, graceful: bool, near_too: bool
) -> None:
    """These stop. Without a coordinator nothing that was never prepared elsewhere comes about; else its word counts."""
    stage.stop(*gone, graceful=graceful)
    stage.heal()
    stage.gone(*gone)
    stage.wait(20)
    if near_too and not graceful:
        assert stage.there(*tx) == [False] * len(tx)
    if not near_too:
        stage.answered(*tx)
        assert {each.fate for each in tx} <= {*ENDED}
        assert stage.there(*tx) == [each.done for each in tx]
    assert len(stage.sizes()) == 1, "copies are equal before the old primary is back"
    stage.start(*gone)
    stage.whole()


@pytest.mark.covering(2)
@GRACEFUL
@NEAR_TOO
@pytest.mark.parametrize("reached", REACHED)
@pytest.mark.parametrize("order", ["01", "10"])
def test_b2_two_are_prepared_in_part(order: str, reached: str, near_too: bool, graceful: bool) -> None:
    stage = TransactingStage(5)
    near = stage.bystander()
    one = stage.holders()[0]
    other = next(host for host in range(5) if host not in (near, *stage.holders()))
    stage.transact(near, BEFORE)
    tx = begun(stage, near, order, elsewhere=other)
    partly_prepared(tx, stage, near, other, reached)
    gone = (one, near) if near_too else (one,)
    fails_over(stage, tx, *gone, graceful=graceful, near_too=near_too)


@pytest.mark.covering(1)
@GRACEFUL
@NEAR_TOO
@pytest.mark.parametrize("reached", REACHED)
@pytest.mark.parametrize("order", ["012", "210"])
def test_b4_two_are_prepared_in_part_and_the_third_is_done(
    order: str, reached: str, near_too: bool, graceful: bool
) -> None:
    stage = TransactingStage(5)
    near = stage.bystander()
    one = stage.holders()[0]
    other = next(host for host in range(5) if host not in (near, *stage.holders()))
    stage.transact(near, BEFORE)
    first, second, third = begun(stage, near, order, elsewhere=other)
    stage.commit(third)
    stage.answered(third)
    partly_prepared([first, second], stage, near, other, reached)
    gone = (one, near) if near_too else (one,)
    fails_over(stage, [first, second], *gone, graceful=graceful, near_too=near_too)
    assert third.done


# -- prepared everywhere


@pytest.mark.covering(1)
@GRACEFUL
@pytest.mark.parametrize("order", ["01", "10"])
def test_b3_of_two_that_are_prepared_one_is_done_on_a_backup_alone(order: str, graceful: bool) -> None:
    """And that one survives: it does both."""
    stage = TransactingStage(5)
    one, b1, b2 = stage.holders()
    near = [host for host in range(5) if host not in (one, b1, b2)]
    stage.transact(near[0], BEFORE)
    tx: list[ToldTransaction] = []
    for each in order:
        host = near[int(each)]
        mine = stage.begin(host, stage.values([*KEYS[SIZES[int(each)]], *stage.elsewhere(host)]))
        tx.append(mine)
        stage.commit(mine)
        stage.soon(partial(stage.prepared, mine))
        stage.cut_off(host, one)
    held, goes = tx
    stage.join_up(stage.host_of(goes.at), one)
    stage.cut_off(one, b1)
    stage.soon(lambda: stage.state_of(goes, b2) is BranchState.COMMITTED)
    assert stage.prepared(goes, b1)
    assert stage.prepared(held, one, b1, b2)
    stage.stop(b1, graceful=graceful)
    stage.stop(one, graceful=graceful)
    stage.heal()
    stage.gone(one, b1)
    stage.answered(*tx)
    assert [each.done for each in tx] == [True, True]
    assert stage.sizes() == {len(BEFORE) + 12}
    stage.start(b1, one)
    stage.whole()


@pytest.mark.covering(2)
@GRACEFUL
@NEAR_TOO
@pytest.mark.parametrize("order", ["012", "210"])
def test_b5_three_that_are_prepared_everywhere_are_done_when_the_primary_stops(
    order: str, near_too: bool, graceful: bool
) -> None:
    stage = TransactingStage(5)
    near = stage.bystander()
    one = stage.holders()[0]
    stage.transact(near, BEFORE)
    tx = begun(stage, near, order)
    stage.cut_off(one, near)
    stage.commit(*tx)
    stage.soon(lambda: all(stage.prepared(each, *stage.holders()) for each in tx))
    stage.soon(lambda: all(stage.prepared(each) for each in tx))
    gone = (one, near) if near_too else (one,)
    stage.stop(*gone, graceful=graceful)
    stage.heal()
    stage.gone(*gone)
    stage.wait(20)
    assert stage.there(*tx) == [True] * 3
    stage.start(*gone)
    stage.whole()


def test_b6_after_a_rollback_by_recovery_a_backup_that_restarts_is_sent_nothing() -> None:
    """The first is rolled back by the primaries that are left; of the second, which was done, nothing is missing."""
    stage = TransactingStage(4, kept(3))
    master = stage.master_host()
    one, *backups = stage.holders()
    near, other = (one, next(host for host in backups if host != master))
    tx = begun(stage, near, "01", elsewhere=other)
    stage.commit(tx[1])
    stage.answered(tx[1])
    stage.cut_off(near, other)
    stage.commit(tx[0])
    rest = [host for host in backups if host != other]
    stage.soon(lambda: stage.prepared(tx[0], *rest))
    stage.stop(one, graceful=False)
    stage.heal()
    stage.gone(one)
    stage.until(lambda: stage.there(*tx) == [False, True])
    stage.wait(150)
    again = next(host for host in rest if host != master)
    stage.end("kill", again)
    stage.gone(again)
    before = stage.sent()
    stage.start(again)
    stage.rest()
    after = stage.sent()
    assert {how for how in How if after[how] > before[how]} == {How.SAME}
    stage.start(one)
    stage.whole()


@pytest.mark.parametrize("how", ["kill", "power cut"])
def test_b7_a_commit_between_two_checkpoints_of_a_backup_is_not_missed(how: str) -> None:
    """The first is prepared when its backup writes a checkpoint, and done afterwards; then the backup restarts."""
    # Nobody takes the place of who is away for so short a time.
    stage = TransactingStage(4, kept(2, delay_ms=60_000))
    one, *backups = stage.holders()
    again = next(host for host in backups if host != stage.master_host())
    near = next(host for host in range(4) if host not in (one, *backups))
    tx = begun(stage, near, "01")
    stage.commit(tx[1])
    stage.answered(tx[1])
    stage.cut_off(one, near)
    stage.commit(tx[0])
    stage.soon(lambda: stage.prepared(tx[0], one, again))
    stage.write(LATER, host=one)
    stage.checkpoint(again, PARTITION)
    assert stage.prepared(tx[0], again)
    stage.heal()
    stage.answered(tx[0])
    stage.wait(3)  # Outcomes are forgotten.
    stage.end("kill" if how == "kill" else "power cut", again)
    stage.gone(again)
    before = stage.sent()
    stage.start(again)
    stage.rest()
    after = stage.sent()
    assert {how for how in How if after[how] > before[how]} == {How.SAME}
    stage.whole()


# -- a single owner


SMALL: Files = {"segment_bytes": 4096, "checkpoint_bytes": 512}


@pytest.mark.covering(1)
@pytest.mark.parametrize("files", [{}, SMALL], ids=["journal", "checkpoints"])
@pytest.mark.parametrize("how", ["kill", "power cut", "leave"])
def test_b8_a_single_owner_keeps_what_is_done_in_any_order(how: str, files: Files) -> None:
    stage = TransactingStage(1, kept(0, **files))
    entries = [[*KEYS[size], *keys_in(PARTITION + 1, 1, at)] for at, size in enumerate(SIZES)]
    tx = [stage.begin(0, stage.values(each)) for each in entries]
    for each in reversed(tx):
        stage.commit(each)
        stage.answered(each)
        stage.wait(2)
    stage.leave(0) if how == "leave" else stage.end("kill" if how == "kill" else "power cut", 0)
    stage.start(0)
    stage.rest()
    assert stage.counter(0) == 15
    assert stage.sizes() == {15}
    stage.whole()


@pytest.mark.parametrize("prepared", [False, True])
def test_b9_what_a_single_owner_had_only_locked_vanishes_and_what_was_prepared_is_done(
    prepared: bool,
) -> None:
    """Where the source has numbers that were reserved, and vanish, there are locks; they are released after a restart,
    for their owner has gone. What is prepared in all partitions is decided.
    """
    stage = TransactingStage(1, kept(0))
    tx = [
        stage.begin(0, stage.values([*KEYS[size], *keys_in(PARTITION + 1, 1, at)]))
        for at, size in enumerate(SIZES)
    ]
    if prepared:
        stage.commit(*tx)
        stage.soon(lambda: all(stage.prepared(each) for each in tx))
        stage.wait(0.001)
    stage.end("kill", 0)
    stage.start(0)
    stage.rest()
    stage.wait(10)
    found = stage.there(*tx)
    assert found == [False] * 3 or prepared
    stage.whole()


@pytest.mark.parametrize("deeds", range(1, 13))
def test_b10_the_power_of_a_single_owner_fails_at_any_moment_of_a_commit(deeds: int) -> None:
    """The third is done, the others are on their way to the disk: each of them is there as a whole, or is not."""
    stage = TransactingStage(1, kept(0))
    tx = [
        stage.begin(0, stage.values([*KEYS[size], *keys_in(PARTITION + 1, 1, at)]))
        for at, size in enumerate(SIZES)
    ]
    stage.commit(tx[2])
    stage.answered(tx[2])
    disk = stage.cluster.disks[0]
    disk.cut_armed(deeds, stage.cluster.power_cut_everywhere)
    stage.commit(tx[0], tx[1])
    stage.wait(0.3)
    disk.cut_armed(0, stage.cluster.power_cut_everywhere)
    if not stage.process(0).dead:
        stage.end("power cut", 0)
    stage.processes = []
    stage.start(0)
    stage.rest()
    stage.wait(10)
    assert stage.there(tx[2]) == [True]
    stage.whole()
