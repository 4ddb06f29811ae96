"""Choice between a delta and the full content of a map, from what source and receiver can prove.

- state_transfer/C-1: The receiver's base must be a *prefix* of the source's history: its last update has a term in the
  source's lineage, with the same first number, and does not lie beyond the end of that term. A primary uses each number
  of its term once, so everything before that update is equal as well. Example: the lineage here is term 3 from update 1
  on and term 5 from 18 on. A base at 17 of term 3 is a prefix, and gets updates 18 and later. A base at 19 of term 3 is
  not: its primary was replaced before it replicated 18 and 19, and term 5 has other updates 18 and 19. A delta would
  keep the old ones for ever, so everything is sent.
- state_transfer/C-2: A prefix gets only later updates, if these are still known, in memory or in the journal.
- state_transfer/C-3: If digests are compared as well, key ranges with different digests are sent whole.
- state_transfer/C-4: In all other cases the full content is sent, and the reason is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.core.model.sync_request import Base, How

HISTORY_LEAST = 256
"""Fewer missed updates are always sent one by one."""


@dataclass(frozen=True, slots=True)
class Mine:
    lineage: Sequence[tuple[int, int]]
    counter: int
    entries: int
    starts: int
    """All updates after this number are known; equal to `counter`: none is."""
    digests: Sequence[int] = ()
    """Digests of its key ranges, if they are compared; a single one covers the whole map."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The content to send of a map, and the reason for not sending less."""

    how: How
    why: str
    after: int = 0
    """Updates after this number are sent, unless the content is."""
    ranges: tuple[int, ...] = ()
    short: bool = False
    """Older updates are unknown: the only reason for the full content."""


def choose(mine: Mine, base: Base | None, *, same_epoch: bool = True) -> Choice:
    why = _prefix_problem(mine, base) if same_epoch else "the partition was started again, empty"
    if why or base is None:
        return Choice(How.FULL, why)
    after = base.lwm
    missing = mine.counter - after
    if missing > max(HISTORY_LEAST, 2 * mine.entries):
        return Choice(How.FULL, f"{missing} updates were missed, and there are {mine.entries} entries")
    if missing and after < mine.starts:
        return Choice(
            How.FULL, f"history starts at {mine.starts} and {after} was asked", after=after, short=True
        )
    ranges = tuple(
        at for at, (one, other) in enumerate(zip(mine.digests, base.digests, strict=False)) if one != other
    )
    if len(base.digests) not in (0, len(mine.digests)):
        return Choice(How.FULL, f"it has {len(base.digests)} key ranges there, and {len(mine.digests)} here")
    if ranges and len(mine.digests) == 1:
        return Choice(How.FULL, "its content differs")
    if ranges:
        return Choice(How.RANGES, f"the content of {len(ranges)} key ranges differs", after, ranges)
    if missing:
        return Choice(How.HISTORY, f"{missing} updates after {after} were missed", after)
    return Choice(How.SAME, f"nothing was missed after {after}", after)


def _prefix_problem(mine: Mine, base: Base | None) -> str:
    """Why the base is no prefix of the source's history; empty: it is."""
    if base is None or not base.highest:
        return "the receiver holds nothing"
    if not base.lwm:
        return "the receiver can prove nothing"
    if not base.lineage:
        return "its history is unknown"
    term, start = base.lineage[-1]
    for at, (known, began) in enumerate(mine.lineage):
        if known != term:
            continue
        if began != start:
            return f"term {term} began after {began} here and after {start} there"
        end = mine.lineage[at + 1][1] if at + 1 < len(mine.lineage) else mine.counter
        if base.highest > end:
            return f"diverged: {base.highest} of term {term} is held there, which ended at {end} here"
        return ""
    return f"term {term} is not known here"
