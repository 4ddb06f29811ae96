"""The judge of change streams speaks about each way in which one can tell wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast_lab.check.linearizability import UNTOLD, Call, Outcome
from holdfast_lab.check.streamed_changes import Told, judge

DONE = Outcome.DONE
CALLS = [
    Call("set", "k", 10, 20, DONE, "a"),
    Call("put", "k", 30, 40, DONE, "b", result="a"),
    Call("replace_if_same", "k", 50, 60, DONE, "c", expected="b", result=True),
    Call("replace_if_same", "k", 61, 62, DONE, "never", expected="b", result=False),
    Call("remove", "k", 70, 80, DONE, result="c"),
    Call("put_if_absent", "k", 90, 100, DONE, "d"),
    Call("delete", "k", 110, 120, DONE, result=True),
    Call("set", "k", 130, argument="e"),
    Call("set", "k", 142, 145, Outcome.REFUSED, "f"),
    Call("remove", "k", 150, 160, DONE, result=UNTOLD),
    Call("set", "j", 170, 180, DONE, "g"),
]


def stream(*changes: tuple[str | None, str | None], key: str = "k") -> list[Told]:
    return [Told(key, value, old, (1, 1, counter)) for counter, (value, old) in enumerate(changes, 1)]


TOLD = stream(("a", None), ("b", "a"), ("c", "b"), (None, "c"), ("d", None), (None, "d"), ("e", None))
TOLD += [Told("j", "g", None, (2, 1, 1))]


def test_what_was_done_is_told() -> None:
    assert judge(CALLS, TOLD) == []
    assert judge(CALLS, [one for one in TOLD if one.value != "e"]) == [], "it may not have been done"


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 7])
def test_what_is_left_out_is_missed(at: int) -> None:
    left = TOLD[:at] + TOLD[at + 1 :]
    assert any("is not told" in problem for problem in judge(CALLS, left))
    assert judge(CALLS, left, lambda key: 1000) == [], "the reader was told that it is forgotten"
    assert judge(CALLS, left, lambda key: 1000 if key == TOLD[at].key else 0) == []


@pytest.mark.parametrize("at", range(len(TOLD)))
def test_what_is_told_twice_is_noticed(at: int) -> None:
    again = [*TOLD, replace(TOLD[at], update=(1, 2, 99))]
    assert any("twice" in problem for problem in judge(CALLS, again))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("x", None), "x was never written there"),
        (("g", None), "g was never written there"),
        (("f", None), "f was refused"),
        ((None, "x"), "x was never written there"),
    ],
)
def test_what_is_invented_is_noticed(change: tuple[str | None, str | None], why: str) -> None:
    assert any(why in problem for problem in judge([*CALLS], [*TOLD[:-1], *stream(change)]))


def test_a_change_is_told_with_the_old_value_that_its_caller_knows() -> None:
    wrong = [TOLD[0], replace(TOLD[1], old=None), *TOLD[2:]]
    assert any("another old value" in problem for problem in judge(CALLS, wrong))
    wrong = [*TOLD[:2], replace(TOLD[2], old="a"), *TOLD[3:]]
    assert any("another old value" in problem for problem in judge(CALLS, wrong))
