"""Operations that wait for something, for people to look at: what, where, since when, and for whom."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from holdfast.core.model.ids import MemberId


@dataclass(frozen=True, slots=True)
class OpenOperation:
    """One that is under way, or several that wait together. It has no key and no value."""

    mark: tuple[str, int]
    """No other one that is under way has this."""
    kind: str
    """What it is, in words."""
    count: int
    """How many operations are told of together, at least."""
    places: Mapping[str, Collection[int]]
    """By map, the partitions that it is about."""
    since_ns: int
    """Since when it waits, by the member's clock."""
    waits_for: str
    """For what, in words, as it was first seen."""
    members: tuple[MemberId, ...] = ()
    """And for whom."""


Mark = tuple[tuple[str, int], int]
"""Names an operation that is under way: its own mark, and since when it waits."""
Followed = Mapping[Mark, OpenOperation]
"""Those that were seen before: what they are is not made out again."""
