"""One member's copy of one partition: the replicas of the maps and of the services that it holds.

A primary changes entries through its lane; each change is a *record* that its backups apply, in the order of the
counter.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from holdfast.core.model.journal_entries import MapSnapshot
from holdfast.core.model.object_names import is_service
from holdfast.core.model.records import Change, Record
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.store.entry_mapping import NewEntries
from holdfast.core.store.replica import AnyReplica, MapReplica, ServiceReplica, map_replica, service_replica
from holdfast.core.store.request_ids import KEPT, Remembered
from holdfast.core.store.service_state import WrittenState


class PartitionCopy:
    """Everything one member holds of one partition."""

    __slots__ = ("_entries", "epoch", "forgotten_to", "maps", "partition", "requests", "services", "term")

    def __init__(
        self, partition: int, epoch: int, request_ids: int = KEPT, entries: NewEntries = dict
    ) -> None:
        """`request_ids`: how many of the last requests it remembers. `entries`: makes what maps keep entries in."""
        self._entries = entries
        self.partition = partition
        self.epoch = epoch
        """Which history the content belongs to: a partition that was declared lost and began anew has a higher one."""
        self.term = 0
        """On a primary: the version of the row with which it took office."""
        self.maps: dict[str, MapReplica] = {}
        self.services: dict[str, ServiceReplica] = {}
        """Apart from the maps, so that no client's map can have the name of a service."""
        self.requests = Remembered(request_ids)
        self.forgotten_to = 0
        """The highest update counter of any map that was forgotten here: maps begin after it (store/R-1)."""

    def find(self, record: Record) -> AnyReplica | None:
        """What the record is of: a map's replica or a service's, if it is held."""
        return (self.services if record.change is Change.CALL else self.maps).get(record.map)

    def called(self, name: str) -> AnyReplica | None:
        """The replica of this name: names of services are nobody else's."""
        return self.maps.get(name) or self.services.get(name)

    def read(self, taken: MapSnapshot, at_ns: int) -> AnyReplica:
        """Hold what was written down of a map or service at this moment. A service is as it was written, until somebody
        opens it.
        """
        assert self.called(taken.name) is None, "a checkpoint tells of each once"
        held = self.written(taken.name) if is_service(taken.name) else self.open(taken.name)
        held.updates = UpdateCounter.decode(taken.counter)
        held.lineage = [(term, start) for term, start in taken.lineage]
        held.state.read_from(taken, at_ns)
        return held

    def written(self, name: str) -> ServiceReplica:
        """What was written down of a service, made empty on first touch."""
        found = self.services.get(name)
        if found is None:
            found = self.services[name] = service_replica(name, WrittenState())
        return found

    def open(self, name: str) -> MapReplica:
        """The map's share of this partition, made empty on first touch."""
        found = self.maps.get(name)
        if found is None:
            found = self.maps[name] = map_replica(name, self._entries)
        return found

    def forget(self, name: str) -> None:
        """Hold nothing of this map any more. Whoever opens it next numbers its updates from where this one ended."""
        held = self.maps.pop(name)
        self.forgotten_to = max(self.forgotten_to, held.updates.highest_applied)

    def counters(self) -> list[tuple[str, int, int]]:
        """Low watermark and its term, of each map and service that was ever written here, sorted by name."""
        return sorted((held.name, held.counter, held.term) for held in self if held.counter)

    def used(self, now_ns: int) -> None:
        """This copy is the primary's from now on: whoever has been idle counts as used, and what has ended is found."""
        for held in self:
            held.state.all_used(now_ns)

    def entry_count(self) -> int:
        """Entries of all maps together."""
        return sum(len(held.state.entries) for held in self.maps.values())

    def __iter__(self) -> Iterator[AnyReplica]:
        """Every map's share of this partition, then every service's."""
        return chain(self.maps.values(), self.services.values())
