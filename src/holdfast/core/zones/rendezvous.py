"""Placement of a zone's partitions: by rendezvous hashing, or by the even layout.

With rendezvous each partition ranks the nodes by a hash of both; the first ones hold it, and the first of these are
voters. A node that joins or leaves moves only its own replicas. The even layout depends on the previous one, so the
metastore keeps it.

- zones/A-9: The placement of a partition depends only on the metastore, so every member calculates the same one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from holdfast.core.metastore.invoke import PutKey
from holdfast.core.placement.affinity import rank
from holdfast.core.placement.layout import Candidate, arrange
from holdfast.core.zones.assignments import Assignments, ChainLink, Node
from holdfast.core.zones.descriptors import (
    ClusterTopology,
    PlacementKind,
    ZoneDescriptor,
    ZoneSettings,
)
from holdfast.core.zones.transitions import Consistency
from holdfast.core.zones.zone_keys import KeysRead, encoded, part_key, zone_key


def ranked(nodes: Collection[Node], partition: int) -> list[Node]:
    return sorted(nodes, key=lambda node: (rank(node, partition), node))


def in_roles(order: Sequence[Node], settings: ZoneSettings) -> Assignments:
    chosen = order[: settings.replicas]
    voters = settings.consensus
    return Assignments(tuple(sorted(chosen[:voters])), tuple(sorted(chosen[voters:])))


class EvenLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    nodes: tuple[Node, ...]
    """Sorted."""
    replicas: int
    rows: tuple[tuple[Node, ...], ...]
    """By partition, voters first."""

    def fits(self, nodes: Collection[Node], settings: ZoneSettings) -> bool:
        return self.replicas == settings.replicas and self.nodes == tuple(sorted(nodes))


def even_layout(
    before: EvenLayout | None, topology: ClusterTopology, nodes: Collection[Node], settings: ZoneSettings
) -> EvenLayout:
    """The next even layout, which moves as few replicas as possible."""
    group_of = {member.node: member.group for member in topology.members}
    rows: list[tuple[Node | None, ...]] = [(None,) * settings.replicas] * settings.partitions
    if before is not None:
        rows = [row[: settings.replicas] for row in before.rows]
    found = arrange(
        rows, [Candidate(node, group_of.get(node, "")) for node in sorted(nodes)], settings.replicas
    )
    kept = tuple(tuple(node for node in row if node is not None) for row in found)
    return EvenLayout(tuple(sorted(nodes)), settings.replicas, kept)


def preference(nodes: Collection[Node], partition: int, layout: EvenLayout | None) -> list[Node]:
    order = ranked(nodes, partition)
    first = [node for node in layout.rows[partition] if node in nodes] if layout is not None else []
    return first + [node for node in order if node not in first]


def placed(
    nodes: Collection[Node], partition: int, settings: ZoneSettings, layout: EvenLayout | None = None
) -> Assignments:
    """The assignments of a partition by rendezvous, or by the layout (zones/A-9)."""
    return in_roles(preference(nodes, partition, layout), settings)


def placed_by(read: KeysRead, zone: ZoneDescriptor, partition: int, nodes: Collection[Node]) -> Assignments:
    return placed(nodes, partition, zone.settings, read.value(zone_key(zone.id, "layout"), EvenLayout))


def initial_changes(zone: ZoneDescriptor, topology: ClusterTopology) -> list[PutKey]:
    """The first assignments of all partitions, and the layout."""
    settings = zone.settings
    nodes = settings.taken(topology)
    changes: list[PutKey] = []
    layout = None
    if settings.placement is PlacementKind.EVEN:
        layout = even_layout(None, topology, nodes, settings)
        changes.append(PutKey(zone_key(zone.id, "layout"), encoded(layout)))
    for partition in range(settings.partitions):
        stable = placed(nodes, partition, settings, layout)
        changes.append(PutKey(part_key(zone.id, partition, "stable"), encoded(stable)))
        if settings.consistency is Consistency.HIGH_AVAILABILITY:
            chain = (ChainLink(stable),)
            changes.append(PutKey(part_key(zone.id, partition, "chain"), encoded(chain)))
    return changes
