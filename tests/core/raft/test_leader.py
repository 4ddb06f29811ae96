"""The leader's side: what it sends to whom, counts, and answers, event by event."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.raft.test_group import PLAIN

from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.follower_progress import GONE, LogFlow
from holdfast.core.raft.leader import Leader, ProposalRefused
from holdfast.core.raft.raft_log import RaftLog
from holdfast.core.raft.raft_messages import ENTRY_BYTES, RaftEntry, RaftKind, RaftMessage, RaftSnapshot
from holdfast.core.raft.raft_state import HardState, LeaderElected, RaftSettings, RaftState, ReadAt

K = RaftKind
Told = tuple[RaftKind, str, int]


class Lead:
    """A leader `a` in term 3: its log is 2/2, 2/3 after a snapshot at 1, and its own first entry 3/4."""

    def __init__(
        self,
        voters: str = "abc",
        *,
        learners: str = "",
        settings: RaftSettings = PLAIN,
        begins: bool = True,
        configuration: Configuration | None = None,
    ) -> None:
        """`begins`: everybody has acknowledged everything, and it is committed and applied."""
        if configuration is None:
            configuration = Configuration(frozenset(voters), learners=frozenset(learners))
        self.log = RaftLog(RaftSnapshot(1, 1, configuration), [RaftEntry(2, 2, b"p"), RaftEntry(2, 3, b"q")])
        self.state = RaftState("a", settings, self.log, HardState(3, "a", 1))
        self.state.uncommitted = 77
        self.leading = Leader(self.state)
        if begins:
            self.leading.broadcast()
            for node in sorted(configuration.members):
                self.acks(node, 4)
            self.apply()
            self.state.notices.clear()
            self.take()

    def apply(self) -> None:
        log = self.log
        log.handed_over()
        log.written(log.last, log.last_term)
        if entries := log.applicable(unstable=False):
            log.apply(entries, unstable=False)
            log.has_applied(entries[-1].index, 0)

    def acks(self, node: str, index: int) -> list[Told]:
        self.leading.on_appended(RaftMessage(kind=K.APPENDED, to="a", sender=node, term=3, index=index))
        return self.take()

    def refuses(self, node: str, index: int, hint: int = 0, log_term: int = 0) -> list[Told]:
        refusal = RaftMessage(
            kind=K.APPENDED, to="a", sender=node, index=index, refused=True, hint=hint, log_term=log_term
        )
        self.leading.on_appended(refusal)
        return self.take()

    def hears(self, node: str, context: bytes = b"") -> list[Told]:
        self.leading.on_heartbeat_heard(
            RaftMessage(kind=K.HEARTBEAT_HEARD, to="a", sender=node, context=context)
        )
        return self.take()

    def reads(self, context: bytes, sender: str = "a") -> list[Told]:
        self.leading.on_read(RaftMessage(kind=K.READ, to="a", sender=sender, context=context))
        return self.take()

    def propose(self, *commands: bytes) -> list[Told]:
        self.leading.propose(commands)
        return self.take()

    def messages(self) -> list[RaftMessage]:
        sent, self.state.messages = self.state.messages, []
        return sent

    def take(self) -> list[Told]:
        """What leaves: of an append the number of its entries, of others the index."""
        return [
            (each.kind, each.to, len(each.entries) if each.kind is K.APPEND else each.index)
            for each in self.messages()
        ]

    def status(self, node: str) -> str:
        return str(self.leading.progress[node])


def test_a_leader_begins_with_an_entry_of_its_term_and_knows_of_nobody_what_he_has() -> None:
    lead = Lead(learners="d", begins=False)
    assert (lead.leading.began, lead.log.last, lead.log.last_term, lead.state.uncommitted) == (4, 4, 3, 0)
    assert [(each.kind, each.to, each.index) for each in lead.state.after] == [(K.APPENDED, "a", 4)]
    assert lead.leading.others == ["b", "c", "d"]
    assert lead.status("b") == "StateProbe match=0 next=4 inactive"
    assert lead.status("d") == "StateProbe match=0 next=4 learner inactive"
    lead.leading.broadcast()
    assert [(each.to, each.index, each.log_term, each.entries, each.commit) for each in lead.messages()] == [
        (to, 3, 2, (RaftEntry(3, 4),), 1) for to in "bcd"
    ]
    assert lead.status("b") == "StateProbe match=0 next=4 paused inactive"
    lead.leading.broadcast()
    assert lead.take() == [], "the first answer is waited for"


@pytest.mark.rule("raft/R-1", "raft/R-2")
def test_what_a_majority_holds_is_committed_and_said_once() -> None:
    lead = Lead(begins=False)
    assert not lead.leading.settled
    assert not lead.leading.busy
    lead.acks("b", 3)
    assert lead.log.committed == 1
    lead.acks("c", 3)
    assert lead.log.committed == 1, "a majority holds 3, which is of an older term"
    lead.acks("b", 4)
    assert lead.log.committed == 1, "it is not durable here"
    assert (lead.state.notices, lead.leading.settled) == ([], False)
    sent = lead.acks("a", 4)
    assert lead.log.committed == 4
    assert (lead.state.notices, lead.leading.settled) == ([LeaderElected(3)], True)
    assert sent == [(K.APPEND, "b", 0), (K.APPEND, "c", 0)], "everybody hears of it"
    lead.propose(b"x")
    lead.acks("a", 5)
    assert lead.acks("b", 5) == [(K.APPEND, "b", 0), (K.APPEND, "c", 0)]
    assert lead.state.notices == [LeaderElected(3)]
    assert lead.acks("c", 5) == []


def test_of_commits_that_are_not_told_followers_hear_with_what_comes_next() -> None:
    lead = Lead(settings=replace(PLAIN, sends_commits=False))
    assert lead.propose(b"x") == [(K.APPEND, "b", 1), (K.APPEND, "c", 1)]
    lead.acks("a", 5)
    assert lead.acks("b", 5) == []
    assert lead.log.committed == 5
    lead.propose(b"y")
    assert lead.acks("c", 5) == []


def test_a_follower_hears_of_a_commit_when_it_holds_it() -> None:
    lead = Lead("abcde")
    lead.propose(b"x")
    for node in "abc":
        lead.acks(node, 5)
    lead.leading.heartbeat()
    lead.take()
    assert lead.leading.progress["d"].sent_commit == 4
    assert lead.acks("d", 5) == [(K.APPEND, "d", 0)]
    assert lead.acks("d", 5) == []
    assert lead.acks("a", 9) == [], "it tells nothing to itself"


def test_uncommitted_bytes_are_bounded_but_for_one_proposal() -> None:
    lead = Lead(settings=replace(PLAIN, uncommitted_bytes=10))
    assert lead.state.uncommitted == 0
    lead.propose(b"x" * 50)
    lead.propose(b"")
    for refused in (b"x",):
        with pytest.raises(ProposalRefused, match="not committed"):
            lead.propose(refused)
    for node in "ab":
        lead.acks(node, 6)
    assert lead.state.uncommitted == 0
    lead.propose(b"xxxx", b"xxxx")
    lead.propose(b"xx")
    with pytest.raises(ProposalRefused):
        lead.propose(b"x")
    for node in "ab":
        lead.acks(node, 8)
    assert lead.state.uncommitted == 2
    unbounded = Lead(settings=replace(PLAIN, uncommitted_bytes=0))
    unbounded.propose(b"x" * 100)
    unbounded.propose(b"x" * 100)
    assert unbounded.state.uncommitted == 200
    unbounded.state.uncommitted = 100
    for node in "ab":
        unbounded.acks(node, 6)
    assert unbounded.state.uncommitted == 0


def test_entries_go_in_messages_of_bounded_size_and_in_a_window() -> None:
    settings = replace(PLAIN, message_bytes=2 * (ENTRY_BYTES + 1), window=2)
    lead = Lead(settings=settings)
    assert lead.propose(*[b"x"] * 5) == [(K.APPEND, "b", 2), (K.APPEND, "c", 2)]
    assert lead.status("b") == "StateReplicate match=4 next=7 inflight=1"
    lead.leading.broadcast()
    assert lead.take() == [(K.APPEND, "b", 2), (K.APPEND, "c", 2)]
    lead.leading.broadcast()
    assert lead.take() == [], "the window is full"
    assert lead.acks("b", 6) == [(K.APPEND, "b", 1)]
    assert lead.status("b") == "StateReplicate match=6 next=10 paused inflight=2[full]"
    assert lead.hears("c") == [(K.APPEND, "c", 0)], "a probe"
    assert lead.hears("b") == [(K.APPEND, "b", 0)]
    assert lead.acks("b", 9) == []
    assert lead.hears("b") == [], "it has everything"


def test_an_answer_that_is_no_news_sends_nothing() -> None:
    lead = Lead(settings=replace(PLAIN, message_bytes=1, window=2))
    assert lead.leading.propose([]) == 4
    lead.take()
    lead = Lead(settings=replace(PLAIN, message_bytes=1, window=2))
    assert lead.propose(b"x", b"y", b"z") == [(K.APPEND, "b", 1), (K.APPEND, "c", 1)]
    assert [entry.index for entry in lead.log.entries_from(5)] == [5, 6, 7]
    assert lead.acks("b", 4) == lead.acks("b", 3) == []
    assert lead.status("b") == "StateReplicate match=4 next=6 inflight=1"
    # One that is probed again matches where it is known to.
    lead.leading.unreachable("c")
    lead.leading.broadcast()
    lead.take()
    assert lead.acks("c", 3) == []
    assert lead.status("c") == "StateProbe match=4 next=5 paused"
    assert lead.acks("c", 4) == [(K.APPEND, "c", 1), (K.APPEND, "c", 1)]
    assert lead.status("c") == "StateReplicate match=4 next=7 paused inflight=2[full]"


def test_messages_of_no_entries_leave_only_where_they_are_wanted() -> None:
    lead = Lead()
    assert not lead.leading.send_append("b", even_empty=False)
    assert lead.take() == []
    assert lead.leading.send_append("b")
    assert lead.take() == [(K.APPEND, "b", 0)]


@pytest.mark.rule("raft/P-1")
def test_a_follower_that_refuses_is_probed_where_it_may_match() -> None:
    lead = Lead(begins=False)
    lead.leading.broadcast()
    lead.take()
    assert lead.refuses("b", 3, hint=1, log_term=1) == [(K.APPEND, "b", 3)]
    assert lead.status("b") == "StateProbe match=0 next=2 paused"
    assert lead.refuses("b", 3, hint=1, log_term=1) == [], "it was answered already"
    assert lead.acks("b", 4) == []
    assert lead.status("b") == "StateReplicate match=4 next=5"
    # Its hint is of an older term than what is here: it goes back to where that term ends here.
    lead = Lead(begins=False)
    lead.leading.broadcast()
    lead.take()
    assert lead.refuses("b", 3, hint=3, log_term=1) == [(K.APPEND, "b", 3)]
    assert lead.status("b") == "StateProbe match=0 next=2 paused"
    # Without a term the hint is taken as it is.
    assert lead.refuses("c", 3, hint=2) == [(K.APPEND, "c", 2)]
    assert lead.status("c") == "StateProbe match=0 next=3 paused"
    lead.propose(b"x", b"y", b"z")
    lead.leading.progress["b"].next = 8
    lead.refuses("b", 7, hint=5, log_term=3)
    assert lead.status("b") == "StateProbe match=0 next=6 paused"


def test_a_window_that_is_refused_is_sent_again_from_what_matches() -> None:
    lead = Lead()
    lead.propose(b"x", b"y")
    lead.propose(b"z")
    assert lead.status("b") == "StateReplicate match=4 next=8 inflight=2"
    assert lead.refuses("b", 6, hint=4, log_term=3) == [(K.APPEND, "b", 3)]
    assert lead.status("b") == "StateProbe match=4 next=5 paused"
    assert lead.refuses("c", 3, hint=1, log_term=1) == [], "what is known to match never falls"
    assert lead.status("c") == "StateReplicate match=4 next=8 inflight=2"


@pytest.mark.rule("raft/P-2")
def test_only_who_says_that_it_has_nothing_at_all_begins_again() -> None:
    for settings, hint, log_term, again in (
        (replace(PLAIN, starts_voted=True), 0, 0, True),
        (replace(PLAIN, starts_voted=True), 2, 0, False),
        (replace(PLAIN, starts_voted=True), 0, 2, False),
        (PLAIN, 0, 0, False),
    ):
        lead = Lead(settings=settings)
        sent = lead.refuses("b", 4, hint=hint, log_term=log_term)
        assert (lead.leading.progress["b"].match == 0) is again
        assert sent == ([(K.SNAPSHOT, "b", 0)] if again else [])
    fresh = Lead(settings=replace(PLAIN, starts_voted=True), begins=False)
    fresh.leading.broadcast()
    fresh.take()
    assert fresh.refuses("b", 3) == [(K.SNAPSHOT, "b", 0)]
    assert fresh.refuses("b", 3) == [], "nothing was known of it, and it was answered"


def test_who_is_in_no_configuration_is_not_listened_to() -> None:
    lead = Lead()
    for sent in (lead.acks("x", 4), lead.refuses("x", 4), lead.hears("x", b"r")):
        assert sent == []
    lead.leading.unreachable("x")
    lead.leading.moved("x")
    lead.leading.snapshot_ended("x", well=True)
    lead.leading.transfer("x")
    assert lead.leading.transferee is None


# -- snapshots


def compacted(**more: object) -> Lead:
    lead = Lead(**more)  # type: ignore[arg-type]
    lead.log.compact(3)
    lead.leading.progress["b"].restart()
    return lead


def test_who_needs_what_was_compacted_gets_the_state_as_of_what_is_applied() -> None:
    lead = compacted()
    lead.leading.progress["b"].active = False
    assert not lead.leading.send_append("b")
    assert lead.take() == [], "it is not known to be there"
    lead.leading.progress["b"].active = True
    assert lead.leading.send_append("b")
    (sent,) = lead.messages()
    assert sent.snapshot == RaftSnapshot(4, 3, Configuration(frozenset("abc")))
    assert lead.status("b") == "StateSnapshot match=0 next=5 paused pendingSnap=4"
    lead.propose(b"x")
    assert lead.acks("b", 2) == []
    assert lead.status("b").startswith("StateSnapshot match=2"), "that is not enough"
    assert lead.acks("b", 3) == [(K.APPEND, "b", 2)]
    assert lead.status("b") == "StateReplicate match=3 next=6 inflight=1"


@pytest.mark.parametrize(("well", "following"), [(True, 5), (False, 1)])
def test_a_snapshot_ends_and_its_receiver_is_probed_when_it_says_something(
    *, well: bool, following: int
) -> None:
    lead = compacted()
    lead.leading.snapshot_ended("b", well=well)
    assert lead.status("b") == "StateProbe match=0 next=1", "there was none"
    lead.leading.send_append("b")
    lead.take()
    lead.leading.snapshot_ended("b", well=well)
    assert lead.status("b") == f"StateProbe match=0 next={following} paused"
    assert lead.hears("b") == [(K.APPEND, "b", 0) if well else (K.SNAPSHOT, "b", 0)]


def test_a_snapshot_of_which_nothing_is_heard_for_long_has_failed() -> None:
    lead = compacted(settings=replace(PLAIN, catch_up_ticks=3))
    lead.leading.send_append("b")
    for _ in range(2):
        lead.leading.tick()
    lead.leading.moved("b")
    for _ in range(2):
        lead.leading.tick()
        assert lead.leading.progress["b"].flow is LogFlow.SNAPSHOT
    lead.leading.tick()
    assert lead.status("b") == "StateProbe match=0 next=1 paused"
    assert (lead.leading.progress["c"].quiet, lead.leading.progress["c"].silent) == (5, 5)
    for _ in range(5):
        lead.leading.tick()
    assert lead.status("c") == "StateReplicate match=4 next=5"


# -- who is heard


def test_who_is_known_to_be_gone_is_probed_and_silent() -> None:
    lead = Lead()
    lead.leading.unreachable("b")
    assert lead.hears("b") == [(K.APPEND, "b", 0)], "it has everything, but that is not known of its log now"
    lead = Lead()
    lead.propose(b"x")
    lead.leading.unreachable("b")
    assert lead.status("b") == "StateProbe match=4 next=5"
    assert lead.leading.progress["b"].silent == GONE
    lead.leading.progress["c"].restart()
    lead.leading.progress["c"].send_snapshot(4)
    lead.leading.unreachable("c")
    assert lead.leading.progress["c"].flow is LogFlow.SNAPSHOT


def test_whether_most_of_some_are_heard() -> None:
    lead = Lead("abcd", settings=replace(PLAIN, election_ticks=3))
    leading = lead.leading
    for nodes, heard in (
        ("abc", True),
        ("xyz", False),
        ("axy", False),
        ("ax", False),
        ("a", True),
        ("abxy", False),
    ):
        assert leading.hears_majority_of(frozenset(nodes)) is heard
    leading.progress["b"].silent = 5
    assert leading.hears_majority_of("bxa")
    leading.progress["b"].silent = 6
    assert not leading.hears_majority_of("bxa")
    leading.progress["a"].silent = GONE
    assert leading.hears_majority_of("a"), "it hears itself"


def test_a_majority_is_heard_since_it_was_asked_last() -> None:
    lead = Lead(learners="de")
    leading = lead.leading
    assert leading.has_quorum()
    assert not leading.has_quorum()
    assert [node for node in leading.progress if leading.progress[node].active] == ["a"]
    lead.hears("d")
    lead.hears("e")
    assert not leading.has_quorum(), "learners do not count"
    lead.hears("c")
    assert leading.has_quorum()
    leading.progress["a"].active = False
    lead.refuses("b", 1)
    assert leading.has_quorum(), "it hears itself, and a refusal counts"


# -- configurations


def test_one_change_at_a_time_and_none_before_an_entry_of_its_own_is_committed() -> None:
    bigger = Configuration(frozenset("abcd"), token=1)
    fresh = Lead(begins=False)
    with pytest.raises(ProposalRefused, match="nothing of this leader's term"):
        fresh.leading.change(bigger)
    lead = Lead()
    lead.leading.transfer("b")
    with pytest.raises(ProposalRefused, match="handed over"):
        lead.leading.change(bigger)
    lead = Lead()
    assert lead.leading.change(bigger) == 5
    assert lead.log.entries_from(5) == (RaftEntry(3, 5, configuration=bigger),)
    assert lead.take() == [(K.APPEND, "b", 1), (K.APPEND, "c", 1), (K.APPEND, "d", 1)]
    assert lead.status("d") == "StateProbe match=0 next=5 paused"
    with pytest.raises(ProposalRefused, match="another change"):
        lead.leading.change(bigger)
    for node in "ab":
        lead.acks(node, 5)
    assert lead.log.committed == 4, "three of four are needed now"
    lead.acks("c", 5)
    assert lead.log.committed == 5
    assert lead.leading.change(Configuration(frozenset("abc"))) == 6


def test_who_was_removed_gets_the_log_until_that_is_committed() -> None:
    lead = Lead("abcd", learners="e")
    smaller = Configuration(frozenset("abc"), learners=frozenset("d"))
    lead.leading.change(smaller)
    assert lead.leading.others == ["b", "c", "d", "e"]
    assert lead.status("d") == "StateReplicate match=4 next=6 learner inflight=1"
    lead.take()
    lead.acks("a", 5)
    assert lead.leading.others == ["b", "c", "d", "e"]
    sent = lead.acks("b", 5)
    assert lead.leading.others == ["b", "c", "d"]
    assert {to for _, to, _ in sent} == {"b", "c", "d"}


def test_a_commit_before_the_change_removes_nobody() -> None:
    lead = Lead("abcd")
    lead.propose(b"x")
    lead.leading.change(Configuration(frozenset("abc")))
    for node in "abc":
        lead.acks(node, 5)
    assert lead.log.committed == 5
    assert lead.leading.others == ["b", "c", "d"]


def test_others_may_be_sent_the_log_before_they_belong_to_the_group() -> None:
    lead = Lead()
    lead.leading.add_catching_up(frozenset("xy"))
    assert lead.take() == [(K.APPEND, "x", 1), (K.APPEND, "y", 1)]
    assert lead.status("x") == "StateProbe match=0 next=4 learner paused"
    lead.leading.add_catching_up(frozenset("y"))
    assert lead.leading.others == ["b", "c", "y"]
    assert lead.take() == []


def test_a_removed_voter_is_handed_nothing_over() -> None:
    lead = Lead()
    lead.leading.transfer("b")
    lead.take()
    lead.log.append([RaftEntry(3, 5, configuration=Configuration(frozenset("abc"), learners=frozenset("d")))])
    lead.leading.track_configuration()
    assert lead.leading.transferee == "b"
    lead.log.append([RaftEntry(3, 6, configuration=Configuration(frozenset("ac"), learners=frozenset("b")))])
    lead.leading.track_configuration()
    assert lead.leading.transferee is None
    assert lead.leading.progress["b"].learner


@pytest.mark.rule("raft/R-5", "raft/R-6")
def test_a_leader_that_is_removed_takes_nothing_more_and_names_an_heir() -> None:
    for leads, takes in ((False, False), (True, True)):
        lead = Lead("abcd", settings=replace(PLAIN, keeps_leading_when_removed=leads))
        lead.leading.change(Configuration(frozenset("bcd")))
        assert (lead.leading.is_leaving, lead.leading.is_removed) == (True, False)
        lead.take()
        if takes:
            lead.propose(b"x")
        else:
            with pytest.raises(ProposalRefused, match="removed"):
                lead.propose(b"x")
        lead.acks("b", 5)
        assert not lead.leading.is_removed
        lead.acks("c", 5)
        assert lead.leading.is_removed
        with pytest.raises(ProposalRefused, match="removed"):
            lead.propose(b"x")
        lead.leading.progress["c"].match = 9
        lead.leading.transfer_after_removal()
        assert lead.take() == [(K.TIMEOUT_NOW, "c", 0)]
        lead.leading.progress["c"].match = 5
        lead.leading.transfer_after_removal()
        assert lead.take() == [(K.TIMEOUT_NOW, "b", 0)], "of equals the first"
    joint = Lead(configuration=Configuration(frozenset("bcd"), frozenset("abc")))
    assert not joint.leading.is_leaving, "it is still a voter of the old half"
    assert not Lead().leading.is_leaving
    assert not Lead().leading.is_removed


@pytest.mark.rule("raft/R-4")
def test_a_joint_configuration_is_left_when_it_is_committed_in_this_term() -> None:
    joint = Configuration(frozenset("abd"), frozenset("abc"), auto_leave=True, token=4)
    lead = Lead()
    assert not lead.leading.leave_joint()
    lead.leading.change(joint)
    assert not lead.leading.leave_joint(), "it is not committed"
    for node in "ab":
        lead.acks(node, 5)
    lead.leading.transferee = "b"
    assert not lead.leading.leave_joint()
    lead.leading.transferee = None
    lead.take()
    assert not lead.leading.is_leaving
    assert lead.leading.leave_joint()
    assert lead.log.entries_from(6) == (
        RaftEntry(3, 6, configuration=Configuration(frozenset("abd"), token=4)),
    )
    assert {(kind, to) for kind, to, _ in lead.take()} == {(K.APPEND, "b"), (K.APPEND, "c")}, "d is probed"
    assert not lead.leading.leave_joint()
    demoting = Lead()
    demoting.leading.change(
        Configuration(frozenset("ab"), frozenset("abc"), learners_next=frozenset("c"), auto_leave=True)
    )
    for node in "ab":
        demoting.acks(node, 5)
    assert not demoting.leading.progress["c"].learner
    assert demoting.leading.leave_joint()
    assert demoting.leading.progress["c"].learner
    manual = Lead()
    manual.leading.change(replace_joint(joint))
    for node in "ab":
        manual.acks(node, 5)
    assert not manual.leading.leave_joint()
    # One that was found in the log, committed by an older leader, waits for an entry of this term.
    found = Lead(configuration=joint, begins=False)
    found.log.commit_to(3)
    assert not found.leading.leave_joint()
    for node in "ab":
        found.acks(node, 4)
    assert found.leading.leave_joint()


def replace_joint(joint: Configuration) -> Configuration:
    return Configuration(joint.voters, joint.outgoing)


# -- handing over


def test_leadership_goes_to_a_voter_that_has_everything() -> None:
    lead = Lead(learners="d")
    for node in ("d", "a"):
        lead.leading.transfer(node)
        assert (lead.leading.transferee, lead.take()) == (None, [])
    lead.leading.transfer("b")
    assert (lead.leading.transferee, lead.leading.busy) == ("b", True)
    with pytest.raises(ProposalRefused, match="handed over to b"):
        lead.leading.propose([b"x"])
    assert lead.take() == [(K.TIMEOUT_NOW, "b", 0)]
    lead.leading.transfer("b")
    assert lead.take() == [], "it was told"
    lead.leading.transfer("c")
    assert lead.take() == [(K.TIMEOUT_NOW, "c", 0)]
    behind = Lead()
    behind.propose(b"x", b"y")
    behind.leading.transfer("b")
    assert behind.take() == [(K.APPEND, "b", 0)]
    assert (K.TIMEOUT_NOW, "b", 0) not in behind.acks("b", 5)
    assert (K.TIMEOUT_NOW, "c", 0) not in behind.acks("c", 6)
    assert (K.TIMEOUT_NOW, "b", 0) in behind.acks("b", 6)


# -- reads


def test_heartbeats_say_what_each_follower_holds_of_what_is_committed() -> None:
    lead = Lead("abc", learners="d")
    lead.propose(b"x", b"y")
    for node in "ab":
        lead.acks(node, 6)
    lead.acks("c", 5)
    lead.take()
    lead.leading.heartbeat()
    assert [(each.kind, each.to, each.commit, each.context) for each in lead.messages()] == [
        (K.HEARTBEAT, "b", 6, b""), (K.HEARTBEAT, "c", 5, b""), (K.HEARTBEAT, "d", 4, b""),
    ]  # fmt: skip
    assert [lead.leading.progress[node].sent_commit for node in "bcd"] == [6, 5, 4]
    assert lead.hears("c") == [(K.APPEND, "c", 0)], "it lacks one"
    assert lead.hears("b") == []
    lead.reads(b"r1")
    lead.reads(b"r2")
    lead.leading.heartbeat()
    assert {each.context for each in lead.messages()} == {b"r2"}


@pytest.mark.rule("raft/R-3")
def test_a_read_is_answered_when_a_majority_has_confirmed_and_those_before_it_too() -> None:
    lead = Lead("abcde")
    assert [(kind, to) for kind, to, _ in lead.reads(b"1")] == [(K.HEARTBEAT, to) for to in "bcde"]
    assert lead.leading.busy
    lead.propose(b"x")
    for node in "abc":
        lead.acks(node, 5)
    lead.reads(b"2", "d")
    lead.reads(b"3")
    assert lead.hears("b", b"2") == []
    assert lead.hears("b", b"2") == []
    assert lead.hears("c", b"3") == []
    assert lead.hears("d", b"unknown") == [(K.APPEND, "d", 0)]
    assert not lead.state.reads
    assert (K.READ_AT, "d", 5) in lead.hears("d", b"2")
    assert lead.state.reads == [ReadAt(b"1", 4)]
    assert lead.leading.busy
    lead.hears("e", b"3")
    assert lead.state.reads == [ReadAt(b"1", 4), ReadAt(b"3", 5)]
    assert not lead.leading.busy


@pytest.mark.rule("raft/R-3")
def test_an_early_read_waits_for_an_entry_of_this_term() -> None:
    lead = Lead(begins=False)
    assert lead.reads(b"r") == []
    assert lead.leading.busy
    lead.acks("a", 4)
    sent = lead.acks("b", 4)
    assert (K.HEARTBEAT, "b", 0) in sent
    lead.hears("c", b"r")
    assert lead.state.reads == [ReadAt(b"r", 4)]
    assert not lead.leading.busy


def test_a_leader_with_a_lease_or_without_others_answers_at_once() -> None:
    for lead in (Lead("a"), Lead(settings=replace(PLAIN, lease_reads=True))):
        assert lead.reads(b"r") == []
        assert lead.state.reads == [ReadAt(b"r", 4)]
        assert not lead.leading.busy
