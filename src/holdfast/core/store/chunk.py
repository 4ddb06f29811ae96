"""Chunks: how the content of a state travels."""

from __future__ import annotations

from typing import Protocol

from holdfast.core.messages import FillEntries, FillPlan, FillRecords, FillShare
from holdfast.core.model.records import Record
from holdfast.core.model.sync_request import How

ENTRY_OVERHEAD = 8
"""Approximate, without its bytes."""
LOOK_MIN, LOOK_MAX = 16, 4096
"""Entries that are measured at a time: about as many as fit."""


class Chunk:
    __slots__ = ("earlier", "look", "maps", "packs", "plans", "records", "shares", "size", "sizes")

    def __init__(self, look: int = LOOK_MIN, *, packs: bool = True) -> None:
        """`packs`: the receiver can read packed entries (membership/L-4)."""
        self.packs = packs
        self.maps: list[FillEntries] = []
        self.shares: list[FillShare] = []
        self.plans: list[FillPlan] = []
        self.records: list[FillRecords] = []
        self.earlier: list[FillRecords] = []
        self.size = 0
        self.sizes = {How.HISTORY: 0, How.RANGES: 0, How.FULL: 0}
        self.look = look

    def count(self, how: How, size: int) -> None:
        assert size >= 0, "a chunk only grows"
        self.size += size
        self.sizes[how] += size
        assert self.sizes[how] <= self.size, "each byte is of one kind"


class Numbered(Protocol):
    name: str

    @property
    def counter(self) -> int:
        """Every update up to this number is in the state."""

    def proven_lineage(self) -> list[tuple[int, int]]: ...


class Portion(Protocol):
    """The part of a state that is sent: everything, or some key ranges."""

    def add_to(self, chunk: Chunk, limit: int, now_ns: int) -> bool:
        """Add as much as fits into a chunk of `limit` bytes, at least something if it is empty. Returns whether that
        was the last.
        """


class Receiver(Protocol):
    """Takes a portion into a state that is being filled."""

    def begin(self, counter: int, ranges: frozenset[int] | None) -> None:
        """Drop what is held of these key ranges (None: all): content of this counter or a later one will come."""

    def pour(self, part: FillEntries | FillShare, now_ns: int) -> None: ...

    def land(self) -> None:
        """All parts have come, and the state has reached their moment. (Not called for a keyed state.)"""

    def take(self, record: Record, now_ns: int) -> None:
        """Apply an update, which may be in the content already. Each one comes once."""
