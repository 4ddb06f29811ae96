"""Limits of the work in progress for one connection: unread responses, and long work in slices.

The work of one connection in a turn of the event loop delays all others, timers and replication, and bytes alone do not
bound it. Example: a read buffer of 256 KB holds 11,000 pings, or 32,000 requests for the partition table, whose
responses are large. So a session counts units of work (about 1 µs each) and stops in the middle of the buffer after
`TURN_UNITS`, 5 ms; the rest waits for a later turn. The door bounds the sum of all connections by time (server/D-3).

- server/F-1: A session stops in the middle of its input when responses exceed the connection's room, and resumes when
  they have been sent. Responses that wait for backups or other members count as well.
- server/F-2: Long work is a generator that yields after slices of some ms. The first slice runs immediately; the
  session handles no other request of the connection before the last, which keeps their order.
- server/F-3: One turn of a connection does at most `TURN_UNITS` of work, however few bytes its requests have.
- server/F-4: A message that finds no memory before it is complete ends its own connection, and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence

SLICE_ITEMS = 2000
"""Keys, entries or frames per slice, some ms of work."""
SLICE_BYTES = 1 << 20
TURN_UNITS = 5000
"""Limit of work per connection and turn, in units of about 1 µs."""
REQUEST_UNITS = 40
"""Cost of a request outside the data lane."""
EXPECTED_SHARE = 128
"""A response of unknown size is estimated as this fraction of `limits.output_buffer_bytes`,"""
EXPECTED_LIST_SHARE = 8
"""and one with a list of entries as this fraction."""
ENDLESS = 1 << 62
NO_MEMORY_EVENT = "clients closed: no memory"
NO_MEMORY_FOR_INPUT = "the system has no memory for a message that is being received"
"""Only that connection ends: nothing of the member changes while input is gathered (server/F-4)."""

Work = Generator[None, None, None]


class Pressure:
    __slots__ = ("crowded",)

    def __init__(self) -> None:
        self.crowded = False
        """Whether all unread responses together exceed the limit."""


def _endless() -> int:
    return ENDLESS


def _nobody() -> None:
    pass


class Flow:
    """Work in progress of one connection. Plain attributes, because they are checked for each buffer."""

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
        """`room`: bytes that the connection accepts under pressure; negative: too many are unread. `wake` is called
        when `step` has work. `most`: `limits.output_buffer_bytes`.
        """
        self._room = room
        self._wake = wake
        self._pressure = pressure or Pressure()
        self.most = most
        self.gathered = 0
        """Bytes of responses to write; set by the connection."""
        self.paused = False
        """Whether the client does not read its responses; set by the connection."""
        self.coming = 0
        """Bytes of incomplete input; set by the session."""
        self.held = 0
        self.expected = 0
        """Estimated bytes of responses in progress."""
        self.rest = False
        """Whether the session has stopped in the middle of its input; set by the session."""
        self.spent = 0
        """Units of work in this turn; set by the session, which resets it for each input."""
        self.works: deque[Work] = deque()

    @property
    def left(self) -> int:
        """Room for responses in bytes; negative: accept no further requests."""
        if self.paused:
            return -1
        if self._pressure.crowded:
            return self._room() - self.held - self.expected
        return self.most - self.gathered - self.held - self.expected

    @property
    def halted(self) -> bool:
        """Whether the session has work without further input."""
        return self.rest or bool(self.works)

    @property
    def must_halt(self) -> bool:
        """See server/F-1, server/F-2, server/F-3."""
        return bool(self.works) or self.spent > TURN_UNITS or self.left < 0

    def begin(self, work: Work) -> None:
        """Run the first slice now and the others later."""
        assert work not in self.works, "work is begun once"
        if _goes_on(work):
            self.works.append(work)
            self._wake()

    def step(self) -> None:
        if self.works:
            work = self.works.popleft()
            if _goes_on(work):
                self.works.append(work)

    def end(self) -> None:
        self.rest = False
        self._room, self._wake = _endless, _nobody
        works, self.works = self.works, deque()
        for work in works:
            work.close()
        assert not self.works, "closing work begins no other work"


def slices(sizes: Sequence[int], items: int = SLICE_ITEMS) -> Iterator[tuple[int, int]]:
    """Bounds of slices over items of these sizes in bytes."""
    begin = size = 0
    for at, one in enumerate(sizes):
        if at - begin >= items or (size + one > SLICE_BYTES and at > begin):
            yield begin, at
            begin, size = at, 0
        size += one
    if begin < len(sizes):
        yield begin, len(sizes)


def _goes_on(work: Work) -> bool:
    try:
        next(work)
    except StopIteration:
        return False
    return True
