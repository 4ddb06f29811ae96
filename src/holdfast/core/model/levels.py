"""Which feature levels are there, and what came with each?

A level is what all members of a cluster do on the wire and in their files. A build can do a range of them; the view
says which one is in force. What is sent and written is of that one, whatever the build could do; what is read may be of
any level that the build can do.

| level | since | what is new |
|-------|-------|-------------|
| 1 | the first build with levels | stores travel and are written down one by one, and chunks as columns |
| 2 | the same build | stores that say nothing else are packed: in messages, in chunks, and in the journal (format 2) |
| 2 | the same build | an operator may evict a member that has ended (membership/V-9) |
| 3 | the first build that forgets maps | destroyed maps are forgotten, and begin again by a record (journal format 3) |
| 3 | the same build | two members exchange their slots in one migration (EXCHANGE) |

Whoever adds a level adds a line here and in `SEGMENT_FORMATS`, raises `HIGHEST`, and asks `Outbox.level` where the new
thing is sent or written (`docs/upgrading.md`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

LOWEST: Final = 1
HIGHEST: Final = 3
"""What this build can do."""
PACKED: Final = 2
"""From this level on stores are packed."""
EVICTS: Final = 2
"""From this level on members understand that an operator evicts one."""
FORGETS: Final = 3
"""From this level on members forget maps that are empty, and understand that one begins again."""
EXCHANGES: Final = 3
"""From this level on the master plans migrations in which two members exchange their slots."""

SEGMENT_FORMATS: Final = {1: 1, 2: 2, 3: 3}
"""In which format the segments of a journal are that is written at this level."""


class FeatureLevels(msgspec.Struct, frozen=True, array_like=True):
    """The levels that a member can do."""

    lowest: int = LOWEST
    highest: int = LOWEST

    def can(self, level: int) -> bool:
        """Whether it can be in a cluster of this level."""
        return self.lowest <= level <= self.highest

    def __str__(self) -> str:
        return f"{self.lowest}" if self.lowest == self.highest else f"{self.lowest} to {self.highest}"


OF_THIS_BUILD: Final = FeatureLevels(LOWEST, HIGHEST)


def common(everyone: Iterable[FeatureLevels]) -> int:
    """The highest level that all of these can do; 0: there is none."""
    known = list(everyone)
    highest = min((levels.highest for levels in known), default=0)
    return highest if all(levels.can(highest) for levels in known) else 0


def segment_format(level: int) -> int:
    """The format of the segments that are begun at this level."""
    return SEGMENT_FORMATS[level]
