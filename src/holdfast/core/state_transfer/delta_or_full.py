"""How is a replica of a map brought up to date? The source's choice, from what both sides can prove. Pure.

- state_transfer/C-1: The base that the receiver has is a *prefix* of what the source holds when its last update is
  one of the source's: of a term that the source's lineage has, beginning at the same number, and not beyond where
  that term ended there. A term is one primary's, and a primary numbers once: so everything before is the same, too.
- state_transfer/C-2: Of a prefix only what followed is sent, if it is still known, in memory or in the journal.
- state_transfer/C-3: When digests are compared as well, key ranges in which they differ are sent whole, beside what
  followed.
- state_transfer/C-4: Everything else is sent in full, and the reason is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.core.model.sync_request import Base, How

HISTORY_LEAST = 256
"""So many updates are always cheap enough to be sent one by one."""


@dataclass(frozen=True, slots=True)
class Mine:
    """What the source holds of a map."""

    lineage: Sequence[tuple[int, int]]
    counter: int
    entries: int
    """How many there are."""
    starts: int
    """Every update after this number is known one by one; `counter`: none is."""
    digests: Sequence[int] = ()
    """Of its key ranges, if they are compared; one: it is compared as a whole."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is sent of a map, and why not less."""

    how: How
    why: str
    after: int = 0
    """For all but a full copy: the updates after this number are sent."""
    ranges: tuple[int, ...] = ()
    short: bool = False
    """A full copy only because older updates are not known."""


def choose(mine: Mine, base: Base | None, *, same_epoch: bool = True) -> Choice:
    """How to bring a receiver with this base to what the source holds."""
    why = _prefix_problem(mine, base) if same_epoch else "the partition began anew since"
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
    """Why the base is no prefix of what the source holds, in words; empty when it is."""
    if base is None or not base.highest:
        return "nothing is held there"
    if not base.lwm:
        return "nothing is proven there"
    if not base.lineage:
        return "of which history it is, is not known"
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
