"""Where does a partition belong by rendezvous? With the members that rank first for it (source 004, affinity function).

Every partition ranks all members by a 64-bit hash of the member's consistent id and the partition. The first one is
its primary, the next ones are its backups; of equal ranks the lower UUID comes first. A member of a group (a host, a
zone) that the row has already is passed over. So a row depends on nothing but who is there: not on the rows of
before, nor on other partitions. Who comes or goes moves only what it gets or had; loads differ by chance.

- placement/A-1: The row that is wanted of a partition is a function of the members that may hold data, the same
  wherever and whenever it is computed.
- placement/A-2: No two replicas of a partition are in one group; with fewer groups than replicas, fewer slots are
  filled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heapify, heappop

from mmh3 import hash64

from holdfast.config.schema import Placement
from holdfast.core.model.migration import ReplicaList
from holdfast.core.placement.layout import Arranging, Candidate, Layout, arrange, checked

RANKED_AT_ONCE = 512
"""Ranks that are worked out in one piece of work: well under a millisecond."""


def rank(consistent_id: str, partition: int) -> int:
    """The place of a member in the order of a partition, 64 bits: the lowest comes first."""
    return hash64(f"{consistent_id}/{partition}", signed=False)[0]


def first_ranked(partition: int, candidates: Sequence[Candidate], replicas: int) -> ReplicaList:
    """The members that rank first for the partition, no two of one group (placement/A-1, placement/A-2)."""
    order = [
        (rank(one.consistent_id or one.uuid, partition), one.uuid, one.group or one.uuid)
        for one in candidates
    ]
    heapify(order)
    row: list[str | None] = []
    used: set[str] = set()
    while order and len(row) < replicas:
        _, uuid, group = heappop(order)
        if group not in used:
            used.add(group)
            row.append(uuid)
    return (*row, *[None] * (replicas - len(row)))


def ranking(
    partitions: Sequence[int], rows: Sequence[ReplicaList], candidates: Sequence[Candidate], replicas: int
) -> Arranging:
    """The wanted rows of these partitions in small pieces of work, as `layout.arranging` answers those of its layout.

    `rows` are the present ones, of the same partitions: a wanted row is as wide as the present one at least. Without
    candidates nothing can move and the rows stay as they are. Raises ValueError as `arrange` does, and when there are
    more rows than partitions or fewer.
    """
    checked(candidates, replicas)
    if not candidates:
        return list(rows)
    at_once = max(1, RANKED_AT_ONCE // len(candidates))
    wanted: list[ReplicaList] = []
    for number, (partition, row) in enumerate(zip(partitions, rows, strict=True), 1):
        found = first_ranked(partition, candidates, replicas)
        wanted.append(found + (None,) * (len(row) - replicas))
        if number % at_once == 0:
            yield
    return wanted


def rendezvous(
    partitions: Sequence[int], rows: Sequence[ReplicaList], candidates: Sequence[Candidate], replicas: int
) -> list[ReplicaList]:
    """`ranking` at one go."""
    work = ranking(partitions, rows, candidates, replicas)
    while True:
        try:
            next(work)
        except StopIteration as done:
            wanted: list[ReplicaList] = done.value
            return wanted


LayoutOf = Callable[[Sequence[int]], Layout]
"""The layout for the rows of some partitions, which are named by their numbers."""


def layout_of(placement: Placement) -> LayoutOf:
    """How the master of a cluster with this placement finds the wanted rows."""
    return (
        (lambda partitions: partial(rendezvous, partitions))
        if placement == "rendezvous"
        else lambda _: arrange
    )
