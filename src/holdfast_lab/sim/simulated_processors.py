"""An entry processor on simulated members: it adds one to the value of its entry, after some simulated time."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.processors import EntryChange, ProcessorResult, ProcessorRun
from holdfast.wire.values import from_stored, to_stored
from holdfast_lab.sim.world import Process

LIMIT_MS = 300
LATE = 0.02
"""So many runs may take longer than their limit."""


def count(value: bytes | None) -> ProcessorResult:
    runs = to_stored(runs_in(value) + 1)
    return ProcessorResult(EntryChange.STORE, runs, runs)


def runs_in(value: bytes | None) -> int:
    runs = 0 if value is None else from_stored(value)
    assert isinstance(runs, int), "the entry is a counter"
    return runs


class SimulatedProcessors:
    """Runs the processor of this process, for some simulated time. Implements `engine.ports.ProcessorRunner`."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._random = random.Random(f"{process.world.seed}/processors of {process.name}")

    def run(self, asked: ProcessorRun, done: Callable[[ProcessorResult], None]) -> None:
        process, late = self._process, self._random.random() < LATE
        most_ms = 2 * LIMIT_MS if late else LIMIT_MS // 10
        result = count(asked.value)
        delay_ns = self._random.randint(1, most_ms) * MILLISECOND
        process.world.after(
            delay_ns, lambda: process.whenever_awake(partial(process.step, partial(done, result)))
        )

    def end(self) -> None:
        """A process ends all at once."""
