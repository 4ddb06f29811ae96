"""The baseline: the members that own data, and how it became what it is.

They are named by what they are called in all their lives. Without a baseline every member that is no lite one owns
data, as soon as it is here. It is part of the view, so it changes for all members at once, and all that keep files
write it down. Every change is a new end of its history: a hash of the end before it and of what has changed. Of two
histories one is a beginning of the other, or they have branched: each side has decided something without the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

import msgspec

HISTORY_KEPT = 64
"""So many changes are remembered. Who was away for more of them is taken for one of another history."""
HASH_DIGITS = 16
FIXED = -1
"""Not adjusted by itself."""


class BaselineMember(msgspec.Struct, frozen=True, array_like=True):
    """One of those who own data."""

    consistent_id: str
    group: str = ""
    """As it was last here."""
    away: bool = False
    """Whether it has gone without giving its partitions away: its places are kept."""


class Baseline(msgspec.Struct, frozen=True, array_like=True):
    """Who owns data."""

    members: tuple[BaselineMember, ...]
    """Sorted by consistent id."""
    adjust_ms: int = FIXED
    """So long after the last change of the members it becomes who is here; FIXED: never."""
    changes: int = 0
    """How often it was changed."""
    history: tuple[str, ...] = ()
    """The ends of the history after the last changes, the newest last."""

    @property
    def point(self) -> str:
        """The end of the history."""
        return self.history[-1]

    @property
    def ids(self) -> frozenset[str]:
        """Who owns data, here or not."""
        return frozenset(member.consistent_id for member in self.members)

    @property
    def away(self) -> tuple[BaselineMember, ...]:
        """Those whose places are kept."""
        return tuple(member for member in self.members if member.away)

    def changed(self, members: Iterable[BaselineMember], adjust_ms: int, why: str) -> Baseline:
        """With other members, or another time of adjusting; `why` is part of the history, too."""
        found = tuple(sorted(members, key=lambda member: member.consistent_id))
        said = (self.history[-1:], [member.consistent_id for member in found], adjust_ms, why)
        end = hashlib.sha256(msgspec.json.encode(said)).hexdigest()[:HASH_DIGITS]
        return Baseline(found, adjust_ms, self.changes + 1, (*self.history, end)[-HISTORY_KEPT:])

    def went_on(self, here: Collection[str]) -> Baseline:
        """The same members, when only these of them were here to decide how the cluster goes on."""
        return self.changed(self.members, self.adjust_ms, f"went on with {sorted(here)}")


def is_beginning(one: Baseline | None, other: Baseline | None) -> bool:
    """Whether the history of `other` begins with all of that of `one`, as far as that is remembered."""
    if one is None:
        return True
    if other is None or one.changes > other.changes:
        return False
    place = len(other.history) - 1 - (other.changes - one.changes)
    return place >= 0 and other.history[place] == one.point
