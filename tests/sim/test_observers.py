"""Observers in simulated runs: they see much, are content with members that tell the truth, and notice lies."""

from __future__ import annotations

import pytest

from holdfast.sim.lies import telling
from holdfast.sim.run import Verdict, simulate
from holdfast.sim.steady import Spans

SEED = 1


def one_run(seed: int, *lies: str) -> Verdict:
    with telling(lies):
        return simulate(seed)


def test_observers_see_something_and_are_content() -> None:
    verdict = one_run(SEED)
    assert verdict.problems == []
    for what in ("events_heard", "cuts_read", "reads_observed"):
        assert verdict.figures[what] > 100, what


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lie", "what"),
    [
        ("listener-misses", "was not heard"),
        ("listener-hears-twice", "heard before"),
        ("cut-later", "by cut"),
        ("view-version-stays", "the version has stayed"),
    ],
)
def test_observers_notice_what_is_told_wrong_to_them(lie: str, what: str) -> None:
    assert any(what in problem for problem in one_run(SEED, lie).problems)


def test_spans_hold_as_long_as_nothing_else_was_seen() -> None:
    spans: Spans[str] = Spans()
    for now, what in ((10, "a"), (20, "a"), (30, None), (40, "a"), (50, "b"), (60, "b")):
        spans.note(now, what)
    spans.note(70, "b", sure=False)
    assert [spans.over(*span) for span in ((10, 20), (12, 15), (40, 40), (51, 60))] == ["a", "a", "a", "b"]
    assert [spans.over(*span) for span in ((9, 20), (20, 40), (40, 50), (55, 65))] == [None] * 4
    spans.note(80, "b")
    assert spans.over(51, 80) == "b", "it has turned out to have been so"


def test_what_changes_in_the_very_moment_is_not_sure() -> None:
    """Seed 3208 with transactions: a member took office between a look and an answer of the same moment."""
    spans: Spans[str] = Spans()
    for now, what in ((10, "a"), (20, "a"), (20, "b"), (30, "b")):
        spans.note(now, what)
    assert [spans.over(*span) for span in ((10, 19), (10, 20), (20, 30), (21, 30))] == ["a", None, None, "b"]
