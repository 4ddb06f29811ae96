"""Events of entries for listeners, with keys and values as program objects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class ChangeKind(IntEnum):
    """Kind of an event, with the numbers of the protocol."""

    MISSED = 0
    """Only in `holdfast.aio`. A connection broke, or another member took over: changes in between may be missing."""
    ADDED = 1
    REMOVED = 2
    UPDATED = 4
    EVICTED = 8
    EXPIRED = 16
    ALL_EVICTED = 32
    CLEARED = 64


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One change of one entry; of the whole map (`key` is None) when it was cleared or evicted."""

    kind: ChangeKind
    key: Any = None
    value: Any = None
    """The new value; None if it is gone, or values were not requested. `Serialized` if its type is unknown."""
    old: Any = None
    """The former value."""
    count: int = 1
    """Number of changed entries."""
    member: str = ""
    """UUID of the member on which it happened; empty: unknown."""
