"""How does what a state holds travel? In chunks, made of portions on one side, and taken by receivers on the other."""

from __future__ import annotations

from typing import Protocol

from holdfast.core.messages import FillEntries, FillPlan, FillRecords, FillShare
from holdfast.core.model.records import Record
from holdfast.core.model.sync_request import How

ENTRY_OVERHEAD = 8
"""What an entry or a piece costs in a chunk besides its bytes, at about."""
LOOK_MIN, LOOK_MAX = 16, 4096
"""Entries that are measured at a time: about as many as fit."""


class Chunk:
    """Some of the content of a partition, and how many bytes it counts for."""

    __slots__ = ("earlier", "look", "maps", "packs", "plans", "records", "shares", "size", "sizes")

    def __init__(self, look: int = LOOK_MIN, *, packs: bool = True) -> None:
        """`packs`: whether the receiver can read packed entries (membership/L-4)."""
        self.packs = packs
        self.maps: list[FillEntries] = []
        self.shares: list[FillShare] = []
        self.plans: list[FillPlan] = []
        self.records: list[FillRecords] = []
        self.earlier: list[FillRecords] = []
        self.size = 0
        self.sizes = {How.HISTORY: 0, How.RANGES: 0, How.FULL: 0}
        """The same by what they are part of."""
        self.look = look
        """How many entries are measured next."""

    def count(self, how: How, size: int) -> None:
        """It has grown by so many bytes of this kind."""
        assert size >= 0, "a chunk only grows"
        self.size += size
        self.sizes[how] += size
        assert self.sizes[how] <= self.size, "each byte is of one kind"


class Numbered(Protocol):
    """What numbers the updates of a state: its replica."""

    name: str

    @property
    def counter(self) -> int:
        """Every update up to this number is in the state."""

    def proven_lineage(self) -> list[tuple[int, int]]:
        """Which history these are of."""


class Portion(Protocol):
    """What is sent of one state: all of it, or some of its key ranges."""

    def add_to(self, chunk: Chunk, limit: int, now_ns: int) -> bool:
        """Add what fits into a chunk of so many bytes, at least something if it is empty; answers whether that was the
        last.
        """


class Receiver(Protocol):
    """What a state takes of such a portion, on its way to be whole."""

    def begin(self, counter: int, ranges: frozenset[int] | None) -> None:
        """Content will come that tells of this counter or a later one: of these key ranges (None: of all). What is held
        of them is void.
        """

    def pour(self, part: FillEntries | FillShare, now_ns: int) -> None:
        """Take the next part of a chunk."""

    def land(self) -> None:
        """All parts have come, and the state has reached the moment that they tell of. (Not of a keyed state.)"""

    def take(self, record: Record, now_ns: int) -> None:
        """Take an update that the content may tell of, or not. It comes once."""
