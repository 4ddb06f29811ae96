"""Description of a zone: its partitions and replicas, its members, and how long it waits for them."""

from __future__ import annotations

import re
from enum import StrEnum, unique
from typing import Final

import msgspec

from holdfast.core.zones.assignments import Node
from holdfast.core.zones.transitions import Consistency

NEVER: Final = (1 << 31) - 1
SCALE_DOWN_S: Final = 300
"""For new zones. `ZoneSettings` keeps NEVER as its default: stored zones leave out what equals it."""
PARTITIONS_MOST: Final = 65_000
REPLICAS_MOST: Final = 64
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


@unique
class Adjustment(StrEnum):
    """How to handle a new target while the voters of the current one still catch up."""

    REPLACE = "replace"
    """Nodes in both targets keep their progress."""
    CANCEL = "cancel"
    """Cancel, then start the next one."""


@unique
class PlacementKind(StrEnum):
    RENDEZVOUS = "rendezvous"
    """Each partition on its own: a member that joins or leaves moves the least data; loads are roughly even."""
    EVEN = "even"
    """Loads differ by at most one, and more replicas move."""


class ZoneRefused(ValueError):
    """No zone can have these settings, or this zone cannot be changed to them."""


class DataMember(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node: Node
    group: str = ""
    """Host, rack or availability zone; empty: its own group."""
    attributes: dict[str, str] = {}


class MemberPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Name and address of a member. A member with those of one that has gone is its successor (zones/A-28)."""

    name: str
    address: str
    """For other members."""


class ClusterTopology(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The members of a view, written by the leader of the metastore's group."""

    view: int = 0
    members: tuple[DataMember, ...] = ()
    """Sorted by name."""
    leaving: tuple[Node, ...] = ()
    """Members that want to leave; they keep their replicas until others hold them. Sorted."""

    @property
    def nodes(self) -> frozenset[Node]:
        return frozenset(member.node for member in self.members)


class ZoneSettings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    name: str
    partitions: int = 25
    replicas: int = 1
    quorum: int | None = None
    """Voters that must be present for the zone to work; None: as usual for so many replicas."""
    filter: dict[str, tuple[str, ...]] = {}
    """Attribute -> accepted values; all must match."""
    scale_up_s: int = 0
    """Wait for further members after one has joined."""
    scale_down_s: int = NEVER
    """Wait for a member that has gone to come back. New zones get `SCALE_DOWN_S`."""
    consistency: Consistency = Consistency.STRONG
    reset_after_s: int = 0
    """With high availability: wait for a majority before a reset. NEVER: only an operator resets."""
    adjustment: Adjustment = Adjustment.REPLACE
    placement: PlacementKind = PlacementKind.RENDEZVOUS

    @property
    def voters_needed(self) -> int:
        return usual_quorum(self.replicas) if self.quorum is None else self.quorum

    @property
    def consensus(self) -> int:
        """The number of voters; the other replicas are learners."""
        return min(2 * self.voters_needed - 1, self.replicas)

    def takes(self, member: DataMember) -> bool:
        return all(member.attributes.get(name) in allowed for name, allowed in self.filter.items())

    def taken(self, topology: ClusterTopology) -> frozenset[Node]:
        here = {member.node for member in topology.members if self.takes(member)}
        return frozenset(here - set(topology.leaving))


class ZoneDescriptor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: int
    settings: ZoneSettings


class DataNodesEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    at_ms: int
    nodes: tuple[Node, ...]
    """Sorted."""


def usual_quorum(replicas: int) -> int:
    """The quorum of a zone that does not set one. From five replicas on, a zone survives two faults."""
    if replicas == 1:
        return 1
    return 2 if replicas < 5 else 3


def quorums(replicas: int) -> range:
    if replicas < 5:
        return range(usual_quorum(replicas), usual_quorum(replicas) + 1)
    return range(2, (replicas + 1) // 2 + 1)


def checked(settings: ZoneSettings) -> list[str]:
    """Check settings; returns warnings. Raises ZoneRefused."""
    name, replicas = settings.name, settings.replicas
    if not NAME.fullmatch(name):
        raise ZoneRefused(f"{name!r} is not a valid zone name: letters, digits, '_', '-' and '.', 64 at most")
    if not 1 <= settings.partitions <= PARTITIONS_MOST:
        raise ZoneRefused(f"zone {name}: partitions is {settings.partitions}, not 1 to {PARTITIONS_MOST}")
    if not 1 <= replicas <= REPLICAS_MOST:
        raise ZoneRefused(f"zone {name}: replicas is {replicas}, not 1 to {REPLICAS_MOST}")
    allowed = quorums(replicas)
    if settings.voters_needed not in allowed:
        most = allowed[-1]
        which = f"{allowed[0]}" if len(allowed) == 1 else f"{allowed[0]} to {most}"
        raise ZoneRefused(
            f"zone {name}: quorum is {settings.quorum}; with {replicas} replicas it can be {which}"
        )
    for attribute, values in sorted(settings.filter.items()):
        if not attribute or not values:
            raise ZoneRefused(f"zone {name}: filter: {attribute!r} needs a value: attribute=value|value")
    for field in ("scale_up_s", "scale_down_s", "reset_after_s"):
        if not 0 <= getattr(settings, field) <= NEVER:
            raise ZoneRefused(f"zone {name}: {field} is {getattr(settings, field)}, not 0 to {NEVER}")
    warnings = []
    if replicas == 2:
        warnings.append(
            f"zone {name}: two replicas have no majority when one is away: nothing is written, or read, until it is "
            "back; three replicas survive the loss of one"
        )
    if settings.consistency is Consistency.HIGH_AVAILABILITY and replicas == 1:
        warnings.append(f"zone {name}: with one replica, its partitions cannot be recovered when it is lost")
    return warnings


def node_filter(text: str) -> dict[str, tuple[str, ...]]:
    """Parse a filter such as `region=eu|us, storage=ssd`. Raises ZoneRefused."""
    found: dict[str, tuple[str, ...]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        attribute, equals, values = (word.strip() for word in part.partition("="))
        if not equals or not attribute or attribute in found:
            raise ZoneRefused(f"{part!r} in a filter: write each attribute once, as attribute=value|value")
        allowed = tuple(sorted({value.strip() for value in values.split("|") if value.strip()}))
        if not allowed:
            raise ZoneRefused(f"{part!r} in a filter names no value: write attribute=value|value")
        found[attribute] = allowed
    return found
