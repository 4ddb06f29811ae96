"""Data structures of the layout, kept up to date so that no step has to look at all members.

The layout asks which of a thousand members needs an index most, and which share the fewest partitions. Sets of members
are integers with one bit per member, so that a query about all takes a few operations.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence

Members = int
"""Bit n is member number n."""

FEW = 24
"""Examined one by one, which is faster than combining sets."""


def members_of(some: Members) -> Iterator[int]:
    while some:
        lowest = some & -some
        yield lowest.bit_length() - 1
        some ^= lowest


def sets_of(groups: Sequence[int]) -> list[Members]:
    sets = [0] * (max(groups) + 1)
    for number, group in enumerate(groups):
        sets[group] |= 1 << number
    return sets


class Sharing:
    """How many partitions each two members share; a member shares all its partitions with itself."""

    __slots__ = ("_counts", "_sets")

    def __init__(self, members: int, rows: Iterable[Iterable[int]]) -> None:
        everyone = (1 << members) - 1
        self._counts: list[dict[int, int]] = [{} for _ in range(members)]
        self._sets: list[dict[int, Members]] = [{0: everyone} for _ in range(members)]
        """Per member: count -> the members with which it shares so many."""
        for row in rows:
            here = [number for number in row if number >= 0]
            for number in here:
                counts = self._counts[number]
                for other in here:
                    counts[other] = counts.get(other, 0) + 1
        for counts, sets in zip(self._counts, self._sets, strict=True):
            for other, count in counts.items():
                bit = 1 << other
                sets[0] ^= bit
                sets[count] = sets.get(count, 0) | bit
            if not sets[0]:
                del sets[0]

    def change(self, left: Sequence[int], stay: Sequence[int], come: Sequence[int]) -> None:
        for some, by in ((left, -1), (come, 1)):
            for number in some:
                self._raise(number, number, by)
                for other in stay:
                    self._raise(number, other, by)
                    self._raise(other, number, by)
            for place, number in enumerate(some):
                for other in some[place + 1 :]:
                    self._raise(number, other, by)
                    self._raise(other, number, by)

    def _raise(self, number: int, other: int, by: int) -> None:
        counts, sets = self._counts[number], self._sets[number]
        before = counts.get(other, 0)
        after = before + by
        counts[other] = after
        bit = 1 << other
        rest = sets[before] ^ bit
        if rest:
            sets[before] = rest
        else:
            del sets[before]
        sets[after] = sets.get(after, 0) | bit

    def shared(self, number: int, others: Iterable[int]) -> int:
        counts = self._counts[number]
        return sum([counts.get(other, 0) for other in others])

    def least(self, able: Members, others: Sequence[int]) -> Members:
        """The fewest partitions shared with the others, in sum."""
        if not others or not able & (able - 1):
            return able
        ways = 1
        for other in others:
            ways *= len(self._sets[other])
        if ways > 4 * FEW or able.bit_count() <= FEW:
            return self._counted(able, others)
        sums: dict[int, Members] = {0: able}
        for other in others:
            following: dict[int, Members] = {}
            for count, some in self._sets[other].items():
                for total, those in sums.items():
                    if both := some & those:
                        following[total + count] = following.get(total + count, 0) | both
            sums = following
        return sums[min(sums)]

    def _counted(self, able: Members, others: Sequence[int]) -> Members:
        counted = [self._counts[other] for other in others]
        best, least = 0, -1
        for number in members_of(able):
            total = sum([counts.get(number, 0) for counts in counted])
            if total < least or least < 0:
                best, least = 1 << number, total
            elif total == least:
                best |= 1 << number
        return best


class Levels:
    __slots__ = ("_of", "_sets")

    def __init__(self, values: Sequence[int]) -> None:
        self._of = list(values)
        self._sets: dict[int, Members] = {}
        for number, value in enumerate(values):
            self._sets[value] = self._sets.get(value, 0) | 1 << number

    def put(self, number: int, value: int) -> None:
        before = self._of[number]
        if before == value:
            return
        self._of[number] = value
        bit = 1 << number
        rest = self._sets[before] ^ bit
        if rest:
            self._sets[before] = rest
        else:
            del self._sets[before]
        self._sets[value] = self._sets.get(value, 0) | bit

    def lowest(self, able: Members) -> Members:
        """`able` is not empty."""
        if not able & (able - 1):
            return able
        for value in sorted(self._sets):
            if found := self._sets[value] & able:
                return found
        raise AssertionError("every member has a value")


Need = tuple[int, int, int]


class Ranking:
    __slots__ = ("_now", "key", "sorted")

    def __init__(self, members: int, key: Callable[[int], Need]) -> None:
        self.key = key
        self._now = [key(number) for number in range(members)]
        self.sorted = sorted(self._now)
        """Ascending; the last part of a key is the member's number."""

    def moved(self, number: int) -> None:
        now, before = self.key(number), self._now[number]
        if now != before:
            del self.sorted[bisect_left(self.sorted, before)]
            insort(self.sorted, now)
            self._now[number] = now


class Pool:
    """Partitions in the order of their arrival, with a cache of those that fit a purpose.

    Whether a partition fits does not change while it is in the pool.
    """

    __slots__ = ("_came", "_fitting", "_here")

    def __init__(self) -> None:
        self._came: list[int] = []
        self._here: dict[int, int] = {}
        """Partition -> its position in `_came`."""
        self._fitting: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        """Purpose -> positions of those that fit, and how far the search went (in a list of one)."""

    def __len__(self) -> int:
        return len(self._here)

    def add(self, partition: int) -> None:
        self._here[partition] = len(self._came)
        self._came.append(partition)

    def drop(self, partition: int) -> None:
        self._here.pop(partition, None)

    def first(self, purpose: tuple[int, int], fits: Callable[[int], bool], count: int) -> list[int]:
        came, here = self._came, self._here
        places, looked = self._fitting.setdefault(purpose, ([], [0]))
        places[:] = [place for place in places if here.get(came[place]) == place]
        while len(places) < count and looked[0] < len(came):
            place = looked[0]
            looked[0] += 1
            if here.get(came[place]) == place and fits(came[place]):
                places.append(place)
        return [came[place] for place in places[:count]]
