"""The status of one member (`core.model.member_status`), made from its machines and its process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.config.schema import DEFAULT_MAP
from holdfast.core.member import Member
from holdfast.core.membership.next_level import possible
from holdfast.core.model.baseline import FIXED
from holdfast.core.model.member_status import (
    BacklogStatus,
    BaselineMemberStatus,
    BaselineStatus,
    EntryCounts,
    FeatureLevel,
    IncompleteCopies,
    ListedMember,
    MemberStatus,
    PartitionCounts,
    ProcessStatus,
    TableVersion,
    Topology,
)
from holdfast.core.store.partition_copy import PartitionCopy

__all__ = ["Counted", "MemberStatus", "ProcessStatus", "counted", "counting", "status_of"]

COUNTED: Final = 2000

NO_PROCESS: Final = ProcessStatus()
_ReplicaCounts = tuple[Counter[str], Counter[str]]


class Counted(NamedTuple):
    entries: EntryCounts
    maps: set[str]
    gaps: int = 0
    """See `IncompleteCopies`."""


def counting(member: Member) -> Generator[None, None, Counted]:
    """Count the entries of a member, and its maps with gaps; yields between slices of a few ms."""
    primary = every = looked = gaps = 0
    maps: set[str] = set()
    leading = {copy.partition for copy in member.picture.leading if copy is not None}
    for partition, copy in list(member.picture.held.items()):
        count = copy.entry_count()
        every += count
        if partition in leading:
            primary += count
        maps.update(name for name, held in copy.maps.items() if held.state.entries)
        gaps += _gaps(copy)
        looked += len(copy.maps)
        if looked >= COUNTED:
            looked = 0
            yield
    for staged in list(member.picture.filling.values()):
        gaps += _gaps(staged.copy)
        looked += len(staged.copy.maps)
        if looked >= COUNTED:
            looked = 0
            yield
    for copy, leads in list(member.picture.copies.in_zones()):
        count = copy.entry_count()
        every += count
        primary += count if leads else 0
        maps.update(name for name, held in copy.maps.items() if held.state.entries)
        looked += len(copy.maps)
        if looked >= COUNTED:
            looked = 0
            yield
    return Counted(EntryCounts(primary, every), maps, gaps)


def _gaps(copy: PartitionCopy) -> int:
    return sum(held.updates.lwm < held.updates.hwm for held in copy.maps.values())


def counted(member: Member) -> Counted:
    work = counting(member)
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: Counted = end.value
            return found


def status_of(member: Member, count: Counted, process: ProcessStatus = NO_PROCESS) -> MemberStatus:
    picture, settings = member.picture, member.settings
    configured = settings.maps.keys() - {DEFAULT_MAP}
    maps = count.maps | {name for name in configured if not picture.copies.lacks_zone(name)}
    counts = _replica_counts(member)
    return MemberStatus(
        **msgspec.structs.asdict(process),
        uuid=member.me,
        name=picture.info.name,
        **_of_membership(member, counts),
        version=picture.info.version,
        topology=Topology(*picture.topology),
        transactions=picture.transactions,
        table=TableVersion(picture.table_version, f"{picture.table_stamp:016x}"),
        partitions=_partitions(member, counts),
        maps=sorted(maps),
        zone_maps={
            name: zone for name in sorted(maps | configured) if (zone := settings.map(name).raft_zone)
        },
        map_settings=picture.maps.listed(),
        migrations=picture.migrations(),
        replicas=picture.replicas(),
        entries=count.entries,
        incomplete=IncompleteCopies(len(picture.filling), count.gaps),
        updates=sum(held.counter for copy in picture.leading if copy is not None for held in copy),
        metastore=picture.metastore(),
        zones=picture.zones(),
        cuts=picture.cuts(),
        full_disks=sorted(picture.full_disks.values()),
        low_memory={
            info.name: room.name.lower()
            for info in picture.members()
            if (room := picture.short_of_memory.get(info.uuid)) is not None
        },
        retained_change_bytes=picture.change_streams.retained_bytes,
        pending_batches=picture.batches_waiting,
        backlog=BacklogStatus(picture.backlog.bytes, picture.backlog.crowded, picture.backlog.refusing),
        safe=not picture.unsafe_reason(),
        unsafe_reason=picture.unsafe_reason(),
        cluster_safe=not picture.cluster_unsafe_reason(),
        cluster_unsafe_reason=picture.cluster_unsafe_reason(),
    )


def _of_membership(member: Member, counts: _ReplicaCounts) -> dict[str, Any]:
    picture, levels = member.picture, member.picture.info.levels
    view = picture.view
    recovers = view is not None and view.recovering and not picture.assigned
    return {
        "state": picture.state,
        "leaving": picture.leaving,
        "desired_state": picture.intent.value,
        "leave_blocker": picture.leave_blocker() if picture.leaving else "",
        "join_refusal": picture.refusal,
        "cluster_state": picture.cluster_state.value,
        "shutting_down": picture.ending,
        "missing_members": [info.name for info in view.missing] if view else [],
        "awaited_members": picture.awaited() if recovers else [],
        "cluster": picture.identity.cluster,
        "cluster_id": view.cluster_id if view else "",
        "master": picture.master or "",
        "is_master": picture.is_master,
        "view": view.number if view else 0,
        "quorum": member.settings.cluster.quorum,
        "members": _members(member, counts),
        "level": FeatureLevel(picture.level, levels.lowest, levels.highest, possible(view) if view else 0),
        "baseline": _baseline(member),
    }


def _members(member: Member, counts: _ReplicaCounts) -> list[ListedMember]:
    picture = member.picture
    outside = {info.uuid for info in picture.outside()}
    primaries, backups = counts
    return [
        ListedMember(
            uuid=info.uuid,
            name=info.name,
            host=info.client_host,
            client_port=info.client_port,
            member_port=info.port,
            lite=info.lite,
            group=info.group,
            consistent_id=info.consistent_id,
            outside=info.uuid in outside,
            leaving=info.uuid in picture.departing,
            master=info.uuid == picture.master,
            primaries=primaries[info.uuid],
            backups=backups[info.uuid],
            version=info.version,
            levels=[info.levels.lowest, info.levels.highest],
        )
        for info in picture.members()
    ]


def _replica_counts(member: Member) -> _ReplicaCounts:
    rows = member.picture.assignments
    primaries = Counter[str](row.owner for row in rows if row.owner)
    return primaries, Counter[str](uuid for row in rows for uuid in row.replicas[1:] if uuid)


def _baseline(member: Member) -> BaselineStatus | None:
    picture = member.picture
    baseline = picture.view.baseline if picture.view is not None else None
    if baseline is None:
        return None
    here = {info.consistent_id: info.uuid for info in picture.members()}
    return BaselineStatus(
        [
            BaselineMemberStatus(one.consistent_id, one.group, here.get(one.consistent_id, ""), one.away)
            for one in baseline.members
        ],
        [info.consistent_id for info in picture.outside()],
        None if baseline.adjust_ms == FIXED else baseline.adjust_ms,
        picture.adjusts_in_ms,
        baseline.changes,
        list(baseline.history),
    )


def _partitions(member: Member, counts: _ReplicaCounts) -> PartitionCounts:
    picture, settings = member.picture, member.settings
    rows = picture.assignments
    primaries, backups = counts
    lost: dict[str, list[int]] = {}
    for partition, names in picture.lost_partitions.items():
        for name in names:
            lost.setdefault(name, []).append(partition)
    return PartitionCounts(
        count=len(rows),
        replicas=1 + settings.replica_backups(),
        holders=settings.holders(),
        group_by=settings.partitions.group_by,
        placement=settings.partitions.placement,
        lost=settings.partitions.lost,
        primaries=primaries[member.me],
        backups=backups[member.me],
        serving=sum(1 for copy in picture.leading if copy is not None),
        missing_replicas=sum(1 for row in rows for uuid in row.replicas if uuid is None),
        awaited_members=picture.waits_for_members,
        without_copy=picture.waiting_for_copies,
        lost_by_map=dict(sorted(lost.items())),
    )
