"""How many entries of each map one member has been asked for: for rates. Names come from clients, so they are bounded.

- observe/R-1: However many names clients ask for, so many are counted by themselves, and all others together.
"""

from __future__ import annotations

from typing import Final

from holdfast.observe.metric_catalogue import OTHERS

NAMES_COUNTED: Final = 1000


class ReadCounts:
    """Of one member, since it began. The data lane adds what a whole read buffer has read of a map."""

    __slots__ = ("by_map",)

    def __init__(self) -> None:
        self.by_map: dict[str, int] = {}
        """By name; `__others`: those that came after the first `NAMES_COUNTED`."""

    def add(self, name: str, count: int) -> None:
        """So many reads of this map were answered."""
        by_map = self.by_map
        if name in by_map:
            by_map[name] += count
        elif len(by_map) < NAMES_COUNTED:
            by_map[name] = count
        else:
            by_map[OTHERS] = by_map.get(OTHERS, 0) + count
