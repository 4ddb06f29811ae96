"""Owners are found by proof."""

from __future__ import annotations

import pytest

from holdfast.core.messages import RetainedCopy
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.placement.revival import GENERATION, Claim, keeping, next_generation, revived

A, B, C = MemberId("a"), MemberId("b"), MemberId("c")
OLD = Assignment(7, (MemberId("x"), MemberId("y"), MemberId("z")))


def claim(
    member: MemberId, slot: int, *counters: tuple[str, int], whole: bool = True, epoch: int = 0
) -> Claim:
    return Claim(member, slot, RetainedCopy(0, epoch, [(name, count, 3) for name, count in counters], whole))


def row_of(
    *claims: Claim, width: int = 3, uncertain: bool = False, holders: int = 3
) -> tuple[MemberId | None, ...] | None:
    row = revived(OLD, claims, width, version=GENERATION, holders=holders, uncertain=uncertain)
    return row.replicas if row is not None else None


def test_the_one_that_holds_the_most_becomes_the_owner_and_the_others_keep_their_order() -> None:
    assert row_of(claim(A, 0, ("m", 8)), claim(B, 1, ("m", 9)), claim(C, 2, ("m", 9))) == (B, A, C)
    assert row_of(claim(C, 0, ("m", 8)), claim(B, 1, ("m", 9)), claim(A, 2, ("m", 8))) == (B, C, A)


def test_more_maps_count_before_higher_counters() -> None:
    """A colder replica does not hold the maps with fewer backups, however much of the others it has."""
    assert row_of(claim(A, 0, ("m", 8), ("n", 1)), claim(B, 1, ("m", 90))) == (A, B, None)


@pytest.mark.rule("placement/E-1")
def test_a_copy_that_may_lack_something_is_not_believed() -> None:
    assert row_of(claim(A, 0, ("m", 90), whole=False), claim(B, 1, ("m", 8))) == (B, None, None)
    assert row_of(claim(A, 0, ("m", 90), whole=False)) is None
    assert row_of(claim(A, 0, ("m", 90), whole=False), uncertain=True) == (A, None, None)
    damaged = claim(A, 0, ("m", 90), whole=False)
    assert revived(OLD, [damaged], 3, version=GENERATION, holders=3) is None, "unless the operator says so"


def test_a_whole_copy_goes_before_a_damaged_one_that_claims_more() -> None:
    claims = (claim(A, 0, ("m", 90), whole=False), claim(B, 1, ("m", 8)))
    assert row_of(*claims, uncertain=True) == (B, None, None)


@pytest.mark.rule("placement/E-1")
def test_a_copy_of_another_epoch_is_another_history() -> None:
    assert row_of(claim(A, 0, ("m", 90), epoch=1)) is None


def test_empty_copies_are_copies() -> None:
    assert row_of(claim(A, 0), claim(B, 1)) == (A, B, None)
    assert row_of() is None


@pytest.mark.rule("placement/E-3")
def test_each_table_that_was_found_again_is_beyond_all_before() -> None:
    first = next_generation(7, "a")
    assert GENERATION <= first < 2 * GENERATION
    assert 2 * GENERATION <= next_generation(first + 1000, "a") < 3 * GENERATION


def test_two_halves_that_are_revived_apart_have_other_terms() -> None:
    assert abs(next_generation(7, "a") - next_generation(7, "b")) >= 1 << 16


def test_a_thousand_that_are_revived_apart_all_have_other_terms() -> None:
    assert len({next_generation(7, str(number)) for number in range(1000)}) == 1000


def test_a_replica_that_never_held_every_map_does_not_become_the_owner() -> None:
    assert row_of(claim(C, 2, ("deep", 9)), holders=2) is None
    assert row_of(claim(C, 2, ("deep", 9)), claim(B, 1, ("deep", 8), ("m", 1)), holders=2) == (B, None, C)
    assert row_of(claim(C, 2, ("deep", 9)), claim(B, 1), holders=2) == (B, None, C), "B held every map: none"


@pytest.mark.rule("placement/E-2")
def test_a_replica_that_does_not_hold_every_map_stays_behind_the_slots_of_those_that_do() -> None:
    """The owner may be lost before it has made the others equal; who follows it then must hold everything."""
    assert row_of(claim(A, 0, ("m", 8)), claim(C, 2, ("m", 8)), holders=2) == (A, None, C)
    assert row_of(claim(B, 1, ("m", 8)), claim(C, 2, ("m", 8)), holders=2) == (B, None, C)
    assert row_of(claim(A, 0, ("m", 8)), claim(B, 1, ("m", 9)), claim(C, 2), holders=2) == (B, A, C)
    assert row_of(claim(C, 2, ("m", 8)), holders=2, uncertain=True) == (C, None, None)
    assert keeping(Assignment(9, (A, None, None)), [None, None, C], 2).replicas == (A, None, C)
    assert keeping(Assignment(9, (A, None, None)), [None, B, C], 2).replicas == (A, B, C)


def test_what_was_lost_before_is_lost_afterwards() -> None:
    lost = Assignment(OLD.version, OLD.replicas, lost=("m",))
    row = revived(lost, [claim(A, 0, ("m", 8))], 3, version=GENERATION, holders=3)
    assert row is not None and row.lost == ("m",)
    assert keeping(row, [None, B], 3).lost == ("m",)


def test_who_never_went_away_stays_in_the_row() -> None:
    row = keeping(Assignment(9, (A, None, None)), [None, None, C], 3)
    assert row.replicas == (A, C, None)
    assert keeping(Assignment(9, (A, C)), [C], 2).replicas == (A, C)
    assert keeping(Assignment(9, (A, C, None)), [None, C], 3).replicas == (A, C, None), "once"
