"""What strangers say and do at the doors, for the log and the status.

It is counted by its kind. The log hears of the first few of each kind in a while, and later of how many were left out:
nobody fills it by knocking. What they say is quoted, so that it cannot pass for a line of the member's own.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable

from holdfast.runtime.logs.limited_lines import LimitedLines, quoted

FAULTY = "requests that met an error inside this member"
"""What such errors are counted as, before the kind of the request."""
log = logging.getLogger("holdfast")


class Strangers:
    """Counts and tells what happens at the doors of one member."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: in seconds."""
        self._lines = LimitedLines(clock)
        self.counts: Counter[str] = Counter()
        """How often each kind of thing has happened since the start."""

    def closed(self, why: str, /) -> None:
        """This member has closed a client's connection."""
        self.counts["client connections closed by this member"] += 1
        log.debug("client connection closed: %s", quoted(why))

    def tell(
        self,
        kind: str,
        line: str,
        /,
        *said: object,
        level: int = logging.WARNING,
        error: BaseException | None = None,
    ) -> None:
        """Count it, and write the line with what was said, unless there were enough of this kind. `kind` and `line` are
        ours, `said` is theirs; of an `error` in the member itself also where it happened.
        """
        self.counts[kind] += 1
        self._lines.tell(kind, line, *map(quoted, said), level=level, error=error)
