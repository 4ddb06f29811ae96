"""Who is to vote in the metastore's group, worked out alone."""

from __future__ import annotations

from itertools import product

import pytest

from holdfast.core.metastore.metastore_voters import wanted_voters
from holdfast.core.raft.configuration import Configuration


def wanted(now: str, staying: str, kept: str, most: int = 3) -> str:
    return "".join(sorted(wanted_voters(Configuration(frozenset(now)), list(staying), kept, most)))


@pytest.mark.rule("metastore/V-2")
def test_a_voter_stays_one_and_the_oldest_come_first() -> None:
    assert wanted("A", "ABC", "") == "ABC"
    assert wanted("A", "AB", "") == "A"
    assert wanted("CDE", "ABCDE", "") == "CDE"


@pytest.mark.rule("metastore/V-3")
def test_a_seat_is_kept_for_who_has_gone() -> None:
    assert wanted("ABC", "BCD", "A") == "ABC"
    assert wanted("ABC", "BC", "A") == "ABC"


@pytest.mark.rule("metastore/V-3")
def test_who_has_gone_is_never_a_majority() -> None:
    """A voter died, and of the two that were left one had to leave: the dead one alone was to vote."""
    assert wanted("ABC", "B", "A") == "B"
    for staying, kept, most in product(["B", "BC", "BCD", "BCDE"], ["", "A", "AX", "AXY"], [1, 3, 5]):
        voters = set(wanted("AXBCY", staying, kept, most))
        assert len(voters & set(staying)) > len(voters) // 2
        assert len(voters) % 2 == 1
