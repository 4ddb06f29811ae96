"""The judge of locks: what each wrong history is called, and a run that has a lock."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast.core.model.collections import StepKind, decode_step
from holdfast.core.model.decisions import Decision, Wait
from holdfast.core.model.operations import Request
from holdfast.core.operations.lock_steps import decide_lock_step
from holdfast.core.primary_backup import primary_copy
from holdfast.core.store.key_locks import KeyLocks
from holdfast_lab.sim.lock_user import Hold, judge_holds
from holdfast_lab.sim.run import simulate

SEED = 95_000


def test_one_holder_after_the_other() -> None:
    assert judge_holds([Hold(1, 20, 30), Hold(0, 0, 10), Hold(0, 30)]) == []


@pytest.mark.parametrize("holds", [[Hold(0, 0, 10), Hold(1, 9, 20)], [Hold(0, 0), Hold(1, 50, 60)]])
def test_two_holders_at_a_time(holds: list[Hold]) -> None:
    (problem,) = judge_holds(holds)
    assert problem.startswith("client 1 had it at")


@pytest.mark.slow
@pytest.mark.parametrize("lies", [False, True])
def test_a_run_with_a_lock_shows_two_holders(monkeypatch: pytest.MonkeyPatch, *, lies: bool) -> None:
    """Some requests get the lock that another client has."""
    draw = random.Random(1)

    def lying(locks: KeyLocks, request: Request, now_ns: int) -> Decision | Wait:
        decision: Any = decide_lock_step(locks, request, now_ns)
        is_lock = decode_step(request.value).kind is StepKind.LOCK
        held_up = isinstance(decision, Wait) or decision.answer is False
        if lies and is_lock and held_up and draw.random() < 0.2:
            return Decision(True)
        return decision  # type: ignore[no-any-return]

    monkeypatch.setattr(primary_copy, "decide_lock_step", lying)
    verdict = simulate(SEED, journal="mixed")
    assert verdict.figures["locks_held"] > 50
    assert any(problem.startswith("lock: ") for problem in verdict.problems) is lies
