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
    """A minimum."""
    places: Mapping[str, Collection[int]]
    """Map -> partitions."""
    since_ns: int
    """By the member's clock."""
    waits_for: str
    """In words, when it was first seen."""
    members: tuple[MemberId, ...] = ()


Mark = tuple[tuple[str, int], int]
"""With since when it waits."""
Followed = Mapping[Mark, OpenOperation]
