"""Plan of the migrations that bring the table to the target placement, and their order.

- migration/M-5: At most `parallel_migrations` run at once on any member. Together they are limited to as many
  as may have a chunk in flight within `max_in_flight_bytes_total`, at least one. Migrations of one partition
  run one after another. Those that restore a lost copy go first, then those between the least busy members.
- migration/M-8: With `partitions.placement = "rendezvous"` the target is a function of the members alone
  (`placement.affinity`), whatever members hold or have brought back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import NamedTuple

from holdfast.config import Settings
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.migration.failover_planner import FailoverPlanner
from holdfast.core.migration.returning_members import ReturningMembers
from holdfast.core.migration.running_migrations import RunningMigrations
from holdfast.core.model.ids import MemberId
from holdfast.core.model.levels import EXCHANGES
from holdfast.core.model.migration import Migration, ReplicaList
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import Room
from holdfast.core.outbox import Outbox
from holdfast.core.partition_table.table_replication import TableReplication
from holdfast.core.placement.affinity import layout_of, ranking
from holdfast.core.placement.kept_places import keeping, own_places, places_of
from holdfast.core.placement.layout import Arranging, Candidate, Layout, by_hosts
from holdfast.core.placement.planner import plan

PLANNED_AT_ONCE = 16


class Way(NamedTuple):
    """Ends of a migration, and whether it only balances; they decide when it may start."""

    balances: bool
    owner: MemberId
    destination: MemberId


class PlannedMigrations:
    """Planned migrations that were not requested yet, per partition in their order."""

    def __init__(self) -> None:
        self.all: dict[int, list[Migration]] = {}
        self.waiting: dict[Way, deque[int]] = {}
        """Partitions without a running migration, by the way of their next one; no queue is empty."""

    def __len__(self) -> int:
        return sum(len(moves) for moves in self.all.values())

    def clear(self) -> None:
        self.all.clear()
        self.waiting.clear()

    def enqueue(self, partition: int, owner: MemberId | None) -> None:
        """The partition has a planned migration and no running one."""
        assert owner is not None, "only a partition with an owner moves"
        migration = self.all[partition][0]
        way = Way(migration.source is not None, owner, MemberId(migration.destination))
        self.waiting.setdefault(way, deque()).append(partition)

    def next_of(self, way: Way) -> int:
        waiting = self.waiting[way]
        partition = waiting.popleft()
        if not waiting:
            del self.waiting[way]
        return partition

    def take(self, partition: int) -> Migration:
        migration = self.all[partition].pop(0)
        assert migration.partition == partition
        if not self.all[partition]:
            del self.all[partition]
        return migration

    def free_way(self, under_way: RunningMigrations, limit: int, short: dict[MemberId, Room]) -> Way | None:
        """The next way whose ends have capacity; none to a member whose memory is full."""
        load = under_way.load
        free = (
            way
            for way in self.waiting
            if load[way.owner] < limit
            and load[way.destination] < limit
            and short.get(way.destination) is not Room.NONE
        )
        return min(
            free, key=lambda way: (way.balances, load[way.owner] + load[way.destination]), default=None
        )


class Planning:
    def __init__(
        self,
        settings: Settings,
        out: Outbox,
        membership: MembershipStatus,
        table_replication: TableReplication,
        replicas: int,
        returns: ReturningMembers,
        under_way: RunningMigrations,
        failover: FailoverPlanner,
    ) -> None:
        self._settings = settings
        self._placement = settings.partitions.placement
        self._out = out
        self._membership = membership
        self._replicas = replicas
        self._returns = returns
        self._under_way = under_way
        self._failover = failover
        self.table_replication = table_replication
        self.layout: Layout | None = None
        """The crash matrix replaces it to test single migrations."""
        self.planned = PlannedMigrations()
        self.complete = False
        """The plan fits the present members; if it is empty then, the table is balanced."""

    def discard(self) -> None:
        self.complete = False
        self.planned.clear()

    def resize(self, replicas: int) -> None:
        """Settings of maps have changed; partitions need this number of replicas."""
        self._replicas = replicas
        self.discard()

    def steps(self) -> Generator[None]:
        """Make the plan in parts, because the master serves requests in between."""
        candidates = self._candidates()
        if self._has_nothing_to_plan(candidates):
            self.complete = True
            return
        present = {info.uuid for info in self._membership.members()}
        head = self.table_replication.head
        # A partition that waits for its copies (migration/M-2) keeps its assignment, even if a colder replica lives.
        lost = self._failover.lost
        self._widen()
        here = [p for p, row in enumerate(head) if p not in lost and row.owner in present]
        before = list(head)
        current = [tuple(m if m in present else None for m in head[p].replicas) for p in here]
        targets = yield from self._wanted(here, current, candidates)
        cleared: dict[int, Assignment] = {}
        for number, (partition, now, target) in enumerate(zip(here, current, targets, strict=True)):
            if number % PLANNED_AT_ONCE == 0:
                yield
            if partition not in self._under_way.all and head[partition] == before[partition]:
                self._plan_one(partition, tuple(now), tuple(target), cleared)
        # Rounds committed in the meantime are checked again, at the end (`committed`) or now.
        self.complete = bool(self.planned.all or self._under_way.all) or head == before
        if self.planned.all:
            self._announce()
        if cleared:
            self.table_replication.propose(cleared)

    def _widen(self) -> None:
        """Indices that further copies of maps need (model/C-1); they are empty at first."""
        narrow = {
            partition: row.changed(row.replicas + (None,) * (self._replicas - len(row.replicas)))
            for partition, row in enumerate(self.table_replication.head)
            if row.version and len(row.replicas) < self._replicas
            if partition not in self._under_way.all and partition not in self._failover.lost
        }
        if narrow:
            self.table_replication.propose(narrow)

    def _candidates(self) -> list[Candidate]:
        holders = self._membership.data_members()
        found = [Candidate(info.uuid, info.group or info.uuid, info.consistent_id) for info in holders]
        if self._settings.partitions.group_by != "host-soft":
            return found
        hosts = {str(info.uuid): info.host for info in holders}
        return by_hosts(found, hosts, self._replicas, len(self._membership.away()))

    def _wanted(
        self, partitions: Sequence[int], current: Sequence[ReplicaList], candidates: Sequence[Candidate]
    ) -> Arranging:
        """See migration/M-8."""
        if self.layout is not None:
            return self.layout(current, candidates, self._replicas)
        places = places_of(self._membership.away())
        owners = [*candidates, *places]
        if self._placement == "rendezvous":
            targets = yield from ranking(partitions, current, owners, self._replicas)
        else:
            targets = yield from self._returns.arranging(partitions, current, owners, self._replicas)
            if places:
                current = own_places(partitions, current, candidates, self._returns.brought)
        return (yield from keeping(partitions, current, targets, candidates, places, self._placement))

    def _has_nothing_to_plan(self, candidates: list[Candidate]) -> bool:
        """Whether there is nothing to plan now: no data member, no table yet, or missing inventories."""
        if not candidates:
            return True
        if not self.table_replication.head[0].version:
            if self._failover.recovering:
                self._recover_table(candidates)
            elif len(candidates) >= self._settings.cluster.initial_members:
                self._first_assignment(candidates)
            return True
        # Inventories of returning members decide where partitions go.
        return bool(self._returns.unheard)

    def _plan_one(
        self, partition: int, now: ReplicaList, target: ReplicaList, cleared: dict[int, Assignment]
    ) -> None:
        if now == target:
            return
        found = plan(partition, now, target, exchanges=self._out.does(EXCHANGES))
        assert partition not in self._under_way.all, "what runs is not planned"
        if found.migrations:
            self.planned.all[partition] = list(found.migrations)
        elif found.cleared:
            slots = [
                None if index in found.cleared else MemberId(member) if member else None
                for index, member in enumerate(now)
            ]
            cleared[partition] = self.table_replication.head[partition].changed(tuple(slots))

    def _announce(self) -> None:
        self.planned.waiting.clear()
        for partition in self.planned.all:
            self.planned.enqueue(partition, self.table_replication.head[partition].owner)
        self._out.note("rebalance planned", migrations=len(self.planned))
        self.table_replication.reporter.started(len(self.planned) + len(self._under_way.all))
        self.table_replication.send_news()

    def _recover_table(self, candidates: list[Candidate]) -> None:
        """migration/X-1."""
        why = self._returns.wait_reason()
        self._returns.note_waiting(why)
        if why:
            return
        rows, lost = self._returns.table(len(self.table_replication.head))
        if not rows:
            if len(candidates) >= self._settings.cluster.initial_members:
                self._first_assignment(candidates)
            return
        self.table_replication.propose(rows)
        self._out.note("partition table restored", partitions=len(rows), without_a_copy=len(lost))
        if lost:
            self._failover.repair({info.uuid for info in self._membership.members()})
            changed = {p: row for p in lost if (row := self.table_replication.head[p]) != rows[p]}
            self.table_replication.publish(changed)
        self._returns.accepted = False

    def _first_assignment(self, candidates: list[Candidate]) -> None:
        partitions = range(len(self.table_replication.head))
        empty: list[ReplicaList] = [(None,) * self._replicas] * len(partitions)
        layout = self.layout or layout_of(self._placement)(partitions)
        rows = layout(empty, candidates, self._replicas)
        self.table_replication.propose({p: Assignment().changed(tuple(row)) for p, row in enumerate(rows)})  # type: ignore[arg-type]
        self._out.note("partitions assigned", count=len(rows), members=len(candidates))
