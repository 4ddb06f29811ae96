"""The topology by which transactions find their partitions (I1).

- transactions/P-1: A step that was mapped on an old topology, in which the partition had another primary, is sent back
  and mapped again, as long as the transaction holds no lock. A transaction with locks is never sent back: it continues
  wherever its partitions are now.
"""

from __future__ import annotations

from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Table
from holdfast.core.model.topology import MappedOn, TopologyVersion


class Mapping:
    def __init__(self, membership: MembershipStatus, table: Table) -> None:
        self._membership = membership
        self._table = table

    @property
    def version(self) -> TopologyVersion:
        view = self._membership.view
        return TopologyVersion(view.number if view is not None else 0, self._table.version)

    def of(self, partition: int, *, holds: bool) -> MappedOn:
        return MappedOn(self.version, self._table.rows[partition].version, holds)

    def primary(self, partition: int) -> MemberId | None:
        return self._table.rows[partition].owner

    def knows(self, partition: int, row: int) -> bool:
        return self._table.rows[partition].version >= row
