"""What does a member do for its replicas of zones' partitions? It starts, stops and destroys them, as the keys say.

- zones/A-26: Only so many groups that begin here are without a leader at a time; the next ones begin, in the order of
  their partitions, when these have one or have waited for long. So a new zone of 271 partitions on members that get
  little of their processors is begun piece by piece: with all groups at once each misses the heartbeats of all others,
  elections follow elections, and nothing else of the members is served meanwhile.
- zones/A-27: Only so many replicas are looked at in one step, the next ones in a step of their own: so what belongs to
  other maps is done in between, however many partitions zones have.
- zones/A-22: A replica in doubt is taken out of its group first (`switch_reduce`), and begins anew when that is done,
  or its group's leader says that it is not in the group.
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
"""At so many replicas of zones is looked in one step (zones/A-27)."""
STARTS_AT_ONCE: Final = 32
"""So many groups that begin here may be without a leader at a time,"""
START_MS: Final = 5_000
"""but each holds others up for no longer than that."""


class ReplicaDuties:
    """The duties of this member towards its own replicas."""

    def __init__(
        self, me: Node, store: ZoneStore, groups: ZoneGroups, queue: WorkQueue, duties: LeaderDuties
    ) -> None:
        self._me = me
        self._store = store
        self._groups = groups
        self._queue = queue
        self._duties = duties
        self._starting: dict[Part, int] = {}
        """Groups that have begun here and have no leader yet: until when others wait for them."""
        self._to_look: dict[Part, None] = {}
        """Partitions whose replica here is to be looked at, in this order (zones/A-27)."""
        self._unsettled: set[Part] = set()
        """Partitions whose replica here may have another duty soon, without any change of a key."""
        self._reported: set[Part] = set()
        """Replicas in doubt here that were seen in `switch_reduce`: when they are there no more the group has been
        without them, or has been reset.
        """

    def on_tick(self) -> None:
        """Look again at what may have another duty by now."""
        self._starting = {
            part: until_ms
            for part, until_ms in self._starting.items()
            if until_ms > self._queue.now and not self._groups.has_leader(part)
        }
        self.look_at(self._unsettled)

    def doubt(self, work: ZoneWork, step: WorkStep, read: KeysRead) -> None:
        """Take a replica in doubt out of its group, or start it again (zones/A-22)."""
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
            self._queue.invoke(work, step, read.guarded(changes_to(*part, keys, after)))

    def _local_duty(
        self, part: Part, keys: PartitionKeys, copy: LocalCopy | None, read: KeysRead
    ) -> ReplicaDuty:
        if part[0] > (read.value(IDS_KEY, int) or 0):
            # What is known here is older than the zone: that it has no keys yet does not say that it was dropped.
            return ReplicaDuty.NONE if copy is None else ReplicaDuty.RUN
        return replica_duty(
            self._me,
            keys,
            copy,
            stable_revision=read.entry(part_key(*part, "stable")).revision,
            pending_revision=read.entry(part_key(*part, "pending")).revision,
        )

    def _begin_group(self, part: Part, stable: Assignments) -> None:
        """Begin a group, or this member's part of it, as soon as there is a place (zones/A-26)."""
        if len(self._starting) < STARTS_AT_ONCE:
            self._starting[part] = self._queue.now + START_MS
            self._groups.found(
                part, Configuration(frozenset(stable.peers), learners=frozenset(stable.learners))
            )

    @property
    def has_more(self) -> bool:
        """Whether some wait to be looked at (zones/A-27)."""
        return bool(self._to_look)

    def look_at(self, parts: Iterable[Part]) -> None:
        """Look at the replicas of these partitions, and of those that wait, some now, the others later (zones/A-27)."""
        self._to_look.update(dict.fromkeys(sorted(parts)))
        for part in list(self._to_look)[:LOOKS_AT_ONCE]:
            del self._to_look[part]
            self._look_local(part)

    def _look_local(self, part: Part) -> None:
        """Do what the keys say about the replica here."""
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
                self._groups.destroy(part)  # Nobody has more: it is given up.
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
        if stays or duty is ReplicaDuty.NONE:
            self._unsettled.discard(part)
        else:
            self._unsettled.add(part)

    def _destroy(self, part: Part) -> None:
        """Nothing of the replica stays, and nothing that its group has told."""
        self._groups.destroy(part)
        self._starting.pop(part, None)
        self._duties.forget(part)
