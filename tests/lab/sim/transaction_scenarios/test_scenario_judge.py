"""What the scenarios end with cries out: at half a transaction, at a false answer, at locks that stay, at silence."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.lab.sim.scenarios.keeping import PARTITION, keys_in
from tests.lab.sim.transaction_scenarios.scenario_stage import ToldTransaction, TransactingStage

from holdfast.core.model.transaction_orders import TransactionAnswer, TransactionFate
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.workload import MAP

KEYS = keys_in(PARTITION, 4)


def half_of_it(stage: TransactingStage, done: ToldTransaction) -> None:
    """One entry is missing from all copies alike."""
    for host in stage.holders():
        stage.member(host).copies.held[PARTITION].maps[MAP].state.drop(wire_key(KEYS[0]))


def half_of_one_in_doubt(stage: TransactingStage, done: ToldTransaction) -> None:
    half_of_it(stage, done)
    done.told.answers[:] = [TransactionAnswer(TransactionFate.UNKNOWN)]
    stage.expected.clear()


def told_that_it_was_rolled_back(stage: TransactingStage, done: ToldTransaction) -> None:
    done.told.answers[:] = [TransactionAnswer(TransactionFate.ROLLED_BACK)]
    stage.expected.clear()


def told_nothing(stage: TransactingStage, done: ToldTransaction) -> None:
    done.told.answers.clear()


def another_value_on_one_member(stage: TransactingStage, done: ToldTransaction) -> None:
    stage.member(stage.holders()[1]).copies.held[PARTITION].maps[MAP].state.entries[wire_key(KEYS[0])] = b"x"


def a_lock_that_stays(stage: TransactingStage, done: ToldTransaction) -> None:
    """Its time is not over before the judge has lost patience."""
    stage.begin(0, stage.values(KEYS[:1]), timeout_ms=600_000)


def disks_that_forget(stage: TransactingStage, done: ToldTransaction) -> None:
    honest = stage.cluster.power_cut_everywhere

    def forgetful() -> None:
        honest()
        for disk in stage.cluster.disks[1:]:
            disk.wipe()

    stage.cluster.power_cut_everywhere = forgetful  # type: ignore[method-assign]


HARMS = (
    half_of_it,
    half_of_one_in_doubt,
    told_that_it_was_rolled_back,
    told_nothing,
    another_value_on_one_member,
    a_lock_that_stays,
    disks_that_forget,
)


@pytest.mark.parametrize("harm", [None, *HARMS])
def test_the_end_of_a_scenario_is_judged(
    harm: Callable[[TransactingStage, ToldTransaction], None] | None,
) -> None:
    stage = TransactingStage(3)
    near = stage.holders()[1]
    done = stage.begin(near, stage.values([*KEYS, *stage.elsewhere(near)]))
    stage.commit(done)
    stage.answered(done)
    if harm is None:
        stage.whole()
        return
    harm(stage, done)
    with pytest.raises(AssertionError):
        stage.whole()
