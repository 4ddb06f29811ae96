"""What listeners hear: a change of an entry, with key and values as the program wrote them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class ChangeKind(IntEnum):
    """What happened, with the numbers of the protocol."""

    MISSED = 0
    """Of `holdfast.aio` alone. A connection broke, or another member came: what has changed meanwhile may not have been
    told."""
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
    """What the entry is now; None when it is gone, or values were not asked for. `Serialized` if it cannot be read."""
    old: Any = None
    """What it was before."""
    count: int = 1
    """Of how many entries it tells."""
    member: str = ""
    """UUID of the member on which it happened; empty if none is named."""
