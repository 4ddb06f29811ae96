"""The judge of CP objects: what each wrong history is called, and runs that have them, with and without lies."""

from __future__ import annotations

import random

import pytest

from holdfast.core.collections import collection_steps
from holdfast.core.model.cp import CpKind
from holdfast.core.model.decisions import Decision, Wait
from holdfast.core.model.operations import Op, Request
from holdfast.core.store.map_state import MapState
from holdfast_lab.sim.cp_using import Addition, Holding, judge_counter, judge_holders
from holdfast_lab.sim.run import simulate

LOCK = CpKind.LOCK


def test_a_history_that_a_counter_explains() -> None:
    history = [Addition(0, 10, 0), Addition(5, 15, 1), Addition(20, 30), Addition(40, 50, rejected=True)]
    assert judge_counter(history, 2) == judge_counter(history, 3) == []


@pytest.mark.parametrize(
    ("history", "value", "told"),
    [
        ([Addition(0, 10, 0)], 2, "after 1 additions"),
        ([Addition(0, 10, 0), Addition(0, 10, 1, rejected=False)], 1, "after 2 additions"),
        ([Addition(0, 10, 0), Addition(5, 15, 0)], 2, "a number twice"),
        ([Addition(0, 10, 1), Addition(20, 30, 0)], 2, "was 1, and then 0"),
    ],
)
def test_a_history_that_no_counter_explains(history: list[Addition], value: int, told: str) -> None:
    assert any(told in problem for problem in judge_counter(history, value))


def test_holders_of_a_lock() -> None:
    good = [Holding(0, 10, 20, 1), Holding(1, 30, 40, 2), Holding(0, 50, 0, 4)]
    assert judge_holders(LOCK, good, 1) == []
    assert "2 holders" in judge_holders(LOCK, [*good, Holding(1, 60, 70, 5)], 1)[0]
    assert "given after" in judge_holders(LOCK, [*good[:2], Holding(0, 50, 60, 2)], 1)[0]
    assert judge_holders(CpKind.SEMAPHORE, [*good, Holding(1, 60, 70)], 2) == []


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "zones"), [(94_022, False), (94_022, True)])
@pytest.mark.parametrize("operation", [None, Op.CHANGE_CP, Op.RELEASE_CP])
def test_a_run_with_cp_objects_shows_a_lie(
    monkeypatch: pytest.MonkeyPatch, seed: int, operation: Op | None, *, zones: bool
) -> None:
    """Some steps answer as if they were done, and change nothing."""
    decide = collection_steps.decide_cp_step

    def lies(state: MapState | None, request: Request, *, behind: bool = False) -> Decision | Wait:
        decision = decide(state, request, behind=behind)
        changes = isinstance(decision, Decision) and decision.updates
        # All replicas of a zone tell the same lie.
        if (
            request.op is operation
            and request.key
            and changes
            and random.Random(request.value).random() < 0.1
        ):
            assert isinstance(decision, Decision)
            return Decision(decision.answer)
        return decision

    monkeypatch.setattr(collection_steps, "decide_cp_step", lies)
    verdict = simulate(seed, journal="mixed", zones=zones)
    if operation is None:
        assert verdict.figures["cp_additions"] > 50
        assert verdict.figures["cp_holdings"] > 50
    assert any(problem.startswith("cp: ") for problem in verdict.problems) is (operation is not None)
