"""One replica, message by message: what it answers in each role, and when its time is up."""

from __future__ import annotations

import pytest
from tests.core.raft.test_group import AGAIN, PLAIN, done, elected, group, newcomer

from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.group import Group, RaftWritten
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_log import RaftLog
from holdfast.core.raft.raft_messages import HANDED_OVER, RaftEntry, RaftKind, RaftMessage, RaftSnapshot
from holdfast.core.raft.raft_state import (
    ChangeFailed,
    HardState,
    LeaderElected,
    RaftRole,
    RaftSettings,
    ReadAt,
)
from holdfast.core.raft.reconfiguration import ChangeAnswer

K = RaftKind
CAREFUL = RaftSettings()
ABC = Configuration(frozenset("abc"))


def step(replica: Group, kind: RaftKind, sender: str = "b", **more: object) -> list[RaftMessage]:
    """What it wants to send when it has got this; nothing is written yet."""
    term = more.pop("term", replica.term)
    replica.step(RaftMessage(kind=kind, to=replica.me, sender=sender, term=term, **more))  # type: ignore[arg-type]
    ready = replica.ready()
    return [*ready.messages, *ready.after]


def message(kind: RaftKind, to: str, term: int, **more: object) -> RaftMessage:
    return RaftMessage(kind=kind, to=to, sender="a", term=term, **more)  # type: ignore[arg-type]


def leader(settings: RaftSettings = PLAIN, voters: str = "abc") -> Group:
    """It leads in term 2, and its first entry, at 2, is committed."""
    replica = elected(group(voters=voters, settings=settings))
    for voter in voters[1 : len(voters) // 2 + 1]:
        replica.step(RaftMessage(kind=K.APPENDED, to="a", sender=voter, term=2, index=2))
    done(replica)
    assert replica.log.committed == 2
    return replica


def candidate(settings: RaftSettings = PLAIN, voters: str = "abc") -> Group:
    replica = group(voters=voters, settings=settings)
    replica.campaign()
    done(replica)
    return replica


# -- time


def test_replicas_and_terms_have_timeouts_of_their_own_from_one_election_to_two() -> None:
    drawn: dict[tuple[str, bytes], list[int]] = {}
    for me in "abc":
        for name in (b"g", b"h"):
            replicas = [Group(me, name, RaftLog(), HardState(term), CAREFUL) for term in range(200)]
            drawn[me, name] = [replica.timeout_ticks for replica in replicas]
            assert set(drawn[me, name]) == set(range(10, 20))
    assert len({tuple(each) for each in drawn.values()}) == 6


@pytest.mark.parametrize("settings", [PLAIN, CAREFUL])
def test_a_follower_campaigns_when_its_time_is_up_and_again_after_that(settings: RaftSettings) -> None:
    replica = group(settings=settings)
    for _ in range(3):
        wait = replica.timeout_ticks
        for _ in range(wait - 1):
            replica.tick()
            assert not replica.ready().messages
        replica.tick()
        asked = {each.kind for each in replica.ready().messages}
        assert asked == {K.PRE_VOTE if settings.pre_vote else K.VOTE}
    assert replica.term == (1 if settings.pre_vote else 4)


@pytest.mark.parametrize(
    ("kind", "more", "waits"),
    [
        (K.APPEND, {"index": 1, "log_term": 1}, True),
        (K.APPEND, {"index": 5, "log_term": 1}, True),
        (K.HEARTBEAT, {}, True),
        (K.VOTE, {"index": 1, "log_term": 1}, True),
        (K.VOTE, {"index": 1}, False),
        (K.PRE_VOTE, {"index": 1, "log_term": 1, "term": 2}, False),
        (K.READ, {}, False),
    ],
)
def test_hearing_of_a_leader_or_granting_a_vote_begins_the_wait_again(
    kind: RaftKind, more: dict[str, object], *, waits: bool
) -> None:
    replica = group()
    for _ in range(replica.timeout_ticks - 1):
        replica.tick()
    step(replica, kind, **more)
    for _ in range(replica.timeout_ticks - 1):
        replica.tick()
    assert (replica.role is RaftRole.FOLLOWER) is waits
    replica.tick()
    assert replica.role is not RaftRole.FOLLOWER


def test_a_leader_sends_heartbeats_and_asks_itself_for_a_majority() -> None:
    replica = leader(RaftSettings(election_ticks=5, heartbeat_ticks=2, pre_vote=False))
    beats = []
    for at in range(1, 15):
        replica.tick()
        beats += [at for each in done(replica).messages if each.kind is K.HEARTBEAT and each.to == "b"]
        if at == 6:
            replica.step(RaftMessage(kind=K.HEARTBEAT_HEARD, to="a", sender="c", term=2))
        assert replica.leading is not None
    assert beats == [2, 4, 6, 8, 10, 12, 14]
    replica.tick()
    assert (replica.role, replica.lead, replica.term) == (RaftRole.FOLLOWER, None, 2)
    silent = leader(RaftSettings(election_ticks=2, heartbeat_ticks=4, pre_vote=False))
    assert silent.change_peers(2, "abd", "", 7) is ChangeAnswer.STARTED
    for _ in range(4):
        done(silent)
        silent.tick()
    ready = silent.ready()
    assert (silent.leading, list(ready.messages)) == (None, [])
    assert list(ready.notices) == [ChangeFailed(7, "the leader has stepped down")]
    patient = leader(RaftSettings(pre_vote=False, check_quorum=False, catch_up_ticks=3, catch_up_margin=0))
    assert patient.change_peers(2, "abd", "", 7) is ChangeAnswer.STARTED
    failed = []
    for _ in range(4):
        failed.append([each for each in done(patient).notices if isinstance(each, ChangeFailed)])
        patient.tick()
    assert failed == [[], [], [], [ChangeFailed(7, "d has made no progress for 3 ticks")]]
    plain = leader(RaftSettings(election_ticks=5, pre_vote=False, check_quorum=False))
    for _ in range(20):
        plain.tick()
    assert plain.leading is not None


def test_a_new_leader_has_the_time_of_an_election_to_be_heard() -> None:
    replica = candidate(RaftSettings(election_ticks=5, pre_vote=False))
    for _ in range(4):
        replica.tick()
    step(replica, K.VOTED)
    for _ in range(4):
        replica.tick()
    assert replica.role is RaftRole.LEADER
    step(replica, K.HEARTBEAT_HEARD)
    replica.tick()
    assert replica.role is RaftRole.LEADER


def test_a_learner_votes_for_another_when_its_leader_is_silent() -> None:
    learner = group("d", learners="d", settings=CAREFUL)
    step(learner, K.HEARTBEAT)
    for _ in range(learner.timeout_ticks + 3):
        learner.tick()
    learner.campaign()
    assert learner.role is RaftRole.FOLLOWER
    (answer,) = step(learner, K.VOTE, "c", term=2, index=1, log_term=1)
    assert not answer.refused


def test_handing_over_is_given_up_after_the_time_of_an_election() -> None:
    replica = leader(RaftSettings(election_ticks=5, pre_vote=False, check_quorum=False))
    for _ in range(3):
        replica.tick()
    replica.transfer("b")
    for _ in range(4):
        replica.tick()
        with pytest.raises(ProposalRefused, match="handed over to b"):
            replica.propose([b"x"])
    replica.tick()
    replica.propose([b"x"])


# -- elections


def test_a_candidate_asks_everybody_else_and_itself() -> None:
    replica = group(terms=(1, 3))
    replica.campaign()
    ready = replica.ready()
    assert list(ready.messages) == [message(K.VOTE, to, 4, index=3, log_term=3) for to in "bc"]
    assert list(ready.after) == [message(K.VOTED, "a", 4)]
    assert (ready.hard, ready.must_sync) == (HardState(4, "a", 1), True)
    assert (ready.role, ready.lead, ready.leadership_changed) == (RaftRole.CANDIDATE, None, True)
    follower = group()
    step(follower, K.HEARTBEAT)
    follower.campaign()
    assert follower.lead is None
    joint = Group("a", b"g", RaftLog(RaftSnapshot(1, 1, Configuration(frozenset("ab"), frozenset("acd")))))
    joint.campaign()
    assert [each.to for each in joint.ready().messages] == ["b", "c", "d"]
    careful = group(terms=(1, 3), settings=CAREFUL)
    step(careful, K.HEARTBEAT)
    careful.campaign()
    ready = careful.ready()
    assert list(ready.messages) == [message(K.PRE_VOTE, to, 4, index=3, log_term=3) for to in "bc"]
    assert list(ready.after) == [message(K.PRE_VOTED, "a", 4)]
    assert (ready.hard, ready.role, ready.lead) == (None, RaftRole.PRE_CANDIDATE, None)
    over = group(settings=CAREFUL)
    over.campaign(handed_over=True)
    assert [(each.kind, each.context) for each in over.ready().messages] == [(K.VOTE, HANDED_OVER)] * 2


def test_a_pre_candidate_that_would_be_elected_campaigns() -> None:
    replica = candidate(CAREFUL)
    step(replica, K.VOTED, "c", term=1)
    assert replica.role is RaftRole.PRE_CANDIDATE
    sent = step(replica, K.PRE_VOTED, "c", term=2)
    assert [(each.kind, each.to, each.context) for each in sent] == [
        (K.VOTE, "b", b""), (K.VOTE, "c", b""), (K.VOTED, "a", b""),
    ]  # fmt: skip
    assert (replica.role, replica.term) == (RaftRole.CANDIDATE, 2)
    replica.step(sent[2])
    step(replica, K.PRE_VOTED, "c", term=2)
    assert replica.role is RaftRole.CANDIDATE, "that was asked before"


def test_the_first_answer_of_each_voter_counts_and_a_majority_decides() -> None:
    replica = candidate(voters="abcde")
    for voter, refused in (("b", True), ("b", False), ("c", False), ("c", True)):
        step(replica, K.VOTED, voter, refused=refused)
    assert replica.role is RaftRole.CANDIDATE
    sent = step(replica, K.VOTED, "d")
    assert (replica.role, replica.lead) == (RaftRole.LEADER, "a")
    assert {each.kind for each in sent if each.to != "a"} == {K.APPEND}
    assert sorted(each.to for each in sent) == list("abcde")
    lost = candidate(voters="abcde")
    for voter in "bc":
        step(lost, K.VOTED, voter, refused=True)
        assert lost.role is RaftRole.CANDIDATE
    step(lost, K.VOTED, "d", refused=True)
    assert (lost.role, lost.term) == (RaftRole.FOLLOWER, 2)
    again = candidate(CAREFUL, voters="abcde")
    step(again, K.PRE_VOTED, "b", term=1, refused=True)
    again.campaign()
    done(again)
    for voter in "bc":
        step(again, K.PRE_VOTED, voter, term=2)
    assert again.role is RaftRole.CANDIDATE, "each campaign counts for itself"


@pytest.mark.rule("raft/E-2")
@pytest.mark.parametrize(
    ("vote", "lead", "kind", "term", "granted"),
    [
        (None, None, K.VOTE, 5, True),
        ("b", None, K.VOTE, 5, True),
        ("c", None, K.VOTE, 5, False),
        ("c", None, K.VOTE, 6, True),
        (None, "c", K.VOTE, 5, False),
        ("b", "c", K.VOTE, 5, True),
        (None, None, K.PRE_VOTE, 5, True),
        ("c", None, K.PRE_VOTE, 5, False),
        ("c", None, K.PRE_VOTE, 6, True),
        ("c", "c", K.PRE_VOTE, 6, True),
    ],
)
def test_who_gets_the_vote(
    vote: str | None, lead: str | None, kind: RaftKind, term: int, *, granted: bool
) -> None:
    replica = Group("a", b"g", RaftLog(RaftSnapshot(1, 1, ABC)), HardState(5, vote, 1), PLAIN)
    if lead is not None:
        step(replica, K.HEARTBEAT, lead)
    (answer,) = step(replica, kind, "b", term=term, index=1, log_term=1)
    answers = {K.VOTE: K.VOTED, K.PRE_VOTE: K.PRE_VOTED}
    said = term if granted else replica.term
    assert answer == message(answers[kind], "b", said, refused=not granted)
    if kind is K.PRE_VOTE:
        assert replica.hard == HardState(5, vote, 1), "it promises nothing"
    elif granted:
        assert replica.hard.vote == "b"
    behind = Group("a", b"g", RaftLog(RaftSnapshot(2, 1, ABC)), HardState(5, vote, 2), PLAIN)
    (answer,) = step(behind, kind, "b", term=term, index=1, log_term=1)
    assert answer.refused


@pytest.mark.rule("raft/E-3")
def test_a_voter_sticks_to_its_leader_for_the_time_of_an_election() -> None:
    replica = group(settings=CAREFUL)
    step(replica, K.HEARTBEAT)
    for _ in range(9):
        replica.tick()
    assert step(replica, K.VOTE, "c", term=2, index=1, log_term=1) == []
    replica.tick()
    assert step(replica, K.VOTE, "c", term=2, index=1, log_term=1) == [message(K.VOTED, "c", 2)]
    free = group(settings=RaftSettings(check_quorum=False))
    step(free, K.HEARTBEAT)
    assert step(free, K.VOTE, "c", term=2, index=1, log_term=1)
    assert step(group(settings=CAREFUL), K.VOTE, "c", term=2, index=1, log_term=1), "it has no leader"


# -- terms


@pytest.mark.parametrize(
    ("kind", "more", "term", "lead"),
    [
        (K.HEARTBEAT, {}, 9, "b"),
        (K.APPEND, {"index": 1, "log_term": 1}, 9, "b"),
        (K.SNAPSHOT, {"snapshot": RaftSnapshot(1, 1, ABC)}, 9, "b"),
        (K.VOTE, {}, 9, None),
        (K.APPENDED, {}, 9, None),
        (K.VOTED, {"refused": True}, 9, None),
        (K.PRE_VOTED, {"refused": True}, 9, None),
        (K.PRE_VOTED, {}, 2, None),
        (K.PRE_VOTE, {}, 2, None),
        (K.PROPOSE, {}, 2, None),
        (K.READ, {}, 2, None),
        (K.TRANSFER, {}, 2, None),
    ],
)
@pytest.mark.parametrize("role", [RaftRole.FOLLOWER, RaftRole.CANDIDATE, RaftRole.LEADER])
def test_a_higher_term_counts_where_it_has_come(
    role: RaftRole, kind: RaftKind, more: dict[str, object], term: int, lead: str | None
) -> None:
    makes = {RaftRole.FOLLOWER: lambda: group(term=2), RaftRole.CANDIDATE: candidate, RaftRole.LEADER: leader}
    replica = makes[role]()
    step(replica, kind, term=9, **more)
    if term == 9:
        assert (replica.role, replica.lead, replica.term) == (RaftRole.FOLLOWER, lead, 9)
        assert replica.leading is None
    else:
        assert (replica.role, replica.term) == (role, 2)


@pytest.mark.parametrize(
    ("kind", "plain", "careful"),
    [
        (K.HEARTBEAT, [], [message(K.APPENDED, "b", 5)]),
        (K.APPEND, [], [message(K.APPENDED, "b", 5)]),
        (K.SNAPSHOT, [], []),
        (K.VOTE, [], []),
        (K.PRE_VOTE, [message(K.PRE_VOTED, "b", 5, refused=True)], [message(K.PRE_VOTED, "b", 5, refused=True)]),
        (K.VOTED, [], []),
        (K.TIMEOUT_NOW, [], []),
    ],
)  # fmt: skip
def test_an_older_term_is_told_of_this_one_or_not_answered(
    kind: RaftKind, plain: list[RaftMessage], careful: list[RaftMessage]
) -> None:
    one_of_them = [
        RaftSettings(pre_vote=False),
        RaftSettings(check_quorum=False),
    ]
    for settings, expected in ((PLAIN, plain), *((each, careful) for each in one_of_them)):
        replica = group(term=5, settings=settings)
        assert step(replica, kind, term=4, index=9, log_term=9) == expected
        assert (replica.role, replica.lead, replica.term) == (RaftRole.FOLLOWER, None, 5)


def test_a_follower_that_sticks_to_its_leader_follows_the_next_one() -> None:
    replica = group(settings=CAREFUL)
    step(replica, K.HEARTBEAT)
    step(replica, K.HEARTBEAT, "c", term=2)
    assert (replica.lead, replica.term) == ("c", 2)


def test_answers_to_a_leader_that_has_gone_are_passed_on_to_nobody() -> None:
    replica = group()
    step(replica, K.HEARTBEAT)
    for kind in (K.APPENDED, K.HEARTBEAT_HEARD, K.VOTED, K.PRE_VOTED):
        assert step(replica, kind, "c") == []


def test_a_leader_of_the_same_term_ends_a_campaign() -> None:
    for kind in (K.HEARTBEAT, K.APPEND):
        replica = candidate()
        step(replica, kind, "c", index=1, log_term=1)
        assert (replica.role, replica.lead, replica.hard.vote) == (RaftRole.FOLLOWER, "c", "a")
        asking = candidate(CAREFUL)
        step(asking, kind, "c", index=1, log_term=1)
        assert (asking.role, asking.lead) == (RaftRole.FOLLOWER, "c")


# -- following


def test_a_follower_acknowledges_what_it_has_taken_and_says_where_it_may_match() -> None:
    replica = group(terms=(1, 1, 2))
    part = (RaftEntry(2, 5, b"x"),)
    for index, log_term, entries, answer in (
        (4, 2, part, {"index": 5}),
        (1, 1, (), {"index": 1}),
        (9, 3, (), {"index": 9, "refused": True, "hint": 5, "log_term": 2}),
        (4, 3, (), {"index": 4, "refused": True, "hint": 4, "log_term": 2}),
        (4, 1, (), {"index": 4, "refused": True, "hint": 3, "log_term": 1}),
    ):
        sent = step(replica, K.APPEND, index=index, log_term=log_term, entries=entries)
        assert sent == [message(K.APPENDED, "b", 2, **answer)]
    assert replica.lead == "b"


def test_what_comes_before_the_committed_place_is_acknowledged_up_to_there() -> None:
    replica = group(terms=(1, 1, 1))
    step(replica, K.HEARTBEAT, commit=3)
    assert replica.log.committed == 3
    entries = (RaftEntry(1, 3, b"1"), RaftEntry(1, 4, b"2"))
    sent = step(replica, K.APPEND, index=2, log_term=1, entries=entries, commit=4)
    assert (sent, replica.log.committed) == ([message(K.APPENDED, "b", 1, index=3)], 3)
    (answer,) = step(replica, K.APPEND, index=3, log_term=1, entries=entries[1:], commit=4)
    assert (answer.index, replica.log.committed) == (4, 4)


@pytest.mark.rule("raft/L-2")
def test_a_follower_commits_no_more_than_a_message_has_shown_to_match() -> None:
    """Its own end may be another leader's: with entries 3 and 4 of a deposed leader, 2 alone is known to match."""
    replica = group(terms=(1, 2, 2), term=3)
    step(replica, K.APPEND, index=1, log_term=1, entries=(RaftEntry(1, 2, b"0"),), commit=4)
    assert (replica.log.committed, replica.log.last) == (2, 4)
    step(replica, K.APPEND, index=2, log_term=1, entries=(RaftEntry(3, 3, b"new"),), commit=4)
    assert (replica.log.committed, replica.log.last) == (3, 3)


def test_a_heartbeat_is_answered_and_commits_what_is_here() -> None:
    replica = group(terms=(1, 1))
    assert step(replica, K.HEARTBEAT, context=b"r", commit=2) == [
        message(K.HEARTBEAT_HEARD, "b", 1, context=b"r")
    ]
    assert replica.log.committed == 2
    step(replica, K.HEARTBEAT, commit=9)
    assert replica.log.committed == 2, "it does not know what it lacks"
    replica = group(settings=AGAIN)
    assert [each.kind for each in step(replica, K.HEARTBEAT, commit=9)] == [K.HEARTBEAT_HEARD], (
        "it has something"
    )
    (refusal, _) = sorted(step(newcomer(), K.HEARTBEAT, term=3, commit=7), key=lambda each: each.kind)
    assert refusal == message(K.APPENDED, "b", 3, index=7, refused=True)
    empty = Group("a", b"g", RaftLog(), HardState(), PLAIN)
    assert [each.kind for each in step(empty, K.HEARTBEAT, term=3, commit=7)] == [K.HEARTBEAT_HEARD]
    assert empty.hard.vote is None
    assert not step(empty, K.VOTE, term=4)[0].refused, "it is the first one of its node"
    voted = Group("a", b"g", RaftLog(), HardState(3, "c"), AGAIN)
    step(voted, K.HEARTBEAT, term=3)
    assert voted.hard.vote == "c"
    known = group(term=3, settings=AGAIN)
    step(known, K.HEARTBEAT, term=3)
    assert known.hard.vote is None


def test_a_snapshot_is_installed_where_the_log_does_not_have_it() -> None:
    replica = group(terms=(1, 1))
    snapshot = RaftSnapshot(3, 1, ABC)
    assert step(replica, K.SNAPSHOT, snapshot=snapshot) == [message(K.APPENDED, "b", 1, index=3)]
    assert (replica.log.committed, replica.log.snapshot) == (3, None), "the log has it"
    (answer,) = step(replica, K.SNAPSHOT, snapshot=RaftSnapshot(3, 2, ABC))
    assert (answer.index, replica.log.snapshot) == (3, None), "no more is taken back"
    newer = RaftSnapshot(3, 2, ABC)
    replica = group(terms=(1, 1))
    replica.step(RaftMessage(kind=K.SNAPSHOT, to="a", sender="b", term=2, snapshot=newer))
    assert replica.has_ready
    ready = replica.ready()
    assert (ready.snapshot, [each.index for each in ready.after]) == (newer, [3])
    assert ready.written == RaftWritten(2, (0, 0), 3)
    assert replica.ready().snapshot is None, "once"
    assert not replica.has_ready
    step(replica, K.APPEND, term=2, index=3, log_term=2, entries=(RaftEntry(2, 4),), commit=4)
    assert replica.ready().committed == (), "not before the state is there"
    replica.written(RaftWritten(1, (4, 2), 3))
    assert (replica.log.snapshot, replica.log.stable, replica.log.applied) == (None, 3, 3)
    replica.written(RaftWritten(2, (4, 2), 0))
    assert [entry.index for entry in replica.ready().committed] == [4]


@pytest.mark.parametrize("kind", [K.PROPOSE, K.READ, K.TRANSFER])
def test_what_only_a_leader_can_do_is_passed_on_to_it(kind: RaftKind) -> None:
    entries = (RaftEntry(0, 0, b"x"),)
    replica = group()
    assert step(replica, kind, "c", entries=entries, context=b"r") == []
    step(replica, K.HEARTBEAT)
    passed = RaftMessage(kind=kind, to="b", sender="c", entries=entries, context=b"r")
    assert step(replica, kind, "c", entries=entries, context=b"r") == [passed]
    asking = candidate(CAREFUL)
    assert step(asking, kind, "c") == []


def test_what_a_follower_does_when_it_is_told_to() -> None:
    replica = group(settings=CAREFUL)
    sent = step(replica, K.TIMEOUT_NOW)
    assert [(each.kind, each.context) for each in sent if each.to != "a"] == [(K.VOTE, HANDED_OVER)] * 2
    replica = group()
    replica.step(RaftMessage(kind=K.READ_AT, to="a", sender="b", term=1, index=7, context=b"r"))
    assert list(replica.ready().reads) == [ReadAt(b"r", 7)]
    assert step(candidate(), K.TIMEOUT_NOW) == []


# -- leading


def test_what_a_leader_does_with_what_others_ask() -> None:
    replica = leader()
    sent = step(replica, K.PROPOSE, "c", entries=(RaftEntry(0, 0, b"x"), RaftEntry(0, 0, b"y")))
    assert [entry.data for entry in replica.log.entries_from(3)] == [b"x", b"y"]
    assert [each.to for each in sent if each.kind is K.APPEND] == ["b"], "the other one is probed"
    beats = step(replica, K.READ, "c", context=b"r")
    assert [(each.kind, each.to) for each in beats] == [(K.HEARTBEAT, "b"), (K.HEARTBEAT, "c")]
    confirmed = step(replica, K.HEARTBEAT_HEARD, "b", context=b"r")
    assert message(K.READ_AT, "c", 2, index=2, context=b"r") in confirmed
    step(replica, K.APPENDED, "b", index=4)
    assert step(replica, K.TRANSFER, "b") == [message(K.TIMEOUT_NOW, "b", 2)]
    assert step(replica, K.PROPOSE, "c", entries=(RaftEntry(0, 0, b"x"),)) == [], "it is handing over"
    replica = leader()
    assert step(replica, K.READ_AT, "c", context=b"r", index=3) == []
    assert step(replica, K.VOTED, "c") == []
    assert replica.leading is not None and replica.leading.transferee is None
    assert not replica.ready().reads


def test_a_leader_neither_campaigns_nor_forgets_itself() -> None:
    replica = leader()
    replica.campaign()
    replica.forget_leader()
    assert (replica.role, replica.lead, replica.term) == (RaftRole.LEADER, "a", 2)


def test_only_a_leader_takes_orders() -> None:
    follower = group()
    for order in (
        lambda: follower.propose([b"x"]),
        lambda: follower.read(b"r"),
        lambda: follower.change_peers(1, "abc", "", 1),
        lambda: follower.agree_change(1, 1),
        lambda: follower.cancel_change(1, 1),
        lambda: follower.change(ABC),
    ):
        with pytest.raises(ProposalRefused):
            order()
    follower.transfer("b")
    assert not follower.has_ready
    step(follower, K.HEARTBEAT)
    assert follower.propose([b"x", b"y"]) is None
    follower.read(b"r")
    follower.transfer("c")
    sent = follower.ready().messages
    assert list(sent) == [
        RaftMessage(
            kind=K.PROPOSE, to="b", sender="a", entries=(RaftEntry(0, 0, b"x"), RaftEntry(0, 0, b"y"))
        ),
        RaftMessage(kind=K.READ, to="b", sender="a", context=b"r"),
        RaftMessage(kind=K.TRANSFER, to="b", sender="c"),
    ]
    asking = candidate()
    with pytest.raises(ProposalRefused, match="no leader is known"):
        asking.propose([b"x"])
    assert leader().propose([b"x", b"y"]) == 4


@pytest.mark.rule("raft/R-5")
@pytest.mark.parametrize(("transfers_when_removed", "leads"), [(True, False), (False, False), (True, True)])
def test_a_leader_that_was_removed_goes_and_asks_another_to_campaign(
    *, transfers_when_removed: bool, leads: bool
) -> None:
    settings = RaftSettings(
        pre_vote=False,
        check_quorum=False,
        transfers_when_removed=transfers_when_removed,
        keeps_leading_when_removed=leads,
    )
    replica = leader(settings)
    assert replica.change(Configuration(frozenset("bcd"))) == 3
    done(replica)
    for voter in "bc":
        replica.step(RaftMessage(kind=K.APPENDED, to="a", sender=voter, term=2, index=3))
    asked = [each.to for each in replica.ready().messages if each.kind is K.TIMEOUT_NOW]
    assert asked == (["b"] if transfers_when_removed and not leads else [])
    assert (replica.leading is not None) is leads


def test_a_leader_of_one_goes_at_once_to_other_peers() -> None:
    """What was asked for goes on in the same step where nothing has to be waited for."""
    replica = leader(voters="a")
    assert replica.change_peers(2, "a", "b", 1) is ChangeAnswer.STARTED
    assert replica.configuration.joint
    replica = leader(voters="a")
    assert replica.change_peers(2, "a", "b", 1, asks=True) is ChangeAnswer.STARTED
    assert not replica.agree_change(2, 2)
    assert replica.agree_change(2, 1)
    assert replica.configuration.joint
    replica = leader(voters="a")
    assert replica.change_peers(2, "ac", "", 1) is ChangeAnswer.STARTED
    replica.transfer("a")
    assert replica.leading is not None and replica.leading.transferee is None
    assert replica.cancel_change(2, 1)


def test_a_follower_that_forgets_its_leader_votes_for_another() -> None:
    replica = group(settings=CAREFUL)
    step(replica, K.HEARTBEAT)
    replica.forget_leader()
    assert replica.lead is None
    assert step(replica, K.VOTE, "c", term=2, index=1, log_term=1)
    leased = group(settings=RaftSettings(lease_reads=True))
    step(leased, K.HEARTBEAT)
    leased.forget_leader()
    assert leased.lead == "b"


def test_whether_a_leader_has_anything_under_way() -> None:
    assert group().rests
    assert candidate().rests
    replica = leader()
    assert replica.rests
    replica.read(b"r")
    assert not replica.rests
    step(replica, K.HEARTBEAT_HEARD, context=b"r")
    assert replica.rests
    assert replica.change_peers(2, "abd", "", 1) is ChangeAnswer.STARTED
    assert not replica.rests
    assert replica.cancel_change(2, 1)
    assert replica.rests
    replica.transfer("c")
    assert not replica.rests


# -- generations


@pytest.mark.rule("raft/E-6")
def test_a_reset_is_refused_where_it_is_old_or_too_late() -> None:
    replica = group(terms=(1, 1), term=4)
    assert replica.reset("a", 0) is ChangeAnswer.STALE
    assert replica.reset("a", 3) is ChangeAnswer.STARTED
    assert (replica.generation, replica.term, replica.lead) == (3, 5, None)
    assert replica.configuration == Configuration(frozenset("a"), token=3)
    assert replica.log.entries_from(4) == (RaftEntry(5, 4, configuration=replica.configuration),)
    assert replica.ready().hard == HardState(5, None, 1, 3)
    assert replica.reset("a", 3) is ChangeAnswer.STALE
    tokens = Configuration(frozenset("abc"), token=6)
    for generation, token, answer in (
        (2, 6, "STALE"),
        (2, 7, "STARTED"),
        (9, 8, "STALE"),
        (9, 10, "STARTED"),
    ):
        old = Group("a", b"g", RaftLog(RaftSnapshot(1, 1, tokens)), HardState(1, None, 1, generation), PLAIN)
        assert old.reset("a", token) is ChangeAnswer[answer]
    busy = leader()
    assert busy.change_peers(2, "ab", "", 2) is ChangeAnswer.STARTED
    busy.step(RaftMessage(kind=RaftKind.HEARTBEAT_HEARD, to="a", sender="b", term=2))
    assert busy.configuration.joint
    assert busy.reset("a", 9) is ChangeAnswer.BUSY
    done(busy)
    for index in (3, 4):
        busy.step(RaftMessage(kind=K.APPENDED, to="a", sender="b", term=2, index=index))
        assert busy.reset("a", 9) is (ChangeAnswer.BUSY if index == 3 else ChangeAnswer.STARTED)
        done(busy)


@pytest.mark.rule("raft/E-6")
@pytest.mark.parametrize(
    ("kind", "generation", "listens"),
    [
        (K.HEARTBEAT, 1, False),
        (K.HEARTBEAT, 2, True),
        (K.APPEND, 3, True),
        (K.VOTE, 3, False),
        (K.HEARTBEAT, 3, True),
        (K.VOTE, 1, False),
        (K.VOTE, 2, True),
    ],
)
def test_who_is_of_another_generation_is_not_listened_to_but_a_newer_leader(
    kind: RaftKind, generation: int, *, listens: bool
) -> None:
    snapshot = RaftSnapshot(1, 1, ABC)
    replica = Group("a", b"g", RaftLog(snapshot), HardState(5, None, 1, 2), PLAIN)
    replica.campaign()
    replica.ready()
    replica.step(
        RaftMessage(kind=kind, to="a", sender="b", term=6, generation=generation, index=1, log_term=1)
    )
    ready = replica.ready()
    if not listens:
        assert not (ready.messages or ready.after or ready.abandoned)
        return
    assert {each.generation for each in (*ready.messages, *ready.after)} == {generation}
    newer = generation == 3
    assert ready.abandoned is newer
    assert (replica.generation, replica.log.last) == (generation, 0 if newer else 1)
    if newer:
        assert (ready.must_sync, ready.hard) == (True, HardState(6, "a", 0, 3))
        assert not replica.ready().abandoned, "once"


@pytest.mark.rule("raft/E-6")
def test_who_abandons_what_it_has_says_nothing_of_it_any_more() -> None:
    replica = group(terms=(1, 1), term=7)
    replica.campaign()
    replica.step(RaftMessage(kind=K.HEARTBEAT, to="a", sender="b", term=3, generation=1))
    ready = replica.ready()
    assert [each.kind for each in (*ready.messages, *ready.after)] == []
    assert (ready.abandoned, replica.generation, replica.term, replica.lead) == (True, 1, 8, None)
    assert replica.role is RaftRole.FOLLOWER


# -- deeds


def test_a_replica_says_what_it_wants_once_and_nothing_when_it_wants_nothing() -> None:
    replica = group(terms=(1, 1))
    assert not replica.has_ready
    ready = replica.ready()
    assert (ready.hard, ready.entries, ready.must_sync, ready.written) == (None, [], False, None)
    assert (ready.leadership_changed, ready.abandoned, ready.snapshot) == (False, False, None)
    restarted = Group(
        "a", b"g", RaftLog(RaftSnapshot(1, 1, ABC), [RaftEntry(1, 2), RaftEntry(1, 3)]), HardState(1, None, 3)
    )
    assert restarted.has_ready
    ready = restarted.ready()
    assert ([entry.index for entry in ready.committed], ready.hard) == ([2, 3], None)
    assert not restarted.has_ready
    restarted.applied(ready.committed)
    assert restarted.log.applied == 3
    assert Group("a", b"g", RaftLog()).hard == HardState()


@pytest.mark.parametrize(
    "wanted", ["messages", "after", "reads", "notices", "unwritten", "lead", "hard", "applies"]
)
def test_each_thing_that_a_replica_wants_is_enough(wanted: str) -> None:
    replica = group(terms=(1, 1))
    state, log = replica._state, replica.log
    if wanted == "messages":
        state.send(K.HEARTBEAT, "b")
    elif wanted == "after":
        state.send(K.VOTED, "b")
    elif wanted == "reads":
        state.reads.append(ReadAt(b"r", 1))
    elif wanted == "notices":
        state.notices.append(LeaderElected(1))
    elif wanted == "unwritten":
        log.append([RaftEntry(1, 4)])
    elif wanted == "lead":
        state.lead = "b"
    elif wanted == "hard":
        state.vote = "b"
    else:
        log.commit_to(2)
        replica._told_hard = replica.hard
    assert replica.has_ready
    replica.ready()
    assert not replica.has_ready


@pytest.mark.rule("raft/E-1")
def test_entries_are_durable_before_they_are_acknowledged_and_applied() -> None:
    replica = group()
    entries = (RaftEntry(1, 2, b"x"), RaftEntry(1, 3, b"y"))
    append = RaftMessage(
        kind=K.APPEND, to="a", sender="b", term=1, index=1, log_term=1, entries=entries, commit=3
    )
    replica.step(append)
    ready = replica.ready()
    assert (ready.must_sync, tuple(ready.entries), list(ready.committed)) == (True, entries, [])
    assert (ready.written, ready.hard) == (RaftWritten(1, (3, 1), 0), HardState(1, None, 3))
    assert not replica.has_ready
    early = replica.ready(unstable=True)
    assert tuple(early.committed) == entries
    assert (early.must_sync, early.entries, early.hard) == (False, [], None)
    replica.step(append)
    again = replica.ready()
    assert (again.must_sync, again.entries, len(again.after)) == (False, [], 1)
    assert again.written == RaftWritten(1, (3, 1), 0), "it is not durable yet, for all that it knows"
