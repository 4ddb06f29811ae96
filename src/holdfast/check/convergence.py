"""The convergence judge: after the faults have ended, all members agree, and every copy equals its primary's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from holdfast.core.member import Member
from holdfast.core.model.ids import MemberId
from holdfast.core.store.replica import map_replica

NOBODY: Mapping[MemberId, str] = MappingProxyType({})


def judge(members: Sequence[Member]) -> list[str]:
    """What is not as it should be in a cluster at rest, in words. `members` are all that live."""
    problems = _views(members)
    if problems:
        return problems
    for partition in range(len(members[0].table.rows)):
        problems += _partition(members, partition)
    if len({member.table.stamp for member in members}) != 1:
        problems.append("stamps differ")
    for member in members:
        name = member.membership.info.name
        if unfinished := member.picture.unfinished_work():
            told = ", ".join(f"{kind} ({count})" for kind, count in unfinished.items())
            problems.append(f"{name}: unfinished: {told}")
        # A judge trusts nothing that the member remembers to have seen.
        member.picture.look_again()
        why = member.picture.why_unsafe()
        if why:
            problems.append(f"{name}: not safe: {why}")
    return problems


def unequal(
    primary: Member,
    others: Sequence[Member],
    partition: int,
    excused: Mapping[MemberId, str] = NOBODY,
) -> list[str]:
    """Replicas that differ from their primary though every write of the partition is acknowledged, in words.

    Only members whose row is of the version at which the primary serves are asked: the others' copies are judged by
    what becomes of them. `excused` names the map, by member, whose copy was damaged on purpose: only that is not asked.
    """
    serves = primary.membership.admitted and primary.lane.serving[partition] is not None
    if not serves or primary.lane.unfinished(partition):
        return []
    row = primary.table.rows[partition]
    return [
        problem
        for other in others
        if row.index_of(other.me) > 0
        and other.me not in row.behind
        and other.table.rows[partition].version == row.version
        for problem in _replica(primary, other, partition, row.index_of(other.me), excused.get(other.me, ""))
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
    if gone := [uuid for uuid in row.replicas if uuid is not None and uuid not in by_uuid]:
        problems.append(f"partition {partition}: {row} names {gone}, who live no more")
    if owner.lane.serving[partition] is None:
        problems.append(f"partition {partition}: its owner does not serve")
    if partition not in owner.copies.held:
        return [*problems, f"partition {partition}: its owner holds no copy"]
    for member in members:
        index = row.index_of(member.me)
        if index >= 0 and member.me not in row.behind:
            problems += _replica(owner, member, partition, index)
        elif index < 0 and partition in member.copies.held:
            name = member.membership.info.name
            problems.append(f"partition {partition}: {name} keeps a copy that is not its own")
    return problems


def _replica(owner: Member, member: Member, partition: int, index: int, excused: str = "") -> list[str]:
    """How the member's copy differs from its primary's at this index; a map that is not held there must not be. The map
    `excused` is not looked at.
    """
    primary, copy = owner.copies.held[partition], member.copies.held.get(partition)
    if copy is None:
        return [f"partition {partition}: {member.membership.info.name} holds no copy at index {index}"]
    problems = [f"{name} does not belong" for name in copy.maps if not member.copies.wanted(name, index)]
    mine = [one for one in owner.copies.counters(primary, index) if one[0] != excused]
    theirs = [one for one in member.copies.counters(copy, index) if one[0] != excused]
    if mine != theirs:
        differing = [pair for pair in zip(mine, theirs, strict=False) if pair[0] != pair[1]]
        problems.append(f"counters and terms differ: {differing or (mine, theirs)}")
    if primary.epoch != copy.epoch:
        problems.append("epochs differ")
    for name, held in primary.maps.items():
        if not owner.copies.wanted(name, index) or name == excused:
            continue
        other = copy.maps.get(name) or map_replica(name)
        if held.state.entries != other.state.entries:
            problems.append(f"entries of {name} differ")
        elif (
            held.state.hashes != other.state.hashes
            or held.state.expiries.keys() != other.state.expiries.keys()
        ):
            problems.append(f"what belongs to the entries of {name} differs")
    return [f"partition {partition}: {what} at index {index}" for what in problems]
