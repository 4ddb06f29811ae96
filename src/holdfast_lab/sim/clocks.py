"""The clocks of the hosts: a monotonic one each, which may be fast or slow, stand still while its host is suspended and
jump ahead, but never goes back; and a calendar, which somebody may set.

What all of them did together says how far an entry's time to live may be off, and no further.
"""

from __future__ import annotations

import random
from zlib import crc32

from holdfast.core.model.ids import MILLISECOND, SECOND

MILLION = 1_000_000
DRIFT_PPM = 30_000
"""How much faster or slower than true a clock may be, in millionths."""
WALL_MS = 1_700_000_000_000
"""When a simulated world begins, in milliseconds since 1970."""
SKEW_MS = 60_000
"""How far the calendar of a host may be off from the beginning."""
SYNCHRONISED_MS = 500
"""The same, where the hosts ask a time server."""
UPTIME_NS = 30 * 24 * 3600 * SECOND
"""How long a host may have been up when the world begins: where its monotonic clock stands."""


class Clock:
    """The two clocks of one host. Times of the world are true nanoseconds."""

    def __init__(self, host: str, skew_ms: int = SKEW_MS) -> None:
        """`skew_ms`: how far its calendar may be off at first."""
        self.host = host
        self.ppm = MILLION
        """How many millionths of a second this clock goes on in a second."""
        self._since_ns = 0
        """Time of the world at which the rate, or what is shown, was changed last."""
        self._shown_ns = 0
        """What it showed then."""
        self._skew_ms = crc32(host.encode()) % (2 * skew_ms) - skew_ms

    def now_ns(self, world_ns: int) -> int:
        """What the monotonic clock shows."""
        return self._shown_ns + max(0, world_ns - self._since_ns) * self.ppm // MILLION

    def when(self, shown_ns: int) -> int:
        """The time of the world at which it will show this, if nothing happens to it."""
        return self._since_ns - (self._shown_ns - shown_ns) * MILLION // self.ppm

    def wall_ms(self, world_ns: int) -> int:
        """What the calendar says."""
        return WALL_MS + self._skew_ms + world_ns // MILLISECOND

    def skip(self, world_ns: int, by_ns: int) -> None:
        """It jumps ahead."""
        self._shown_ns = self.now_ns(world_ns) + by_ns
        self._since_ns = max(world_ns, self._since_ns)

    def stand(self, world_ns: int, for_ns: int) -> None:
        """From now on it stands still for so long."""
        self._shown_ns = self.now_ns(world_ns)
        self._since_ns = max(world_ns, self._since_ns) + for_ns

    def set_calendar(self, by_ms: int) -> None:
        """Somebody, or something, sets the calendar."""
        self._skew_ms += by_ms

    def drift(self, ppm: int, shown_ns: int) -> None:
        """It goes at this rate, and showed this when the world began. To be said before anybody looks at it."""
        self._shown_ns, self.ppm = shown_ns, ppm


class Clocks:
    """Those of all hosts, and what judges must know of them."""

    def __init__(self) -> None:
        self._of: dict[str, Clock] = {}
        self._drift: random.Random | None = None
        self.fastest_ppm = self.slowest_ppm = MILLION
        self.stood_ns = 0
        """How long clocks have stood still, all together: as much later may something end."""
        self.skipped_ns = 0
        """How far they have jumped ahead, all together: as much sooner."""
        self.set_ahead_ns = 0
        """How far calendars were set ahead, all together: a restart from files may end something so much sooner."""
        self.set_back_ns = 0
        """How far they were set back: so much later, but not beyond the whole time after the restart."""
        self.skew_ms = SKEW_MS
        """How far calendars may be off at first. To be set before anybody looks at one."""

    @property
    def apart_ns(self) -> int:
        """How far two calendars may be apart."""
        return 2 * self.skew_ms * MILLISECOND + self.set_ahead_ns + self.set_back_ns

    def err(self, draw: random.Random) -> None:
        """From the beginning no two clocks agree, neither in what they show nor in how fast they are."""
        self._drift = draw

    def of(self, host: str) -> Clock:
        """The clocks of this host."""
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
        """The monotonic clock of this host jumps ahead."""
        self.of(host).skip(world_ns, by_ns)
        self.skipped_ns += by_ns

    def stand(self, host: str, world_ns: int, for_ns: int) -> None:
        """It stands still, from now on for so long; whoever runs there must stand still as well."""
        self.of(host).stand(world_ns, for_ns)
        self.stood_ns += for_ns

    def set_calendar(self, host: str, by_ms: int) -> None:
        """The calendar of this host is set."""
        self.of(host).set_calendar(by_ms)
        if by_ms > 0:
            self.set_ahead_ns += by_ms * MILLISECOND
        else:
            self.set_back_ns -= by_ms * MILLISECOND

    def earliest_ns(self, ttl_ns: int, *, files: bool) -> int:
        """How long after it was written an entry with this time to live is there for sure, in true time. `files`:
        whether it may have been read from a disk since.
        """
        early_ns = self.skipped_ns + (self.set_ahead_ns if files else 0)
        return max(0, (ttl_ns - early_ns) * MILLION // self.fastest_ppm)

    def latest_ns(self, ttl_ns: int, *, files: bool) -> int:
        """How long after it was written such an entry may still be there, in true time, as far as clocks go."""
        late_ns = self.stood_ns + (self.set_back_ns if files else 0)
        return (ttl_ns * MILLION) // self.slowest_ppm + late_ns
