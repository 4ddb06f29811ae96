"""Rows and the table: versions, owners, who is in sync, and what is taken."""

from __future__ import annotations

from itertools import product

import pytest

from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment, Table, survivors
from holdfast.errors import InvariantBroken

A, B, C, D = MemberId("a"), MemberId("b"), MemberId("c"), MemberId("d")


def test_an_unassigned_row_has_no_owner_and_no_replicas() -> None:
    assert (
        Assignment().version,
        Assignment().owner,
        Assignment().replicas,
        Assignment().holding,
        Assignment().epoch,
    ) == (0, None, (), (), 0)


def test_a_row_cannot_be_changed_and_travels_as_a_list() -> None:
    with pytest.raises(AttributeError):
        Assignment().version = 1  # type: ignore[misc]
    assert Assignment.__struct_config__.array_like


def test_the_owner_is_in_the_first_slot() -> None:
    assert Assignment(1, (A, B)).owner == A
    assert Assignment(1, (None, B)).owner is None


def test_who_is_behind_is_named_and_does_not_hold() -> None:
    row = Assignment(1, (A, B, None, C), behind=(B,))
    assert row.holding == (A, None, None, C)
    assert Assignment(1, (A, B)).holding == (A, B)


def test_the_index_of_a_member_is_its_slot() -> None:
    row = Assignment(1, (A, None, B))
    assert [row.index_of(member) for member in (A, B, C)] == [0, 2, -1]


def test_each_slot_that_changes_raises_the_version_by_one_and_any_change_by_one_at_least() -> None:
    """Every pair of rows of up to three slots of two members."""
    rows = [slots for width in range(4) for slots in product((None, A, B), repeat=width)]
    for before, after in product(rows, rows):
        wide = max(len(before), len(after))
        padded = [(*slots, *(None,) * (wide - len(slots))) for slots in (before, after)]
        differing = sum(padded[0][slot] != padded[1][slot] for slot in range(wide))
        changed = Assignment(5, before, 3).changed(after)
        assert changed == Assignment(5 + max(1, differing), after, 3)
        assert Assignment(5, before, 3).changed(after, extra=2).version == changed.version + 2


def test_what_is_lost_stays_lost_and_more_may_be() -> None:
    row = Assignment(5, (A, B), 3, lost=("n",))
    assert row.changed((B, A)).lost == ("n",)
    assert row.losing(["o", "m", "n"]) == Assignment(5, (A, B), 3, lost=("m", "n", "o"))
    assert row.losing([]) == row


def test_who_is_behind_stays_behind_as_long_as_it_is_named() -> None:
    row = Assignment(5, (A, B, C), 1, (B, C))
    assert row.changed((A, None, C)) == Assignment(6, (A, None, C), 1, (C,))


def test_of_those_who_are_left_the_hottest_goes_to_the_front_and_nobody_else_moves() -> None:
    replicas = (A, B, C)
    for here in product((True, False), repeat=3):
        present = {member for member, is_here in zip(replicas, here, strict=True) if is_here}
        slots, hottest = survivors(replicas, present)
        assert {slot for slot in slots if slot} == present
        if not present:
            assert (slots, hottest) == ((None, None, None), None)
            continue
        assert hottest == here.index(True)
        assert slots[0] == replicas[hottest]
        for slot in range(1, 3):
            assert slots[slot] == (replicas[slot] if here[slot] and slot != hottest else None)
    assert survivors((None, B), {B}) == ((B, None), 1)


def test_a_table_is_assigned_when_its_rows_have_versions() -> None:
    table = Table(3)
    assert table.rows == [Assignment()] * 3
    assert (table.assigned, table.version, table.stamp) == (False, 0, 0)
    table.rows[1] = Assignment(1, (A,))
    assert table.assigned is False
    table.rows[0] = Assignment(1, (A,))
    assert table.assigned is True


def test_the_version_of_a_table_is_the_sum_of_its_rows_in_63_bits() -> None:
    table = Table(2)
    table.apply(0, Assignment(3, (A,)))
    table.apply(1, Assignment(4, (A,)))
    assert table.version == 7
    table.apply(1, Assignment(4, (A,)))
    assert table.version == 7, "it is the same row"
    table.apply(0, Assignment((1 << 63) - 1, (A,)))
    assert table.version == 3


def test_tables_that_differ_anywhere_have_different_stamps() -> None:
    def stamp(*rows: Assignment) -> int:
        table = Table(len(rows))
        table.rows[:] = rows
        return table.stamp

    same = Assignment(1, (A, B))
    assert stamp(same, same) == stamp(Assignment(1, (A, B)), same)
    others = [
        Assignment(2, (A, B)),
        Assignment(1, (B, A)),
        Assignment(1, (A, B), 1),
        Assignment(1, (A, B), 0, (B,)),
        Assignment(1, (A,)),
    ]
    stamps = {stamp(same, row) for row in (same, *others)}
    assert len(stamps) == 6
    assert all(0 < one < 1 << 64 for one in stamps)
    assert any(one >= 1 << 63 for one in stamps), "unsigned"


@pytest.mark.parametrize(("version", "taken"), [(4, False), (5, False), (6, True)])
def test_only_a_newer_row_is_taken(version: int, *, taken: bool) -> None:
    table = Table(2)
    old = table.rows[1] = Assignment(5, (A, B))
    assert table.apply(1, Assignment(version, (A, B), 7)) == (old if taken else None)
    assert table.rows[1].version == max(5, version)
    assert table.rows[0] == Assignment()


@pytest.mark.parametrize(
    "other", [Assignment(5, (B, A)), Assignment(5, (A, B), behind=(B,)), Assignment(5, (A, B), lost=("m",))]
)
def test_an_equal_version_with_other_replicas_is_another_history(other: Assignment) -> None:
    table = Table(1)
    table.rows[0] = Assignment(5, (A, B))
    with pytest.raises(InvariantBroken, match="partition 0 diverged at version 5"):
        table.apply(0, other)
