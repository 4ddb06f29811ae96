"""Replicas of zones in the files of a member, without a group: for those who read files of members that do not run.

A replica is its checkpoint, and the entries of its log up to the last one that the files show to be committed. The
entries after that may be committed, too: a follower learns of it with the next entries, and another leader may have
replaced them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.config import Settings
from holdfast.core.journal.recovery import RecoveredGroup
from holdfast.core.model.ids import GroupNumber, PartitionId, place_of
from holdfast.core.model.zone_batches import ZoneRequests, ZoneWrites
from holdfast.core.multiraft.persistence import regained
from holdfast.core.raft_partition.partition_commands import ZoneCommand, decode_command
from holdfast.core.raft_partition.state_machine import StateMachine
from holdfast.core.store.partition_copy import PartitionCopy

NAMED = 2
"""Fields of a `NamedPiece`; a `CopyHead` has more."""


class RecoveredReplica:
    def __init__(self, number: GroupNumber, found: RecoveredGroup) -> None:
        """`found`: of a zone, and not in doubt. Raises msgspec.MsgspecError."""
        self.zone, self.partition = place_of(number)
        replica = regained(found)
        commands = [
            (entry.index, entry.term, decode_command(entry.data)) for entry in replica.entries if entry.data
        ]
        partitions = _named_in(replica.pieces) or _written_in([command for _, _, command in commands])
        machine = StateMachine(sorted(partitions) or [self.partition], Settings())
        if replica.pieces:
            machine.restore(replica.pieces)
        self.index = max(replica.hard.commit, replica.snapshot.index)
        """Index of the last entry that is committed for certain."""
        for index, term, command in commands:
            if replica.snapshot.index < index <= self.index:
                machine.apply(command, index, term)
        self.later = sum(1 for index, _, _ in commands if index > self.index)
        """Further entries, which may be committed."""
        self.copies: dict[PartitionId, PartitionCopy] = machine.copies


def _named_in(pieces: Sequence[bytes]) -> set[PartitionId]:
    """Client partitions of a checkpoint that names them, because the group serves several."""
    found = set()
    for piece in pieces:
        fields: list[Any] = msgspec.msgpack.decode(piece, type=list[Any])
        if len(fields) != NAMED:
            return set()
        found.add(fields[0])
    return found


def _written_in(commands: Iterable[ZoneCommand]) -> set[PartitionId]:
    found = set()
    for command in commands:
        for part in command.parts:
            if isinstance(part, ZoneWrites) and part.partition >= 0:
                found.add(part.partition)
            elif isinstance(part, ZoneRequests):
                found.update(partition for request in part.requests for partition in request.partitions)
    return found
