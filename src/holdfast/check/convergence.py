"""The convergence judge: after the faults have ended, all members agree, and every copy equals its primary's."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.member import Member


def judge(members: Sequence[Member]) -> list[str]:
    """What is not as it should be in a cluster at rest, in words. `members` are all that live."""
    problems = _views(members)
    if problems:
        return problems
    for partition in range(len(members[0].table.rows)):
        problems += _partition(members, partition)
    for member in members:
        name = member.membership.info.name
        if member.lane.waiting:
            problems.append(f"{name}: {member.lane.waiting} batches wait for backups")
        if member.destination.shadows:
            problems.append(f"{name}: partitions {sorted(member.destination.shadows)} are still being filled")
        why = member.why_unsafe()
        if why:
            problems.append(f"{name}: not safe: {why}")
    return problems


def unequal(primary: Member, others: Sequence[Member], partition: int) -> list[str]:
    """Replicas that differ from their primary though every write of the partition is acknowledged, in words.

    Only members whose row is of the version at which the primary serves are asked: the others' copies are judged by
    what becomes of them.
    """
    serves = primary.membership.state == "member" and primary.lane.serving[partition] is not None
    if not serves or primary.lane.unfinished(partition):
        return []
    row = primary.table.rows[partition]
    return [
        problem
        for other in others
        if row.index_of(other.me) > 0 and other.table.rows[partition].version == row.version
        for problem in _replica(primary, other, partition, row.index_of(other.me))
    ]


def _views(members: Sequence[Member]) -> list[str]:
    views = [member.membership.view for member in members]
    if (
        len({view and (view.number, tuple(info.uuid for info in view.members)) for view in views}) != 1
        or not views[0]
    ):
        states = [_state(member) for member in members]
        return ["members do not agree on one view: " + "; ".join(states)]
    living = {member.me for member in members}
    listed = {info.uuid for info in views[0].members}
    if listed != living:
        return [
            f"the view lists {sorted(listed - living)} which do not live, and misses {sorted(living - listed)}"
        ]
    return []


def _state(member: Member) -> str:
    view = member.membership.view
    return f"{member.membership.info.name}: {member.membership.state} in view {view.number if view else '-'}"


def _partition(members: Sequence[Member], partition: int) -> list[str]:
    rows = {member.table.rows[partition] for member in members}
    if len(rows) != 1:
        return [f"partition {partition}: rows differ: {sorted(rows, key=lambda row: row.version)}"]
    row = rows.pop()
    by_uuid = {member.me: member for member in members}
    owner = by_uuid.get(row.owner) if row.owner else None
    if owner is None:
        return [f"partition {partition}: no living owner in {row}"]
    problems: list[str] = []
    if owner.lane.serving[partition] is None:
        problems.append(f"partition {partition}: its owner does not serve")
    for member in members:
        index = row.index_of(member.me)
        if index >= 0:
            problems += _replica(owner, member, partition, index)
    return problems


def _replica(owner: Member, member: Member, partition: int, index: int) -> list[str]:
    """What the member's copy lacks of its primary's, at this replica index."""
    primary, copy = owner.copies.held[partition], member.copies.held.get(partition)
    if copy is None:
        return [f"partition {partition}: {member.membership.info.name} holds no copy at index {index}"]
    problems: list[str] = []
    if owner.copies.counters(primary, index) != member.copies.counters(copy, index):
        problems.append(f"partition {partition}: counters differ at index {index}")
    for name, held in primary.maps.items():
        if owner.copies.wanted(name, index):
            other = copy.maps.get(name)
            if held.entries != (other.entries if other is not None else {}):
                problems.append(f"partition {partition}: entries of {name} differ at index {index}")
    return problems
