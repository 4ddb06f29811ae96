"""What a router asks of the member around it, as a test wants it to be."""

from __future__ import annotations

from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment


class Around:
    """The membership and the table's replication, in one."""

    def __init__(self, *, absent: MemberId | None = None) -> None:
        self.absent = {absent}
        """Who is not in the view."""
        self.hearing = True
        """Whether this member is in the cluster, and hears of the others."""
        self.stored: Assignment | None = None
        """The row that is stored here and not committed."""

    def is_member(self, member: MemberId) -> bool:
        return member not in self.absent

    def hears(self, member: MemberId) -> bool:
        return self.hearing

    def stored_assignment(self, partition: int) -> Assignment | None:
        return self.stored
