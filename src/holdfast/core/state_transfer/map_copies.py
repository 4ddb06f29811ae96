"""Proof that replicas hold a map whose number of copies changes in use (model/C-1).

- state_transfer/N-1: While a map has more copies than failover relies on, a primary fills every replica at the indices
  in between, like one that differs, and counts it when that is complete. It proves each step of the change again, so a
  record that was not acknowledged in the step before is there in the next. A replica counts while this member stays
  primary and it keeps its index.
- state_transfer/N-2: The master continues when every member has reported, after the last change of the table, that it
  has proved all of its replicas and that nothing is unsafe.

Example for state_transfer/N-1: writes to map `m` begin to wait for index 2. A write of one millisecond before did not,
and its record may still be on its way. If failover relied on index 2 now, and the first two members crashed, this
acknowledged write would be lost.
"""

from __future__ import annotations

from functools import partial

from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.model.ids import MemberId
from holdfast.core.model.notices import AssignmentChanged, BeatHeard, ViewInstalled
from holdfast.core.model.partition_table import Assignment
from holdfast.core.outbox import Outbox
from holdfast.core.partition_table.table_replication import TableReplication
from holdfast.core.state_transfer.source import Source

ReplicaPlace = tuple[int, MemberId]
"""A partition, and a member with a replica of it."""


class MapCopies:
    def __init__(
        self,
        me: MemberId,
        out: Outbox,
        rows: list[Assignment],
        source: Source,
        membership: MembershipStatus,
        parallel: int,
    ) -> None:
        """`parallel`: replicas filled at a time."""
        self._me = me
        self._out = out
        self._rows = rows
        self._source = source
        self._membership = membership
        self._parallel = parallel
        self._proven: dict[ReplicaPlace, int] = {}
        """With their index."""
        self._running: set[ReplicaPlace] = set()
        self._ticket = 0
        """Supplies up to this one began before the present step, and prove nothing."""
        self._step = 0
        """View in which the present step of all changes began."""
        self._reported: dict[MemberId, int] = {}
        """As master: members with nothing unsafe or unproven, and the round of the table of their report."""

    # -- the primary

    @property
    def _depths(self) -> tuple[int, int]:
        """Replicas with these indices, without the second, may lack a map that they should hold."""
        view = self._membership.view
        changes = view.maps.changes if view is not None else ()
        changing = [
            (change.copies.backups, change.target.copies)
            for change in changes
            if change.copies is not None and change.target is not None and not change.done
        ]
        if not changing:
            return 0, 0
        return min(1 + backups for backups, _ in changing), max(copies for _, copies in changing)

    def unproven(self) -> list[ReplicaPlace]:
        first, end = self._depths
        if first >= end:
            return []
        return [
            (partition, member)
            for partition, row in enumerate(self._rows)
            if row.owner == self._me
            for index, member in enumerate(row.holding[first:end], first)
            if index and member is not None and self._proven.get((partition, member)) != index
        ]

    def unsafe_reason(self) -> str:
        """Replicas that are still to be filled; empty: none."""
        left = self.unproven()
        if not left:
            return ""
        view = self._membership.view
        names = ", ".join(change.name for change in view.maps.changes if not change.done) if view else ""
        return f"{len(left)} replicas are being filled, because the number of copies changes of: {names}"

    def sweep(self) -> None:
        """See state_transfer/N-1."""
        present = self._membership.intents.heard_from
        for replica in self.unproven():
            if len(self._running) >= self._parallel:
                return
            partition, member = replica
            # A member of an older view would drop what it gets when it learns of this step.
            if replica in self._running or member not in present or self._is_older(partition, member):
                continue
            self._running.add(replica)
            index = self._rows[partition].index_of(member)
            self._source.refill(partition, member, partial(self._ended, replica, index, self._step))

    def _is_older(self, partition: int, member: MemberId) -> bool:
        """Whether a supply runs that began before this step, perhaps without the map."""
        supply = self._source.supplies.find(partition, member)
        return supply is not None and supply.ticket <= self._ticket

    def _ended(self, replica: ReplicaPlace, index: int, step: int, why: str) -> None:
        self._running.discard(replica)
        partition, member = replica
        row = self._rows[partition]
        if why or step != self._step:
            return
        if row.owner == self._me and row.index_of(member) == index:
            self._proven[replica] = index
            self.sweep()

    def on_assignment(self, notice: AssignmentChanged) -> None:
        partition, row = notice.partition, notice.new
        for replica, index in list(self._proven.items()):
            if replica[0] == partition and (row.owner != self._me or row.index_of(replica[1]) != index):
                del self._proven[replica]

    def on_view(self, notice: ViewInstalled) -> None:
        """A new step is proved from the beginning."""
        old, new = notice.old, notice.new
        self._reported.clear()
        if new is None or old is None or old.maps != new.maps:
            self._proven.clear()
            self._step = new.number if new is not None else 0
            self._ticket = self._source.supplies.newest

    # -- the master

    def on_beat(self, notice: BeatHeard) -> None:
        view = self._membership.view
        if view is None or view.maps.done or notice.view != view.number:
            return
        if notice.sender in self._membership.intents.safe:
            self._reported[notice.sender] = notice.applied
        else:
            self._reported.pop(notice.sender, None)

    def proven_by_all(self, own_reason: str, table_replication: TableReplication) -> bool:
        """state_transfer/N-2. `own_reason`: what is unsafe here."""
        if own_reason or not table_replication.settled or not table_replication.kept_by_all:
            return False
        newest, _ = table_replication.rounds()
        others = [info.uuid for info in self._membership.members() if info.uuid != self._me]
        return all(self._reported.get(uuid, -1) >= newest for uuid in others)

    @property
    def leftovers(self) -> dict[str, int]:
        return {"replicas that are filled for a change of copies": len(self._running)}
