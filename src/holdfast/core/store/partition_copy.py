"""One member's copy of one partition: its replicas of maps and services."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from holdfast.config import REQUESTS_MAP, TRANSACTIONS_MAP
from holdfast.core.model.journal_entries import MapSnapshot
from holdfast.core.model.object_names import is_service
from holdfast.core.model.records import Change, Record
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.store.entry_mapping import NewEntries
from holdfast.core.store.key_locks import KeyLocks
from holdfast.core.store.replica import AnyReplica, MapReplica, ServiceReplica, map_replica, service_replica
from holdfast.core.store.request_ids import KEPT, Remembered
from holdfast.core.store.service_state import WrittenState


class PartitionCopy:
    __slots__ = (
        "_entries", "_moved", "epoch", "forgotten_to", "locks", "maps", "partition", "requests", "services", "term",
    )  # fmt: skip

    def __init__(
        self, partition: int, epoch: int, request_ids: int = KEPT, entries: NewEntries = dict
    ) -> None:
        """`request_ids`: how many it remembers. `entries`: makes the mapping of a map's entries."""
        self._entries = entries
        self.partition = partition
        self.epoch = epoch
        """Higher after the partition began again empty."""
        self.term = 0
        """On a primary: version of the assignment with which it became primary."""
        self.maps: dict[str, MapReplica] = {}
        self.locks = KeyLocks(self.maps)
        self.services: dict[str, ServiceReplica] = {}
        """Apart from the maps, so that no client's map can have the name of a service."""
        self.requests = Remembered(request_ids)
        self._moved: dict[str, tuple[int, Remembered]] = {}
        """Decoded entries of `REQUESTS_MAP`, with the update counter by which they were read."""
        self.forgotten_to = 0
        """Highest update counter of any map that was forgotten here; new maps begin above it (store/R-1)."""

    def lead(self, term: int) -> None:
        """Become the copy of a primary, with the locks that the former one has left (store/K-1)."""
        self.term = term
        for held in self:
            held.enter(term)
        kept = self.maps.get(TRANSACTIONS_MAP)
        self.locks.begin_restoring(kept.state.entries if kept is not None else {})
        self.locks.find_map_locks()

    def follow(self) -> None:
        """Be the copy of a primary no more."""
        self.term = 0
        self.locks.clear()

    def find(self, record: Record) -> AnyReplica | None:
        return (self.services if record.change is Change.CALL else self.maps).get(record.map)

    def called(self, name: str) -> AnyReplica | None:
        return self.maps.get(name) or self.services.get(name)

    def read(self, taken: MapSnapshot, at_ns: int) -> AnyReplica:
        """A service stays as it was written until it is opened."""
        assert self.called(taken.name) is None, "a checkpoint has each map once"
        held = self.written(taken.name) if is_service(taken.name) else self.open(taken.name)
        held.updates = UpdateCounter.decode(taken.counter)
        held.lineage = [(term, start) for term, start in taken.lineage]
        held.state.read_from(taken, at_ns)
        return held

    def written(self, name: str) -> ServiceReplica:
        found = self.services.get(name)
        if found is None:
            found = self.services[name] = service_replica(name, WrittenState())
        return found

    def open(self, name: str) -> MapReplica:
        found = self.maps.get(name)
        if found is None:
            found = self.maps[name] = map_replica(name, self._entries)
        return found

    def forget(self, name: str) -> None:
        """When the map is opened again, its updates are numbered from where this one ended."""
        held = self.maps.pop(name)
        self.forgotten_to = max(self.forgotten_to, held.updates.hwm)

    def applied(self, request_id: bytes, name: str) -> Remembered | None:
        """Where the request on the map is remembered, here or by the source of a move (model/M-5); None: nowhere."""
        if self.requests.knows(request_id):
            return self.requests
        moved = self._moved_here(name)
        return moved if moved is not None and moved.knows(request_id) else None

    def _moved_here(self, name: str) -> Remembered | None:
        held = self.maps.get(REQUESTS_MAP)
        if held is None or (kept := held.state.entries.get(name.encode())) is None:
            self._moved.pop(name, None)
            return None
        counter, found = self._moved.get(name, (-1, self.requests))
        if counter != held.updates.hwm:
            found = Remembered(self.requests.most)
            found.merge(kept)
            self._moved[name] = (held.updates.hwm, found)
        return found

    def requests_of(self, name: str) -> bytes:
        """Applied requests for the next place of the map (`Remembered.encode`)."""
        moved = self._moved_here(name)
        if moved is None:
            return self.requests.encode()
        both = Remembered(self.requests.most)
        both.merge(self.requests.encode())
        both.merge(moved.encode())
        return both.encode()

    def counters(self) -> list[tuple[str, int, int]]:
        """Name, low watermark and its term of each map and service with updates, by name."""
        return sorted((held.name, held.counter, held.term) for held in self if held.counter)

    def used(self, now_ns: int) -> None:
        """The copy of a new primary: entries with a maximum idle time count as used now."""
        for held in self:
            held.state.all_used(now_ns)

    def entry_count(self) -> int:
        return sum(len(held.state.entries) for held in self.maps.values())

    def __iter__(self) -> Iterator[AnyReplica]:
        return chain(self.maps.values(), self.services.values())
