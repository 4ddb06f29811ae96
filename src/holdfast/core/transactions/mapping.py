"""By which topology do transactions find their partitions? (I1)

- transactions/P-1: What was mapped on an old topology, in which the partition had another primary, is sent back as long
  as the transaction holds no lock, and is mapped anew. One that holds locks is never sent back: it goes on, with
  its locks, wherever its partitions are now.
"""

from __future__ import annotations

from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.model.partition_table import Table
from holdfast.core.model.topology import MappedOn, TopologyVersion


class Mapping:
    """The topology as this member knows it."""

    def __init__(self, standing: MembershipStatus, table: Table) -> None:
        self._standing = standing
        self._table = table

    @property
    def version(self) -> TopologyVersion:
        """The present one."""
        view = self._standing.view
        return TopologyVersion(view.number if view is not None else 0, self._table.version)

    def of(self, partition: int, *, holds: bool) -> MappedOn:
        """What a step for this partition rests on."""
        return MappedOn(self.version, self._table.rows[partition].version, holds)

    def knows(self, partition: int, row: int) -> bool:
        """Whether the row of the partition is this one here, or a newer one."""
        return self._table.rows[partition].version >= row
