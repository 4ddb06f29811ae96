"""What a restart makes of what a replica has written down."""

from __future__ import annotations

import pytest

from holdfast.core.consensus.configuration import Configuration
from holdfast.core.consensus.group import Group
from holdfast.core.consensus.raft_messages import RaftKind, RaftMessage, RaftSnapshot
from holdfast.core.consensus.seat import HardState
from holdfast.core.groups import local_groups
from holdfast.core.groups.written import GroupWrite, encoded
from holdfast.core.journal.recovery import RecoveredGroup
from holdfast.sim.ablations.switching import ablated


def votes_again() -> bool:
    """Whether a replica that has voted in a term votes for somebody else there after a restart."""
    begin = RaftSnapshot(1, 1, Configuration(frozenset("abc")))
    write = GroupWrite(hard=HardState(5, "b", 1), begin=begin)
    replica = local_groups.regained(RecoveredGroup(writes=[encoded(write)]))
    group = Group("a", b"g", replica.log(), replica.hard)
    group.step(RaftMessage(kind=RaftKind.VOTE, to="a", sender="c", term=5, index=1, log_term=1))
    [answer] = group.ready().after
    assert answer.kind is RaftKind.VOTED
    return not answer.refused


@pytest.mark.rule("consensus/E-1")
def test_a_vote_is_known_after_a_restart() -> None:
    assert not votes_again()
    with ablated("vote-durable"):
        assert votes_again()
