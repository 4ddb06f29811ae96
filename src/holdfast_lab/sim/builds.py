"""Clusters of mixed builds: hosts change between an older and a newer build, and the operator raises the
level.

Choices come from a separate random stream, so that runs with a single build do not change.
"""

from __future__ import annotations

import random
from functools import partial

from holdfast.actions.drain import Drain
from holdfast.actions.upgrade import Upgrade
from holdfast.core.events import ActionRequested
from holdfast.core.model.ids import SECOND
from holdfast.core.model.levels import LOWEST, OF_THIS_BUILD, FeatureLevels
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.harm import Harm
from holdfast_lab.sim.world import Process, World

OLDER = FeatureLevels(LOWEST, LOWEST)
PATIENCE_NS = 2 * SECOND


def builds_drawn(seed: int, hosts: int) -> list[FeatureLevels]:
    draw = random.Random(f"{seed}/builds")
    share = draw.choice([1.0, 1.0, 0.7, 0.3])
    return [OLDER if draw.random() < share else OF_THIS_BUILD for _ in range(hosts)]


class Builds(Harm):
    def __init__(self, seed: int, world: World, cluster: Cluster, until_ns: int) -> None:
        super().__init__(seed, world, cluster, until_ns)
        self.random = random.Random(f"{seed}/builds of hosts")
        self._back = self.random.random() < 0.4
        self._raise_ns = self.random.randint(until_ns // 4, until_ns)

    def start(self) -> None:
        if self.cluster.mixed:
            self.world.after(self.random.randint(SECOND, 3 * SECOND), self._next)
            self.world.after(PATIENCE_NS, self._insist)

    @property
    def level(self) -> int:
        return max((picture.level for picture in self.cluster.pictures()), default=LOWEST)

    def _next(self) -> None:
        if self.world.now_ns >= self.until_ns:
            return
        index = self.random.randrange(len(self.cluster.addresses))
        newer = self.cluster.builds[index] == OLDER
        if newer or (self._back and self.level == LOWEST):
            self._put(index, OF_THIS_BUILD if newer else OLDER)
        self.world.after(self.random.randint(SECOND // 2, 3 * SECOND), self._next)

    def _put(self, index: int, build: FeatureLevels) -> None:
        process = self.world.processes.get(self.cluster.addresses[index])
        if process is None or process.dead:
            self.cluster.builds[index] = build
            return
        if not process.up or not self.cluster.may_die(process):
            return
        self.cluster.builds[index] = build
        self._did("build", f"{process.host}: {build}")
        if process.picture.admitted and self.random.random() < 0.5 and self._may_drain(process):
            process.step(partial(process.driver.handle, ActionRequested(Drain())))
            self._when_dead(process)
        else:
            process.crash()
            self._restart_later(process, self.random.choice([0, SECOND, 4 * SECOND]))

    def _may_drain(self, process: Process) -> bool:
        admitted = [one for one in self.cluster.living() if one.picture.admitted]
        return len(admitted) >= 3 and not self.cluster.could_end_without(process)

    def _when_dead(self, process: Process) -> None:
        if process.dead:
            self._restart_later(process)
        else:
            self.world.after(SECOND, partial(self._when_dead, process))

    def _insist(self) -> None:
        for process in self.cluster.living():
            if (
                process.picture.refusal
                and process.picture.info.levels == OLDER
                and not process.picture.admitted
            ):
                self.cluster.builds[self.cluster.addresses.index(process.address)] = OF_THIS_BUILD
                self.world.log(f"{process.name}: not let in, so it gets the newer build")
                process.crash()
                self._restart_later(process, SECOND)
        living = [process for process in self.cluster.living() if process.picture.admitted]
        if living and self.world.now_ns >= self._raise_ns and self.level < OF_THIS_BUILD.highest:
            process = self.random.choice(living)
            process.whenever_awake(
                lambda: process.step(
                    partial(process.driver.handle, ActionRequested(Upgrade(OF_THIS_BUILD.highest)))
                )
            )
        if self.level > LOWEST:
            self.world.marks.hit("level raised")
        self.world.after(PATIENCE_NS, self._insist)
