"""The status of a member, for the query `status`, its commands, HTTP and the console.

Builds exchange it as a map: a reader ignores unknown fields, so a field that is added later needs a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.config.addresses import format_address
from holdfast.core.model.ids import Address
from holdfast.core.model.result_columns import column

RESTARTED = "its process has ended and was restarted: the new one is not in this cluster yet"
"""Why an answer from a member's address does not count: another process gave it."""


class ListedMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member of the cluster, as the member that answers knows it."""

    uuid: str
    name: str
    host: str
    client_port: int
    member_port: int
    lite: bool
    group: str
    consistent_id: str
    outside: Annotated[bool, Meta(description="outside the baseline")]
    leaving: bool
    master: bool
    primaries: int
    backups: int
    version: str
    levels: Annotated[list[int], Meta(description="lowest and highest feature level")]

    @property
    def door(self) -> Address:
        return Address(self.host, self.client_port)

    @property
    def label(self) -> str:
        return f"{self.name} ({format_address(self.host, self.client_port)})"


class FeatureLevel(msgspec.Struct, frozen=True):
    in_force: int
    lowest: Annotated[int, Meta(description="of this member")]
    highest: Annotated[int, Meta(description="of this member")]
    possible: Annotated[int, Meta(description="the highest that all members support; 0: there is none")]


class Topology(msgspec.Struct, frozen=True):
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class TransactionCounts(msgspec.Struct, frozen=True):
    running: int
    oldest_ms: int
    orphans: Annotated[int, Meta(description="transactions whose coordinator is gone")]


class BaselineMemberStatus(msgspec.Struct, frozen=True):
    """A member of the baseline; without a UUID it is absent."""

    consistent_id: str
    group: str
    uuid: str
    away: bool

    def __str__(self) -> str:
        state = "here" if self.uuid else "away, its places are kept" if self.away else "not here"
        return f"{self.consistent_id}: {state}"


class BaselineStatus(msgspec.Struct, frozen=True):
    """The members that own data, their history, and the next adjustment."""

    members: list[BaselineMemberStatus]
    outside: list[str]
    adjust_ms: Annotated[int | None, Meta(description="null: it is never adjusted")]
    adjusts_in_ms: int | None
    changes: int
    history: list[str]


class TableVersion(msgspec.Struct, frozen=True):
    version: int
    stamp: Annotated[str, Meta(description="equal on members whose partition tables are equal")]


class PartitionCounts(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    replicas: int
    holders: int
    group_by: str
    placement: str
    lost: str
    primaries: int
    backups: int
    serving: int
    missing_replicas: int
    awaited_members: Annotated[int, Meta(description="data members that the first assignment waits for")]
    without_copy: Annotated[int, Meta(description="partitions that wait for a member that holds a copy")]
    lost_by_map: dict[str, list[int]]


class MapSetting(msgspec.Struct, frozen=True):
    """A setting of a map, when all changes are complete."""

    map: Annotated[str, column("map")]
    setting: Annotated[str, column("setting")]
    value: Annotated[int | bool | str, column("value")]
    source: Annotated[str, column("from")]
    complete: Annotated[bool, column("complete")]


class Rebalance(msgspec.Struct, frozen=True):
    """The rebalance under way."""

    planned: int
    completed: int
    failed: int
    remaining: int
    elapsed_ms: int


class RunningMigration(msgspec.Struct, frozen=True):
    partition: int
    kind: str
    replica: int
    source: Annotated[str, Meta(description="UUID; empty: the copy is new")]
    destination: str
    running_ms: int


class MigrationCounts(msgspec.Struct, frozen=True, kw_only=True):
    active: int
    queued: int
    completed: int
    failed: int
    delayed_ms: Annotated[int, Meta(description="until lost copies are restored; only the master knows it")]
    completed_kept: int
    sent_bytes: int
    process: Rebalance | None
    running: Annotated[
        list[RunningMigration], Meta(description="as far as this member knows; the master knows all")
    ]


class ReplicaFills(msgspec.Struct, frozen=True, kw_only=True):
    """Comparisons and fills of replicas by this member."""

    compared: int
    differed: int
    repaired: int
    filled: dict[str, int]
    history_bytes: int
    ranges_bytes: int
    full_bytes: int


class IncompleteCopies(msgspec.Struct, frozen=True):
    """Copies of a member that count as no copy yet."""

    filling: Annotated[int, Meta(description="copies of partitions that are being filled")] = 0
    gaps: Annotated[
        int,
        Meta(
            description="maps of partitions, in any copy, that lack updates below the newest one: their low watermark "
            "is below their high watermark"
        ),
    ] = 0


class EntryCounts(msgspec.Struct, frozen=True):
    primary: Annotated[int, Meta(description="in the partitions that this member serves or leads")]
    all: Annotated[int, Meta(description="in all its copies")]


class MetastoreReplica(msgspec.Struct, frozen=True, kw_only=True):
    """The metastore as one member sees it."""

    leader: Annotated[str, Meta(description="name of the member; empty: not known")]
    voters: list[str]
    learners: list[str]
    revision: Annotated[int, column("revision", "count")]
    keys: Annotated[int, column("keys", "count")]
    compacted: Annotated[int, column("known from", "count")]
    pending: Annotated[int, column("pending", "count")]
    time_ms: int
    history_bytes: Annotated[int, column("history", "bytes")]

    def role(self, name: str) -> str:
        return "leads" if self.leader == name else "votes" if name in self.voters else "learns"


SettingValue = str | int
"""A number, a word, or a filter as people write it."""


class ZoneStatus(msgspec.Struct, frozen=True):
    """A zone, as far as the reporting member knows."""

    id: int
    name: str
    settings: dict[str, SettingValue]
    leaderless: int
    """Partitions without a known leader that is present."""
    moving: int
    """Partitions whose replicas change."""
    under_replicated: int
    """Partitions with a replica on an absent member."""
    lag: int = 0
    """The most log entries that a follower lacks, in partitions that the reporting member leads."""
    eligible_members: list[str] = []
    """Names of present members that do not leave and may hold its replicas. With fewer members than replicas, it has
    fewer replicas.
    """


class MapFigure(msgspec.Struct):
    """One map in the partitions that a member serves as primary, or leads in a zone."""

    entries: int = 0
    bytes: Annotated[int, Meta(description="estimated size of keys and values")] = 0
    updates: Annotated[
        int, Meta(description="all ever; the difference between two samples gives the rate")
    ] = 0


class MemberCount(msgspec.Struct):
    """The maps of one member, counted."""

    maps: dict[str, MapFigure] = {}
    primary: Annotated[int, Meta(description="entries in partitions that it serves or leads")] = 0
    all: Annotated[int, Meta(description="entries in all its copies")] = 0
    reads: Annotated[dict[str, int], Meta(description="reads by map since the start")] = {}
    evicted: Annotated[
        dict[str, int], Meta(description="entries evicted because of the limit of their map, by map")
    ] = {}
    expired: Annotated[dict[str, int], Meta(description="expired entries that were removed, by map")] = {}


class CutCounts(msgspec.Struct, frozen=True):
    kept: int
    marks: int
    changed_keys: int


class FilesStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a member that keeps data on disk."""

    directory: str
    store: str
    opened: int
    segments: int
    journal_bytes: int
    checkpoints: int
    checkpoints_written: int
    last_checkpoint_ms: int | None
    full: bool
    problems: list[str]


class MemoryStatus(msgspec.Struct, frozen=True):
    limit_bytes: int
    limit_from: str
    used_bytes: int
    resident_bytes: int
    room: str


class BacklogStatus(msgspec.Struct, frozen=True):
    """Updates that wait for backups."""

    bytes: int
    throttled: bool
    rejecting: bool


class MemberSecret(msgspec.Struct, frozen=True):
    """A rotation of `security.member_secret`."""

    set: bool
    second: bool
    lacking_first: list[str]
    lacking_second: list[str]
    refused: Annotated[list[str], Meta(description="addresses of members with another secret")]


class MemberProtocol(msgspec.Struct, frozen=True):
    lowest: int
    highest: int
    versions: Annotated[dict[str, int], Meta(description="version by member")]


class TlsStatus(msgspec.Struct, frozen=True):
    certificate: str
    client_certificates: str
    minimum_version: str
    member_certificate_ends: str
    loaded: int
    error: Annotated[str, Meta(description="why changed files are not used")]


class Stalls(msgspec.Struct, frozen=True):
    """Turns of the event loop."""

    longest_in_last_minute_ms: float
    longest_ms: float


class SlowOperation(msgspec.Struct, frozen=True):
    """Requests that waited together for longer than the limit, or a long turn of the event loop."""

    ended_ms: Annotated[int | None, Meta(description="wall clock; null: it is still running")]
    took_ms: int
    kind: str
    operations: int
    places: Annotated[
        dict[str, list[int | str]], Meta(description="partitions by map; the last item may say how many more")
    ]
    waited_for: str
    members: Annotated[list[str], Meta(description="names of the members that were waited for")]


class SlowOperationsStatus(msgspec.Struct, frozen=True):
    limit_ms: int
    count: int
    recent: list[SlowOperation]
    running: list[SlowOperation]


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a status that the process of the member adds. A member without one has the defaults."""

    uptime_s: float = 0.0
    files: FilesStatus | None = None
    memory: MemoryStatus | None = None
    operations: Annotated[Mapping[str, int], Meta(description="requests that were answered, by kind")] = {}
    settings_changed: Mapping[str, str] = {}
    rejections: Annotated[Mapping[str, int], Meta(description="of connections and requests, by reason")] = {}
    lane: str = ""
    lane_reason: str = ""
    sockets: str = ""
    sockets_reason: str = ""
    member_secret: MemberSecret = MemberSecret(False, False, [], [], [])
    protocol: MemberProtocol = MemberProtocol(0, 0, {})
    tls: TlsStatus | None = None
    stalls: Stalls | None = None
    slow_operations: SlowOperationsStatus | None = None
    http: str = ""


class MemberStatus(ProcessStatus, frozen=True, kw_only=True):
    """The state of a member, and of the cluster as this member knows it."""

    uuid: str
    name: str
    state: str
    leaving: bool
    desired_state: str
    leave_blocker: str
    join_refusal: str
    cluster_state: str
    shutting_down: bool
    missing_members: list[str]
    cluster: str
    cluster_id: str
    master: Annotated[str, Meta(description="UUID; empty: not known")]
    is_master: bool
    view: int
    quorum: str
    members: list[ListedMember]
    version: str
    level: FeatureLevel
    topology: Topology
    transactions: TransactionCounts
    baseline: Annotated[BaselineStatus | None, Meta(description="null: every data member owns data")]
    table: TableVersion
    partitions: PartitionCounts
    maps: Annotated[list[str], Meta(description="maps with entries here, and those that are configured")]
    zone_maps: Annotated[dict[str, str], Meta(description="zones by map")]
    map_settings: list[MapSetting]
    migrations: MigrationCounts
    replicas: ReplicaFills
    entries: EntryCounts
    incomplete: IncompleteCopies = IncompleteCopies()
    updates: int
    metastore: Annotated[MetastoreReplica | None, Meta(description="null: there is none")]
    zones: list[ZoneStatus]
    cuts: CutCounts
    awaited_members: list[str]
    full_disks: list[str]
    low_memory: dict[str, str]
    retained_change_bytes: Annotated[
        int, Meta(description="memory of changes from before moves of maps, for readers of change streams")
    ] = 0
    pending_batches: int
    backlog: BacklogStatus
    safe: Annotated[bool, Meta(description="a crash of this member would lose nothing now")]
    unsafe_reason: str
    cluster_safe: Annotated[bool, Meta(description="a crash of any member would lose nothing now")]
    cluster_unsafe_reason: str
