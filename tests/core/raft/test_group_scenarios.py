"""Stories of one group: states in place of the log, changes of the peers, by the numbers of the scenarios."""

from __future__ import annotations

import pytest
from tests.core.raft.test_reconfiguration import Group3

from holdfast.core.raft.raft_messages import RaftSnapshot
from holdfast.core.raft.raft_state import ChangeApplied, ChangeFailed
from holdfast.core.raft.reconfiguration import ChangeAnswer


def compacted(group: Group3) -> None:
    """The log of everybody who is not cut off begins after all that is applied."""
    for replica in group.replicas.values():
        one = replica.group
        assert one is not None
        if replica.name not in group.cut and one.log.applied > one.log.base and one.log.snapshot is None:
            index = one.log.applied
            snapshot = RaftSnapshot(index, one.log.term(index), one.log.configuration_at(index))
            one.log.compact(index)
            replica.disk.compact(snapshot)


def lagging(group: Group3) -> str:
    """A follower that lacks what the others have forgotten, and is still cut off."""
    name = next(name for name in "abc" if name != group.lead.me)
    group.cut = {name}
    group.propose(6)
    group.go(2)
    compacted(group)
    assert group.lead.log.first > last(group, name)
    return name


def last(group: Group3, name: str) -> int:
    one = group.replicas[name].group
    assert one is not None
    return one.log.last


def everywhere(group: Group3, names: str = "abc") -> None:
    group.go(20)
    assert {last(group, name) for name in names} == {group.lead.log.last}
    group.compare()


def test_41_43_a_follower_that_lags_is_fed_by_a_state_and_then_by_the_log() -> None:
    group = Group3()
    behind = lagging(group)
    group.cut = set()
    group.propose(3)  # While it is fed.
    everywhere(group)
    assert group.replicas[behind].disk.snapshot.index > 1, "a state has come in place of the log"
    fed = last(group, behind)
    group.replicas[behind].start()
    assert last(group, behind) == fed, "after its restart it has it, too"
    group.propose(3)
    everywhere(group)


def test_44_who_was_fed_leads_and_feeds_who_led_before() -> None:
    group = Group3()
    behind, former = lagging(group), group.lead.me
    group.cut = set()
    everywhere(group)
    group.lead.transfer(behind)
    group.go(20)
    assert group.lead.me == behind
    group.cut = {former}
    group.propose(6)
    group.go(2)
    compacted(group)
    before = group.replicas[former].disk.snapshot.index
    group.cut = set()
    everywhere(group)
    assert group.replicas[former].disk.snapshot.index > before


@pytest.mark.parametrize("forgets", [False, True])
def test_46_the_leader_changes_while_a_follower_is_fed(*, forgets: bool) -> None:
    group = Group3()
    behind = next(name for name in "abc" if name != group.lead.me)
    former = group.lead.me
    (next_one,) = set("abc") - {behind, former}
    group.cut = {behind}
    group.propose(6)
    group.go(2)
    for replica in group.replicas.values():
        one = replica.group
        assert one is not None
        if replica.name == former or (forgets and replica.name == next_one):
            index = one.log.applied
            snapshot = RaftSnapshot(index, one.log.term(index), one.log.configuration_at(index))
            one.log.compact(index)
            replica.disk.compact(snapshot)
    group.cut = set()
    group.go(1)
    group.cut = {former}
    group.go(60)
    assert group.lead.me == next_one
    group.cut = set()
    group.propose(3)
    everywhere(group)


def test_50_an_older_term_or_token_has_no_effect_and_growing_tokens_follow_each_other() -> None:
    group = Group3()
    for token, voters in enumerate(("abd", "abc", "abe"), start=1):
        assert group.wants(voters, token=token) is ChangeAnswer.STARTED
        group.go(60)
    applied = group.applied()
    assert [token for _, token in applied] == sorted(token for _, token in applied)
    assert applied[-1] == ("abe", 3)
    assert group.wants("abc", token=2) is ChangeAnswer.STALE
    assert group.wants("abe", "c", token=2) is ChangeAnswer.STALE
    assert group.lead.reset([group.lead.me], 2) is ChangeAnswer.STALE
    group.go(20)
    assert group.applied() == applied


def test_51_one_voter_is_replaced_by_another_three_times_and_each_step_is_told_once() -> None:
    group = Group3("a")
    for token, (voter, learner) in enumerate((("b", "a"), ("c", "b"), ("d", "c")), start=1):
        assert group.wants(voter, learner, token=token) is ChangeAnswer.STARTED
        group.go(60)
        assert group.lead.me == voter
        told = [one for one in group.notices if isinstance(one, ChangeApplied)]
        assert [one.configuration.token for one in told].count(token) == 1
    group.propose(2)
    everywhere(group, "cd")


def test_52_a_new_voter_that_is_not_reached_is_told_later_and_the_request_is_taken() -> None:
    group = Group3()
    group.cut = {"d"}
    assert group.wants("abcd") is ChangeAnswer.STARTED
    group.go(25)
    assert [one.token for one in group.notices if isinstance(one, ChangeFailed)] == [1]
    assert group.applied() == []


def test_54_learners_are_lost_and_the_group_goes_on_and_moves_its_lead() -> None:
    group = Group3()
    group.wants("abc", "de")
    group.go(20)
    group.cut = set("de")
    group.propose(3)
    assert group.lead.log.committed == group.lead.log.last
    former = group.lead.me
    group.cut = {*"de", former}
    group.go(60)
    assert group.lead.me in set("abc") - {former}
    group.cut = set()
    everywhere(group, "abcde")


def test_48_two_followers_are_fed_at_the_same_time() -> None:
    group = Group3("abcde")
    behind = [name for name in "abcde" if name != group.lead.me][:2]
    group.cut = set(behind)
    group.propose(6)
    group.go(2)
    compacted(group)
    assert all(last(group, name) < group.lead.log.first for name in behind)
    group.cut = set()
    group.propose(3)
    everywhere(group, "abcde")
    assert all(group.replicas[name].disk.snapshot.index > 1 for name in behind)
