"""Operations that took long: the last ones, for the status, and lines in the log, a few in a while.

Nothing is measured where requests are served. At a timer it is looked what waits (`Picture.open_since`): of an
operation that has waited for `log.slow_operation_ms` it is kept what it is and what it waits for, and at the first look
that does not find it any more it is told. So its time is right within one look, and one that has ended before a look
found it slow is not seen; nor is what took long without waiting for another member, a disk or a lock: that keeps the
event loop, and is told as a turn of it (`stalls`).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.open_operations import Followed, Mark, OpenOperation
from holdfast.runtime.logs.limited_lines import LimitedLines, quoted
from holdfast.runtime.logs.process_log import FIELDS

KEPT = 100
"""The last slow operations, for the status."""
FOLLOWED = 1000
"""Slow operations that are under way, and whose end is waited for."""
PLACES_SHOWN = 5
"""Maps, and partitions of each, that are shown of one operation."""
LOOKS = 2
"""So often within the limit it is looked."""
LOOK_MIN_S, LOOK_MAX_S = 0.01, 0.25


class SlowOperations:
    """Of one member."""

    def __init__(
        self,
        limit_ms: int,
        open_since: Callable[[int, Followed], Iterable[OpenOperation]],
        names: Callable[[], Mapping[MemberId, str]],
        lines: LimitedLines,
        clock: Callable[[], int] = time.monotonic_ns,
        heard: Callable[[dict[str, object]], None] = lambda told: None,
    ) -> None:
        """`open_since`: what waits since before then (`Picture.open_since`). `names`: of members. `clock`: that of the
        member, in nanoseconds. `heard` is called with each that has ended.
        """
        assert limit_ms > 0, "somebody wants to hear of slow operations"
        self._limit_ns = limit_ms * MILLISECOND
        self.look_s = min(LOOK_MAX_S, max(LOOK_MIN_S, limit_ms / 1000 / LOOKS))
        """How often to look."""
        self._open_since = open_since
        self._names = names
        self._lines = lines
        self._clock = clock
        self._heard = heard
        self._followed: dict[Mark, OpenOperation] = {}
        self._kept: deque[dict[str, object]] = deque(maxlen=KEPT)
        self.count = 0
        """How many there were since the start."""

    def look(self) -> None:
        """Look what waits, and tell what has ended."""
        now_ns = self._clock()
        before = self._followed
        followed: dict[Mark, OpenOperation] = {}
        for one in self._open_since(now_ns - self._limit_ns, before):
            mark = one.mark, one.since_ns
            if mark in before or len(followed) < FOLLOWED:
                followed[mark] = one
        self._followed = followed
        for mark, one in before.items():
            if mark not in followed:
                self._ended(one, now_ns)

    def _ended(self, one: OpenOperation, now_ns: int) -> None:
        self.told(self._told(one, now_ns))

    def stalled(self, late_s: float) -> None:
        """The event loop was kept for so long: whatever came meanwhile has waited."""
        if late_s * 1e9 >= self._limit_ns:
            self.told(
                {
                    "ended_ms": time.time_ns() // MILLISECOND,
                    "took_ms": round(1000 * late_s),
                    "kind": "a turn of the event loop",
                    "operations": 0,
                    "places": {},
                    "waited_for": "this member's processor: all that came meanwhile",
                    "members": [],
                }
            )

    def told(self, told: dict[str, object]) -> None:
        """Keep it, and write it down."""
        self.count += 1
        self._kept.append(told)
        self._heard(told)
        words = " ".join(f"{name}={quoted(value)}" for name, value in told.items() if name != "ended_ms")
        self._lines.tell(
            "slow operations",
            "slow operation: %s",
            words,
            level=logging.INFO,
            extra={FIELDS: {"event": "slow operation", **told}},
        )

    def _told(self, one: OpenOperation, now_ns: int) -> dict[str, object]:
        names = self._names()
        places = {
            quoted(name): _shown(sorted(partitions))
            for name, partitions in sorted(one.places.items())[:PLACES_SHOWN]
        }
        if len(one.places) > PLACES_SHOWN:
            places[f"and {len(one.places) - PLACES_SHOWN} more maps"] = []
        return {
            "ended_ms": time.time_ns() // MILLISECOND,
            "took_ms": (now_ns - one.since_ns) // MILLISECOND,
            "kind": one.kind,
            "operations": one.count,
            "places": places,
            "waited_for": one.waits_for,
            "members": [names.get(member, member) for member in one.members],
        }

    def figures(self) -> dict[str, object]:
        """What is told of them in the status: the last ones, the newest last, and those that are under way."""
        now_ns = self._clock()
        return {
            "limit_ms": self._limit_ns // MILLISECOND,
            "count": self.count,
            "recent": list(self._kept),
            "running": [
                self._told(one, now_ns) | {"ended_ms": None} for one in list(self._followed.values())[:KEPT]
            ],
        }


def _shown(partitions: list[int]) -> list[int | str]:
    more = len(partitions) - PLACES_SHOWN
    return [*partitions[:PLACES_SHOWN], *([f"and {more} more"] if more > 0 else [])]
