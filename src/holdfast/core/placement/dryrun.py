"""Dry run of the master's planning without a cluster (source 001 §3.2), by the functions of the master. A partition
without survivors is lost, and nothing is planned for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

import msgspec

from holdfast.core.model.migration import NONE, ReplicaList
from holdfast.core.model.partition_table import survivors
from holdfast.core.placement.affinity import LayoutOf, layout_of
from holdfast.core.placement.layout import Candidate
from holdfast.core.placement.planner import Plan, plan

SLOTS_MAX = 7
"""Source 001, Background."""

EVEN = layout_of("even")


class Outlook(msgspec.Struct, frozen=True):
    before: ReplicaList
    left: ReplicaList
    """Without departed members."""
    promoted: int
    """The replica that is promoted first; -1: the owner is present, or no replica is."""
    lost: bool
    """No survivor, or none that holds every map."""
    wanted: ReplicaList
    plan: Plan
    """Starts after the repair. It has no steps if the partition is lost and waits."""

    @property
    def partition(self) -> int:
        return self.plan.partition

    @property
    def gone(self) -> list[str]:
        return [
            old for old, new in zip(self.before, self.left, strict=True) if old is not None and new is None
        ]

    @property
    def restarts_on(self) -> str | None:
        """The operator accepts losses, and this member starts the lost partition empty."""
        begun = self.promoted == NONE and self.plan.current != self.left
        return self.plan.current[0] if begun else None

    @property
    def left_out(self) -> list[int]:
        """Replica indexes that do not reach the target; without cancelled rotations."""
        turning = [slot for cycle in self.plan.cycles for slot in cycle]
        return [slot for slot in self.plan.cancelled if slot not in turning]

    def states(self) -> Iterator[ReplicaList]:
        if self.plan.current != self.left:
            yield self.left
        yield from self.plan.states()

    @property
    def increment(self) -> int:
        """Growth of the version from `left` on if every step succeeds."""
        return sum(changed(old, new) for old, new in pairwise(self.states()))


def changed(old: ReplicaList, new: ReplicaList) -> int:
    return sum(before != after for before, after in zip(old, new, strict=True))


def dry_run(rows: Sequence[ReplicaList], targets: Sequence[ReplicaList]) -> Iterator[Outlook]:
    """All members are present. Raises ValueError when a row names a member twice, or when there are not as many rows as
    targets.
    """
    for partition, (row, target) in enumerate(zip(rows, targets, strict=True)):
        now, hottest = survivors(row, {owner for owner in row if owner is not None})
        yield _outlook(partition, row, row, hottest, now, target, lost=hottest is None)


def forecast(
    rows: Sequence[ReplicaList],
    present: Collection[str],
    candidates: Sequence[Candidate],
    replicas: int,
    *,
    holders: int = SLOTS_MAX,
    heirs: Sequence[str] = (),
    layout: LayoutOf = EVEN,
) -> Iterator[Outlook]:
    """Only `candidates` may hold data.

    A partition is lost when none of its first `holders` replicas survives. If the operator accepts losses, it continues
    with a colder survivor, or empty on one of the `heirs` in turn. The layout is computed before the first result, each
    plan on demand. Raises ValueError as `arrange` and `plan` do.
    """
    after: list[tuple[ReplicaList, int | None]] = []
    for partition, row in enumerate(rows):
        now, hottest = survivors(row, present)
        if hottest is None and heirs:
            now = (heirs[partition % len(heirs)], *now[1:])
        after.append((now, hottest))
    lost = [hottest is None or hottest >= holders for _, hottest in after]
    waits = [each and not heirs for each in lost]
    moving = [partition for partition, waiting in enumerate(waits) if not waiting]
    targets = iter(layout(moving)([after[partition][0] for partition in moving], candidates, replicas))
    for partition, (row, (now, hottest)) in enumerate(zip(rows, after, strict=True)):
        left = tuple(owner if owner in present else None for owner in row)
        if waits[partition]:
            yield _outlook(partition, row, left, None, left, left, lost=True)
        else:
            yield _outlook(partition, row, left, hottest, now, next(targets), lost=lost[partition])


def _outlook(
    partition: int,
    before: ReplicaList,
    left: ReplicaList,
    hottest: int | None,
    now: ReplicaList,
    wanted: ReplicaList,
    *,
    lost: bool,
) -> Outlook:
    """Rows of one width; planned unless no member is left."""
    width = max(len(now), len(wanted))
    before, left, now, wanted = (_wide(row, width) for row in (before, left, now, wanted))
    idle = now[0] is None
    found = Plan(partition, now, now, [], [], []) if idle else plan(partition, now, wanted)
    return Outlook(before, left, hottest or NONE, lost, wanted, found)


def _wide(row: ReplicaList, width: int) -> ReplicaList:
    return row + (None,) * (width - len(row))
