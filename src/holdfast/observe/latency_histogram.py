"""A log-linear histogram of durations: each power of two is split into four buckets.

Example: 1,536 ns lies in [2**10, 2**11), at offset 512 of 1,024, so in the third of the four buckets there. A
quantile is at most a quarter too high. The last bucket takes everything above its bound, half a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

FIRST_BIT: Final = 10
"""Durations below 2**10 ns, about a microsecond, share the first bucket."""
LAST_BIT: Final = 34
PARTS: Final = 4
BUCKETS: Final = 1 + (LAST_BIT - FIRST_BIT + 1) * PARTS


def bucket_of(took_ns: int) -> int:
    bit = took_ns.bit_length() - 1
    if bit < FIRST_BIT:
        return 0
    if bit > LAST_BIT:
        return BUCKETS - 1
    return 1 + (bit - FIRST_BIT) * PARTS + ((took_ns >> (bit - 2)) & (PARTS - 1))


def bound_ns(bucket: int) -> int:
    octave, part = divmod(bucket, PARTS)
    return (PARTS + part) << (FIRST_BIT - 2 + octave)


EXPOSED: Final = tuple(range(0, BUCKETS - 1, 2))
"""Every second bucket, because Prometheus stores a time series for each."""


class LatencyHistogram:
    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.sum_ns = 0

    def add(self, took_ns: int, count: int = 1) -> None:
        self.counts[bucket_of(took_ns)] += count
        self.sum_ns += took_ns * count

    def absorb(self, counts: Sequence[int], sum_ns: int) -> None:
        self.counts = [one + other for one, other in zip(self.counts, counts, strict=True)]
        self.sum_ns += sum_ns

    @property
    def count(self) -> int:
        return sum(self.counts)


def exposed_buckets(counts: Sequence[int]) -> list[tuple[float, int]]:
    """Bounds in seconds with cumulative counts, without the infinite one."""
    found: list[tuple[float, int]] = []
    total = 0
    at = 0
    for bucket in EXPOSED:
        total += sum(counts[at : bucket + 1])
        at = bucket + 1
        found.append((bound_ns(bucket) / 1e9, total))
    return found
