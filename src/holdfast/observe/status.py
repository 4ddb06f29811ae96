"""The status of one member, as plain data: what the CLI, the console and scripts show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Final, NamedTuple

from holdfast.core.member import Member
from holdfast.core.membership.next_level import possible
from holdfast.core.model.baseline import FIXED


def _process(member: Member) -> dict[str, int] | None:
    news = member.picture.open_news
    if news is None:
        return None
    return {
        "planned": news.planned,
        "completed": news.completed,
        "failed": news.failed,
        "remaining": news.remaining,
        "elapsed_ms": news.elapsed_ms,
    }


def _lost(member: Member) -> dict[str, list[int]]:
    """Lost partitions by configured map (migration/M-7)."""
    found: dict[str, list[int]] = {}
    for partition, names in member.picture.lost_partitions.items():
        for name in names:
            found.setdefault(name, []).append(partition)
    return dict(sorted(found.items()))


def _baseline(member: Member) -> dict[str, object] | None:
    """The baseline; None if every data member owns data."""
    picture = member.picture
    baseline = picture.view.baseline if picture.view is not None else None
    if baseline is None:
        return None
    here = {info.consistent_id: info.uuid for info in picture.members()}
    return {
        "members": [
            {
                "consistent_id": one.consistent_id,
                "group": one.group,
                "uuid": here.get(one.consistent_id, ""),
                "away": one.away,
            }
            for one in baseline.members
        ],
        "outside": [info.consistent_id for info in picture.outside()],
        "adjust_ms": None if baseline.adjust_ms == FIXED else baseline.adjust_ms,
        "adjusts_in_ms": picture.adjusts_in_ms,
        "changes": baseline.changes,
        "history": list(baseline.history),
    }


def _updates(member: Member) -> int:
    """Updates in the copies that this member is primary of. The sum falls when a partition moves away."""
    return sum(held.counter for copy in member.picture.leading if copy is not None for held in copy)


def _waits(member: Member) -> bool:
    """Whether a restarted cluster has not recovered its partition table yet."""
    view = member.picture.view
    return view is not None and view.recovering and not member.picture.assigned


_ReplicaCounts = tuple[Counter[str], Counter[str]]
"""Primaries and backups of each member, by the table."""

COUNTED: Final = 2000
"""Maps in partitions per slice."""


class EntriesHeld(NamedTuple):
    primary: int
    """In the partitions that it serves."""
    every: int
    """In all its copies."""


def counting(member: Member) -> Generator[None, None, EntriesHeld]:
    """Yields between slices of a few ms."""
    primary = every = looked = 0
    leading = {copy.partition for copy in member.picture.leading if copy is not None}
    for partition, copy in list(member.picture.held.items()):
        count = copy.entry_count()
        every += count
        if partition in leading:
            primary += count
        looked += len(copy.maps)
        if looked >= COUNTED:
            looked = 0
            yield
    return EntriesHeld(primary, every)


def _held(member: Member) -> EntriesHeld:
    return EntriesHeld(
        sum(copy.entry_count() for copy in member.picture.leading if copy is not None),
        sum(copy.entry_count() for copy in member.picture.held.values()),
    )


def status_of(
    member: Member,
    files: dict[str, object] | None = None,
    memory: dict[str, object] | None = None,
    entries: EntriesHeld | None = None,
    *,
    uptime_s: float = 0.0,
) -> dict[str, object]:
    """The member's view of itself and its cluster. `safe` is its own view; counts are of this moment.

    files: state of the journal; None without persistence. memory: use and limit; None if they are not measured.
    entries: a count made before; None counts now. uptime_s: seconds since the start.
    """
    picture = member.picture
    entries = entries or _held(member)
    counts = _replica_counts(member)
    return {
        "uuid": member.me,
        "name": picture.info.name,
        "uptime_s": round(uptime_s, 3),
        **_of_membership(member, counts),
        "version": picture.info.version,
        "level": _level(member),
        "topology": dict(zip(("major", "minor"), picture.topology, strict=True)),
        "transactions": picture.transactions,
        "baseline": _baseline(member),
        "table": {"version": picture.table_version, "stamp": f"{picture.table_stamp:016x}"},
        "partitions": _partitions(member, counts),
        "map_settings": picture.maps.listed(),
        "migrations": {
            **picture.migrations(),
            "process": _process(member),
            "sent_bytes": picture.sent_bytes,
        },
        "replicas": picture.replicas(),
        "entries": {
            "primary": entries.primary,
            "all": entries.every,
        },
        "updates": _updates(member),
        "metastore": picture.metastore(),
        "zones": picture.zones(),
        "cuts": picture.cuts(),
        "files": files,
        "awaited_members": picture.awaited() if _waits(member) else [],
        "full_disks": sorted(picture.full_disks.values()),
        "memory": memory,
        "low_memory": {
            info.name: room.name.lower()
            for info in picture.members()
            if (room := picture.short_of_memory.get(info.uuid)) is not None
        },
        "pending_batches": picture.batches_waiting,
        "backlog": {
            "bytes": picture.backlog.bytes,
            "throttled": picture.backlog.crowded,
            "rejecting": picture.backlog.refusing,
        },
        **_safety(member),
    }


def _of_membership(member: Member, counts: _ReplicaCounts) -> dict[str, object]:
    """The state of the member and its cluster, and who belongs to it."""
    picture = member.picture
    view = picture.view
    return {
        "state": picture.state,
        "leaving": picture.leaving,
        "desired_state": picture.intent.value,
        "leave_blocker": picture.leave_blocker() if picture.leaving else "",
        "join_refusal": picture.refusal,
        "cluster_state": picture.cluster_state.value,
        "shutting_down": picture.ending,
        "missing_members": [info.name for info in view.missing] if view else [],
        "cluster": picture.identity.cluster,
        "cluster_id": view.cluster_id if view else "",
        "master": picture.master or "",
        "is_master": picture.is_master,
        "view": view.number if view else 0,
        "quorum": member.settings.cluster.quorum,
        "members": _members(member, counts),
    }


def _members(member: Member, counts: _ReplicaCounts) -> list[dict[str, object]]:
    picture = member.picture
    outside = {info.uuid for info in picture.outside()}
    primaries, backups = counts
    return [
        {
            "uuid": info.uuid,
            "name": info.name,
            "host": info.client_host,
            "client_port": info.client_port,
            "member_port": info.port,
            "lite": info.lite,
            "group": info.group,
            "consistent_id": info.consistent_id,
            "outside": info.uuid in outside,
            "leaving": info.uuid in picture.departing,
            "master": info.uuid == picture.master,
            "primaries": primaries[info.uuid],
            "backups": backups[info.uuid],
            "version": info.version,
            "levels": [info.levels.lowest, info.levels.highest],
        }
        for info in picture.members()
    ]


def _replica_counts(member: Member) -> _ReplicaCounts:
    rows = member.picture.assignments
    primaries = Counter[str](row.owner for row in rows if row.owner)
    return primaries, Counter[str](uuid for row in rows for uuid in row.replicas[1:] if uuid)


def _level(member: Member) -> dict[str, object]:
    picture = member.picture
    view = picture.view
    return {
        "in_force": picture.level,
        "lowest": picture.info.levels.lowest,
        "highest": picture.info.levels.highest,
        "possible": possible(view) if view else 0,
    }


def _partitions(member: Member, counts: _ReplicaCounts) -> dict[str, object]:
    picture, settings = member.picture, member.settings
    rows = picture.assignments
    primaries, backups = counts
    return {
        "count": len(rows),
        "replicas": 1 + settings.replica_backups(),
        "holders": settings.holders(),
        "group_by": settings.partitions.group_by,
        "placement": settings.partitions.placement,
        "lost": settings.partitions.lost,
        "primaries": primaries[member.me],
        "backups": backups[member.me],
        "serving": sum(1 for copy in picture.leading if copy is not None),
        "missing_replicas": sum(1 for row in rows for uuid in row.replicas if uuid is None),
        "awaited_members": picture.waits_for_members,
        "without_copy": picture.waiting_for_copies,
        "lost_by_map": _lost(member),
    }


def _safety(member: Member) -> dict[str, object]:
    unsafe_reason = member.picture.unsafe_reason()
    cluster_unsafe_reason = member.picture.cluster_unsafe_reason()
    return {
        "safe": not unsafe_reason,
        "unsafe_reason": unsafe_reason,
        "cluster_safe": not cluster_unsafe_reason,
        "cluster_unsafe_reason": cluster_unsafe_reason,
    }
