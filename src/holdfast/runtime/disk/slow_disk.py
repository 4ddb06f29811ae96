"""How long do the deeds of the disk take? A disk that hangs is told while it hangs.

A thread says when it begins a deed and when it has done it; whoever looks finds out how long the present one has taken,
and which was the longest since he looked last. It is two readings of the clock for a deed, in the thread of the disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlowDeed:
    """A deed that took long, or takes long."""

    what: str
    """What is done, and to which file."""
    took_s: float
    done: bool


class DeedClock:
    """The deeds of one line of a disk. Written by its thread, read by any other: each field is set at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: in seconds."""
        self._clock = clock
        self._present: tuple[str, float] | None = None
        self._longest = SlowDeed("", 0.0, done=True)

    def begins(self, what: str) -> None:
        """The thread begins this."""
        self._present = what, self._clock()

    def ends(self) -> None:
        """The thread has done it, or has failed to."""
        present, self._present = self._present, None
        if present is not None:
            took_s = self._clock() - present[1]
            if took_s > self._longest.took_s:
                self._longest = SlowDeed(present[0], took_s, done=True)

    def slowest(self) -> SlowDeed:
        """The longest of those that have ended since this was asked last, or the present one, if that is longer."""
        longest, self._longest = self._longest, SlowDeed("", 0.0, done=True)
        present = self._present
        if present is not None:
            takes_s = self._clock() - present[1]
            if takes_s > longest.took_s:
                return SlowDeed(present[0], takes_s, done=False)
        return longest


class DiskWatch:
    """What is said of slow deeds: of one that lasts when it is found to be slow, and of each when it has ended."""

    def __init__(self, clocks: list[DeedClock], limit_s: float) -> None:
        self._clocks = clocks
        self._limit_s = limit_s
        self._lasting: set[int] = set()
        """Lines whose present deed was told of."""

    def look(self) -> list[str]:
        """Lines for the log."""
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
