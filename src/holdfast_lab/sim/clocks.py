"""Clocks of the hosts.

Each has a monotonic clock, which may run fast or slow, stop while the host is suspended, and jump ahead; and
a calendar, which may be set. Their total deviation limits that of an entry's time to live.
"""

from __future__ import annotations

import random
from zlib import crc32

from holdfast.core.model.ids import MILLISECOND, SECOND

MILLION = 1_000_000
DRIFT_PPM = 30_000
WALL_MS = 1_700_000_000_000
SKEW_MS = 60_000
SYNCHRONISED_MS = 500
UPTIME_NS = 30 * 24 * 3600 * SECOND


class Clock:
    """The two clocks of one host. Times of the world are true nanoseconds."""

    def __init__(self, host: str, skew_ms: int = SKEW_MS) -> None:
        self.host = host
        self.ppm = MILLION
        self._since_ns = 0
        self._shown_ns = 0
        self._skew_ms = crc32(host.encode()) % (2 * skew_ms) - skew_ms

    def now_ns(self, world_ns: int) -> int:
        return self._shown_ns + max(0, world_ns - self._since_ns) * self.ppm // MILLION

    def when(self, shown_ns: int) -> int:
        """World time at which an undisturbed clock will have this reading."""
        return self._since_ns - (self._shown_ns - shown_ns) * MILLION // self.ppm

    def wall_ms(self, world_ns: int) -> int:
        return WALL_MS + self._skew_ms + world_ns // MILLISECOND

    def skip(self, world_ns: int, by_ns: int) -> None:
        self._shown_ns = self.now_ns(world_ns) + by_ns
        self._since_ns = max(world_ns, self._since_ns)

    def stand(self, world_ns: int, for_ns: int) -> None:
        self._shown_ns = self.now_ns(world_ns)
        self._since_ns = max(world_ns, self._since_ns) + for_ns

    def set_calendar(self, by_ms: int) -> None:
        self._skew_ms += by_ms

    def drift(self, ppm: int, shown_ns: int) -> None:
        """Set rate and initial reading. Call before the clock is read."""
        self._shown_ns, self.ppm = shown_ns, ppm


class Clocks:
    def __init__(self) -> None:
        self._of: dict[str, Clock] = {}
        self._drift: random.Random | None = None
        self.fastest_ppm = self.slowest_ppm = MILLION
        self.stood_ns = 0
        """Total; entries may end so much later."""
        self.skipped_ns = 0
        """Total; entries may end so much sooner."""
        self.set_ahead_ns = 0
        """Total; after a restart from files, entries may end so much sooner."""
        self.set_back_ns = 0
        """Total; so much later, but at most the whole time to live after the restart."""
        self.skew_ms = SKEW_MS
        """Largest initial deviation of calendars. Set it before one is read."""

    @property
    def apart_ns(self) -> int:
        return 2 * self.skew_ms * MILLISECOND + self.set_ahead_ns + self.set_back_ns

    def err(self, draw: random.Random) -> None:
        self._drift = draw

    def of(self, host: str) -> Clock:
        clock = self._of.get(host)
        if clock is None:
            clock = self._of[host] = Clock(host, self.skew_ms)
            if self._drift is not None:
                ppm = MILLION + self._drift.randint(-DRIFT_PPM, DRIFT_PPM)
                clock.drift(ppm, self._drift.randint(0, UPTIME_NS))
                self.fastest_ppm = max(self.fastest_ppm, ppm)
                self.slowest_ppm = min(self.slowest_ppm, ppm)
        return clock

    def skip(self, host: str, world_ns: int, by_ns: int) -> None:
        self.of(host).skip(world_ns, by_ns)
        self.skipped_ns += by_ns

    def stand(self, host: str, world_ns: int, for_ns: int) -> None:
        """Stop the monotonic clock; processes of the host must stop as well."""
        self.of(host).stand(world_ns, for_ns)
        self.stood_ns += for_ns

    def set_calendar(self, host: str, by_ms: int) -> None:
        self.of(host).set_calendar(by_ms)
        if by_ms > 0:
            self.set_ahead_ns += by_ms * MILLISECOND
        else:
            self.set_back_ns -= by_ms * MILLISECOND

    def earliest_ns(self, ttl_ns: int, *, files: bool) -> int:
        """How long after its write an entry certainly exists, in true time. `files`: whether it may have been
        read from a disk since.
        """
        early_ns = self.skipped_ns + (self.set_ahead_ns if files else 0)
        return max(0, (ttl_ns - early_ns) * MILLION // self.fastest_ppm)

    def latest_ns(self, ttl_ns: int, *, files: bool) -> int:
        """How long after its write it may exist at most, as far as clocks decide."""
        late_ns = self.stood_ns + (self.set_back_ns if files else 0)
        return (ttl_ns * MILLION) // self.slowest_ppm + late_ns
