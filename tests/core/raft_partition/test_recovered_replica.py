"""Replicas of zones in files: a checkpoint, and the committed entries of the log after it."""

from __future__ import annotations

import pytest

from holdfast.config import Settings
from holdfast.core.journal.recovery import RecoveredGroup
from holdfast.core.model.ids import group_of
from holdfast.core.model.operations import Op, Request
from holdfast.core.model.zone_batches import ZoneChanges, ZoneRequests, ZoneWrites
from holdfast.core.multiraft.persistence import GroupHead, GroupWrite, encoded
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.raft_messages import RaftEntry, RaftSnapshot
from holdfast.core.raft.raft_state import HardState
from holdfast.core.raft_partition.partition_commands import ZoneCommand, encode_command
from holdfast.core.raft_partition.recovered_replica import RecoveredReplica
from holdfast.core.raft_partition.state_machine import StateMachine

NUMBER = group_of(4, 3)
VOTERS = Configuration(frozenset({"a", "b"}))


def entry(index: int, *parts: ZoneChanges, term: int = 2) -> RaftEntry:
    return RaftEntry(term, index, encode_command(ZoneCommand(1000 + index, parts, counted=True)))


def write(key: bytes, value: bytes | None, partition: int = 3) -> ZoneWrites:
    return ZoneWrites([("m", key, value, 0, 0)], partition)


def entries_in(replica: RecoveredReplica) -> dict[int, dict[bytes, bytes]]:
    return {
        partition: dict(copy.maps["m"].state.entries)
        for partition, copy in replica.copies.items()
        if "m" in copy.maps
    }


def test_committed_entries_of_the_log_are_applied() -> None:
    replace = Request(Op.REPLACE, "m", [3], b"a", b"2")
    begin = GroupWrite(hard=HardState(commit=1), begin=RaftSnapshot(1, 1, VOTERS))
    first = GroupWrite(
        HardState(2, commit=3), (RaftEntry(2, 2), entry(3, write(b"a", b"1")), entry(4, write(b"x", b"x")))
    )
    later = GroupWrite(
        HardState(2, commit=4), (entry(4, ZoneRequests([replace])), entry(5, write(b"b", b"3")))
    )
    replica = RecoveredReplica(
        NUMBER, RecoveredGroup(writes=[encoded(each) for each in (begin, first, later)])
    )
    assert (replica.zone, replica.partition, replica.index, replica.later) == (4, 3, 4, 1)
    assert entries_in(replica) == {3: {b"a": b"2"}}, (
        "entry 4 was replaced, and 5 is not known to be committed"
    )
    assert replica.copies[3].maps["m"].counter == 2


@pytest.mark.rule("raft_partition/R-3")
@pytest.mark.parametrize("partitions", [[3], [3, 7]])
def test_a_checkpoint_is_the_state_before_the_log(partitions: list[int]) -> None:
    machine = StateMachine(partitions, Settings())
    command = ZoneCommand(1000, tuple(write(b"a", b"%d" % each, each) for each in partitions), counted=True)
    machine.apply(command, 8, 2)
    snapshot = RaftSnapshot(8, 2, VOTERS)
    head = encoded(GroupHead(HardState(2, commit=8), snapshot, (entry(9, write(b"b", b"9")),)))
    found = RecoveredGroup([head, *machine.pieces()], [encoded(GroupWrite(HardState(2, commit=9)))])
    replica = RecoveredReplica(NUMBER, found)
    assert entries_in(replica) == {
        each: {b"a": b"%d" % each} | ({b"b": b"9"} if each == 3 else {}) for each in partitions
    }
    assert (replica.index, replica.later) == (9, 0)


def test_partitions_are_those_that_the_log_names_without_a_checkpoint() -> None:
    begin = GroupWrite(hard=HardState(commit=1), begin=RaftSnapshot(1, 1, VOTERS))
    both = GroupWrite(HardState(2, commit=2), (entry(2, write(b"a", b"1"), write(b"a", b"2", 10)),))
    replica = RecoveredReplica(NUMBER, RecoveredGroup(writes=[encoded(begin), encoded(both)]))
    assert entries_in(replica) == {3: {b"a": b"1"}, 10: {b"a": b"2"}}
    empty = RecoveredReplica(NUMBER, RecoveredGroup(writes=[encoded(begin)]))
    assert (list(empty.copies), entries_in(empty)) == ([3], {})
