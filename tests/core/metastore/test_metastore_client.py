"""The metastore of one member over a group that is written down, not run: what it proposes, asks, answers and tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.metastore import metastore
from holdfast.core.metastore.commands import (
    COMMAND_BYTES_MAX,
    NAME_BYTES_MAX,
    WINDOW,
    CompactCommand,
    InvokeCommand,
    Proposer,
    decode_command,
    encode_command,
)
from holdfast.core.metastore.invoke import (
    Absent,
    Branch,
    If,
    Invoked,
    Leaf,
    MetastoreEntry,
    PutKey,
    RemoveKey,
)
from holdfast.core.metastore.keyspace import Keyspace, RevisionAhead, RevisionCompacted
from holdfast.core.metastore.metastore import (
    ASK_AGAIN_NS,
    DEADLINE_NS,
    HISTORY_BYTES,
    KEEP_REVISIONS,
    KeyChange,
    Metastore,
    MetastoreStatus,
    Ticket,
)
from holdfast.core.model.ids import METASTORE_GROUP, MILLISECOND, SECOND
from holdfast.core.multiraft.hosted_group import LeadChanged
from holdfast.core.outbox import Outbox
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_messages import RaftEntry
from holdfast.core.raft.raft_state import CaughtUp, LeaderElected, RaftRole
from holdfast.errors import InvariantBroken, NotReady, RequestError, TooLarge, Unknown


class WrittenGroup:
    """The metastore's group: it takes what is proposed, and does nothing with it."""

    def __init__(self) -> None:
        self.leader: str | None = "B"
        self.leads_in: int | None = None
        self.refusing = False
        self.proposed: list[list[bytes]] = []
        self.contexts: list[bytes] = []

    def lead(self, number: int) -> str | None:
        assert number == METASTORE_GROUP
        return self.leader

    def term(self, number: int) -> int | None:
        assert number == METASTORE_GROUP
        return self.leads_in

    def propose(self, number: int, data: Sequence[bytes]) -> None:
        assert number == METASTORE_GROUP
        if self.refusing:
            raise ProposalRefused("no leader")
        self.proposed.append(list(data))

    def read(self, number: int, context: bytes) -> None:
        assert number == METASTORE_GROUP
        if self.refusing:
            raise ProposalRefused("no leader")
        self.contexts.append(context)


class Asker:
    """Asks, and writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.then: Callable[[], None] | None = None
        """What it does when it is told something, once."""

    def _tell(self, *what: object) -> None:
        self.told.append(what)
        then, self.then = self.then, None
        if then is not None:
            then()

    def on_invoked(self, ticket: Ticket, invoked: Invoked) -> None:
        self._tell(ticket, invoked)

    def on_read(self, ticket: Ticket, entries: list[MetastoreEntry], revision: int) -> None:
        self._tell(ticket, entries, revision)

    def on_failed(self, ticket: Ticket, error: RequestError) -> None:
        self._tell(ticket, type(error))

    def takes(self) -> list[tuple[object, ...]]:
        told, self.told = self.told, []
        return told


class Watcher:
    """Writes down what it is told of, and takes it at once or not."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.takes_at_once = True
        self.then: Callable[[], None] | None = None

    def on_watch_begins(self, revision: int) -> None:
        self.told.append(("begins", revision))

    def on_changes(self, revision: int, time_ms: int, changes: Sequence[KeyChange]) -> bool:
        keys = [new.key for _, new in changes]
        self.told.append((revision, time_ms, keys))
        then, self.then = self.then, None
        if then is not None:
            then()
        return self.takes_at_once

    def on_leading(self, term: int | None) -> None:
        self.told.append(("leads", term))

    def takes(self) -> list[tuple[object, ...]]:
        told, self.told = self.told, []
        return told


def put(key: bytes, value: bytes = b"v", answer: int = 0) -> Branch:
    return Leaf((PutKey(key, value),), answer)


class Member:
    def __init__(self) -> None:
        self.out = Outbox()
        self.out.epoch_ms = 5_000
        self.group = WrittenGroup()
        self.metastore = Metastore(b"me", self.out, self.group)  # type: ignore[arg-type]
        self.asker = Asker()
        self.other = Proposer(b"other", 0)
        self.number = 0

    def proposals(self) -> list[list[InvokeCommand]]:
        """What was proposed since this was asked last: one list for each time."""
        found, self.group.proposed = self.group.proposed, []
        decoded = [[decode_command(data) for data in datas] for datas in found]
        assert all(isinstance(one, InvokeCommand) for datas in decoded for one in datas)
        return decoded  # type: ignore[return-value]

    def numbers(self) -> list[list[int]]:
        return [[one.number for one in datas] for datas in self.proposals()]

    def contexts(self) -> list[bytes]:
        found, self.group.contexts = self.group.contexts, []
        return found

    def ask(self, *branches: Branch) -> list[Ticket]:
        tickets = [self.metastore.invoke(branch, self.asker) for branch in branches]
        self.metastore.flush()
        return tickets

    def commit(self, *commands: InvokeCommand | CompactCommand | bytes) -> None:
        data = [one if isinstance(one, bytes) else encode_command(one) for one in commands]
        self.metastore.apply([RaftEntry(1, 1, data=one) for one in data])

    def change(self, *branches: Branch) -> None:
        """Somebody else's invokes are committed."""
        for branch in branches:
            self.number += 1
            self.commit(InvokeCommand(self.other, self.number, self.number - 1, 0, branch))

    def later(self, ns: int) -> None:
        self.out.now_ns += ns
        self.metastore.on_timer()

    def led(self, leader: str | None, *, mine: bool = False) -> None:
        self.group.leader = leader
        role = RaftRole.LEADER if mine else RaftRole.FOLLOWER
        self.metastore.on_group(LeadChanged(leader, role, 3))


@pytest.fixture
def member() -> Member:
    return Member()


# -- invokes


def test_invokes_of_a_step_are_proposed_together_and_answered_each(member: Member) -> None:
    tickets = [member.metastore.invoke(put(b"%d" % at, answer=at), member.asker) for at in range(3)]
    assert tickets == [1, 2, 3]
    assert (member.group.proposed, member.metastore.unsent) == ([], True)
    member.out.now_ns = 7 * MILLISECOND
    member.metastore.flush()
    ((one, two, three),) = member.proposals()
    assert [one.number, two.number, three.number] == [1, 2, 3]
    assert one == InvokeCommand(Proposer(b"me/1", 0), 1, 0, 5_007, put(b"0", answer=0))
    assert not member.metastore.unsent
    assert member.metastore.leftovers == {"questions to the metastore": 3}
    member.metastore.flush()
    assert member.proposals() == []
    member.commit(two)
    assert member.asker.takes() == [(2, Invoked(1, 1))]
    member.commit(one, three)
    assert member.asker.takes() == [(1, Invoked(0, 2)), (3, Invoked(2, 3))]
    member.commit(one, two, three)
    assert member.asker.takes() == [], "each once"
    assert member.metastore.leftovers == {"questions to the metastore": 0}


@pytest.mark.rule("metastore/M-3")
def test_a_proposer_says_which_answers_it_waits_for_no_more(member: Member) -> None:
    member.ask(put(b"a"), put(b"b"), put(b"c"))
    ((one, two, three),) = member.proposals()
    member.commit(two)
    member.ask(put(b"d"))
    ((four,),) = member.proposals()
    assert (four.number, four.answered) == (4, 0), "it still waits for the first one"
    member.commit(one, three, four)
    member.ask(put(b"e"))
    assert [(one.number, one.answered) for (one,) in member.proposals()] == [(5, 4)]


def test_only_so_many_invokes_are_under_way(member: Member) -> None:
    member.ask(*(put(b"k", answer=at) for at in range(WINDOW + 3)))
    (first,) = member.proposals()
    assert [one.number for one in first] == list(range(1, WINDOW + 1))
    assert member.metastore.status.under_way == WINDOW + 3
    member.commit(first[1])
    assert member.proposals() == [], "the window begins with the first that is not answered"
    member.commit(first[0])
    assert member.numbers() == [[WINDOW + 1, WINDOW + 2]]
    member.commit(*first[2:])
    assert member.numbers() == [[WINDOW + 3]]
    assert [ticket for ticket, _ in member.asker.takes()] == [2, 1, *range(3, WINDOW + 1)]


@pytest.mark.rule("metastore/W-2")
def test_an_invoke_without_an_answer_is_proposed_again_as_the_same(member: Member) -> None:
    member.ask(put(b"a"))
    ((first,),) = member.proposals()
    member.later(ASK_AGAIN_NS - 1)
    assert member.proposals() == []
    member.ask(put(b"b"))
    ((second,),) = member.proposals()
    member.later(1)
    assert member.proposals() == [[first]], "b was asked for later"
    member.later(ASK_AGAIN_NS - 1)
    assert member.proposals() == [[second]]


@pytest.mark.rule("metastore/W-2")
def test_another_leader_is_asked_at_once(member: Member) -> None:
    member.ask(put(b"a"))
    member.metastore.read([b"k"], member.asker)
    member.metastore.flush()
    ((first,),) = member.proposals()
    assert member.contexts() == [b"me?1"]
    member.led(None)
    assert (member.proposals(), member.contexts()) == ([], [])
    member.led("C")
    assert (member.proposals(), member.contexts()) == ([[first]], [b"me?2"])
    member.metastore.on_group(CaughtUp(3))
    assert (member.proposals(), member.contexts()) == ([], [])


@pytest.mark.rule("metastore/W-2")
def test_a_leader_after_another_is_asked_at_once(member: Member) -> None:
    member.ask(put(b"a"))
    ((first,),) = member.proposals()
    member.led("C")
    assert member.proposals() == [[first]]


def test_a_proposer_begins_with_its_first_invoke(member: Member) -> None:
    """What was applied before cannot be of a forgotten namesake."""
    member.metastore.flush()
    member.change(put(b"x"), put(b"y"))
    member.ask(put(b"a"))
    assert [one.proposer for (one,) in member.proposals()] == [Proposer(b"me/1", 2)]


@pytest.mark.rule("metastore/W-2")
def test_what_is_refused_is_proposed_with_the_next_step(member: Member) -> None:
    member.group.refusing = True
    member.ask(put(b"a"))
    member.metastore.read([b"k"], member.asker)
    member.metastore.flush()
    assert (member.group.proposed, member.group.contexts) == ([], [])
    member.group.refusing = False
    member.metastore.flush()
    assert (member.numbers(), len(member.contexts())) == ([[1]], 1)


def test_without_a_leader_everything_waits(member: Member) -> None:
    member.group.leader = None
    member.ask(put(b"a"))
    member.metastore.read([b"k"], member.asker)
    member.metastore.flush()
    assert (member.group.proposed, member.group.contexts, member.metastore.unsent) == ([], [], False)
    assert member.metastore.status.under_way == 2
    member.group.leader = "B"
    assert member.metastore.unsent
    member.metastore.flush()
    assert (member.numbers(), member.contexts()) == ([[1]], [b"me?1"])


@pytest.mark.rule("metastore/W-2")
def test_a_deadline_ends_what_was_heard_as_unknown_and_all_else_as_not_done(member: Member) -> None:
    heard, unheard = member.ask(put(b"a"))[0], 0
    assert len(member.proposals()) == 1
    sent = member.metastore.read([b"k"], member.asker)
    member.metastore.flush()
    member.group.refusing = True
    unheard = member.metastore.invoke(put(b"b"), member.asker)
    member.metastore.flush()
    member.group.leader = None
    waiting = member.metastore.invoke(put(b"c"), member.asker)
    asking = member.metastore.read_prefix(b"", member.asker)
    member.later(DEADLINE_NS - 1)
    assert member.asker.takes() == []
    assert member.metastore.status.under_way == 5
    member.later(1)
    assert sorted(member.asker.takes(), key=str) == sorted(
        [(heard, Unknown), (unheard, NotReady), (waiting, NotReady), (sent, NotReady), (asking, NotReady)],
        key=str,
    )
    assert member.metastore.status.under_way == 0


def test_deadlines_are_each_their_own(member: Member) -> None:
    member.group.leader = None
    first = [member.metastore.invoke(put(b"a"), member.asker), member.metastore.read([b"k"], member.asker)]
    member.later(SECOND)
    second = [member.metastore.invoke(put(b"b"), member.asker), member.metastore.read([b"k"], member.asker)]
    member.later(DEADLINE_NS - SECOND)
    assert [ticket for ticket, _ in member.asker.takes()] == first
    member.later(SECOND)
    assert [ticket for ticket, _ in member.asker.takes()] == second


def test_deadlines_of_what_was_sent_are_each_their_own(member: Member) -> None:
    member.ask(put(b"a"))
    member.metastore.read([b"k"], member.asker)
    member.later(SECOND - 1)
    member.ask(put(b"b"))
    member.metastore.read([b"k"], member.asker)
    member.metastore.flush()
    member.later(DEADLINE_NS - SECOND + 1)
    assert [ticket for ticket, _ in member.asker.takes()] == [1, 2]
    member.later(SECOND - 1)
    assert [ticket for ticket, _ in member.asker.takes()] == [3, 4]


def test_an_answer_that_comes_after_the_deadline_is_nobodys(member: Member) -> None:
    member.ask(put(b"a"))
    ((one,),) = member.proposals()
    member.later(DEADLINE_NS)
    assert member.asker.takes() == [(1, Unknown)]
    member.commit(one)
    assert member.asker.takes() == []
    assert member.metastore.get(b"a").exists


@pytest.mark.rule("metastore/M-3", "metastore/W-2")
def test_a_proposer_that_was_forgotten_begins_with_another_name_and_keeps_the_order(member: Member) -> None:
    tickets = member.ask(put(b"a"), put(b"b"))
    ((one, two),) = member.proposals()
    member.change(put(b"x"), put(b"y"))
    member.metastore.keyspace._horizon = 1  # As if others had pushed it out.
    member.commit(one)
    assert member.asker.takes() == []
    ((again,),) = member.proposals()
    assert again == InvokeCommand(Proposer(b"me/2", 3), 1, 0, 5_000, put(b"a"))
    member.commit(two)
    ((second,),) = member.proposals()
    assert (second.proposer, second.number, second.branch) == (Proposer(b"me/2", 3), 2, put(b"b"))
    member.commit(again, second)
    assert member.asker.takes() == [(tickets[0], Invoked(0, 3)), (tickets[1], Invoked(0, 4))]


def test_an_invoke_with_another_number_keeps_its_deadline_and_its_place(member: Member) -> None:
    member.ask(put(b"a"))
    ((one,),) = member.proposals()
    member.later(SECOND)
    member.proposals()
    member.change(put(b"x"))
    member.metastore.keyspace._horizon = 1
    member.group.leader = None
    later = member.metastore.invoke(put(b"b"), member.asker)
    member.commit(one)
    member.later(DEADLINE_NS - SECOND)
    assert member.asker.takes() == [(1, NotReady)], "it was never applied, and cannot be any more"
    member.group.leader = "B"
    member.metastore.flush()
    ((other,),) = member.proposals()
    assert other.branch == put(b"b")
    member.commit(other)
    assert member.asker.takes() == [(later, Invoked(0, 2))]


def test_what_is_too_large_is_refused_whatever_its_number_is(member: Member) -> None:
    """The proposer's name and numbers count: they are taken at their largest."""
    with pytest.raises(TooLarge, match="value"):
        member.metastore.invoke(put(b"k", bytes((1 << 20) + 1)), member.asker)

    def branch(size: int) -> Branch:
        return Leaf((*(PutKey(b"%d" % at, bytes(1 << 20)) for at in range(3)), PutKey(b"z", bytes(size))))

    widest = Proposer(bytes(NAME_BYTES_MAX), 1 << 53)
    small = InvokeCommand(widest, 1 << 53, (1 << 53) - 1, 1 << 53, branch(70_000))
    size = 70_000 + COMMAND_BYTES_MAX - len(encode_command(small))
    member.metastore.invoke(branch(size), member.asker)
    with pytest.raises(TooLarge, match="bytes"):
        member.metastore.invoke(branch(size + 1), member.asker)
    assert member.metastore.status.under_way == 1


def test_a_clock_before_1970_is_none(member: Member) -> None:
    member.out.epoch_ms = -9
    member.ask(put(b"k"))
    assert [one.time_ms for (one,) in member.proposals()] == [0]


# -- reads


@pytest.mark.rule("metastore/W-3")
def test_the_reads_of_a_step_are_one_question_and_answered_as_of_its_confirmation(member: Member) -> None:
    member.change(put(b"a/1"))
    keys = member.metastore.read([b"x", b"a/1", b"x"], member.asker)
    prefix = member.metastore.read_prefix(b"a/", member.asker)
    assert member.metastore.unsent
    member.metastore.flush()
    assert member.contexts() == [b"me?1"]
    assert not member.metastore.unsent
    member.change(put(b"a/2", b"w"))
    assert member.asker.takes() == []
    late = member.metastore.read([b"x"], member.asker)
    member.metastore.read_ready(b"me?1")
    one, two = MetastoreEntry(b"a/1", b"v", 1), MetastoreEntry(b"a/2", b"w", 2)
    assert member.asker.takes() == [
        (keys, [MetastoreEntry(b"x"), one, MetastoreEntry(b"x")], 2),
        (prefix, [one, two], 2),
    ]
    assert member.contexts() == [b"me?2"], "what was asked later has a question of its own"
    member.metastore.read_ready(b"me?1")
    assert member.asker.takes() == []
    member.metastore.read_ready(b"me?2")
    assert member.asker.takes() == [(late, [MetastoreEntry(b"x")], 2)]


@pytest.mark.rule("metastore/W-3")
def test_a_read_that_was_asked_again_is_answered_by_its_last_question_alone(member: Member) -> None:
    member.metastore.read([b"k"], member.asker)
    member.metastore.flush()
    member.later(ASK_AGAIN_NS - 1)
    assert member.contexts() == [b"me?1"]
    member.later(1)
    assert member.contexts() == [b"me?2"]
    member.metastore.read_ready(b"me?1")
    assert member.asker.takes() == []
    member.metastore.read_ready(b"me?2")
    assert member.asker.takes() == [(1, [MetastoreEntry(b"k")], 0)]


def test_no_keys_are_read_as_a_confirmation(member: Member) -> None:
    member.change(put(b"k"))
    member.metastore.read((), member.asker)
    member.metastore.flush()
    member.metastore.read_ready(b"me?1")
    assert member.asker.takes() == [(1, [], 1)]


def test_what_is_here_is_looked_at_without_asking(member: Member) -> None:
    member.change(put(b"a/1"), put(b"b"), put(b"a/2"))
    assert member.metastore.get(b"b") == MetastoreEntry(b"b", b"v", 2)
    assert member.metastore.get(b"b", 1) == MetastoreEntry(b"b")
    assert [one.key for one in member.metastore.scan(b"a/")] == [b"a/1", b"a/2"]
    assert [one.key for one in member.metastore.scan(b"a/", 2)] == [b"a/1"]
    with pytest.raises(RevisionAhead):
        member.metastore.get(b"b", 4)


# -- watchers


def watched(member: Member, *, prefix: bytes | None = b"", key: bytes | None = None) -> Watcher:
    watcher = Watcher()
    member.metastore.watch(watcher, prefix=prefix, key=key)
    return watcher


def begun(member: Member) -> None:
    """The replica is here, and holds nothing."""
    member.metastore.restore([])


def test_before_there_is_a_state_nobody_is_told_anything(member: Member) -> None:
    watcher = watched(member)
    member.metastore.on_group(LeaderElected(4))
    assert (watcher.takes(), member.metastore.delivered, member.metastore.status.notified) == ([], None, 0)
    begun(member)
    member.metastore.flush()
    assert watcher.takes() == [("begins", 0), ("leads", 4)]
    assert member.metastore.delivered == 0


@pytest.mark.rule("metastore/W-1")
def test_watchers_are_told_of_their_keys_in_the_order_of_revisions(member: Member) -> None:
    begun(member)
    every, one, some = watched(member), watched(member, prefix=None, key=b"k"), watched(member, prefix=b"a/")
    member.metastore.watch(some, prefix=b"b/", key=b"c")
    for watcher in (every, one, some):
        member.metastore.flush()
        assert watcher.takes() == [("begins", 0)]
    member.change(
        Leaf((PutKey(b"k", b""), PutKey(b"a/1", b""))),
        put(b"b/1"),
        put(b"c"),
        put(b"kk"),
        put(b"a"),
        put(b"d"),
    )
    assert every.takes() == [
        (1, 1, [b"a/1", b"k"]), (2, 2, [b"b/1"]), (3, 3, [b"c"]), (4, 4, [b"kk"]), (5, 5, [b"a"]), (6, 6, [b"d"]),
    ]  # fmt: skip
    assert one.takes() == [(1, 1, [b"k"])]
    assert some.takes() == [(1, 1, [b"a/1"]), (2, 2, [b"b/1"]), (3, 3, [b"c"])]
    assert member.metastore.status.notified == 6
    member.metastore.unwatch(every)
    late = watched(member)
    member.change(put(b"k"))
    assert (every.takes(), one.takes(), some.takes()) == ([], [(7, 7, [b"k"])], [])
    assert late.takes() == [("begins", 6), (7, 7, [b"k"])]


@pytest.mark.rule("metastore/W-1")
def test_the_next_revision_is_told_when_all_have_taken_the_former(member: Member) -> None:
    begun(member)
    slow, quick = watched(member), watched(member)
    slow.takes_at_once = False
    member.change(put(b"a"), put(b"b"), put(b"c"))
    assert slow.takes() == [("begins", 0), (1, 1, [b"a"])]
    assert quick.takes() == [("begins", 0), (1, 1, [b"a"])]
    assert member.metastore.delivered == 1
    member.metastore.taken(quick)
    member.metastore.flush()
    assert (slow.takes(), quick.takes()) == ([], [])
    slow.takes_at_once = True
    member.metastore.taken(slow)
    assert slow.takes() == [], "at the end of the step"
    member.metastore.flush()
    assert slow.takes() == quick.takes() == [(2, 2, [b"b"]), (3, 3, [b"c"])]


def test_a_watcher_that_is_not_concerned_holds_nobody_up(member: Member) -> None:
    begun(member)
    slow, quick = watched(member, prefix=b"a"), watched(member, prefix=b"b")
    slow.takes_at_once = False
    member.change(put(b"b"), put(b"b"), put(b"a"), put(b"b"))
    assert slow.takes() == [("begins", 0), (3, 3, [b"a"])]
    assert quick.takes() == [("begins", 0), (1, 1, [b"b"]), (2, 2, [b"b"])]


def test_a_watcher_that_takes_while_it_is_told_is_free(member: Member) -> None:
    begun(member)
    watcher = watched(member)
    watcher.takes_at_once = False
    watcher.then = lambda: member.metastore.taken(watcher)
    member.change(put(b"a"), put(b"b"))
    assert watcher.takes() == [("begins", 0), (1, 1, [b"a"]), (2, 2, [b"b"])]


@pytest.mark.rule("metastore/W-1")
def test_no_compaction_takes_a_revision_away_from_a_slow_watcher(member: Member) -> None:
    begun(member)
    watcher = watched(member)
    watcher.takes_at_once = False
    member.change(put(b"a"), put(b"a"), put(b"a"))
    member.commit(CompactCommand(3))
    assert member.metastore.status.compacted == 3
    assert member.metastore.get(b"a", 1).revision == 1, "it may read as of what it was told"
    member.metastore.taken(watcher)
    member.metastore.flush()
    with pytest.raises(RevisionCompacted):
        member.metastore.get(b"a", 1)
    assert member.metastore.get(b"a", 2).revision == 2
    assert watcher.takes() == [("begins", 0), (1, 1, [b"a"]), (2, 2, [b"a"])]


def test_a_watcher_may_stop_others_and_begin_others_while_it_is_told(member: Member) -> None:
    begun(member)
    first, second, third = watched(member), watched(member), Watcher()

    def swap() -> None:
        member.metastore.unwatch(second)
        member.metastore.watch(third, prefix=b"")

    first.then = swap
    member.change(put(b"a"), put(b"b"))
    assert first.takes() == [("begins", 0), (1, 1, [b"a"]), (2, 2, [b"b"])]
    assert third.takes() == [("begins", 1), (2, 2, [b"b"])]


def test_answers_come_before_what_they_have_changed_is_told(member: Member) -> None:
    begun(member)
    order: list[str] = []
    watcher = watched(member)
    member.asker.then = lambda: order.append("answer")
    watcher.then = lambda: order.append("change")
    member.ask(put(b"a"))
    ((one,),) = member.proposals()
    member.commit(one)
    assert order == ["answer", "change"]


def test_what_is_asked_while_something_is_told_leaves_with_the_same_step(member: Member) -> None:
    begun(member)
    watcher = watched(member)

    def ask() -> None:
        member.metastore.invoke(put(b"more"), member.asker)
        member.metastore.flush()
        assert member.group.proposed == [], "not in the middle"

    watcher.then = ask
    member.change(put(b"a"))
    assert member.numbers() == [[1]]
    member.asker.then = ask
    member.ask(put(b"b"))
    ((two,),) = member.proposals()
    member.commit(two)
    assert member.numbers() == [[3]]


def test_what_is_answered_while_something_is_told_is_told_before_the_step_ends(member: Member) -> None:
    begun(member)
    watcher = watched(member)
    (ticket,) = member.ask(put(b"mine"))
    ((mine,),) = member.proposals()
    watcher.then = lambda: member.commit(mine)
    member.change(put(b"a"))
    assert member.asker.takes() == [(ticket, Invoked(0, 2))]
    assert [one[0] for one in watcher.takes()] == ["begins", 1, 2]


def test_a_watcher_that_fails_does_not_silence_the_metastore(member: Member) -> None:
    begun(member)
    watcher = watched(member)

    def fail() -> None:
        raise KeyError("a mistake")

    watcher.then = fail
    with pytest.raises(KeyError):
        member.change(put(b"a"))
    member.ask(put(b"b"))
    assert member.numbers() == [[1]]


# -- who leads


def test_watchers_are_told_once_who_leads(member: Member) -> None:
    begun(member)
    watcher = watched(member)
    member.metastore.flush()
    watcher.takes()
    member.metastore.on_group(LeaderElected(4))
    assert watcher.takes() == [("leads", 4)]
    member.led("A", mine=True)
    assert watcher.takes() == []
    member.metastore.on_group(LeaderElected(6))
    assert watcher.takes() == [("leads", 6)]
    member.led(None)
    assert watcher.takes() == [("leads", None)]
    member.led("B")
    assert watcher.takes() == []


def test_a_watcher_is_told_who_leads_before_it_is_told_of_changes(member: Member) -> None:
    begun(member)
    watcher = watched(member)
    member.metastore._flushing = True  # In the middle of a step.
    member.metastore.on_group(LeaderElected(4))
    member.change(put(b"a"))
    member.metastore._flushing = False
    member.metastore.flush()
    assert watcher.takes() == [("begins", 0), ("leads", 4), (1, 1, [b"a"])]


# -- states from elsewhere


def state(*branches: Branch, compacted: int = 0) -> Keyspace:
    made = Keyspace()
    for at, branch in enumerate(branches, 1):
        made.apply(encode_command(InvokeCommand(Proposer(b"other", 0), at, at - 1, 0, branch)))
    made.apply(encode_command(CompactCommand(compacted)))
    return made


@pytest.mark.rule("metastore/W-1")
@pytest.mark.parametrize(
    ("delivered", "revisions", "compacted", "begins", "told"),
    [
        # Nothing was told yet: a beginning is enough.
        (0, 3, 0, 3, []),
        # All that is missing can be told, one by one.
        (2, 4, 0, None, [3, 4]),
        (2, 4, 2, None, [3, 4]),
        (4, 4, 4, None, []),
        # Revision 3 is forgotten.
        (2, 4, 3, 4, []),
        # It has been told what this state does not know.
        (3, 2, 0, 2, []),
        (3, 0, 0, 0, []),
    ],
)
def test_after_another_state_watchers_go_on_or_begin_anew(
    member: Member, delivered: int, revisions: int, compacted: int, begins: int | None, told: list[int]
) -> None:
    begun(member)
    watcher = watched(member)
    member.metastore.flush()
    member.change(*(put(b"k") for _ in range(delivered)))
    watcher.takes()
    watcher.takes_at_once = False
    member.metastore._watching[0].busy = begins is not None
    pieces = state(*(put(b"k") for _ in range(revisions)), compacted=compacted).pieces()
    member.metastore.restore(pieces if revisions else [])
    watcher.takes_at_once = True
    member.metastore.flush()
    expected: list[tuple[object, ...]] = [] if begins is None else [("begins", begins)]
    assert watcher.takes() == expected + [(revision, revision, [b"k"]) for revision in told]
    assert member.metastore.delivered == revisions
    member.number = revisions
    member.change(put(b"k"))
    assert [one[0] for one in watcher.takes()] == [revisions + 1]


def test_a_state_in_place_of_another_is_needed_from_where_watchers_are(member: Member) -> None:
    begun(member)
    slow = watched(member)
    member.change(put(b"k"), put(b"k"))
    slow.takes_at_once = False
    member.change(put(b"k"))
    member.metastore.restore(state(*(put(b"k") for _ in range(5))).pieces())
    member.commit(CompactCommand(5))
    assert member.metastore.get(b"k", 3).revision == 3
    member.metastore.taken(slow)
    member.metastore.flush()
    assert [one[0] for one in slow.takes()] == ["begins", 1, 2, 3, 4]


@pytest.mark.rule("metastore/W-2")
def test_what_a_state_knows_of_own_invokes_is_answered_and_the_rest_is_in_doubt(member: Member) -> None:
    begun(member)
    first, second, third = member.ask(put(b"a", answer=7), put(b"b"), put(b"c"))
    ((one, two, three),) = member.proposals()
    other = Keyspace()
    other.apply(encode_command(one))
    member.group.leader = None
    member.metastore.restore(other.pieces())
    assert (member.asker.takes(), member.metastore.unsent) == ([], True)
    member.metastore.flush()
    assert (member.asker.takes(), member.metastore.unsent) == ([(first, Invoked(7, 1))], False)
    member.commit(two)
    assert member.asker.takes() == [(second, Invoked(0, 2))], "its session is in the state"
    member.metastore.restore(Keyspace().pieces())
    member.metastore.keyspace._horizon = 9
    member.commit(three)
    assert member.asker.takes() == [(third, Unknown)], "it may have been applied, and be forgotten"


def test_after_another_state_invokes_have_another_proposer(member: Member) -> None:
    begun(member)
    member.ask(put(b"a"))
    member.proposals()
    member.metastore.restore(state(put(b"k"), put(b"k")).pieces())
    member.ask(put(b"b"))
    ((one,),) = member.proposals()
    assert (one.proposer, one.number, one.answered) == (Proposer(b"me/2", 3), 1, 0)


def test_an_old_proposers_invoke_that_is_forgotten_leaves_the_present_one_alone(member: Member) -> None:
    begun(member)
    member.ask(put(b"a"))
    ((old,),) = member.proposals()
    member.metastore.restore(state(put(b"k"), put(b"k")).pieces())
    member.ask(put(b"b"))
    ((new,),) = member.proposals()
    member.metastore.keyspace._horizon = 2
    member.commit(old)
    assert member.asker.takes() == [(1, Unknown)]
    member.ask(put(b"c"))
    ((third,),) = member.proposals()
    assert (third.proposer, third.number) == (new.proposer, 2)


def test_a_state_that_is_none_stops_the_member(member: Member) -> None:
    with pytest.raises(InvariantBroken, match="got an invalid snapshot"):
        member.metastore.restore([b"nonsense"])


def test_the_state_is_given_on_as_it_is(member: Member) -> None:
    begun(member)
    member.change(put(b"k"))
    assert Keyspace.from_pieces([*member.metastore.pieces()]).get(b"k") == MetastoreEntry(b"k", b"v", 1)


# -- compactions, and how it stands


@pytest.mark.rule("metastore/W-4")
def test_only_the_leader_compacts_and_again_when_it_was_refused(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (KEEP_REVISIONS, HISTORY_BYTES) == (1_000, 2 << 20)
    monkeypatch.setattr(metastore, "KEEP_REVISIONS", 4)
    begun(member)
    member.change(*(put(b"k") for _ in range(9)))
    member.later(1)
    assert member.group.proposed == []
    member.metastore.on_group(LeaderElected(4))
    member.group.refusing = True
    member.later(1)
    member.group.refusing = False
    assert member.group.proposed == []
    member.later(1)
    assert [decode_command(data) for datas in member.group.proposed for data in datas] == [CompactCommand(5)]
    member.group.proposed.clear()
    member.commit(CompactCommand(5))
    member.later(1)
    assert member.group.proposed == []
    monkeypatch.setattr(metastore, "HISTORY_BYTES", 5)
    member.later(1)
    assert [decode_command(data) for datas in member.group.proposed for data in datas] == [CompactCommand(8)]


def test_how_it_stands(member: Member) -> None:
    begun(member)
    slow = watched(member)
    slow.takes_at_once = False
    member.group.leads_in = 7
    member.change(put(b"k", b"12"), put(b"l", b"3"), Leaf((RemoveKey(b"k"),)))
    member.commit(CompactCommand(1), b"nonsense")
    member.ask(put(b"m"), If(Absent(b"x"), put(b"n"), Leaf()))
    member.metastore.read([b"k"], member.asker)
    member.metastore.flush()
    assert member.metastore.status == MetastoreStatus(
        leader="B",
        term=7,
        revision=3,
        compacted=1,
        time_ms=3,
        keys=1,
        history_bytes=3,
        notified=1,
        under_way=3,
        malformed=1,
    )
    assert member.metastore.leftovers == {"questions to the metastore": 3}
    status = member.metastore.status
    with pytest.raises(AttributeError):
        status.notified = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        MetastoreStatus("B", 7, 3, 1, 3, 1, 3, 1, 3, 1)  # type: ignore[misc]


def test_a_name_leaves_room_for_how_often_it_begins_anew() -> None:
    for name in (b"", bytes(NAME_BYTES_MAX - 7)):
        with pytest.raises(AssertionError):
            Metastore(name, Outbox(), WrittenGroup())  # type: ignore[arg-type]
    Metastore(bytes(NAME_BYTES_MAX - 8), Outbox(), WrittenGroup())  # type: ignore[arg-type]


def test_times() -> None:
    assert (ASK_AGAIN_NS, DEADLINE_NS) == (SECOND, 10 * SECOND)


# -- whatever happens


@pytest.mark.rule("metastore/W-1", "metastore/W-2", "metastore/W-3")
@given(st.lists(st.tuples(st.sampled_from("iirrccdlgtsw"), st.integers(0, 3)), max_size=40))
def test_everybody_is_answered_once_and_told_everything_in_order(steps: list[tuple[str, int]]) -> None:
    member = Member()
    begun(member)
    watcher = watched(member)
    tickets: list[Ticket] = []
    log: list[bytes] = []
    for kind, number in steps:
        if kind == "i":
            tickets += member.ask(put(b"%d" % number))
        elif kind == "r":
            tickets.append(member.metastore.read([b"%d" % number], member.asker))
            member.metastore.flush()
        elif kind == "c":
            log = [data for datas in member.group.proposed for data in datas]
            if log:
                member.metastore.apply([RaftEntry(1, 1, data=log[number % len(log)])])
        elif kind == "d":
            for context in member.group.contexts[number:]:
                member.metastore.read_ready(context)
        elif kind == "l":
            member.led([None, "A", "B", "C"][number])
        elif kind == "g":
            member.group.refusing = bool(number % 2)
        elif kind == "t":
            member.later(number * SECOND)
        elif kind == "s":
            watcher.takes_at_once = not watcher.takes_at_once
        else:
            member.metastore.taken(watcher)
            member.metastore.flush()
    member.group.refusing = False
    member.led("B")
    for data in [data for datas in member.group.proposed for data in datas]:
        member.metastore.apply([RaftEntry(1, 1, data=data)])
    member.later(DEADLINE_NS)
    watcher.takes_at_once = True
    member.metastore.taken(watcher)
    member.metastore.flush()
    told = [one[0] for one in member.asker.told]
    assert sorted(told) == tickets  # type: ignore[type-var]
    revisions = [one[0] for one in watcher.told[1:]]
    assert revisions == list(range(1, member.metastore.keyspace.revision + 1))
    answered = [one[1] for one in member.asker.told if isinstance(one[1], Invoked)]
    assert len({one.revision for one in answered}) == len(answered), "each invoke has its own revision"
    assert member.metastore.leftovers == {"questions to the metastore": 0}
