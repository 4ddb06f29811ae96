"""Events of zones for operators, derived from metastore keys, revision by revision, and from reports of members about
leaders and failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum, unique

import msgspec

from holdfast.core.model.member_status import SettingValue
from holdfast.core.model.metastore_answers import KeyAnswer
from holdfast.core.model.zone_answers import LeaderTold, TroubleTold
from holdfast.core.zones import descriptors
from holdfast.core.zones.assignments import Assignments, PartitionKeys
from holdfast.core.zones.descriptors import ClusterTopology, DataNodesEntry, ZoneDescriptor, ZoneSettings
from holdfast.core.zones.work_queue import REPORT_AFTER
from holdfast.core.zones.zone_keys import (
    PART_FIELDS,
    TOPOLOGY_KEY,
    UnknownFormat,
    decoded,
    part_of,
    zone_of,
)
from holdfast.core.zones.zone_resets import RecoveryRequest


@unique
class ZoneEventKind(StrEnum):
    CREATED = "zone created"
    ALTERED = "zone altered"
    RENAMED = "zone renamed"
    DROPPED = "zone dropped"
    DATA_NODES = "data nodes changed"
    RESET_ASKED = "reset asked"
    """An operator has requested that partitions without a majority continue with the remaining replicas."""
    RESET = "partition reset"
    """A partition did so: its group begins a new generation."""
    PLACED = "partition placed"
    MOVE_BEGUN = "move begun"
    MOVE_CHANGED = "move changed"
    MOVE_GIVEN_UP = "move given up"
    ASSIGNED = "partition moved"
    LEADER = "leader changed"
    FAILING = "move failing"
    """A member has failed ten (more) times in a row to carry out a change of a partition; it keeps trying."""


class ZoneEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Event of a zone, or of one of its partitions."""

    kind: ZoneEventKind
    zone: str
    partition: int | None = None
    before: list[str] = []
    """Names of members that had the role before; learners are marked as such."""
    after: list[str] = []
    by_force: bool = False
    term: int = 0
    changed: dict[str, list[SettingValue]] = {}
    partitions: list[int] = []
    was: str = ""
    attempts: int = 0
    why: str = ""
    revision: int = 0
    """Revision of the metastore; 0: the event is not stored there."""
    time_ms: int = 0
    """Unix time of the metastore; 0: unknown."""


class ZoneEvents:
    def __init__(self) -> None:
        self._zones: dict[int, ZoneSettings] = {}
        self._nodes: dict[int, tuple[str, ...]] = {}
        self._partitions: dict[tuple[int, int], PartitionKeys] = {}
        self._names: dict[str, str] = {}
        self._leaders: dict[tuple[int, int], LeaderTold] = {}
        self._troubles: dict[tuple[str, int, int], int] = {}

    @property
    def names(self) -> list[str]:
        return sorted(settings.name for settings in self._zones.values())

    def begin(self, keys: Iterable[KeyAnswer]) -> None:
        self._zones.clear()
        self._nodes.clear()
        self._partitions.clear()
        for key in keys:
            self._take(key)

    def changes(self, keys: Sequence[KeyAnswer]) -> list[ZoneEvent]:
        """Whole revisions, in order."""
        found: list[ZoneEvent] = []
        at = 0
        while at < len(keys):
            revision = keys[at].revision
            together = [key for key in keys[at:] if key.revision == revision]
            found += self._revision(together)
            at += len(together)
        return found

    def _revision(self, keys: Sequence[KeyAnswer]) -> list[ZoneEvent]:
        zones, nodes = dict(self._zones), dict(self._nodes)
        touched = {part[:2] for key in keys if (part := part_of(key.key.encode())) is not None}
        partitions = {place: self._partitions.get(place, PartitionKeys()) for place in touched}
        found: list[ZoneEvent] = []
        asked: list[tuple[int, RecoveryRequest]] = []
        for key in keys:
            wanted = self._take(key)
            if wanted is not None:
                asked.append(wanted)
        for zone in sorted(zones.keys() | self._zones.keys()):
            found += self._zone(zone, zones.get(zone), self._zones.get(zone))
        for zone, request in asked:
            found.append(
                ZoneEvent(ZoneEventKind.RESET_ASKED, self._called(zone), partitions=list(request.partitions))
            )
        for zone in sorted(self._nodes):
            if zone in self._zones and nodes.get(zone, ()) != self._nodes[zone]:
                found.append(
                    ZoneEvent(
                        ZoneEventKind.DATA_NODES,
                        self._called(zone),
                        before=self._members(nodes.get(zone, ())),
                        after=self._members(self._nodes[zone]),
                    )
                )
        for place in sorted(touched):
            if place[0] in self._zones:
                found += self._partition(place, partitions[place], self._partitions[place])
        last = keys[-1]
        return [msgspec.structs.replace(one, revision=last.revision, time_ms=last.time_ms) for one in found]

    def _take(self, key: KeyAnswer) -> tuple[int, RecoveryRequest] | None:
        """Unreadable keys are skipped. Returns a request to reset partitions, if the key is one."""
        name, value = key.key.encode(), None if key.value is None else key.value.encode()
        try:
            if (part := part_of(name)) is not None:
                self._take_part(part, value)
            elif (named := zone_of(name)) is not None:
                return self._take_zone(*named, value)
            elif name == TOPOLOGY_KEY and value is not None:
                for member in decoded(value, ClusterTopology).members:
                    self._names[member.node] = member.attributes.get("name", "") or member.node
        except UnknownFormat:
            pass
        return None

    def _take_part(self, part: tuple[int, int, str], value: bytes | None) -> None:
        zone, partition, field = part
        if field not in PART_FIELDS:
            return
        name, kind = PART_FIELDS[field]
        default = getattr(PartitionKeys(), name)
        now = self._partitions.get((zone, partition), PartitionKeys())
        found = default if value is None else decoded(value, kind)
        self._partitions[zone, partition] = msgspec.structs.replace(now, **{name: found})

    def _take_zone(self, zone: int, field: str, value: bytes | None) -> tuple[int, RecoveryRequest] | None:
        if field == "descriptor":
            if value is None:
                self._zones.pop(zone, None)
                self._nodes.pop(zone, None)
            else:
                self._zones[zone] = decoded(value, ZoneDescriptor).settings
        elif field == "history" and value is not None:
            history = decoded(value, tuple[DataNodesEntry, ...])
            self._nodes[zone] = history[-1].nodes if history else ()
        elif field == "recovery" and value is not None:
            return zone, decoded(value, RecoveryRequest)
        return None

    # -- deriving events

    def _zone(self, zone: int, before: ZoneSettings | None, after: ZoneSettings | None) -> list[ZoneEvent]:
        if before == after:
            return []
        if after is None:
            assert before is not None, "it was there"
            return [ZoneEvent(ZoneEventKind.DROPPED, before.name)]
        if before is None:
            told: dict[str, list[SettingValue]] = {
                "partitions": [after.partitions],
                "replicas": [after.replicas],
            }
            return [ZoneEvent(ZoneEventKind.CREATED, after.name, changed=told)]
        found: list[ZoneEvent] = []
        if before.name != after.name:
            found.append(ZoneEvent(ZoneEventKind.RENAMED, after.name, was=before.name))
        changed = {
            one.name: [_said(getattr(before, one.name)), _said(getattr(after, one.name))]
            for one in msgspec.structs.fields(ZoneSettings)
            if one.name != "name" and getattr(before, one.name) != getattr(after, one.name)
        }
        return [*found, ZoneEvent(ZoneEventKind.ALTERED, after.name, changed=changed)] if changed else found

    def _partition(
        self, place: tuple[int, int], before: PartitionKeys, after: PartitionKeys
    ) -> list[ZoneEvent]:
        found: list[ZoneEvent] = []
        zone, partition = self._called(place[0]), place[1]

        def tell(kind: ZoneEventKind, was: Assignments | None, now: Assignments | None) -> None:
            force = now is not None and (now.force or now.from_reset)
            event = ZoneEvent(kind, zone, partition, self._held(was), self._held(now), force)
            found.append(event)

        if after.generation != before.generation and after.generation:
            tell(ZoneEventKind.RESET, before.stable, after.stable)
        was, now = before.stable, after.stable
        moved = was is not None and now is not None and not was.same_nodes(now)
        if was is None and now is not None:
            tell(ZoneEventKind.PLACED, None, now)
        elif moved:
            tell(ZoneEventKind.ASSIGNED, was, now)
        target = before.pending[0] if before.pending else None
        wanted = after.pending[0] if after.pending else None
        if wanted is not None and target is None:
            tell(ZoneEventKind.MOVE_BEGUN, now, wanted)
        elif wanted is not None and target is not None and not wanted.same(target):
            tell(ZoneEventKind.MOVE_BEGUN if moved else ZoneEventKind.MOVE_CHANGED, now, wanted)
        elif wanted is None and target is not None and now is not None and not now.same_nodes(target):
            tell(ZoneEventKind.MOVE_GIVEN_UP, now, target)
        return found

    # -- reports of members

    def leaders(self, told: Iterable[LeaderTold], members: dict[str, str]) -> list[ZoneEvent]:
        """`members`: names by node. A report with a higher term is newer."""
        self._names.update(members)
        found: list[ZoneEvent] = []
        for one in told:
            place = one.zone, one.partition
            known = self._leaders.get(place)
            if known is not None and one.term <= known.term:
                continue
            self._leaders[place] = one
            if one.zone in self._zones and (known is None or known.node != one.node):
                before = [] if known is None else self._members([known.node])
                event = ZoneEvent(
                    ZoneEventKind.LEADER,
                    self._called(one.zone),
                    one.partition,
                    before,
                    self._members([one.node]),
                    term=one.term,
                )
                found.append(event)
        return found

    def troubles(self, member: str, told: Iterable[TroubleTold]) -> list[ZoneEvent]:
        found: list[ZoneEvent] = []
        now: dict[tuple[str, int, int], int] = {}
        for one in told:
            key = member, one.zone, one.partition
            before = self._troubles.get(key, 0)
            due = one.attempts // REPORT_AFTER > before // REPORT_AFTER
            now[key] = one.attempts if due else before
            if due:
                partition = one.partition if one.partition >= 0 else None
                event = ZoneEvent(
                    ZoneEventKind.FAILING,
                    self._called(one.zone),
                    partition,
                    after=[member],
                    attempts=one.attempts,
                    why=one.why,
                )
                found.append(event)
        others = {key: count for key, count in self._troubles.items() if key[0] != member}
        self._troubles = {**others, **now}
        return found

    # -- names

    def _called(self, zone: int) -> str:
        settings = self._zones.get(zone)
        return settings.name if settings is not None else str(zone)

    def _members(self, nodes: Iterable[str]) -> list[str]:
        return sorted(self._names.get(node, node[:8]) for node in nodes)

    def _held(self, who: Assignments | None) -> list[str]:
        if who is None:
            return []
        return [*self._members(who.peers), *(f"{name} (learner)" for name in self._members(who.learners))]


def _said(value: object) -> SettingValue:
    if value == descriptors.NEVER:
        return "never"
    if isinstance(value, dict):
        return ", ".join(f"{name}={'|'.join(allowed)}" for name, allowed in sorted(value.items()))
    return value if isinstance(value, int) else "usual" if value is None else str(value)
