"""News of partitions: migrations and losses (H3, H5)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from enum import StrEnum, unique

import msgspec

from holdfast.config.schema import DEFAULT_MAP
from holdfast.core.model.migration import Migration
from holdfast.core.model.partition_table import Assignment

Number = tuple[int, int]
NO_PROCESS: Number = (0, 0)


@unique
class Kind(StrEnum):
    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"
    FINISHED = "finished"
    """Everything is done, or the rest was planned again."""
    LOST = "lost"


class Loss(msgspec.Struct, frozen=True, array_like=True):
    partition: int
    lost_backups: int
    """Besides the owner; 0: the first backup has become the owner."""
    all_lost: bool
    """No present member has a copy with every map."""
    maps: list[str]
    """Configured maps that lost their entries; `default` stands for all others."""
    begun_anew: bool = False
    """It continues empty, because `partitions.lost` is `accept`; else it waits for a copy."""

    def concerns(self, name: str, configured: Container[str]) -> bool:
        """Whether entries of this map are gone; `configured`: maps with their own settings."""
        return (name if name in configured else DEFAULT_MAP) in self.maps


class News(msgspec.Struct, frozen=True, array_like=True):
    """One piece of news. The numbers of a process count migrations; `elapsed_ms` is the master's clock
    since its start.
    """

    number: Number
    """Ascending."""
    kind: Kind
    process: Number = NO_PROCESS
    """Number of the news that began its process."""
    planned: int = 0
    completed: int = 0
    failed: int = 0
    elapsed_ms: int = 0
    migration: Migration | None = None
    version: int = 0
    """Version of the assignment after the migration, or its failure."""
    loss: Loss | None = None
    took_ms: int = 0
    """By the clock of the master that requested it; 0: unknown."""

    @property
    def remaining(self) -> int:
        return max(0, self.planned - self.completed - self.failed)

    def agrees_with(self, newest: Sequence[Assignment]) -> bool:
        """Whether it is true with these newest assignments: a migration is completed only by its assignment."""
        if self.kind is not Kind.COMPLETED or self.migration is None:
            return True
        return newest[self.migration.partition].version == self.version
