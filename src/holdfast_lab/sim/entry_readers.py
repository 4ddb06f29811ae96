"""A reader of single entries in a simulated run: values, from any member that answers, and entry views."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Sequence
from functools import partial

from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast_lab.check.linearizability import Call
from holdfast_lab.check.reads import Read, judge, judge_versions
from holdfast_lab.sim.calls import name_of, wire_key
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import Process, World

AT_A_TIME = 4
"""Members asked at the same time for one key: one of them may be behind."""
AGAIN = 0.6
"""Probability that the same key is read next, where backups are read: a value that goes back is visible only
between two writes.
"""


class Reading:
    def __init__(
        self,
        world: World,
        cluster: Cluster,
        keys: Sequence[str],
        map_of: Callable[[str], str],
    ) -> None:
        self.world = world
        self.cluster = cluster
        self.keys = keys
        self.map_of = map_of
        self.random = random.Random(f"{world.seed}/reading")
        self.running = True
        self.reads: list[Read] = []
        self._last = keys[0]
        self._again = AGAIN if any(one.read_backups for one in cluster.settings.maps.values()) else 0.0

    def start(self) -> None:
        self.world.after(self.random.randint(SECOND, 2 * SECOND), self._next)

    def _next(self) -> None:
        if not self.running:
            return
        self.world.after(self.random.randint(20 * MILLISECOND, 200 * MILLISECOND), self._next)
        living = self.cluster.living()
        key = self._last
        if not self._again or self.random.random() >= self._again:
            key = self._last = self.random.choice(self.keys)
        op = self.random.choice([Op.GET, Op.GET, Op.ENTRY_VIEW])
        for process in self.random.sample(living, min(len(living), AT_A_TIME)):
            process.whenever_awake(partial(process.step, partial(self._ask, process, key, op)))

    def _partition(self, key: str) -> int:
        return partition_of(wire_key(key), 0, self.cluster.settings.partitions.count)

    def _ask(self, process: Process, key: str, op: Op) -> None:
        start_ns, partition, name = self.world.now_ns, self._partition(key), self.map_of(key)

        def told(outcome: Outcome) -> None:
            if outcome.status is not Status.OK or process.dead:
                return
            view, version = outcome.value, 0
            if isinstance(view, list) and isinstance(view[-1], int):
                version = view[-1]
            self.reads.append(Read(process.name, key, name_of(view), start_ns, self.world.now_ns, version))

        process.driver.execute(Request(op, name, [partition], wire_key(key)), told)

    def problems(self, calls: Sequence[Call], lost: Container[int] = ()) -> list[str]:
        reads = [read for read in self.reads if self._partition(read.key) not in lost]
        return judge(calls, reads) + judge_versions(reads)
