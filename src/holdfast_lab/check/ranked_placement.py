"""Is every partition where it belongs by rendezvous? For clusters at rest with `partitions.placement = "rendezvous"`.

A row is good if it is that of the function over the members that may hold data. The one exception is the planner's:
the members of the row are the right ones, but three or more are in each other's place, which no plan could change
without taking a copy away (or two are, at a feature level without exchanges).
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.member_view import MemberView
from holdfast.core.model.levels import EXCHANGES
from holdfast.core.model.migration import ReplicaList
from holdfast.core.placement.affinity import first_ranked
from holdfast.core.placement.layout import Candidate
from holdfast.core.placement.planner import plan


def judge(members: Sequence[MemberView]) -> list[str]:
    """Partitions that are elsewhere, in words; none while the cluster's state forbids it to move them."""
    problems = []
    exchanges = any(member.level >= EXCHANGES for member in members if member.is_master)
    for partition, row, wanted in _elsewhere(members):
        found = plan(partition, row, wanted, exchanges=exchanges)
        if found.steps or set(row) != set(wanted):
            problems.append(f"partition {partition} is at {row}, and ranks {wanted} first")
    return problems


def swapped(members: Sequence[MemberView]) -> int:
    """How many partitions have the right members, of which some are in each other's place."""
    return sum(set(row) == set(wanted) for _, row, wanted in _elsewhere(members))


def _elsewhere(members: Sequence[MemberView]) -> list[tuple[int, ReplicaList, ReplicaList]]:
    """Partition, row and wanted row, as the master knows them, where these differ."""
    master = next((member for member in members if member.is_master), None)
    if master is None or not master.cluster_state.migrates or not master.data_members():
        return []
    if master.view is not None and master.view.baseline is not None and master.view.baseline.away:
        # While places are kept rows change only where somebody gets something.
        return []
    here = [Candidate(info.uuid, info.group, info.consistent_id) for info in master.data_members()]
    found: list[tuple[int, ReplicaList, ReplicaList]] = []
    for partition, row in enumerate(master.assignments):
        wanted = first_ranked(partition, here, len(row.replicas))
        if row.version and row.replicas != wanted:
            found.append((partition, row.replicas, wanted))
    return found
