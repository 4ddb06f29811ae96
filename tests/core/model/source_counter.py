"""The partition update counter of source 004, by its definition: what the tests compare ours with.

A primary reserves numbers when it prepares a transaction and applies them when that commits, in any order.
"""

from __future__ import annotations


def ranges_of(numbers: set[int], above: int) -> list[tuple[int, int]]:
    """The runs of these numbers above a watermark, as (start, count)."""
    found: list[tuple[int, int]] = []
    for number in sorted(each for each in numbers if each > above):
        if found and sum(found[-1]) == number - 1:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((number - 1, 1))
    return found


class SourceCounter:
    def __init__(self, lwm: int = 0) -> None:
        self.applied = set(range(1, lwm + 1))
        self.hwm = lwm

    @property
    def lwm(self) -> int:
        number = 0
        while number + 1 in self.applied:
            number += 1
        return number

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return ranges_of(self.applied, self.lwm)

    def reserve(self, count: int) -> tuple[int, int]:
        """At prepare, by the primary: the range of a transaction."""
        start = self.hwm
        self.hwm += count
        return start, count

    def update(self, start: int, count: int) -> None:
        """At commit."""
        self.applied.update(range(start + 1, start + count + 1))
        self.hwm = max(self.hwm, *self.applied)

    def finalise(self) -> list[tuple[int, int]]:
        """After a crash, when all transactions have ended: close the gaps; returns them."""
        highest = max(self.applied, default=0)
        gaps = ranges_of(set(range(1, highest + 1)) - self.applied, 0)
        self.set_absolute(highest)
        self.hwm = highest
        return gaps

    def set_absolute(self, value: int) -> None:
        """At the exchange, as the owner with the highest counter states."""
        self.applied.update(range(1, value + 1))
        self.hwm = max(self.hwm, value)
