"""Rows in which the places of members that are away stay free, so that they get their own back when they return.

The layout is that of everybody who owns data, here or away; what it gives to who is away is left out. While somebody
is away as little as possible changes: a row becomes another one only if a member that is here gets something by it, or
one of it has to give up what it has.

- placement/K-1: What a member of the baseline held that has gone is copied to nobody else while its place is kept.
- placement/K-2: A row has never fewer copies than before because a place is kept: what a leaving member gives up goes
  to somebody who is here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.core.model.baseline import BaselineMember
from holdfast.core.model.migration_step import ReplicaList
from holdfast.core.placement.affinity import rank
from holdfast.core.placement.layout import Candidate


def places_of(away: Collection[BaselineMember]) -> list[Candidate]:
    """Members that are away, as the layout sees them. None of them has a UUID that a member could have."""
    return [
        Candidate(f"away: {one.consistent_id}", one.group or one.consistent_id, one.consistent_id)
        for one in away
    ]


def keeping_places(
    partitions: Sequence[int],
    rows: Sequence[ReplicaList],
    targets: Sequence[ReplicaList],
    here: Sequence[Candidate],
    away: Sequence[Candidate],
) -> list[ReplicaList]:
    """The wanted rows with free places instead of those who are away (placement/K-1, placement/K-2).

    `rows` are the present ones of these partitions, of members that are here; `targets` the layout of `here` and `away`
    together. Without somebody away the targets are answered as they are.
    """
    if not away:
        return list(targets)
    return [
        _kept(partition, row, target, here)
        for partition, row, target in zip(partitions, rows, targets, strict=True)
    ]


def _kept(partition: int, row: ReplicaList, target: ReplicaList, here: Sequence[Candidate]) -> ReplicaList:
    able = {one.uuid for one in here}
    had = [member for member in row if member is not None]
    found: list[str | None] = [member if member in able else None for member in target]
    if able.issuperset(had) and {*found} - {None} <= {*had}:
        return row
    group_of = {one.uuid: one.group or one.uuid for one in here}
    ranked = sorted(here, key=lambda one: rank(one.consistent_id or one.uuid, partition))
    for other in [*(member for member in had if member in able), *(one.uuid for one in ranked)]:
        free = [slot for slot, member in enumerate(found) if member is None]
        if len(found) - len(free) >= len(had) or not free:
            break
        if group_of[other] not in {group_of[member] for member in found if member is not None}:
            found[free[0]] = other
    hottest = next((slot for slot, member in enumerate(found) if member is not None), 0)
    found[0], found[hottest] = found[hottest], found[0]
    return tuple(found)
