"""Context that the replicas of a zone on one member share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from holdfast.config import Settings
from holdfast.core.model.ids import MILLISECOND, GroupNumber, place_of
from holdfast.core.model.levels import ZONE_COUNTERS, ZONE_IDLE_TIMES
from holdfast.core.model.map_counts import RemovedEntries
from holdfast.core.model.map_moves import MovesInForce
from holdfast.core.model.operations import EntryEvent, Outcome, Status
from holdfast.core.model.zone_batches import ZoneChanges
from holdfast.core.multiraft.group_host import GroupHost
from holdfast.core.multiraft.hosted_group import ReplicaNotice
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.cuts import Cuts
from holdfast.core.raft_partition.partition_commands import ZoneCommand
from holdfast.core.raft_partition.state_machine import StateMachine
from holdfast.core.store.entry_mapping import NewEntries
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.partition_shares import PartitionShares

NOT_LEADING = Outcome(Status.MOVED, None, "this member does not lead the partition's group")
Answered = Callable[[Outcome], None]


class SharedWithEngineOne(Protocol):
    """Parts that the copies of both engines on a member share."""

    @property
    def entries(self) -> NewEntries:
        """Makes a map's mapping."""

    @property
    def moves(self) -> MovesInForce: ...

    @property
    def cuts(self) -> Cuts:
        """Kept by this member."""

    @property
    def held(self) -> Mapping[int, PartitionCopy]:
        """Copies of maps outside zones, by partition."""


class ZoneReplicas:
    def __init__(
        self,
        settings: Settings,
        out: Outbox,
        groups: GroupHost,
        sink: ZoneSink,
        shared: SharedWithEngineOne,
    ) -> None:
        self.settings = settings
        self.moves = shared.moves
        self.shared = shared
        self.out = out
        self.groups = groups
        self.sink = sink
        self.timeout_ns = settings.limits.call_timeout_ms * MILLISECOND
        self.removed = RemovedEntries()
        self.led: dict[GroupNumber, StateMachine] = {}
        """States of the groups that this member leads."""
        self.shares = PartitionShares(settings, self)
        self.contexts = 0
        """Read confirmations requested so far."""
        self.again: set[Resumable] = set()
        self.unlocked: list[tuple[GroupNumber, int]] = []
        """Client partitions, with their groups, in which locks of transactions have ended in this step."""
        self.changed: dict[tuple[GroupNumber, int, str, bytes], None] = {}
        """Collections and CP objects that have changed in this step, with the groups and client partitions."""

    def lifetimes(self, name: str) -> tuple[int, int]:
        """Default time to live and maximum idle time in ms, by this member's settings. The leader writes them into the
        log, so all replicas use the same.
        """
        ttl_ms, max_idle_ms = self.settings.map(name).lifetimes
        return ttl_ms, max_idle_ms if self.out.does(ZONE_IDLE_TIMES) else 0

    def led_copies(self, name: str) -> list[PartitionCopy]:
        zone = self.sink.zone_of(name)
        return [
            copy
            for number, state in self.led.items()
            if place_of(number)[0] == zone
            for copy in state.copies.values()
        ]

    def command(self, parts: tuple[ZoneChanges, ...] = (), *, sweep: bool = False) -> ZoneCommand:
        """A command with the time of this member."""
        return ZoneCommand(self.out.wall_ms(), parts, sweep, self.out.does(ZONE_COUNTERS))

    def context(self) -> bytes:
        """Names a read confirmation, unique in the cluster."""
        self.contexts += 1
        return f"{self.groups.me}/{self.contexts}".encode()


class ZoneSink(Protocol):
    listening: dict[str, int]

    def hear(self, event: EntryEvent) -> None: ...

    def zone_of(self, name: str) -> int | None: ...

    def on_marked(self, number: GroupNumber) -> None:
        """The marks of a partition of the group have changed (model/M-2)."""

    def on_replica(self, number: GroupNumber, notice: ReplicaNotice) -> None: ...


class Resumable(Protocol):
    @property
    def number(self) -> GroupNumber: ...

    def flush(self) -> None: ...
