"""Measures a member's memory often enough, and notifies the member when its room changes.

Example: with a limit of 1 GB memory is measured after each 3.9 MB of messages. If entries of 100 bytes take
400 when stored, 16 MB may be added between two looks: far less than the 100 MB that are left when the member
begins to reject writes. A single request larger than 3.9 MB is compared with the room before it is accepted
(`fits`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.core.model.views import Room
from holdfast.runtime.memory import Gauge, Limit

MEASURE_S = 0.1
MEASURE_PART, MEASURE_BYTES_MIN = 256, 262_144
"""Memory is also measured each time that this part of the limit has arrived in messages, or so many bytes if
that is more. A small entry takes several times the size of its message once it is stored: with its share of
the backlog, and of the last updates.
"""
HELD_PART = 32
"""Without room in memory, incomplete messages of clients may take this part of the limit."""


class MemoryWatch:
    def __init__(self, limit: Limit) -> None:
        self.gauge = Gauge(limit)
        self._arrived = 0
        self._measure_after = max(MEASURE_BYTES_MIN, limit.size // MEASURE_PART)
        self._room = Room.PLENTY
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._on_room: Callable[[Room], None] = _ignore_room
        self._relieve: Callable[[int], None] = _ignore_size
        self._stop_freeing: Callable[[], None] | None = None

    def connect(self, on_room: Callable[[Room], None], relieve: Callable[[int], None]) -> None:
        """`on_room` is called when the room changes. `relieve` takes how many bytes of incomplete messages
        may stay when there is no room.
        """
        self._on_room, self._relieve = on_room, relieve

    def begin(self, loop: asyncio.AbstractEventLoop, stop_freeing: Callable[[], None] | None) -> None:
        """Measure from now on, until `stop`, which also ends background freeing."""
        self._stop_freeing = stop_freeing
        self._measure_again(loop)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        stop_freeing, self._stop_freeing = self._stop_freeing, None
        if stop_freeing is not None:
            stop_freeing()

    def came(self, size: int) -> None:
        self._arrived += size
        if self._arrived >= self._measure_after:
            self._measure()

    def fits(self, size: int) -> bool:
        """Whether there is room for a request of this size. Small ones are not compared: measuring is enough."""
        return size <= self._measure_after or self.gauge.fits(size)

    def _measure_again(self, loop: asyncio.AbstractEventLoop) -> None:
        self._measure()
        if not self._stopped:
            self._timer = loop.call_later(MEASURE_S, self._measure_again, loop)

    def _measure(self) -> None:
        self._arrived = 0
        room = self.gauge.look()
        if room is not self._room:
            self._room = room
            self._on_room(room)
        if room is Room.NONE:
            self._relieve(self.gauge.limit.size // HELD_PART)


def _ignore_room(_: Room) -> None:
    pass


def _ignore_size(_: int) -> None:
    pass
