"""Which index has a majority, and has a candidate won? Pure functions of who has said what.

A group's voters are one set, or, while its configuration changes, two that must agree each on its own (joint). An empty
set agrees to everything: so one function serves both.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from enum import Enum, unique
from typing import TypeVar

N = TypeVar("N", bound=Hashable)
"""What names a voter."""
UNBOUNDED = 1 << 63
"""The index that an empty set of voters has committed: it holds nobody back."""


@unique
class Election(Enum):
    """What has come of an election so far."""

    PENDING = "pending"
    WON = "won"
    LOST = "lost"


def majority(voters: int) -> int:
    """How many of so many voters are a majority."""
    return voters // 2 + 1


def committed_by(voters: Collection[N], acknowledged: Mapping[N, int]) -> int:
    """The highest index that a majority of these voters holds. Who has not said anything holds nothing."""
    if not voters:
        return UNBOUNDED
    indexes = sorted((acknowledged.get(voter, 0) for voter in voters), reverse=True)
    return indexes[majority(len(indexes)) - 1]


def committed(sets: Sequence[Collection[N]], acknowledged: Mapping[N, int]) -> int:
    """The highest index that each of these sets of voters has committed."""
    return min(committed_by(voters, acknowledged) for voters in sets)


def vote_of(voters: Collection[N], votes: Mapping[N, bool]) -> Election:
    """What these voters have decided."""
    if not voters:
        return Election.WON
    needed = majority(len(voters))
    granted = sum(votes.get(voter) is True for voter in voters)
    refused = sum(votes.get(voter) is False for voter in voters)
    if granted >= needed:
        return Election.WON
    return Election.PENDING if len(voters) - refused >= needed else Election.LOST


def vote(sets: Sequence[Collection[N]], votes: Mapping[N, bool]) -> Election:
    """What all sets of voters together have decided: one that has refused decides for all."""
    results = {vote_of(voters, votes) for voters in sets}
    if Election.LOST in results:
        return Election.LOST
    return Election.PENDING if Election.PENDING in results else Election.WON
