"""How much of one connection may be under way: answers that nobody has read yet, and work that is cut into slices.

- server/F-1: A session stops in the middle of what has come when answers take more room than the connection has, and
  goes on when they have left. What waits for backups or for other members counts as an answer.
- server/F-2: Long work is a generator that yields after each slice of some ms. The first slice is made at once; the
  session looks at nothing else of its connection until the last one is, so that requests are carried out in their
  order.
- server/F-3: One turn of a connection does at most `TURN_UNITS` of work, however cheap its requests are in bytes. For
  example, 256 KB hold 11,000 pings, or 32,000 questions for the table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence

SLICE_ITEMS = 2000
"""Keys, entries or frames in a slice of work: some ms."""
SLICE_BYTES = 1 << 20
"""And so many bytes of them, at about."""
TURN_UNITS = 5000
"""Work of one connection in one turn of the loop: a unit is about 1 µs."""
REQUEST_UNITS = 40
"""What any request costs that does not go through the data lane."""
EXPECTED_SHARE = 128
"""An answer whose size is not known yet is taken for this part of `limits.output_buffer_bytes`,"""
EXPECTED_LIST_SHARE = 8
"""and one that lists entries for this part."""
ENDLESS = 1 << 62

Work = Generator[None, None, None]


class Pressure:
    """What all connections of a member share."""

    __slots__ = ("crowded",)

    def __init__(self) -> None:
        self.crowded = False
        """Whether clients have left too many answers unread, all together."""


def _endless() -> int:
    return ENDLESS


def _nobody() -> None:
    pass


class Flow:
    """What is under way of one connection. The connection keeps the numbers that are its own, as plain attributes: they
    are looked at for each buffer that comes.
    """

    __slots__ = (
        "_pressure",
        "_room",
        "_wake",
        "coming",
        "expected",
        "gathered",
        "held",
        "most",
        "paused",
        "rest",
        "spent",
        "works",
    )

    def __init__(
        self,
        room: Callable[[], int] = _endless,
        wake: Callable[[], None] = _nobody,
        most: int = ENDLESS,
        pressure: Pressure | None = None,
    ) -> None:
        """`room`: how many bytes of answers the connection takes under pressure; below 0: too many are unread. `wake`
        is called when there is work for `step`. `most`: `limits.output_buffer_bytes`.
        """
        self._room = room
        self._wake = wake
        self._pressure = pressure or Pressure()
        self.most = most
        self.gathered = 0
        """Bytes of answers that are to be written. Kept by the connection."""
        self.paused = False
        """Whether the client does not read what was written. Kept by the connection."""
        self.coming = 0
        """Bytes that have come and cannot be worked on yet. Kept by the session."""
        self.held = 0
        """Bytes of answers that wait for backups."""
        self.expected = 0
        """Bytes for which answers are taken that are still to be made."""
        self.rest = False
        """Whether the session has stopped in the middle of what has come. Kept by the session."""
        self.spent = 0
        """Units of work of this turn. Kept by the session, which sets it to 0 when it is given something to do."""
        self.works: deque[Work] = deque()
        """What `step` is to go on with."""

    @property
    def left(self) -> int:
        """Bytes of answers that there is room for; below 0: nothing more should be taken up."""
        if self.paused:
            return -1
        if self._pressure.crowded:
            return self._room() - self.held - self.expected
        return self.most - self.gathered - self.held - self.expected

    @property
    def halted(self) -> bool:
        """Whether the session has something to do without anything more coming."""
        return self.rest or bool(self.works)

    @property
    def must_halt(self) -> bool:
        """Whether the session has to stop where it is (server/F-1, server/F-2, server/F-3)."""
        return bool(self.works) or self.spent > TURN_UNITS or self.left < 0

    def begin(self, work: Work) -> None:
        """Make the first slice, and see to the others."""
        assert work not in self.works, "work is begun once"
        if _goes_on(work):
            self.works.append(work)
            self._wake()

    def step(self) -> None:
        """Make one slice, if there is any."""
        if self.works:
            work = self.works.popleft()
            if _goes_on(work):
                self.works.append(work)

    def end(self) -> None:
        """The connection is over: nothing of it is of use any more, and nothing here refers to it."""
        self.rest = False
        self._room, self._wake = _endless, _nobody
        works, self.works = self.works, deque()
        for work in works:
            work.close()
        assert not self.works, "nobody begins what nobody would hear of"


def slices(sizes: Sequence[int], items: int = SLICE_ITEMS) -> Iterator[tuple[int, int]]:
    """Where each slice of things of these sizes, in bytes, begins and ends. `items`: the most in one."""
    begin = size = 0
    for at, one in enumerate(sizes):
        if at - begin >= items or (size + one > SLICE_BYTES and at > begin):
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
