"""The status of one member, as plain data: what the CLI, the console and scripts show."""

from __future__ import annotations

from collections import Counter

from holdfast.core.member import Member


def _process(member: Member) -> dict[str, int] | None:
    """The rebalance under way, if any, as its last news tell."""
    news = member.table_replication.event_log.open
    if news is None:
        return None
    return {
        "planned": news.planned,
        "completed": news.completed,
        "failed": news.failed,
        "remaining": news.remaining,
        "elapsed_ms": news.elapsed_ms,
    }


def _waits(member: Member) -> bool:
    """Whether the table of a cluster that was stopped is still to be made."""
    view = member.membership.view
    return view is not None and view.recovering and not member.table.assigned


def status_of(
    member: Member, files: dict[str, object] | None = None, memory: dict[str, object] | None = None
) -> dict[str, object]:
    """What this member knows of itself and its cluster. Counts are of this moment; `safe` is this member's own view.

    files: what its journal says of itself; None when it keeps none. memory: what was measured of it, and may be taken;
    None when nobody measures.
    """
    membership = member.membership
    rows = member.table.rows
    primaries = Counter(row.owner for row in rows if row.owner)
    backups = Counter(uuid for row in rows for uuid in row.replicas[1:] if uuid)
    why_unsafe = member.why_unsafe()
    why_cluster_unsafe = member.safety.why_cluster_unsafe()
    view = membership.view
    return {
        "uuid": member.me,
        "name": membership.info.name,
        "state": membership.state,
        "leaving": membership.leaving,
        "wish": membership.intents.mine.value,
        "why_kept": member.why_kept() if membership.leaving else "",
        "refusal": membership.refusal,
        "cluster_state": membership.cluster_state.value,
        "ending": membership.ending,
        "missing": [info.name for info in view.missing] if view else [],
        "cluster": membership.identity.cluster,
        "cluster_id": view.cluster_id if view else "",
        "master": membership.master or "",
        "is_master": membership.is_master,
        "view": view.number if view else 0,
        "quorum": member.settings.cluster.quorum,
        "members": [
            {
                "uuid": info.uuid,
                "name": info.name,
                "host": info.client_host,
                "client_port": info.client_port,
                "member_port": info.port,
                "lite": info.lite,
                "group": info.group,
                "leaving": info.uuid in membership.departing,
                "master": info.uuid == membership.master,
                "primaries": primaries[info.uuid],
                "backups": backups[info.uuid],
            }
            for info in membership.members()
        ],
        "table": {"version": member.table.version, "stamp": f"{member.table.stamp:016x}"},
        "partitions": {
            "count": len(rows),
            "replicas": 1 + member.settings.replica_backups(),
            "holders": member.settings.holders(),
            "lost": member.settings.partitions.lost,
            "primaries": primaries[member.me],
            "backups": backups[member.me],
            "serving": sum(1 for copy in member.lane.leading if copy is not None),
            "holes": sum(1 for row in rows for uuid in row.replicas if uuid is None),
            "waits_for_members": member.safety.waits_for_members,
            "waiting_for_copies": len(member.migrations.lost),
        },
        "migrations": {
            "active": len(member.migrations.running),
            "queued": member.migrations.queued,
            "completed": member.migrations.completed,
            "failed": member.migrations.failed,
            "delayed_ms": member.migrations.delayed_ms,
            "completed_kept": len(member.table_replication.event_log.kept),
            "process": _process(member),
            "sent_bytes": member.source.bytes_sent,
        },
        "replicas": {
            "compared": member.repair.summaries_sent,
            "differed": member.repair.asked,
            "repaired": member.repair.repaired,
            "filled": {how.name.lower(): count for how, count in member.source.fills.items()},
            "history_bytes": member.source.bytes_history,
            "ranges_bytes": member.source.bytes_ranges,
            "full_bytes": member.source.bytes_full,
        },
        "entries": {
            "primary": sum(copy.entry_count() for copy in member.lane.leading if copy is not None),
            "all": sum(copy.entry_count() for copy in member.copies.held.values()),
        },
        "cuts": {
            "kept": len(member.copies.cuts),
            "marks": member.copies.cuts.pins,
            "changed_keys": member.copies.cuts.changed,
        },
        "files": files,
        "waits_for": [info.name for info in member.migrations.returns.missing] if _waits(member) else [],
        "full_disks": sorted(member.router.refusals.full.values()),
        "memory": memory,
        "short_of_memory": {
            info.name: room.name.lower()
            for info in membership.members()
            if (room := membership.intents.short.get(info.uuid)) is not None
        },
        "batches_waiting": member.lane.waiting,
        "backlog": {
            "bytes": member.lane.backlog.bytes,
            "crowded": member.lane.backlog.crowded,
            "refusing": member.lane.backlog.refusing,
        },
        "safe": not why_unsafe,
        "why_unsafe": why_unsafe,
        "cluster_safe": not why_cluster_unsafe,
        "why_cluster_unsafe": why_cluster_unsafe,
    }
