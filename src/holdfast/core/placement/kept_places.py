"""Targets that keep the places of absent baseline members free.

The layout is computed for all members of the baseline; the places of absent ones are then left empty. The replicas of a
leaving member go to others. Any other change is made only if a present member gains by it and, with even loads, gets
only what it lacks to its share.

- placement/K-1: While the place of an absent member is kept, its replicas are copied only to a member that has less
  than its share: one that returned without files, or was added.
- placement/K-2: Keeping places never reduces the copies of a partition: what a leaving member gives up goes to a
  present member.
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
"""One piece of work: well under a millisecond, except where copies are given up."""


def places_of(away: Collection[BaselineMember]) -> list[Candidate]:
    """The absent members as candidates of the layout; no real member has such a UUID."""
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
    """See placement/K-1 and placement/K-2. `rows` are the present replicas; `targets` is the layout of `here` and
    `away` together.
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
    """`keeping_places` in pieces of work."""
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
    """Returning members take free places, which are their own. `brought`: member -> partitions with a copy there that
    no assignment gives to it.
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
    """The row with the first suitable member in a free place, if there is one."""
    used = {groups.get(member, member) for member in row if member is not None}
    able = [one for one in others if groups[one] not in used]
    if not able or None not in row:
        return row
    free = row.index(None)
    return (*row[:free], able[0], *row[free + 1 :])


class _Keeping:
    """One pass over all rows, with the present load of each member."""

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
        """Change a row that could stay only if a member gets what it lacks, and none is left with less
        than its share.
        """
        if not gained or not self._even:
            return bool(gained)
        return all(map(self._lacks, gained)) and all(self._held[one] > self._share[one] for one in given)

    def _lacks(self, member: str) -> bool:
        return self._held[member] < self._share[member]

    def _without_away(self, partition: int, row: ReplicaList, target: ReplicaList) -> ReplicaList:
        """The row with at least as many copies as before, if there are enough members."""
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
