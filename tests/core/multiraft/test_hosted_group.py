"""One replica of a group: when a write is done, and what a rebuild from the leader's state does and does not do."""

from __future__ import annotations

import pytest
from tests.core.multiraft.group_cluster import ONE, Cluster, Ledger, hosted, led

from holdfast.core.multiraft.hosted_group import HostedGroup, PendingWrite
from holdfast.core.raft.raft_messages import RaftSnapshot


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("ticket", [0, 3])
def test_a_write_is_done_when_it_and_its_checkpoint_are_durable(*, durable: bool, ticket: int) -> None:
    assert PendingWrite([], None, durable, ticket).done is (durable and not ticket)


class Follower:
    """A follower that has applied `one` and `two`: entries 3 and 4. Its log begins after entry 1."""

    def __init__(self) -> None:
        self.cluster: Cluster = led()
        self.cluster.propose(1, b"one", b"two")
        self.cluster.quiesce()
        self.cluster.go(2)
        self.hosted: HostedGroup = hosted(self.cluster, 2)
        self.log = self.hosted.group.log
        assert (self.log.base, self.log.applied, self.log.last) == (1, 4, 4)

    @property
    def ledger(self) -> Ledger:
        return self.cluster[2].clients[ONE]

    def rebuild(self, index: int, *, term: int | None = None) -> list[bytes] | None:
        """The commands after a rebuild from this state; None: nothing was restored."""
        before = self.ledger.restored
        term = self.log.term(index) if term is None else term
        snapshot = RaftSnapshot(index, term, self.log.configuration_at(index))
        fill = self.ledger.fill()
        fill.add(b"of the leader")
        self.hosted.rebuild(snapshot, fill)
        return self.ledger.applied if self.ledger.restored > before else None


@pytest.mark.rule("multiraft/H-9")
@pytest.mark.parametrize(
    ("index", "commands"), [(1, [b"one", b"two"]), (2, [b"one", b"two"]), (3, [b"two"]), (4, [])]
)
def test_commands_after_the_state_are_applied_again(index: int, commands: list[bytes]) -> None:
    """Entry 2 has no command: the leader appended it to begin its term."""
    assert Follower().rebuild(index) == [b"of the leader", *commands]


@pytest.mark.rule("multiraft/H-9")
def test_a_state_of_another_history_changes_nothing() -> None:
    follower = Follower()
    assert follower.rebuild(3, term=follower.log.term(3) + 1) is None
    assert follower.rebuild(0, term=0) is None, "the entries after it are not in the log any more"
    assert follower.ledger.applied == [b"one", b"two"]


@pytest.mark.rule("multiraft/H-9")
def test_a_state_is_ignored_while_a_newer_one_is_being_installed() -> None:
    follower = Follower()
    follower.log.snapshot = RaftSnapshot(9, follower.log.last_term, follower.log.configuration)
    assert follower.rebuild(3) is None


@pytest.mark.rule("raft_partition/Z-10")
@pytest.mark.parametrize(("before", "after"), [(0, 4), (4, 4), (9, 9)])
def test_entries_that_are_applied_again_are_no_news(before: int, after: int) -> None:
    follower = Follower()
    follower.hosted.known_to = before
    follower.rebuild(2)
    assert follower.hosted.known_to == after
