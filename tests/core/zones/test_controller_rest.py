"""When a zone controller is at rest: then it is called less often."""

from __future__ import annotations

import pytest
from tests.core.zones.controller_bench import PART, Bench, leading

from holdfast.core.zones.leader_duties import LeaderDuties
from holdfast.core.zones.replica_duties import ReplicaDuties
from holdfast.core.zones.work_queue import RETRY_MOST_MS, WorkKind, WorkQueue


@pytest.fixture
def bench() -> Bench:
    found = leading()
    found.settle()
    assert found.controller.rests
    return found


def test_outstanding_work_keeps_a_controller_awake(bench: Bench) -> None:
    bench.topology("ABC")
    bench.tell()
    assert not bench.controller.rests
    bench.settle()
    assert not bench.controller.rests, "the group changes its peers"


@pytest.mark.parametrize("duties", [WorkQueue, ReplicaDuties, LeaderDuties])
def test_a_controller_is_at_rest_when_all_its_parts_are(
    bench: Bench, duties: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "rests", property(lambda self: False))
    assert not bench.controller.rests


def test_a_queue_is_awake_for_woken_work_and_for_open_answers(bench: Bench) -> None:
    queue, work = bench.controller.queue, (WorkKind.GROUP, *PART)
    queue.wake(work)
    assert not queue.rests
    queue.go()
    assert (queue.woken, queue.rests) == (set(), False)
    bench.settle()
    assert queue.rests


@pytest.mark.parametrize(
    ("after_ms", "rests"), [(0, False), (RETRY_MOST_MS, False), (RETRY_MOST_MS + 1, True)]
)
def test_a_queue_is_awake_for_work_that_is_due_soon(bench: Bench, after_ms: int, *, rests: bool) -> None:
    queue = bench.controller.queue
    queue.step((WorkKind.GROUP, *PART)).due_ms = queue.now + after_ms
    assert queue.rests is rests


@pytest.mark.parametrize("waiting", ["_starting", "_unsettled", "_to_look"])
def test_replicas_that_start_or_wait_keep_their_duties_awake(bench: Bench, waiting: str) -> None:
    duties = bench.controller.replicas
    assert duties.rests
    setattr(duties, waiting, {PART: None})
    assert not duties.rests


@pytest.mark.parametrize("waiting", ["_changing", "_queued"])
def test_groups_that_change_or_are_to_change_keep_their_duties_awake(bench: Bench, waiting: str) -> None:
    duties = bench.controller.leading
    assert duties.rests
    setattr(duties, waiting, {PART: None})
    assert not duties.rests
