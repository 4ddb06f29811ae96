"""Durations and failures of requests outside the data lane."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from holdfast.core.model.map_counts import MapCounts
from holdfast.core.model.operations import Done, Op, Outcome, Request, Status
from holdfast.core.model.zone_batches import ZoneBatchDone
from holdfast.observe.latency_histogram import LatencyHistogram

ZONE_BATCH = "zone-batch"
ONE_READ = frozenset({Op.GET, Op.CONTAINS_KEY, Op.ENTRY_VIEW})


def operation_name(op: Op) -> str:
    return op.name.lower().replace("_", "-")


class LaneFigures(Protocol):
    """Counts of the data lane."""

    def figures(self) -> Iterable[tuple[str, Sequence[int], int]]:
        """By operation: requests by duration, and their durations together."""


def latencies_of(times: OperationTimes, tally: LaneFigures) -> dict[str, LatencyHistogram]:
    """Durations by operation, of requests inside and outside the data lane."""
    found = times.latencies()
    for name, counts, sum_ns in tally.figures():
        together = LatencyHistogram()
        together.absorb(counts, sum_ns)
        if (known := found.get(name)) is not None:
            together.absorb(known.counts, known.sum_ns)
        found[name] = together
    return found


class OperationTimes:
    def __init__(self, clock: Callable[[], int]) -> None:
        """`clock`: in nanoseconds."""
        self._clock = clock
        self._by_op: dict[Op, LatencyHistogram] = {}
        self._others: dict[str, LatencyHistogram] = {}
        self._failed: Counter[tuple[Op, Status]] = Counter()
        self.reads = MapCounts()
        """Reads by map, including those of the data lane."""

    def timed(self, request: Request, done: Done) -> Done:
        """Measure a request: returns the callback to use instead of `done`."""
        began_ns, op, clock = self._clock(), request.op, self._clock
        if op in ONE_READ:
            self.reads.add(request.map, 1)
        elif op is Op.GET_ALL:
            self.reads.add(request.map, len(request.items))

        def told(outcome: Outcome) -> None:
            kept = self._by_op.get(op)
            if kept is None:
                kept = self._by_op[op] = LatencyHistogram()
            kept.add(clock() - began_ns)
            if outcome.status is not Status.OK:
                self._failed[op, outcome.status] += 1
            done(outcome)

        return told

    def timing(self, operation: str) -> Callable[[], None]:
        """Measure something that is not a `Request`; call the result at its end."""
        began_ns, clock = self._clock(), self._clock

        def ended() -> None:
            kept = self._others.get(operation)
            if kept is None:
                kept = self._others[operation] = LatencyHistogram()
            kept.add(clock() - began_ns)

        return ended

    def timed_batch(self, done: Callable[[ZoneBatchDone], None]) -> Callable[[ZoneBatchDone], None]:
        ended = self.timing(ZONE_BATCH)

        def told(batch: ZoneBatchDone) -> None:
            ended()
            done(batch)

        return told

    def latencies(self) -> dict[str, LatencyHistogram]:
        """Durations by name of the operation; `zone-batch`: requests of one read buffer for a zone."""
        return {operation_name(op): kept for op, kept in self._by_op.items()} | self._others

    def failures(self) -> dict[tuple[str, str], int]:
        return {
            (operation_name(op), status.name.lower().replace("_", "-")): count
            for (op, status), count in self._failed.items()
        }
