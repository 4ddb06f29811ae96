"""Base of all faults: choice of victims, counts, and the end of temporary faults."""

from __future__ import annotations

import random
from collections.abc import Callable

from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.marks import FAULT, MARKS
from holdfast_lab.sim.world import Process, World


class Harm:
    def __init__(self, seed: int, world: World, cluster: Cluster, until_ns: int) -> None:
        self.random = random.Random(f"{seed}/faults")
        self.world = world
        self.cluster = cluster
        self.until_ns = until_ns
        self.over = False
        """After the end of faults, delayed ones strike no more."""
        self.counts: dict[str, int] = {}
        self._migrations_before: int | None = None
        self._migrations_after = 0

    @property
    def migrations(self) -> int:
        return self._migrations_after - (self._migrations_before or 0)

    def _did(self, kind: str, what: str) -> None:
        if self._migrations_before is None:
            self._migrations_before = self.cluster.migrations()
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if FAULT + kind in MARKS:
            self.world.marks.hit(FAULT + kind)
        self.world.log(f"FAULT {kind}: {what}")

    def _for_a_while(self, undo: Callable[[], None], length_ns: int | None = None) -> None:
        if length_ns is None:
            length_ns = self.random.choice([200 * MILLISECOND, SECOND, 5 * SECOND, 10 * SECOND])
        self.world.at(min(self.world.now_ns + length_ns, self.until_ns), undo)

    def _victim(self, *, disk_too: bool = False) -> Process | None:
        living = self.cluster.living()
        if len(living) < 2:
            return None
        process = self.random.choice(living)
        return process if self.cluster.may_die(process, disk_too=disk_too) else None

    def _die(self, process: Process) -> None:
        process.crash()

    def _restart_later(self, process: Process, delay_ns: int | None = None) -> None:
        if delay_ns is None:
            delay_ns = self.random.randint(200 * MILLISECOND, 6 * SECOND)
        index = self.cluster.addresses.index(process.address)

        def again() -> None:
            if self.cluster.is_free(index):
                self.cluster.start(index)

        self.world.after(delay_ns, again)

    def _kill(self, process: Process | None, kind: str) -> None:
        if process is not None and not process.dead and not self.over and self.cluster.may_die(process):
            self._did(kind, process.name)
            self._die(process)
            self._restart_later(process)
