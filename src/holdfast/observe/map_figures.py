"""How large each map is on one member, and how often it has changed: counted in slices, for there may be many.

- observe/F-1: Between two slices at most `COPIES` maps in partitions are looked at, which takes a ms or two.
- observe/F-2: However many ask, one count runs at a time, and one of them is answered in a turn of the loop: a status
  takes a ms to make, and a connection may ask for a thousand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from itertools import islice
from typing import Final

import msgspec

from holdfast.core.member import Member

COPIES: Final = 500
"""Maps in partitions that are looked at in one slice."""
SAMPLES, SAMPLED_COPIES = 4, 16
"""Entries of so many copies of a map, and of each so many, tell how large those of the map are."""


class MapFigure(msgspec.Struct, array_like=True):
    """Of one map, in the partitions that this member serves; of a map in a zone, in those that it leads."""

    entries: int = 0
    bytes: int = 0
    """Of keys and values, estimated from a sample."""
    updates: int = 0
    """How many there were, ever: what has changed between two looks is the rate."""


class MemberCount(msgspec.Struct):
    """All of one member."""

    maps: dict[str, MapFigure] = {}
    primary: int = 0
    """Entries in partitions that are served here; zones are not counted."""
    all: int = 0
    """Entries in all copies that are here."""
    reads: dict[str, int] = {}
    """How often entries of a map were asked for here, ever (`read_counts`)."""


def counting_maps(member: Member) -> Generator[None, None, MemberCount]:
    """Count everything; yields between slices (observe/F-1)."""
    count = MemberCount()
    sampled: dict[str, list[int]] = {}
    """Of each map: copies that were looked into, entries there, and their bytes."""
    led = {copy.partition for copy in member.picture.leading if copy is not None}
    looked = 0
    held_here = [(partition in led, copy.maps) for partition, copy in member.picture.held.items()]
    zoned = [(True, maps) for maps in member.picture.zone_maps_led()]
    for at, (leads, maps) in enumerate([*held_here, *zoned]):
        in_zone = at >= len(held_here)
        for name, held in list(maps.items()):
            looked += 1
            if not looked % COPIES:
                yield
            kept = held.state.entries
            size = len(kept)
            if not in_zone:
                count.all += size
                count.primary += size if leads else 0
            if not leads:
                continue
            figure = count.maps.setdefault(name, MapFigure())
            figure.entries += size
            figure.updates += held.counter
            known = sampled.setdefault(name, [0, 0, 0])
            if size and known[0] < SAMPLED_COPIES:
                known[0] += 1
                for key, value in islice(kept.items(), SAMPLES):
                    known[1] += 1
                    known[2] += len(key) + len(value)
    for name, (_, entries, size) in sampled.items():
        if entries:
            count.maps[name].bytes = round(count.maps[name].entries * size / entries)
    return count


class SharedCounts:
    """Counts for all who ask: those who ask while a count runs share the next one, so that none is told of before."""

    def __init__(self, count: Callable[[], Generator[None, None, MemberCount]]) -> None:
        self._count = count
        self._waiting: deque[Callable[[MemberCount], None]] = deque()
        self._running = False

    def ask(self, done: Callable[[MemberCount], None], soon: Callable[[Callable[[], None]], object]) -> None:
        """`done` is called with the count; `soon` calls something in the next turn of the loop."""
        self._waiting.append(done)
        if not self._running:
            self._running = True
            self._go_on(self._work(), soon)

    def _go_on(self, work: Generator[None, None, None], soon: Callable[[Callable[[], None]], object]) -> None:
        try:
            next(work)
        except StopIteration:
            self._running = False
        except BaseException:
            self._running = False
            raise
        else:
            soon(lambda: self._go_on(work, soon))

    def _work(self) -> Generator[None, None, None]:
        while self._waiting:
            asked, self._waiting = self._waiting, deque()
            made = yield from self._count()
            while asked:
                asked.popleft()(made)
                if asked or self._waiting:
                    yield
