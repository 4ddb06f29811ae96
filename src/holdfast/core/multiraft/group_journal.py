"""Persistence of the Raft replicas of one member: recovered files, pending writes, and checkpoints.

- multiraft/H-1: Messages that depend on a write are sent when the write is durable. A member without a journal sends
  them at once: after a restart it is another node.
- multiraft/H-2: A replica whose files may lack something that it has promised does not start.

Example for multiraft/H-1: a follower appends entries 7 and 8 and votes in the same `RaftReady`. Its vote and its
acknowledgement are a `PendingWrite`. A crash before the journal is durable loses the entries and the vote, and no other
member has counted on them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import msgspec

from holdfast.core.journal.log import Log
from holdfast.core.journal.recovery import RecoveredGroup
from holdfast.core.model.ids import GroupNumber
from holdfast.core.model.journal_entries import Began, Dropped, MapSnapshot, Snapshot
from holdfast.core.model.notices import CheckpointEnded, GroupsWritten
from holdfast.core.model.object_names import part_name
from holdfast.core.multiraft.hosted_group import HostedGroup, PendingWrite
from holdfast.core.multiraft.persistence import (
    NOTHING,
    GroupHead,
    GroupWrite,
    RestoredGroup,
    encoded,
    regained,
)
from holdfast.core.outbox import Outbox
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.group import RaftReady
from holdfast.core.raft.raft_messages import RaftSnapshot

PIECES = part_name("raft")


class GroupJournal:
    def __init__(
        self,
        out: Outbox,
        log: Log,
        hosted: Mapping[GroupNumber, HostedGroup],
        recovered: Mapping[GroupNumber, RecoveredGroup] | None,
    ) -> None:
        """`hosted`: kept up to date by the caller. `recovered`: replicas in the files."""
        self._out = out
        self._log = log
        self._hosted = hosted
        self._recovered = dict(recovered or {})
        self._batch: list[tuple[HostedGroup, PendingWrite]] = []
        self._batches: dict[int, list[tuple[HostedGroup, PendingWrite]]] = {}
        self._batch_number = 0
        self._checkpoints: dict[int, tuple[HostedGroup, PendingWrite]] = {}
        self.durable: deque[HostedGroup] = deque()
        """A write of theirs has become durable; the host takes them out."""

    # -- restart

    @property
    def found(self) -> list[GroupNumber]:
        """Groups in the files that are neither started nor stopped yet."""
        return sorted(self._recovered)

    def doubt(self, number: GroupNumber) -> str:
        """Why a recovered replica cannot be used, or "" (multiraft/H-2)."""
        found = self._recovered.get(number)
        return found.doubt if found is not None else ""

    def peek(self, number: GroupNumber) -> RestoredGroup:
        return regained(self._recovered[number])

    def open(self, number: GroupNumber, configuration: Configuration) -> RestoredGroup | None:
        """Restore the replica from the files, or begin with this configuration; None: the files are unusable."""
        found = self._recovered.get(number)
        if found is None:
            return self._begin(number, configuration)
        if not found.doubt:
            try:
                replica = regained(found)
            except msgspec.DecodeError as error:
                found = self._recovered[number] = RecoveredGroup(
                    doubt=f"what is in the files is none: {error}"
                )
            else:
                del self._recovered[number]
                return replica
        self._out.note("group replica not started", "error", group=number, reason=found.doubt)
        return None

    def _begin(self, number: GroupNumber, configuration: Configuration) -> RestoredGroup:
        replica = RestoredGroup()
        replica.snapshot = RaftSnapshot(1, 1, configuration) if configuration.voters else NOTHING
        replica.hard = replica.hard._replace(commit=replica.snapshot.index)
        self._log.note(Began(number, 0))
        if self._log.on:
            write = GroupWrite(hard=replica.hard, begin=replica.snapshot)
            self._log.group_wrote(number, encoded(write))
        return replica

    def drop(self, number: GroupNumber, *, hosted: bool) -> None:
        """Void the files of a replica. `hosted`: it was running."""
        if self._recovered.pop(number, None) is not None or hosted:
            self._log.note(Dropped(number))

    # -- writing

    def write(self, hosted: HostedGroup, ready: RaftReady, pieces: Iterable[bytes] = ()) -> PendingWrite:
        """`pieces`: the state of its snapshot, if it has one."""
        write = PendingWrite(ready.after, ready.written)
        if ready.abandoned and self._log.on:
            self._log.group_wrote(hosted.number, encoded(GroupWrite(abandoned=True)))
        if ready.snapshot is not None and self._log.on:
            write.ticket = self._checkpoint(hosted, ready.snapshot, pieces)
            self._checkpoints[write.ticket] = (hosted, write)
        if self._log.on and (ready.must_sync or ready.entries or ready.abandoned):
            arrived = hosted.group.log.snapshot
            installing = arrived.index if arrived is not None else 0
            data = encoded(GroupWrite(ready.hard, tuple(ready.entries), installing=installing))
            self._log.group_wrote(hosted.number, data)
            self._batch.append((hosted, write))
        else:
            write.durable = True
        return write

    def write_out(self, number: GroupNumber) -> None:
        """A checkpoint, so that older segments of the journal can be deleted."""
        hosted = self._hosted.get(number)
        if hosted is None or hosted.group.log.snapshot is not None:
            return
        log = hosted.group.log
        at = log.applied
        snapshot = RaftSnapshot(at, log.term(at), log.configuration_at(at))
        self._checkpoint(hosted, snapshot, hosted.client.pieces())

    def _checkpoint(self, hosted: HostedGroup, snapshot: RaftSnapshot, pieces: Iterable[bytes]) -> int:
        log = hosted.group.log
        entries = log.entries_from(snapshot.index + 1) if snapshot.index < log.last else ()
        head = encoded(GroupHead(hosted.group.hard, snapshot, entries))
        taken = MapSnapshot(PIECES, [], b"", [], [head, *pieces])
        taken.keys.extend(place.to_bytes(8, "big") for place in range(len(taken.values)))
        return self._log.checkpoint(Snapshot(hosted.number, 0, [taken], b"", self._out.wall_ms()))

    def flush(self) -> None:
        """All writes of the step become durable together."""
        if self._batch:
            self._batch_number += 1
            batch, self._batch = self._batch, []
            self._batches[self._batch_number] = batch
            self._log.notify_when_durable(GroupsWritten(self._batch_number))

    # -- durable

    def on_written(self, notice: GroupsWritten) -> None:
        """See multiraft/H-1."""
        for hosted, write in self._batches.pop(notice.batch):
            write.durable = True
            self.durable.append(hosted)

    def on_checkpoint(self, notice: CheckpointEnded) -> HostedGroup | None:
        """Returns the replica whose installed state is durable now.

        A checkpoint of an installed state that failed for lack of room is taken again: the replica acknowledges the
        snapshot only when its state is durable. A failed checkpoint of `write_out` costs nothing but older segments.
        """
        found = self._checkpoints.pop(notice.ticket, None)
        if found is None:
            return None
        hosted, write = found
        if notice.well:
            write.ticket = 0
            return hosted
        if self._hosted.get(hosted.number) is hosted:
            snapshot = hosted.group.log.snapshot
            assert snapshot is not None, "a snapshot is installed only when its state is durable"
            write.ticket = self._checkpoint(hosted, snapshot, hosted.client.pieces())
            self._checkpoints[write.ticket] = (hosted, write)
        return None
