"""A member starts, stops and destroys its replicas of zones as the keys demand.

- zones/A-26: At most `STARTS_AT_ONCE` new groups may be without a leader at a time; the next ones start when these have
  elected one, or after `START_MS`. If a new zone of 271 partitions started all groups at once on slow machines, each
  would miss the heartbeats of the others, and elections would follow elections.
- zones/A-27: At most `LOOKS_AT_ONCE` replicas are examined in one step, so that work for other maps is done in between.
  A tick examines no more than that, in turn; a changed key its partition at once.
- zones/A-22: A replica in doubt is removed from its group first (`switch_reduce`). It joins again, empty, when that is
  done, or when the leader of the group says that the replica is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.core.raft.configuration import Configuration
from holdfast.core.zones.adjusting import LocalCopy, ReplicaDuty, replica_duty
from holdfast.core.zones.assignments import Assignments, Node, PartitionKeys
from holdfast.core.zones.leader_duties import LeaderDuties
from holdfast.core.zones.work_queue import WorkKind, WorkQueue, WorkStep, ZoneWork
from holdfast.core.zones.zone_keys import IDS_KEY, KeysRead, changes_to, part_key, part_keys, partition_keys
from holdfast.core.zones.zone_ports import Part, ZoneGroups, ZoneStore

LOOKS_AT_ONCE: Final = 32
"""See zones/A-27."""
STARTS_AT_ONCE: Final = 32
"""See zones/A-26."""
START_MS: Final = 5_000
"""A new group delays others for at most so long."""


class ReplicaDuties:
    def __init__(
        self, me: Node, store: ZoneStore, groups: ZoneGroups, queue: WorkQueue, duties: LeaderDuties
    ) -> None:
        self._me = me
        self._store = store
        self._groups = groups
        self._queue = queue
        self._duties = duties
        self._starting: dict[Part, int] = {}
        """New groups without a leader -> until when they delay others."""
        self._to_look: dict[Part, None] = {}
        """To be examined, in order (zones/A-27)."""
        self._unsettled: dict[Part, None] = {}
        """Their replica may get another duty without a change of any key; the least recently examined first."""
        self._reported: set[Part] = set()
        """Replicas in doubt that were seen in `switch_reduce`. When they leave it, the group has removed or reset them.
        """

    def on_tick(self) -> None:
        self._starting = {
            part: until_ms
            for part, until_ms in self._starting.items()
            if until_ms > self._queue.now and not self._groups.has_leader(part)
        }
        self.look_at(list(self._unsettled)[:LOOKS_AT_ONCE])

    def doubt(self, work: ZoneWork, step: WorkStep, read: KeysRead) -> None:
        """Remove a replica in doubt from its group, or start it again (zones/A-22)."""
        part = work[1:]
        if not self._groups.in_doubt(part):
            self._queue.forget(work)
            return
        keys = partition_keys(read, *part)
        reduce = keys.switch_reduce or Assignments()
        named = keys.stable is not None and self._me in keys.stable.nodes
        if self._me in reduce.nodes:
            self._reported.add(part)
        elif part in self._reported or not (named or any(self._me in one.nodes for one in keys.pending)):
            self._reported.discard(part)
            self._destroy(part)
            self._queue.forget(work)
            self._look_local(part)
        elif keys.stable is not None:
            after = msgspec.structs.replace(keys, switch_reduce=reduce.with_(Assignments((self._me,))))
            self._queue.write(work, step, read, changes_to(*part, keys, after))

    def _local_duty(
        self, part: Part, keys: PartitionKeys, copy: LocalCopy | None, read: KeysRead
    ) -> ReplicaDuty:
        if part[0] > (read.value(IDS_KEY, int) or 0):
            # This copy of the metastore is older than the zone: missing keys do not mean that it was dropped.
            return ReplicaDuty.NONE if copy is None else ReplicaDuty.RUN
        return replica_duty(
            self._me,
            keys,
            copy,
            stable_revision=read.entry(part_key(*part, "stable")).revision,
            pending_revision=read.entry(part_key(*part, "pending")).revision,
        )

    def _begin_group(self, part: Part, stable: Assignments) -> None:
        """Start a new group if there is a place for one more (zones/A-26)."""
        if len(self._starting) < STARTS_AT_ONCE:
            self._starting[part] = self._queue.now + START_MS
            self._groups.found(
                part, Configuration(frozenset(stable.peers), learners=frozenset(stable.learners))
            )

    @property
    def rests(self) -> bool:
        return not (self._starting or self._unsettled or self._to_look)

    @property
    def has_more(self) -> bool:
        return bool(self._to_look)

    def look_at(self, parts: Iterable[Part]) -> None:
        """Examine the first of these replicas now; `has_more` is true while others wait (zones/A-27)."""
        self._to_look.update(dict.fromkeys(sorted(parts)))
        for part in list(self._to_look)[:LOOKS_AT_ONCE]:
            del self._to_look[part]
            self._look_local(part)

    def _look_local(self, part: Part) -> None:
        read = KeysRead([self._store.get(key) for key in (*part_keys(*part), IDS_KEY)])
        keys = partition_keys(read, *part)
        copy = self._groups.copy(part)
        duty = self._local_duty(part, keys, copy, read)
        if duty is ReplicaDuty.FOUND:
            self._begin_group(part, keys.stable or Assignments())
        elif duty is ReplicaDuty.JOIN or (duty is ReplicaDuty.RUN and copy is not None and not copy.running):
            self._groups.join(part)
        elif duty is ReplicaDuty.RESET:
            if self._groups.in_doubt(part):
                self._groups.destroy(part)  # The reset found no better replica: start it empty.
                copy = None
            if copy is None or not copy.running:
                self._groups.join(part)
            token = read.entry(part_key(*part, "pending")).revision
            self._groups.reset(part, keys.pending[0].peers, token)
        elif duty is ReplicaDuty.STOP and copy is not None and copy.running:
            self._groups.halt(part)
        elif duty is ReplicaDuty.DESTROY:
            self._destroy(part)
        if self._groups.in_doubt(part):
            self._queue.wake((WorkKind.DOUBT, *part))
        stays = duty is ReplicaDuty.RUN and copy is not None and copy.running
        stays &= not keys.pending and keys.stable is not None and self._me in keys.stable.nodes
        self._unsettled.pop(part, None)
        if not stays and duty is not ReplicaDuty.NONE:
            self._unsettled[part] = None

    def _destroy(self, part: Part) -> None:
        self._groups.destroy(part)
        self._starting.pop(part, None)
        self._duties.forget(part)
