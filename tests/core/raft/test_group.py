"""One replica alone: what it must not say, count or believe, whatever it is told."""

from __future__ import annotations

import pytest

from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.group import Group, RaftReady
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_log import RaftLog
from holdfast.core.raft.raft_messages import HANDED_OVER, RaftEntry, RaftKind, RaftMessage, RaftSnapshot
from holdfast.core.raft.raft_state import HardState, RaftRole, RaftSettings

PLAIN = RaftSettings(pre_vote=False, check_quorum=False)


def group(
    me: str = "a",
    voters: str = "abc",
    *,
    terms: tuple[int, ...] = (),
    term: int = 0,
    learners: str = "",
    settings: RaftSettings = PLAIN,
) -> Group:
    """A replica whose log has entries of these terms after a snapshot at index 1, term 1."""
    snapshot = RaftSnapshot(1, 1, Configuration(frozenset(voters), learners=frozenset(learners)))
    entries = [RaftEntry(one, 2 + at, b"%d" % at) for at, one in enumerate(terms)]
    return Group(me, b"g", RaftLog(snapshot, entries), HardState(term or max(terms, default=1)), settings)


def done(replica: Group) -> RaftReady:
    """Everything that it wants is done at once."""
    ready = replica.ready()
    if ready.written is not None:
        replica.written(ready.written)
    for message in ready.after:
        if message.to == replica.me:
            replica.step(message)
    if ready.committed:
        replica.applied(ready.committed)
    return ready


def elected(replica: Group, by: str = "b") -> Group:
    replica.campaign()
    done(replica)
    for voter in by:
        kind = RaftKind.VOTED
        replica.step(RaftMessage(kind=kind, to=replica.me, sender=voter, term=replica.term))
    assert replica.role is RaftRole.LEADER
    done(replica)
    return replica


def says(replica: Group, kind: RaftKind, sender: str, **more: object) -> list[RaftMessage]:
    """What it says when it is told this, after its disk has done what it had to."""
    term = more.pop("term", replica.term)
    replica.step(RaftMessage(kind=kind, to=replica.me, sender=sender, term=term, **more))  # type: ignore[arg-type]
    ready = done(replica)
    return [*ready.messages, *ready.after]


@pytest.mark.rule("raft/R-1")
def test_an_entry_of_an_older_term_is_not_committed_by_counting() -> None:
    """Figure 8 of the paper: most hold it, and the next leader may still not."""
    leader = elected(group(voters="abcde", terms=(2,), term=3), by="bc")
    own = leader.log.last
    for follower in "bc":
        says(leader, RaftKind.APPENDED, follower, index=2)
    assert leader.log.committed == 1
    for follower in "bc":
        says(leader, RaftKind.APPENDED, follower, index=own)
    assert leader.log.committed == own


@pytest.mark.rule("raft/E-5")
def test_the_end_of_what_was_written_in_an_older_term_counts_for_nothing() -> None:
    """The same entries may have come, gone and come again: what is durable is perhaps the first ones."""
    replica = group(term=1)
    entry = RaftEntry(1, 2, b"x")
    replica.step(
        RaftMessage(kind=RaftKind.APPEND, to="a", sender="b", term=1, index=1, log_term=1, entries=(entry,))
    )
    first = replica.ready()
    replica.step(
        RaftMessage(
            kind=RaftKind.APPEND,
            to="a",
            sender="c",
            term=2,
            index=1,
            log_term=1,
            entries=(RaftEntry(2, 2, b"y"),),
        )
    )
    replica.ready()
    replica.step(
        RaftMessage(kind=RaftKind.APPEND, to="a", sender="b", term=3, index=1, log_term=1, entries=(entry,))
    )
    assert first.written is not None
    replica.written(first.written)
    assert replica.log.stable == 1


@pytest.mark.rule("raft/E-1")
def test_nothing_that_rests_on_a_term_or_vote_leaves_before_they_are_durable() -> None:
    replica = group()
    replica.step(RaftMessage(kind=RaftKind.VOTE, to="a", sender="b", term=5, index=9, log_term=4))
    ready = replica.ready()
    assert ready.must_sync
    assert ready.hard == HardState(5, "b", 1)
    assert [message.kind for message in ready.after] == [RaftKind.VOTED]
    assert not ready.messages
    other = says(replica, RaftKind.VOTE, "c", index=9, log_term=4, term=5)
    assert [message.refused for message in other] == [True], "one vote a term"


@pytest.mark.rule("raft/E-1")
@pytest.mark.parametrize("voters", ["abc", "bcd"])
def test_a_candidate_leads_only_when_its_own_vote_is_durable(voters: str) -> None:
    """Whatever the others say: after a crash it would lead in this term once more, with other entries."""
    candidate = group(voters="abc")
    others = [voter for voter in voters if voter != "a"]
    if "a" not in voters:  # It was removed, and does not know that to be committed.
        removal = RaftEntry(1, 2, configuration=Configuration(frozenset(voters)))
        append = RaftMessage(
            kind=RaftKind.APPEND, to="a", sender="b", term=1, index=1, log_term=1, entries=(removal,)
        )
        candidate.step(append)
        done(candidate)
    candidate.campaign()
    ready = candidate.ready()
    for voter in others:
        candidate.step(RaftMessage(kind=RaftKind.VOTED, to="a", sender=voter, term=2))
    assert candidate.role is RaftRole.CANDIDATE
    assert ready.hard == HardState(2, "a", 1)
    (mine,) = ready.after
    assert (mine.kind, mine.to) == (RaftKind.VOTED, "a")
    candidate.step(mine)
    assert candidate.role is RaftRole.LEADER


@pytest.mark.rule("raft/E-2")
def test_who_asks_for_a_vote_must_not_be_behind_by_term_first_and_then_by_length() -> None:
    for index, term, granted in ((3, 2, True), (4, 2, True), (2, 2, False), (9, 1, False), (2, 3, True)):
        replica = group(terms=(2, 2))
        (answer,) = says(replica, RaftKind.VOTE, "b", index=index, log_term=term, term=5)
        assert answer.refused is not granted


def test_a_learner_votes_for_it_may_be_a_voter_by_now() -> None:
    learner = group("d", learners="d")
    (answer,) = says(learner, RaftKind.VOTE, "b", index=1, log_term=1, term=5)
    assert not answer.refused


@pytest.mark.rule("raft/E-3")
def test_who_hears_of_a_leader_does_not_vote_unless_that_one_hands_over() -> None:
    sticky = RaftSettings()
    replica = group(settings=sticky)
    says(replica, RaftKind.HEARTBEAT, "b")
    for kind in (RaftKind.VOTE, RaftKind.PRE_VOTE):
        assert says(replica, kind, "c", term=9, index=9, log_term=8) == []
    assert replica.term == 1
    (answer,) = says(replica, RaftKind.VOTE, "c", term=9, index=9, log_term=8, context=HANDED_OVER)
    assert not answer.refused


@pytest.mark.rule("raft/E-4")
def test_who_is_no_voter_does_not_campaign() -> None:
    for replica in (group("d", learners="d"), group("x")):
        for _ in range(100):
            replica.tick()
        assert replica.role is RaftRole.FOLLOWER
        assert not replica.has_ready
    busy = group()
    snapshot = RaftSnapshot(9, 1, Configuration(frozenset("abc")))
    busy.step(RaftMessage(kind=RaftKind.SNAPSHOT, to="a", sender="b", term=1, snapshot=snapshot))
    for _ in range(100):
        busy.tick()
    assert busy.role is RaftRole.FOLLOWER, "it is busy with a snapshot"


@pytest.mark.rule("raft/L-1")
def test_an_older_append_that_agrees_takes_nothing_away() -> None:
    replica = group(terms=(1, 1, 1))
    (answer,) = says(replica, RaftKind.APPEND, "b", index=1, log_term=1, entries=(RaftEntry(1, 2, b"0"),))
    assert answer.index == 2
    assert replica.log.last == 4


@pytest.mark.rule("raft/L-2")
def test_what_is_committed_is_never_replaced() -> None:
    replica = group(terms=(1, 1))
    says(replica, RaftKind.HEARTBEAT, "b", commit=3)
    with pytest.raises(AssertionError, match="never replaced"):
        replica.log.take(1, 1, [RaftEntry(2, 2, b"other")], 1)


def test_a_configuration_goes_when_its_entry_is_replaced() -> None:
    replica = group()
    other = Configuration(frozenset("abd"))
    says(replica, RaftKind.APPEND, "b", index=1, log_term=1, entries=(RaftEntry(1, 2, configuration=other),))
    assert replica.configuration == other, "it is in force when it is in the log"
    says(replica, RaftKind.APPEND, "c", term=2, index=1, log_term=1, entries=(RaftEntry(2, 2, b"x"),))
    assert replica.configuration.voters == frozenset("abc")


def test_a_leader_takes_only_so_much_that_is_not_committed() -> None:
    leader = elected(group(settings=RaftSettings(pre_vote=False, uncommitted_bytes=10)))
    leader.propose([b"12345"])
    leader.propose([b"12345"])
    with pytest.raises(ProposalRefused, match="too much is not committed"):
        leader.propose([b"1"])
    done(leader)
    says(leader, RaftKind.APPENDED, "b", index=leader.log.last)
    leader.propose([b"1"])


@pytest.mark.rule("raft/P-1")
def test_a_follower_whose_log_is_not_known_gets_one_message_at_a_time() -> None:
    leader = elected(group())
    sent = [leader.propose([b"x"]) and done(leader).messages for _ in range(5)]
    assert not any(sent), "the first has not been answered"
    says(leader, RaftKind.APPENDED, "b", index=2)
    to = []
    for _ in range(3):
        leader.propose([b"x"])
        to += [message.to for message in done(leader).messages]
    assert to == ["b"] * 3, "that one gets a window of them, the other still none"


@pytest.mark.rule("raft/P-2")
def test_what_is_known_to_match_never_falls() -> None:
    leader = elected(group())
    says(leader, RaftKind.APPENDED, "b", index=2)
    says(leader, RaftKind.APPENDED, "b", index=1)
    says(leader, RaftKind.APPENDED, "b", index=2, refused=True, hint=0)
    assert leader.leading is not None
    assert leader.leading.progress["b"].match == 2


@pytest.mark.rule("raft/R-3")
def test_a_read_waits_for_the_first_entry_of_the_term_and_then_for_a_majority() -> None:
    leader = elected(group(voters="abcde"), by="bc")
    leader.read(b"early")
    assert done(leader).reads == []
    own = leader.log.last
    for follower in "bc":
        says(leader, RaftKind.APPENDED, follower, index=own)
    leader.read(b"late")
    assert done(leader).reads == []
    says(leader, RaftKind.HEARTBEAT_HEARD, "b", context=b"late")
    replica = leader
    message = RaftMessage(
        kind=RaftKind.HEARTBEAT_HEARD, to="a", sender="c", term=leader.term, context=b"late"
    )
    replica.step(message)
    assert [(read.context, read.upto) for read in replica.ready().reads] == [(b"early", own), (b"late", own)]


def test_a_group_of_one_needs_nobody() -> None:
    alone = group(voters="a")
    for _ in range(40):
        alone.tick()
        done(alone)
    assert alone.role is RaftRole.LEADER
    alone.propose([b"x"])
    done(alone)
    assert alone.log.committed == alone.log.last
    alone.read(b"r")
    assert [read.upto for read in done(alone).reads] == [alone.log.last]


AGAIN = RaftSettings(pre_vote=False, check_quorum=False, starts_voted=True)


def newcomer() -> Group:
    """A replica that has nothing."""
    return Group("a", b"g", RaftLog(), HardState(), AGAIN)


@pytest.mark.rule("raft/E-7")
def test_who_has_nothing_votes_for_nobody() -> None:
    replica = newcomer()
    (answer,) = says(replica, RaftKind.VOTE, "b", term=3, index=9, log_term=2)
    assert (answer.kind, answer.refused) == (RaftKind.VOTED, True)
    assert replica.hard.vote is None


@pytest.mark.rule("raft/E-7")
def test_who_had_nothing_has_voted_for_the_first_leader_of_whom_it_hears() -> None:
    """A replica that was here before may have: its member would vote twice in one term."""
    replica = newcomer()
    snapshot = RaftSnapshot(5, 2, Configuration(frozenset("abc")))
    says(replica, RaftKind.SNAPSHOT, "b", term=3, snapshot=snapshot)
    assert replica.hard.vote == "b"
    replica.forget_leader()
    (answer,) = says(replica, RaftKind.VOTE, "c", term=3, index=9, log_term=3)
    assert answer.refused
    (later,) = says(replica, RaftKind.VOTE, "c", term=4, index=9, log_term=3)
    assert not later.refused


@pytest.mark.rule("raft/P-2")
def test_who_has_nothing_any_more_is_sent_everything_again() -> None:
    replica = newcomer()
    answers = says(replica, RaftKind.HEARTBEAT, "b", term=3, commit=7)
    refusal = next(each for each in answers if each.kind is RaftKind.APPENDED)
    assert (refusal.refused, refusal.hint, refusal.log_term) == (True, 0, 0)
    leader = elected(group(settings=AGAIN))
    says(leader, RaftKind.APPENDED, "b", index=2)
    assert leader.leading is not None
    assert leader.leading.progress["b"].match == 2
    leader.leading.progress["b"].active = True
    sent = says(leader, RaftKind.APPENDED, "b", index=2, refused=True, hint=0)
    assert leader.leading.progress["b"].match == 0
    assert [each.kind for each in sent if each.to == "b"] == [RaftKind.SNAPSHOT]
