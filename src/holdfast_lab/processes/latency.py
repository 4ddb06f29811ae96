"""Durations of operations, by the state of the cluster.

A client records due time and duration of each operation; the controller of the cluster records the spans of
its actions. An operation counts for the gravest span that it touches: one that was sent at rest and then
waited for a crash counts for the crash.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

REST = "at rest"
PROCESSES = "processes start and end"
MOVEMENT = "during movement"
CRASH = "around crashes"
PHASES = (REST, PROCESSES, MOVEMENT, CRASH)
"""From the least grave to the gravest."""

WRITE, OK, MAP_SHIFT = 1, 2, 2


class Operation(NamedTuple):
    due_s: float
    """Scheduled time by the machine's monotonic clock."""
    took_s: float
    """Time from then until the answer."""
    writes: bool
    done: bool
    map: int


class Log:
    """Operations of one client: seventeen bytes each, in memory and in a file."""

    def __init__(self) -> None:
        self._due = array("d")
        self._took = array("d")
        self._flags = array("B")

    def add(self, operation: Operation) -> None:
        self._due.append(operation.due_s)
        self._took.append(operation.took_s)
        self._flags.append(
            (WRITE if operation.writes else 0) | (OK if operation.done else 0) | operation.map << MAP_SHIFT
        )

    def __len__(self) -> int:
        return len(self._flags)

    def __iter__(self) -> Iterator[Operation]:
        for due_s, took_s, flags in zip(self._due, self._took, self._flags, strict=True):
            yield Operation(due_s, took_s, bool(flags & WRITE), bool(flags & OK), flags >> MAP_SHIFT)

    def save(self, path: Path) -> None:
        with path.open("wb") as out:
            out.write(len(self).to_bytes(8, sys.byteorder))
            for column in (self._due, self._took, self._flags):
                column.tofile(out)

    @classmethod
    def load(cls, path: Path) -> Log:
        """Raises EOFError if the file is incomplete."""
        log = cls()
        with path.open("rb") as file:
            count = int.from_bytes(file.read(8), sys.byteorder)
            for column in (log._due, log._took, log._flags):
                column.fromfile(file, count)
        return log


@dataclass(slots=True)
class Span:
    phase: str
    begin_s: float
    end_s: float
    what: str = ""


@dataclass(slots=True)
class Summary:
    operations: int = 0
    errors: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    p999_ms: float = 0.0
    max_ms: float = 0.0

    @classmethod
    def of(cls, took_s: Sequence[float], errors: int) -> Summary:
        if not took_s:
            return cls()
        ordered = sorted(took_s)
        points = [1000 * ordered[int(q * (len(ordered) - 1))] for q in (0.5, 0.99, 0.999, 1.0)]
        return cls(len(ordered), errors, *points)


@dataclass(slots=True)
class Judged:
    phases: dict[str, Summary]
    maps: dict[str, dict[str, Summary]]
    slowest: list[dict[str, object]] = field(default_factory=list)
    """Longest waits outside crashes, longest first: phase, action, and time."""

    @property
    def ratio(self) -> float:
        """p99 during movement relative to p99 at rest; 0 if either is unknown."""
        rest, movement = self.phases[REST].p99_ms, self.phases[MOVEMENT].p99_ms
        return movement / rest if rest else 0.0

    @property
    def longest_pause_ms(self) -> float:
        return max(self.phases[phase].max_ms for phase in PHASES if phase != CRASH)

    @property
    def errors(self) -> int:
        return sum(self.phases[phase].errors for phase in PHASES if phase != CRASH)

    def as_dict(self) -> dict[str, object]:
        return {
            "phases": {phase: asdict(found) for phase, found in self.phases.items()},
            "maps": {
                name: {phase: asdict(found) for phase, found in phases.items()}
                for name, phases in self.maps.items()
            },
            "p99_ratio": round(self.ratio, 2),
            "longest_pause_ms": round(self.longest_pause_ms, 1),
            "errors_outside_crashes": self.errors,
            "slowest": self.slowest,
        }


class Phases:
    def __init__(self, spans: Iterable[Span]) -> None:
        self.spans = sorted(spans, key=lambda span: span.begin_s)
        self._of_phase: dict[str, tuple[list[float], list[float], list[Span]]] = {}
        for phase in PHASES:
            mine = [span for span in self.spans if span.phase == phase]
            # Running maxima of the ends grow with the begins, so both can be searched.
            ends: list[float] = []
            for span in mine:
                ends.append(max(span.end_s, ends[-1]) if ends else span.end_s)
            self._of_phase[phase] = ([span.begin_s for span in mine], ends, mine)

    def find(self, begin_s: float, end_s: float) -> tuple[str, Span | None]:
        """The gravest phase that this time touches, and a span of it; None at rest."""
        for phase in reversed(PHASES):
            begins, ends, spans = self._of_phase[phase]
            first = bisect_left(ends, begin_s)
            if first < len(spans) and begins[first] <= end_s:
                return phase, spans[first]
        return REST, None


def judge(logs: Iterable[Log], names: Sequence[str], spans: Iterable[Span], show: int = 10) -> Judged:
    phases = Phases(spans)
    took: dict[tuple[int, str], list[float]] = {
        (number, phase): [] for number in range(len(names)) for phase in PHASES
    }
    errors = dict.fromkeys(took, 0)
    outside: list[tuple[float, Operation, str, Span | None]] = []
    for log in logs:
        for operation in log:
            phase, span = phases.find(operation.due_s, operation.due_s + operation.took_s)
            took[operation.map, phase].append(operation.took_s)
            errors[operation.map, phase] += not operation.done
            if phase != CRASH and (len(outside) < show or operation.took_s > outside[-1][0]):
                outside.append((operation.took_s, operation, phase, span))
                outside.sort(key=lambda item: -item[0])
                del outside[show:]
    every = range(len(names))
    return Judged(
        phases={
            phase: Summary.of(
                [one for number in every for one in took[number, phase]],
                sum(errors[number, phase] for number in every),
            )
            for phase in PHASES
        },
        maps={
            name: {phase: Summary.of(took[number, phase], errors[number, phase]) for phase in PHASES}
            for number, name in enumerate(names)
        },
        slowest=[
            {
                "ms": round(1000 * took_s, 1),
                "phase": phase,
                "what": span.what if span is not None else "",
                "after_s": round(operation.due_s - span.begin_s, 3) if span is not None else 0.0,
                "at_s": round(operation.due_s, 3),
                "operation": "write" if operation.writes else "read",
                "map": names[operation.map],
                "answered": operation.done,
            }
            for took_s, operation, phase, span in outside
        ],
    )
