"""The members that a cluster has lost since all partitions last had all their copies: a part of the fault
budget.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from holdfast.core.member import Member
from holdfast.core.model.ids import MemberId
from holdfast.core.model.views import View


class LostMembers:
    """Counts how many more members a map with the fewest backups is promised to survive.

    Example: members 1, 2 and 3, one backup, all partitions complete: one may die. Member 2 dies: none may, until the
    cluster is settled again. If member 2 leaves instead, its copies go to 1 and 3 first, and one may still die.
    """

    def __init__(self) -> None:
        self._calm: set[MemberId] = set()
        self._seen: set[MemberId] = set()
        self._lost: set[MemberId] = set()
        self._released: set[MemberId] = set()
        self._stood = False
        """Whether partitions could not move for a time: a member that left then left a gap."""

    def settled(self, members: Iterable[Member]) -> None:
        members = list(members)
        self._calm = {member.me for member in members if not member.picture.info.lite}
        self._seen, self._lost = {member.me for member in members}, set()
        self._stood = False

    def note(self, views: Collection[View], dead: set[MemberId], gone: set[MemberId]) -> None:
        self._stood |= any(not view.state.migrates for view in views)
        if views:
            newest = max(views, key=lambda view: view.number)
            here = {info.uuid for info in newest.members}
            self._seen |= here
            self._released |= {uuid for view in views for uuid in view.left}
            self._lost |= self._seen - here - self._released - gone
        # A member that was removed though alive, came back and left, had nothing to hand over: it stays lost.
        self._lost |= (dead & self._seen) - gone

    def spare(
        self, holders: int, group_of: Mapping[MemberId, str], parting: set[MemberId], gone: set[MemberId]
    ) -> int:
        """How many members more may die. `holders`: copies of a partition that hold every backed-up map.
        `parting`: members that are to leave or to become lite.
        """
        # Members that a view has released are gone, even before they know it.
        gone = gone | self._released
        # Copies of a partition are in different groups. While nothing may move, a leaving member takes its
        # copies along.
        groups = {group_of[uuid] for uuid in self._calm - gone - parting}
        holes = len(gone & self._calm) if self._stood else 0
        return min(holders, len(groups)) - 1 - len(self._lost) - holes
