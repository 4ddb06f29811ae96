"""The topology by which transactions find their partitions (I1).

- transactions/P-1: A step that was mapped on an old topology, in which the partition had another primary, is sent back
  and mapped again, as long as the transaction holds no lock. A transaction with locks is never sent back: it continues
  wherever its partitions are now.
"""

from __future__ import annotations

from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.model.ids import MemberId, PartitionId
from holdfast.core.model.partition_table import Table
from holdfast.core.model.topology import MappedOn, TopologyVersion
from holdfast.core.model.transactions import BranchPlace, branch_place, split_place
from holdfast.core.transactions.branch_routing import BranchRouting


class Mapping:
    def __init__(self, membership: MembershipStatus, table: Table, routing: BranchRouting) -> None:
        self._membership = membership
        self._table = table
        self._routing = routing

    @property
    def version(self) -> TopologyVersion:
        view = self._membership.view
        return TopologyVersion(view.number if view is not None else 0, self._table.version)

    def place(self, name: str, partition: PartitionId) -> BranchPlace:
        """Where the map's entries of this partition are."""
        return branch_place(self._routing.zone_of(name), partition)

    def of(self, place: BranchPlace, *, holds: bool) -> MappedOn | None:
        """None: in a zone, whose leaders take steps in their term only."""
        zone, partition = split_place(place)
        return MappedOn(self.version, self._table.rows[partition].version, holds) if not zone else None

    def leader(self, place: BranchPlace) -> MemberId | None:
        """Its primary, or the leader of its group."""
        zone, partition = split_place(place)
        return self._routing.leader(zone, partition) if zone else self._table.rows[partition].owner

    def knows(self, partition: PartitionId, row: int) -> bool:
        return self._table.rows[partition].version >= row
