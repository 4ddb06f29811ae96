"""What a restart makes of what a replica has written down."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.journal.recovery import RecoveredGroup
from holdfast.core.multiraft import group_journal
from holdfast.core.multiraft.persistence import (
    NOTHING,
    GroupHead,
    GroupWrite,
    RestoredGroup,
    encoded,
    regained,
)
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.group import Group
from holdfast.core.raft.raft_messages import RaftEntry, RaftKind, RaftMessage, RaftSnapshot
from holdfast.core.raft.raft_state import HardState
from holdfast_lab.sim.ablations.switching import ablated


def votes_again() -> bool:
    """Whether a replica that has voted in a term votes for somebody else there after a restart."""
    begin = RaftSnapshot(1, 1, Configuration(frozenset("abc")))
    write = GroupWrite(hard=HardState(5, "b", 1), begin=begin)
    replica = group_journal.regained(RecoveredGroup(writes=[encoded(write)]))
    group = Group("a", b"g", replica.log(), replica.hard)
    group.step(RaftMessage(kind=RaftKind.VOTE, to="a", sender="c", term=5, index=1, log_term=1))
    [answer] = group.ready().after
    assert answer.kind is RaftKind.VOTED
    return not answer.refused


@pytest.mark.rule("raft/E-1")
def test_a_vote_is_known_after_a_restart() -> None:
    assert not votes_again()
    with ablated("vote-durable"):
        assert votes_again()


ABC = Configuration(frozenset("abc"))


def entries(*indexes: int, term: int = 1) -> tuple[RaftEntry, ...]:
    return tuple(RaftEntry(term, index) for index in indexes)


def has(replica: RestoredGroup) -> list[tuple[int, int]]:
    """Index and term of each entry."""
    return [(entry.index, entry.term) for entry in replica.entries]


def begun(base: int, *indexes: int) -> RestoredGroup:
    return RestoredGroup(
        HardState(1, "b", base), RaftSnapshot(base, 1, ABC), list(entries(*indexes)), (b"state",)
    )


def test_what_is_written_has_the_form_that_older_files_have() -> None:
    assert msgspec.msgpack.decode(encoded(GroupWrite())) == [None, [], False, None, 0]
    head = GroupHead(HardState(5, "b", 7, 2), RaftSnapshot(7, 3, Configuration()), entries(8))
    hard, snapshot, after = msgspec.msgpack.decode(encoded(head))
    assert (hard, snapshot[:2], [entry[:2] for entry in after]) == ([5, "b", 7, 2], [7, 3], [[1, 8]])
    assert len({GroupWrite(), GroupWrite(), head}) == 2, "they are values"
    assert (NOTHING.index, NOTHING.term, NOTHING.configuration) == (0, 0, Configuration())


def test_a_restart_without_anything_has_nothing() -> None:
    replica = regained(RecoveredGroup())
    assert (replica.hard, replica.snapshot, replica.entries, replica.pieces) == (HardState(), NOTHING, [], ())
    assert (replica.log().last, replica.log().configuration) == (0, Configuration())


def test_a_restart_has_the_checkpoint_and_what_was_written_after_it() -> None:
    head = GroupHead(HardState(2, "b", 5), RaftSnapshot(5, 2, ABC), entries(6, 7))
    writes = [encoded(GroupWrite(HardState(3, "c", 6), entries(8, term=3)))]
    replica = regained(RecoveredGroup([encoded(head), b"one", b"two"], writes))
    assert (replica.hard, list(replica.pieces)) == (HardState(3, "c", 6), [b"one", b"two"])
    log = replica.log()
    assert (log.base, log.last, log.committed, log.applied, log.configuration) == (5, 8, 6, 5, ABC)
    assert has(replica) == [(6, 1), (7, 1), (8, 3)]


@pytest.mark.rule("raft/E-1")
@pytest.mark.parametrize(
    ("written", "left"),
    [
        (entries(6, term=2), [(4, 1), (5, 1), (6, 2)]),
        (entries(7, 8, term=2), [(4, 1), (5, 1), (6, 1), (7, 2), (8, 2)]),
        (entries(4, term=2), [(4, 2)]),
        (entries(5, 6, term=2), [(4, 1), (5, 2), (6, 2)]),
        (entries(8, term=2), [(4, 1), (5, 1), (6, 1)]),  # What is before it is not here.
        (entries(2, 3, 4, term=2), [(4, 2)]),
        (entries(3, 4, 5, term=2), [(4, 2), (5, 2)]),
        (entries(2, 3, term=2), [(4, 1), (5, 1), (6, 1)]),  # Older than the checkpoint.
        (entries(1, 2, term=2), [(4, 1), (5, 1), (6, 1)]),
        ((), [(4, 1), (5, 1), (6, 1)]),
    ],
)
def test_entries_replace_what_was_at_their_indexes_and_behind(
    written: tuple[RaftEntry, ...], left: list[tuple[int, int]]
) -> None:
    replica = begun(3, 4, 5, 6)
    replica.take(GroupWrite(entries=written))
    assert has(replica) == left
    assert (replica.hard, replica.snapshot.index) == (HardState(1, "b", 3), 3)


def test_what_was_abandoned_is_void_and_what_begins_begins_empty() -> None:
    replica = begun(3, 4)
    replica.take(GroupWrite(abandoned=True))
    assert (replica.hard, replica.snapshot, replica.entries) == (HardState(1, "b", 3), NOTHING, [])
    assert replica.pieces == ()
    replica = begun(3, 4)
    begin = RaftSnapshot(1, 1, Configuration(frozenset("x")))
    replica.take(GroupWrite(HardState(0, None, 1), begin=begin))
    assert (replica.hard, replica.snapshot, replica.entries) == (HardState(0, None, 1), begin, [])
    assert replica.pieces == ()


@pytest.mark.rule("multiraft/H-4")
@pytest.mark.parametrize("installing", [0, 3, 4])
def test_of_what_follows_a_state_that_is_not_here_term_and_vote_count(installing: int) -> None:
    replica = begun(3, 4)
    replica.take(GroupWrite(HardState(6, "c", 5), entries(5, term=6), installing=installing))
    missing = installing == 4
    assert replica.hard == HardState(6, "c", 3 if missing else 5)
    assert has(replica) == ([(4, 1)] if missing else [(4, 1), (5, 6)])
