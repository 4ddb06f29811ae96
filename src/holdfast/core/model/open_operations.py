"""Waiting operations, for operators: which, where, since when, and for which members."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from holdfast.core.model.ids import MemberId


@dataclass(frozen=True, slots=True)
class OpenOperation:
    """One waiting operation, or several that wait together. It has no keys and no values."""

    mark: tuple[str, int]
    """Unique among the operations in progress."""
    kind: str
    count: int
    """Minimum number of operations that it stands for."""
    places: Mapping[str, Collection[int]]
    """Map -> partitions."""
    since_ns: int
    """When it began to wait, by the member's clock."""
    waits_for: str
    """The reason, in words, when it was first seen."""
    members: tuple[MemberId, ...] = ()
    """Members that it waits for."""


Mark = tuple[tuple[str, int], int]
"""Identifies a pending operation: its mark, and since when it waits."""
Followed = Mapping[Mark, OpenOperation]
"""Operations that were described before."""
