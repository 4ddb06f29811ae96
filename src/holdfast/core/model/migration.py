"""Migrations: one step of moving a partition's replicas, in the four forms of the design (source 001 §3.1, H5), or
EXCHANGE.

A migration gives replica index `destination_new` of one partition to `destination`. Its other indices say what else
changes; -1 means "none":

    MOVE        (A B C) -> (A D C)      destination is new here; source loses its index
    COPY        (A - C) -> (A D C)      destination is new here; the index was empty
    SHIFT DOWN  (A - C) -> (D A C)      destination is new here; source goes to an empty higher index
    SHIFT UP    (A B C) -> (A C -)      destination leaves a higher index for one that may have had an owner
    both        (A B C -) -> (A C - B)  SHIFT UP, and its source goes to an empty higher index: kind SHIFT UP
    EXCHANGE    (A B C) -> (B A C)      destination leaves a higher index, which source takes over

An EXCHANGE is one change of the table, so no index is empty on the way. In two steps one would be: (A B) -> (B -) -> (B
A) leaves maps with one backup a single copy in between. It copies what the destination lacks at its lower index:
between 0 and 1 that is only the maps without backups.
"""

from __future__ import annotations

from enum import StrEnum, unique

import msgspec

ReplicaList = tuple[str | None, ...]
"""By replica index; None is an empty index."""

NONE = -1
"""No index."""


@unique
class MigrationKind(StrEnum):
    MOVE = "MOVE"
    COPY = "COPY"
    SHIFT_DOWN = "SHIFT DOWN"
    SHIFT_UP = "SHIFT UP"
    EXCHANGE = "EXCHANGE"


class Migration(msgspec.Struct, frozen=True, array_like=True):
    """A change of one partition's assignment: `destination` gets index `destination_new`, from `source` if any.

    Raises ValueError if the indices contradict each other.
    """

    partition: int
    source: str | None
    """Member with index `destination_new` before; None if that is empty."""
    source_current: int
    source_new: int
    destination: str
    destination_current: int
    destination_new: int

    def __post_init__(self) -> None:
        wrong = ""
        if self.destination_new < 0:
            wrong = "destination_new must be a replica index"
        elif self.destination_current != NONE and self.destination_current <= self.destination_new:
            wrong = "a destination that already holds a replica can only go to a lower index"
        elif self.source is None and (self.source_current, self.source_new) != (NONE, NONE):
            wrong = "without a source its indices must be -1"
        elif self.source is not None and self.source_current != self.destination_new:
            wrong = "the source must own the index that the destination gets"
        elif self.source == self.destination:
            wrong = "source and destination must differ"
        elif self.source_new != NONE and self.source_new <= self.source_current:
            wrong = "a source that stays can only go to a higher index"
        if wrong:
            raise ValueError(f"impossible migration: {wrong}: {self!r}")

    @property
    def kind(self) -> MigrationKind:
        """The form of the migration; with both shifts SHIFT UP."""
        if self._exchanges:
            return MigrationKind.EXCHANGE
        if self.destination_current != NONE:
            return MigrationKind.SHIFT_UP
        if self.source_new != NONE:
            return MigrationKind.SHIFT_DOWN
        return MigrationKind.COPY if self.source is None else MigrationKind.MOVE

    @property
    def increment(self) -> int:
        """Indices that change their owner; success raises the partition's version by it."""
        return len({self.destination_new, self.source_new, self.destination_current} - {NONE})

    @property
    def _exchanges(self) -> bool:
        return self.source_new != NONE and self.source_new == self.destination_current

    @property
    def changes_primary(self) -> bool:
        return self.destination_new == 0

    def apply_to(self, row: ReplicaList) -> ReplicaList:
        """Raises ValueError if it was not planned for this assignment."""
        self._check(row)
        slots = list(row)
        if self.destination_current != NONE:
            slots[self.destination_current] = None
        if self.source_new != NONE:
            slots[self.source_new] = self.source
        slots[self.destination_new] = self.destination
        return tuple(slots)

    def _check(self, row: ReplicaList) -> None:
        highest = max(self.destination_new, self.destination_current, self.source_new)
        if highest >= len(row):
            raise ValueError(f"{self} does not fit: slot {highest} is beyond the {len(row)} slots of {row}")
        found = row[self.destination_new]
        if found != self.source:
            raise ValueError(f"{self} does not fit: slot {self.destination_new} of {row} holds {found}")
        held = row.index(self.destination) if self.destination in row else NONE
        if held != self.destination_current:
            raise ValueError(f"{self} does not fit: {self.destination} has slot {held} of {row}")
        if self.source_new != NONE and not self._exchanges and row[self.source_new] is not None:
            raise ValueError(f"{self} does not fit: slot {self.source_new} of {row} is not empty")

    def __str__(self) -> str:
        words = [f"{self.kind} partition {self.partition}: {self.destination}"]
        if self.destination_current != NONE:
            words.append(f"from {self.destination_current}")
        words.append(f"to {self.destination_new}")
        if self.source is not None:
            words.append(f"over {self.source}")
        if self.source_new != NONE:
            words.append(f"which goes to {self.source_new}")
        return " ".join(words)
