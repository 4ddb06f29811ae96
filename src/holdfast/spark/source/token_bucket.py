"""Rate limit of a writing task, so that other clients of the members do not notice the load."""

from __future__ import annotations

import time
from collections.abc import Callable

STEP_S = 0.1
"""Rows are released in steps of at most so long: a burst would be noticed like a load without a limit."""


class TokenBucket:
    def __init__(
        self,
        rate: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`rate`: rows a second; None: no limit."""
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    @property
    def step(self) -> int | None:
        return None if self._rate is None else max(1, int(self._rate * STEP_S))

    def take(self, rows: int) -> None:
        if self._rate is None or not rows:
            return
        now = self._clock()
        # Unused capacity is lost: no burst after a pause.
        begin = max(now, self._free_at)
        self._free_at = begin + rows / self._rate
        if begin > now:
            self._sleep(begin - now)
