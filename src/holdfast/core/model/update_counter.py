"""The update counter: which updates of one map in one partition a copy holds (I2; 004 "Update counter
structure").

The primary numbers updates 1, 2, 3…; a range `(start, count)` means the numbers start + 1 … start + count. In the
source a primary reserves numbers when it prepares a transaction; docs/transactions.md says what replaces that.

- model/K-1: Every number up to the low watermark is applied; it never falls.
- model/K-2: Numbers applied above it are kept as ranges, merged where they touch; each begins above the low
  watermark + 1.
- model/K-3: The high watermark is the highest number that is applied. A number is handed out when it is applied, and
  never again.
- model/K-4: Applying a range that is applied in part is an error.

Example: a copy has applied 1..16, so lwm = hwm = 16. Update 18 arrives: lwm stays 16, ranges = [(17, 1)], hwm
= 18. The gap (16, 1) means that update 17 is missing: it may still be on its way, or was lost with a crash.
Update 17 arrives: it joins lwm with the range, so lwm = 18 and there are no ranges. Copies with equal
counters and lineages hold equal content.

The primary applies in order, and a live backup keeps a record that leaves a gap until the missing one arrives
(primary_backup/B-2). So gaps occur only in a copy that is being filled or was read from disk.
"""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from holdfast.errors import CounterBroken

GAPS_MAX = 10_000
VERSION = 1


class UpdateCounter:
    __slots__ = ("_counts", "_starts", "hwm", "lwm")

    def __init__(self, lwm: int = 0) -> None:
        self.lwm = lwm
        self.hwm = lwm
        self._starts: list[int] = []
        self._counts: list[int] = []

    # -- the primary

    def next(self) -> int:
        """Take the next number. Its update is applied at once, so none may be missing."""
        if self._starts:
            raise CounterBroken(f"number {self.hwm + 1} cannot be applied before those after {self.lwm}")
        self.lwm = self.hwm = self.lwm + 1
        return self.lwm

    # -- every copy

    def update(self, start: int, count: int = 1) -> bool:
        """Returns False if it was applied before. Raises CounterBroken if only a part was, or if there are
        too many gaps.
        """
        if count < 1 or start < 0:
            raise ValueError(f"({start}, {count}) is no range")
        end = start + count
        if start == self.lwm and not self._starts:
            self.lwm = self.hwm = end
            return True
        if start < self.lwm:
            if end <= self.lwm:
                return False
            raise CounterBroken(f"({start}, {count}) is known in part: the low watermark is {self.lwm}")
        if not self._insert(start, end):
            return False
        self.hwm = max(self.hwm, end)
        starts = self._starts
        if starts[0] == self.lwm:
            self.lwm += self._counts[0]
            del starts[0], self._counts[0]
        assert not starts or starts[0] > self.lwm, "there is a gap before each range (model/K-2)"
        assert self.hwm == (starts[-1] + self._counts[-1] if starts else self.lwm), (
            "the highest number (model/K-3)"
        )
        return True

    def _insert(self, start: int, end: int) -> bool:
        """Merge it with ranges that it touches."""
        starts, counts = self._starts, self._counts
        after = bisect_right(starts, start)
        if after:
            before_end = starts[after - 1] + counts[after - 1]
            if end <= before_end:
                return False
            if start < before_end:
                raise CounterBroken(f"({start}, {end - start}) is known in part, up to {before_end}")
        if after < len(starts) and starts[after] < end:
            raise CounterBroken(f"({start}, {end - start}) is known in part, from {starts[after]}")
        joins_before = bool(after) and starts[after - 1] + counts[after - 1] == start
        joins_after = after < len(starts) and starts[after] == end
        if joins_before and joins_after:
            counts[after - 1] += end - start + counts[after]
            del starts[after], counts[after]
        elif joins_before:
            counts[after - 1] += end - start
        elif joins_after:
            starts[after] = start
            counts[after] += end - start
        else:
            if len(starts) >= GAPS_MAX and start > self.lwm:
                raise CounterBroken(f"more than {GAPS_MAX} gaps after {self.lwm}")
            starts.insert(after, start)
            counts.insert(after, end - start)
        assert len(starts) == len(counts), "each range has a start and a count"
        assert starts[0] >= self.lwm, "ranges are above the low watermark (model/K-2)"
        return True

    # -- queries

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return list(zip(self._starts, self._counts, strict=True))

    @property
    def sequential(self) -> bool:
        return not self._starts

    def gaps(self) -> list[tuple[int, int]]:
        """The missing updates as ranges."""
        found = []
        reached = self.lwm
        for start, count in zip(self._starts, self._counts, strict=True):
            found.append((reached, start - reached))
            reached = start + count
        return found

    def holds(self, number: int) -> bool:
        if number <= self.lwm:
            return True
        after = bisect_right(self._starts, number - 1)
        return bool(after) and number <= self._starts[after - 1] + self._counts[after - 1]

    def encode(self) -> bytes:
        return msgspec.msgpack.encode((VERSION, self.lwm, self._starts, self._counts))

    @classmethod
    def decode(cls, data: bytes) -> UpdateCounter:
        """Raises CounterBroken."""
        try:
            version, lwm, starts, counts = msgspec.msgpack.decode(
                data, type=tuple[int, int, list[int], list[int]]
            )
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise CounterBroken(f"not an update counter: {error}") from error
        if version != VERSION or lwm < 0 or len(starts) != len(counts) or len(starts) > GAPS_MAX:
            raise CounterBroken(f"not an update counter of version {VERSION}")
        counter = cls(lwm)
        reached = lwm
        for start, count in zip(starts, counts, strict=True):
            if start <= reached or count < 1:
                raise CounterBroken(f"the ranges of an update counter overlap at {start}")
            reached = start + count
        counter._starts, counter._counts = starts, counts
        counter.hwm = reached
        return counter

    def copy(self) -> UpdateCounter:
        other = UpdateCounter(self.lwm)
        other._starts, other._counts = list(self._starts), list(self._counts)
        other.hwm = self.hwm
        return other

    def __eq__(self, other: object) -> bool:
        """Whether two copies hold the same updates."""
        if not isinstance(other, UpdateCounter):
            return NotImplemented
        return (self.lwm, self._starts, self._counts) == (other.lwm, other._starts, other._counts)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"UpdateCounter(lwm={self.lwm}, hwm={self.hwm}, ranges={self.ranges})"
