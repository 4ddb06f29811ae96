"""Slow operations: the latest for the status, and rate-limited lines in the log.

Serving requests costs nothing extra. A timer looks at waiting operations (`MemberView.open_since`) and
remembers those that have waited for `log.slow_operation_ms`; the first look that misses one reports it as
ended. So durations are exact to one look, and an operation that ends before a look found it slow is missed.
Operations that only compute wait for nothing; they stall the event loop and are reported as such (`stalls`).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

import msgspec

from holdfast.core.model.collections import shown_name
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.member_status import SlowOperation, SlowOperationsStatus
from holdfast.core.model.open_operations import Followed, Mark, OpenOperation
from holdfast.runtime.logs.limited_lines import LimitedLines, log, quoted
from holdfast.runtime.logs.process_log import FIELDS

KEPT = 100
FOLLOWED = 1000
PLACES_SHOWN = 5
LOOKS = 2
LOOK_MIN_S, LOOK_MAX_S = 0.01, 0.25


class SlowOperations:
    def __init__(
        self,
        limit_ms: int,
        open_since: Callable[[int, Followed], Iterable[OpenOperation]],
        names: Callable[[], Mapping[MemberId, str]],
        lines: LimitedLines,
        clock: Callable[[], int] = time.monotonic_ns,
        on_ended: Callable[[SlowOperation], None] = lambda _: None,
    ) -> None:
        """`open_since`: operations waiting since before then (`MemberView.open_since`). `names`: of members.
        `clock`: the member's, in ns. `on_ended` is called with each that has ended.
        """
        assert limit_ms > 0, "slow operations are reported"
        self._limit_ns = limit_ms * MILLISECOND
        self.look_s = min(LOOK_MAX_S, max(LOOK_MIN_S, limit_ms / 1000 / LOOKS))
        self._open_since = open_since
        self._names = names
        self._lines = lines
        self._clock = clock
        self._on_ended = on_ended
        self._followed: dict[Mark, OpenOperation] = {}
        self._kept: deque[SlowOperation] = deque(maxlen=KEPT)
        self.count = 0

    def look(self) -> None:
        now_ns = self._clock()
        before = self._followed
        followed: dict[Mark, OpenOperation] = {}
        for one in self._open_since(now_ns - self._limit_ns, before):
            mark = one.mark, one.since_ns
            if mark in before or len(followed) < FOLLOWED:
                followed[mark] = one
        self._followed = followed
        for mark, one in before.items():
            if mark not in followed:
                self._ended(one, now_ns)

    def _ended(self, one: OpenOperation, now_ns: int) -> None:
        self.record(self._described(one, now_ns, time.time_ns() // MILLISECOND))

    def stalled(self, late_s: float) -> None:
        """Report a stall of the event loop, which delayed every request that arrived during it."""
        if late_s * 1e9 >= self._limit_ns:
            self.record(
                SlowOperation(
                    ended_ms=time.time_ns() // MILLISECOND,
                    took_ms=round(1000 * late_s),
                    kind="a turn of the event loop",
                    operations=0,
                    places={},
                    waited_for="this member's processor: all requests in that time",
                    members=[],
                )
            )

    def record(self, operation: SlowOperation) -> None:
        """Keep an operation that has ended, and log it if the rate limit permits."""
        self.count += 1
        self._kept.append(operation)
        self._on_ended(operation)
        if self._lines.admit("slow operations", logging.INFO):
            fields = msgspec.structs.asdict(operation)
            text = " ".join(f"{name}={quoted(value)}" for name, value in fields.items() if name != "ended_ms")
            extra = {FIELDS: {"event": "slow operation", **fields}}
            log.info("slow operation: %s", text, extra=extra)

    def _described(self, one: OpenOperation, now_ns: int, ended_ms: int | None) -> SlowOperation:
        names = self._names()
        places = {
            quoted(shown_name(name)): _shown(sorted(partitions))
            for name, partitions in sorted(one.places.items())[:PLACES_SHOWN]
        }
        if len(one.places) > PLACES_SHOWN:
            places[f"and {len(one.places) - PLACES_SHOWN} more maps"] = []
        return SlowOperation(
            ended_ms=ended_ms,
            took_ms=(now_ns - one.since_ns) // MILLISECOND,
            kind=one.kind,
            operations=one.count,
            places=places,
            waited_for=one.waits_for,
            members=[names.get(member, member) for member in one.members],
        )

    def status(self) -> SlowOperationsStatus:
        now_ns = self._clock()
        running = list(self._followed.values())[:KEPT]
        return SlowOperationsStatus(
            self._limit_ns // MILLISECOND,
            self.count,
            list(self._kept),
            [self._described(one, now_ns, None) for one in running],
        )


def _shown(partitions: list[int]) -> list[int | str]:
    more = len(partitions) - PLACES_SHOWN
    return [*partitions[:PLACES_SHOWN], *([f"and {more} more"] if more > 0 else [])]
