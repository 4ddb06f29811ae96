"""What would the master do? The whole way of each partition, without a cluster (source 001 §3.2).

The steps are those of the master, made by the same functions: members that are gone are taken out of the rows and the
hottest survivor is promoted (`table.survivors`), the wanted rows are computed (`layout.arrange`, or `affinity`), and
each partition is planned (`planner.plan`). A partition of which nobody is left is lost: nothing is planned for it.
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
"""A partition has at most so many replicas (source 001, Background)."""

EVEN = layout_of("even")


class Outlook(msgspec.Struct, frozen=True):
    """What becomes of one partition. All rows have one width."""

    before: ReplicaList
    """The row as it was given."""
    left: ReplicaList
    """The row without members that are gone."""
    promoted: int
    """The slot from which the hottest survivor goes to slot 0 first; -1 when the owner is there, or nobody is."""
    lost: bool
    """Nobody is left, or nobody who holds every map."""
    wanted: ReplicaList
    plan: Plan
    """From the row after the repair. It has no steps when the partition is lost and waits."""

    @property
    def partition(self) -> int:
        """The index of the row."""
        return self.plan.partition

    @property
    def gone(self) -> list[str]:
        """Members of the row that are members no more, by slot."""
        return [
            old for old, new in zip(self.before, self.left, strict=True) if old is not None and new is None
        ]

    @property
    def anew(self) -> str | None:
        """Who begins the lost partition anew, empty, because the operator accepts losses."""
        begun = self.promoted == NONE and self.plan.current != self.left
        return self.plan.current[0] if begun else None

    @property
    def left_out(self) -> list[int]:
        """Slots that do not become what was wanted, other than those of a cancelled rotation."""
        turning = [slot for cycle in self.plan.cycles for slot in cycle]
        return [slot for slot in self.plan.cancelled if slot not in turning]

    def states(self) -> Iterator[ReplicaList]:
        """Every row from `left` on: after the repair, if one is needed, and after each step."""
        if self.plan.current != self.left:
            yield self.left
        yield from self.plan.states()

    @property
    def increment(self) -> int:
        """By how much the version of the row grows from `left` on when every step succeeds."""
        return sum(changed(old, new) for old, new in pairwise(self.states()))


def changed(old: ReplicaList, new: ReplicaList) -> int:
    """In how many slots two rows differ."""
    return sum(before != after for before, after in zip(old, new, strict=True))


def dry_run(rows: Sequence[ReplicaList], targets: Sequence[ReplicaList]) -> Iterator[Outlook]:
    """The way from each row to its target, when everyone in the rows is there.

    Raises ValueError when a row names a member twice, or when there are more rows than targets or fewer.
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
    """What the master makes of these rows with the members that are `present`, of whom the `candidates` may hold data.

    A partition is lost when none of its first `holders` replicas survives. When the operator accepts losses, it goes
    on with a colder survivor, or begins anew on one of the `heirs` in turn. The layout is computed before the first
    answer, each plan when it is asked for; it may be another one than the master's, to compare with. It is that of the
    partitions that do not wait, named by the index of their rows. Raises ValueError as `arrange` and `plan` do.
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
    """One partition: rows filled up to one width, and planned unless nobody is there to plan with."""
    width = max(len(now), len(wanted))
    before, left, now, wanted = (_wide(row, width) for row in (before, left, now, wanted))
    idle = now[0] is None
    found = Plan(partition, now, now, [], [], []) if idle else plan(partition, now, wanted)
    return Outlook(before, left, hottest or NONE, lost, wanted, found)


def _wide(row: ReplicaList, width: int) -> ReplicaList:
    return row + (None,) * (width - len(row))
