"""Where do the replicas of each partition of a zone belong? By rendezvous, or by the even layout.

By rendezvous each partition ranks the nodes by a hash of both; the first ones hold it, and the first of these are
voters. So it depends on nothing but who is there, and a node that comes or goes moves only what it gets or had. The
even layout starts from where the replicas are, so it is kept under a key of its own.

- zones/A-9: The placement of a partition depends on what the metastore says alone: the same everywhere.
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
    """The nodes in the order in which the partition would have them."""
    return sorted(nodes, key=lambda node: (rank(node, partition), node))


def in_roles(order: Sequence[Node], settings: ZoneSettings) -> Assignments:
    """The first of these, as voters and learners."""
    chosen = order[: settings.replicas]
    voters = settings.consensus
    return Assignments(tuple(sorted(chosen[:voters])), tuple(sorted(chosen[voters:])))


class EvenLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The even layout of a zone, and what it was made for."""

    nodes: tuple[Node, ...]
    """Sorted."""
    replicas: int
    rows: tuple[tuple[Node, ...], ...]
    """Who holds each partition, the voters first."""

    def fits(self, nodes: Collection[Node], settings: ZoneSettings) -> bool:
        """Whether it is made for these nodes and settings."""
        return self.replicas == settings.replicas and self.nodes == tuple(sorted(nodes))


def even_layout(
    before: EvenLayout | None, topology: ClusterTopology, nodes: Collection[Node], settings: ZoneSettings
) -> EvenLayout:
    """The layout for these nodes, which takes from one only what another one needs."""
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
    """The nodes in the order in which the partition would have them, by the layout first, where there is one."""
    order = ranked(nodes, partition)
    first = [node for node in layout.rows[partition] if node in nodes] if layout is not None else []
    return first + [node for node in order if node not in first]


def placed(
    nodes: Collection[Node], partition: int, settings: ZoneSettings, layout: EvenLayout | None = None
) -> Assignments:
    """Who is to hold the partition, in which roles (zones/A-9)."""
    return in_roles(preference(nodes, partition, layout), settings)


def placed_by(read: KeysRead, zone: ZoneDescriptor, partition: int, nodes: Collection[Node]) -> Assignments:
    """The replicas of the partition, by the layout that was read."""
    return placed(nodes, partition, zone.settings, read.value(zone_key(zone.id, "layout"), EvenLayout))


def initial_changes(zone: ZoneDescriptor, topology: ClusterTopology) -> list[PutKey]:
    """The first assignments of all partitions, and what they go by."""
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
