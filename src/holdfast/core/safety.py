"""Whether a crash could lose data now. Cheap enough for every second; changes nothing.

Each member adds the result to its heartbeats, so that each one can answer for the cluster.
"""

from __future__ import annotations

from collections.abc import Collection

from holdfast.config import Settings
from holdfast.core.membership.lost_majority import eviction_rejection, recovery_advice, silent_members
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.migration.migration_master import MigrationMaster
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.outbox import Outbox
from holdfast.core.partition_table.table_replication import TableReplication
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.primary_activation import PrimaryActivation
from holdfast.core.state_transfer.map_copies import MapCopies

LATE_NS = 2 * SECOND
"""Records without acknowledgements of backups for so long are reported."""

WITH_FILES = (
    "Start the members that held them again, with their files. If these are gone for good, accept the loss of their "
    "data: holdfast cluster accept-loss"
)
IN_MEMORY = (
    "If the members that held them still run, reconnect them. If their processes have ended, what they held in memory "
    "is gone, and a restart brings nothing back. Accept the loss: holdfast cluster accept-loss"
)
BEATS_MISSED = 3
"""A member's report counts until so many of its heartbeats are missing."""


class Safety:
    def __init__(
        self,
        settings: Settings,
        out: Outbox,
        membership: MembershipStatus,
        table_replication: TableReplication,
        migrations: MigrationMaster,
        activation: PrimaryActivation,
        lane: Lane,
        map_copies: MapCopies,
    ) -> None:
        self._map_copies = map_copies
        self._settings = settings
        self._out = out
        self._membership = membership
        self._table_replication = table_replication
        self._migrations = migrations
        self._activation = activation
        self._lane = lane
        self._copies: str | None = None
        """None: not counted since the last change."""

    def changed(self) -> None:
        self._copies = None

    def unsafe_reason(self, *, refresh: bool = False) -> str:
        """A crash could lose something now; empty: it could not, as far as this member knows. `refresh`: count missing
        copies again.
        """
        membership = self._membership
        if not membership.admitted:
            advice = f": {membership.join_advice}" if membership.join_advice else ""
            return f"this member is {membership.state}{advice}"
        silent = self.silence_problem()
        if silent:
            return silent
        if not self._table_replication.table.assigned:
            if membership.view is not None and membership.view.recovering:
                return f"the partition table is not restored yet: waiting {self._migrations.returns.wait_reason()}"
            return "" if self.waits_for_members else "partitions are not assigned yet"
        if self._copies is None:
            self._copies = self._missing_copies()
        lacking = self._missing_copies() if refresh else self._copies
        if lacking:
            return lacking + self._not_restored_reason()
        if full := [info.name for info in membership.members() if info.uuid in membership.intents.full]:
            return (
                f"the disk of {', '.join(full)} is full: writes to journalled maps are refused there, and nothing can "
                "be restored to it; make room on the disk"
            )
        if self._activation.pending:
            return f"{self._activation.pending} partitions are taking office"
        late_ns = self._out.now_ns - (self._lane.batches.oldest_ns or self._out.now_ns)
        if late_ns > LATE_NS:
            return f"backups have not acknowledged writes for {late_ns / SECOND:.1f} s"
        if unproven := self._map_copies.unsafe_reason():
            return unproven
        return self._master_busy() if membership.is_master else ""

    @property
    def waits_for_members(self) -> int:
        """Members that the first assignment waits for; until then there is nothing to lose."""
        if self._table_replication.table.assigned or self._membership.view is None:
            return 0
        return max(0, self._settings.cluster.initial_members - len(self._membership.data_members()))

    def silence_problem(self) -> str:
        """Silent members, and the effect on decisions; empty: all are heard."""
        membership, now_ns = self._membership, self._out.now_ns
        silent = silent_members(membership, now_ns)
        if not silent:
            return ""
        lasting = recovery_advice(membership, now_ns)
        return lasting or f"{len(silent)} of {len(membership.members())} members are silent"

    def eviction_rejection(self, ended: Collection[MemberId], *, without_majority: bool) -> str:
        """Why they cannot be evicted; empty: they can."""
        return eviction_rejection(
            self._membership, ended, self._out.now_ns, without_majority=without_majority
        )

    def accept_loss_rejection(self, unserved: str, further: str) -> str:
        """Why the loss cannot be accepted; empty: it can. `unserved`: partitions without an owner; `further`: other
        advice.
        """
        if silent := recovery_advice(self._membership, self._out.now_ns):
            return silent
        if unserved:
            return ""
        return (
            f"every partition has an owner: there is nothing to wait for{f'; {further}' if further else ''}"
        )

    def cluster_unsafe_reason(self) -> str:
        """Why a crash could lose data, by the last heartbeats of the members in this view."""
        why = self.unsafe_reason()
        if why:
            return why
        membership = self._membership
        others = [info for info in membership.members() if info.uuid != membership.me]
        limit_ns = BEATS_MISSED * self._settings.cluster.heartbeat_ms * MILLISECOND
        unheard = set(membership.detector.unheard(self._out.now_ns - limit_ns))
        if unheard:
            names = ", ".join(info.name for info in others if info.uuid in unheard)
            return f"no heartbeat for {limit_ns / SECOND:g} s from: {names}"
        unsafe = [info.name for info in others if info.uuid not in membership.intents.safe]
        return f"not reported safe: {', '.join(unsafe)}" if unsafe else ""

    def _missing_copies(self) -> str:
        members = self._membership.members()
        present = {info.uuid for info in members}
        # Absent members of a frozen table keep their replicas: these count as wanted, and not as present.
        expected = [*members, *self._membership.missing()]
        groups = {info.group or info.uuid for info in expected if self._membership.may_hold(info)}
        groups |= {one.group or one.consistent_id for one in self._membership.away()}
        # A map has its copies at the lowest indexes: a colder replica holds nothing of a map with fewer backups.
        depths = [(depth, max(1, min(depth, len(groups)))) for depth in self._settings.depths()]
        most = max(wanted for _, wanted in depths)
        lacking = 0
        first = ""
        for partition, row in enumerate(self._table_replication.table.rows):
            holding = row.holding
            if len(holding) >= most and row.owner in present and present.issuperset(holding):
                continue  # True of nearly all partitions, and this is computed after each change of the table.
            there = [member in present for member in holding]
            living, wanted = min(((sum(there[:depth]), wanted) for depth, wanted in depths), key=_spare)
            if living < wanted or row.owner not in present:
                lacking += 1
                primary = "" if row.owner in present else ", and no primary"
                first = first or f"partition {partition} has {living} of {wanted} copies{primary}"
        return f"{first}, and {lacking - 1} more lack some" if lacking > 1 else first

    def _not_restored_reason(self) -> str:
        here = {info.uuid for info in self._membership.members()}
        rows = self._table_replication.table.rows
        waiting = sum(bool(row.version) and not here.intersection(row.replicas) for row in rows)
        if waiting and self._membership.cluster_state.migrates:
            advice = WITH_FILES if self._settings.persistence.directory else IN_MEMORY
            return f"; {waiting} partitions have no copy here. {advice}"
        state = self._membership.cluster_state
        if not state.migrates:
            missing = ", ".join(info.name for info in self._membership.missing())
            return f"; the cluster is {state}{f' and without {missing}' if missing else ''}"
        away = ", ".join(one.consistent_id for one in self._membership.away())
        if away:
            return (
                f"; places are kept for absent members of the baseline: {away}. Start them, or remove them: "
                "holdfast cluster baseline remove"
            )
        delayed_ms = self._migrations.delayed_ms
        return f"; restoring waits {delayed_ms / 1000:.1f} s for members to return" if delayed_ms else ""

    def _master_busy(self) -> str:
        migrations = self._migrations
        if migrations.returns.unheard:
            return f"waiting for the file inventory of: {', '.join(migrations.returns.unheard)}"
        if not self._table_replication.ready:
            return "looking for the newest partition table"
        if migrations.running or migrations.queued:
            return f"{len(migrations.running) + migrations.queued} migrations left"
        if not migrations.planned and self._membership.cluster_state.migrates:
            return "a rebalance is not planned yet"
        if not self._table_replication.settled:
            return "a change of the partition table is not confirmed yet"
        return ""


def _spare(copies: tuple[int, int]) -> int:
    living, wanted = copies
    return living - wanted
