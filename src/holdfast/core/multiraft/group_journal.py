"""Persistence of the Raft replicas of one member: recovered files, pending writes, and checkpoints.

- multiraft/H-1: Messages that depend on a write are sent when the write is durable. A member without a journal sends
  them at once: after a restart it is another node.
- multiraft/H-2: A replica whose files may lack something that it has promised does not start.
- multiraft/H-11: A step collects about `COLLECTED_BYTES` for a checkpoint, however large the state is. The checkpoint
  is taken when all pieces are there: it has the state at the index at which they were begun, and the log after that
  index as it is then, so it covers the whole journal. Until then the log keeps these entries.

Example for multiraft/H-11: the checkpoint of a large state begins at index 40. Entries 41 to 90 are applied while its
pieces are collected. The checkpoint has the state at 40, entries 41 to 90, and the present term and vote.

Example for multiraft/H-1: a follower appends entries 7 and 8 and votes in the same `RaftReady`. Its vote and its
acknowledgement are a `PendingWrite`. A crash before the journal is durable loses the entries and the vote, and no other
member has counted on them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from holdfast.core.journal.log import Log
from holdfast.core.journal.recovery import RecoveredGroup
from holdfast.core.model.ids import GroupNumber
from holdfast.core.model.journal_entries import Began, Dropped, MapSnapshot, Snapshot
from holdfast.core.model.notices import CheckpointEnded, GroupsWritten
from holdfast.core.model.object_names import part_name
from holdfast.core.model.timer_name import TimerName
from holdfast.core.multiraft.hosted_group import HostedGroup, PendingWrite, StatePieces
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
COLLECTED_BYTES = 256 << 10
"""Approximate, in a step (multiraft/H-11)."""
COLLECTING = -1
"""The ticket of a checkpoint that is not taken yet."""


@dataclass(slots=True)
class _Collection:
    """The pieces of a checkpoint that is not taken yet (multiraft/H-11)."""

    hosted: HostedGroup
    snapshot: RaftSnapshot
    state: StatePieces
    writes: list[PendingWrite]
    """They wait for the checkpoint, because the state was installed."""
    pieces: list[bytes] = field(default_factory=list)


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
        self._collections: dict[GroupNumber, _Collection] = {}
        self._checkpoints: dict[int, tuple[HostedGroup, list[PendingWrite]]] = {}
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
        self.abort_checkpoint(number)
        if self._recovered.pop(number, None) is not None or hosted:
            self._log.note(Dropped(number))

    # -- writing

    def write(self, hosted: HostedGroup, ready: RaftReady) -> PendingWrite:
        """The client has the state of its snapshot, if it has one."""
        write = PendingWrite(ready.after, ready.written)
        if ready.abandoned and self._log.on:
            self._abandon(hosted)
            self._log.group_wrote(hosted.number, encoded(GroupWrite(abandoned=True)))
        if ready.snapshot is not None and self._log.on:
            self._checkpoint(hosted, ready.snapshot, [write])
        if self._log.on and (ready.must_sync or ready.entries or ready.abandoned):
            arrived = hosted.group.log.snapshot
            installing = arrived.index if arrived is not None else 0
            data = encoded(GroupWrite(ready.hard, tuple(ready.entries), installing=installing))
            self._log.group_wrote(hosted.number, data)
            self._batch.append((hosted, write))
        else:
            write.durable = True
        return write

    def _abandon(self, hosted: HostedGroup) -> None:
        """The writes that wait for a checkpoint have nothing to acknowledge: they are of an earlier generation."""
        waiting = self.abort_checkpoint(hosted.number)
        for ticket, (of, writes) in list(self._checkpoints.items()):
            if of is hosted:
                waiting += writes
                del self._checkpoints[ticket]
        for write in waiting:
            write.after, write.written, write.ticket = (), None, 0

    def write_out(self, number: GroupNumber) -> None:
        """A checkpoint, so that older segments of the journal can be deleted."""
        hosted = self._hosted.get(number)
        if hosted is not None and hosted.group.log.snapshot is None and number not in self._collections:
            self._checkpoint(hosted, _present(hosted), [])

    def _checkpoint(self, hosted: HostedGroup, snapshot: RaftSnapshot, writes: list[PendingWrite]) -> None:
        """Begin a checkpoint of the client's state, which is that at the snapshot's index."""
        before = self.abort_checkpoint(hosted.number)
        for write in writes:
            write.ticket = COLLECTING
        collection = _Collection(hosted, snapshot, hosted.client.pieces(), [*before, *writes])
        self._collections[hosted.number] = collection
        self._collect(collection)

    def abort_checkpoint(self, number: GroupNumber) -> list[PendingWrite]:
        """Forget a checkpoint that is not taken yet. Returns the writes that wait for it."""
        collection = self._collections.pop(number, None)
        if collection is None:
            return []
        collection.state.close()
        return collection.writes

    @property
    def collecting(self) -> int:
        """Checkpoints that are begun and not taken."""
        return len(self._collections)

    def collected_from(self, number: GroupNumber) -> int | None:
        """The log has to keep the entries after this index (multiraft/H-11); None: no checkpoint is begun."""
        collection = self._collections.get(number)
        return collection.snapshot.index if collection is not None else None

    def collect_some(self) -> None:
        """Continue the oldest checkpoint."""
        if self._collections:
            self._collect(next(iter(self._collections.values())))

    def _collect(self, collection: _Collection) -> None:
        hosted = collection.hosted
        if collection.state.is_void:
            collection.state.close()
            collection.snapshot = hosted.group.log.snapshot or _present(hosted)
            collection.state, collection.pieces = hosted.client.pieces(), []
        size = 0
        for piece in collection.state:
            collection.pieces.append(piece)
            size += len(piece)
            if size >= COLLECTED_BYTES:
                self._out.timer(TimerName.GROUPS_MORE, 0)
                return
        del self._collections[hosted.number]
        ticket = self._take(hosted, collection.snapshot, collection.pieces)
        if collection.writes:
            for write in collection.writes:
                write.ticket = ticket
            self._checkpoints[ticket] = (hosted, collection.writes)

    def _take(self, hosted: HostedGroup, snapshot: RaftSnapshot, pieces: list[bytes]) -> int:
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
        hosted, writes = found
        if notice.well:
            for write in writes:
                write.ticket = 0
            return hosted
        if self._hosted.get(hosted.number) is hosted:
            snapshot = hosted.group.log.snapshot
            assert snapshot is not None, "a snapshot is installed only when its state is durable"
            self._checkpoint(hosted, snapshot, writes)
        return None


def _present(hosted: HostedGroup) -> RaftSnapshot:
    """The state as it is applied."""
    log = hosted.group.log
    return RaftSnapshot(log.applied, log.term(log.applied), log.configuration_at(log.applied))
