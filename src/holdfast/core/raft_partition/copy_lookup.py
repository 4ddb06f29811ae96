"""Finds the copy of a client partition that has a map, whichever engine replicates it.

A client partition may have two copies on one member: one for maps with a primary, and one for a zone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.core.model.operations import Op, Outcome, Request
from holdfast.core.model.partition_table import Assignment
from holdfast.core.outbox import Outbox
from holdfast.core.raft_partition.leader_routing import LeaderRouting
from holdfast.core.raft_partition.map_homes import ZoneEntries
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast.core.raft_partition.zone_replicas import SharedWithEngineOne
from holdfast.core.store.move_marks import is_closed
from holdfast.core.store.partition_copy import PartitionCopy


class FoundCopy(NamedTuple):
    copy: PartitionCopy
    now_ns: int
    """By which its entries expire: the member's clock, or the calendar in a zone."""
    term: int = 0
    """In which this member serves it; 0: it does not."""
    group: str = ""
    """As in `EntryEvent`."""


class ZoneCopy(NamedTuple):
    copy: PartitionCopy
    leads: bool


class CopyLookup:
    def __init__(self, out: Outbox, local: SharedWithEngineOne, zones: LeaderRouting) -> None:
        self._out = out
        self._local = local
        self._zones = zones

    def led(self, name: str, partition: int) -> FoundCopy | None:
        """None: another member serves it.

        A leader has applied all that earlier leaders acknowledged. But it may have been deposed without knowing: what
        must not be stale waits for a confirmation (`ZoneBatch.reads`).
        """
        if not self._zones.homes.houses(name):
            found = self.led_in("", partition)
        else:
            replica = self._zones.led_replica(name, partition)
            found = _of(replica, partition) if replica is not None else None
        return found if found is not None and not is_closed(found.copy.maps, name) else None

    def led_in(self, engine: str, partition: int) -> FoundCopy | None:
        """`engine`: a zone, or empty: with a primary. Also for closed maps."""
        if not engine:
            copy = self._local.cuts.lane.leading[partition]
            return FoundCopy(copy, self._out.now_ns, copy.term) if copy is not None else None
        replica = self._zones.led_in(engine, partition)
        return _of(replica, partition) if replica is not None else None

    def led_everywhere(self) -> Iterator[tuple[str, PartitionCopy]]:
        for copy in self._local.cuts.lane.leading:
            if copy is not None:
                yield "", copy
        for zone, replica in self._zones.led_replicas():
            for copy in replica.state.copies.values():
                yield zone, copy

    def held(self, name: str, partition: int) -> FoundCopy | None:
        """Whatever its role; None: this member has none."""
        if not self._zones.homes.houses(name):
            copy = self._local.held.get(partition)
            return FoundCopy(copy, self._out.now_ns) if copy is not None else None
        replica = self._zones.replica(name, partition)
        return _of(replica, partition) if replica is not None else None

    def held_in(self, engine: str, partition: int) -> FoundCopy | None:
        """The copy of an engine on this member, whatever its role."""
        if not engine:
            copy = self._local.held.get(partition)
            return FoundCopy(copy, self._out.now_ns) if copy is not None else None
        replica = self._zones.replica_in(engine, partition)
        return _of(replica, partition) if replica is not None else None

    def outside_zones(self, partition: int) -> PartitionCopy | None:
        """The copy of all maps and services that live in no zone."""
        return self._local.held.get(partition)

    def in_zone(self, name: str) -> bool:
        return self._zones.homes.houses(name)

    def leaders(self, name: str) -> Sequence[Assignment] | None:
        """The leaders of the map's partitions, with their terms as versions. None: the map lives in no zone that is
        known here.
        """
        entries = self._zones.entries(name)
        return entries.leaders if entries is not None else None

    def lacks_zone(self, name: str) -> bool:
        """Whether the map lives in a zone that cannot serve it: there is none, or it has other partitions."""
        request = Request(Op.SIZE, name, [])
        return self._zones.homes.holds(request) and isinstance(self._zones.homes.find(request), Outcome)

    def zone_entries(self, name: str) -> ZoneEntries | None:
        """The entries for direct reads and writes of sessions; None: the map lives in no zone that is known here."""
        return self._zones.entries(name)

    def in_zones(self) -> Iterator[ZoneCopy]:
        for replica in self._zones.replicas():
            for copy in replica.state.copies.values():
                yield ZoneCopy(copy, replica.leads)


def _of(replica: ZonePartition, partition: int) -> FoundCopy:
    return FoundCopy(replica.state.copies[partition], replica.now_ns(), replica.term, replica.group)
