"""Counts by map since the start of a member, for rates: reads, evicted and expired entries.

- model/N-1: The first `NAMES_COUNTED` names are counted separately and all others together, because clients choose
  the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAMES_COUNTED: Final = 1000
OTHERS: Final = "__others"
"""Counts the maps after the first `NAMES_COUNTED`."""


class MapCounts:
    """The data lane adds the reads of a whole buffer at once."""

    __slots__ = ("by_map",)

    def __init__(self) -> None:
        self.by_map: dict[str, int] = {}

    def add(self, name: str, count: int) -> None:
        by_map = self.by_map
        if name in by_map:
            by_map[name] += count
        elif len(by_map) < NAMES_COUNTED:
            by_map[name] = count
        else:
            by_map[OTHERS] = by_map.get(OTHERS, 0) + count


class RemovedEntries:
    """Entries that this member has removed of its own accord, as primary or leader."""

    __slots__ = ("evicted", "expired")

    def __init__(self) -> None:
        self.evicted = MapCounts()
        self.expired = MapCounts()


def sums_of(*counts: Mapping[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            found[name] = found.get(name, 0) + count
    return found
