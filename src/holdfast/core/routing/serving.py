"""The partitions on which this member takes requests, and those that the data lane may use.

A partition is served from its activation until its assignment names another owner, the member is removed, or a handover
begins. While some writes must be rejected, sessions find no copy on the data lane and go through the router, which
rejects them with a reason.
"""

from __future__ import annotations

from holdfast.config import Settings
from holdfast.core.effects import BackpressureChanged
from holdfast.core.membership.membership import Membership
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.notices import (
    AssignmentChanged,
    HandoverBegan,
    MemoryRoomChanged,
    ServingBegan,
    ViewInstalled,
)
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import Room
from holdfast.core.outbox import Outbox
from holdfast.core.partition_table.table_replication import TableReplication
from holdfast.core.primary_backup.lane import Lane, NewFrameServer, Swept
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.primary_backup.lock_owners import LockOwners
from holdfast.core.primary_backup.primary_activation import PrimaryActivation
from holdfast.core.routing.frame_forwarding import FrameForwarding
from holdfast.core.routing.leave_gate import LeaveGate
from holdfast.core.routing.router import Router

SWEEP_LIMIT = 200
SWEEP_ON_NS = {Swept.SOME_ENTRIES: MILLISECOND, Swept.SOME_MAPS: 25 * MILLISECOND}
"""Pause before an unfinished sweep continues."""
MEMORY_SHORT = (
    "memory is nearly full: writes that store entries are refused until entries are removed, a member "
    "joins, or limits.memory_bytes is raised"
)
MEMORY_TIGHT = "memory is full: writes that store entries are refused, and no partition is moved here"


class Serving:
    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        rows: list[Assignment],
        membership: Membership,
        table_replication: TableReplication,
        copies: LocalReplicas,
        lane: Lane,
        activation: PrimaryActivation,
        router: Router,
    ) -> None:
        self._me = me
        self._settings = settings
        self._out = out
        self._rows = rows
        self._membership = membership
        self._table_replication = table_replication
        self._copies = copies
        self._lane = lane
        self._activation = activation
        self._router = router
        self._access = router.access
        self.forwarding = router.frames = FrameForwarding(me, settings, out, rows, router, lane, membership)
        self.lock_owners = LockOwners(out, membership, lane)
        self.leave_gate = LeaveGate(out, membership, self._access, self.forwarding)

    def forward_frames(self, server: NewFrameServer | None) -> None:
        """`server`: None: this member forwards no frames, and serves none."""
        if server is not None:
            self.forwarding.serve_with(server(self._lane, self._access, self._settings))

    # -- the primary of a partition

    def on_assignment(self, notice: AssignmentChanged) -> None:
        partition, old, new = notice.partition, notice.old, notice.new
        assert self._rows[partition] is new, "the table has the new assignment"
        assert old.version < new.version, "a new assignment has a higher version"
        losses = self._router.refusals.losses
        if old.lost != new.lost:
            if losses.learn(partition, new.lost):
                self._router.restrict()
            self._access.on_losses()
        copy = self._copies.held.get(partition)
        if new.owner != self._me:
            if copy is not None:
                copy.follow()
            self._stop(partition)
        elif partition in self._activation.active and old.owner == self._me and old.epoch == new.epoch:
            assert copy is not None, "a primary holds what it serves"
            self.serve(partition)
        elif self._table_replication.current:
            self._become_primary(partition)

    def on_current(self) -> None:
        """Activate the primaries of a member that joined or returned."""
        for partition, row in enumerate(self._rows):
            if row.owner == self._me and partition not in self._activation.active:
                self._become_primary(partition)

    def on_returned(self, notice: ViewInstalled) -> None:
        """Replicas in a new life may hold something else than before: activate again."""
        if not notice.admitted or not self._table_replication.current:
            return
        for partition, row in enumerate(self._rows):
            if row.owner == self._me and notice.came.intersection(row.replicas):
                self._become_primary(partition)

    def on_handover(self, notice: HandoverBegan) -> None:
        self._close(notice.partition)

    def serve(self, partition: int) -> None:
        """Activation succeeded, or a handover was aborted."""
        copy = self._copies.held[partition]
        assert self._rows[partition].owner == self._me, "only the primary serves"
        assert copy.term, "a serving primary has a term"
        self._access.look(partition, copy)
        self._lane.leading[partition] = copy
        self._lane.serving[partition] = None if self._hides(partition) else copy
        self._lane.retarget(copy)
        self._out.notify(ServingBegan(partition))

    def take(self, partition: int) -> None:
        self.serve(partition)
        self._lane.invalidate_near_caches()

    def _become_primary(self, partition: int) -> None:
        self._close(partition)
        assert self._rows[partition].owner == self._me, "the assignment names the primary"
        copy = self._copies.held[partition]
        if not copy.term:
            copy.lead(self._rows[partition].version)
        assert copy.term <= self._rows[partition].version, "a term is not above the assignment's version"
        self._activation.begin(partition)

    def _close(self, partition: int) -> None:
        copy = self._lane.leading[partition]
        if copy is not None:
            self._router.backup_reads.step_down(partition, copy)
        self._lane.serving[partition] = self._lane.leading[partition] = None
        self._access.look(partition, None)

    def _stop(self, partition: int) -> None:
        self._close(partition)
        self._activation.cancel(partition)
        self._lane.abandon(partition)
        assert partition not in self._activation.active, "a stopped primary is not active"
        assert not self._lane.unfinished(partition), "a stopped primary has no open batches"

    def on_marked(self, partition: int) -> None:
        self._access.look(partition, self._lane.leading[partition])

    # -- restrictions

    def on_view(self, notice: ViewInstalled) -> None:
        """A removed member keeps its copies and serves none of them."""
        view, refusals = notice.new, self._router.refusals
        refusals.passive = view is not None and not view.state.writes
        members = view.members if view is not None and not view.missing else []
        refusals.dataless = bool(members) and all(info.lite for info in members)
        self.restrict()
        if not notice.admitted:
            for partition in range(len(self._rows)):
                self._stop(partition)
            for copy in self._copies.held.values():
                copy.follow()

    def on_beat(self) -> None:
        """A member may have reported another room."""
        intents, refusals = self._membership.intents, self._router.refusals
        if refusals.full.keys() != intents.full:
            self.restrict()
        if refusals.short != intents.short:
            self._out.notify(MemoryRoomChanged())

    def on_memory_room(self, room: Room) -> None:
        before = self._membership.intents.short.get(self._me, Room.PLENTY)
        if room is before:
            return
        self._membership.note_room(room)
        if room > before:
            what = MEMORY_SHORT if room is Room.LITTLE else MEMORY_TIGHT
            self._out.note(what, level="warning", limit=self._settings.limits.memory_bytes)
        elif room is Room.PLENTY:
            self._out.note("memory available again: writes are accepted")
        else:
            self._out.note("memory available again for migrations")
        self._out.notify(MemoryRoomChanged())

    def on_backlog(self) -> None:
        self._show()
        self._out.effects.append(BackpressureChanged())

    def restrict(self) -> None:
        intents, refusals = self._membership.intents, self._router.refusals
        refusals.know(self._membership.members(), intents.full, intents.short)
        if refusals.any:
            self._router.restrict()
        self._show()

    def _show(self) -> None:
        for partition, copy in enumerate(self._lane.leading):
            self._lane.serving[partition] = None if self._hides(partition) else copy
        self.forwarding.look_at_all()

    def _hides(self, partition: int) -> bool:
        """Whether sessions must not write to the partition through the data lane, because some writes are
        rejected now.
        """
        refusals = self._router.refusals
        if refusals.passive or self._lane.backlog.refusing:
            return True
        if not refusals.full and not refusals.short:
            return False
        return any(one in refusals.full or one in refusals.short for one in self._rows[partition].replicas)

    # -- periodic work

    def sweep(self) -> None:
        """Remove expired entries, also where memory is short, because that makes room. When many entries expire at the
        same time the sweep continues a little later, so that requests do not wait for all of them.
        """
        refusals = self._router.refusals
        held_up = refusals.passive or refusals.full or self._lane.backlog.refusing
        swept = self._lane.sweep(SWEEP_LIMIT, self._lane.serving if held_up else self._lane.leading)
        if swept is not Swept.ALL:
            self._out.timer(TimerName.EXPIRY, SWEEP_ON_NS[swept])
