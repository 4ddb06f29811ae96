"""Scenarios E1 and E2: branches that are prepared at one primary and blocked before the other, which then stops."""

from __future__ import annotations

import pytest
from tests.lab.sim.scenarios.keeping import PARTITION, keys_in
from tests.lab.sim.transaction_scenarios.scenario_stage import GRACEFUL, TransactingStage

from holdfast.core.model.transaction_orders import TransactionFate

BEFORE, KEYS = keys_in(PARTITION, 4), keys_in(PARTITION, 15, 4)
SIZES = (slice(0, 5), slice(5, 12), slice(12, 15))


@pytest.mark.covering(1)
@GRACEFUL
@pytest.mark.parametrize("near_too", [False, True], ids=["E1", "E2"])
@pytest.mark.parametrize("optimistic", [False, True], ids=["pessimistic", "optimistic"])
def test_e_two_are_prepared_at_one_primary_and_the_third_is_done(
    optimistic: bool, near_too: bool, graceful: bool
) -> None:
    """Five, seven and three entries in one partition, and one each in the other. E2: the coordinator dies, too."""
    stage = TransactingStage(5)
    near = stage.bystander()
    one = stage.holders()[0]
    two = next(host for host in range(5) if host not in (near, *stage.holders()))
    stage.transact(near, BEFORE)
    others = stage.elsewhere(two, 3)
    first, second, third = (
        stage.begin(near, stage.values([*KEYS[size], others[at]]), optimistic=optimistic)
        for at, size in enumerate(SIZES)
    )
    stage.commit(third)
    stage.answered(third)
    assert third.done
    stage.cut_off(near, two)
    stage.commit(first, second)
    stage.soon(lambda: stage.prepared(first, *stage.holders()) and stage.prepared(second, *stage.holders()))
    assert stage.holders()[0] == one
    gone = (two, near) if near_too else (two,)
    stage.stop(*gone, graceful=graceful)
    stage.heal()
    stage.gone(*gone)
    stage.wait(20)
    if near_too and not graceful:
        assert stage.there(first, second, third) == [False, False, True]
        assert stage.sizes() == {len(BEFORE) + 3}
    if not near_too:
        stage.answered(first, second)
        assert {first.fate, second.fate} <= {TransactionFate.DONE, TransactionFate.ROLLED_BACK}
    stage.start(*gone)
    stage.whole()
