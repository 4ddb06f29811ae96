"""Destination of a state transfer: a member that gets a partition, or a replica that is repaired (H3, H5).

- state_transfer/D-1: The new copy is separate from the present one (a *staging replica*) and never serves. It becomes
  this member's copy when it is complete, and a committed assignment says so (migration) or named this member already
  (repair).
- state_transfer/D-2: The first chunk is empty, and is answered with a description of what this member has: its copy, or
  an older one that it kept, as a base. The source then sends only what is missing (`state_transfer.delta_or_full`,
  `primary_backup.staging_replica`).
- state_transfer/D-3: Chunks are accepted only from the primary that this member's assignment names, at the same
  version. Others wait or are rejected (`CHUNKS`); a repeated chunk is answered again without effect. A rejected chunk
  is the last one of its supply: the staging replica is dropped, unless it counts already (state_transfer/D-4). It is
  also dropped when the primary cancels the supply, or is gone.
- state_transfer/D-4: The last chunk is acknowledged when the copy is complete up to the counters in that chunk, and its
  journalled maps are durable in a checkpoint.
- state_transfer/D-5: The remembered updates of maps with change streams are written to the journal too: otherwise they
  would be gone once all members that wrote them have dropped their copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from holdfast.core.hosted_services import Endpoint, MigrationEvent
from holdfast.core.journal.log import Log
from holdfast.core.journal.snapshot import snapshot_of
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import Fill, Filled, FillEnded, FillRefused
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.journal_entries import Began, Dropped, Snapshot
from holdfast.core.model.lifecycle import Case, Cases, Handling
from holdfast.core.model.notices import (
    AssignmentChanged,
    CheckpointEnded,
    LastChunkReceived,
    ReplicaWhole,
    ViewInstalled,
)
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import Room
from holdfast.core.outbox import Outbox
from holdfast.core.partition_table.table_replication import TableReplication
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.primary_backup.staging_replica import StagingPhase, StagingReplica, StagingStep
from holdfast.core.store.partition_copy import PartitionCopy

DISK_FULL = "its disk is full"
MEMORY_FULL = "its memory is full"
"""Reasons to reject a chunk without a change of the assignment, so the destination has to end the transfer."""
CHANGES_BYTES = 32 << 20
"""Limit of remembered updates per map that are written at once (state_transfer/D-5)."""
REFILL_NS = SECOND
"""Retry interval for a copy that the disk had no room for."""


@dataclass(frozen=True, slots=True)
class ChunkFound:
    sender: MemberId
    fill: Fill
    row: Assignment
    outstanding: int
    """Version of an assignment that is stored and not committed; 0: none newer."""
    no_room: str
    """Empty: this member can accept a further partition."""
    ticket: int
    """Ticket of the present supply from this sender; 0: none."""


CHUNKS: Final[Cases[ChunkFound]] = Cases(
    "a chunk of content",
    (
        Case("an older row", lambda it: it.row.version < it.fill.version, Handling.WAITS),
        Case(
            "a newer row",
            lambda it: it.row.version > it.fill.version,
            Handling.REFUSED,
            lambda it: f"the row is at version {it.row.version} here",
        ),
        Case(
            "a primary other than the sender",
            lambda it: it.row.owner != it.sender,
            Handling.REFUSED,
            lambda it: f"the primary is {it.row.owner}",
        ),
        Case(
            "no room for a partition that moves here",
            lambda it: it.fill.joining and bool(it.no_room),
            Handling.REFUSED,
            lambda it: it.no_room,
        ),
        Case(
            "a newer row that is stored and not committed, when it is of a migration",
            lambda it: it.fill.joining and bool(it.outstanding),
            Handling.REFUSED,
            lambda it: f"the decision on version {it.outstanding} is outstanding",
        ),
        Case(
            "a later supply of the same primary",
            lambda it: it.ticket > it.fill.ticket,
            Handling.REFUSED,
            lambda it: f"supply {it.ticket} has begun since",
        ),
        Case(
            "no earlier chunk of its supply",
            lambda it: bool(it.fill.sequence) and it.ticket != it.fill.ticket,
            Handling.REFUSED,
            lambda it: "earlier chunks are missing here",
        ),
    ),
)


class Destination:
    def __init__(
        self,
        me: MemberId,
        out: Outbox,
        rows: list[Assignment],
        copies: LocalReplicas,
        log: Log,
        *,
        membership: MembershipStatus,
        table_replication: TableReplication,
        tail_bytes: int = 0,
    ) -> None:
        self._tail_bytes = tail_bytes
        self._me = me
        self._out = out
        self._log = log
        self._rows = rows
        self._copies = copies
        self._services = copies.services
        self._membership = membership
        self._table_replication = table_replication
        self.staging = copies.staging
        self._early: dict[int, list[tuple[MemberId, Fill, int]]] = {}
        """By partition, with senders and times of arrival."""
        self._checkpoints: dict[int, tuple[int, StagingReplica]] = {}

    # -- chunks

    def on_fill(self, sender: MemberId, fill: Fill) -> None:
        """Add it to the staging replica, or reject it (state_transfer/D-3)."""
        partition = fill.partition
        handling, why = CHUNKS.judge(self._found(sender, fill))
        if handling is Handling.WAITS:
            self._early.setdefault(partition, []).append((sender, fill, self._out.now_ns))
            return
        if handling is Handling.REFUSED:
            self._give_up(partition, sender, fill.ticket)
            self._out.send(sender, FillRefused(partition, fill.version, fill.ticket, why))
            return
        staged = self.staging.get(partition)
        if staged is None or staged.ticket != fill.ticket or staged.source != sender:
            staged = self._begin(sender, fill)
        if fill.sequence == staged.sequence + 1:
            staged.sequence = fill.sequence
            staged.pour(fill, self._out.now_ns)
            if fill.last and fill.joining and fill.index == 0:
                self._out.notify(LastChunkReceived(partition, fill.paused_ns))
            if staged.complete:
                self._completed(partition)
                return
        if not fill.last or staged.durable:
            self._answer(sender, fill, staged)
        self._copies.retry(partition)

    def on_fill_ended(self, sender: MemberId, ended: FillEnded) -> None:
        early = self._early.pop(ended.partition, [])
        rest = [one for one in early if (one[0], one[1].ticket) != (sender, ended.ticket)]
        if rest:
            self._early[ended.partition] = rest
        self._give_up(ended.partition, sender, ended.ticket)

    def on_whole(self, notice: ReplicaWhole) -> None:
        self._completed(notice.partition)

    def _completed(self, partition: int) -> None:
        staged = self.staging[partition]
        taken = snapshot_of(staged.copy, self._out) if self._log.on else None
        if taken is None:
            self._log.note(Began(partition, staged.copy.epoch))
            self._held(partition, staged)
        else:
            self._write_down(partition, staged, taken)

    def _write_down(self, partition: int, staged: StagingReplica, taken: Snapshot) -> None:
        """state_transfer/D-4."""
        assert staged.phase is StagingPhase.WRITING, "what is whole is written down (state_transfer/D-4)"
        self._checkpoints[self._log.checkpoint(taken)] = partition, staged
        self._write_changes(staged.copy)

    def _write_changes(self, copy: PartitionCopy) -> None:
        """state_transfer/D-5."""
        for held in copy:
            tail = held.tail
            if tail is None or not held.changes or held.journal == "off":
                continue
            start = tail.start
            if tail.size > CHANGES_BYTES:
                start = tail.end - (tail.end - start) * CHANGES_BYTES // tail.size
            for term, run in groupby(tail.since(start), itemgetter(0)):
                self._log.wrote(copy.partition, term, [record for _, record in run], urgent=False)

    def on_checkpoint(self, notice: CheckpointEnded) -> None:
        written = self._checkpoints.pop(notice.ticket, None)
        if written is not None:
            self._written(*written, well=notice.well)

    def _written(self, partition: int, staged: StagingReplica, *, well: bool) -> None:
        """state_transfer/D-4."""
        if self.staging.get(partition) is not staged:
            return
        if well:
            self._held(partition, staged)
        elif staged.joining:
            self._give_up(partition, staged.source, staged.ticket)
            self._out.send(staged.source, FillRefused(partition, staged.version, staged.ticket, DISK_FULL))
        else:
            # The primary needs this replica to take office, and there may be room soon.
            staged.step(StagingStep.FULL)
            self._out.timer(TimerName.REFILL, REFILL_NS)

    def _give_up(self, partition: int, source: MemberId, ticket: int) -> None:
        """The supply has ended without a new assignment; a replica that counts already stays."""
        staged = self.staging.get(partition)
        if staged is None or staged.source != source or staged.ticket != ticket or staged.durable:
            return
        del self.staging[partition]
        self._services.give_up(partition)
        assert partition not in self._services.pending, "services have heard that it has come to nothing"
        if staged.complete:
            self._forget_on_disk(partition)
        staged.step(StagingStep.DROPPED)
        self._copies.retry(partition)

    def _held(self, partition: int, staged: StagingReplica) -> None:
        """The copy counts from now on."""
        assert self.staging.get(partition) is staged
        assert staged.source == self._rows[partition].owner, (
            "a copy counts for the primary that its row names"
        )
        staged.step(StagingStep.WRITTEN)
        last = Filled(partition, staged.version, staged.ticket, staged.sequence)
        if not staged.joining:
            # A repaired replica: this is its copy now (state_transfer/D-1).
            self._copies.replace(partition, staged.copy)
            del self.staging[partition]
            staged.step(StagingStep.TAKEN)
        self._out.send(staged.source, last)
        self._copies.retry(partition)

    def on_timer(self) -> None:
        for partition, staged in list(self.staging.items()):
            if staged.phase is StagingPhase.NO_ROOM:
                staged.step(StagingStep.AGAIN)
                self._completed(partition)

    def _answer(self, sender: MemberId, fill: Fill, staged: StagingReplica) -> None:
        demand = staged.demand(compare=fill.compare) if fill.sequence == 0 else None
        self._out.send(sender, Filled(fill.partition, fill.version, fill.ticket, fill.sequence, demand))

    def _begin(self, sender: MemberId, fill: Fill) -> StagingReplica:
        partition = fill.partition
        self._services.give_up(partition)
        if partition in self.staging:
            self.staging.pop(partition).step(StagingStep.DROPPED)
        if fill.joining:
            current = self._rows[partition].index_of(self._me)
            self._services.begin(MigrationEvent(partition, Endpoint.DESTINATION, current, fill.index))
        assert partition not in self.staging, "one copy of a partition is filled at a time"
        copy = PartitionCopy(partition, fill.epoch, self._copies.request_ids, self._copies.entries)
        self._copies.furnish(copy, fill.index)
        staged = self.staging[partition] = StagingReplica(
            sender,
            fill,
            copy,
            self._copies.open,
            self._copies.base(partition),
            self._tail_bytes,
        )
        return staged

    def _found(self, sender: MemberId, fill: Fill) -> ChunkFound:
        partition = fill.partition
        row, staged = self._rows[partition], self.staging.get(partition)
        stored = self._table_replication.stored_assignment(partition)
        return ChunkFound(
            sender,
            fill,
            row,
            stored.version if stored is not None and stored.version > row.version else 0,
            self._room_problem() if fill.joining else "",
            staged.ticket if staged is not None and staged.source == sender else 0,
        )

    def _room_problem(self) -> str:
        """Why this member cannot accept a further partition; empty: it can."""
        intents = self._membership.intents
        if self._me in intents.full:
            return DISK_FULL
        return MEMORY_FULL if intents.short.get(self._me) is Room.NONE else ""

    # -- assignments

    def on_assignment(self, notice: AssignmentChanged) -> None:
        """If the assignment says so, a complete staging replica becomes this member's copy."""
        partition = notice.partition
        arrived = self._arrived(partition, notice.old)
        copy = self._copies.assignment_changed(partition, notice.old, notice.new, arrived)
        assert partition not in self.staging, "a row ends whatever was filled for the one before"
        if arrived is not None and copy is not arrived:
            self._forget_on_disk(partition)

    def _arrived(self, partition: int, old: Assignment) -> PartitionCopy | None:
        """Returns the content if it is complete."""
        staged = self.staging.pop(partition, None)
        if staged is None:
            return None
        if staged.durable and staged.version >= old.version:
            staged.step(StagingStep.TAKEN)
            return staged.copy
        if staged.complete:
            self._forget_on_disk(partition)
        staged.step(StagingStep.DROPPED)
        return None

    def _forget_on_disk(self, partition: int) -> None:
        """A complete staging replica is not wanted any more."""
        if not self._log.on:
            return
        held = self._copies.held.get(partition)
        if held is not None:
            self._write_out(held)
        else:
            self._log.note(Dropped(partition))

    def write_out(self, partitions: tuple[int, ...]) -> None:
        """Write checkpoints of these partitions, so that older journal segments can be deleted."""
        for partition in partitions:
            staged = self.staging.get(partition)
            # When it is complete, the staging replica is what the disk holds.
            whole = staged is not None and staged.complete
            copy = staged.copy if staged is not None and whole else self._copies.held.get(partition)
            if copy is not None:
                self._write_out(copy)

    def _write_out(self, copy: PartitionCopy) -> None:
        taken = snapshot_of(copy, self._out)
        if taken is not None:
            self._log.checkpoint(taken)
        else:
            self._log.note(Began(copy.partition, copy.epoch))

    def retry(self, partition: int) -> None:
        """Chunks arrived before their assignment."""
        for sender, fill, came_ns in self._early.pop(partition, []):
            self.on_fill(sender, fill.after_wait(self._out.now_ns - came_ns))

    def on_view(self, notice: ViewInstalled) -> None:
        """Drop staging replicas whose sources have gone or have a new life. Usually a new assignment ends them, but not
        in a frozen table, nor for a partition that waits for its copies. A copy that its source knows to be here stays,
        since an assignment may name it; a complete repair becomes the copy.
        """
        if not notice.admitted:
            self._removed()
            return
        members = notice.gone | notice.came
        for partition, early in list(self._early.items()):
            rest = [one for one in early if one[0] not in members]
            if rest:
                self._early[partition] = rest
            else:
                del self._early[partition]
        for partition, staged in list(self.staging.items()):
            if staged.source in members and (staged.joining or not staged.complete):
                self._give_up(partition, staged.source, staged.ticket)

    @property
    def leftovers(self) -> dict[str, int]:
        return {"early chunks": len(self._early)}

    def _removed(self) -> None:
        """Drop incomplete staging replicas. A complete one stays: a majority may have stored the assignment that names
        it.
        """
        for partition in [p for p, staged in self.staging.items() if not staged.complete]:
            self.staging.pop(partition).step(StagingStep.DROPPED)
        self._early.clear()
