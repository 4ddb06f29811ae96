"""Reads of each map at one member since its start, for rates.

- observe/R-1: The first `NAMES_COUNTED` names are counted separately and all others together, because clients choose
  the names.
"""

from __future__ import annotations

from typing import Final

from holdfast.observe.metric_catalogue import OTHERS

NAMES_COUNTED: Final = 1000


class ReadCounts:
    """Read counts by map. The data lane adds the reads of a whole buffer at once."""

    __slots__ = ("by_map",)

    def __init__(self) -> None:
        self.by_map: dict[str, int] = {}
        """`__others` counts the maps after the first `NAMES_COUNTED`."""

    def add(self, name: str, count: int) -> None:
        by_map = self.by_map
        if name in by_map:
            by_map[name] += count
        elif len(by_map) < NAMES_COUNTED:
            by_map[name] = count
        else:
            by_map[OTHERS] = by_map.get(OTHERS, 0) + count
