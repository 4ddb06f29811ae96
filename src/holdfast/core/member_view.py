"""Read-only view of a member for status, sessions, the simulator and judges.

Copies of partitions are the member's own objects, because duplicates would be too expensive: callers must not change
them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Protocol

from holdfast.core.consensus_host import ConsensusHost
from holdfast.core.hosted_services import MigrationEvent, Service
from holdfast.core.membership.identity import Identity
from holdfast.core.membership.maps_in_force import MapsInForce
from holdfast.core.membership.membership import Membership
from holdfast.core.migration.migration_master import MigrationMaster
from holdfast.core.model.ids import MemberId
from holdfast.core.model.member_status import (
    CutCounts,
    MetastoreReplica,
    MigrationCounts,
    Rebalance,
    ReplicaFills,
    RunningMigration,
    TransactionCounts,
    ZoneStatus,
)
from holdfast.core.model.migration import Migration
from holdfast.core.model.open_operations import Followed, OpenOperation
from holdfast.core.model.operations import Outcome, Request
from holdfast.core.model.partition_events import News, Number
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import ClusterState, Intent, MemberInfo, Room, View
from holdfast.core.outbox import Outbox
from holdfast.core.partition_table.table_replication import TableReplication
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.primary_backup.primary_activation import PrimaryActivation
from holdfast.core.raft_partition.copy_lookup import CopyLookup
from holdfast.core.routing.lost_partitions import LostPartitions
from holdfast.core.routing.router import Router
from holdfast.core.safety import Safety
from holdfast.core.state_transfer.anti_entropy import AntiEntropy
from holdfast.core.state_transfer.destination import Destination
from holdfast.core.state_transfer.source import Source
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.streams.change_streams import ChangeStreams, Reach
from holdfast.core.streams.entry_listeners import EntryListeners
from holdfast.core.transactions.member_transactions import MemberTransactions


class ReplicationBacklog(Protocol):
    """Size of the replication backlog, read-only: connections check it with every buffer."""

    @property
    def bytes(self) -> int: ...

    @property
    def crowded(self) -> bool:
        """Whether clients should not be read."""

    @property
    def refusing(self) -> bool: ...


class ReadStreams(Protocol):
    def streams(self, name: str) -> bool: ...

    def heads(self, name: str, partitions: Iterable[int]) -> tuple[dict[int, Reach], list[int]]:
        """The heads of the partitions that are served here, and the other partitions."""

    @property
    def retained_bytes(self) -> int:
        """Memory of changes from before moves of maps."""


class MemberView:
    def __init__(
        self,
        out: Outbox,
        *,
        membership: Membership,
        table_replication: TableReplication,
        migrations: MigrationMaster,
        copies: LocalReplicas,
        lane: Lane,
        router: Router,
        activation: PrimaryActivation,
        source: Source,
        destination: Destination,
        repair: AntiEntropy,
        changes: ChangeStreams,
        listeners: EntryListeners,
        agreed: ConsensusHost,
        transactions: MemberTransactions,
    ) -> None:
        self.me = membership.me
        self._out = out
        self._membership = membership
        self._table = table_replication.table
        self._table_replication = table_replication
        self._migrations = migrations
        self._copies = copies
        self._lane = lane
        self._router = router
        self._activation = activation
        self._source = source
        self._destination = destination
        self._repair = repair
        self._changes = changes
        self._listeners = listeners
        self._agreed = agreed
        self._transactions = transactions
        self.removed = (lane.evictions.removed, agreed.zones.removed)
        """By primaries, and by leaders of zones."""
        self.filling = MappingProxyType(copies.staging)
        """By partition: a copy that is being filled, or is complete and not in the table yet."""
        self.copies = CopyLookup(out, copies, agreed.zones)
        agreed.zones.sessions.attach(self.copies)
        self._safety = Safety(
            membership.maps.settings,
            out,
            membership,
            table_replication,
            migrations,
            activation,
            lane,
            repair.map_copies,
        )

    @property
    def now_ns(self) -> int:
        return self._out.now_ns

    # -- the member in its cluster

    @property
    def identity(self) -> Identity:
        return self._membership.identity

    @property
    def info(self) -> MemberInfo:
        """This member, as the view has it, or would have it."""
        return self._membership.info

    @property
    def state(self) -> str:
        """See `MembershipState`."""
        return self._membership.state

    @property
    def admitted(self) -> bool:
        return self._membership.admitted

    @property
    def has_left(self) -> bool:
        return self._membership.has_left

    @property
    def leaving(self) -> bool:
        return self._membership.leaving

    @property
    def refusal(self) -> str:
        """Why no cluster admits it; empty while one may."""
        return self._membership.refusal

    @property
    def join_advice(self) -> str:
        """Advice while no cluster admits this member; empty: none."""
        return self._membership.join_advice

    @property
    def intent(self) -> Intent:
        return self._membership.intents.mine

    @property
    def view(self) -> View | None:
        return self._membership.view

    @property
    def consensus(self) -> ConsensusHost:
        return self._agreed

    @property
    def agreed_view(self) -> View | None:
        return self._membership.agreement.accepted

    @property
    def proposing(self) -> bool:
        return self._membership.agreement.proposing

    @property
    def master(self) -> MemberId | None:
        return self._membership.master

    @property
    def is_master(self) -> bool:
        return self._membership.is_master

    def members(self) -> Sequence[MemberInfo]:
        return tuple(self._membership.members())

    def data_members(self) -> Sequence[MemberInfo]:
        return tuple(self._membership.data_members())

    def is_member(self, member: MemberId | None) -> bool:
        return self._membership.member(member) is not None

    def suspects(self, now_ns: int) -> Sequence[MemberId]:
        return tuple(self._membership.detector.suspects(now_ns))

    def unheard(self) -> Sequence[MemberId]:
        """Members without heartbeats for several intervals: an operator may evict them."""
        return tuple(self._membership.evictions.unheard())

    def eviction_rejection(self, ended: Collection[MemberId], *, without_majority: bool) -> str:
        """Why they cannot be evicted; empty: they can."""
        return self._safety.eviction_rejection(ended, without_majority=without_majority)

    def suspicion_reason(self, member: MemberId) -> str:
        return self._membership.detector.silence_reason(member, self._out.now_ns)

    @property
    def hears_majority(self) -> bool:
        """Whether it hears as many members as the next view needs; also while it is in no view."""
        membership, view = self._membership, self._membership.view
        if view is None or not membership.admitted:
            return True
        silent = membership.detector.suspects(self._out.now_ns)
        return membership.may_decide(view, {info.uuid for info in view.members} - set(silent))

    def outside(self) -> Sequence[MemberInfo]:
        """Members outside the baseline, which hold no data."""
        return tuple(self._membership.outside())

    @property
    def adjusts_in_ms(self) -> int | None:
        """Time until the baseline becomes the present members; None: it is that already, or is fixed."""
        return self._membership.adjusts_in_ms

    @property
    def departing(self) -> AbstractSet[MemberId]:
        """Members that want to leave or to be lite."""
        return frozenset(self._membership.departing)

    @property
    def cluster_state(self) -> ClusterState:
        return self._membership.cluster_state

    @property
    def level(self) -> int:
        return self._out.level

    @property
    def maps(self) -> MapsInForce:
        """Including changes at run time."""
        return self._membership.maps

    @property
    def known_by_all(self) -> bool:
        """Whether every member has acknowledged this view."""
        return self._membership.known_by_all

    @property
    def ending(self) -> bool:
        return self._membership.ending

    @property
    def short_of_memory(self) -> Mapping[MemberId, Room]:
        return MappingProxyType(self._membership.intents.short)

    @property
    def full_disks(self) -> Mapping[MemberId, str]:
        return MappingProxyType(self._router.refusals.full)

    # -- the table

    @property
    def assignments(self) -> Sequence[Assignment]:
        """The committed assignments, by partition."""
        return tuple(self._table.rows)

    def assignment(self, partition: int) -> Assignment:
        return self._table.rows[partition]

    def stored_assignment(self, partition: int) -> Assignment | None:
        """An assignment that is stored here and not committed yet."""
        return self._table_replication.stored_assignment(partition)

    @property
    def lost_partitions(self) -> Mapping[int, tuple[str, ...]]:
        """Lost partitions with their maps, until the operator resets them (migration/M-7)."""
        return {partition: row.lost for partition, row in enumerate(self._table.rows) if row.lost}

    @property
    def losses(self) -> LostPartitions:
        return self._router.refusals.losses

    @property
    def assigned(self) -> bool:
        return self._table.assigned

    @property
    def table_version(self) -> int:
        """Grows with every changed assignment."""
        return self._table.version

    @property
    def topology(self) -> tuple[int, int]:
        """Major or minor version rises with every change of members or table (I1)."""
        version = self._transactions.mapping.version
        return version.major, version.minor

    @property
    def transactions(self) -> TransactionCounts:
        return self._transactions.counts

    @property
    def table_stamp(self) -> int:
        return self._table.stamp

    @property
    def table_settled(self) -> bool:
        """As master: no change of the table is in progress."""
        return self._table_replication.settled

    @property
    def last_news(self) -> Number:
        return self._table_replication.event_log.delivered

    def news_since(self, number: Number) -> tuple[list[News], bool]:
        return self._table_replication.event_log.since(number)

    # -- what it holds and serves

    @property
    def held(self) -> Mapping[int, PartitionCopy]:
        return MappingProxyType(self._copies.held)

    def counters(self, partition: int, index: int) -> Sequence[tuple[str, int, int]]:
        """Low watermarks and their terms for all that a replica with this index holds."""
        return tuple(self._copies.counters(self._copies.held[partition], index))

    @property
    def stale(self) -> Mapping[int, PartitionCopy]:
        """Former copies, of partitions that it does not hold now."""
        return MappingProxyType(self._copies.stale)

    @property
    def leading(self) -> Sequence[PartitionCopy | None]:
        """By partition: its copy, where it is the serving primary."""
        return tuple(self._lane.leading)

    @property
    def serving(self) -> Sequence[PartitionCopy | None]:
        """By partition: its copy, where it is the serving primary and sessions may write."""
        return tuple(self._lane.serving)

    def serves(self, partition: int) -> bool:
        """Whether it is the serving primary and sessions may write."""
        return self._lane.serving[partition] is not None

    @property
    def primary_of(self) -> AbstractSet[int]:
        """Serving or activating."""
        return frozenset(self._activation.active)

    def supplying(self) -> Sequence[tuple[Migration, int]]:
        """Migrations that this member supplies as primary, each with the version at which it started."""
        return tuple(self._source.supplies.migrations())

    def unfinished(self, partition: int) -> bool:
        return self._lane.unfinished(partition)

    @property
    def batches_waiting(self) -> int:
        return self._lane.waiting

    @property
    def backlog(self) -> ReplicationBacklog:
        return self._lane.backlog

    @property
    def passive(self) -> bool:
        return self._router.refusals.passive

    def rejection_here(self, request: Request) -> Outcome | None:
        if self._agreed.zones.homes.holds(request):
            found = self._agreed.zones.homes.find(request)
            return found if isinstance(found, Outcome) else found.router.rejection(request)
        return self._router.refusals.rejection_here(request)

    # -- its subscribers

    @property
    def change_streams(self) -> ReadStreams:
        return self._changes

    @property
    def listening(self) -> AbstractSet[str]:
        return frozenset(self._lane.listening)

    @property
    def subscribed_maps(self) -> AbstractSet[str]:
        """Maps with subscribers on any member."""
        return frozenset(self._listeners.subscribed_maps)

    def cluster_subscriptions(self, *, relayed: bool) -> AbstractSet[str]:
        """Sessions here have subscribed to them on all members. `relayed`: near caches, to changes in zones."""
        return frozenset(self._listeners.near_cached if relayed else self._listeners.wide)

    def subscribers(self, name: str, *, relayed: bool = False) -> AbstractSet[MemberId]:
        return frozenset(self._listeners.subscribers(name, relayed=relayed))

    def services(self) -> Sequence[Service]:
        return tuple(hosted.service for hosted in self._copies.services.hosted)

    def open_service_migrations(self) -> Mapping[int, MigrationEvent]:
        """Migrations by partition whose start was reported to services, but not their outcome."""
        return MappingProxyType(self._copies.services.pending)

    def runs_transaction(self, transaction: bytes) -> bool:
        return self._transactions.coordinator.running.runs(transaction)

    # -- what is open

    def under_way(self) -> dict[str, int]:
        """Work in progress or waiting, by kind; empty at rest."""
        machines = (
            self._copies,
            self._lane,
            self._source,
            self._destination,
            self._changes,
            self._repair,
            self._repair.map_copies,
            self._table_replication,
            self._migrations,
            self._router,
            self._activation,
            self._agreed,
            self._transactions,
            self._membership.maps.moves,
        )
        kinds = {what: count for machine in machines for what, count in machine.leftovers.items()}
        return {what: count for what, count in kinds.items() if count}

    def leftovers(self) -> dict[str, int]:
        """Like `under_way`, with notes of finished work: empty when a cluster has been at rest for a while."""
        kinds = {**self._membership.leftovers, **self._listeners.leftovers}
        return self.under_way() | {what: count for what, count in kinds.items() if count}

    def open_since(self, before_ns: int, followed: Followed) -> Iterator[OpenOperation]:
        """Operations that have waited since then, at most some hundreds of each kind. `followed`: operations whose
        progress is recorded.
        """
        yield from self._lane.batches.open_since(before_ns, followed)
        yield from self._router.open_since(before_ns)
        yield from self._agreed.zones.open_since(before_ns)

    # -- figures

    @property
    def balanced(self) -> bool:
        """As master: the present members need no further migration."""
        return self._migrations.planned

    @property
    def repaired(self) -> int:
        return self._repair.repaired

    def migrations(self) -> MigrationCounts:
        found, news = self._migrations, self._table_replication.event_log.open
        return MigrationCounts(
            active=len(found.running),
            queued=found.queued,
            completed=found.completed,
            failed=found.failed,
            delayed_ms=found.delayed_ms,
            completed_kept=len(self._table_replication.event_log.kept),
            sent_bytes=self.sent_bytes,
            process=None
            if news is None
            else Rebalance(news.planned, news.completed, news.failed, news.remaining, news.elapsed_ms),
            running=self.running_migrations(),
        )

    def running_migrations(self) -> list[RunningMigration]:
        """The running migrations: on the master all, on others those that they supply."""
        now_ns = self.now_ns
        known = [(one.migration, now_ns - one.began_ns) for one in self._migrations.running.values()]
        known = known or [(migration, 0) for migration, _ in self.supplying()]
        return [
            RunningMigration(
                one.partition,
                str(one.kind),
                one.destination_new,
                one.source or "",
                one.destination,
                lasted_ns // 1_000_000,
            )
            for one, lasted_ns in known
        ]

    @property
    def sent_bytes(self) -> int:
        return self._source.flow.bytes_sent

    @property
    def waiting_for_copies(self) -> int:
        """Partitions that no present member holds with every map (migration/M-2)."""
        return len(self._migrations.lost)

    def awaited(self) -> list[str]:
        """A stopped cluster waits for these members."""
        return [info.name for info in self._migrations.returns.missing]

    def replicas(self) -> ReplicaFills:
        source, repair = self._source, self._repair
        return ReplicaFills(
            compared=repair.summaries_sent,
            differed=repair.asked,
            repaired=self.repaired,
            filled={how.name.lower(): count for how, count in source.selection.fills.items()},
            history_bytes=source.flow.bytes_history,
            ranges_bytes=source.flow.bytes_ranges,
            full_bytes=source.flow.bytes_full,
        )

    def cuts(self) -> CutCounts:
        cuts = self._copies.cuts
        return CutCounts(len(cuts), cuts.pins, cuts.changed)

    def metastore(self) -> MetastoreReplica | None:
        """The metastore, as far as this member knows; None: the cluster has none."""
        return self._agreed.metastore_replica()

    @property
    def metastore_leader(self) -> str:
        replica = self.metastore()
        return replica.leader if replica is not None else ""

    def zones(self) -> list[ZoneStatus]:
        return self._agreed.zone_statuses()

    # -- safety

    def drop_cached_counts(self) -> None:
        self._safety.changed()

    @property
    def waits_for_members(self) -> int:
        """Data members that the first assignment still waits for."""
        return self._safety.waits_for_members

    def unsafe_reason(self) -> str:
        """A crash could lose data now; empty: it could not, as far as this member knows."""
        return self._safety.unsafe_reason() or self._agreed.unsafe_reason()

    def fresh_unsafe_reason(self) -> str:
        """As `unsafe_reason`, without cached results."""
        return self._safety.unsafe_reason(refresh=True) or self._agreed.unsafe_reason()

    def cluster_unsafe_reason(self) -> str:
        """As `unsafe_reason`, from the reports of all members."""
        return self.unsafe_reason() or self._safety.cluster_unsafe_reason()

    def silence_problem(self) -> str:
        """Members whose heartbeats are missing, as text; empty: none."""
        return self._safety.silence_problem()

    def unserved_reason(self) -> str:
        """Partitions without a reachable owner, and what they wait for, as text; empty: none."""
        if not self._table.assigned:
            return self.unsafe_reason() or "partitions are not assigned yet"
        ownerless = [p for p, row in enumerate(self._table.rows) if not self.is_member(row.owner)]
        return f"{len(ownerless)} partitions have no owner, first {ownerless[0]}" if ownerless else ""

    def accept_loss_rejection(self) -> str:
        """Why the operator's acceptance is rejected; empty: it is carried out."""
        return self._safety.accept_loss_rejection(self.unserved_reason(), self._agreed.recovery_advice())

    def leave_blocker(self) -> str:
        """Why this member, which wants to leave, cannot go yet; empty: it can."""
        if not self.admitted:
            return ""
        me = self._membership.me
        return self.silence_problem() or self._migrations.leave_blocker(me) or self._agreed.leave_blocker(me)
