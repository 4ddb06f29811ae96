"""What a member knows, for looking: who only looks reads this, and reaches into no machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.config import Settings
from holdfast.core.cluster.identity import Identity
from holdfast.core.cluster.standing import Standing
from holdfast.core.machine import Outbox
from holdfast.core.migration.master import Migrations
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import Outcome, Request
from holdfast.core.model.partition_events import News, Number
from holdfast.core.model.partition_table import Assignment, Table
from holdfast.core.model.views import ClusterState, Intent, MemberInfo, Room, View
from holdfast.core.placement.table_replication import TableReplication
from holdfast.core.replication.activation import Activation
from holdfast.core.replication.change_streams import ChangeStreams
from holdfast.core.replication.copies import Copies
from holdfast.core.replication.lane import Lane
from holdfast.core.routing.router import Router
from holdfast.core.safety import Safety
from holdfast.core.store.partition import PartitionCopy
from holdfast.core.sync.anti_entropy import Repair
from holdfast.core.sync.destination import Destination
from holdfast.core.sync.source import Source

if TYPE_CHECKING:
    from holdfast.core.replication.backlog import Backlog


class Picture:
    """A member, read-only: what it shows is of this moment, and is not to be changed."""

    def __init__(
        self,
        settings: Settings,
        out: Outbox,
        *,
        membership: Standing,
        table: Table,
        table_replication: TableReplication,
        migrations: Migrations,
        copies: Copies,
        lane: Lane,
        router: Router,
        source: Source,
        destination: Destination,
        repair: Repair,
        changes: ChangeStreams,
        activation: Activation,
    ) -> None:
        self._membership = membership
        self._table = table
        self._table_replication = table_replication
        self._migrations = migrations
        self._copies = copies
        self._lane = lane
        self._router = router
        self._source = source
        self._repair = repair
        self._activation = activation
        self._safety = Safety(settings, out, membership, table_replication, migrations, activation, lane)
        self._machines = (
            copies,
            lane,
            source,
            destination,
            changes,
            repair,
            table_replication,
            migrations,
            router,
        )
        """Those that may have something under way."""

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
        """Whether it is in a view."""
        return self._membership.admitted

    @property
    def has_left(self) -> bool:
        """Whether it has left for good."""
        return self._membership.has_left

    @property
    def leaving(self) -> bool:
        """Whether it wants to leave."""
        return self._membership.leaving

    @property
    def refusal(self) -> str:
        """Why no cluster takes it; empty while one may."""
        return self._membership.refusal

    @property
    def intent(self) -> Intent:
        """What it wants to become."""
        return self._membership.intents.mine

    @property
    def view(self) -> View | None:
        """The view that is installed here."""
        return self._membership.view

    @property
    def master(self) -> MemberId | None:
        """The oldest member of the view."""
        return self._membership.master

    @property
    def is_master(self) -> bool:
        """Whether that is this one."""
        return self._membership.is_master

    def members(self) -> list[MemberInfo]:
        """The members of the view, oldest first."""
        return self._membership.members()

    def data_members(self) -> list[MemberInfo]:
        """Those that hold data."""
        return self._membership.data_members()

    def is_member(self, member: MemberId | None) -> bool:
        """Whether it is in the view."""
        return self._membership.member(member) is not None

    def suspects(self, now_ns: int) -> Sequence[MemberId]:
        """Whom this member has not heard for too long."""
        return self._membership.detector.suspects(now_ns)

    @property
    def departing(self) -> set[MemberId]:
        """Who wants to leave, or to be lite."""
        return self._membership.departing

    @property
    def cluster_state(self) -> ClusterState:
        """What the operator lets the cluster do."""
        return self._membership.cluster_state

    @property
    def known_by_all(self) -> bool:
        """Whether every member has said that it knows this view."""
        return self._membership.known_by_all

    @property
    def ending(self) -> bool:
        """Whether the cluster is being shut down."""
        return self._membership.ending

    @property
    def short_of_memory(self) -> Mapping[MemberId, Room]:
        """Members that have not plenty of room in their memory."""
        return self._membership.intents.short

    @property
    def full_disks(self) -> Mapping[MemberId, str]:
        """Members whose disk is full, by name."""
        return self._router.refusals.full

    # -- the table

    @property
    def assignments(self) -> list[Assignment]:
        """The rows that are applied here."""
        return self._table.rows

    @property
    def assigned(self) -> bool:
        """Whether partitions have been assigned at all."""
        return self._table.assigned

    @property
    def table_version(self) -> int:
        """Grows with every change of a row."""
        return self._table.version

    @property
    def table_stamp(self) -> int:
        """64 bits over the table: equal on members whose tables are equal."""
        return self._table.stamp

    @property
    def open_news(self) -> News | None:
        """The last that is known of a process of migrations that is not over."""
        return self._table_replication.event_log.open

    @property
    def last_news(self) -> Number:
        """Number of the newest event of partitions that was told here."""
        return self._table_replication.event_log.told

    def news_since(self, number: Number) -> tuple[list[News], bool]:
        """Events of partitions after this number; and whether these are all that there were."""
        return self._table_replication.event_log.since(number)

    # -- what it holds and serves

    @property
    def held(self) -> Mapping[int, PartitionCopy]:
        """Its copies, by partition."""
        return self._copies.held

    @property
    def stale(self) -> Mapping[int, PartitionCopy]:
        """Copies that it has kept of partitions that it does not hold any more."""
        return self._copies.stale

    @property
    def leading(self) -> Sequence[PartitionCopy | None]:
        """By partition: its copy, where it is the serving primary."""
        return self._lane.leading

    def unfinished(self, partition: int) -> bool:
        """Whether some write of the partition waits for a backup."""
        return self._lane.unfinished(partition)

    @property
    def batches_waiting(self) -> int:
        """Batches that wait for backups."""
        return self._lane.waiting

    @property
    def backlog(self) -> Backlog:
        """What is kept for backups."""
        return self._lane.backlog

    @property
    def passive(self) -> bool:
        """Whether nothing may be changed."""
        return self._router.refusals.passive

    def why_not_now(self, request: Request) -> Outcome | None:
        """The answer to a request that must not be taken now."""
        return self._router.refusals.why_not_now(request)

    # -- figures

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
            "repaired": repair.repaired,
            "filled": {how.name.lower(): count for how, count in source.selection.fills.items()},
            "history_bytes": source.flow.bytes_history,
            "ranges_bytes": source.flow.bytes_ranges,
            "full_bytes": source.flow.bytes_full,
        }

    def cuts(self) -> dict[str, int]:
        """What is kept of cuts."""
        cuts = self._copies.cuts
        return {"kept": len(cuts), "marks": cuts.pins, "changed_keys": cuts.changed}

    def unfinished_work(self) -> dict[str, int]:
        """What is under way here or kept for later, by kind; empty at rest. For judges and tests."""
        kinds = {what: count for machine in self._machines for what, count in machine.leftovers.items()}
        kinds["offices to take"] = self._activation.pending
        return {what: count for what, count in kinds.items() if count}

    # -- safety

    def look_again(self) -> None:
        """Members or assignments are others: what was counted of them counts no more."""
        self._safety.changed()

    @property
    def waits_for_members(self) -> int:
        """How many more data members the first assignment waits for."""
        return self._safety.waits_for_members

    def why_unsafe(self) -> str:
        """Why a crash could cost something now; empty when, as far as this member knows, it could not."""
        return self._safety.why_unsafe()

    def why_cluster_unsafe(self) -> str:
        """The same for the whole cluster, as the members have said."""
        return self._safety.why_cluster_unsafe()

    def why_silent(self) -> str:
        """Whom this member does not hear; empty when it hears all."""
        return self._safety.why_silent()

    def why_unserved(self) -> str:
        """Which partitions have no owner that is here, and what that waits for; empty when all have one."""
        if not self._table.assigned:
            return self.why_unsafe() or "partitions are not assigned yet"
        ownerless = [p for p, row in enumerate(self._table.rows) if not self.is_member(row.owner)]
        return f"{len(ownerless)} partitions have no owner, first {ownerless[0]}" if ownerless else ""

    def why_kept(self) -> str:
        """What has to happen before this member, which wants to leave, may go; empty when nothing has."""
        if not self.admitted:
            return ""
        return self.why_silent() or self._migrations.why_kept(self._membership.me)
