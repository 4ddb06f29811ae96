"""Without a rule the random schedules break. Not among the tests that judge mutants: they take long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import pytest
from tests.core.consensus.paper_judge import Broken
from tests.core.consensus.test_schedules import play

from holdfast.core.consensus import seat
from holdfast.core.consensus.raft_log import RaftLog
from holdfast.core.consensus.raft_messages import AFTER_DISK, RaftEntry, RaftKind
from holdfast.sim.ablations.switching import ablated


def _cuts_what_matches(patch: pytest.MonkeyPatch) -> None:
    def take(
        log: RaftLog, before: int, before_term: int, entries: Sequence[RaftEntry], commit: int
    ) -> int | None:
        if not log.matches(before, before_term):
            return None
        log._cut_from(max(before + 1, log.first))
        if entries and entries[0].index == log.last + 1:
            log._extend(entries)
        log.commit_to(min(commit, log.last))
        return log.last

    patch.setattr(RaftLog, "take", take)


@contextmanager
def votes_leaving_at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seat, "AFTER_DISK", AFTER_DISK - {RaftKind.VOTED})
        yield


@contextmanager
def cutting_what_matches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        _cuts_what_matches(patch)
        yield


Without = Callable[[], AbstractContextManager[None]]


@pytest.mark.parametrize(
    ("without", "first"),
    [
        pytest.param(votes_leaving_at_once, 60, marks=pytest.mark.rule("consensus/E-1")),
        pytest.param(lambda: ablated("append-durable"), 60, marks=pytest.mark.rule("consensus/R-2")),
        pytest.param(lambda: ablated("vote-for-complete"), 0, marks=pytest.mark.rule("consensus/E-2")),
        pytest.param(
            cutting_what_matches,
            225,
            marks=[pytest.mark.rule("consensus/L-1", "consensus/L-2"), pytest.mark.slow],
        ),
        pytest.param(lambda: ablated("matching-append"), 0),
        pytest.param(
            lambda: ablated("joint-majorities"),
            30,
            marks=[pytest.mark.rule("consensus/C-1"), pytest.mark.slow],
        ),
        pytest.param(lambda: ablated("read-index"), 0, marks=pytest.mark.rule("consensus/R-3")),
    ],
)
def test_without_a_rule_the_schedules_break(without: Without, first: int) -> None:
    """`first`: a seed from which on it takes only some more."""
    with without():
        for seed in range(first, first + 400):
            try:
                play(seed)
            except (Broken, AssertionError):
                return
    pytest.fail("nobody has noticed")
