"""The layout of random tables is, member by member, what it was when every step looked at all members.

The digests were taken then, and again when owners began to exchange roles: where they were even already, no row has
changed. What is quicker since must not be seen in any row: members of two releases must not plan
differently, and a plan that was shown must be the one that is made.
"""

import hashlib
import random

import pytest
from tests.sampled_cases import sampled

from holdfast.core.model.migration import ReplicaList
from holdfast.core.placement.layout import Candidate, arrange

RECORDED = {
    "0 150 6 30": "499ccb8ac075b0c9",
    "150 250 12 120": "23dbac6d93b04666",
    "250 290 40 200": "eb5157429bd0d26f",
    "290 296 150 900": "9270e4ca37cc66dc",
    "296 300 400 600": "9712efd926b884ac",
}
"""First story, last, members and partitions at most -> what was found."""


def change(dice: random.Random, members: list[Candidate], kinds: int) -> list[Candidate]:
    """Some leave, some join."""
    stay = [member for member in members if dice.random() > dice.choice((0, 0.1, 0.5))]
    joined = [
        Candidate(f"n{dice.randrange(10**6):06d}", f"g{dice.randrange(kinds)}" if kinds else "")
        for _ in range(dice.randrange(4))
    ]
    return [*stay, *joined] or members


def scattered(dice: random.Random, members: list[Candidate], replicas: int) -> ReplicaList:
    """A row nobody arranged, with holes, and perhaps two of one group."""
    row: list[str | None] = [
        member.uuid for member in dice.sample(members, min(len(members), dice.randint(0, replicas)))
    ]
    row += [None] * (replicas - len(row))
    if dice.random() < 0.3:
        dice.shuffle(row)
    return tuple(row)


def story(seed: int, members: int, partitions: int) -> str:
    """A cluster that is arranged, changes, and is arranged again; the digest of all its rows."""
    dice = random.Random(seed)
    kinds = dice.choice((0, 0, 2, 3, 7))
    count = dice.randint(1, members)
    here = [Candidate(f"m{n:04d}", f"g{dice.randrange(kinds)}" if kinds else "") for n in range(count)]
    replicas = dice.randint(1, 4)
    size = dice.randint(1, partitions)
    lopsided = dice.random() < 0.3
    start = here[:3] if lopsided else here
    rows = (
        [scattered(dice, start, replicas) for _ in range(size)]
        if dice.random() < 0.5
        else [(None,) * replicas] * size
    )
    told = hashlib.sha256()
    for _ in range(3):
        rows = arrange(rows, here, replicas)
        told.update(repr(rows).encode())
        here = change(dice, here, kinds)
        replicas = max(1, min(4, replicas + dice.choice((-1, 0, 0, 0, 1))))
    return told.hexdigest()[:16]


def together(seeds: range, members: int, partitions: int) -> str:
    """One digest for many stories."""
    return hashlib.sha256("".join(story(seed, members, partitions) for seed in seeds).encode()).hexdigest()[
        :16
    ]


@pytest.mark.parametrize(("name", "digest"), sampled(RECORDED.items(), 2))
def test_the_layout_is_what_it_was(name: str, digest: str) -> None:
    first, last, members, partitions = map(int, name.split())
    assert together(range(first, last), members, partitions) == digest
