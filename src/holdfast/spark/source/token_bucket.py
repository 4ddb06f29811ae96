"""How fast a task may write, so that those whom the members serve do not notice."""

from __future__ import annotations

import time
from collections.abc import Callable

STEP_S = 0.1
"""Rows are let out in steps of so long at most: a burst would be felt just as a load without a limit."""


class TokenBucket:
    """Lets `rate` rows a second pass, evenly."""

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
        """The most rows to let out at a time; None: any number."""
        return None if self._rate is None else max(1, int(self._rate * STEP_S))

    def take(self, rows: int) -> None:
        """Wait until so many rows may go."""
        if self._rate is None or not rows:
            return
        now = self._clock()
        # What was not used is lost: after a pause there is no burst.
        begin = max(now, self._free_at)
        self._free_at = begin + rows / self._rate
        if begin > now:
            self._sleep(begin - now)
