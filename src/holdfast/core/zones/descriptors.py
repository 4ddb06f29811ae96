"""What is a zone? How many partitions and replicas, where they may live, and how patient it is with its members."""

from __future__ import annotations

import re
from enum import StrEnum, unique
from typing import Final

import msgspec

from holdfast.core.zones.assignments import Node
from holdfast.core.zones.transitions import Consistency

NEVER: Final = (1 << 31) - 1
"""Seconds: a timer that does not run out."""
PARTITIONS_MOST: Final = 65_000
REPLICAS_MOST: Final = 64
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


@unique
class Adjustment(StrEnum):
    """What becomes of a move when its target changes while new voters still catch up."""

    REPLACE = "replace"
    """The new target takes its place: what was sent to those in both counts on."""
    CANCEL = "cancel"
    """It is given up, and the next one begins."""


@unique
class PlacementKind(StrEnum):
    """By what the replicas are spread over the members."""

    RENDEZVOUS = "rendezvous"
    """Each partition by itself: who joins or leaves moves only what it must, and loads are even only about."""
    EVEN = "even"
    """All partitions together: loads differ by one at most, for more replicas that move."""


class ZoneRefused(ValueError):
    """There can be no such zone, or it cannot become this."""


class DataMember(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member that may hold replicas."""

    node: Node
    group: str = ""
    """Its host, rack or the like. Empty: it is a group of its own."""
    attributes: dict[str, str] = {}


class ClusterTopology(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Who is in the cluster, as of a view: written by the leader of the metastore's group."""

    view: int = 0
    members: tuple[DataMember, ...] = ()
    """Sorted by name."""
    leaving: tuple[Node, ...] = ()
    """Members that want to leave: they are here, and hold replicas as long as nobody else does. Sorted."""

    @property
    def nodes(self) -> frozenset[Node]:
        """Their names."""
        return frozenset(member.node for member in self.members)


class ZoneSettings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What an operator says of a zone."""

    name: str
    partitions: int = 25
    replicas: int = 1
    quorum: int | None = None
    """How many voters must be there for it to work; None: as many as are usual for so many replicas."""
    filter: dict[str, tuple[str, ...]] = {}
    """Attribute -> what it has to be, one of these; a member is used if all of it holds."""
    scale_up_s: int = 0
    """How long to wait for further members when one has come."""
    scale_down_s: int = NEVER
    """How long to wait for a member that has gone."""
    consistency: Consistency = Consistency.STRONG
    reset_after_s: int = 0
    """Of high availability: how long to wait for a majority before it is given up. NEVER: an operator decides."""
    adjustment: Adjustment = Adjustment.REPLACE
    placement: PlacementKind = PlacementKind.RENDEZVOUS

    @property
    def voters_needed(self) -> int:
        """The quorum."""
        return usual_quorum(self.replicas) if self.quorum is None else self.quorum

    @property
    def consensus(self) -> int:
        """How many replicas are voters; the others are learners."""
        return min(2 * self.voters_needed - 1, self.replicas)

    def takes(self, member: DataMember) -> bool:
        """Whether this member may hold replicas of it."""
        return all(member.attributes.get(name) in allowed for name, allowed in self.filter.items())

    def taken(self, topology: ClusterTopology) -> frozenset[Node]:
        """Those of these members that may hold replicas of it."""
        here = {member.node for member in topology.members if self.takes(member)}
        return frozenset(here - set(topology.leaving))


class ZoneDescriptor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A zone: its number, which never changes, and what an operator says of it."""

    id: int
    settings: ZoneSettings


class DataNodesEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who may hold replicas of a zone, from a time on."""

    at_ms: int
    nodes: tuple[Node, ...]
    """Sorted."""


def usual_quorum(replicas: int) -> int:
    """The quorum of a zone that says none: two faults are survived from five replicas on."""
    if replicas == 1:
        return 1
    return 2 if replicas < 5 else 3


def quorums(replicas: int) -> range:
    """The quorums that a zone of so many replicas may have."""
    if replicas < 5:
        return range(usual_quorum(replicas), usual_quorum(replicas) + 1)
    return range(2, (replicas + 1) // 2 + 1)


def checked(settings: ZoneSettings) -> list[str]:
    """What an operator should be warned of. Raises ZoneRefused for what cannot be."""
    name, replicas = settings.name, settings.replicas
    if not NAME.fullmatch(name):
        raise ZoneRefused(f"{name!r} is no name of a zone: letters, digits, '_', '-' and '.', 64 at most")
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
        warnings.append(f"zone {name}: of one replica nothing is left to go on with when it is lost")
    return warnings


def node_filter(text: str) -> dict[str, tuple[str, ...]]:
    """A filter as people write it: `region=eu|us, storage=ssd`. Raises ZoneRefused."""
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
