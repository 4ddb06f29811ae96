"""The metrics of one member, collected in slices so that the member can work in between.

- observe/M-1: A slice takes a few ms: it looks at a bounded number of assignments or of maps in partitions
  (`map_figures`).
- observe/M-2: A label has at most `LABELLED_MAPS` values, however many maps clients create; the other maps are added
  up.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.core.member import Member
from holdfast.core.model.collections import shown_name
from holdfast.core.model.map_counts import OTHERS
from holdfast.core.model.member_status import MemoryStatus
from holdfast.core.model.views import ClusterState, Room
from holdfast.observe.health import unready_reason
from holdfast.observe.latency_histogram import LatencyHistogram, exposed_buckets
from holdfast.observe.map_figures import counting_maps
from holdfast.observe.metric_catalogue import LABELLED_MAPS, LABELLED_REASONS, METRICS

ROWS: Final = 2000
ROOMS: Final = {Room.PLENTY: 0, Room.LITTLE: 1, Room.NONE: 2}


@dataclass(slots=True)
class ProcessStats:
    version: str = ""
    lane: str = ""
    sockets: str = ""
    memory: MemoryStatus | None = None
    files: Mapping[str, Any] | None = None
    stall_s: float = 0.0
    connections: Mapping[str, int] = field(default_factory=dict)
    refusals: Mapping[str, int] = field(default_factory=dict)
    latencies: Mapping[str, LatencyHistogram] = field(default_factory=dict)
    failures: Mapping[tuple[str, str], int] = field(default_factory=dict)
    reads: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class HistogramValue:
    buckets: list[tuple[float, int]]
    count: int
    sum_s: float


Value = float | HistogramValue
Collected = dict[str, list[tuple[tuple[str, ...], Value]]]
"""By metric: label values and the value."""


def collecting(member: Member, process: ProcessStats) -> Generator[None, None, Collected]:
    found: Collected = {name: [] for name in METRICS}

    def expose(name: str, value: float, *labels: str) -> None:
        assert len(labels) == len(METRICS[name].labels), name
        found[name].append((labels, float(value)))

    _cluster(member, process, expose)
    _replication(member, expose)
    yield
    yield from _partitions(member, expose)
    yield from _maps(member, process.reads, expose)
    _process(process, expose)
    for operation, kept in sorted(process.latencies.items()):
        histogram = HistogramValue(exposed_buckets(kept.counts), kept.count, kept.sum_ns / 1e9)
        found["holdfast_operation_duration_seconds"].append(((operation,), histogram))
    yield
    return found


def _cluster(member: Member, process: ProcessStats, expose: Any) -> None:
    picture = member.picture
    expose("holdfast_build_info", 1, process.version, process.lane, process.sockets)
    expose("holdfast_ready", not unready_reason(member))
    expose("holdfast_safe", not picture.unsafe_reason())
    expose("holdfast_cluster_safe", not picture.cluster_unsafe_reason())
    for state in ClusterState:
        expose("holdfast_cluster_state", picture.cluster_state is state, state.value)
    expose("holdfast_members", len(picture.members()))
    expose("holdfast_data_members", len(picture.data_members()))
    expose("holdfast_master", picture.is_master)
    expose("holdfast_view_number", picture.view.number if picture.view else 0)
    expose("holdfast_partition_table_version", picture.table_version)
    for info in picture.members():
        room = picture.short_of_memory.get(info.uuid, Room.PLENTY)
        if room is not Room.PLENTY or info.uuid == member.me:
            expose("holdfast_memory_level", ROOMS[room], info.name)
    transactions = picture.transactions
    expose("holdfast_transactions_running", transactions.running)
    expose("holdfast_transaction_oldest_seconds", transactions.oldest_ms / 1000)
    expose("holdfast_cuts", picture.cuts().kept)
    expose("holdfast_retained_change_bytes", picture.change_streams.retained_bytes)
    for zone in picture.zones():
        for problem in ("leaderless", "moving", "under_replicated"):
            expose("holdfast_zone_partitions", getattr(zone, problem), zone.name, problem)
        expose("holdfast_zone_lag_entries", zone.lag, zone.name)


def _replication(member: Member, expose: Any) -> None:
    picture = member.picture
    migrations = picture.migrations()
    expose("holdfast_migrations_active", migrations.active)
    expose("holdfast_migrations_queued", migrations.queued)
    expose("holdfast_migrations_total", migrations.completed, "completed")
    expose("holdfast_migrations_total", migrations.failed, "failed")
    expose("holdfast_partitions_without_copy", picture.waiting_for_copies)
    expose("holdfast_sync_sent_bytes_total", picture.sent_bytes)
    replicas = picture.replicas()
    for way, count in sorted(replicas.filled.items()):
        expose("holdfast_replicas_filled_total", count, way)
    expose("holdfast_replicas_diverged_total", replicas.differed)
    expose("holdfast_replicas_repaired_total", replicas.repaired)
    backlog = picture.backlog
    expose("holdfast_replication_backlog_bytes", backlog.bytes)
    expose("holdfast_replication_batches_pending", picture.batches_waiting)
    expose("holdfast_replication_pressure", 2 if backlog.refusing else 1 if backlog.crowded else 0)


def _partitions(member: Member, expose: Any) -> Generator[None, None, None]:
    picture, me = member.picture, member.me
    rows = picture.assignments
    primaries = backups = holes = lost = 0
    for number, row in enumerate(rows, 1):
        primaries += row.owner == me
        backups += me in row.replicas[1:]
        holes += row.replicas.count(None)
        lost += bool(row.lost)
        if not number % ROWS:
            yield
    expose("holdfast_partitions", len(rows))
    expose("holdfast_partition_replicas", primaries, "primary")
    expose("holdfast_partition_replicas", backups, "backup")
    expose("holdfast_partition_replicas_missing", holes)
    expose("holdfast_partitions_lost", lost)
    serving = picture.leading
    yield
    expose("holdfast_partitions_serving", sum(copy is not None for copy in serving))


def _maps(member: Member, reads: Mapping[str, int], expose: Any) -> Generator[None, None, None]:
    count = yield from counting_maps(member)
    expose("holdfast_entries", count.primary, "primary")
    expose("holdfast_entries", count.all, "all")
    figures = {name: figure for name, figure in count.maps.items() if figure.entries}
    named, left_out = _named(figures, member.settings.maps)
    for name in named:
        shown = shown_name(name)
        expose("holdfast_map_entries", figures[name].entries, shown)
        expose("holdfast_map_bytes", figures[name].bytes, shown)
    counters = (
        ("holdfast_map_reads_total", reads),
        ("holdfast_map_evictions_total", count.evicted),
        ("holdfast_map_expirations_total", count.expired),
    )
    for metric, counts in counters:
        for name in named:
            expose(metric, counts.get(name, 0), shown_name(name))
        others = sum(counts.values()) - sum(counts.get(name, 0) for name in named)
        if others:
            expose(metric, others, OTHERS)
    expose("holdfast_maps_without_label", len(left_out))
    if left_out:
        expose("holdfast_map_entries", sum(figures[name].entries for name in left_out), OTHERS)
        expose("holdfast_map_bytes", sum(figures[name].bytes for name in left_out), OTHERS)


def _named(entries: Iterable[str], configured: Mapping[str, object]) -> tuple[Sequence[str], Sequence[str]]:
    """Maps with their own label, configured ones first, and the others (observe/M-2)."""
    ordered = sorted(entries, key=lambda name: (name not in configured, name))
    return ordered[:LABELLED_MAPS], ordered[LABELLED_MAPS:]


def _process(process: ProcessStats, expose: Any) -> None:
    if process.memory is not None:
        expose("holdfast_memory_used_bytes", process.memory.used_bytes)
        expose("holdfast_memory_limit_bytes", process.memory.limit_bytes)
    if process.files is not None:
        files = process.files
        expose("holdfast_journal_bytes", files["journal_bytes"])
        expose("holdfast_journal_segments", files["segments"])
        expose("holdfast_checkpoints_total", files["checkpoints_written"])
        expose("holdfast_checkpoint_duration_seconds", (files["last_checkpoint_ms"] or 0) / 1000)
        expose("holdfast_disk_full", bool(files["full"]))
        expose("holdfast_file_problems", len(files["problems"]))
    for door, count in sorted(process.connections.items()):
        expose("holdfast_connections", count, door)
    reasons = sorted(process.refusals.items())
    for reason, count in reasons[:LABELLED_REASONS]:
        expose("holdfast_rejections_total", count, reason)
    if len(reasons) > LABELLED_REASONS:
        expose("holdfast_rejections_total", sum(count for _, count in reasons[LABELLED_REASONS:]), OTHERS)
    for (operation, status), count in sorted(process.failures.items()):
        expose("holdfast_operation_failures_total", count, operation, status)
    expose("holdfast_loop_stall_seconds", process.stall_s)
