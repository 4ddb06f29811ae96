"""Every metric of a member: name, kind, labels and meaning. Names end in their unit, as Prometheus recommends.

A member exposes no other metrics. Tests compare this catalogue with the table in `docs/operating.md`, and with the
rules and dashboards in `ops/`.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple


class Metric(NamedTuple):
    kind: Literal["gauge", "counter", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()


def _gauge(meaning: str, *labels: str) -> Metric:
    return Metric("gauge", meaning, labels)


def _counter(meaning: str, *labels: str) -> Metric:
    return Metric("counter", meaning, labels)


METRICS: Final[dict[str, Metric]] = {
    "holdfast_build_info": _gauge(
        "Always 1; labels: version of Holdfast, implementation of the data lane and of client I/O",
        "version",
        "lane",
        "sockets",
    ),
    "holdfast_ready": _gauge("1 if this member has joined, knows the partition table, and is not leaving"),
    "holdfast_safe": _gauge("1 if, as far as this member knows, a crash would lose no data now"),
    "holdfast_cluster_safe": _gauge("1 if every member reports holdfast_safe 1"),
    "holdfast_cluster_state": _gauge("1 for the present state of the cluster, 0 for the others", "state"),
    "holdfast_members": _gauge("Members of the cluster, in this member's view"),
    "holdfast_data_members": _gauge("Data members of the cluster, in this member's view"),
    "holdfast_master": _gauge("1 if this member is the master"),
    "holdfast_view_number": _gauge("Number of the view, which increases when members join or leave"),
    "holdfast_partition_table_version": _gauge(
        "Version of the partition table, which increases with every change"
    ),
    "holdfast_partitions": _gauge("Partitions of the cluster"),
    "holdfast_partition_replicas": _gauge("Replicas of this member in the partition table, by role", "role"),
    "holdfast_partitions_serving": _gauge("Partitions that this member serves as primary"),
    "holdfast_partition_replicas_missing": _gauge(
        "Missing replicas of all partitions: in the layout, and held by no member"
    ),
    "holdfast_partitions_lost": _gauge(
        "Partitions that at least one map has lost, until the operator resets them"
    ),
    "holdfast_partitions_without_copy": _gauge("Partitions without any copy, counted by the master"),
    "holdfast_entries": _gauge("Entries in the copies of this member, by role", "role"),
    "holdfast_map_entries": _gauge(
        "Entries of a map in the partitions that this member serves as primary or zone leader", "map"
    ),
    "holdfast_map_bytes": _gauge(
        "Size of the keys and values of a map in these partitions, estimated from a sample", "map"
    ),
    "holdfast_map_reads_total": _counter("Reads of entries of a map at this member", "map"),
    "holdfast_map_evictions_total": _counter(
        "Entries that this member has evicted because their map exceeded max_size or max_bytes", "map"
    ),
    "holdfast_map_expirations_total": _counter("Expired entries that this member has removed", "map"),
    "holdfast_maps_without_label": _gauge(
        "Maps without a label of their own, which are counted together as `__others`"
    ),
    "holdfast_memory_used_bytes": _gauge("Memory in use, as counted against the limit"),
    "holdfast_memory_limit_bytes": _gauge("Memory limit of this member"),
    "holdfast_memory_level": _gauge("Memory level of each member: 0 normal, 1 nearly full, 2 full", "member"),
    "holdfast_migrations_active": _gauge("Running migrations, counted by the master"),
    "holdfast_migrations_queued": _gauge("Planned migrations that have not started, counted by the master"),
    "holdfast_migrations_total": _counter("Finished migrations by result, counted by the master", "result"),
    "holdfast_sync_sent_bytes_total": _counter("Bytes of entries that this member has sent to fill replicas"),
    "holdfast_replicas_filled_total": _counter(
        "Replicas that this member has filled, by method: same, history, ranges or full", "method"
    ),
    "holdfast_replicas_diverged_total": _counter("Replicas found to differ from their primary"),
    "holdfast_replicas_repaired_total": _counter("Replicas repaired"),
    "holdfast_replication_backlog_bytes": _gauge("Size of updates that backups have not acknowledged"),
    "holdfast_replication_batches_pending": _gauge("Batches of writes that backups have not acknowledged"),
    "holdfast_replication_pressure": _gauge(
        "Backpressure: 0 none, 1 not reading from clients, 2 rejecting writes"
    ),
    "holdfast_journal_bytes": _gauge("Size of the journal"),
    "holdfast_journal_segments": _gauge("Segments of the journal"),
    "holdfast_checkpoints_total": _counter("Checkpoints written"),
    "holdfast_checkpoint_duration_seconds": _gauge("Duration of the last checkpoint"),
    "holdfast_disk_full": _gauge("1 if the disk of the journal is full"),
    "holdfast_file_problems": _gauge("Places in the files that may be incomplete"),
    "holdfast_connections": _gauge("Open connections, by port", "port"),
    "holdfast_rejections_total": _counter("Rejected requests and closed connections, by reason", "reason"),
    "holdfast_operation_duration_seconds": Metric(
        "histogram", "Time from reading a request to sending its response, by operation", ("operation",)
    ),
    "holdfast_operation_failures_total": _counter(
        "Operations that failed, or whose outcome is unknown", "operation", "status"
    ),
    "holdfast_transactions_running": _gauge("Running transactions that this member coordinates"),
    "holdfast_transaction_oldest_seconds": _gauge(
        "Age of the oldest running transaction that this member coordinates"
    ),
    "holdfast_cuts": _gauge("Consistent cuts that are kept for reading"),
    "holdfast_retained_change_bytes": _gauge(
        "Memory of changes from before moves of maps, for readers of change streams"
    ),
    "holdfast_zone_partitions": _gauge("Partitions of a zone with a problem, by problem", "zone", "problem"),
    "holdfast_zone_lag_entries": _gauge(
        "Largest number of log entries that a follower lacks of a leader on this member", "zone"
    ),
    "holdfast_loop_stall_seconds": _gauge("Longest event-loop turn in the last minute"),
}
"""By name. The Prometheus client adds its `process_...` metrics."""

LABELLED_MAPS: Final = 100
"""Maps with their own label value: configured maps first, then by name."""
LABELLED_REASONS: Final = 100
