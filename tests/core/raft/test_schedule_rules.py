"""Without a rule the random schedules break. Not among the tests that judge mutants: they take long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import pytest
from tests.core.raft.paper_judge import Broken
from tests.core.raft.schedules import Rivals, Schedule
from tests.core.raft.test_schedules import play

from holdfast.core.raft import raft_state
from holdfast.core.raft.group import Group, RaftReady
from holdfast.core.raft.raft_log import RaftLog
from holdfast.core.raft.raft_messages import AFTER_DISK, RaftEntry, RaftKind, RaftMessage
from holdfast_lab.sim.ablations.switching import ablated


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
        patch.setattr(raft_state, "AFTER_DISK", AFTER_DISK - {RaftKind.VOTED})
        yield


@contextmanager
def cutting_what_matches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        _cuts_what_matches(patch)
        yield


@contextmanager
def leading_before_its_own_vote_is_durable() -> Iterator[None]:
    """Whoever has a majority of the others leads: the own vote counts as one that has arrived."""

    def on_voted(group: Group, message: RaftMessage) -> None:
        group._votes.setdefault(group.me, True)
        decide(group, message)

    decide = Group._on_voted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Group, "_on_voted", on_voted)
        yield


@contextmanager
def not_writing_down_a_vote_in_a_known_term() -> Iterator[None]:
    def ready(group: Group, *, unstable: bool = False) -> RaftReady:
        before = group._told_hard
        wanted = whole(group, unstable=unstable)
        if wanted.hard is not None and wanted.hard.term == before.term and not wanted.entries:
            wanted.must_sync = False
        return wanted

    whole = Group.ready
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Group, "ready", ready)
        yield


Without = Callable[[], AbstractContextManager[None]]


@pytest.mark.parametrize(
    ("without", "kind"),
    [
        pytest.param(votes_leaving_at_once, Rivals, marks=pytest.mark.rule("raft/E-1")),
        pytest.param(leading_before_its_own_vote_is_durable, Rivals, marks=pytest.mark.rule("raft/E-1")),
        pytest.param(not_writing_down_a_vote_in_a_known_term, Rivals, marks=pytest.mark.rule("raft/E-1")),
        pytest.param(lambda: ablated("append-durable"), Rivals, marks=pytest.mark.rule("raft/R-2")),
        pytest.param(lambda: ablated("vote-for-complete"), Rivals, marks=pytest.mark.rule("raft/E-2")),
        pytest.param(cutting_what_matches, Rivals, marks=pytest.mark.rule("raft/L-1", "raft/L-2")),
        pytest.param(lambda: ablated("matching-append"), Rivals),
        pytest.param(lambda: ablated("joint-majorities"), Schedule, marks=pytest.mark.rule("raft/C-1")),
        pytest.param(lambda: ablated("read-index"), Rivals, marks=pytest.mark.rule("raft/R-3")),
    ],
)
def test_without_a_rule_the_schedules_break(without: Without, kind: type[Schedule]) -> None:
    with without():
        for seed in range(400):
            try:
                play(seed, kind=kind)
            except (Broken, AssertionError):
                print(f"noticed by seed {seed}")
                return
    pytest.fail("nobody has noticed")
