"""Stalls of the event loop: a gauge, and control of the garbage collector, which causes them in any Python program.

The gauge sets a timer repeatedly and measures how late it fires. Example: with an interval of 20 ms, a callback that
runs from 5 to 105 ms delays the timer of 20 ms to 105 ms; the gauge reports 85 ms. So a stall may be up to one interval
longer than reported, and a shorter one may be missed.

The cyclic collector visits every object that can be part of a cycle, 40 ns each, and everything waits. Entries are not
such objects (bytes, numbers, and dictionaries of them), so millions of them add nothing. `CollectorControl` bounds the
cost of those that do accumulate: lists of deadlines, change streams, logs of zones.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable

from holdfast.core.model.member_status import Stalls

log = logging.getLogger("holdfast")

LOOK_S = 0.02
NOTABLE_S = 0.01
MINUTE_S = 60
PENDING = 5
"""Middle-generation collections before a full one, about 35,000 new objects. Python waits for twice as many,
and until they are a quarter of the old ones.
"""
LONG_S = 0.005
"""After a full collection this long, all its survivors are frozen."""


class StallGauge:
    """How late a timer of this loop fires: the maximum of the last minute, and of all time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] = time.monotonic,
        stalled: Callable[[float], None] | None = None,
    ) -> None:
        """`clock`: in seconds. `stalled`: called for each stall of `NOTABLE_S` or more."""
        self._stalled = stalled
        self._loop = loop
        self._clock = clock
        self._longest_s = 0.0
        self._seconds = [(0, 0.0)] * MINUTE_S
        """Longest stall of each of the last seconds that had one, by the second modulo 60."""
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle
        self._again()

    def _again(self) -> None:
        self._due_s = self._clock() + LOOK_S
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        now_s = self._clock()
        late_s = now_s - self._due_s
        second = int(now_s)
        told, longest_s = self._seconds[second % MINUTE_S]
        if told != second or late_s > longest_s:
            self._seconds[second % MINUTE_S] = (second, late_s)
        self._longest_s = max(self._longest_s, late_s)
        if late_s >= NOTABLE_S and self._stalled is not None:
            self._stalled(late_s)
        self._again()

    def stop(self) -> None:
        self._timer.cancel()

    @property
    def recent_s(self) -> float:
        since = int(self._clock()) - MINUTE_S
        recent_s = max((longest_s for second, longest_s in self._seconds if second > since), default=0.0)
        return max(0.0, recent_s)

    def status(self) -> Stalls:
        return Stalls(round(1000 * self.recent_s, 1), round(1000 * self._longest_s, 1))


class CollectorControl:
    """Keeps full collections short: freezes the survivors of a long one, so that later ones skip them.

    It collects earlier than Python would, so that there is little to visit. Frozen objects are still freed when their
    last reference goes; only frozen cycles that are dropped later leak. These are few: they must have been alive at a
    freeze, and each freeze requires tens of thousands of new long-lived objects.
    """

    def __init__(self, long_s: float = LONG_S, clock: Callable[[], float] = time.perf_counter) -> None:
        self._long_s = long_s
        self._clock = clock

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Collect once, freeze everything, and look repeatedly while the loop runs."""
        # A full collection of all loaded modules takes 30 ms; nothing is served yet.
        gc.collect()
        gc.freeze()
        self._again(loop)

    def _again(self, loop: asyncio.AbstractEventLoop) -> None:
        self.look()
        loop.call_later(LOOK_S, self._again, loop)

    def look(self) -> None:
        if gc.get_count()[2] < PENDING:
            return
        began_s = self._clock()
        gc.collect()
        took_s = self._clock() - began_s
        if took_s >= self._long_s:
            gc.freeze()
            log.info(
                "a full garbage collection took %.0f ms; later ones skip the present objects", 1000 * took_s
            )
