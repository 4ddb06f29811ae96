"""How long things took: how many of them by powers of two, each cut in four (a log-linear histogram).

What took longer than the last bound, half a minute, counts there. A quantile that is read off is a fifth too high at
most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

FIRST_BIT: Final = 10
"""All that took less than 2**10 ns, about a microsecond, is in the first bucket."""
LAST_BIT: Final = 34
PARTS: Final = 4
"""Into so many buckets each power of two is cut."""
BUCKETS: Final = 1 + (LAST_BIT - FIRST_BIT + 1) * PARTS


def bucket_of(took_ns: int) -> int:
    """In which bucket it is counted."""
    bit = took_ns.bit_length() - 1
    if bit < FIRST_BIT:
        return 0
    if bit > LAST_BIT:
        return BUCKETS - 1
    return 1 + (bit - FIRST_BIT) * PARTS + ((took_ns >> (bit - 2)) & (PARTS - 1))


def bound_ns(bucket: int) -> int:
    """Below this is all that is counted in the bucket, but for the last one."""
    octave, part = divmod(bucket, PARTS)
    return (PARTS + part) << (FIRST_BIT - 2 + octave)


TOLD: Final = tuple(range(0, BUCKETS - 1, 2))
"""Buckets whose bounds are told: every second. Nobody needs more, and each costs whoever keeps it."""


class LatencyHistogram:
    """Of one kind of thing."""

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.sum_ns = 0
        """Of all that it took, together."""

    def add(self, took_ns: int, count: int = 1) -> None:
        """So many took so long."""
        self.counts[bucket_of(took_ns)] += count
        self.sum_ns += took_ns * count

    def absorb(self, counts: Sequence[int], sum_ns: int) -> None:
        """Those that somebody else has counted, too."""
        self.counts = [one + other for one, other in zip(self.counts, counts, strict=True)]
        self.sum_ns += sum_ns

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)


def told_buckets(counts: Sequence[int]) -> list[tuple[float, int]]:
    """Bounds in seconds, and how many took at most that; without the last bound, which is infinite."""
    found: list[tuple[float, int]] = []
    total = 0
    at = 0
    for bucket in TOLD:
        total += sum(counts[at : bucket + 1])
        at = bucket + 1
        found.append((bound_ns(bucket) / 1e9, total))
    return found
