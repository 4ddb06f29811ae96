"""Every metric that a member tells: its name, kind, labels and meaning. Names end in their unit, and follow Prometheus.

Nothing is told that is not here. `docs/operating.md`, the rules and the dashboards in `ops/` are compared with this by
tests.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple


class Metric(NamedTuple):
    """One of them."""

    kind: Literal["gauge", "counter", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()


def _gauge(meaning: str, *labels: str) -> Metric:
    return Metric("gauge", meaning, labels)


def _counter(meaning: str, *labels: str) -> Metric:
    return Metric("counter", meaning, labels)


METRICS: Final[dict[str, Metric]] = {
    "holdfast_build_info": _gauge(
        "1; the version of Holdfast, and whether data lane and sockets are compiled",
        "version",
        "lane",
        "sockets",
    ),
    "holdfast_ready": _gauge(
        "1: the member is in the cluster, knows the partition table, and does not leave"
    ),
    "holdfast_safe": _gauge("1: as far as this member sees, no crash could cost anything now"),
    "holdfast_cluster_safe": _gauge("1: all members say so"),
    "holdfast_cluster_state": _gauge("1 for the state that the operator has put the cluster into", "state"),
    "holdfast_members": _gauge("Members of the cluster, as this one knows it"),
    "holdfast_data_members": _gauge("Those of them that own data"),
    "holdfast_master": _gauge("1: this member is the master"),
    "holdfast_view_number": _gauge("Number of the view; it grows whenever members come or go"),
    "holdfast_partition_table_version": _gauge("Version of the partition table; it grows with every change"),
    "holdfast_partitions": _gauge("Partitions of the cluster"),
    "holdfast_partition_replicas": _gauge("Replicas that this member holds by the table", "role"),
    "holdfast_partitions_serving": _gauge("Partitions that this member serves as primary"),
    "holdfast_partition_holes": _gauge("Replicas that the table wants and nobody holds, of all partitions"),
    "holdfast_partitions_lost": _gauge("Partitions that are lost to some map, until an operator resets them"),
    "holdfast_partitions_waiting": _gauge("Partitions of which all copies are gone, as the master knows"),
    "holdfast_entries": _gauge("Entries in the copies that this member holds", "role"),
    "holdfast_map_entries": _gauge(
        "Entries of a map in the partitions that this member serves, or leads in a zone", "map"
    ),
    "holdfast_map_bytes": _gauge("Their keys and values in bytes, estimated from a sample", "map"),
    "holdfast_map_reads_total": _counter("How often entries of a map were asked for at this member", "map"),
    "holdfast_maps_left_out": _gauge(
        "Maps that have no name of their own here: together they are `__others`"
    ),
    "holdfast_memory_used_bytes": _gauge("Memory that this member has taken, as it counts against its limit"),
    "holdfast_memory_limit_bytes": _gauge("Memory that it may take"),
    "holdfast_memory_short": _gauge("0: there is room; 1: it is nearly full; 2: it is full", "member"),
    "holdfast_migrations_active": _gauge("Migrations under way, as the master knows"),
    "holdfast_migrations_queued": _gauge("Migrations planned and not begun, as the master knows"),
    "holdfast_migrations_total": _counter("Migrations that have ended, as the master knows", "result"),
    "holdfast_sync_sent_bytes_total": _counter("Bytes of content that this member has sent to fill replicas"),
    "holdfast_replicas_filled_total": _counter(
        "Replicas that this member has filled, by the way it did so", "way"
    ),
    "holdfast_replicas_differed_total": _counter("Replicas that were found to differ from their primary"),
    "holdfast_replicas_repaired_total": _counter("Those of them that were mended"),
    "holdfast_replication_backlog_bytes": _gauge("Bytes of updates that wait for backups"),
    "holdfast_replication_batches_waiting": _gauge("Batches of writes that wait for backups"),
    "holdfast_replication_pressure": _gauge("0: none; 1: clients are not read; 2: writes are refused"),
    "holdfast_journal_bytes": _gauge("Bytes of the journal's files"),
    "holdfast_journal_segments": _gauge("Files of the journal"),
    "holdfast_checkpoints_total": _counter("Checkpoints that were written"),
    "holdfast_checkpoint_duration_seconds": _gauge("How long the last checkpoint took"),
    "holdfast_disk_full": _gauge("1: the disk of the journal is full"),
    "holdfast_files_damaged": _gauge(
        "Places in the files of which it is not certain that all of it is there"
    ),
    "holdfast_connections": _gauge("Connections that are open", "door"),
    "holdfast_refusals_total": _counter("What was refused or closed at the doors, by reason", "reason"),
    "holdfast_operation_duration_seconds": Metric(
        "histogram", "From reading a request to its answer's leaving, by operation", ("operation",)
    ),
    "holdfast_operation_failures_total": _counter(
        "Operations that were not carried out, or may not have been", "operation", "status"
    ),
    "holdfast_transactions_running": _gauge("Transactions that run at this member"),
    "holdfast_transaction_oldest_seconds": _gauge("How long the oldest of them has run"),
    "holdfast_cuts_kept": _gauge("Cuts that are kept for reading"),
    "holdfast_zone_partitions": _gauge(
        "Partitions of a zone that are not as they should be", "zone", "trouble"
    ),
    "holdfast_zone_lag_entries": _gauge(
        "Entries that the follower lacks that is furthest behind a leader here", "zone"
    ),
    "holdfast_loop_stall_seconds": _gauge("The longest turn of the event loop in the last minute"),
}
"""By name. Besides these there are the `process_...` metrics of the Prometheus client."""

MAPS_TOLD: Final = 100
"""So many maps have a name of their own: those that are configured first, then by name."""
OTHERS: Final = "__others"
"""What all further maps are called together. No client can call one so."""
REASONS_TOLD: Final = 100
"""The same of reasons."""
