"""Scenarios A1 to A6: the figures of source 004, and the two negative controls of its text.

Numbers are handed out when updates are applied (docs/transactions.md). So where the notes speak of ranges that are
reserved, reordered or rolled back, what can be seen is asked for: the entries, and counters without gaps (`whole`).
"""

from __future__ import annotations

import pytest
from tests.lab.sim.scenarios.keeping import NO_HISTORY, PARTITION, kept, keys_in
from tests.lab.sim.transaction_scenarios.scenario_stage import (
    GRACEFUL,
    HISTORICAL,
    ToldTransaction,
    TransactingStage,
)

from holdfast.core.messages import Fill
from holdfast.core.model.transaction_orders import TransactionFate
from holdfast_lab.check import convergence
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.rig import Packet

KEYS = keys_in(PARTITION, 40)


def two(stage: TransactingStage, near: int) -> tuple[ToldTransaction, ToldTransaction]:
    """Two transactions with entries in one partition; each has another one elsewhere, and so takes two phases."""
    x, y = stage.elsewhere(near, 2)
    first = stage.begin(near, stage.values([*KEYS[:3], x]))
    second = stage.begin(near, stage.values([*KEYS[3:5], y]))
    return first, second


@pytest.mark.covering(1)
@GRACEFUL
@pytest.mark.parametrize("who", ["primary", "backup", "coordinator"])
def test_a1_two_transactions_of_one_partition_commit_in_the_other_order(who: str, graceful: bool) -> None:
    """A1, A1b, A1c: the first is prepared everywhere when the second is done; then somebody stops, and returns."""
    stage = TransactingStage(5)
    near = stage.bystander()
    one, b1, _ = stage.holders()
    first, second = two(stage, near)
    stage.commit(second)
    stage.answered(second)
    assert second.done
    stage.commit(first)
    stage.soon(lambda: stage.prepared(first))
    gone = {"primary": one, "backup": b1, "coordinator": near}[who]
    stage.stop(gone, graceful=graceful)
    stage.gone(gone)
    stage.wait(5)
    assert stage.there(first, second) == [True, True], "it was prepared everywhere"
    assert who == "coordinator" or first.done
    stage.start(gone)
    stage.whole()


# -- A2: a member comes back with an older copy


def absent(*, history: bool) -> tuple[TransactingStage, int, int]:
    """Three members hold everything. A backup ends, and 20 updates of the partition follow, or more than is known one
    by one. Answers also who runs transactions, and the host of who has gone.
    """
    settings = kept(2, chunk_bytes=200) if history else kept(2, chunk_bytes=200, **NO_HISTORY)
    stage = TransactingStage(3, settings)
    gone = next(host for host in stage.holders()[1:] if host != stage.master_host())
    near = next(host for host in stage.holders()[1:] if host != gone)
    stage.transact(near, [*KEYS, *stage.elsewhere(near)])
    stage.end("kill", gone)
    stage.gone(gone)
    for turn in range(4 if history else 60):
        stage.transact(near, [*KEYS[turn % 4 * 5 : turn % 4 * 5 + 5], *stage.elsewhere(near)])
    return stage, near, gone


@HISTORICAL
def test_a2_a_returning_member_gets_what_transactions_have_done_meanwhile(history: bool) -> None:
    """Until it is whole it serves nothing; and exactly the 20 updates are sent, if they are known."""
    stage, _, gone = absent(history=history)
    stood = stage.counter(stage.holders()[0])
    filled: list[int] = []

    def look(packet: Packet) -> bool:
        if packet.receiver is stage.process(gone) and isinstance(packet.message, Fill):
            filled.append(packet.message.partition)
            assert stage.member(gone).lane.serving[packet.message.partition] is None
        return False

    stage.block(look)
    stage.start(gone)
    stage.rest()
    assert PARTITION in filled
    how, why = stage.synchronised(gone)[0]
    if history:
        assert (how, why) == ("history", f"20 updates after {stood - 20} were missed")
    else:
        assert how == "full", why
    stage.whole()


@pytest.mark.covering(1)
@HISTORICAL
@pytest.mark.parametrize("who", ["supplier", "receiver"])
def test_a2_and_g5_somebody_dies_in_the_middle_of_it(who: str, history: bool) -> None:
    """The next supplier takes over; a receiver that starts again begins again from what it had. A transaction is being
    committed meanwhile.
    """
    stage, near, gone = absent(history=history)
    struck: list[int] = []
    filling = stage.filling(gone)

    def third(packet: Packet) -> bool:
        return filling(packet) and isinstance(packet.message, Fill) and packet.message.sequence == 3

    def strike(packet: Packet) -> None:
        struck.append(stage.host_of(packet.sender) if who == "supplier" else gone)
        stage.commit(under_way)
        stage.end("kill", *struck)

    stage.lose_first(third, strike)
    under_way = stage.begin(near, stage.values([*KEYS[:9], *stage.elsewhere(near)]))
    stage.start(gone)
    stage.until(lambda: bool(struck))
    stage.gone(*struck)
    stage.start(*struck)
    stage.rest()
    stage.answered(under_way)
    assert stage.synchronised(gone)[0][0] == ("history" if history else "full")
    stage.whole()


@HISTORICAL
def test_a2_transactions_go_on_while_it_is_filled(history: bool) -> None:
    stage, near, gone = absent(history=history)
    before = stage.begin(near, stage.values([*KEYS[:5], *stage.elsewhere(near)]))
    begun, unblock = stage.hold_up(gone)
    stage.start(gone)
    stage.until(lambda: bool(begun))
    stage.commit(before)
    stage.wait(0.2)
    assert before.fate is None, "whoever is filled takes part in every acknowledgement"
    unblock()
    late = stage.begin(gone, stage.values([*KEYS[5:9], *stage.elsewhere(near, 2)[1:]]))
    stage.commit(late)
    stage.answered(before, late)
    assert before.done
    assert late.done
    stage.whole()


# -- A3 and A4


@pytest.mark.covering(1)
@GRACEFUL
@pytest.mark.parametrize("reached", [0, 1], ids=["A3", "A4"])
@pytest.mark.parametrize("near_too", [False, True], ids=["", "and the coordinator"])
def test_a3_and_a4_a_prepare_reaches_no_backup_or_one_alone(
    reached: int, near_too: bool, graceful: bool
) -> None:
    """And the primary stops. If the coordinator dies, too, and the other branch was never prepared, it is rolled back
    on all copies; else its owner hears what has become of it.
    """
    stage = TransactingStage(5)
    near = stage.bystander()
    one, *backups = stage.holders()
    other = next(host for host in range(5) if host not in (near, one) and host not in backups[:reached])
    first = stage.begin(near, stage.values([*KEYS[:3], *stage.elsewhere(other)]))
    second = stage.begin(near, stage.values([*KEYS[3:5], *stage.elsewhere(near)]))
    stage.commit(second)
    stage.answered(second)
    stage.cut_off(one, *backups[reached:])
    stage.cut_off(near, other)
    stage.commit(first)
    stage.soon(lambda: stage.prepared(first, *[one, *backups][: reached + 1]))
    assert not any(stage.prepared(first, host) for host in backups[reached:])
    hosts = (one, near) if near_too else (one,)
    stage.stop(*hosts, graceful=graceful)
    stage.heal()
    stage.gone(*hosts)
    stage.wait(20)
    assert stage.there(second) == [True]
    if near_too and not graceful:
        assert stage.there(first) == [False]
    if not near_too:
        assert first.fate in (TransactionFate.DONE, TransactionFate.ROLLED_BACK)
    stage.start(*hosts)
    stage.whole()


@GRACEFUL
def test_a4c_the_only_backup_that_was_prepared_dies_before_the_recovery(graceful: bool) -> None:
    stage = TransactingStage(5)
    near = stage.bystander()
    one, b1, b2 = stage.holders()
    first, second = two(stage, near)
    stage.commit(second)
    stage.answered(second)
    stage.cut_off(one, b2)
    stage.commit(first)
    stage.soon(lambda: stage.prepared(first, one, b1))
    stage.stop(one, b1, graceful=graceful)
    stage.heal()
    stage.gone(one, b1)
    stage.answered(first)
    assert stage.there(second) == [True]
    stage.start(one, b1)
    stage.whole()


# -- A5: without the terms


def parted(stage: TransactingStage) -> None:
    """A primary is cut off when it commits a transaction, which nobody else hears of; another takes over and does one
    of the same size. The first ends, and comes back with its files: both counters stand at the same number.
    """
    one = stage.holders()[0]
    other = next(host for host in range(3) if host != one)
    stage.transact(other, KEYS[:10])
    unheard = stage.begin(one, stage.values(KEYS[10:13]))
    stage.wait(1)
    stage.isolate(stage.process(one))
    stage.commit(unheard)
    stage.wait(0.5)
    stood = stage.counter(one)
    assert stood == 13
    stage.wait(12)
    stage.transact(other, KEYS[13:16])
    stage.end("power cut", one)
    stage.heal()
    stage.gone(one)
    assert {stage.counter(host) for host in stage.holders()} == {stood}
    stage.start(one)
    stage.wait(20)


def test_a5_equal_counters_of_different_histories_are_told_apart() -> None:
    stage = TransactingStage(3)
    parted(stage)
    stage.whole()


@ablated("term")
def test_a5_without_terms_the_judge_cries_out() -> None:
    """The negative control: the copy that differs counts as equal, and nothing is sent."""
    stage = TransactingStage(3)
    parted(stage)
    problems = convergence.judge(stage.cluster.pictures())
    assert any("entries of ledger differ" in problem for problem in problems), problems
    with pytest.raises(AssertionError):
        stage.whole()


# -- A6: two primaries at a time


def halved(stage: TransactingStage) -> list[bool]:
    """The cluster is cut in two; the smaller part has the primary, the larger one its backups. In both an application
    writes to the same entries, until the cut is over. Answers whether the one and the other was done by then.
    """
    one, b1, b2 = stage.holders()
    near, other = (host for host in range(5) if host not in (one, b1, b2))
    stage.transact(near, KEYS[:5])
    stage.wait(1)
    for here in (one, near):
        for there in (b1, b2, other):
            stage.cut_off(here, there)
            stage.cut_off(there, here)
    stage.wait(12)
    # Optimistic: else the smaller part could not even lock.
    smaller = stage.begin(near, stage.values(KEYS[:3]), optimistic=True)
    larger = stage.begin(other, stage.values(KEYS[:3]), optimistic=True)
    stage.commit(smaller, larger)
    stage.wait(2)
    answered = [each.done for each in (smaller, larger)]
    stage.heal()
    stage.wait(30)
    return answered


def test_a6_two_primaries_at_a_time_cannot_be() -> None:
    stage = TransactingStage(5)
    assert halved(stage) == [False, True]
    stage.whole()


@ablated("view-majority")
def test_a6_without_a_majority_the_judge_cries_out() -> None:
    """The negative control: both hand out the same numbers for different updates, and both are acknowledged."""
    stage = TransactingStage(5)
    assert halved(stage) == [True, True]
    with pytest.raises(AssertionError):
        stage.whole()
