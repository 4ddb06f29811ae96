"""The copies of a grid of a test, as sessions find them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from holdfast.core.raft_partition.copy_lookup import FoundCopy
from holdfast.core.store.partition_copy import PartitionCopy


class LocalCopies:
    """Copies of one engine, all at one time. Implements `grid.LocalCopies`."""

    def __init__(
        self,
        held: Mapping[int, PartitionCopy],
        leading: Sequence[PartitionCopy | None],
        now_ns: int,
    ) -> None:
        self._held = held
        self._leading = leading
        self._now_ns = now_ns

    def led(self, name: str, partition: int) -> FoundCopy | None:
        copy = self._leading[partition]
        return FoundCopy(copy, self._now_ns) if copy is not None else None

    def held(self, name: str, partition: int) -> FoundCopy | None:
        copy = self._held.get(partition)
        return FoundCopy(copy, self._now_ns) if copy is not None else None

    def in_zone(self, name: str) -> bool:
        return False

    def outside_zones(self, partition: int) -> PartitionCopy | None:
        return self._held.get(partition)

    def leaders(self, name: str) -> None:
        """No map lives in a zone that is known."""


class LiveCopies:
    """The present copies at each call."""

    def __init__(self, now: Callable[[], LocalCopies]) -> None:
        self._now = now

    def in_zone(self, name: str) -> bool:
        return False

    def led(self, name: str, partition: int) -> FoundCopy | None:
        return self._now().led(name, partition)

    def held(self, name: str, partition: int) -> FoundCopy | None:
        return self._now().held(name, partition)
