"""Status of zones as far as this member knows; for display, not for decisions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet

from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.metastore.keyspace import Keyspace
from holdfast.core.metastore.metastore import Metastore
from holdfast.core.model.ids import GroupNumber, group_of
from holdfast.core.model.member_status import SettingValue, ZoneStatus
from holdfast.core.model.zone_answers import NEVER, AssignmentsTold, LeaderTold, ZonePartitionTold
from holdfast.core.multiraft.group_host import GroupHost, node_of
from holdfast.core.raft.configuration import NodeId
from holdfast.core.raft_partition.leader_routing import LeaderRouting
from holdfast.core.zones import descriptors
from holdfast.core.zones.assignments import Assignments, PartitionKeys
from holdfast.core.zones.descriptors import ClusterTopology, ZoneDescriptor, ZoneSettings
from holdfast.core.zones.zone_keys import (
    TOPOLOGY_KEY,
    ZONE_PREFIX,
    KeysRead,
    part_of,
    part_prefix,
    partition_keys,
    zone_of,
)

REPLACED_AFTER_S = 60
"""Suggested `scale_down_s`."""


class ZoneView:
    def __init__(
        self, membership: MembershipStatus, metastore: Metastore, groups: GroupHost, routing: LeaderRouting
    ) -> None:
        self._membership = membership
        self._metastore = metastore
        self._groups = groups
        self._routing = routing
        self._seen: tuple[Keyspace, int] | None = None
        self._zones: list[ZoneDescriptor] = []
        self._partitions: dict[int, list[PartitionKeys]] = {}

    def zones(self) -> Sequence[ZoneDescriptor]:
        state = self._metastore.keyspace
        if self._seen is None or self._seen[0] is not state or self._seen[1] != state.revision:
            self._seen = (state, state.revision)
            self._partitions = {}
            self._zones = []
            for entry in state.scan(ZONE_PREFIX):
                named = zone_of(entry.key)
                if named is not None and named[1] == "descriptor":
                    found = KeysRead([entry], 0).value(entry.key, ZoneDescriptor)
                    self._zones += [found] if found is not None else []
        return self._zones

    def partitions(self, zone: ZoneDescriptor) -> Sequence[PartitionKeys]:
        self.zones()
        known = self._partitions.get(zone.id)
        if known is None:
            entries = self._metastore.scan(part_prefix(zone.id))
            named = {found[1] for entry in entries if (found := part_of(entry.key)) is not None}
            read = KeysRead(entries, 0)
            count = zone.settings.partitions
            known = [
                partition_keys(read, zone.id, partition) if partition in named else PartitionKeys()
                for partition in range(count)
            ]
            self._partitions[zone.id] = known
        return known

    def leader(self, zone: int, partition: int) -> tuple[int, NodeId] | None:
        """The term and the node of the leader; None: it is unknown, or not a present member."""
        number = group_of(zone, partition)
        known = self._routing.leader(number)
        info = self._membership.member(known[1]) if known is not None else None
        if known is None or info is None:
            return None
        hosted = self._groups.hosted.get(number)
        if hosted is not None and not hosted.halted and self._groups.lead(number) is None:
            return None  # Its replica here has no leader.
        return known[0], node_of(info)

    def leaders(self) -> list[LeaderTold]:
        found: list[LeaderTold] = []
        for zone in self.zones():
            for partition in range(zone.settings.partitions):
                leader = self.leader(zone.id, partition)
                if leader is not None:
                    found.append(LeaderTold(zone.id, partition, leader[1], leader[0]))
        return found

    def summary(self, zone: ZoneDescriptor) -> ZoneStatus:
        names = self.names()
        parts = self.partitions(zone)
        return ZoneStatus(
            zone.id,
            zone.settings.name,
            readable_settings(zone.settings),
            leaderless=self._leaderless(zone, len(parts)),
            moving=_moving(parts),
            under_replicated=_lacking(parts, names.keys()),
            lag=max(
                map(self._lag, (group_of(zone.id, partition) for partition in range(len(parts)))), default=0
            ),
            eligible_members=sorted(
                names[node] for node in zone.settings.taken(self._topology()) & names.keys()
            ),
        )

    def _topology(self) -> ClusterTopology:
        read = KeysRead([self._metastore.keyspace.get(TOPOLOGY_KEY)], 0)
        return read.value(TOPOLOGY_KEY, ClusterTopology) or ClusterTopology()

    def _lag(self, number: GroupNumber) -> int:
        """Entries that the slowest follower lacks, where this member leads; else 0."""
        hosted = self._groups.hosted.get(number)
        leading = hosted.group.leading if hosted is not None and not hosted.halted else None
        if hosted is None or leading is None:
            return 0
        return hosted.group.log.last - min(progress.match for progress in leading.progress.values())

    def partition_summaries(self, zone: ZoneDescriptor) -> list[ZonePartitionTold]:
        found: list[ZonePartitionTold] = []
        for partition, keys in enumerate(self.partitions(zone)):
            leader = self.leader(zone.id, partition)
            found.append(
                ZonePartitionTold(
                    partition,
                    leader[1] if leader is not None else None,
                    leader[0] if leader is not None else 0,
                    None if keys.stable is None else _assignment_summary(keys.stable),
                    [_assignment_summary(one) for one in keys.pending],
                    None if keys.planned is None else _assignment_summary(keys.planned),
                )
            )
        return found

    def names(self) -> dict[str, str]:
        return {node_of(info): info.name for info in self._membership.members()}

    def unsafe_reason(self) -> str:
        """The reason why a crash could lose data or availability in a zone now; empty: none."""
        here = self.names().keys()
        for zone in self.zones():
            parts = self.partitions(zone)
            for count, what in (
                (self._leaderless(zone, len(parts)), "no leader"),
                (_moving(parts), "moving replicas"),
                (_lacking(parts, here), "a replica on an absent member"),
            ):
                if count:
                    name = zone.settings.name
                    advice = self._advice(zone, parts, here)
                    return (
                        f"zone {name}: {count} of {zone.settings.partitions} partitions have {what}{advice}"
                    )
        return ""

    def recovery_advice(self) -> str:
        """Advice for the first zone that has lost a majority; empty: none has, as far as is known here."""
        for zone in self.zones():
            lost = self._lost(zone, self.partitions(zone), self.names().keys())
            if lost:
                return f"zone {zone.settings.name}: {lost} partitions have no leader{_reset_advice(zone)}"
        return ""

    def _advice(self, zone: ZoneDescriptor, parts: Sequence[PartitionKeys], here: AbstractSet[NodeId]) -> str:
        """Advice about replicas on absent members; empty: nothing to do."""
        if self._lost(zone, parts, here):
            return _reset_advice(zone)
        named = [one for keys in parts for one in (keys.stable, *keys.pending) if one is not None]
        if all(one.nodes <= here for one in named):
            return ""
        wait_s = zone.settings.scale_down_s
        if wait_s < descriptors.NEVER:
            return (
                f"; other members replace it after {wait_s} s (scale_down_s), and a new member with its name and "
                "address at once"
            )
        return (
            ". Start it again at the same address, or let other members replace it: "
            f"holdfast zone alter {zone.settings.name} --scale-down-s {REPLACED_AFTER_S}"
        )

    def _lost(self, zone: ZoneDescriptor, parts: Sequence[PartitionKeys], here: AbstractSet[NodeId]) -> int:
        """The number of leaderless partitions whose majority is absent or damaged."""
        return sum(
            self.leader(zone.id, partition) is None and _lacks_majority(keys, here)
            for partition, keys in enumerate(parts)
        )

    def _leaderless(self, zone: ZoneDescriptor, count: int) -> int:
        return sum(self.leader(zone.id, partition) is None for partition in range(count))


def _lacks_majority(keys: PartitionKeys, here: AbstractSet[NodeId]) -> bool:
    """Whether too few of the group's voters, or of those that it is joining, are present and undamaged to decide."""
    whole = here - keys.switch_reduce.nodes if keys.switch_reduce is not None else here
    decide = [keys.stable] if keys.stable is not None else []
    if keys.pending and (keys.lock is not None or keys.pending[0].force):
        decide.append(keys.pending[0])
    return any(2 * len(whole & set(one.peers)) <= len(one.peers) for one in decide)


def _reset_advice(zone: ZoneDescriptor) -> str:
    name = zone.settings.name
    return (
        f", because most of their replicas are absent or damaged (holdfast zone show {name}). Start their members "
        "again with their files. If these are gone for good, continue with the remaining replicas and lose the rest: "
        f"holdfast zone reset {name}"
    )


def _moving(parts: Sequence[PartitionKeys]) -> int:
    return sum(bool(keys.pending) for keys in parts)


def _lacking(parts: Sequence[PartitionKeys], here: Collection[NodeId]) -> int:
    return sum(keys.stable is not None and not keys.stable.nodes.issubset(here) for keys in parts)


def readable_settings(settings: ZoneSettings) -> dict[str, SettingValue]:
    """The settings of a zone without its name, for display."""
    found: dict[str, SettingValue] = {
        "partitions": settings.partitions,
        "replicas": settings.replicas,
        "quorum": settings.voters_needed,
        "filter": ", ".join(
            f"{name}={'|'.join(allowed)}" for name, allowed in sorted(settings.filter.items())
        ),
        "consistency": settings.consistency.value,
        "adjustment": settings.adjustment.value,
        "placement": settings.placement.value,
    }
    for field in ("scale_up_s", "scale_down_s", "reset_after_s"):
        seconds: int = getattr(settings, field)
        found[field] = NEVER if seconds == descriptors.NEVER else seconds
    return found


def _assignment_summary(one: Assignments) -> AssignmentsTold:
    return AssignmentsTold(list(one.peers), list(one.learners), one.force, one.from_reset)
