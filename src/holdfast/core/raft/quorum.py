"""Majorities: the index that is committed, and the result of an election.

In a joint configuration two sets of voters must agree separately. An empty set agrees to everything, so that one
function serves both cases.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from enum import Enum, unique
from typing import TypeVar

N = TypeVar("N", bound=Hashable)
UNBOUNDED = 1 << 63
"""Committed by an empty set of voters: it never limits the other set."""


@unique
class Election(Enum):
    PENDING = "pending"
    WON = "won"
    LOST = "lost"


def majority(voters: int) -> int:
    return voters // 2 + 1


def committed_by(voters: Collection[N], acknowledged: Mapping[N, int]) -> int:
    """The highest index that a majority of these voters holds. A silent voter holds nothing."""
    if not voters:
        return UNBOUNDED
    indexes = sorted((acknowledged.get(voter, 0) for voter in voters), reverse=True)
    return indexes[majority(len(indexes)) - 1]


def committed(sets: Sequence[Collection[N]], acknowledged: Mapping[N, int]) -> int:
    """The lowest index of all sets."""
    return min(committed_by(voters, acknowledged) for voters in sets)


def vote_of(voters: Collection[N], votes: Mapping[N, bool]) -> Election:
    if not voters:
        return Election.WON
    needed = majority(len(voters))
    granted = sum(votes.get(voter) is True for voter in voters)
    refused = sum(votes.get(voter) is False for voter in voters)
    if granted >= needed:
        return Election.WON
    return Election.PENDING if len(voters) - refused >= needed else Election.LOST


def vote(sets: Sequence[Collection[N]], votes: Mapping[N, bool]) -> Election:
    """The result of an election in all sets: it is lost as soon as one set has rejected the candidate."""
    results = {vote_of(voters, votes) for voters in sets}
    if Election.LOST in results:
        return Election.LOST
    return Election.PENDING if Election.PENDING in results else Election.WON
