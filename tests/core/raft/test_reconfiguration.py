"""How a group gets to other peers: catching up, replacing and giving up a target, tokens, what a new leader does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from tests.core.raft.schedules import Schedule

from holdfast.core.raft.group import Group
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_state import CaughtUp, ChangeApplied, ChangeFailed, LeaderElected, RaftSettings
from holdfast.core.raft.reconfiguration import CHANGING, ChangeAnswer, ChangeStage, ChangeStep
from holdfast.errors import InvariantBroken
from holdfast_lab.sim.ablations.switching import ablated

SETTINGS = RaftSettings(election_ticks=6, heartbeat_ticks=2, catch_up_margin=3, catch_up_ticks=20)


class Group3(Schedule):
    """Three voters of five, one of which leads."""

    def __init__(self, voters: str = "abc") -> None:
        super().__init__(1, voters, SETTINGS)
        self.settle(40)
        self.propose(5)
        self.notices.clear()

    @property
    def lead(self) -> Group:
        assert self.leader is not None
        return self.leader

    def propose(self, count: int) -> None:
        for number in range(count):
            self.lead.propose([b"c%d" % number])
        self.go(6)

    def wants(self, voters: str, learners: str = "", token: int = 1, term: int | None = None) -> ChangeAnswer:
        return self.lead.change_peers(self.lead.term if term is None else term, voters, learners, token)

    def applied(self) -> list[tuple[str, int]]:
        return [
            ("".join(sorted(one.configuration.voters)), one.configuration.token)
            for one in self.notices
            if isinstance(one, ChangeApplied)
        ]

    def configurations(self) -> list[str]:
        log = self.lead.log
        entries = log.entries_from(log.first)
        return [str(entry.configuration) for entry in entries if entry.configuration is not None]


@pytest.mark.rule("raft/F-1")
def test_nothing_is_logged_before_the_new_voters_have_caught_up() -> None:
    group = Group3()
    group.cut = {"d"}
    assert group.wants("abd") is ChangeAnswer.STARTED
    group.go(10)
    assert group.configurations() == []
    group.cut = set()
    group.go(15)
    assert group.configurations() == ["voters=(a b d)&&(a b c) autoleave", "voters=(a b d)"]
    assert group.applied() == [("abd", 1)]
    assert group.lead.configuration.token == 1


def test_learners_are_not_waited_for() -> None:
    group = Group3()
    group.cut = {"d"}
    assert group.wants("abc", "d") is ChangeAnswer.STARTED
    group.go(10)
    assert group.applied() == [("abc", 1)]


@pytest.mark.rule("raft/F-4")
def test_who_gets_nothing_ends_the_change_and_who_gets_on_does_not() -> None:
    group = Group3()
    group.cut = {"d"}
    group.wants("abd")
    group.go(19)
    assert group.notices == []
    group.go(2)
    assert group.notices == [ChangeFailed(1, "d has made no progress for 20 ticks")]
    assert set(group.lead.leading.progress) == set("abc"), "it gets the log no more"  # type: ignore[union-attr]
    group.notices.clear()
    group.wants("abd")
    for _ in range(4):  # Its state comes from elsewhere, piece by piece.
        group.go(15)
        group.lead.leading.moved("d")  # type: ignore[union-attr]
    assert group.notices == []
    assert group.wants("abd") is ChangeAnswer.REPLACED, "it is asked for again, and goes on"


@pytest.mark.rule("raft/F-2")
def test_a_target_that_was_replaced_leaves_no_trace_and_what_was_sent_counts_on() -> None:
    group = Group3()
    group.cut = {"e"}
    assert group.wants("ade") is ChangeAnswer.STARTED
    group.go(5)
    progress = group.lead.leading.progress  # type: ignore[union-attr]
    sent_to_d = progress["d"].match
    assert sent_to_d == group.lead.log.last
    assert group.wants("abd", token=2) is ChangeAnswer.REPLACED
    assert group.lead.leading.progress["d"].match == sent_to_d  # type: ignore[union-attr]
    assert "e" not in group.lead.leading.progress  # type: ignore[union-attr]
    group.go(10)
    assert group.applied() == [("abd", 2)]


def test_a_change_is_given_up_only_by_its_token_and_in_time() -> None:
    group = Group3()
    group.cut = {"d"}
    group.wants("abd", token=4)
    assert group.lead.cancel_change(group.lead.term, 3), "of that one nothing comes, either"
    assert group.wants("abd", token=4) is ChangeAnswer.REPLACED
    assert group.lead.cancel_change(group.lead.term, 4)
    group.cut = set()
    group.go(20)
    assert group.configurations() == []
    assert not group.lead.cancel_change(group.lead.term - 1, 4)
    group.wants("abd", token=5)
    while not group.lead.configuration.joint:
        group.go()
    assert not group.lead.cancel_change(group.lead.term, 5), "it is in the log"
    assert group.wants("abe", token=6) is ChangeAnswer.BUSY
    group.go(10)
    assert group.applied() == [("abd", 5)]


@pytest.mark.rule("raft/F-3")
def test_an_older_token_or_term_has_no_effect() -> None:
    group = Group3()
    group.wants("abd", token=7)
    group.go(10)
    assert group.wants("abc", token=6) is ChangeAnswer.STALE
    assert group.wants("abc", token=8, term=group.lead.term - 1) is ChangeAnswer.OLD_TERM
    group.notices.clear()
    assert group.wants("abd", token=7) is ChangeAnswer.DONE
    group.go(5)
    assert group.applied() == [("abd", 7)], "it is told again"
    before = len(group.configurations())
    assert group.wants("abd", token=9) is ChangeAnswer.STARTED
    group.go(10)
    assert group.applied()[-1] == ("abd", 9)
    assert len(group.configurations()) == before + 2, "a new token goes through both entries, too"


def test_the_token_survives_a_snapshot_and_a_restart() -> None:
    group = Group3()
    group.wants("abd", token=7)
    group.go(10)
    for _ in range(40):
        group._compact()
    for replica in group.replicas.values():
        replica.group = None
    group.settle()
    assert group.wants("abc", token=6) is ChangeAnswer.STALE


def test_voters_and_learners_change_places_in_one_step() -> None:
    group = Group3()
    group.wants("abc", "d")
    group.go(10)
    assert group.wants("abd", "c", token=2) is ChangeAnswer.STARTED
    group.go(10)
    assert str(group.lead.configuration) == "voters=(a b d) learners=(c)"
    assert group.configurations()[2] == "voters=(a b d)&&(a b c) learners_next=(c) autoleave"


@pytest.mark.rule("raft/R-5")
def test_a_leader_that_is_removed_brings_it_to_an_end_and_goes() -> None:
    group = Group3()
    old = group.lead.me
    others = "".join(name for name in "abcd" if name != old)
    group.wants(others)
    alone = 0
    while (leader := group.leader) is None or leader.me == old:
        group.go()
        alone += leader is None
    assert alone < 5, "nobody waits for as long as an election takes"
    group.go(3)
    assert group.applied() == [(others, 1)]
    assert str(group.lead.configuration) == f"voters=({' '.join(others)})"


@pytest.mark.rule("raft/R-6")
def test_a_leader_that_is_removed_takes_nothing_of_which_it_would_not_hear() -> None:
    group = Group3()
    old = group.lead
    group.wants("".join(name for name in "abcd" if name != old.me))
    taken: list[int] = []
    while old.leading is not None:
        final = not old.configuration.joint and old.me not in old.configuration.voters
        try:
            index = old.propose([b"x"])
        except ProposalRefused:
            assert final
        else:
            assert index is not None and not final
            taken.append(index)
        group.go()
    assert taken and max(taken) <= old.log.committed


@pytest.mark.rule("raft/R-4")
def test_a_new_leader_goes_on_with_what_is_in_the_log() -> None:
    group = Group3()
    old = group.lead.me
    group.wants("abcde")
    while not group.lead.configuration.joint:
        group.go()
    group.go(1)
    group.notices.clear()
    group.cut = {old}
    group.go(60)
    assert group.lead.me != old
    assert group.applied() == [("abcde", 1)]
    elected = [one for one in group.notices if isinstance(one, LeaderElected)]
    assert [one.term for one in elected] == [group.lead.term]


def test_a_leader_that_steps_down_says_that_nothing_came_of_it() -> None:
    group = Group3()
    group.cut = {"d"}
    group.wants("abd", token=3)
    group.cut = set("abcd")
    group.go(20)
    assert ChangeFailed(3, "the leader has stepped down") in group.notices
    follower = next(r.group for r in group.replicas.values() if r.group and r.group.leading is None)
    with pytest.raises(ProposalRefused, match="only a leader"):
        follower.change_peers(1, "abc", "", 1)


def test_leadership_is_not_handed_over_while_the_peers_change() -> None:
    group = Group3()
    group.cut = {"d"}
    group.wants("abd")
    other = next(name for name in "abc" if name != group.lead.me)
    group.lead.transfer(other)
    assert group.lead.leading.transferee is None  # type: ignore[union-attr]
    group.lead.cancel_change(group.lead.term, 1)
    group.lead.transfer(other)
    assert group.wants("abd") is ChangeAnswer.BUSY
    group.go(4)
    assert group.lead.me == other


def test_what_is_not_in_the_table_of_a_change_is_told_by_name() -> None:
    assert {after for _, after in CHANGING.table.items()} == set(ChangeStage)
    with pytest.raises(InvariantBroken, match="'it is given up' cannot happen when it is 'joint'"):
        CHANGING.after(ChangeStage.JOINT, ChangeStep.CANCELLED)


@pytest.mark.rule("raft/E-6")
def test_after_a_reset_the_old_majority_is_not_listened_to_however_long_its_log() -> None:
    group = Group3()
    survivor = next(name for name in "abc" if name != group.lead.me)
    group.cut = {survivor}
    group.propose(7)  # The survivor does not have these: they are given up.
    alone = group.replicas[survivor].group
    assert alone is not None
    behind = alone.log.last
    assert group.lead.log.committed > behind
    assert alone.reset([survivor], 9) is ChangeAnswer.STARTED
    assert alone.reset([survivor], 9) is ChangeAnswer.STALE
    group.go(40)
    assert alone.leading is not None
    kept = alone.log.entries_from(alone.log.first)
    group.cut = set()
    for _ in range(10):
        for replica in group.replicas.values():
            if replica.name != survivor and replica.group is not None:
                replica.group.campaign()
        group.go(4)
    assert alone.log.entries_from(alone.log.first)[: len(kept)] == kept
    assert alone.change_peers(alone.term, "abc", "", 10) is ChangeAnswer.STARTED
    group.go(60)
    for name in "abc":
        replica = group.replicas[name].group
        assert replica is not None
        assert str(replica.configuration) == "voters=(a b c)"
        first = replica.log.first
        ours = alone.log.entries_from(first)
        assert replica.log.entries_from(first) == ours, "what they had is abandoned"


def test_a_reset_gives_up_a_change_that_is_catching_up() -> None:
    group = Group3()
    group.cut = {"d"}
    group.wants("abd")
    assert group.lead.reset("a", 5) is ChangeAnswer.STARTED


@pytest.mark.rule("raft/F-5")
def test_whoever_wants_it_is_asked_before_anything_is_logged() -> None:
    group = Group3()
    lead = group.lead
    assert lead.change_peers(lead.term, "abd", "", 4, asks=True) is ChangeAnswer.STARTED
    group.go(20)
    asked = [one for one in group.notices if isinstance(one, CaughtUp)]
    assert set(asked) == {CaughtUp(4)}
    assert 1 < len(asked) < 6, "again, after a while"
    assert group.configurations() == []
    assert not lead.agree_change(lead.term, 3)
    assert not lead.agree_change(lead.term - 1, 4)
    assert lead.change_peers(lead.term, "abe", "", 5, asks=True) is ChangeAnswer.REPLACED
    assert not lead.agree_change(lead.term, 4), "it is not the target any more"
    group.go(10)
    assert lead.agree_change(lead.term, 5)
    group.go(10)
    assert group.applied() == [("abe", 5)]


@pytest.mark.rule("raft/F-6")
def test_a_group_does_not_move_to_voters_most_of_whom_are_silent() -> None:
    """One of three has gone, and another one is to leave: the group stays what it is, and goes on."""
    group = Group3()
    leader = group.lead.me
    gone, leaving = [node for node in "abc" if node != leader]
    group.cut = {gone}
    group.go(2 * SETTINGS.election_ticks)
    assert group.wants(leader + gone) is ChangeAnswer.STARTED
    group.go(SETTINGS.catch_up_ticks + 5)
    assert [one for one in group.notices if isinstance(one, ChangeFailed)]
    assert group.configurations() == []
    group.propose(3)
    assert group.lead.log.committed == group.lead.log.last
    assert leaving in group.lead.configuration.voters
    # It moves when that one is back.
    group.cut = set()
    group.go(10)
    assert group.wants(leader + gone, token=2) is ChangeAnswer.STARTED
    group.go(10)
    assert ("".join(sorted(leader + gone)), 2) in group.applied()


@pytest.mark.parametrize(
    ("without", "shown_by"),
    [
        (lambda: ablated("catch-up"), test_nothing_is_logged_before_the_new_voters_have_caught_up),
        (lambda: ablated("change-token"), test_an_older_token_or_term_has_no_effect),
        (lambda: ablated("change-agreed"), test_whoever_wants_it_is_asked_before_anything_is_logged),
        (
            lambda: ablated("reset-fences"),
            test_after_a_reset_the_old_majority_is_not_listened_to_however_long_its_log,
        ),
    ],
)
def test_without_a_rule_these_fail(
    without: Callable[[], AbstractContextManager[None]], shown_by: Callable[[], None]
) -> None:
    with without(), pytest.raises(AssertionError):
        shown_by()
