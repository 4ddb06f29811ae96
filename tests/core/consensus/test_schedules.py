"""Random schedules of a group: nothing that must not happen does, and without a rule it is seen to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.core.consensus.schedules import Broken, Schedule

from holdfast.core.consensus import seat
from holdfast.core.consensus.configuration import Configuration
from holdfast.core.consensus.leading import Leading, _Read
from holdfast.core.consensus.raft_log import RaftLog
from holdfast.core.consensus.raft_messages import AFTER_DISK, RaftEntry, RaftKind, RaftMessage


def play(seed: int, steps: int = 3000) -> Schedule:
    schedule = Schedule(seed)
    schedule.run(steps)
    schedule.compare()
    schedule.settle()
    schedule.compare()
    return schedule


@pytest.mark.parametrize("seed", range(0, 60, 10))
def test_a_group_keeps_its_promises(seed: int) -> None:
    for one in range(seed, seed + 10):
        schedule = play(one)
        assert schedule.leader is not None, f"{one}: when nothing bad happens any more somebody leads"
        assert schedule.leader.log.last == schedule.leader.log.committed, f"{one}: everything is committed"


def test_the_schedules_are_rich_enough() -> None:
    plays = [play(seed) for seed in range(20)]
    assert sum(len(one.leaders) for one in plays) > 60
    assert sum(len(one.answered) for one in plays) > 300
    assert sum(one.changed for one in plays) > 15
    assert sum(one.confirmed for one in plays) > 60


# -- without a rule

Patch = Callable[[pytest.MonkeyPatch], None]


def _votes_leave_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(seat, "AFTER_DISK", AFTER_DISK - {RaftKind.VOTED})


def _acknowledged_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(seat, "AFTER_DISK", AFTER_DISK - {RaftKind.APPENDED})


def _votes_for_anybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftLog, "up_to_date", lambda log, index, term: True)


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


def _new_voters_decide_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Configuration, "sets", property(lambda now: (now.voters, frozenset())))


def _reads_without_asking(patch: pytest.MonkeyPatch) -> None:
    def on_read(leading: Leading, message: RaftMessage) -> None:
        leading._answer(_Read(message.sender, message.context, leading._log.committed))

    patch.setattr(Leading, "on_read", on_read)


@pytest.mark.parametrize(
    ("without", "first"),
    [
        pytest.param(_votes_leave_at_once, 60, marks=pytest.mark.rule("consensus/E-1")),
        pytest.param(_acknowledged_at_once, 60, marks=pytest.mark.rule("consensus/R-2")),
        pytest.param(_votes_for_anybody, 0, marks=pytest.mark.rule("consensus/E-2")),
        pytest.param(_cuts_what_matches, 225, marks=pytest.mark.rule("consensus/L-1", "consensus/L-2")),
        pytest.param(_new_voters_decide_alone, 30, marks=pytest.mark.rule("consensus/C-1")),
        pytest.param(_reads_without_asking, 0, marks=pytest.mark.rule("consensus/R-3")),
    ],
)
def test_without_a_rule_the_schedules_break(
    without: Patch, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`first`: a seed from which on it takes only some more."""
    without(monkeypatch)
    for seed in range(first, first + 400):
        try:
            play(seed)
        except (Broken, AssertionError):
            return
    pytest.fail("nobody has noticed")
