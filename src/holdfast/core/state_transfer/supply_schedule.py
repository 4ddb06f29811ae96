"""The running supplies of a primary, and a queue of those above the limit (state_transfer/S-5).

A *supply* sends one partition to one member, for a migration or to repair a replica (`source`).
"""

from __future__ import annotations

from collections import deque

from holdfast.core.model.ids import MemberId
from holdfast.core.model.migration import Migration
from holdfast.core.model.partition_table import Assignment
from holdfast.core.state_transfer.supply import Supply, SupplyPhase


class SupplySchedule:
    """Limits running supplies to `parallel`. Migrations start at once and count too; the master limits their number."""

    def __init__(self, me: MemberId, rows: list[Assignment], parallel: int) -> None:
        self._me = me
        self._rows = rows
        self._parallel = parallel
        self._tickets = 0
        self.running: dict[tuple[int, MemberId], Supply] = {}
        self.queue: deque[Supply] = deque()

    def new(self, partition: int, to: MemberId, index: int) -> Supply:
        """A supply for the present assignment. Its ticket is unique on this member."""
        self._tickets += 1
        assert to != self._me, "no member supplies itself"
        return Supply(partition, self._rows[partition].version, to, index, self._tickets)

    def find(self, partition: int, to: MemberId) -> Supply | None:
        version = self._rows[partition].version
        for supply in [*self.running.values(), *self.queue]:
            if (supply.partition, supply.to, supply.version) == (partition, to, version):
                return supply
        return None

    @property
    def newest(self) -> int:
        return self._tickets

    @property
    def has_room(self) -> bool:
        return len(self.running) < self._parallel

    def of_partition(self, partition: int) -> list[Supply]:
        """The running supplies of the partition."""
        return [supply for supply in self.running.values() if supply.partition == partition]

    def is_supplied(self, partition: int) -> bool:
        """Whether a supply of the partition is running or queued."""
        return any(supply.partition == partition for supply in (*self.running.values(), *self.queue))

    def is_moving(self, partition: int) -> bool:
        return any(supply.migration is not None for supply in self.of_partition(partition))

    def storing(self) -> list[Supply]:
        return [supply for supply in self.running.values() if supply.phase is SupplyPhase.STORING]

    def draining(self) -> list[Supply]:
        """Supplies before their last chunk, which wait until earlier writes are acknowledged (state_transfer/S-9)."""
        return [supply for supply in self.running.values() if supply.phase is SupplyPhase.DRAINING]

    def migrations(self) -> list[tuple[Migration, int]]:
        """The running migrations, each with the version of the assignment that it changes."""
        return [(one.migration, one.version) for one in self.running.values() if one.migration is not None]

    def clear(self) -> None:
        self.running.clear()
        self.queue.clear()

    @property
    def leftovers(self) -> int:
        return len(self.running) + len(self.queue)
