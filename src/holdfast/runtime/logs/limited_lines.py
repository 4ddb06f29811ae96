"""Lines of the log of which many may come: the first few of each kind in a while, and then how many were left out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LINES = 5
"""Of one kind, in one period."""
PERIOD_S = 10.0
SAID_MAX = 200
"""Characters that are shown of what somebody says."""

log = logging.getLogger("holdfast")


def quoted(said: object, most: int = SAID_MAX) -> str:
    """What somebody says, as one line of printable characters that has an end."""
    text = str(said)
    cut = text[:most]
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in cut)
    return shown if len(text) <= most else f"{shown}... ({len(text)} characters)"


class _Kind:
    """Lines of one kind in the present period."""

    __slots__ = ("began_s", "left_out", "told")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.told = self.left_out = 0


class LimitedLines:
    """What was written of each kind not long ago."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: in seconds."""
        self._clock = clock
        self._kinds: dict[str, _Kind] = {}

    def tell(
        self,
        kind: str,
        line: str,
        /,
        *said: object,
        level: int = logging.WARNING,
        error: BaseException | None = None,
        extra: dict[str, object] | None = None,
    ) -> None:
        """Write the line, unless there were enough of this kind. `extra`: what the record has besides."""
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
            return
        known.told += 1
        log.log(level, line, *said, exc_info=error, extra=extra)
