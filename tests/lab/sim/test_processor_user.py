"""The judge of entry processors: what each wrong history is called, and a run that has one."""

from __future__ import annotations

from itertools import count

import pytest

from holdfast.core.messages import Answer
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import Op, Status
from holdfast.core.model.transactions import lock_key
from holdfast.core.primary_backup import primary_copy
from holdfast.core.primary_backup.primary_copy import PrimaryCopy
from holdfast.core.routing.router import Router
from holdfast_lab.sim.processor_user import ProcessorRunCall, judge_history
from holdfast_lab.sim.run import simulate

OK, FAILED, UNKNOWN = Status.OK, Status.PROCESSOR_FAILED, Status.UNKNOWN


def run(at: int, value: int = 0, status: Status | None = OK) -> ProcessorRunCall:
    return ProcessorRunCall(at, at + 5, status, value)


GOOD = [run(0, 1), run(10, 2), run(12, 3), run(20, status=FAILED), run(30, status=UNKNOWN)]


@pytest.mark.parametrize("left", [3, 4])
def test_a_history_that_a_counter_explains(left: int) -> None:
    assert judge_history(GOOD, left) == []


@pytest.mark.parametrize(
    ("more", "left", "problem"),
    [
        ([], 2, "the value is 2 after 3 runs"),
        ([], 5, "the value is 5 after 3 runs"),
        ([run(40, 3)], 4, "the same value"),
        ([run(40, 5), run(60, 4)], 5, "had ended before"),
    ],
)
def test_a_history_that_none_explains(more: list[ProcessorRunCall], left: int, problem: str) -> None:
    assert any(problem in found for found in judge_history([*GOOD, *more], left))


SEED = 99_504


@pytest.mark.slow
@pytest.mark.parametrize("lie", ["none", "no lock", "runs again"])
def test_a_run_with_a_processor_shows_lost_and_repeated_runs(
    monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    """The first answer to each forwarded request is lost, which is rare otherwise: a primary has to crash before."""
    lost: set[bytes] = set()
    heard = Router.on_answer

    def lose_first(router: Router, sender: MemberId, message: Answer) -> None:
        _, parked = router._sent.get(message.ticket, (sender, None))
        answered = parked is not None and message.outcome.status is OK and parked.request.op is Op.PROCESS
        if parked is None or not answered or parked.request.id in lost:
            heard(router, sender, message)
            return
        lost.add(parked.request.id)
        del router._sent[message.ticket]
        router.adopt(parked)

    monkeypatch.setattr(Router, "on_answer", lose_first)
    if lie == "no lock":
        others = count()
        monkeypatch.setattr(primary_copy, "lock_key", lambda name, key: lock_key(name, b"%d" % next(others)))
    elif lie == "runs again":
        again = PrimaryCopy._answer_again
        monkeypatch.setattr(
            PrimaryCopy,
            "_answer_again",
            lambda self, copy, request, done: (
                request.op is not Op.PROCESS and again(self, copy, request, done)
            ),
        )
    verdict = simulate(SEED)
    assert lost
    assert verdict.figures["processors_run"] > 100
    assert any(problem.startswith("processor: ") for problem in verdict.problems) is (lie != "none")
