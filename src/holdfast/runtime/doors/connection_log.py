"""Counts and logs events that unauthenticated peers can cause.

Lines are rate-limited by kind, so no peer can fill the log. Foreign text is quoted, so it cannot imitate a line of the
member.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable

from holdfast.runtime.logs.limited_lines import LimitedLines, quoted

FAULTY = "requests that met an error inside this member"
"""Prefix of the counter for internal errors, before the kind of request."""
log = logging.getLogger("holdfast")


class ConnectionLog:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: in seconds."""
        self._lines = LimitedLines(clock)
        self.counts: Counter[str] = Counter()

    def closed(self, why: str, /) -> None:
        self.counts["client connections closed by this member"] += 1
        log.debug("client connection closed: %s", quoted(why))

    def report(
        self,
        kind: str,
        line: str,
        /,
        *args: object,
        level: int = logging.WARNING,
        error: BaseException | None = None,
    ) -> None:
        """Count an event and log it, rate-limited. `args`: foreign text, which is quoted; `error`: an
        internal error, logged with its traceback.
        """
        self.counts[kind] += 1
        self._lines.write(kind, line, *map(quoted, args), level=level, error=error)
