"""How much of one connection may be under way: answers that nobody has read yet, and work that is cut into slices.

- F-1: A session stops in the middle of what has come when answers take more room than the connection has, and goes on
  when they have left. What waits for backups or for other members counts as an answer.
- F-2: Long work is a generator that yields after each slice of some ms. The first slice is made at once; the session
  looks at nothing else of its connection until the last one is, so that requests are carried out in their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence

SLICE_ITEMS = 2000
"""Keys, entries or frames in a slice of work: some ms."""
SLICE_BYTES = 1 << 20
"""And so many bytes of them, at about."""
EXPECTED_SHARE = 128
"""An answer whose size is not known yet is taken for this part of `limits.unread_bytes`,"""
EXPECTED_LIST_SHARE = 8
"""and one that lists entries for this part."""
ENDLESS = 1 << 62

Work = Generator[None, None, None]


class Flow:
    """What is under way of one connection."""

    __slots__ = ("_room", "_wake", "_works", "expected", "held", "most", "rest")

    def __init__(
        self,
        room: Callable[[], int] = lambda: ENDLESS,
        wake: Callable[[], None] = lambda: None,
        most: int = ENDLESS,
    ) -> None:
        """`room`: how many bytes of answers the connection takes now; below 0: too many are unread. `wake` is called
        when there is work for `step`. `most`: `limits.unread_bytes`.
        """
        self._room = room
        self._wake = wake
        self.most = most
        self.held = 0
        """Bytes of answers that wait for backups."""
        self.expected = 0
        """Bytes for which answers are taken that are still to be made."""
        self.rest = False
        """Whether the session has stopped in the middle of what has come. Kept by the session."""
        self._works: deque[Work] = deque()

    @property
    def left(self) -> int:
        """Bytes of answers that there is room for; below 0: nothing more should be taken up."""
        return self._room() - self.held - self.expected

    @property
    def working(self) -> bool:
        """Whether there is work for `step`."""
        return bool(self._works)

    @property
    def halted(self) -> bool:
        """Whether the session has something to do without anything more coming."""
        return self.rest or bool(self._works)

    @property
    def must_halt(self) -> bool:
        """Whether the session has to stop where it is (F-1, F-2)."""
        return bool(self._works) or self._room() < self.held + self.expected

    def begin(self, work: Work) -> None:
        """Make the first slice, and see to the others."""
        if _goes_on(work):
            self._works.append(work)
            self._wake()

    def step(self) -> None:
        """Make one slice, if there is any."""
        if self._works:
            work = self._works.popleft()
            if _goes_on(work):
                self._works.append(work)

    def end(self) -> None:
        """The connection is over: nothing of it is of use any more."""
        self.rest = False
        works, self._works = self._works, deque()
        for work in works:
            work.close()


def slices(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where each slice of things of these sizes, in bytes, begins and ends."""
    begin = size = 0
    for at, one in enumerate(sizes):
        if at - begin >= SLICE_ITEMS or (size + one > SLICE_BYTES and at > begin):
            yield begin, at
            begin, size = at, 0
        size += one
    if begin < len(sizes):
        yield begin, len(sizes)


def _goes_on(work: Work) -> bool:
    """Make a slice; answers whether there are more."""
    try:
        next(work)
    except StopIteration:
        return False
    return True
