"""An operator that moves a map between a zone and the partitions with a primary, while clients use it."""

from __future__ import annotations

import random
from functools import partial

from holdfast.actions.move_map import MoveMap
from holdfast.core.events import ActionRequested
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.map_moves import MovePhase
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import Process, World
from holdfast_lab.sim.zone_runs import ZONE, ZONED, ZoneOperator

REPEAT_NS = 700 * MILLISECOND
LOOK_NS = 100 * MILLISECOND
CANCELLED = 0.2


class MapMover:
    def __init__(self, world: World, cluster: Cluster, zone: ZoneOperator, until_ns: int) -> None:
        self._world = world
        self._cluster = cluster
        self._zone = zone
        self._until_ns = until_ns
        self._random = random.Random(f"{world.seed}/map mover")
        self._wanted: MoveMap | None = None
        self._seen: dict[int, MovePhase] = {}

    def start(self) -> None:
        draw = self._random
        for _ in range(draw.randint(1, 5)):
            self._world.at(draw.randint(4 * SECOND, max(5 * SECOND, self._until_ns)), self._order)
        self._world.after(LOOK_NS, self._look)

    def _living(self) -> list[Process]:
        return [process for process in self._cluster.living() if process.picture.admitted]

    @property
    def waiting(self) -> bool:
        return any(process.picture.maps.changes.moves for process in self._living())

    def _order(self) -> None:
        living = self._living()
        if not living or not self._zone.created or self._world.now_ns > self._until_ns:
            return
        home = self._random.choice(living).picture.maps.home(ZONED)
        self._wanted = MoveMap(ZONED, "" if home else ZONE, no_zone=bool(home))
        self._repeat()
        if self._random.random() < CANCELLED:
            self._world.after(self._random.randint(1, 3 * SECOND), self._cancel)

    def _cancel(self) -> None:
        self._wanted = MoveMap(ZONED, cancel=True)
        self._repeat()

    def _repeat(self) -> None:
        wanted, living = self._wanted, self._living()
        if wanted is None or self._world.now_ns > self._until_ns + 5 * SECOND:
            return
        if living:
            process = self._random.choice(living)
            self._world.marks.hit("map move ordered")
            process.whenever_awake(
                partial(process.step, partial(process.driver.handle, ActionRequested(wanted)))
            )
            if any(one.picture.maps.changes.moves for one in living) is not wanted.cancel:
                self._wanted = None
        self._world.after(REPEAT_NS, self._repeat)

    def _look(self) -> None:
        for process in self._living():
            for move in process.picture.maps.changes.moves.values():
                before = self._seen.get(move.number)
                self._cluster.map_moves += before is None
                if before is None or before < move.phase:
                    self._seen[move.number] = move.phase
                    self._world.marks.hit(f"map move: {move.phase.name.lower()}")
        self._world.after(LOOK_NS, self._look)
