"""Who owns a partition when its copies come back from disks? Decided by proof, not by position (DESIGN rule 4).

Every member that a committed row names holds what was acknowledged before that row, and acknowledges what comes
after; so the newest row that anybody has applied says whose copies count. Among these the one that holds the most is
taken: all hold what was acknowledged, and what more one of them holds may be somebody's unanswered write.

- placement/E-1: Only copies of members that the newest row names as holding, of its epoch, and proven whole, may become
  owners.
- placement/E-2: The others of them stay in the row, behind the owner, in their order; they are made equal before it
  serves. None comes to a hotter slot than its own, but for those that hold every map: if the owner is lost before it
  serves, who is next in the row must hold what its slot says.
- placement/E-3: The version of a revived row is beyond whatever rows a member that is still away may know: so are the
  terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mmh3

from holdfast.core.messages import RetainedCopy
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment

GENERATION = 1 << 40
"""The table of a cluster that was stopped as a whole goes on beyond the next multiple of this."""
SPREAD = 1 << 22
STEPS = 1 << 16
"""So many versions lie between two places where a generation may begin."""


class Claim(NamedTuple):
    """A copy that a member has brought back."""

    member: MemberId
    slot: int
    """Where the newest row names it, under the identity that it had then."""
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
    """The row with the claimants in it, `width` slots wide; None when nobody can prove that he holds the partition.

    `holders`: how many replicas of a row, from the owner on, hold every map that has a backup at all. `uncertain`: the
    operator accepts copies, too, of which some part may be lost.
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
    """The revived row with those in it, too, who were in the row before, at these slots, and never went away."""
    replicas = list(row.replicas)
    for slot, member in enumerate(living):
        if member is not None and member not in replicas:
            _place(replicas, member, slot, holders)
    return Assignment(row.version, tuple(replicas), row.epoch, row.behind, row.lost)


def _place(replicas: list[MemberId | None], member: MemberId, slot: int, holders: int) -> None:
    """Put it into the first free slot that promises no more than the one that it had."""
    for index in range(1 if slot < holders else slot, len(replicas)):
        if replicas[index] is None:
            replicas[index] = member
            return


def _rank(claim: Claim) -> tuple[bool, int, int, int]:
    counters = claim.kept.counters
    return not claim.kept.whole, -len(counters), -sum(count for _, count, _ in counters), claim.slot


def next_generation(version: int, entropy: str) -> int:
    """The version of revived rows when `version` is the highest that is known (placement/E-3).

    Two parts of a cluster may be revived apart, if an operator accepts that: so that their terms are not the same, it
    depends on the `entropy` of who revives it.
    """
    spread = int(mmh3.hash(entropy, signed=False)) % SPREAD
    return (version // GENERATION + 1) * GENERATION + spread * STEPS
