"""The judge of queues: which histories it rejects, and what it says. For the others see `test_cp_user`."""

from __future__ import annotations

import pytest

from holdfast.core.model.cp import CpKind
from holdfast_lab.chaos.structure_calls import StructureHistory
from holdfast_lab.check.structure_histories import QueueHistory, judge_queue


def test_a_history_that_a_queue_explains() -> None:
    assert judge_queue(QueueHistory()) == []
    assert judge_queue(QueueHistory({"a", "b", "c"}, {"d", "e"}, ["b", "a", "d"], unknown=1)) == []


@pytest.mark.parametrize(
    ("history", "told"),
    [
        (QueueHistory({"a"}, set(), ["a", "a"]), "'a' was taken 2 times"),
        (QueueHistory({"a"}, set(), ["a", "b"]), "'b' was never added"),
        (QueueHistory({"a", "b", "c"}, {"d"}, ["a"], unknown=1), "2 items are lost by 1 requests"),
    ],
)
def test_a_history_that_no_queue_explains(history: QueueHistory, told: str) -> None:
    assert any(told in problem for problem in judge_queue(history))


def test_what_clients_have_noted_is_judged_together() -> None:
    one, other, whole = StructureHistory(), StructureHistory(), StructureHistory()
    held = {"asked_ns": 1, "since_ns": 2, "until_ns": 9, "fence": 1}
    for line in (
        {"what": "offer", "item": "a", "known": True},
        {"what": "offer", "item": "b", "known": False},
        {"what": "take", "known": False},
        {"what": "add", "start_ns": 1, "end_ns": 2, "former": 0},
        {"what": "lock", **held},
    ):
        one.note(line)
    for line in (
        {"what": "take", "item": "b", "known": True},
        {"what": "add", "start_ns": 3, "end_ns": 4, "former": None},
        {"what": "semaphore", **held},
        {"what": "count", "count": 2},
    ):
        other.note(line)
    for each in (one, other):
        whole.add(each)
    assert whole.problems() == []
    assert whole.counts() == {
        "items taken": 1,
        "additions": 1,
        "locks held": 1,
        "permits held": 1,
        "takes of unknown outcome": 1,
    }
    other.note({"what": str(CpKind.LOCK), **held, "since_ns": 5})
    other.note({"what": "take", "item": "c", "known": True})
    whole.add(other)
    found = " ".join(whole.problems())
    assert all(told in found for told in ("lock: a lock has 2 holders", "never added", "taken 2 times"))
