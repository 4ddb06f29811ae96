"""Rows in which the places of members that are away stay free.

They get their own back when they return.

The layout is that of everybody who owns data, here or away; what it gives to who is away is left out. While somebody is
away as little as possible changes. What a leaving member has to give up goes to others; beyond that a row becomes
another one only if a member that is here gets something by it, and, where loads are to be even, only what it lacks to
its share.

- placement/K-1: What a member of the baseline held that has gone is copied to nobody else while its place is kept, but
  to a member that has less than its share: one that has come back without files, or that was added.
- placement/K-2: A row has never fewer copies than before because a place is kept: what a leaving member gives up goes
  to somebody who is here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet

from holdfast.config.schema import Placement
from holdfast.core.model.baseline import BaselineMember
from holdfast.core.model.migration import ReplicaList
from holdfast.core.placement.affinity import rank
from holdfast.core.placement.layout import Arranging, Candidate, shares

ROWS_AT_ONCE = 256
"""Rows that are looked at in one piece of work: well under a millisecond, but where copies are given up."""


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
    placement: Placement,
) -> list[ReplicaList]:
    """The wanted rows with free places instead of those who are away (placement/K-1, placement/K-2).

    `rows` are the present ones of these partitions, of members that are here; `targets` the layout of `here` and `away`
    together. Without somebody away the targets are answered as they are.
    """
    work = keeping(partitions, rows, targets, here, away, placement)
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: list[ReplicaList] = done.value
            return found


def keeping(
    partitions: Sequence[int],
    rows: Sequence[ReplicaList],
    targets: Sequence[ReplicaList],
    here: Sequence[Candidate],
    away: Sequence[Candidate],
    placement: Placement,
) -> Arranging:
    """`keeping_places` in small pieces of work, for a caller that has other things to do."""
    if not away:
        return list(targets)
    look = _Keeping(rows, here, away, even=placement == "even")
    found: list[ReplicaList] = []
    for number, each in enumerate(zip(partitions, rows, targets, strict=True), 1):
        found.append(look.kept(*each))
        if number % ROWS_AT_ONCE == 0:
            yield
    return found


def own_places(
    partitions: Sequence[int],
    rows: Sequence[ReplicaList],
    here: Sequence[Candidate],
    brought: Mapping[str, AbstractSet[int]],
) -> list[ReplicaList]:
    """The rows with those in their free places who have brought back a copy: these places are their own.

    `brought`: by member the partitions of which it has a copy that no row gives to it.
    """
    groups = {one.uuid: one.group or one.uuid for one in here}
    back: dict[int, list[str]] = {}
    for member in groups:
        for partition in brought.get(member, ()):
            back.setdefault(partition, []).append(member)
    found = list(rows)
    for number, partition in enumerate(partitions):
        for member in back.get(partition, ()):
            if member not in found[number]:
                found[number] = _filled(found[number], [member], groups)
    return found


def _filled(row: ReplicaList, others: Sequence[str], groups: Mapping[str, str]) -> ReplicaList:
    """The row with the first of these in a free place that may be there, and as it is if none may."""
    used = {groups.get(member, member) for member in row if member is not None}
    able = [one for one in others if groups[one] not in used]
    if not able or None not in row:
        return row
    free = row.index(None)
    return (*row[:free], able[0], *row[free + 1 :])


class _Keeping:
    """One look at all rows: how much each member has by now."""

    def __init__(
        self,
        rows: Sequence[ReplicaList],
        here: Sequence[Candidate],
        away: Sequence[Candidate],
        *,
        even: bool,
    ) -> None:
        self._even = even
        self._here = here
        self._groups = {one.uuid: one.group or one.uuid for one in here}
        self._held = Counter(member for row in rows for member in row if member is not None)
        names = [one.group or one.uuid for one in (*here, *away)]
        width = max((len(row) for row in rows), default=1)
        lows, _ = shares(len(rows), min(width, len(set(names))), names)
        self._share = {one.uuid: low for one, low in zip(here, lows[: len(here)], strict=True)}

    def kept(self, partition: int, row: ReplicaList, target: ReplicaList) -> ReplicaList:
        """What becomes of one row."""
        wanted = self._without_away(partition, row, target)
        before, after = ({member for member in each if member is not None} for each in (row, wanted))
        if before <= self._groups.keys() and not self._is_worth_it(after - before, before - after):
            others = sorted(filter(self._lacks, after - before)) if self._even else []
            wanted = _filled(row, others, self._groups)
            after = {member for member in wanted if member is not None}
        self._held.update(after - before)
        self._held.subtract(before - after)
        return wanted

    def _is_worth_it(self, gained: Collection[str], given: Collection[str]) -> bool:
        """Whether a row that could stay as it is should become another one: somebody gets what it lacks, and nobody is
        left with less than its share.
        """
        if not gained or not self._even:
            return bool(gained)
        return all(map(self._lacks, gained)) and all(self._held[one] > self._share[one] for one in given)

    def _lacks(self, member: str) -> bool:
        return self._held[member] < self._share[member]

    def _without_away(self, partition: int, row: ReplicaList, target: ReplicaList) -> ReplicaList:
        """The target with no fewer copies than the row has, as far as there are members for them."""
        had = [member for member in row if member is not None]
        found = [member if member in self._groups else None for member in target]
        if len(found) - found.count(None) < len(had):
            ranked = sorted(self._here, key=lambda one: rank(one.consistent_id or one.uuid, partition))
            for other in [*(one for one in had if one in self._groups), *(one.uuid for one in ranked)]:
                if len(found) - found.count(None) >= len(had) or None not in found:
                    break
                if self._groups[other] not in {self._groups[one] for one in found if one is not None}:
                    found[found.index(None)] = other
        hottest = next((slot for slot, member in enumerate(found) if member is not None), 0)
        found[0], found[hottest] = found[hottest], found[0]
        return tuple(found)
