"""Eviction in the partitions of a group: entries go because their map exceeds `max_size` or `max_bytes`.

- raft_partition/E-1: The leader chooses the entries, and proposes an ordinary EVICT of each, so all replicas remove the
  same ones. It chooses none that a transaction has locked, and none of a map that moves. Only one such proposal is on
  its way, so no excess is counted twice.

Reads are not in the log, except of entries with a maximum idle time. So in a zone `lru` means: the entry that was
written longest ago.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from holdfast.config import MOVES_MAP
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.zone_batches import ZoneRequests, ZoneWrites
from holdfast.core.raft_partition.leader_locks import LeaderLocks
from holdfast.core.raft_partition.partition_commands import ZoneCommand
from holdfast.core.raft_partition.proposals import Proposals
from holdfast.core.raft_partition.state_machine import StateMachine
from holdfast.core.raft_partition.zone_replicas import ZoneReplicas
from holdfast.core.store.eviction_sample import sample_of, used_first
from holdfast.core.store.move_marks import marks_in
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica

MOST: Final = 50
"""Entries in one proposal."""
_STRIDE: Final = 1 << 20
"""Between the numbers of two samples of one proposal."""


class LeaderEvictions:
    def __init__(
        self, zone: ZoneReplicas, state: StateMachine, proposals: Proposals, locks: LeaderLocks
    ) -> None:
        self._zone = zone
        self._state = state
        self._proposals = proposals
        self._locks = locks
        self._pending = False

    def make_room(self, command: ZoneCommand) -> None:
        """For what this command has added. The sweeps look at all maps."""
        for part in command.parts:
            if isinstance(part, ZoneWrites):
                partition = part.partition if part.partition >= 0 else next(iter(self._state.copies))
                self._look(partition, part.writes[0][0])
            elif isinstance(part, ZoneRequests):
                for request in part.requests:
                    self._look(request.partitions[0], request.map)

    def sweep(self) -> None:
        for partition, copy in self._state.copies.items():
            for name in copy.maps:
                self._look(partition, name)

    def _look(self, partition: int, name: str) -> None:
        if self._pending or not self._zone.settings.map(name).evicts:
            return
        copy = self._state.copies[partition]
        held = copy.maps.get(name)
        if held is None or (excess := self._zone.shares.excess(held)) <= 0:
            return
        if MOVES_MAP in copy.maps and name in marks_in(copy.maps):
            return
        if requests := self._chosen(copy, held, min(excess, MOST)):
            self._pending = True
            self._proposals.change([ZoneRequests(requests)], partial(self._count, name))

    def _chosen(self, copy: PartitionCopy, held: MapReplica, count: int) -> list[Request]:
        found: dict[bytes, Request] = {}
        lru = self._zone.settings.map(held.name).eviction == "lru"
        for at in range(count):
            sampled = sample_of(held.state, held.counter + at * _STRIDE)
            keys = [
                key
                for key in sampled
                if key not in found and self._locks.wait_of(_evict(copy, held, key)) is None
            ]
            if keys:
                key = used_first(held.state, keys) if lru else keys[0]
                found[key] = _evict(copy, held, key)
        return list(found.values())

    def _count(self, name: str, outcome: Outcome) -> None:
        self._pending = False
        if outcome.status is Status.OK and isinstance(outcome.value, list):
            self._zone.removed.evicted.add(name, outcome.value.count(True))


def _evict(copy: PartitionCopy, held: MapReplica, key: bytes) -> Request:
    return Request(Op.EVICT, held.name, [copy.partition], key=key)
