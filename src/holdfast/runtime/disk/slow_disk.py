"""Detection of slow deeds of the disk, also while one hangs.

The writer thread stores when a deed begins and ends (two readings of the clock); the watcher polls the
present deed and the slowest since the last poll.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlowDeed:
    what: str
    took_s: float
    done: bool


class DeedClock:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: in seconds."""
        self._clock = clock
        self._present: tuple[str, float] | None = None
        self._longest = SlowDeed("", 0.0, done=True)

    def begins(self, what: str) -> None:
        self._present = what, self._clock()

    def ends(self) -> None:
        present, self._present = self._present, None
        if present is not None:
            took_s = self._clock() - present[1]
            if took_s > self._longest.took_s:
                self._longest = SlowDeed(present[0], took_s, done=True)

    def took(self, what: str, seconds: float) -> None:
        """The present deed has ended, after this time by the clock of another thread."""
        self._present = None
        if seconds > self._longest.took_s:
            self._longest = SlowDeed(what, seconds, done=True)

    def slowest(self) -> SlowDeed:
        longest, self._longest = self._longest, SlowDeed("", 0.0, done=True)
        present = self._present
        if present is not None:
            takes_s = self._clock() - present[1]
            if takes_s > longest.took_s:
                return SlowDeed(present[0], takes_s, done=False)
        return longest


class DiskWatch:
    """Reports slow deeds: a hanging one once, and each when it has ended."""

    def __init__(self, clocks: list[DeedClock], limit_s: float) -> None:
        self._clocks = clocks
        self._limit_s = limit_s
        self._lasting: set[int] = set()

    def look(self) -> list[str]:
        lines: list[str] = []
        for number, clock in enumerate(self._clocks):
            deed = clock.slowest()
            if deed.took_s < self._limit_s:
                self._lasting.discard(number)
            elif deed.done:
                self._lasting.discard(number)
                lines.append(f"slow disk: {deed.what} took {deed.took_s:.1f} s")
            elif number not in self._lasting:
                self._lasting.add(number)
                lines.append(f"slow disk: {deed.what} has taken {deed.took_s:.1f} s, and is not done")
        return lines
