"""Clients with near caches in a simulated run, and the entries that they must not keep.

In every second seed from 100 on two clients read some keys of one primary-copy map repeatedly, and two those of
the map in a zone, which in some runs moves; one of each two compares its numbers with those of the members. At
rest, cached entries must equal the map.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.wire.hazelcast.refusals import UNSUPPORTED
from holdfast_lab.check.cached_entries import Kept, judge_kept
from holdfast_lab.sim.clients.near_cache_client import NearCacheClient
from holdfast_lab.sim.clients.simulated_doors import Doors
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.shape import KEPT_SEEDS
from holdfast_lab.sim.world import World
from holdfast_lab.sim.zone_runs import ZONED

REPAIR_NS = 7 * SECOND
KEYS = 10
"""Few, so that each key is read often."""


class NearCaches:
    def __init__(
        self, world: World, cluster: Cluster, doors: Doors, keys: Mapping[str, Sequence[str]]
    ) -> None:
        self.world = world
        self.cluster = cluster
        self.random = random.Random(f"{world.seed}/near caches")
        self.running = True
        self.clients: list[NearCacheClient] = []
        self._keys = keys
        self.hits = 0
        self._kept: list[tuple[str, list[Kept]]] = []
        if world.seed < KEPT_SEEDS or world.seed % 2:
            return  # Near caches take up to a fourth of a run's time.
        names = [self.random.choice(sorted(keys.keys() - {ZONED}))]
        for name in names + sorted(keys.keys() & {ZONED}):
            for repair_ns in (0, REPAIR_NS):
                self._add(doors, name, repair_ns)

    def _add(self, doors: Doors, map_name: str, repair_ns: int) -> None:
        name = f"near cache {len(self.clients)}"
        draw = random.Random(f"{self.world.seed}/{name}")
        self.clients.append(NearCacheClient(name, self.world, doors, draw, map_name, repair_ns))

    def start(self) -> None:
        for client in self.clients:
            client.start()
        if self.clients:
            self._read_next()

    def _read_next(self) -> None:
        if not self.running:
            return
        self.world.after(self.random.randint(30, 120) * MILLISECOND, self._read_next)
        for client in self.clients:
            self.hits += client.read(self.random.choice(self._keys[client.map][:KEYS]))

    def pause(self) -> None:
        """Stop reading; invalidations still arrive, and connections break no more."""
        self.running = False
        for client in self.clients:
            client.calm = True

    def end(self) -> None:
        self.pause()
        for client in self.clients:
            client.close()

    @property
    def invalidated(self) -> int:
        return sum(client.invalidated for client in self.clients)

    def look(self) -> None:
        if self.clients:
            self.world.run_until(self.world.now_ns + SECOND)
        self._kept = [(client.name, client.kept) for client in self.clients]

    def problems(self, final: Mapping[str, str | None]) -> list[str]:
        problems = [problem for client in self.clients for problem in client.problems]
        for name, kept in self._kept:
            problems += judge_kept(name, kept, final)
        for client in self.clients:
            # At an old feature level members reject them.
            old_level = client.map == ZONED and self.cluster.mixed
            if client.refusals.keys() - ({UNSUPPORTED.number} if old_level else set()):
                problems.append(
                    f"{client.name} of {client.map}: fed by {client.fed} members, "
                    f"rejected with the codes {dict(client.refusals)}"
                )
        return problems
