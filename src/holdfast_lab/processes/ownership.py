"""The owners of each partition over time, and the leaders of a zone's partitions, sampled from a member
during the demo.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from holdfast.actions.show_zones import ShowLeaders
from holdfast.client.blocking import Client
from holdfast.core.model.member_status import ListedMember
from holdfast.core.model.zone_answers import KnownLeaders
from holdfast.errors import HoldfastError
from holdfast_lab.processes.local_cluster import LocalCluster, Status

SAMPLE_S = 0.1
PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    at_s: float
    owners: tuple[str, ...]
    """UUID of each partition's owner, or the leader's name in assignments; empty for none."""
    copies: int
    """Number of replicas with a live member, owners included. For a zone: number of partitions whose replicas
    are all on live members.
    """
    migrations_active: int
    safe: bool


@dataclass(frozen=True, slots=True)
class Event:
    at_s: float
    kind: str
    member: str


@dataclass(slots=True)
class Stretch:
    owner: str
    begin_s: float
    end_s: float


@dataclass(slots=True)
class Timeline:
    partition_count: int = 0
    names: dict[str, str] = field(default_factory=dict)
    """UUID (or the name in assignments) of each member -> its display name, in the order of joins."""
    snapshots: list[Snapshot] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    moves: int = 0
    """Number of replicas that reached a member which lacked them in the previous sample."""

    def stretches(self) -> list[list[Stretch]]:
        found: list[list[Stretch]] = [[] for _ in range(self.partition_count)]
        for snapshot in self.snapshots:
            for partition, owner in enumerate(snapshot.owners):
                line = found[partition]
                if line:
                    line[-1].end_s = snapshot.at_s
                if not line or line[-1].owner != owner:
                    line.append(Stretch(owner, snapshot.at_s, snapshot.at_s))
        return found


class Sampler(threading.Thread):
    """Samples a member's table ten times a second. A context manager: it samples inside the block."""

    def __init__(self, cluster: LocalCluster, timeline: Timeline, zone_line: Timeline | None = None) -> None:
        super().__init__(name="sampler", daemon=True)
        self.cluster = cluster
        self.timeline = timeline
        self.zone_line = zone_line
        self.status: Status | None = None
        self._over = threading.Event()
        self._held: list[set[str]] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join(timeout=10)

    def run(self) -> None:
        client: Client | None = None
        address = ""
        while not self._over.wait(SAMPLE_S):
            running = self.cluster.client_addresses()
            if client is not None and address not in running:
                client.close()
                client = None
            try:
                if client is None and running:
                    address = running[-1]
                    client = Client(address, timeout_s=PATIENCE_S)
                if client is not None:
                    self._sample(client)
                    if self.zone_line is not None:
                        self._sample_zone(client, self.zone_line)
            except (HoldfastError, OSError):
                if client is not None:
                    client.close()
                client = None
        if client is not None:
            client.close()

    def _sample(self, client: Client) -> None:
        rows = client.table().rows
        self.status = status = client.status()
        line = self.timeline
        self._see(status.members, time.monotonic())
        holders = [{member for member in row.replicas if member is not None} for row in rows]
        if self._held:
            line.moves += sum(len(now - before) for now, before in zip(holders, self._held, strict=True))
        self._held = holders
        line.partition_count = len(rows)
        line.snapshots.append(
            Snapshot(
                at_s=time.monotonic(),
                owners=tuple(row.owner or "" for row in rows),
                copies=sum(map(len, holders)),
                migrations_active=int(status.migrations.active),
                safe=bool(status.safe),
            )
        )

    def _see(self, members: Iterable[ListedMember], now_s: float) -> None:
        """Learn members' names. A new member joins now: the start of its process says nothing about that."""
        for member in members:
            if member.uuid in self.timeline.names:
                continue
            self.timeline.names[member.uuid] = member.name
            if self.timeline.snapshots:
                for line in filter(None, (self.timeline, self.zone_line)):
                    line.events.append(Event(now_s, "join", member.name))

    def _sample_zone(self, client: Client, line: Timeline) -> None:
        """Sample the leaders, as the asked member knows them, and the live replicas, from the metastore."""
        assert self.status is not None, "it is sampled before"
        (zone,) = self.status.zones
        answer: KnownLeaders = client.query(ShowLeaders())
        line.names.update(answer.members)
        count = line.partition_count = int(zone.settings["partitions"])
        leaders = {told.partition: told.node for told in answer.leaders if told.zone == zone.id}
        line.snapshots.append(
            Snapshot(
                at_s=time.monotonic(),
                owners=tuple(leaders.get(partition, "") for partition in range(count)),
                copies=count - zone.under_replicated,
                migrations_active=zone.moving,
                safe=not (zone.moving or zone.under_replicated or zone.leaderless),
            )
        )
