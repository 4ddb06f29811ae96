"""Judge of convergence: at rest all members agree, and every copy equals its primary's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from holdfast.core.member_view import MemberView
from holdfast.core.model.ids import MemberId
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import map_replica

NOT_EXCUSED: Mapping[MemberId, str] = MappingProxyType({})


def judge(members: Sequence[MemberView]) -> list[str]:
    problems = _views(members)
    if problems:
        return problems
    for partition in range(len(members[0].assignments)):
        problems += _partition(members, partition)
    if len({member.table_stamp for member in members}) != 1:
        problems.append("stamps differ")
    for member in members:
        name = member.info.name
        if unfinished := member.under_way():
            told = ", ".join(f"{kind} ({count})" for kind, count in unfinished.items())
            problems.append(f"{name}: unfinished: {told}")
        # A judge does not trust what the member remembers.
        why = member.fresh_unsafe_reason()
        if why:
            problems.append(f"{name}: not safe: {why}")
    return problems


def unequal(
    primary: MemberView,
    others: Sequence[MemberView],
    partition: int,
    excused: Mapping[MemberId, str] = NOT_EXCUSED,
) -> list[str]:
    """Replicas that differ from their primary though every write of the partition is acknowledged. Only
    members whose assignment has the version at which the primary serves are compared; other copies will
    change. `excused`: by member, the map whose copy was damaged on purpose.
    """
    serves = primary.admitted and primary.serves(partition)
    if not serves or primary.unfinished(partition):
        return []
    row = primary.assignment(partition)
    return [
        problem
        for other in others
        if row.index_of(other.me) > 0
        and other.me not in row.behind
        and other.assignment(partition).version == row.version
        for problem in _replica(primary, other, partition, row.index_of(other.me), excused.get(other.me, ""))
    ]


def _views(members: Sequence[MemberView]) -> list[str]:
    views = [member.view for member in members]
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


def _state(member: MemberView) -> str:
    view = member.view
    return f"{member.info.name}: {member.state} in view {view.number if view else '-'}"


def _partition(members: Sequence[MemberView], partition: int) -> list[str]:
    rows = {member.assignment(partition) for member in members}
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
    if not owner.serves(partition):
        problems.append(f"partition {partition}: its owner does not serve")
    if partition not in owner.held:
        return [*problems, f"partition {partition}: its owner holds no copy"]
    for member in members:
        index = row.index_of(member.me)
        if index >= 0 and member.me not in row.behind:
            problems += _replica(owner, member, partition, index)
        elif index < 0 and partition in member.held:
            name = member.info.name
            problems.append(f"partition {partition}: {name} keeps a copy that is not its own")
    return problems


def _being_forgotten(copy: PartitionCopy, other: PartitionCopy) -> list[str]:
    """Maps that are empty here and absent there: one of the two forgot them first (state_transfer/M-2)."""
    return [
        name for name, held in copy.maps.items() if name not in other.maps and not len(held.state.entries)
    ]


def _replica(
    owner: MemberView, member: MemberView, partition: int, index: int, excused: str = ""
) -> list[str]:
    """Differences between a copy and its primary's at this index. A map that does not belong there must be
    absent; the map `excused` is not compared.
    """
    primary, copy = owner.held[partition], member.held.get(partition)
    if copy is None:
        return [f"partition {partition}: {member.info.name} holds no copy at index {index}"]
    problems = [f"{name} does not belong" for name in copy.maps if not member.maps.holds(name, index)]
    names = (*primary.maps, *primary.services, *copy.maps)
    apart = {
        excused,
        *(name for name in names if not (owner.maps.proves(name, index) and member.maps.proves(name, index))),
    }
    passed_over = {*apart, *_being_forgotten(primary, copy), *_being_forgotten(copy, primary)}
    mine = [one for one in owner.counters(partition, index) if one[0] not in passed_over]
    theirs = [one for one in member.counters(partition, index) if one[0] not in passed_over]
    if mine != theirs:
        differing = [pair for pair in zip(mine, theirs, strict=False) if pair[0] != pair[1]]
        problems.append(f"counters and terms differ: {differing or (mine, theirs)}")
    if primary.epoch != copy.epoch:
        problems.append("epochs differ")
    for name, held in primary.maps.items():
        if name in apart or not owner.maps.holds(name, index):
            continue
        other = copy.maps.get(name) or map_replica(name)
        if held.state.entries != other.state.entries:
            problems.append(f"entries of {name} differ")
        elif (
            held.state.hashes != other.state.hashes
            or held.state.expiries.keys() != other.state.expiries.keys()
        ):
            problems.append(f"what belongs to the entries of {name} differs")
    for name, service in primary.services.items():
        share = copy.services.get(name)
        wanted = owner.maps.holds(name, index) and name not in apart
        if wanted and (share is None or share.state.digest() != service.state.digest()):
            problems.append(f"what {name} holds differs")
    return [f"partition {partition}: {what} at index {index}" for what in problems]
