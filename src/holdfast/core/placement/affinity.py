"""Placement by rendezvous hashing: a partition belongs to the members that rank first for it (source 004, affinity
function).

Every partition ranks all members by a 64-bit hash of consistent id and partition; of equal ranks the lower UUID comes
first. A member of a group (a host, a zone) that the partition has already is skipped. So a member that joins or leaves
moves only its own replicas; loads differ by chance.

- placement/A-1: The target of a partition is a function of the members that may hold data, the same wherever and
  whenever it is computed.
- placement/A-2: No two replicas of a partition are in one group; with fewer groups than replicas, some replica indexes
  stay empty.
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
"""Ranks computed in one piece of work, well under a millisecond."""


def rank(consistent_id: str, partition: int) -> int:
    """64 bits; the lowest rank comes first."""
    return hash64(f"{consistent_id}/{partition}", signed=False)[0]


def first_ranked(partition: int, candidates: Sequence[Candidate], replicas: int) -> ReplicaList:
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
    """The targets in pieces of work like `layout.arranging`. `rows` are the present replicas; a target is at least as
    wide. Without candidates the rows stay. Raises ValueError as `arrange` does, and when there are not as many rows as
    partitions.
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
    work = ranking(partitions, rows, candidates, replicas)
    while True:
        try:
            next(work)
        except StopIteration as done:
            wanted: list[ReplicaList] = done.value
            return wanted


LayoutOf = Callable[[Sequence[int]], Layout]


def layout_of(placement: Placement) -> LayoutOf:
    return (
        (lambda partitions: partial(rendezvous, partitions))
        if placement == "rendezvous"
        else lambda _: arrange
    )
