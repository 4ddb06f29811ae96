"""Even distribution of primaries by exchanging roles: primary and first backup of a partition swap.

With three members and two backups, each member holds every partition. After a crash of one the hottest replicas are
promoted, often on the same member: of 271 partitions one survivor then owns 181 and the other 90. The layout sees no
reason to change anything, so only roles are exchanged here.

- placement/O-1: Roles are exchanged only while a member owns at least two partitions more than another. Each exchange,
  or chain of exchanges, moves one partition from the first to the second.
- placement/O-2: Roles are exchanged only between present holders of a partition, and only where that needs no
  additional copy.

Other replica indexes stay: for every backup count b > 0, each member holds as many replicas in 0..b as before.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Sequence
from itertools import pairwise

from holdfast.core.model.migration import NONE, ReplicaList
from holdfast.core.placement.planner import Plan, plan

EXAMINED_AT_ONCE = 8
"""Partitions whose plans are compared in one piece of work."""


def exchanging(
    rows: Sequence[ReplicaList], targets: Sequence[ReplicaList], members: Sequence[str]
) -> Generator[None, None, list[ReplicaList]]:
    """The targets with primaries spread as evenly as exchanges allow, in pieces of work.

    `rows` are the present ones, `members` those that may hold data.
    """
    exchange = _Exchange(targets, members)
    if not exchange.is_uneven:
        return list(targets)
    yield from exchange.examine(rows)
    while exchange.step():
        yield
    return exchange.targets


class _Exchange:
    def __init__(self, targets: Sequence[ReplicaList], members: Sequence[str]) -> None:
        self.targets = list(targets)
        owned = Counter(row[0] for row in targets)
        self._owned = {member: owned[member] for member in members}
        self._from: dict[str, dict[str, deque[int]]] = {member: {} for member in members}
        """Owner -> first backup -> partitions, the cheapest first. No queue is empty."""

    @property
    def is_uneven(self) -> bool:
        return max(self._owned.values()) - min(self._owned.values()) > 1

    def examine(self, rows: Sequence[ReplicaList]) -> Generator[None]:
        able: list[tuple[int, int]] = []
        for partition, (row, target) in enumerate(zip(rows, self.targets, strict=True)):
            if partition % EXAMINED_AT_ONCE == 0:
                yield
            if (price := _price(row, target)) is not None:
                able.append((price, partition))
        for _, partition in sorted(able):
            self._add(partition)

    def step(self) -> bool:
        """Move one partition from a member with the most to one with at least two less; False: impossible."""
        for start in sorted(self._owned, key=lambda member: (-self._owned[member], member)):
            if self._owned[start] - min(self._owned.values()) < 2:
                return False
            if way := self._way(start):
                for owner, heir in pairwise(way):
                    self._flip(owner, heir)
                self._owned[start] -= 1
                self._owned[way[-1]] += 1
                return True
        return False

    def _way(self, start: str) -> list[str]:
        """The shortest chain of members in which each hands a partition to the next; empty: none."""
        enough = self._owned[start] - 2
        before = {start: ""}
        waiting = deque([start])
        while waiting:
            member = waiting.popleft()
            if self._owned[member] <= enough:
                way = [member]
                while before[way[-1]]:
                    way.append(before[way[-1]])
                return way[::-1]
            for heir in sorted(self._from[member], key=lambda one: (self._owned[one], one)):
                if heir not in before:
                    before[heir] = member
                    waiting.append(heir)
        return []

    def _flip(self, owner: str, heir: str) -> None:
        partitions = self._from[owner][heir]
        partition = partitions.popleft()
        if not partitions:
            del self._from[owner][heir]
        self.targets[partition] = _exchanged(self.targets[partition])
        self._add(partition)

    def _add(self, partition: int) -> None:
        owner, heir = self.targets[partition][:2]
        assert owner is not None and heir is not None, "both roles are taken"
        self._from[owner].setdefault(heir, deque()).append(partition)


def _exchanged(row: ReplicaList) -> ReplicaList:
    return (row[1], row[0], *row[2:])


def _price(row: ReplicaList, target: ReplicaList) -> int | None:
    """Additional steps when the target's first two members exchange roles; None: not allowed.

    From `(A - B)` to `(A B -)` it is 0: instead of B moving up alone, B moves up over A, which moves down.
    """
    if len(target) < 2 or None in target[:2] or not set(target[:2]) <= set(row):
        return None
    if row == target:
        return 1
    straight, exchanged = plan(0, row, target), plan(0, row, _exchanged(target))
    if exchanged.cancelled or _copied(exchanged) > _copied(straight):
        return None
    return len(exchanged.steps) - len(straight.steps)


def _copied(found: Plan) -> int:
    return sum(migration.destination_current == NONE for migration in found.migrations)
