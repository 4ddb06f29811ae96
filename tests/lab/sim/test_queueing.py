"""The judge of queues: what each wrong history is called, and a run that has a queue."""

from __future__ import annotations

import random

import pytest

from holdfast.core.model.decisions import Decision, Wait
from holdfast.core.model.operations import Op, Request, Status
from holdfast.core.primary_backup import primary_copy
from holdfast.core.store.map_state import MapState
from holdfast_lab.sim.queueing import QueueCall, judge_history
from holdfast_lab.sim.run import simulate

OK, REFUSED = Status.OK, Status.NOT_READY


def offer(item: bytes, at: int, status: Status | None = OK) -> QueueCall:
    return QueueCall(item, True, at, at + 1, status)


def poll(item: bytes, at: int, status: Status | None = OK) -> QueueCall:
    return QueueCall(item, False, at, at + 1, status)


GOOD = [offer(b"a", 0), offer(b"b", 10), poll(b"a", 20), offer(b"c", 30, None), poll(b"b", 40), poll(b"", 50)]


def test_a_history_that_a_queue_explains() -> None:
    assert judge_history(GOOD, []) == []
    assert judge_history([*GOOD, offer(b"d", 60), poll(b"", 70, None)], []) == [], (
        "an unknown poll may have it"
    )
    assert judge_history([*GOOD, offer(b"d", 60), offer(b"e", 60)], [b"e", b"d"]) == [], "offered together"


@pytest.mark.parametrize(
    ("more", "left", "told"),
    [
        ([poll(b"a", 60)], [], "delivered, and again"),
        ([], [b"a"], "or still there"),
        ([offer(b"d", 60)], [], "are lost"),
        ([offer(b"d", 60, REFUSED), poll(b"d", 70)], [], "was refused"),
        ([poll(b"x", 60)], [], "never offered"),
        ([offer(b"d", 60), offer(b"e", 70), poll(b"e", 80), poll(b"d", 90)], [], "delivered before b'd'"),
        ([offer(b"d", 60), offer(b"e", 70), poll(b"e", 80)], [b"d"], "delivered before b'd'"),
        ([offer(b"d", 60), poll(b"", 70), poll(b"d", 80)], [], "when nothing was found"),
        ([offer(b"d", 60)], [b"d", b"d"], "there twice"),
    ],
)
def test_a_history_that_none_explains(more: list[QueueCall], left: list[bytes], told: str) -> None:
    assert any(told in problem for problem in judge_history([*GOOD, *more], left))


def keeps(decision: Decision) -> Decision:
    return Decision(decision.answer)


@pytest.mark.slow
@pytest.mark.parametrize("operation", [None, Op.TAKE_FROM_COLLECTION, Op.ADD_TO_COLLECTION])
def test_a_run_with_a_queue_shows_a_lost_and_a_repeated_item(
    monkeypatch: pytest.MonkeyPatch, operation: Op | None
) -> None:
    """Some polls keep the item that they answer, or some offers are acknowledged and add nothing."""
    decide, draw = primary_copy.decide_step, random.Random(1)

    def lies(state: MapState | None, request: Request, *times: int) -> Decision | Wait:
        decision = decide(state, request, *times)
        changes = isinstance(decision, Decision) and decision.updates
        if request.op is operation and changes and draw.random() < 0.05:
            assert isinstance(decision, Decision)
            return keeps(decision)
        return decision

    monkeypatch.setattr(primary_copy, "decide_step", lies)
    verdict = simulate(90_001, journal="mixed")
    assert verdict.figures["queue_items_delivered"] > 100
    assert any(problem.startswith("queue: ") for problem in verdict.problems) is (operation is not None)
