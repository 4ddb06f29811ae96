"""Size and update count of each map on one member, counted in slices because there may be many maps.

- observe/F-1: A slice looks at no more than `COPIES` maps in partitions, which takes one or two ms.
- observe/F-2: Concurrent requests share counts: one count runs at a time, and one request is answered per turn of the
  loop. A status takes a ms to make, and a connection may ask a thousand times at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from itertools import islice
from typing import Final, Generic, TypeVar

from holdfast.core.member import Member
from holdfast.core.model.map_counts import sums_of
from holdfast.core.model.member_status import MapFigure, MemberCount

T = TypeVar("T")

COPIES: Final = 500
SAMPLES, SAMPLED_COPIES = 4, 16
"""Sizes are sampled from this many entries in each of this many copies of a map."""


def counting_maps(member: Member) -> Generator[None, None, MemberCount]:
    """Yields between slices (observe/F-1)."""
    count = MemberCount()
    sampled: dict[str, list[int]] = {}
    """By map: sampled copies, sampled entries, and their bytes."""
    led = {copy.partition for copy in member.picture.leading if copy is not None}
    looked = 0
    held_here = [(partition in led, copy.maps) for partition, copy in member.picture.held.items()]
    zoned = [(leads, copy.maps) for copy, leads in member.picture.copies.in_zones()]
    for leads, maps in [*held_here, *zoned]:
        for name, held in list(maps.items()):
            looked += 1
            if not looked % COPIES:
                yield
            kept = held.state.entries
            size = len(kept)
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
    removed = member.picture.removed
    count.evicted = sums_of(*(each.evicted.by_map for each in removed))
    count.expired = sums_of(*(each.expired.by_map for each in removed))
    return count


class SharedCounts(Generic[T]):
    """Counts that concurrent requests share.

    A request that arrives during a count waits for the next one: the running count may have passed a map that changed
    before the request was sent, and its sender would miss its own write.
    """

    def __init__(self, count: Callable[[], Generator[None, None, T]]) -> None:
        self._count = count
        self._waiting: deque[Callable[[T], None]] = deque()
        self._running = False

    def ask(self, done: Callable[[T], None], soon: Callable[[Callable[[], None]], object]) -> None:
        """`done` gets the count; `soon` schedules a call for the next turn of the loop."""
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
