"""Controller of a member for all zones.

All work is driven by state, not by events: a changed key, a notice of a group or a timer only says which keys to read
again (`work_queue`). The member that leads the metastore's group runs `zone_triggers` and `zone_resets`; the leader of
a zone's group runs `leader_duties`; every member runs `replica_duties`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.metastore.invoke import Invoked, MetastoreEntry
from holdfast.core.raft.raft_state import GroupNotice
from holdfast.core.zones.assignments import Node
from holdfast.core.zones.leader_duties import LeaderDuties
from holdfast.core.zones.replica_duties import ReplicaDuties
from holdfast.core.zones.transitions import LocalReplica
from holdfast.core.zones.work_queue import WorkKind, WorkQueue, WorkStep, ZoneWork
from holdfast.core.zones.zone_keys import TOPOLOGY_KEY, KeysRead, part_of, zone_of
from holdfast.core.zones.zone_ports import Part, ZoneGroups, ZoneStore, ZoneWorld
from holdfast.core.zones.zone_resets import ZoneResets
from holdfast.core.zones.zone_triggers import ZoneTriggers


class ZoneController:
    def __init__(self, me: Node, store: ZoneStore, groups: ZoneGroups, world: ZoneWorld) -> None:
        self.me = me
        self._store = store
        self._groups = groups
        self.queue = WorkQueue(store, groups, world)
        self.resets = ZoneResets(store, world, self.queue)
        self.triggers = ZoneTriggers(store, self.queue, self.resets)
        self.leading = LeaderDuties(groups, self.queue)
        self.replicas = ReplicaDuties(me, store, groups, self.queue, self.leading)

    def begin(self, now_ms: int) -> None:
        """The metastore is here: examine all replicas, also those that an earlier process has left on disk."""
        self.queue.now = now_ms
        parts = {part for part in map(part_of_entry, self._store.scan(b"zones/part/")) if part is not None}
        self.replicas.look_at(parts | set(self._groups.copies()))

    def on_changes(self, now_ms: int, changes: Sequence[tuple[MetastoreEntry, MetastoreEntry]]) -> None:
        self.queue.now = now_ms
        local: set[Part] = set()
        dropped: set[int] = set()
        for _, entry in changes:
            if (part := part_of(entry.key)) is not None:
                local.add(part[:2])
                if part[2] in ("stable", "reduce"):
                    self.queue.wake((WorkKind.TRIGGER, *part[:2]))
                if part[2] in ("pending", "planned", "reduce"):
                    self.queue.wake((WorkKind.GROUP, *part[:2]))
                    self.queue.step((WorkKind.GROUP, *part[:2])).attempts = 0
            elif (zone := zone_of(entry.key)) is not None:
                if zone[1] == "descriptor" and entry.value is None:
                    dropped.add(zone[0])
                self.triggers.wake_zone(*zone)
            elif entry.key == TOPOLOGY_KEY:
                for number in self.triggers.zones():
                    self.triggers.wake_zone(number, "topology")
        self.replicas.look_at(local)
        self.queue.go()
        for number in sorted(dropped):
            self._forget_zone(number)

    def on_notice(self, now_ms: int, part: Part, notice: GroupNotice) -> None:
        self.queue.now = now_ms
        self.leading.on_notice(part, notice)

    def on_tick(self, now_ms: int) -> None:
        """Called about ten times a second while there is work (`rests`), and twice a second otherwise."""
        self.queue.now = now_ms
        self.triggers.on_tick()
        self.replicas.on_tick()
        self.leading.on_tick()
        self.queue.wake_due()
        self.queue.go()

    def on_read(self, ticket: int, entries: Sequence[MetastoreEntry], revision: int) -> None:
        """Take the next step of the work that waited for this answer (zones/A-17)."""
        read = KeysRead(entries, revision)
        for work, step in self.queue.answered(ticket):
            self._run(work, step, read.again())
        self.queue.go()

    def _run(self, work: ZoneWork, step: WorkStep, read: KeysRead) -> None:
        if work[0] is WorkKind.DATA_NODES:
            self.triggers.data_nodes(work, step, read)
        elif work[0] is WorkKind.TRIGGER:
            self.triggers.trigger(work, step, read)
        elif work[0] is WorkKind.DOUBT:
            self.replicas.doubt(work, step, read)
        else:
            self.leading.group(work, step, read)

    def on_invoked(self, ticket: int, invoked: Invoked) -> None:
        found = self.queue.answered(ticket)
        if not invoked.answer:
            self.queue.lost(found)
        else:
            for work, step in found:
                step.alone = False
                if work[0] is WorkKind.DATA_NODES:
                    self.queue.wake(work)  # A timer may still run, and no event will report it.
                elif work[0] is WorkKind.GROUP:
                    self.leading.group_written((work[1], work[2]), step)
        self.queue.go()

    def on_replicas(self, node: Node, zone: int, states: Mapping[int, LocalReplica]) -> None:
        self.resets.on_replicas(node, zone, states)

    @property
    def has_more(self) -> bool:
        """Whether replicas wait to be examined: then call `go_on` in a step of its own (zones/A-27)."""
        return self.replicas.has_more

    @property
    def rests(self) -> bool:
        """Whether no tick could further any work soon."""
        return self.queue.rests and self.replicas.rests and self.leading.rests

    def go_on(self, now_ms: int) -> None:
        self.queue.now = now_ms
        self.replicas.look_at(())

    def _forget_zone(self, number: int) -> None:
        """Forget the work for a dropped zone, but for replicas in doubt."""
        for work in [one for one in self.queue.steps if one[1] == number and one[0] is not WorkKind.DOUBT]:
            self.queue.forget(work)
        self.resets.forget_zone(number)
        self.leading.forget_zone(number)


def part_of_entry(entry: MetastoreEntry) -> Part | None:
    found = part_of(entry.key)
    return None if found is None else found[:2]
