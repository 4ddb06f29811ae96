"""A plan arrives, and on its way there are never fewer copies than before or after, for every backup count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.migration import MigrationKind, ReplicaList
from holdfast.core.placement.planner import Clear, Plan, cancel_cycles, check, plan, rotations
from holdfast.errors import InvariantBroken


def row(text: str) -> ReplicaList:
    """`A-C` is a row with an empty slot 1."""
    return tuple(None if name == "-" else name for name in text)


def told(result: Plan) -> list[str]:
    """The plan's migrations in short: kind, destination and where from and to, source and where it goes."""
    names = {
        MigrationKind.MOVE: "MOVE",
        MigrationKind.COPY: "COPY",
        MigrationKind.SHIFT_DOWN: "DOWN",
        MigrationKind.SHIFT_UP: "UP",
        MigrationKind.EXCHANGE: "EXCHANGE",
    }
    steps = []
    for step in result.migrations:
        text = f"{names[step.kind]} {step.destination}"
        text += f" {step.destination_current}>" if step.destination_current >= 0 else " "
        text += f"{step.destination_new}"
        if step.source is not None:
            text += f" for {step.source}" + (f">{step.source_new}" if step.source_new >= 0 else "")
        steps.append(text)
    return steps


PUBLISHED = [
    # the six worked examples of the ordering
    ("ABC", "DBC", ["MOVE D 0 for A"]),
    ("A-C", "ADC", ["COPY D 1"]),
    ("A-C", "DAC", ["DOWN D 0 for A>1"]),
    ("A-BC", "ABC-", ["UP B 2>1", "UP C 3>2"]),
    ("ABCD", "ACDE", ["MOVE E 3 for D", "MOVE D 2 for C", "MOVE C 1 for B"]),
    ("ABCD", "BDC-", ["UP D 3>1 for B", "MOVE B 0 for A"]),
    # and the cases of the migration types
    ("ABC", "DAC", ["MOVE D 0 for A", "MOVE A 1 for B"]),
    ("ABCD", "ACBD", []),
    ("A-C", "AC-", ["UP C 2>1"]),
    ("ABC", "ACD", ["MOVE D 2 for C", "MOVE C 1 for B"]),
    ("ABC", "CAB", []),
    # copies first, where they do not conflict
    ("AB-", "CBD", ["COPY D 2", "MOVE C 0 for A"]),
    ("AB-", "CBA", ["DOWN C 0 for A>2"]),
    ("A-B-", "CABD", ["DOWN C 0 for A>1", "COPY D 3"]),
    ("A--B", "CBA-", ["UP B 3>1", "DOWN C 0 for A>2"]),
    ("ABC-", "ACDB", ["MOVE D 2 for C", "DOWN C 1 for B>3"]),
]


@pytest.mark.parametrize(("before", "after", "steps"), PUBLISHED)
def test_published_examples(before: str, after: str, steps: list[str]) -> None:
    result = plan(7, row(before), row(after), exchanges=False)
    assert told(result) == steps
    assert all(step.partition == 7 for step in result.migrations)
    check(result, row(after))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("ABC", "CAB", "ABC"),
        ("ABC", "CBA", "ABC"),
        ("ABCD", "BAEC", "ABEC"),
        ("ABCDE", "BADCE", "ABCDE"),
        ("AB-", "BAC", "ABC"),
        ("ABC", "DAB", "DAB"),
        ("A-B", "BA-", "BA-"),  # the hole makes it no rotation yet
        ("ABCD", "BDC-", "BDC-"),
    ],
)
def test_rotations_among_owners_are_cancelled(before: str, after: str, expected: str) -> None:
    assert cancel_cycles(row(before), row(after)) == row(expected)
    if before != "A-B":
        assert plan(0, row(before), row(after), exchanges=False).target == row(expected)


@pytest.mark.parametrize(
    ("before", "after"),
    [("D-BC", "DB--"), ("B-AD", "ABD-"), ("A-CB", "ABC-"), ("AB-C", "CDA-"), ("A-BCD", "DA---")],
)
def test_holes_where_the_published_order_costs_a_copy(before: str, after: str) -> None:
    check(plan(0, row(before), row(after)), row(after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("28-6-74", "4-83-10"),
        ("463-8--", "85-3210"),
        ("3794810", "86-9402"),
        ("26-1--4", "4-57360"),
        ("872-3--", "2--5806"),
    ],
)
def test_wide_rows_whose_target_has_holes(before: str, after: str) -> None:
    """What a search through 20,000 rows gave up on, after seconds."""
    result = plan(0, row(before), row(after))
    check(result, row(after))
    assert (result.target, result.cancelled) == (row(after), [])


@pytest.mark.parametrize(
    ("before", "after"), [("A--", "-AB"), ("AB--", "--AB"), ("ABC-", "-CDB"), ("AB---", "--BAC")]
)
def test_the_hottest_slot_is_given_up_where_another_copy_stands_in(before: str, after: str) -> None:
    """No migration empties the hottest slot: it is cleared, when a member more holds a copy, and its member returns."""
    result = plan(0, row(before), row(after))
    check(result, row(after))
    same = set(before) == set(after)
    assert (result.target == row(after)) == (not same)
    assert len(result.cancelled) == (2 if same else 0)


@pytest.mark.parametrize(
    ("before", "after", "cycles"),
    [
        ("ABC", "CAB", [[0, 1, 2]]),
        ("ABC", "BCA", [[0, 2, 1]]),
        ("ABCDE", "BADCE", [[0, 1], [2, 3]]),
        ("ABCD", "BAEC", [[0, 1]]),
        ("ABC", "DAB", []),
        ("ABC", "ABC", []),
    ],
)
def test_a_plan_says_which_rotations_it_cancelled(before: str, after: str, cycles: list[list[int]]) -> None:
    """Each slot's owner was wanted in the next one."""
    result = plan(0, row(before), row(after), exchanges=False)
    assert result.cycles == rotations(row(before), row(after)) == cycles
    assert result.cancelled == sorted(slot for cycle in cycles for slot in cycle)
    longer = [cycle for cycle in cycles if len(cycle) > 2]
    result = plan(0, row(before), row(after))
    assert result.cycles == longer
    assert result.cancelled == sorted(slot for cycle in longer for slot in cycle)


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        ("AB", "BA", ["EXCHANGE B 1>0 for A>1"]),
        ("ABCD", "ADCB", ["EXCHANGE D 3>1 for B>3"]),
        ("ABCDE", "BADCE", ["EXCHANGE B 1>0 for A>1", "EXCHANGE D 3>2 for C>3"]),
        ("AB-D", "BAE-", ["COPY E 2", "EXCHANGE B 1>0 for A>1"]),
        ("ABC-", "BA-D", ["COPY D 3", "EXCHANGE B 1>0 for A>1"]),
        ("AB-C", "BAC-", ["UP C 3>2", "EXCHANGE B 1>0 for A>1"]),
    ],
)
def test_two_owners_exchange_their_slots_when_all_else_is_done(
    before: str, after: str, steps: list[str]
) -> None:
    """What adds a copy comes first. No state on the way has fewer copies than the row before or the target."""
    result = plan(0, row(before), row(after))
    assert (told(result), result.target, result.cancelled) == (steps, row(after), [])
    check(result, row(after))


def test_an_empty_slot_makes_a_rotation_possible() -> None:
    """No owner leaves: each goes through the hole. The published order would cost a copy here."""
    result = plan(0, row("AB-C"), row("BCA-"))
    assert told(result) == ["UP C 3>1 for B>2", "UP B 2>0 for A>3", "UP A 3>2"]
    assert (result.target, result.cycles, result.cancelled) == (row("BCA-"), [], [])
    check(result, row("BCA-"))


def test_a_part_that_cannot_be_made_safely_is_left_out_and_named() -> None:
    """No migration moves a replica colder by itself, and clearing it first would cost the only copy."""
    result = plan(0, row("A-"), row("-A"))
    assert (result.target, result.steps, result.cancelled) == (row("A-"), [], [0, 1])
    result = plan(0, row("A-B"), row("-BA"))
    assert (result.target, told(result), result.cancelled) == (row("AB-"), ["UP B 2>1"], [0, 2])


def test_a_member_is_cleared_before_it_comes_back_colder() -> None:
    """As published, where a hole is wanted, and there are copies enough meanwhile."""
    result = plan(0, row("ABC"), row("A-B"))
    assert result.steps[0] == Clear(1, "B")
    assert told(result) == ["MOVE B 2 for C"]
    assert list(result.states()) == [row("ABC"), row("A-C"), row("A-B")]
    check(result, row("A-B"))


def test_clearing_comes_last() -> None:
    result = plan(0, row("C-AB"), row("CB--"))
    assert told(result) == ["UP B 3>1"]
    assert result.cleared == [2]
    assert list(result.states()) == [row("C-AB"), row("CBA-"), row("CB--")]


def test_rows_of_different_width_and_nothing_to_do() -> None:
    assert told(plan(0, row("A"), row("AB"))) == ["COPY B 1"]
    assert plan(0, row("AB"), row("A")).cleared == [1]
    assert plan(0, row("AB"), row("AB")).migrations == []


def test_a_member_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"target row .* names a member twice"):
        plan(0, row("AB"), row("CC"))


def test_the_check_finds_a_plan_that_costs_a_copy() -> None:
    good = plan(0, row("ABC"), row("ADC"))
    bad = Plan(0, good.current, row("A-C"), [Clear(1, "B")], [], [])
    with pytest.raises(InvariantBroken, match="goes through"):
        check(bad, row("ADC"))
    with pytest.raises(InvariantBroken, match="ends in"):
        check(Plan(0, good.current, good.target, [], [], []), good.target)


@st.composite
def rows(draw: st.DrawFn) -> tuple[ReplicaList, ReplicaList]:
    """A present row and a target of one width; the target has no holes. Fewer members have more in common."""
    width = draw(st.integers(1, 7))
    members = list("ABCDEFGHIJ")[: draw(st.integers(width, 10))]
    before = draw(st.permutations(members))[:width]
    keep = draw(st.lists(st.booleans(), min_size=width, max_size=width))
    current = tuple(owner if kept else None for owner, kept in zip(before, keep, strict=True))
    size = draw(st.integers(1, width))
    return current, (*draw(st.permutations(members))[:size], *[None] * (width - size))


@given(rows())
def test_no_state_has_fewer_copies_than_promised(pair: tuple[ReplicaList, ReplicaList]) -> None:
    current, target = pair
    result = plan(0, current, target)
    check(result, target)
    for state in result.states():
        owners = [owner for owner in state if owner is not None]
        assert len(owners) == len(set(owners))
    wrong = [slot for slot, owner in enumerate(target) if owner != result.target[slot]]
    assert result.cancelled == wrong


@given(rows())
def test_everything_but_rotations_is_reached_if_the_target_has_no_holes(
    pair: tuple[ReplicaList, ReplicaList],
) -> None:
    current, target = pair
    result = plan(0, current, target)
    check(result, target)
    assert result.target == cancel_cycles(current, target)


@given(rows(), st.data())
def test_holes_in_the_target_do_no_harm(pair: tuple[ReplicaList, ReplicaList], data: st.DataObject) -> None:
    current, target = pair
    keep = data.draw(st.lists(st.booleans(), min_size=len(target), max_size=len(target)))
    holed = tuple(owner if kept else None for owner, kept in zip(target, keep, strict=True))
    check(plan(0, current, holed), holed)


@given(rows())
def test_slots_are_cleared_last_if_the_target_has_no_holes(pair: tuple[ReplicaList, ReplicaList]) -> None:
    """The master relies on it: it executes migrations first."""
    steps = plan(0, *pair).steps
    kinds = [isinstance(step, Clear) for step in steps]
    assert kinds == sorted(kinds)


@given(rows())
def test_a_plan_is_final(pair: tuple[ReplicaList, ReplicaList]) -> None:
    current, target = pair
    result = plan(0, current, target)
    again = plan(0, result.target, result.target)
    assert (again.migrations, again.cleared) == ([], [])
