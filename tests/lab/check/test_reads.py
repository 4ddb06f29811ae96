"""The judge of reads speaks about answers that go back in time, and about versions that do not fit their values."""

from __future__ import annotations

import pytest

from holdfast_lab.check.linearizability import Call, Outcome
from holdfast_lab.check.reads import Read, judge, judge_versions

DONE = Outcome.DONE
CALLS = [
    Call("set", "k", 10, 20, DONE, "a"),
    Call("set", "k", 30, 40, DONE, "b"),
    Call("set", "k", 35, 45, DONE, "b2"),
    Call("delete", "k", 50, 60, DONE, result=True),
    Call("set", "k", 70, 80, DONE, "c"),
    Call("set", "k", 85, argument="d"),
    Call("set", "k", 86, 90, Outcome.REFUSED, "f"),
    Call("set", "j", 90, 95, DONE, "g"),
]


def read(value: str | None, start: int, *, member: str = "m", version: int = 0) -> Read:
    return Read(member, "k", value, start, start + 1, version)


@pytest.mark.parametrize(
    "values",
    [
        ["a", "a", "b", "b2", "b", None, "c"],
        ["a", "c"],
        ["b", None, "c", "d", "c"],
        ["d", "a"],
        [None, "a"],
    ],
)
def test_answers_that_may_be(values: list[str | None]) -> None:
    """What was never acknowledged may be lost; what was written side by side has no order."""
    assert judge(CALLS, [read(value, 100 + 10 * at) for at, value in enumerate(values)]) == []


@pytest.mark.parametrize("values", [["b", "a"], ["c", "b"], ["a", "b2", "a"], ["c", "d", "a"], ["c", None]])
def test_answers_that_go_back(values: list[str | None]) -> None:
    (problem,) = judge(CALLS, [read(value, 100 + 10 * at) for at, value in enumerate(values)])
    assert f"answered {values[-1]}" in problem
    elsewhere = [read(value, 100 + 10 * at, member=f"m{at}") for at, value in enumerate(values)]
    assert judge(CALLS, elsewhere) == [], "another member may be behind"
    at_once = [read(value, 100) for value in values]
    assert judge(CALLS, at_once) == [], "questions that were under way together have no order"


def test_what_is_removed_later_was_there_before() -> None:
    removed = [Call("set", "k", 10, 20, DONE, "a"), Call("delete", "k", 50, 60, DONE, result=True)]
    assert judge(removed, [read("a", 25), read(None, 49)]) == [], (
        "the delete had begun when the read was answered"
    )
    (problem,) = judge(removed, [read("a", 25), read(None, 40)])
    assert "answered None" in problem


def test_absent_may_follow_whatever_has_a_time_to_live() -> None:
    timed = [Call("set", "k", 70, 80, DONE, "c", ttl=5)]
    assert judge(timed, [read("c", 90), read(None, 100)]) == []


@pytest.mark.parametrize(
    ("value", "why"), [("x", "never written"), ("g", "never written"), ("f", "was refused")]
)
def test_values_that_nobody_has_stored(value: str, why: str) -> None:
    (problem,) = judge(CALLS, [read(value, 100)])
    assert why in problem


def test_versions_change_with_the_value_and_only_with_it() -> None:
    fine = [read("a", 0, version=3), read("a", 10, member="n", version=3), read("b", 20, version=2)]
    assert judge_versions(fine) == []
    (problem,) = judge_versions([read("a", 0, version=3), read("b", 10, version=3)])
    assert "the version did not change with the value" in problem
    (problem,) = judge_versions([read("a", 0, version=3), read("a", 10, member="n", version=4)])
    assert "the version changed without the value" in problem
