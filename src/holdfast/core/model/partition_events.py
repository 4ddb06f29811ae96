"""What happened to partitions: migrations and losses (H3, H5)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from enum import StrEnum, unique

import msgspec

from holdfast.config.schema import DEFAULT_MAP
from holdfast.core.model.migration import Migration
from holdfast.core.model.partition_table import Assignment

Number = tuple[int, int]
"""Of a piece of news: the view in which it happened, and its place among the news of that view."""
NO_PROCESS: Number = (0, 0)


@unique
class Kind(StrEnum):
    """What a piece of news says."""

    STARTED = "started"
    """A process of migrations was planned."""
    COMPLETED = "completed"
    """One migration has ended well."""
    FAILED = "failed"
    """One migration has ended without effect."""
    FINISHED = "finished"
    """The process is over: all is done, or the rest was planned anew."""
    LOST = "lost"
    """Copies of a partition are gone with their members."""


class Loss(msgspec.Struct, frozen=True, array_like=True):
    """What was lost of one partition."""

    partition: int
    lost_backups: int
    """How many backups are gone besides the owner: 0 means that the first backup has become the owner."""
    all_lost: bool
    """Whether no copy that holds every map is left among the members."""
    maps: list[str]
    """Configured maps whose entries of this partition are gone; `default` stands for all that are not named."""
    begun_anew: bool = False
    """Whether the partition goes on empty, because `partitions.lost` is `accept`; else it waits for a copy."""

    def concerns(self, name: str, configured: Container[str]) -> bool:
        """Whether entries of this map are gone; `configured` are the maps that have settings of their own."""
        return (name if name in configured else DEFAULT_MAP) in self.maps


class News(msgspec.Struct, frozen=True, array_like=True):
    """One piece of news. Numbers of a process count migrations; `elapsed_ms` is the master's clock since its start."""

    number: Number
    """Later news have greater numbers."""
    kind: Kind
    process: Number = NO_PROCESS
    """The process it belongs to: the number of its STARTED."""
    planned: int = 0
    completed: int = 0
    failed: int = 0
    elapsed_ms: int = 0
    migration: Migration | None = None
    version: int = 0
    """Version of the partition's row after the migration, or its failure."""
    loss: Loss | None = None
    took_ms: int = 0
    """How long this one migration took, by the clock of the master that had asked for it; 0 when nobody knows."""

    @property
    def remaining(self) -> int:
        """Migrations of the process that have not ended."""
        return max(0, self.planned - self.completed - self.failed)

    def agrees_with(self, newest: Sequence[Assignment]) -> bool:
        """Whether it is true when these are the newest rows, though nobody has applied it.

        A migration is completed only by its row.
        """
        if self.kind is not Kind.COMPLETED or self.migration is None:
            return True
        return newest[self.migration.partition].version == self.version
