"""Eviction on a primary: entries go because their map exceeds `max_size` or `max_bytes`.

- primary_backup/V-1: Only the primary evicts, only entries of maps that have `eviction`, and no entry that a client or
  a transaction has locked, or of a map that moves. The eviction is an ordinary REMOVE, so backups, the journal and
  change streams get it like any other.
- primary_backup/V-2: The entries that a read buffer adds are followed by the evictions that make room for them, in the
  same batch. One buffer evicts at most as many entries of a map in a partition as it has added, or `MOST`, and one
  sweep `MOST`; the following sweeps evict the others. Example: members are restarted with half the `max_size`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

from holdfast.config import MOVES_MAP, Settings
from holdfast.core.model.map_counts import RemovedEntries
from holdfast.core.model.operations import EventKind
from holdfast.core.primary_backup.ack_batch import Written
from holdfast.core.store.eviction_sample import sample_of, used_first
from holdfast.core.store.move_marks import marks_in
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.partition_shares import PartitionShares
from holdfast.core.store.replica import MapReplica

MOST: Final = 100
"""Two or three ms of work."""


class EvictingLane(Protocol):
    leading: list[PartitionCopy | None]
    open_records: list[Written]
    open_puts: list[MapReplica]

    def take_out(
        self, copy: PartitionCopy, held: MapReplica, key: bytes, kind: EventKind
    ) -> bytes | None: ...

    def locked(self, copy: PartitionCopy, name: str, key: bytes) -> bool: ...


class PrimaryEvictions:
    def __init__(self, settings: Settings, lane: EvictingLane) -> None:
        self._settings = settings
        self._lane = lane
        self.removed = RemovedEntries()
        self.has_room = False
        """Entries were evicted for what the open buffer has stored."""
        self._shares = PartitionShares(settings, self)
        self.on = False
        """Some map has `eviction`."""
        self.renew()

    def renew(self) -> None:
        """The settings have changed, or a sweep of all partitions begins."""
        self._shares.renew()
        self.on = self._shares.on

    def led_copies(self, name: str) -> list[PartitionCopy]:
        return [copy for copy in self._lane.leading if copy is not None]

    def make_room(self) -> None:
        """For the entries that the open read buffer has stored (primary_backup/V-2): once, also if several methods of
        the lane are called to end it.
        """
        if self.has_room:
            return
        self.has_room = True
        lane = self._lane
        grown = Counter((partition, held.name) for partition, held, _ in lane.open_records if held.evicts)
        for held in lane.open_puts:
            if held.evicts and held.unsent is not None:
                grown[held.unsent.partition, held.name] += held.unsent.count
        for (partition, name), count in sorted(grown.items()):
            copy = lane.leading[partition]
            if copy is not None and name in copy.maps:
                self.evict(copy, copy.maps[name], max(count, MOST))

    def evict(self, copy: PartitionCopy, held: MapReplica, most: int) -> int:
        """Evict entries above the map's share of this partition, at most so many; returns the number."""
        excess = self._shares.excess(held)
        if excess <= 0 or (MOVES_MAP in copy.maps and held.name in marks_in(copy.maps)):
            return 0
        lane, name, state = self._lane, held.name, held.state
        lru = self._settings.map(name).eviction == "lru"
        evicted = 0
        while evicted < min(excess, most):
            keys = sample_of(state, held.counter)
            if copy.locks.closed:
                keys = [key for key in keys if not lane.locked(copy, name, key)]
            if not keys:
                break  # All of the sample are locked; the next write or sweep samples others.
            lane.take_out(copy, held, used_first(state, keys) if lru else keys[0], EventKind.EVICTED)
            evicted += 1
        if evicted:
            self.removed.evicted.add(name, evicted)
        return evicted
