"""How long requests took that the data lane does not serve, and which failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from holdfast.core.model.operations import Done, Op, Outcome, Request, Status
from holdfast.core.model.zone_batches import ZoneBatchDone
from holdfast.observe.latency_histogram import LatencyHistogram
from holdfast.observe.read_counts import ReadCounts

ZONE_BATCH = "zone-batch"
ONE_READ = frozenset({Op.GET, Op.CONTAINS_KEY, Op.ENTRY_VIEW})


def operation_name(op: Op) -> str:
    """As metrics call it: `put-if-absent`."""
    return op.name.lower().replace("_", "-")


class OperationTimes:
    """Of one member."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """`clock`: in nanoseconds."""
        self._clock = clock
        self._by_op: dict[Op, LatencyHistogram] = {}
        self._others: dict[str, LatencyHistogram] = {}
        self._failed: Counter[tuple[Op, Status]] = Counter()
        self.reads = ReadCounts()
        """How often entries of each map were asked for, by the data lane, too."""

    def timed(self, request: Request, done: Done) -> Done:
        """What is to be called in place of `done`."""
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
        """Something that is no `Request` begins, and is called this; what is answered is to be called at its end."""
        began_ns, clock = self._clock(), self._clock

        def ended() -> None:
            kept = self._others.get(operation)
            if kept is None:
                kept = self._others[operation] = LatencyHistogram()
            kept.add(clock() - began_ns)

        return ended

    def timed_batch(self, done: Callable[[ZoneBatchDone], None]) -> Callable[[ZoneBatchDone], None]:
        """The same of what a read buffer wants of a zone, as one thing."""
        ended = self.timing(ZONE_BATCH)

        def told(batch: ZoneBatchDone) -> None:
            ended()
            done(batch)

        return told

    def latencies(self) -> dict[str, LatencyHistogram]:
        """By name of the operation; `zone-batch`: all that one read buffer wanted of a zone."""
        return {operation_name(op): kept for op, kept in self._by_op.items()} | self._others

    def failures(self) -> dict[tuple[str, str], int]:
        """How many, by name of the operation and what was answered."""
        return {
            (operation_name(op), status.name.lower().replace("_", "-")): count
            for (op, status), count in self._failed.items()
        }
