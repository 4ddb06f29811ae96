"""Triggers adjust assignments to the members and to the settings of zones.

- zones/A-18: Only the leader of the metastore's group runs triggers. After its election it runs all of them, which
  makes up for any that its predecessor lost.
- zones/A-30: A partition keeps its target while the next one would lack a majority of present voters that the stable
  assignments have. Example: of the voters {A, B, C}, A is away for a minute, and the operator drains C. With the voters
  {A, B} the partition would serve no request before A is back. It keeps {A, B, C} until A is back or replaced.
"""

from __future__ import annotations

import msgspec

from holdfast.core.metastore.invoke import PutKey
from holdfast.core.zones.assignments import Assignments, ChainLink, Node, PartitionKeys
from holdfast.core.zones.data_nodes import (
    data_nodes_changes,
    data_nodes_of,
    gone_replaced,
    leavers_gone,
    successors,
    topology_changed,
)
from holdfast.core.zones.descriptors import (
    Adjustment,
    ClusterTopology,
    MemberPlace,
    PlacementKind,
    ZoneDescriptor,
)
from holdfast.core.zones.rendezvous import EvenLayout, even_layout, placed_by
from holdfast.core.zones.transitions import (
    Consistency,
    NoVoters,
    Result,
    reduce_changed,
    update_pending,
)
from holdfast.core.zones.work_queue import RETRY_MS, WorkKind, WorkQueue, WorkStep, ZoneWork
from holdfast.core.zones.zone_keys import (
    PLACES_KEY,
    TOPOLOGY_KEY,
    ZONE_PREFIX,
    KeysRead,
    changes_to,
    encoded,
    part_key,
    partition_keys,
    zone_key,
    zone_of,
)
from holdfast.core.zones.zone_ports import ZoneStore
from holdfast.core.zones.zone_resets import RecoveryRequest, ZoneResets


class ZoneTriggers:
    def __init__(self, store: ZoneStore, queue: WorkQueue, resets: ZoneResets) -> None:
        self._store = store
        self._queue = queue
        self._resets = resets
        self._led = False

    def zones(self) -> list[int]:
        found = [zone_of(entry.key) for entry in self._store.scan(ZONE_PREFIX)]
        return sorted(one[0] for one in found if one is not None and one[1] == "descriptor")

    def on_tick(self) -> None:
        leads = self._store.leads
        if leads and not self._led:
            for zone in self.zones():
                self.wake_zone(zone, "descriptor")
        self._led = leads
        if leads:
            for zone in self.zones():
                self._resets.watch_quorums(local_descriptor(self._store, zone))

    def wake_zone(self, zone: int, field: str) -> None:
        """Wake the triggers that depend on a key that has changed (zones/A-18)."""
        if not self._store.leads:
            return
        if field in ("descriptor", "topology", "up", "down"):
            self._queue.wake((WorkKind.DATA_NODES, zone, -1))
        descriptor = local_descriptor(self._store, zone)
        for partition in range(descriptor.settings.partitions if descriptor is not None else 0):
            self._queue.wake((WorkKind.TRIGGER, zone, partition))

    def data_nodes(self, work: ZoneWork, step: WorkStep, read: KeysRead) -> None:
        zone = read.value(zone_key(work[1], "descriptor"), ZoneDescriptor)
        if zone is None:
            self._queue.forget(work)
            return
        settings = zone.settings
        topology = read.value(TOPOLOGY_KEY, ClusterTopology) or ClusterTopology()
        before = data_nodes_of(read, zone.id)
        places = read.value(PLACES_KEY, dict[Node, MemberPlace]) or {}
        after = leavers_gone(before, topology.leaving, self._queue.now)
        after = gone_replaced(after, successors(after, settings, topology, places), self._queue.now)
        after = topology_changed(after, settings, settings.taken(topology), self._queue.now)
        changes = data_nodes_changes(zone.id, before, after)
        nodes = after.latest
        if settings.placement is PlacementKind.EVEN and nodes:
            layout = read.value(zone_key(zone.id, "layout"), EvenLayout)
            if layout is None or not layout.fits(nodes, settings):
                then = even_layout(layout, topology, nodes, settings)
                changes.append(PutKey(zone_key(zone.id, "layout"), encoded(then)))
        if changes:
            self._queue.write(work, step, read, changes)
        elif after.next_ms is not None:
            step.due_ms = after.next_ms

    def trigger(self, work: ZoneWork, step: WorkStep, read: KeysRead) -> None:
        _, number, partition = work
        zone = read.value(zone_key(number, "descriptor"), ZoneDescriptor)
        nodes = data_nodes_of(read, number).latest
        if zone is None or not nodes or partition >= zone.settings.partitions:
            self._queue.forget(work)
            return
        before = partition_keys(read, number, partition)
        wanted = read.value(zone_key(number, "recovery"), RecoveryRequest)
        asked = read.entry(zone_key(number, "recovery")).revision
        due = asked > (before.trigger or 0)
        if wanted is not None and due and partition in (wanted.partitions or (partition,)):
            found = self._resets.reset(zone, partition, before, wanted, read)
            if found is None:
                self._queue.again_in(step, RETRY_MS)
                return
            if found[0] is Result.PENDING_KEY_UPDATED:
                self._queue.write(work, step, read, changes_to(number, partition, before, found[1]))
                return
        after = self._updated(zone, partition, before, nodes, read)
        if after != before:
            self._queue.write(work, step, read, changes_to(number, partition, before, after))

    def _updated(
        self,
        zone: ZoneDescriptor,
        partition: int,
        before: PartitionKeys,
        nodes: frozenset[Node],
        read: KeysRead,
    ) -> PartitionKeys:
        """Adjust the target. Its timestamp is the newest revision of the keys on which it depends."""
        settings = zone.settings
        layout = read.value(zone_key(zone.id, "layout"), EvenLayout)
        if settings.placement is PlacementKind.EVEN and not (layout and layout.fits(nodes, settings)):
            return before  # The layout comes first, and wakes this trigger again.
        calculated = placed_by(read, zone, partition, nodes)
        if before.switch_reduce is not None and before.stable is not None and not before.pending:
            return self._reduced(
                before, calculated, read.entry(part_key(zone.id, partition, "reduce")).revision
            )
        if before.stable is None and not before.pending:
            chain = (ChainLink(calculated),) if settings.consistency is Consistency.HIGH_AVAILABILITY else ()
            return msgspec.structs.replace(before, stable=calculated, chain=chain)
        topology = read.value(TOPOLOGY_KEY, ClusterTopology) or ClusterTopology()
        causes = [zone_key(zone.id, field) for field in ("descriptor", "history", "layout")]
        if settings.consistency is Consistency.HIGH_AVAILABILITY:
            causes.append(TOPOLOGY_KEY)  # The target is its present part.
        elif before.stable is not None and _loses_majority(before.stable, calculated, topology.nodes):
            return before
        event = max(read.entry(key).revision for key in causes)
        asked = read.entry(zone_key(zone.id, "recovery")).revision
        if settings.consistency is Consistency.HIGH_AVAILABILITY and before.trigger == asked:
            # Once the reset is done, rerun the trigger that it has overwritten or overtaken.
            event = event if before.pending else read.revision
        if before.trigger is None and event <= _oldest(read, zone, partition):
            return before
        try:
            _, after = update_pending(
                before,
                calculated=calculated,
                known_stable=before.stable,
                event_ts=event,
                assignments_ts=event,
                consistency=settings.consistency,
                alive=topology.nodes,
                replaces=settings.adjustment is Adjustment.REPLACE,
            )
        except NoVoters:
            return before
        return after

    def _reduced(self, before: PartitionKeys, calculated: Assignments, revision: int) -> PartitionKeys:
        """Remove the replicas in doubt. If no voter would be left, change nothing: an operator has to decide."""
        assert before.switch_reduce is not None, "somebody is in doubt"
        try:
            _, after = reduce_changed(
                before,
                reduce=before.switch_reduce,
                calculated=calculated,
                event_ts=revision,
                assignments_ts=revision,
            )
        except NoVoters:
            return before
        return after


def _loses_majority(stable: Assignments, target: Assignments, present: frozenset[Node]) -> bool:
    """Whether a majority of the voters is present now, and would not be with this target (zones/A-30)."""
    return _has_majority(stable, present) and not _has_majority(target, present)


def _has_majority(assignments: Assignments, present: frozenset[Node]) -> bool:
    voters = assignments.peers
    return 2 * sum(node in present for node in voters) > len(voters)


def local_descriptor(store: ZoneStore, zone: int) -> ZoneDescriptor | None:
    entries = [store.get(zone_key(zone, "descriptor"))]
    return KeysRead(entries).value(zone_key(zone, "descriptor"), ZoneDescriptor)


def _oldest(read: KeysRead, zone: ZoneDescriptor, partition: int) -> int:
    entry = read.entry(part_key(zone.id, partition, "stable"))
    return entry.revision
