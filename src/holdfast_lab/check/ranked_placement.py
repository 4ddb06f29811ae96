"""Judge of placement by rendezvous, for clusters at rest with `partitions.placement = "rendezvous"`.

An assignment is right if it is that of the function over the members that may hold data. One exception: the
members are the right ones, but three or more are in each other's place, which no plan could change without
removing a copy (or two are, at a feature level without exchanges).
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
    """Partitions in the wrong place; none while the cluster's state forbids moving them."""
    problems = []
    exchanges = any(member.level >= EXCHANGES for member in members if member.is_master)
    for partition, row, wanted in _elsewhere(members):
        found = plan(partition, row, wanted, exchanges=exchanges)
        if found.steps or set(row) != set(wanted):
            problems.append(f"partition {partition} is at {row}, and ranks {wanted} first")
    return problems


def swapped(members: Sequence[MemberView]) -> int:
    return sum(set(row) == set(wanted) for _, row, wanted in _elsewhere(members))


def _elsewhere(members: Sequence[MemberView]) -> list[tuple[int, ReplicaList, ReplicaList]]:
    master = next((member for member in members if member.is_master), None)
    if master is None or not master.cluster_state.migrates or not master.data_members():
        return []
    if master.view is not None and master.view.baseline is not None and master.view.baseline.away:
        # While places of absent members are kept, assignments change only if a member gets something.
        return []
    here = [Candidate(info.uuid, info.group, info.consistent_id) for info in master.data_members()]
    found: list[tuple[int, ReplicaList, ReplicaList]] = []
    for partition, row in enumerate(master.assignments):
        wanted = first_ranked(partition, here, len(row.replicas))
        if row.version and row.replicas != wanted:
            found.append((partition, row.replicas, wanted))
    return found
