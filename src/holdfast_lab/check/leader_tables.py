"""Judge of the tables of leaders that clients get for a map in a zone (raft_partition/R-1).

Always: no two members name different leaders for one term of a partition, unless one of these has left, since
a reset begins terms again; the term that a member names falls only after the leader that it named has left.
At rest: every member names the leader, with its term.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.member_view import MemberView
from holdfast.core.model.ids import MemberId


class LeaderTables:
    def __init__(self, map_name: str) -> None:
        self._map = map_name
        self._leaders: dict[tuple[int, int], MemberId] = {}
        self._named: dict[tuple[MemberId, int], tuple[int, MemberId]] = {}
        """Last term and leader that a member named, by member and partition."""

    def look(self, members: Sequence[MemberView]) -> list[str]:
        problems: list[str] = []
        for member in members:
            here = {info.uuid for info in member.members()}
            for partition, row in enumerate(member.copies.leaders(self._map) or ()):
                if (leader := row.owner) is None:
                    continue
                where = f"{member.info.name} names {leader} in term {row.version} of partition {partition}"
                known = self._leaders.setdefault((partition, row.version), leader)
                if known != leader and known in here:
                    problems.append(f"{where}, and {known} was named in this term")
                term, before = self._named.get((member.me, partition), (0, leader))
                if row.version < term and before in here:
                    problems.append(f"{where} after {before} in term {term}")
                self._named[member.me, partition] = (row.version, leader)
        return problems

    def judge(self, members: Sequence[MemberView]) -> list[str]:
        leaders: dict[int, tuple[MemberId, int]] = {}
        for member in members:
            entries = member.copies.zone_entries(self._map)
            for partition, replica in enumerate(entries.serving if entries is not None else ()):
                if replica is not None:
                    leaders[partition] = (member.me, replica.term)
        problems: list[str] = []
        for member in members:
            rows = member.copies.leaders(self._map) or ()
            for partition, row in enumerate(rows):
                if partition in leaders and (row.owner, row.version) != leaders[partition]:
                    problems.append(
                        f"{member.info.name} names {row.owner} in term {row.version} as the leader of partition "
                        f"{partition}, which {leaders[partition][0]} leads in term {leaders[partition][1]}"
                    )
            if leaders and not rows:
                problems.append(f"{member.info.name} knows no leaders")
        return problems
