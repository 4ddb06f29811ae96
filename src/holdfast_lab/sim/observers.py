"""Observers of a simulated run (listeners, near caches, readers), judged against the clients' calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from holdfast.core.model.keys import partition_of
from holdfast_lab.check.linearizability import Call
from holdfast_lab.sim.calls import Knowledge, wire_key
from holdfast_lab.sim.clients.simulated_doors import Doors
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.cutting import Cutter
from holdfast_lab.sim.entry_readers import Reading
from holdfast_lab.sim.lifetimes import Lifetimes
from holdfast_lab.sim.listening import Listeners
from holdfast_lab.sim.near_caching import NearCaches
from holdfast_lab.sim.steady import Offices, ZoneOffices
from holdfast_lab.sim.stream_readers import Reader, ZoneReader
from holdfast_lab.sim.transacting import TOGETHER, ZONED_LISTS, Applications
from holdfast_lab.sim.workload import DEEP, MAP, SWEPT, Keys, map_of
from holdfast_lab.sim.world import World
from holdfast_lab.sim.zone_runs import ZONED

READ_KEYS = 8


class Observers:
    def __init__(
        self,
        world: World,
        cluster: Cluster,
        keys: Keys,
        knowledge: Knowledge,
        doors: Doors,
        *,
        stream: bool = True,
        transactions: bool = False,
        lifetimes: bool = False,
    ) -> None:
        """`stream`: change streams are durable. `transactions`: applications run some. `lifetimes`: entries
        with a time to live are read before and after restarts.
        """
        self.cluster = cluster
        settings = cluster.settings
        of_map = partial(map_of, settings=settings)
        hot = [*keys.hot, *keys.timed[:4]]
        listened: dict[str, list[str]] = {}
        for key in [*hot, *keys.swept, *keys.zoned]:
            listened.setdefault(of_map(key), []).append(key)
        self.offices = Offices(world, cluster)
        self.zone_offices = ZoneOffices(world, cluster, ZONED) if keys.zoned else None
        self.listeners = Listeners(world, cluster, listened, self._offices_of)
        self.near_caches = NearCaches(world, cluster, doors, listened)
        self.reader = Reader(world, cluster, MAP, of_map)
        self.zone_reader = ZoneReader(world, cluster, ZONED, of_map, doors) if keys.zoned else None
        read = [*keys.hot[:READ_KEYS], *keys.timed[:2]]
        self.reading = Reading(world, cluster, read, of_map)
        maps = [MAP, SWEPT, *([DEEP] if DEEP in settings.maps else [])]
        self.cutter = Cutter(world, cluster, maps, knowledge.calls.append, zoned=ZONED if keys.zoned else "")
        self.lifetimes = Lifetimes(
            world, cluster, "tz" if keys.zoned else "t", of_map, knowledge.calls.append
        )
        others = [wire for wire in keys.hot if of_map(wire) == MAP] or keys.hot
        self.applications = (
            Applications(world, cluster, others, MAP, together=TOGETHER) if transactions else None
        )
        self._map_of = of_map
        self._stream = stream
        self._lifetimes = lifetimes

    def _offices_of(self, map_name: str) -> Offices:
        return self.zone_offices if map_name == ZONED and self.zone_offices is not None else self.offices

    def start(self) -> None:
        self.offices.start()
        if self.zone_offices is not None:
            self.zone_offices.start()
        self.listeners.start()
        self.near_caches.start()
        self.reading.start()
        self.cutter.start()
        if self._lifetimes:
            self.lifetimes.start()
        if self.applications is not None:
            self.applications.start()
        if self._stream:
            self.reader.start()
        if self.zone_reader is not None:
            self.zone_reader.start()

    def pause(self) -> None:
        if self.applications is not None:
            self.applications.pause()
        self.near_caches.pause()
        self.reading.running = self.cutter.running = self.lifetimes.running = False

    def end(self) -> None:
        self.pause()
        self.near_caches.end()
        self.offices.running = self.listeners.running = False
        if self.zone_offices is not None:
            self.zone_offices.running = False
        for reader in self._readers:
            reader.end()

    @property
    def _readers(self) -> list[Reader]:
        return [self.reader, *([self.zone_reader] if self.zone_reader is not None else [])]

    @property
    def caught_up(self) -> bool:
        return all(reader.caught_up for reader in self._readers)

    def look(self) -> None:
        if self.applications is not None:
            self.applications.look()

    def problems(self, calls: Sequence[Call], final: Mapping[str, str | None]) -> list[str]:
        """Errors in the observations. `final`: values of keys at the end of the change stream; empty if it
        was not reached.
        """
        lost = self._lost(MAP)
        count = self.cluster.settings.partitions.count
        kept = calls
        if lost or self.cluster.zone_lost:
            kept = [
                call
                for call in calls
                if partition_of(wire_key(call.key), 0, count) not in self._lost(self._map_of(call.key))
            ]
        return [
            *self.listeners.problems(kept, self._map_of, self._lost),
            *self.near_caches.problems(final),
            *self.reading.problems(kept, lost),
            *self.cutter.found,
            *(problem for reader in self._readers for problem in reader.judge(calls, final)),
            *(self._transaction_problems(lost)),
        ]

    def _transaction_problems(self, lost: set[int]) -> list[str]:
        if self.applications is None:
            return []
        in_zone = self._lost(ZONED) if ZONED_LISTS in self.cluster.settings.maps else set()
        return self.applications.problems(lost | in_zone)

    def _lost(self, name: str) -> set[int]:
        lost = self.cluster.zone_lost if name == ZONED else self.cluster.lost
        return {partition for partition, _ in lost}

    @property
    def figures(self) -> dict[str, int]:
        return {
            "events_heard": self.listeners.heard,
            **self._zone_figures(),
            "near_cache_hits": self.near_caches.hits,
            "near_cache_invalidations": self.near_caches.invalidated,
            "changes_told": len(self.reader.told),
            "cuts": self.cutter.cuts,
            "cuts_read": self.cutter.reads,
            "lifetimes_seen": len(self.lifetimes.seen),
            "reads_observed": len(self.reading.reads),
            "transactions": len(self.applications.history) if self.applications is not None else 0,
        }

    def _zone_figures(self) -> dict[str, int]:
        if self.zone_offices is None:
            return {}
        registrations = [one for one in self.listeners.registrations if one.map == ZONED]
        return {
            "zone_events_heard": sum(len(one.listening.heard) for one in registrations),
            "zone_changes_told": len(self.zone_reader.told) if self.zone_reader is not None else 0,
        }
