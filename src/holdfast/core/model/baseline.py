"""The baseline: the members that own data, and its history.

It lists consistent ids. Without a baseline every present member that is not lite owns data. It is part of the
view. Each change adds an end to its history: a hash of the previous end and of the change. Either one of two
histories is the beginning of the other, or they have branched: each side has decided something without the
other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

import msgspec

HISTORY_KEPT = 64
"""A member that was away for more changes counts as one of another history."""
HASH_DIGITS = 16
FIXED = -1


class BaselineMember(msgspec.Struct, frozen=True, array_like=True):
    consistent_id: str
    group: str = ""
    """Its group when it was last present."""
    away: bool = False
    """It has gone without giving its partitions away: its places are kept."""


class Baseline(msgspec.Struct, frozen=True, array_like=True):
    members: tuple[BaselineMember, ...]
    """Sorted by consistent id."""
    adjust_ms: int = FIXED
    """The present members become the baseline this long after the last change of members; FIXED: never."""
    changes: int = 0
    history: tuple[str, ...] = ()
    """Newest last."""

    @property
    def point(self) -> str:
        return self.history[-1]

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(member.consistent_id for member in self.members)

    @property
    def away(self) -> tuple[BaselineMember, ...]:
        return tuple(member for member in self.members if member.away)

    def changed(self, members: Iterable[BaselineMember], adjust_ms: int, why: str) -> Baseline:
        """`why` is part of the history too."""
        found = tuple(sorted(members, key=lambda member: member.consistent_id))
        said = (self.history[-1:], [member.consistent_id for member in found], adjust_ms, why)
        end = hashlib.sha256(msgspec.json.encode(said)).hexdigest()[:HASH_DIGITS]
        return Baseline(found, adjust_ms, self.changes + 1, (*self.history, end)[-HISTORY_KEPT:])

    def continued(self, here: Collection[str]) -> Baseline:
        """The baseline after only those in `here` decided how the cluster continues."""
        return self.changed(self.members, self.adjust_ms, f"went on with {sorted(here)}")


def is_beginning(one: Baseline | None, other: Baseline | None) -> bool:
    """Whether one history begins the other, as far as it is remembered."""
    if one is None:
        return True
    if other is None or one.changes > other.changes:
        return False
    place = len(other.history) - 1 - (other.changes - one.changes)
    return place >= 0 and other.history[place] == one.point
