"""Members that have little or no memory for a while."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Protocol

from holdfast.core.events import MemoryRoom
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.views import Room
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import Process, World


class ForAWhile(Protocol):
    """Calls a function after a time, or at the end of the faults."""

    def __call__(self, undo: Callable[[], None], length_ns: int, /) -> None: ...


class MemoryFaults:
    """Faults with a random stream of their own, so that runs without them do not change."""

    def __init__(
        self,
        seed: int,
        world: World,
        cluster: Cluster,
        until_ns: int,
        did: Callable[[str, str], None],
        for_a_while: ForAWhile,
    ) -> None:
        self._random = random.Random(f"{seed}/memory")
        self._world = world
        self._cluster = cluster
        self._until_ns = until_ns
        self._did = did
        self._for_a_while = for_a_while

    def start(self) -> None:
        if self._world.now_ns >= self._until_ns:
            return
        draw = self._random
        living = self._cluster.living()
        if living:
            tight = (
                living
                if draw.random() < 0.2
                else draw.sample(living, min(len(living), draw.choice([1, 1, 2])))
            )
            for process in tight:
                _set_room(process, draw.choice([Room.LITTLE, Room.NONE]))
            self._did("memory", ", ".join(process.name for process in tight))
            length_ns = draw.choice([50 * MILLISECOND, SECOND, 4 * SECOND])
            self._for_a_while(partial(self._ease, tight), length_ns)
        self._world.after(draw.randint(200 * MILLISECOND, 4 * SECOND), self.start)

    def _ease(self, tight: list[Process]) -> None:
        for process in tight:
            _set_room(process, self._random.choice([Room.PLENTY, Room.PLENTY, Room.LITTLE]))
            self._for_a_while(partial(_set_room, process, Room.PLENTY), SECOND)

    def end(self) -> None:
        for process in self._cluster.living():
            _set_room(process, Room.PLENTY)


def _set_room(process: Process, room: Room) -> None:
    if not process.dead:
        process.step(partial(process.driver.handle, MemoryRoom(room)))
