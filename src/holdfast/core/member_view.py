"""What a member knows, for looking: status, sessions, simulator and judges read this, and reach into no machine.

It gives values of this moment: whatever is done with what it gives, the member stays as it is. Copies alone are the
member's own, for nobody could afford others: they are there to be read.
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
from holdfast.core.model.migration import Migration
from holdfast.core.model.open_operations import Followed, OpenOperation
from holdfast.core.model.operations import Outcome, Request
from holdfast.core.model.partition_events import News, Number
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.sync_request import How
from holdfast.core.model.views import ClusterState, Intent, MemberInfo, Room, View
from holdfast.core.outbox import Outbox
from holdfast.core.partition_table.table_replication import TableReplication
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.primary_backup.primary_activation import PrimaryActivation
from holdfast.core.raft_partition.copy_lookup import CopyLookup
from holdfast.core.raft_partition.marked_copies import ReplicaAtMark
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
    """How much is kept for backups, for looking: connections look with every buffer that they read."""

    @property
    def bytes(self) -> int:
        """Bytes of records that wait for backups."""

    @property
    def crowded(self) -> bool:
        """Whether nothing more should be read from clients."""

    @property
    def refusing(self) -> bool:
        """Whether writes are refused."""


class MemberView:
    """A member, read-only: what it shows is of this moment."""

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
        self.copies = CopyLookup(out, lane, copies, agreed.zones)
        """Its copies by map and client partition, of both engines."""
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
        """Who it is, and what it was told of the cluster."""
        return self._membership.identity

    @property
    def info(self) -> MemberInfo:
        """As the view lists it, or would."""
        return self._membership.info

    @property
    def state(self) -> str:
        """How it stands to the cluster: see `MembershipState`."""
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
        """Why no cluster takes it; empty while one may."""
        return self._membership.refusal

    @property
    def way_in(self) -> str:
        """What an operator can do while no cluster admits it; empty: nothing yet."""
        return self._membership.way_in

    @property
    def intent(self) -> Intent:
        return self._membership.intents.mine

    @property
    def view(self) -> View | None:
        return self._membership.view

    @property
    def consensus(self) -> ConsensusHost:
        """What this member takes part in by consensus, as it is: the judges of zones look at every group and key, and
        change nothing.
        """
        return self._agreed

    @property
    def agreed_view(self) -> View | None:
        """The next view, if this member has agreed to one."""
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
        """Whom this member has not heard for too long."""
        return tuple(self._membership.detector.suspects(now_ns))

    def unheard(self) -> Sequence[MemberId]:
        """Of whom this member has heard nothing for some heartbeats, so that an operator may evict them."""
        return tuple(self._membership.evictions.unheard())

    def eviction_rejection(self, ended: Collection[MemberId], *, without_majority: bool) -> str:
        """Why these members cannot be evicted; empty: they can."""
        return self._safety.eviction_rejection(ended, without_majority=without_majority)

    def suspicion_reason(self, member: MemberId) -> str:
        """What this member knows of the silence of that one, in words."""
        return self._membership.detector.silence_reason(member, self._out.now_ns)

    @property
    def hears_majority(self) -> bool:
        """Whether it hears as many members as are needed to decide on the next view; also while it is in none."""
        membership, view = self._membership, self._membership.view
        if view is None or not membership.admitted:
            return True
        silent = membership.detector.suspects(self._out.now_ns)
        return membership.may_decide(view, {info.uuid for info in view.members} - set(silent))

    def outside(self) -> Sequence[MemberInfo]:
        """Members that hold nothing because they are not in the baseline."""
        return tuple(self._membership.outside())

    @property
    def adjusts_in_ms(self) -> int | None:
        """In how long the baseline becomes who is here; None: it is that, or stays as it is."""
        return self._membership.adjusts_in_ms

    @property
    def departing(self) -> AbstractSet[MemberId]:
        """Who wants to leave, or to be lite."""
        return frozenset(self._membership.departing)

    @property
    def cluster_state(self) -> ClusterState:
        """What the operator lets the cluster do."""
        return self._membership.cluster_state

    @property
    def level(self) -> int:
        """The feature level of what it sends and writes down."""
        return self._out.level

    @property
    def maps(self) -> MapsInForce:
        """The settings of maps, and changes of them in use."""
        return self._membership.maps

    @property
    def known_by_all(self) -> bool:
        """Whether every member has said that it knows this view."""
        return self._membership.known_by_all

    @property
    def ending(self) -> bool:
        return self._membership.ending

    @property
    def short_of_memory(self) -> Mapping[MemberId, Room]:
        """Members that have not plenty of room in their memory."""
        return MappingProxyType(self._membership.intents.short)

    @property
    def full_disks(self) -> Mapping[MemberId, str]:
        """Members whose disk is full, by name."""
        return MappingProxyType(self._router.refusals.full)

    # -- the table

    @property
    def assignments(self) -> Sequence[Assignment]:
        """The assignments that are applied here, by partition."""
        return tuple(self._table.rows)

    def assignment(self, partition: int) -> Assignment:
        return self._table.rows[partition]

    def stored_assignment(self, partition: int) -> Assignment | None:
        """A newer one, which this member has stored, and which may yet be committed."""
        return self._table_replication.stored_assignment(partition)

    @property
    def lost_partitions(self) -> Mapping[int, tuple[str, ...]]:
        """Partitions that are lost to some configured maps, until the operator resets them (migration/M-7)."""
        return {partition: row.lost for partition, row in enumerate(self._table.rows) if row.lost}

    @property
    def losses(self) -> LostPartitions:
        """The same, as sessions need it: they change nothing of it."""
        return self._router.refusals.losses

    @property
    def assigned(self) -> bool:
        return self._table.assigned

    @property
    def table_version(self) -> int:
        """Grows with every change of a row."""
        return self._table.version

    @property
    def topology(self) -> tuple[int, int]:
        """Major and minor version: one of them rises with every change of the members or of the table (I1)."""
        version = self._transactions.mapping.version
        return version.major, version.minor

    @property
    def transactions(self) -> dict[str, int]:
        """Those that run here, by `MemberTransactions.figures`."""
        return self._transactions.figures

    @property
    def table_stamp(self) -> int:
        """64 bits over the table: equal on members whose tables are equal."""
        return self._table.stamp

    @property
    def open_news(self) -> News | None:
        """The last that is known of a process of migrations that is not over."""
        return self._table_replication.event_log.open

    @property
    def table_settled(self) -> bool:
        """As master: whether no change of the table is on its way."""
        return self._table_replication.settled

    @property
    def last_news(self) -> Number:
        """Number of the newest event of partitions that was told here."""
        return self._table_replication.event_log.delivered

    def news_since(self, number: Number) -> tuple[list[News], bool]:
        """Events of partitions after this number; and whether these are all that there were."""
        return self._table_replication.event_log.since(number)

    # -- what it holds and serves

    @property
    def held(self) -> Mapping[int, PartitionCopy]:
        """Its copies, by partition."""
        return MappingProxyType(self._copies.held)

    def counters(self, partition: int, index: int) -> Sequence[tuple[str, int, int]]:
        """Low watermarks, and their terms, of what its copy has of all that a replica with this index holds."""
        return tuple(self._copies.counters(self._copies.held[partition], index))

    @property
    def stale(self) -> Mapping[int, PartitionCopy]:
        """Copies that it has kept of partitions that it does not hold any more."""
        return MappingProxyType(self._copies.stale)

    @property
    def leading(self) -> Sequence[PartitionCopy | None]:
        """By partition: its copy, where it is the serving primary."""
        return tuple(self._lane.leading)

    @property
    def serving(self) -> Sequence[PartitionCopy | None]:
        """By partition: its copy, where it is the serving primary, and nothing keeps sessions from writing."""
        return tuple(self._lane.serving)

    def serves(self, partition: int) -> bool:
        """Whether it is the serving primary, and nothing keeps sessions from writing."""
        return self._lane.serving[partition] is not None

    @property
    def primary_of(self) -> AbstractSet[int]:
        """Partitions whose primary it is, serving or about to."""
        return frozenset(self._activation.active)

    def supplying(self) -> Sequence[tuple[Migration, int]]:
        """The migrations in which it is the primary, with the version that each starts from."""
        return tuple(self._source.supplies.migrations())

    def unfinished(self, partition: int) -> bool:
        return self._lane.unfinished(partition)

    @property
    def batches_waiting(self) -> int:
        return self._lane.waiting

    @property
    def backlog(self) -> ReplicationBacklog:
        """What is kept for backups."""
        return self._lane.backlog

    @property
    def passive(self) -> bool:
        """Whether nothing may be changed."""
        return self._router.refusals.passive

    def rejection_here(self, request: Request) -> Outcome | None:
        """The answer to a request that must not be taken now."""
        return self._router.refusals.rejection_here(request)

    # -- whom it tells

    def streams(self, name: str) -> bool:
        """Whether the map has a change stream."""
        return self._changes.streams(name)

    def heads(self, name: str, partitions: Iterable[int]) -> tuple[dict[int, Reach], list[int]]:
        """How far the changes of a map have gone in the partitions that are served here; and which are not."""
        return self._changes.heads(name, partitions)

    @property
    def listening(self) -> AbstractSet[str]:
        """Maps whose changes are told."""
        return frozenset(self._lane.listening)

    @property
    def heard_of(self) -> AbstractSet[str]:
        """Maps that somebody, here or elsewhere, wants to hear of."""
        return frozenset(self._listeners.heard_of)

    @property
    def heard_everywhere(self) -> AbstractSet[str]:
        """Maps of which sessions of this member want to hear from all members."""
        return frozenset(self._listeners.wide)

    def subscribers(self, name: str) -> AbstractSet[MemberId]:
        """The other members that want to hear of this map."""
        return frozenset(self._listeners.subscribers(name))

    def services(self) -> Sequence[Service]:
        """What has a share in every partition beside the maps, as its user made it."""
        return tuple(hosted.service for hosted in self._copies.services.hosted)

    def told_to_services(self) -> Mapping[int, MigrationEvent]:
        """Migrations, by partition, of whose beginning services have heard, and not of their end."""
        return MappingProxyType(self._copies.services.pending)

    def runs_transaction(self, transaction: bytes) -> bool:
        """Whether it was begun here, and is not over."""
        return self._transactions.coordinator.running.runs(transaction)

    # -- what is open

    def under_way(self) -> dict[str, int]:
        """What is under way here or kept for later, by kind; empty at rest."""
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
        )
        kinds = {what: count for machine in machines for what, count in machine.leftovers.items()}
        return {what: count for what, count in kinds.items() if count}

    def leftovers(self) -> dict[str, int]:
        """The same, and what is noted of what is over: empty when a cluster has been at rest for a while."""
        kinds = {**self._membership.leftovers, **self._listeners.leftovers}
        return self.under_way() | {what: count for what, count in kinds.items() if count}

    def open_since(self, before_ns: int, followed: Followed) -> Iterator[OpenOperation]:
        """Operations that came before then, and wait for something: at most some hundreds of each kind. `followed`:
        those of which that is known.
        """
        yield from self._lane.batches.open_since(before_ns, followed)
        yield from self._router.open_since(before_ns)
        yield from self._agreed.zones.open_since(before_ns)

    # -- figures

    @property
    def balanced(self) -> bool:
        """As master: whether all that is planned is what the present members need."""
        return self._migrations.planned

    @property
    def repaired(self) -> int:
        """Replicas that differed, and were mended."""
        return self._repair.repaired

    def fills(self, how: How) -> int:
        """How often a replica was filled in this way."""
        return self._source.selection.fills[how]

    def migrations(self) -> dict[str, int]:
        """What became of migrations, as the master knows."""
        found = self._migrations
        return {
            "active": len(found.running),
            "queued": found.queued,
            "completed": found.completed,
            "failed": found.failed,
            "delayed_ms": found.delayed_ms,
            "completed_kept": len(self._table_replication.event_log.kept),
        }

    def running_migrations(self) -> list[dict[str, object]]:
        """Those under way, as the master knows; and as others do, those that they supply."""
        now_ns = self.now_ns
        known = [(one.migration, now_ns - one.began_ns) for one in self._migrations.running.values()]
        known = known or [(migration, 0) for migration, _ in self.supplying()]
        return [
            {
                "partition": one.partition,
                "kind": str(one.kind),
                "replica": one.destination_new,
                "source": one.source or "",
                "destination": one.destination,
                "running_ms": lasted_ns // 1_000_000,
            }
            for one, lasted_ns in known
        ]

    @property
    def sent_bytes(self) -> int:
        """Bytes of content that were sent to replicas."""
        return self._source.flow.bytes_sent

    @property
    def waiting_for_copies(self) -> int:
        """Partitions of which all copies are gone."""
        return len(self._migrations.lost)

    def awaited(self) -> list[str]:
        """Names of the members that the table of a stopped cluster waits for."""
        return [info.name for info in self._migrations.returns.missing]

    def replicas(self) -> dict[str, object]:
        """How replicas were compared, repaired and filled."""
        source, repair = self._source, self._repair
        return {
            "compared": repair.summaries_sent,
            "differed": repair.asked,
            "repaired": self.repaired,
            "filled": {how.name.lower(): count for how, count in source.selection.fills.items()},
            "history_bytes": source.flow.bytes_history,
            "ranges_bytes": source.flow.bytes_ranges,
            "full_bytes": source.flow.bytes_full,
        }

    def cuts(self) -> dict[str, int]:
        """What is kept of cuts."""
        cuts = self._copies.cuts
        return {"kept": len(cuts), "marks": cuts.pins, "changed_keys": cuts.changed}

    def metastore(self) -> dict[str, object] | None:
        """How the metastore stands, as far as this member knows; None: the cluster has none."""
        return self._agreed.metastore_told()

    def zones(self) -> list[dict[str, object]]:
        """How each zone stands, as far as this member knows."""
        return self._agreed.zones_told()

    @property
    def node(self) -> str:
        """What this member is called in the assignments of zones."""
        return self._agreed.groups.me

    def zone_replica(self, zone: int, partition: int, index: int) -> ReplicaAtMark | None:
        """How far this member's replica is, and what it has kept of this index of its log; None: it runs none."""
        return self._agreed.zones.replica_at(zone, partition, index)

    # -- safety

    def look_again(self) -> None:
        """Members or assignments are others: what was counted of them counts no more."""
        self._safety.changed()

    @property
    def waits_for_members(self) -> int:
        """How many more data members the first assignment waits for."""
        return self._safety.waits_for_members

    def unsafe_reason(self) -> str:
        """Why a crash could cost something now; empty when, as far as this member knows, it could not."""
        return self._safety.unsafe_reason() or self._agreed.unsafe_reason()

    def fresh_unsafe_reason(self) -> str:
        """The same, trusting nothing that it remembers to have seen."""
        return self._safety.unsafe_reason(refresh=True) or self._agreed.unsafe_reason()

    def cluster_unsafe_reason(self) -> str:
        """The same for the whole cluster, as the members have said."""
        return self.unsafe_reason() or self._safety.cluster_unsafe_reason()

    def silence_problem(self) -> str:
        """Whom this member does not hear; empty when it hears all."""
        return self._safety.silence_problem()

    def unserved_reason(self) -> str:
        """Which partitions have no owner that is here, and what that waits for; empty when all have one."""
        if not self._table.assigned:
            return self.unsafe_reason() or "partitions are not assigned yet"
        ownerless = [p for p, row in enumerate(self._table.rows) if not self.is_member(row.owner)]
        return f"{len(ownerless)} partitions have no owner, first {ownerless[0]}" if ownerless else ""

    def accept_loss_rejection(self) -> str:
        """Why the operator's order to go on without what is missing is not carried out; empty: it is."""
        return self._safety.accept_loss_rejection(self.unserved_reason(), self._agreed.way_out())

    def leave_blocker(self) -> str:
        """What has to happen before this member, which wants to leave, may go; empty when nothing has."""
        if not self.admitted:
            return ""
        me = self._membership.me
        return self.silence_problem() or self._migrations.leave_blocker(me) or self._agreed.leave_blocker(me)
