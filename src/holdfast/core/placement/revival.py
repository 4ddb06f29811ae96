"""Choice of a partition's owner when its copies return from disk: by proof, not by position (DESIGN rule 4).

Every member that a committed assignment names holds what was acknowledged. So the newest assignment that any member has
applied says whose copies count. Among these the one that holds the most is chosen; what only it holds may be unanswered
writes.

- placement/E-1: Only copies of members that the newest assignment names as holding, of its epoch, and proven complete,
  may become owners.
- placement/E-2: The other such copies stay in the assignment behind the owner, in order, and become equal to it before
  it serves. None moves to a hotter index than its own, except for those that hold every map: if the owner is lost
  before it serves, the next member must hold what its index promises.
- placement/E-3: The version of a revived assignment is above any that an absent member may know, and so are the terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mmh3

from holdfast.core.messages import RetainedCopy
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment

GENERATION = 1 << 40
"""The table of a stopped cluster continues above the next multiple of this."""
SPREAD = 1 << 22
STEPS = 1 << 16
"""Between two possible beginnings of a generation."""


class Claim(NamedTuple):
    member: MemberId
    slot: int
    """In the newest assignment, under its identity at that time."""
    kept: RetainedCopy


def revived(
    newest: Assignment,
    claims: Sequence[Claim],
    width: int,
    *,
    version: int,
    holders: int,
    uncertain: bool = False,
) -> Assignment | None:
    """`width` members wide; None if no member can prove that it holds the partition.

    `holders`: replicas, from the owner on, that hold every map with a backup. `uncertain`: the operator also accepts
    copies that may be incomplete.
    """
    proven = [
        claim for claim in claims if claim.kept.epoch == newest.epoch and (claim.kept.whole or uncertain)
    ]
    if not any(claim.slot < holders or uncertain for claim in proven):
        return None
    assert version > newest.version, "a revived row is beyond what anybody knows (placement/E-3)"
    ranked = sorted(proven, key=lambda claim: (claim.slot >= holders, *_rank(claim)))
    owner = ranked[0]
    others = sorted((claim for claim in ranked[1:] if claim.kept.whole), key=lambda claim: claim.slot)
    replicas: list[MemberId | None] = [owner.member, *(None,) * (width - 1)]
    for claim in others:
        _place(replicas, claim.member, claim.slot, holders)
    assert len(replicas) == width, "a row is as wide as before"
    return Assignment(version, tuple(replicas), newest.epoch, lost=newest.lost)


def keeping(row: Assignment, living: Sequence[MemberId | None], holders: int) -> Assignment:
    """The assignment with the members, at these indexes, that were in it before and never left."""
    replicas = list(row.replicas)
    for slot, member in enumerate(living):
        if member is not None and member not in replicas:
            _place(replicas, member, slot, holders)
    return Assignment(row.version, tuple(replicas), row.epoch, row.behind, row.lost)


def _place(replicas: list[MemberId | None], member: MemberId, slot: int, holders: int) -> None:
    """The first free index that promises no more than its former one."""
    for index in range(1 if slot < holders else slot, len(replicas)):
        if replicas[index] is None:
            replicas[index] = member
            return


def _rank(claim: Claim) -> tuple[bool, int, int, int]:
    counters = claim.kept.counters
    return not claim.kept.whole, -len(counters), -sum(count for _, count, _ in counters), claim.slot


def next_generation(version: int, entropy: str) -> int:
    """`version`: the highest known one (placement/E-3).

    Two parts of a cluster may be revived separately if an operator accepts that. The `entropy` of each part keeps their
    terms different.
    """
    spread = int(mmh3.hash(entropy, signed=False)) % SPREAD
    return (version // GENERATION + 1) * GENERATION + spread * STEPS
