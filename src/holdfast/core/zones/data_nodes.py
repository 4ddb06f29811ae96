"""Data nodes of a zone: the members that may hold its replicas.

Pure, idempotent functions from the data nodes in the metastore to the next ones; each is one invoke. Times are
milliseconds of the metastore.

- zones/A-10: The effect of a timer has the time at which the timer was due, whichever member noticed it and when.
- zones/A-11: A member that returns before the scale-down timer expires was never away, and a member that leaves before
  the scale-up timer expires was never there.
- zones/A-28: A present member with the name and the address of a data node that has gone replaces it at once. Example:
  of the data nodes {A, B, C}, C is killed and starts again without files, as D. Without this rule the zone would have
  two replicas of three until the scale-down timer expires; if B is lost by then, most voters are lost. Name and address
  choose only the node to replace: D joins each group as a new replica, by a change of the peers to which most of the
  old voters have to agree.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from holdfast.core.metastore.invoke import PutKey, RemoveKey
from holdfast.core.zones.assignments import Node
from holdfast.core.zones.descriptors import NEVER, ClusterTopology, DataNodesEntry, MemberPlace, ZoneSettings
from holdfast.core.zones.zone_keys import KeysRead, encoded, zone_key

HISTORY_MOST: Final = 32
"""Only the last one has an effect, the others are for operators."""


class NodesTimer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    since_ms: int
    wait_s: int
    nodes: tuple[Node, ...]
    """Sorted, not empty."""

    @property
    def due_ms(self) -> int | None:
        return None if self.wait_s >= NEVER else self.since_ms + 1000 * self.wait_s

    def due(self, at_ms: int) -> bool:
        return self.due_ms is not None and self.due_ms <= at_ms


class DataNodes(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    history: tuple[DataNodesEntry, ...] = ()
    """Oldest first, `HISTORY_MOST` at most."""
    up: NodesTimer | None = None
    down: NodesTimer | None = None

    @property
    def latest(self) -> frozenset[Node]:
        return frozenset(self.history[-1].nodes) if self.history else frozenset()

    @property
    def next_ms(self) -> int | None:
        """When the next timer is due; None: no timer will expire."""
        due = [timer.due_ms for timer in (self.up, self.down) if timer is not None]
        return min((one for one in due if one is not None), default=None)


def topology_changed(
    data: DataNodes, settings: ZoneSettings, alive: Collection[Node], at_ms: int
) -> DataNodes:
    """Begin, continue or end the timers after members have come or gone (zones/A-11). `alive`: present members that
    pass the zone's filter.
    """
    latest = data.latest
    come = frozenset(alive) - latest
    gone = latest - frozenset(alive)
    data = msgspec.structs.replace(
        data,
        up=_merged(data.up, come, at_ms, settings.scale_up_s),
        down=_merged(data.down, gone, at_ms, settings.scale_down_s),
    )
    return timers_run_out(data, at_ms)


def _merged(timer: NodesTimer | None, nodes: frozenset[Node], at_ms: int, wait_s: int) -> NodesTimer | None:
    # A new node restarts the timer. Otherwise it keeps its start, but not one in the future: the clock of the member
    # that started it may have been ahead.
    if not nodes:
        return None
    names = tuple(sorted(nodes))
    if timer is not None and nodes <= frozenset(timer.nodes):
        return NodesTimer(min(timer.since_ms, at_ms), timer.wait_s, names)
    return NodesTimer(at_ms, wait_s, names)


def timers_run_out(data: DataNodes, at_ms: int) -> DataNodes:
    """Apply the timers that are due, the earlier one first (zones/A-10)."""
    while (due := data.next_ms) is not None and due <= at_ms:
        nodes, up, down = data.latest, data.up, data.down
        if up is not None and up.due(due):
            nodes, up = nodes | frozenset(up.nodes), None
        if down is not None and down.due(due):
            nodes, down = nodes - frozenset(down.nodes), None
        data = DataNodes(_with(data.history, nodes, due), up, down)
    return data


def _with(
    history: tuple[DataNodesEntry, ...], nodes: frozenset[Node], at_ms: int
) -> tuple[DataNodesEntry, ...]:
    if history and frozenset(history[-1].nodes) == nodes:
        return history
    at_ms = max(at_ms, history[-1].at_ms) if history else at_ms
    return (*history, DataNodesEntry(at_ms, tuple(sorted(nodes))))[-HISTORY_MOST:]


def filter_altered(data: DataNodes, alive: Collection[Node], at_ms: int) -> DataNodes:
    """Replace the data nodes at once, without timers: for a new filter, or for an operator who wants exactly these
    nodes.
    """
    return DataNodes(_with(data.history, frozenset(alive), at_ms))


def gone_given_up(data: DataNodes, alive: Collection[Node], at_ms: int) -> DataNodes:
    """Give up all absent nodes, by order of an operator: they return as new ones."""
    assert alive, "somebody can hold the partitions"
    left = data.latest & frozenset(alive) or frozenset(alive)
    return DataNodes(_with(data.history, left, at_ms), data.up)


def leavers_gone(data: DataNodes, leaving: Collection[Node], at_ms: int) -> DataNodes:
    """Remove members that want to leave, unless no other data node is left."""
    left = data.latest - frozenset(leaving)
    if not left:
        return data
    return msgspec.structs.replace(data, history=_with(data.history, left, at_ms))


def successors(
    data: DataNodes,
    settings: ZoneSettings,
    topology: ClusterTopology,
    places: Mapping[Node, MemberPlace],
) -> dict[Node, Node]:
    """The successors of nodes that have gone, by the node that each replaces (zones/A-28)."""
    at = {places[node]: node for node in sorted(settings.taken(topology)) if node in places}
    gone = sorted(data.latest - topology.nodes)
    return {node: at[places[node]] for node in gone if node in places and places[node] in at}


def gone_replaced(data: DataNodes, by: Mapping[Node, Node], at_ms: int) -> DataNodes:
    """Replace nodes by their successors at once, without timers."""
    if not by:
        return data
    left = (data.latest - by.keys()) | frozenset(by.values())
    return msgspec.structs.replace(data, history=_with(data.history, left, at_ms))


def waits_altered(data: DataNodes, settings: ZoneSettings, at_ms: int) -> DataNodes:
    """Change the wait times, which count from the start of each timer."""
    up, down = data.up, data.down
    if up is not None:
        up = msgspec.structs.replace(up, wait_s=settings.scale_up_s)
    if down is not None:
        down = msgspec.structs.replace(down, wait_s=settings.scale_down_s)
    return timers_run_out(DataNodes(data.history, up, down), at_ms)


# -- in the metastore


def data_nodes_of(read: KeysRead, zone: int) -> DataNodes:
    return DataNodes(
        read.value(zone_key(zone, "history"), tuple[DataNodesEntry, ...]) or (),
        read.value(zone_key(zone, "up"), NodesTimer),
        read.value(zone_key(zone, "down"), NodesTimer),
    )


def data_nodes_changes(zone: int, before: DataNodes, after: DataNodes) -> list[PutKey | RemoveKey]:
    changes: list[PutKey | RemoveKey] = []
    for field in ("history", "up", "down"):
        then = getattr(after, field)
        if getattr(before, field) != then:
            key = zone_key(zone, field)
            changes.append(PutKey(key, encoded(then)) if then else RemoveKey(key))
    return changes
