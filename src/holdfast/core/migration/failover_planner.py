"""Failover: promotions, losses and first owners when members go or come.

Decisions are based on the newest known table (`table_replication.head`) and offered in the next round.

- migration/M-2: A replica on a departed member is removed, and the hottest remaining replica is promoted. If no
  remaining replica holds every map, the assignment stays and the partition waits for its copies, unless the operator
  has accepted the loss. Example: partition 7 is on [1, 2], and both are down. If it were given to 3, empty, the copy of
  1 could not be used any more when 1 returns.
- migration/M-7: If no copy of a partition is left of a map, and the map does not ignore that (`maps.*.loss_policy`),
  the assignment names the map as lost. It stays lost, whichever members return, until the operator resets it.
- migration/M-4: A failed migration raises the version higher than its success would have. So a success that no present
  member knows of is never mistaken for the present assignment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from holdfast.config import Settings
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.migration.returning_members import ReturningMembers
from holdfast.core.migration.running_migrations import (
    MigrationPhase,
    MigrationStep,
    Running,
    RunningMigrations,
)
from holdfast.core.model.ids import MemberId
from holdfast.core.model.migration import NONE, Migration
from holdfast.core.model.partition_events import Loss
from holdfast.core.model.partition_table import Assignment, survivors
from holdfast.core.outbox import Outbox
from holdfast.core.partition_table.event_log import loss_notes
from holdfast.core.partition_table.table_replication import TableReplication


class FailoverPlanner:
    def __init__(
        self,
        settings: Settings,
        out: Outbox,
        membership: MembershipStatus,
        table_replication: TableReplication,
        returns: ReturningMembers,
        under_way: RunningMigrations,
    ) -> None:
        self._settings = settings
        self._out = out
        self._membership = membership
        self._returns = returns
        self._under_way = under_way
        self.table_replication = table_replication
        self.lost: set[int] = set()
        """No present member holds every map of them (migration/M-2)."""
        self.failed = 0

    # -- settle what was in progress when the view or the master changed

    def settle(self, active: Iterable[tuple[Migration, int]], staying: frozenset[MemberId]) -> None:
        """The newest table is known, or the view has changed under the same master. `active`: migrations of an earlier
        master; `staying`: members of both views, in one life.
        """
        assert self.table_replication.ready, "only on the newest table (migration/M-1)"
        failures, offered = self._end_migrations(staying)
        assert all(running.owner in staying for running in self._under_way.all.values()), (
            "both ends are here still"
        )
        failures += self._take_back(staying, offered)
        for migration, version in active:
            # migration/M-4: migrations of the old master that are in no known assignment.
            if self.table_replication.head[migration.partition].version == version:
                self._raise(migration)
                failures.append(migration)
        self.table_replication.settle_events()
        for migration in failures:
            self.ended(migration, self.table_replication.head[migration.partition].version, well=False)
        if not staying:
            self.table_replication.reporter.finished()
        present = {info.uuid for info in self._membership.members()}
        if self._membership.cluster_state.frozen:
            self._mark_behind(present)
        else:
            self.repair(present)

    def _end_migrations(self, staying: frozenset[MemberId]) -> tuple[list[Migration], dict[int, Running]]:
        """They have lost an end, or the cluster's state forbids them. Returns the failed ones, and those whose offered
        assignments may still be committed or taken back.
        """
        migrates = self._membership.cluster_state.migrates
        failures: list[Migration] = []
        offered: dict[int, Running] = {}
        for partition, running in list(self._under_way.all.items()):
            involved = {running.owner, MemberId(running.migration.destination)}
            if involved <= staying and (migrates or running.committing):
                continue
            self._under_way.forget(partition)
            running.step(MigrationStep.LOST)
            if running.phase is MigrationPhase.OFFERED:
                offered[partition] = running
            else:
                self._raise(running.migration)
                failures.append(running.migration)
        return failures, offered

    def _take_back(self, staying: frozenset[MemberId], offered: dict[int, Running]) -> list[Migration]:
        """partition_table/L-6: uncommitted assignments that name a departed member. Returns the migrations that failed
        thereby.
        """
        failures: list[Migration] = []
        for partition, row in enumerate(self.table_replication.head):
            base = self.table_replication.base(partition)
            gone = not staying.issuperset(filter(None, row.replicas))
            if staying and row.version > base.version and gone and base.version:
                taken_back = self._under_way.forget(partition) or offered.get(partition)
                self.table_replication.head[partition] = _taken_back(row, base)
                if taken_back is not None:
                    taken_back.step(MigrationStep.TAKEN_BACK)
                    failures.append(taken_back.migration)
        return failures

    def ended(self, migration: Migration, version: int, *, well: bool, began_ns: int | None = None) -> None:
        """`version`: of the following assignment."""
        if not well:
            self.failed += 1
            self._out.note(
                "migration failed", partition=migration.partition, version=version, level="warning"
            )
        self.table_replication.reporter.ended(migration, version, well=well, began_ns=began_ns)

    def _raise(self, migration: Migration) -> None:
        """migration/M-4."""
        row = self.table_replication.head[migration.partition]
        higher = row.version + migration.increment + 1
        assert higher > row.version + 1, (
            "a failure raises further than the success would have (migration/M-4)"
        )
        self.table_replication.head[migration.partition] = Assignment(
            higher, row.replicas, row.epoch, row.behind, row.lost
        )

    def _mark_behind(self, present: set[MemberId]) -> None:
        """migration/M-6: a present primary continues without its absent backups, which no longer hold everything."""
        head = self.table_replication.head
        for partition, row in enumerate(head):
            gone = [m for m in row.holding[1:] if m is not None and m not in present]
            if gone and row.owner in present:
                assert not set(gone) & set(row.behind), "who is behind already is not holding"
                behind = (*row.behind, *gone)
                head[partition] = Assignment(row.version + 1, row.replicas, row.epoch, behind, row.lost)

    # -- repair

    def repair(self, present: set[MemberId]) -> None:
        head = self.table_replication.head
        waiting, self.lost = self.lost, set()
        promoted: list[tuple[Migration, int]] = []
        losses: list[Loss] = []
        for partition, row in enumerate(head):
            if row.version == 0 or all(member is None or member in present for member in row.holding):
                if row.behind:
                    head[partition] = row.changed(row.holding)
                continue
            slots, survivor = survivors(row.holding, present)
            if (
                survivor is None
                and not self.table_replication.base(partition).version
                and not self.recovering
            ):
                self._restart_empty(partition, row, present)
                continue
            few = survivor is None or survivor >= self._settings.holders()
            if few and (back := self._returns.revive(partition, row)):
                head[partition] = back
                continue
            if survivor is None or (few and not self._accepts_loss()):
                depth = len(row.replicas) if survivor is None else survivor
                losses += self._all_gone(partition, row, present, depth, reported=partition in waiting)
                continue
            head[partition] = row.changed(slots).losing(self._settings.guarded(survivor))
            if survivor:
                promotion = Migration(partition, None, NONE, NONE, str(slots[0]), survivor, 0)
                promoted.append((promotion, head[partition].version))
                losses.append(Loss(partition, survivor - 1, False, self._settings.maps_within(survivor)))
        assert all(
            row.owner in present
            or partition in self.lost
            or not row.version
            or not self._data_members(present)
            for partition, row in enumerate(head)
        ), "every partition has an owner that is here, or waits for one"
        self._report(promoted, losses)

    def _report(self, promoted: list[tuple[Migration, int]], losses: list[Loss]) -> None:
        reporter = self.table_replication.reporter
        for loss in losses:
            reporter.lost(loss)
        self._out.effects += loss_notes(losses)
        if promoted:
            reporter.started(len(promoted))
            for promotion, version in promoted:
                reporter.ended(promotion, version, well=True)
            reporter.finished()

    def _all_gone(
        self, partition: int, row: Assignment, present: set[MemberId], depth: int, *, reported: bool
    ) -> list[Loss]:
        """The partition waits, or starts empty. Returns the losses to report. `depth`: number of lost replicas, counted
        from the owner.
        """
        data = self._data_members(present)
        width = len(row.replicas)
        assert partition not in self.lost, "each is looked at once"
        if not data or not self._accepts_loss():
            self.lost.add(partition)
            self._declare(partition, row, depth)
            return [] if reported else [Loss(partition, width - 1, True, [])]
        everything = row.losing(self._settings.guarded())
        self._restart_empty(partition, everything, present, epoch=row.epoch + 1)
        return [Loss(partition, width - 1, True, self._settings.maps_within(width), begun_anew=True)]

    def _declare(self, partition: int, row: Assignment, depth: int) -> None:
        """migration/M-7, for a waiting partition, which keeps its absent members."""
        marked = row.losing(self._settings.guarded(depth))
        if marked.lost != row.lost:
            self.table_replication.head[partition] = marked.changed(row.replicas)

    def _restart_empty(
        self, partition: int, row: Assignment, present: set[MemberId], *, epoch: int = 0
    ) -> None:
        data = self._data_members(present)
        if data:
            width = len(row.replicas)
            raised = row.changed((data[partition % len(data)], *(None,) * (width - 1)), extra=width)
            assert raised.version > row.version + width, "it is beyond whatever was offered"
            self.table_replication.head[partition] = Assignment(
                raised.version, raised.replicas, epoch, lost=row.lost
            )

    def revive(self) -> None:
        rows = {
            p: row
            for p in self.lost
            if (row := self._returns.revive(p, self.table_replication.head[p])) is not None
        }
        if rows:
            assert all(row.owner is not None for row in rows.values()), "each has a member that returned"
            self.lost -= rows.keys()
            self._out.note("partitions recovered", partitions=len(rows))
            self.table_replication.propose(rows)

    def reset_lost(self, partitions: Collection[int], maps: Collection[str]) -> None:
        """migration/M-7: by order of the operator these maps continue with what is left of these partitions. Skips
        partitions without a present owner or with another change in progress; the order is repeated.
        """
        table, head = self.table_replication.table.rows, self.table_replication.head
        present = {info.uuid for info in self._membership.members()}
        rows: dict[int, Assignment] = {}
        for partition in sorted(partitions):
            row = head[partition]
            left = tuple(name for name in row.lost if name not in maps)
            busy = row.version != table[partition].version or partition in self._under_way.all
            if left == row.lost or busy or row.owner not in present:
                continue
            rows[partition] = replace(row.changed(row.replicas), lost=left)
        if rows:
            self._out.note(
                "lost partitions reset by the operator", level="warning", count=len(rows), maps=sorted(maps)
            )
            self.table_replication.propose(rows)

    @property
    def recovering(self) -> bool:
        view = self._membership.view
        return view is not None and view.recovering

    def _accepts_loss(self) -> bool:
        return self._settings.partitions.lost == "accept" or self._returns.accepted

    def _data_members(self, present: set[MemberId]) -> list[MemberId]:
        return [info.uuid for info in self._membership.data_members() if info.uuid in present]


def _taken_back(offered: Assignment, base: Assignment) -> Assignment:
    """The assignment from before, with a version above the offered one (partition_table/L-6)."""
    return Assignment(offered.version + 1, base.replicas, base.epoch, base.behind, base.lost)
