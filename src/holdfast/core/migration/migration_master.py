"""The master's control of placement: first assignment, failover, balancing and migrations (H3, H6, H7).

`control` does the next due thing, and keeps no plan across a change of members. For a migration the master asks the
partition's primary to copy it to the destination (`MigrationRequest`); the primary does (`state_transfer`) and reports
`MigrationReady`; the master proposes the new assignment (`table_replication`). When that is committed the migration is
complete.

- migration/M-1: The master does nothing before it knows the newest table (`table_replication.ready`).
- migration/M-3: A round of the table replication commits a migration, after its primary has reported that the
  destination holds everything. So the destination commits first, then the master, then the source forgets (source 001
  §2.1). Example: partition 7 moves from 1 to 4. If the new assignment were committed first, and 4 crashed with half of
  the data, the rest would be lost. In this order the table always names a complete copy. If the master crashes in
  between, its successor completes the migration if it finds the assignment stored on any member (partition_table/L-3);
  otherwise the partition stays on 1.
- migration/M-6: While the cluster's state forbids it nothing moves. While the table is frozen no replica list changes:
  an absent backup is only marked as behind, so that writes continue without it and it is not promoted.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from holdfast.config import Settings
from holdfast.core.membership.membership import Membership
from holdfast.core.messages import Holdings, MigrationReady, MigrationRefused, MigrationRequest
from holdfast.core.migration.failover_planner import FailoverPlanner
from holdfast.core.migration.planning import Planning, Way
from holdfast.core.migration.returning_members import ReturningMembers
from holdfast.core.migration.running_migrations import (
    MigrationPhase,
    MigrationStep,
    Running,
    RunningMigrations,
)
from holdfast.core.migration.safe_to_leave import leave_blocker
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.notices import RoundCommitted, TableGathered, ViewInstalled
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import View
from holdfast.core.outbox import Outbox
from holdfast.core.partition_table.table_replication import TableReplication
from holdfast.core.placement.layout import Layout

PAUSE_NS = 300 * MILLISECOND
"""After a failure, until the members have settled."""
FULL_PAUSE_NS = 10 * SECOND
"""The same while a disk is full: copying takes long, and would probably be rejected again."""
PARTING_NS = 250 * MILLISECOND
"""A leaver stays so long after its last partition has moved. Clients close connections to a member that is no longer
listed, and the outcome of requests in flight would be unknown.
"""
PIECES = 8
"""Planning steps between two looks at other events; a millisecond or two."""


class MigrationMaster:
    def __init__(
        self,
        settings: Settings,
        out: Outbox,
        membership: Membership,
        table_replication: TableReplication,
        replicas: int,
    ) -> None:
        self._settings = settings
        self._out = out
        self._membership = membership
        self.table_replication = table_replication
        self.returns = ReturningMembers(settings, out, membership, replicas)
        self.under_way = RunningMigrations()
        self.failover = FailoverPlanner(
            settings, out, membership, table_replication, self.returns, self.under_way
        )
        self.planning = Planning(
            settings,
            out,
            membership,
            table_replication,
            replicas,
            self.returns,
            self.under_way,
            self.failover,
        )
        self._planning: Generator[None] | None = None
        """Made in parts because the master serves requests in between."""
        self._free_since: dict[MemberId, int] = {}
        """Members that want to leave -> since when they may."""
        self._paused = False
        self._resume_ns = 0
        """Until then lost copies are not restored; 0: no delay."""
        self._known_departing: set[MemberId] = set()
        self.completed = 0
        partitions = settings.partitions
        self._limit = partitions.parallel_migrations
        self._limit_total = max(1, partitions.max_in_flight_bytes_total // partitions.chunk_bytes)

    @property
    def layout(self) -> Layout | None:
        """The crash matrix replaces it to test single migrations."""
        return self.planning.layout

    @layout.setter
    def layout(self, layout: Layout | None) -> None:
        self.planning.layout = layout

    # -- progress

    @property
    def running(self) -> dict[int, Running]:
        return self.under_way.all

    @property
    def queued(self) -> int:
        return len(self.planning.planned)

    @property
    def planned(self) -> bool:
        """Whether the plan fits the present members; if it is empty then, the table is balanced."""
        return self.planning.complete

    @property
    def lost(self) -> set[int]:
        return self.failover.lost

    @property
    def failed(self) -> int:
        return self.failover.failed

    @property
    def _idle(self) -> bool:
        return not self.running and not self.planning.planned.all

    # -- events

    def on_view(self, notice: ViewInstalled) -> None:
        """The plan was made for the old view; migrations between staying members continue."""
        old, view = notice.old, notice.new
        self._discard_plan()
        self.returns.view_changed(old, view)
        if old is not None and view is not None:
            self._delay(old, view)
        if view is None or not self._membership.is_master:
            self.under_way.clear()
        assert not self.planned, "a plan is for the members of one view"
        assert self._planning is None, "nor is one in the making for those of before"

    def on_inventory(self, sender: MemberId, holdings: Holdings) -> None:
        """Partitions that wait for the sender continue, and the plan may change."""
        self.returns.on_inventory(sender, holdings)
        if self.table_replication.ready:
            self.failover.revive()
            self._discard_plan()
            self.control()

    def accept_loss(self) -> None:
        if self.table_replication.ready:
            self.returns.accepted = True
            self._out.note("data loss accepted by the operator", level="warning")
            self.failover.revive()
            assert self.table_replication.ready, "only on the newest table (migration/M-1)"
            if self.lost:
                self.failover.repair({info.uuid for info in self._membership.members()})
                rows = {
                    p: row
                    for p, row in enumerate(self.table_replication.head)
                    if row != self.table_replication.table.rows[p]
                }
                self.table_replication.publish(rows)
            self.returns.accepted = not self.table_replication.table.assigned
            self._discard_plan()
            self.control()

    def reset_lost(self, partitions: Sequence[int], maps: Sequence[str]) -> None:
        if self.table_replication.ready and self.table_replication.table.assigned:
            self.failover.reset_lost(frozenset(partitions), frozenset(maps))

    def on_gathered(self, notice: TableGathered) -> None:
        self.failover.settle(notice.active, notice.staying)

    def _delay(self, old: View, view: View) -> None:
        here = {info.uuid for info in view.members}
        crashed = [info for info in old.members if info.uuid not in here and info.uuid not in view.left]
        came = here - {info.uuid for info in old.members}
        delay_ns = self._settings.partitions.rebalance_delay_ms * MILLISECOND
        if came:
            self._resume_ns = 0
        elif crashed and delay_ns:
            self._resume_ns = self._out.now_ns + delay_ns
            self._out.timer(TimerName.DELAY, delay_ns)

    def resize(self, replicas: int) -> None:
        """Settings of maps have changed; partitions need this number of replicas."""
        self.returns.resize(replicas)
        self._planning = None
        self.planning.resize(replicas)

    # -- the next thing to do

    def control(self) -> None:
        """migration/M-1."""
        if (
            not self.table_replication.ready
            or self._paused
            or (self.delayed_ms and self.table_replication.table.assigned)
        ):
            return
        if not self._membership.cluster_state.migrates:
            if self.table_replication.settled:
                self._membership.consider()
            return
        if not self.planned:
            if self._planning is None:
                self._planning = self.planning.steps()
                self.go_on_planning()
            return
        self._start()
        if self._idle and self.table_replication.settled:
            self._membership.consider()

    @property
    def delayed_ms(self) -> int:
        """Rest of `partitions.rebalance_delay_ms` after a crash."""
        return max(0, self._resume_ns - self._out.now_ns) // MILLISECOND

    def _discard_plan(self) -> None:
        self._planning = None
        self.planning.discard()

    def go_on_planning(self) -> None:
        if self._planning is None:
            return
        assert not self.planned, "what is in the making is not made"
        for _ in range(PIECES):
            try:
                next(self._planning)
            except StopIteration:
                self._planning = None
                self.control()
                return
        self._out.timer(TimerName.PLANNING, 0)

    def _enqueue(self, partition: int) -> None:
        self.planning.planned.enqueue(partition, self.table_replication.head[partition].owner)

    def _start(self) -> None:
        """See migration/M-5."""
        offered: list[int] = []
        planned, short = self.planning.planned, self._membership.intents.short
        while len(self.running) < self._limit_total:
            way = planned.free_way(self.under_way, self._limit, short)
            if way is None:
                break
            partition = planned.next_of(way)
            row = self.table_replication.table.rows[partition]
            if self.table_replication.head[partition].version != row.version:
                offered.append(partition)
            elif not self._start_one(partition, row, way):
                self._replan()
                return
        for partition in offered:
            self._enqueue(partition)

    def _start_one(self, partition: int, row: Assignment, way: Way) -> bool:
        """Request the next migration of the partition. Returns whether the plan still fits."""
        _, owner, destination = way
        migration = self.planning.planned.take(partition)
        try:
            migration.apply_to(row.replicas)
        except ValueError:
            return False
        known = self._membership.member
        if row.owner != owner or known(owner) is None or known(destination) is None:
            return False
        view = self._membership.view
        assert view is not None
        self.under_way.begin(Running(migration, row.version, owner, self._out.now_ns))
        assert len(self.running) <= self._limit_total, "no more run than may in all"
        assert max(self.under_way.load.values()) <= self._limit, "nor than may with one member"
        self._out.send(owner, MigrationRequest(view.number, migration, row.version))
        return True

    def _replan(self) -> None:
        self._discard_plan()
        if not self._paused:
            self._paused = True
            pause_ns = FULL_PAUSE_NS if self._membership.intents.full else PAUSE_NS
            self._out.timer(TimerName.PLAN, pause_ns, pause_ns // 2)

    def on_timer(self, name: str) -> None:
        """End of the pause after a failure ("plan") or the delay after a crash ("delay")."""
        if name == "plan":
            self._paused = False
            if not self.table_replication.table.assigned:
                self._discard_plan()
        self.control()

    # -- events of primaries and of the table replication

    def on_ready(self, sender: MemberId, message: MigrationReady) -> None:
        running = self.running.get(message.partition)
        if (
            not self.table_replication.ready
            or running is None
            or running.version != message.version
            or running.committing
        ):
            return
        if sender != running.owner:
            return
        head = self.table_replication.head[message.partition]
        if head.version != running.version:
            return
        running.step(MigrationStep.READY)
        migration = running.migration
        replicas = migration.apply_to(head.replicas)
        version = head.version + migration.increment
        row = Assignment(version, replicas, head.epoch, lost=head.lost)  # type: ignore[arg-type]
        self.failover.ended(migration, row.version, well=True, began_ns=running.began_ns)
        self.table_replication.propose({message.partition: row})

    def on_refused(self, sender: MemberId, message: MigrationRefused) -> None:
        running = self.running.get(message.partition)
        if running is None or running.version != message.version or running.committing:
            return
        self.under_way.forget(message.partition)
        running.step(MigrationStep.REFUSED)
        assert message.partition not in self.running, "what has failed runs no more"
        self._out.note("migration refused", level="debug", partition=message.partition, reason=message.why)
        self.table_replication.reporter.ended(
            running.migration, running.version, well=False, began_ns=running.began_ns
        )
        self.table_replication.send_news()
        self._replan()

    def on_committed(self, notice: RoundCommitted) -> None:
        partitions = notice.partitions
        for partition in partitions:
            running = self.running.get(partition)
            if running is not None and self.table_replication.table.rows[partition].version > running.version:
                self.under_way.forget(partition)
                running.step(MigrationStep.COMMITTED)
                assert partition not in self.running, "what is committed runs no more"
                self.completed += running.phase is MigrationPhase.COMMITTED
                if partition in self.planning.planned.all and self.planned:
                    self._enqueue(partition)
        if partitions and self._idle and not self._paused:
            # Plan once more, to check the result against the target placement.
            self.planning.complete = False
        self.control()
        if self._idle and self.table_replication.reporter.under_way:
            self.table_replication.reporter.finished()
            self.table_replication.send_news()

    def note_departing(self) -> None:
        self._known_departing = self._membership.departing

    def look_at_departing(self) -> None:
        departing = self._membership.departing
        if departing == self._known_departing:
            return
        self._known_departing = departing
        self.departures_known()

    def departures_known(self) -> None:
        """Plan again for changed intents. Leavers do not wait for a delay."""
        if self._membership.departing:
            self._resume_ns = 0
        self._discard_plan()
        self.control()

    def can_leave(self, member: MemberId) -> bool:
        """Whether this member may leave: it holds nothing, and all members have stored every round
        (membership/A-2).
        """
        if not self.table_replication.ready or not self.table_replication.settled:
            return False
        if self._settings.journalled and not self.table_replication.kept_by_all:
            # Otherwise no files would say who has its partitions now.
            return False
        if self.leave_blocker(member) or self.under_way.moves(member):
            self._free_since.pop(member, None)
            return False
        return not self._membership.data_members() or self._has_stayed(member)

    def leave_blocker(self, member: MemberId) -> str:
        return leave_blocker(
            member, self.table_replication.table.rows, self._membership, self._settings.complete()
        )

    def may_demote(self, member: MemberId) -> bool:
        """Whether this member may become lite: it holds nothing, and another data member remains."""
        if not self.table_replication.ready or not self.table_replication.settled:
            return False
        if self.under_way.moves(member) or all(
            info.uuid == member for info in self._membership.data_members()
        ):
            return False
        return not any(member in row.replicas for row in self.table_replication.table.rows)

    @property
    def leftovers(self) -> dict[str, int]:
        return {
            "migrations": len(self.running) + len(self.planning.planned.all),
            "members with migrations": sum(1 for count in self.under_way.load.values() if count),
        }

    def _has_stayed(self, member: MemberId) -> bool:
        """Free to leave for a while, so that clients know that it owns nothing."""
        now_ns = self._out.now_ns
        if member not in self._free_since:
            self._free_since[member] = now_ns
            self._out.timer(TimerName.PART_LOOK, PARTING_NS)
        return now_ns - self._free_since[member] >= PARTING_NS
