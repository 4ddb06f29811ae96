"""Rate limiting of log lines: the first few of each kind per period, then a count of those left out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LINES = 5
PERIOD_S = 10.0
SAID_MAX = 200

log = logging.getLogger("holdfast")


def quoted(said: object, most: int = SAID_MAX) -> str:
    text = str(said)
    cut = text[:most]
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in cut)
    return shown if len(text) <= most else f"{shown}... ({len(text)} characters)"


class _Kind:
    __slots__ = ("began_s", "left_out", "told")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.told = self.left_out = 0


class LimitedLines:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: in seconds."""
        self._clock = clock
        self._kinds: dict[str, _Kind] = {}

    def write(
        self,
        kind: str,
        line: str,
        /,
        *said: object,
        level: int = logging.WARNING,
        error: BaseException | None = None,
        extra: dict[str, object] | None = None,
    ) -> None:
        """Log the line unless its kind has reached the limit. `extra`: further fields of the record."""
        if self.admit(kind, level):
            log.log(level, line, *said, exc_info=error, extra=extra)

    def admit(self, kind: str, level: int = logging.WARNING) -> bool:
        """Whether one more line of this kind may be logged; it is counted. For lines that are costly to build."""
        now_s = self._clock()
        known = self._kinds.get(kind)
        if known is None or now_s - known.began_s >= PERIOD_S:
            before = known
            known = self._kinds[kind] = _Kind(now_s)
            if before is not None and before.left_out:
                log.log(
                    level, "%s: %d more in the last %.0f s", kind, before.left_out, now_s - before.began_s
                )
        if known.told >= LINES:
            known.left_out += 1
            return False
        known.told += 1
        return True
