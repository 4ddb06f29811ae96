"""How long did one turn of the event loop keep all others waiting? And the one cause that every Python program has.

The gauge sets a timer again and again, and looks how late it is: whatever kept the loop kept the timer. A stall may
have begun up to one interval before the timer was due, so it may have been that much longer than it is told; one
that is shorter may be missed. Nothing is measured where requests are served.

The cyclic collector goes through all objects that can be part of a cycle, and everything waits meanwhile: 40 ns for
each. What an entry consists of is none of these (bytes, numbers, and dictionaries of them), so millions of entries add
nothing. What still grows (lists of deadlines, change streams, logs of zones) is kept short by `KeptShort`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable

log = logging.getLogger("holdfast")

LOOK_S = 0.02
"""Between two looks. Each costs some microseconds."""
NOTABLE_S = 0.01
"""Less is not told to anybody."""
MINUTE_S = 60
PENDING = 5
"""All objects are gone through when younger ones were so often: after some 35,000 more of them. Python waits for twice
as many, and for a quarter of those that there are."""
LONG_S = 0.005
"""A full collection that took at least so long is the last one that went through these objects."""


class StallGauge:
    """How late a timer of this loop is: the longest of the last minute, and of all."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] = time.monotonic,
        stalled: Callable[[float], None] | None = None,
    ) -> None:
        """clock: seconds. stalled: hears of each stall of `NOTABLE_S` and more. The first look is due one interval from
        now.
        """
        self._stalled = stalled
        self._loop = loop
        self._clock = clock
        self._longest_s = 0.0
        self._seconds = [(0, 0.0)] * MINUTE_S
        """The longest stall of each of the last seconds that had one, by the second modulo 60."""
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
        """Look no more."""
        self._timer.cancel()

    @property
    def recent_s(self) -> float:
        """The longest of the last minute."""
        since = int(self._clock()) - MINUTE_S
        recent_s = max((longest_s for second, longest_s in self._seconds if second > since), default=0.0)
        return max(0.0, recent_s)

    def figures(self) -> dict[str, object]:
        """What is told of it in the status: milliseconds."""
        return {
            "longest_in_last_minute_ms": round(1000 * self.recent_s, 1),
            "longest_ms": round(1000 * self._longest_s, 1),
        }


class KeptShort:
    """Sees to it that no full collection is long: what a longer one has left is kept out of the sight of later ones.

    It collects by itself when some has come, sooner than Python would, so that there is never much to go through.
    What is frozen so is freed as ever when nothing refers to it any more; only a cycle that is dropped later stays.
    That is no more than what was under way in that moment, and for each freeze tens of thousands of objects must have
    come to stay, so it is a small part of what the member holds for good. Cycles made afterwards are found as ever.
    """

    def __init__(self, long_s: float = LONG_S, clock: Callable[[], float] = time.perf_counter) -> None:
        self._long_s = long_s
        self._clock = clock

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Collect once, keep all that is there now out of sight, and look from now on as long as the loop runs."""
        # All modules are loaded: a full collection of them would stop the member for 30 ms. Now nobody waits for it.
        gc.collect()
        gc.freeze()
        self._again(loop)

    def _again(self, loop: asyncio.AbstractEventLoop) -> None:
        self.look()
        loop.call_later(LOOK_S, self._again, loop)

    def look(self) -> None:
        """Collect everything, if enough has come since that was done last."""
        if gc.get_count()[2] < PENDING:
            return
        began_s = self._clock()
        gc.collect()
        took_s = self._clock() - began_s
        if took_s >= self._long_s:
            gc.freeze()
            log.info("the collector went through all objects in %.0f ms, and will not again", 1000 * took_s)
