"""Scenarios F4 to F9: the coordinator dies, and others with it. `tests/lab/sim/test_transactions.py` tells F1 to F3."""

from __future__ import annotations

from itertools import product

import pytest
from tests.lab.sim.scenarios.keeping import PARTITION, keys_in
from tests.lab.sim.transaction_scenarios.scenario_stage import GRACEFUL, ToldTransaction, TransactingStage
from tests.sampled_cases import sampled

from holdfast.core.messages import Message, Prepare, TableCommit, TableOffer
from holdfast.core.model.transactions import BranchState
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.rig import Packet

KEYS = keys_in(PARTITION, 10)
OPTIMISTIC = pytest.mark.parametrize("optimistic", [False, True], ids=["pessimistic", "optimistic"])


def staged() -> tuple[TransactingStage, int, int, int]:
    """Five members, with two backups: who runs transactions; the primary of the partition; and that of another one."""
    stage = TransactingStage(5)
    near = stage.bystander()
    one = stage.holders()[0]
    two = next(host for host in range(5) if host not in (near, *stage.holders()))
    return stage, near, one, two


def refused(stage: TransactingStage, near: int, two: int) -> ToldTransaction:
    """An optimistic transaction one of whose branches will not be prepared: what it has read there has changed."""
    x = stage.elsewhere(two)[0]
    stage.transact(near, [x])
    tx = stage.begin_unheard(near, {}, optimistic=True)
    stage.read_in(tx, x)
    stage.transact(two, [x])
    stage.write_in(tx, stage.values(KEYS[:5]))
    return tx


@pytest.mark.covering(1)
@pytest.mark.parametrize("who", ["coordinator", "primary", "both", "other primary"])
@pytest.mark.parametrize("at_ms", [0, 1, 2, 3, 5, 8])
@pytest.mark.parametrize("phases", [2, 1])
@pytest.mark.parametrize("away_s", [12.0, 1.5])
def test_f_somebody_is_cut_off_around_a_commit_and_comes_back(
    who: str, at_ms: int, phases: int, away_s: float
) -> None:
    """For longer, or shorter, than it takes to be removed. Who is removed says that it does not know, or knows."""
    stage, near, one, two = staged()
    elsewhere = stage.elsewhere(two) if phases == 2 else []
    tx = stage.begin(near, stage.values([*KEYS[:5], *elsewhere]))
    stage.commit(tx)
    stage.wait(at_ms / 1000)
    for host in {"coordinator": [near], "primary": [one], "both": [near, one], "other primary": [two]}[who]:
        stage.isolate(stage.process(host))
    stage.wait(away_s)
    stage.heal()
    stage.answered(tx)
    stage.whole()


@pytest.mark.covering(1)
@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("after_s", [0.001, 0.3, 2.0])
def test_f4_a_rollback_reaches_one_primary_and_the_coordinator_dies(after_s: float, prepared: bool) -> None:
    stage, near, one, two = staged()
    if prepared:
        tx = refused(stage, near, two)
        stage.cut_off(one, near)
        stage.commit(tx)
        stage.soon(lambda: stage.state_of(tx, one) is BranchState.PREPARED)
        stage.cut_off(near, one)
    else:
        tx = stage.begin(near, stage.values([*KEYS[:5], *stage.elsewhere(two)]))
        stage.cut_off(near, one)
        stage.roll_back(tx)
    stage.wait(after_s)
    stage.end("kill", near)
    stage.heal()
    stage.gone(near)
    stage.wait(20)
    assert stage.there(tx) == [False]
    stage.start(near)
    stage.whole()


@GRACEFUL
def test_f5_coordinator_and_primary_stop_after_the_primary_rolled_back(graceful: bool) -> None:
    """Its backups are prepared still when it dies, and vote for nothing: they ask the other branch."""
    stage, near, one, two = staged()
    tx = refused(stage, near, two)
    stage.cut_off(two, near)
    stage.commit(tx)
    stage.soon(lambda: stage.prepared(tx, *stage.holders()))
    stage.wait(0.05)
    _, *backups = stage.holders()
    stage.cut_off(one, *backups)
    stage.join_up(two, near)
    stage.soon(lambda: stage.state_of(tx, one) is not BranchState.PREPARED)
    assert stage.prepared(tx, *backups)
    stage.stop(one, near, graceful=graceful)
    stage.heal()
    stage.gone(one, near)
    stage.wait(20)
    assert stage.there(tx) == [False]
    stage.start(one, near)
    stage.whole()


@GRACEFUL
def test_f6_the_primary_stops_when_it_alone_has_committed(graceful: bool) -> None:
    stage, near, one, two = staged()
    tx = stage.begin(near, stage.values([*KEYS[:5], *stage.elsewhere(two)]))
    _, *backups = stage.holders()
    stage.hold_commits(near)
    stage.commit(tx)
    stage.soon(lambda: stage.prepared(tx))
    stage.wait(0.05)
    stage.cut_off(one, *backups)
    stage.resume_commits(near)
    stage.soon(lambda: stage.applied(tx, one))
    assert not any(stage.applied(tx, host) for host in backups)
    stage.stop(one, graceful=graceful)
    stage.heal()
    stage.gone(one)
    stage.answered(tx)
    assert tx.done
    stage.start(one)
    stage.whole()


@pytest.mark.covering(1)
@pytest.mark.parametrize("at_ms", [0, 1, 2, 3, 5, 8, None])
@OPTIMISTIC
def test_f7_primary_and_coordinator_die_around_a_commit_in_one_phase(
    at_ms: int | None, optimistic: bool
) -> None:
    """None: as soon as it was acknowledged. Then it is there, whoever died."""
    stage, near, one, _ = staged()
    tx = stage.begin(near, stage.values(KEYS[:5]), optimistic=optimistic)
    stage.commit(tx)
    if at_ms is None:
        stage.soon(lambda: tx.fate is not None)
        assert tx.done
    else:
        stage.wait(at_ms / 1000)
    stage.end("kill", one, near)
    stage.gone(one, near)
    stage.wait(10)
    assert stage.there(tx) == [True] or not tx.done
    stage.start(one, near)
    stage.whole()


@ablated("all-ack")
def test_f7_without_acknowledgements_of_backups_the_judge_cries_out() -> None:
    stage, near, one, _ = staged()
    tx = stage.begin(near, stage.values(KEYS[:5]))
    stage.wait(0.5)
    stage.cut_off(one, *stage.holders()[1:])
    stage.commit(tx)
    stage.soon(lambda: tx.done)
    stage.end("kill", one, near)
    stage.heal()
    stage.gone(one, near)
    stage.wait(10)
    with pytest.raises(AssertionError):
        stage.whole()


@pytest.mark.parametrize("after_s", sampled([3.0, 2.9, 3.1, 3.6], 4))
def test_f8_who_is_asked_dies_during_the_recovery(after_s: float) -> None:
    stage, near, _, two = staged()
    tx = stage.begin(near, stage.values([*KEYS[:5], *stage.elsewhere(two)]))
    stage.commit(tx)
    stage.soon(lambda: stage.prepared(tx))
    stage.end("kill", near)
    stage.wait(after_s)
    stage.end("kill", two)
    stage.gone(near, two)
    stage.wait(20)
    assert stage.there(tx) == [True], "all branches were prepared on all copies"
    stage.start(near, two)
    stage.whole()


MOMENTS: dict[str, tuple[type[Message], int]] = {
    "view": (Prepare, 1),
    "first offer": (TableOffer, 1),
    "second offer": (TableOffer, 2),
    "first commit": (TableCommit, 1),
    "second commit": (TableCommit, 2),
}
"""What the master is about to send when it dies, and the how manieth: it is lost."""


@pytest.mark.parametrize(("prepared", "moment"), sampled(product([False, True], ["at once", *MOMENTS]), 5))
def test_f9_the_coordinator_dies_and_the_master_that_sees_to_it(prepared: bool, moment: str) -> None:
    """The next master goes on with the newest table that anybody knows (rule 1): nobody has another one."""
    stage, near, one, two = staged()
    master = stage.master_host()
    where = next(host for host in (one, two) if host != master)
    keys = KEYS[:5] if where == one else stage.elsewhere(two)
    other = next(p for p in range(7) if stage.holders(p)[0] not in (near, where))
    tx = stage.begin(near, stage.values([*keys, *keys_in(other, 3, 20)]))
    if not prepared:
        stage.wait(0.2)  # the cut is between two heartbeats, so that the two do not suspect each other
        stage.cut_off(near, stage.holders(other)[0])
    stage.commit(tx)
    if prepared:
        stage.soon(lambda: stage.prepared(tx))
    else:
        stage.wait(0.3)
    stage.end("kill", near)
    if moment == "at once":
        stage.end("kill", master)
    else:
        kind, count = MOMENTS[moment]
        met: list[Message] = []

        def due(packet: Packet) -> bool:
            if packet.sender is stage.process(master) and isinstance(packet.message, kind):
                met.append(packet.message)
            return len(met) == count

        stage.lose_first(due, lambda packet: stage.end("kill", master))
        stage.until(lambda: stage.process(master).dead)
    stage.heal()
    stage.gone(near, master)
    stage.wait(20)
    assert stage.there(tx) == [prepared]
    stage.start(near, master)
    stage.whole()
