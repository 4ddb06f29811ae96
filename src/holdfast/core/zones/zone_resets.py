"""Resets of zones that have lost a quorum, decided by the states that members report of their replicas.

- zones/A-21: A trigger does not overtake a reset that was requested before it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.core.metastore.invoke import PutKey
from holdfast.core.zones.assignments import Assignments, Node, PartitionKeys
from holdfast.core.zones.descriptors import NEVER, ClusterTopology, ZoneDescriptor
from holdfast.core.zones.rendezvous import EvenLayout, preference
from holdfast.core.zones.transitions import Consistency, LocalReplica, ResetRequest, Result, reset
from holdfast.core.zones.work_queue import ANSWER_MS, WorkQueue
from holdfast.core.zones.zone_keys import TOPOLOGY_KEY, KeysRead, encoded, part_key, zone_key
from holdfast.core.zones.zone_ports import ZoneStore, ZoneWorld


class RecoveryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    manual: bool
    partitions: tuple[int, ...] = ()
    """Empty: all."""


class ZoneResets:
    def __init__(self, store: ZoneStore, world: ZoneWorld, queue: WorkQueue) -> None:
        self._store = store
        self._world = world
        self._queue = queue
        self._states: dict[int, dict[Node, Mapping[int, LocalReplica]]] = {}
        self._asked: dict[int, int] = {}
        """Zone -> time of the last query."""
        self._short_since: dict[int, int] = {}
        """Zone with high availability -> since when a partition has no quorum."""

    def reset(
        self,
        zone: ZoneDescriptor,
        partition: int,
        before: PartitionKeys,
        wanted: RecoveryRequest,
        read: KeysRead,
    ) -> tuple[Result, PartitionKeys] | None:
        """Apply a requested reset to a partition. None: members may still report (zones/A-21)."""
        settings = zone.settings
        topology = read.value(TOPOLOGY_KEY, ClusterTopology) or ClusterTopology()
        asked = read.entry(zone_key(zone.id, "recovery")).revision
        states = self._gathered(zone.id, topology)
        if states is None:
            return None
        alive = settings.taken(topology)
        layout = read.value(zone_key(zone.id, "layout"), EvenLayout)
        order = preference(alive | (before.stable or Assignments()).nodes, partition, layout)
        request = ResetRequest(
            wanted.manual,
            topology.nodes,
            alive,
            {node: of[partition] for node, of in sorted(states.items()) if partition in of},
            order,
            settings.voters_needed,
            settings.replicas,
            settings.consensus,
            read.entry(part_key(zone.id, partition, "pending")).revision > asked,
            asked,
            asked,
        )
        result, after = reset(before, request)
        # A replica that is still in doubt will report itself again.
        return result, msgspec.structs.replace(after, switch_reduce=None, switch_append=None)

    def _gathered(
        self, zone: int, topology: ClusterTopology
    ) -> Mapping[Node, Mapping[int, LocalReplica]] | None:
        since = self._asked.get(zone)
        states = self._states.get(zone, {})
        if since is None or self._queue.now - since > 2 * ANSWER_MS:
            self._asked[zone] = self._queue.now
            self._states[zone] = {}
            for member in topology.members:
                self._world.ask_replicas(member.node, zone)
            return None
        whole = topology.nodes <= states.keys()
        return states if whole or self._queue.now - since >= ANSWER_MS else None

    def watch_quorums(self, zone: ZoneDescriptor | None) -> None:
        """Reset a zone with high availability if a partition lacks a majority of its voters for too long."""
        if zone is None or zone.settings.consistency is not Consistency.HIGH_AVAILABILITY:
            return
        settings, number = zone.settings, zone.id
        entry = self._store.get(TOPOLOGY_KEY)
        topology = KeysRead([entry]).value(TOPOLOGY_KEY, ClusterTopology) or ClusterTopology()
        short = False
        for partition in range(settings.partitions):
            key = part_key(number, partition, "stable")
            stable = KeysRead([self._store.get(key)]).value(key, Assignments)
            key = part_key(number, partition, "pending")
            pending = KeysRead([self._store.get(key)]).value(key, tuple[Assignments, ...])
            if stable is not None and not (pending and pending[0].force):
                short |= 2 * len(set(stable.peers) & topology.nodes) <= len(stable.peers)
        if not short:
            self._short_since.pop(number, None)
            return
        since = self._short_since.setdefault(number, self._queue.now)
        if settings.reset_after_s < NEVER and self._queue.now - since >= 1000 * settings.reset_after_s:
            self._short_since[number] = self._queue.now + ANSWER_MS
            read = KeysRead([entry, self._store.get(zone_key(number, "recovery"))])
            read.entry(TOPOLOGY_KEY)
            read.entry(zone_key(number, "recovery"))
            wanted = PutKey(zone_key(number, "recovery"), encoded(RecoveryRequest(manual=False)))
            self._store.invoke(read.guarded([wanted]))

    def on_replicas(self, node: Node, zone: int, states: Mapping[int, LocalReplica]) -> None:
        if zone in self._asked:
            self._states.setdefault(zone, {})[node] = states

    def forget_zone(self, number: int) -> None:
        self._asked.pop(number, None)
        self._states.pop(number, None)
        self._short_since.pop(number, None)
