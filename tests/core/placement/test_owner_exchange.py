"""Owners become even by exchanges of roles where every member has every copy, at no step with fewer copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.migration import MigrationKind, ReplicaList
from holdfast.core.model.partition_table import survivors
from holdfast.core.placement.dryrun import forecast
from holdfast.core.placement.layout import Candidate, arrange, moves
from holdfast.core.placement.owner_exchange import exchanging
from holdfast.core.placement.planner import plan


def owners(rows: Sequence[ReplicaList]) -> list[int]:
    return sorted(Counter(row[0] for row in rows).values())


def candidates(names: str) -> list[Candidate]:
    return [Candidate(name) for name in names]


def empty(partitions: int, replicas: int) -> list[ReplicaList]:
    return [(None,) * replicas] * partitions


def exchanged(
    rows: Sequence[ReplicaList], targets: Sequence[ReplicaList], members: str
) -> tuple[list[ReplicaList], int]:
    """The targets with even owners, and in how many pieces of work they were found."""
    work = exchanging(rows, targets, list(members))
    pieces = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: list[ReplicaList] = done.value
            return found, pieces
        pieces += 1


def copies(row: ReplicaList) -> list[int]:
    """For every backup count, how many copies a map with so many backups has."""
    return list(accumulate(member is not None for member in row))


@pytest.mark.rule("placement/O-1")
@pytest.mark.parametrize("gone", "ABC")
def test_one_of_three_crashes_with_two_backups_and_owners_become_even(gone: str) -> None:
    """The 181:90 of 271 partitions. Each row has a hole that a SHIFT UP closes anyway, so no migration is added."""
    rows = arrange(empty(271, 3), candidates("ABC"), 3)
    here = "ABC".replace(gone, "")
    found = list(forecast(rows, set(here), candidates(here), 3))
    assert owners([outlook.plan.current for outlook in found])[1] in (180, 181), "as the promotions leave it"
    assert owners([outlook.plan.target for outlook in found]) == [135, 136]
    holes = sum(outlook.plan.current[1] is None for outlook in found)
    assert sum(len(outlook.plan.migrations) for outlook in found) == holes
    for outlook in found:
        assert outlook.plan.cancelled == []
        assert all(step.destination_current >= 0 for step in outlook.plan.migrations), "nothing travels whole"
        left = copies(outlook.plan.current)
        for state in outlook.plan.states():
            assert all(have >= had for have, had in zip(copies(state), left, strict=True)), outlook
    reached = [outlook.plan.target for outlook in found]
    assert arrange(reached, candidates(here), 3) == reached, "nothing more is to be done"


@pytest.mark.rule("placement/O-1")
def test_full_rows_exchange_the_fewest_roles() -> None:
    """Without a hole each exchange is a migration of its own: (181 - 90) / 2 of them."""
    rows: list[ReplicaList] = [("A", "B", None)] * 181 + [("B", "A", None)] * 90
    target = arrange(rows, candidates("AB"), 3)
    assert owners(target) == [135, 136]
    plans = [plan(number, row, after) for number, (row, after) in enumerate(zip(rows, target, strict=True))]
    steps = [step for found in plans for step in found.migrations]
    assert [step.kind for step in steps] == [MigrationKind.EXCHANGE] * 45
    assert arrange(target, candidates("AB"), 3) == target
    without = [plan(0, row, after, exchanges=False).target for row, after in zip(rows, target, strict=True)]
    assert without == rows, "members of an earlier version know no exchange"


@pytest.mark.parametrize(("members", "backups"), [("ABCD", 3), ("ABCDE", 4), ("ABC", 5), ("AB", 1)])
def test_owners_are_even_whoever_crashes_where_all_hold_everything(members: str, backups: int) -> None:
    rows = arrange(empty(60, backups + 1), candidates(members), backups + 1)
    for gone in members:
        here = members.replace(gone, "")
        left = [survivors(row, set(here))[0] for row in rows]
        target = arrange(left, candidates(here), backups + 1)
        assert moves(left, target) == 0
        assert owners(target)[-1] - owners(target)[0] <= 1
        assert arrange(target, candidates(here), backups + 1) == target


def test_each_zone_gets_its_share_of_the_owners_again() -> None:
    """Two zones of two, one backup: the zone of a member that crashes has lost owners to the other one."""
    members = [Candidate(name, zone) for name, zone in zip("ABCD", "xxyy", strict=True)]
    rows = arrange(empty(120, 2), members, 2)
    here = [member for member in members if member.uuid != "A"]
    left = [survivors(row, set("BCD"))[0] for row in rows]
    target = arrange(left, here, 2)
    reached = [plan(0, row, after).target for row, after in zip(left, target, strict=True)]
    again = arrange(reached, here, 2)
    assert moves(reached, again) == 0
    assert owners(again) == [40, 40, 40]
    assert arrange(again, here, 2) == again


@pytest.mark.rule("placement/O-1")
def test_chains_lead_from_the_most_to_the_least() -> None:
    """A and C share no partition: A hands one to B, which hands one to C."""
    rows: list[ReplicaList] = [("A", "B")] * 4 + [("B", "C")] * 3
    found, _ = exchanged(rows, rows, "ABC")
    assert Counter(row[0] for row in found) == {"A": 2, "B": 3, "C": 2}
    assert [set(row) for row in found] == [set(row) for row in rows]


@pytest.mark.rule("placement/O-2")
@pytest.mark.parametrize(
    ("before", "target"),
    [
        (("A", None), ("A", "B")),  # B is being filled
        (("C", "B"), ("A", "B")),  # A is
        (("A", "C", "B"), ("A", "B", "D")),  # one copy more would be made
        (("A", None, "B"), ("A", "B", None)),  # B may: it holds a colder copy
        (("A", "B"), ("A", None)),
        (("A",), ("A",)),
    ],
)
def test_roles_are_exchanged_only_by_members_that_hold_the_partition(
    before: ReplicaList, target: ReplicaList
) -> None:
    found, _ = exchanged([before] * 4, [target] * 4, "AB")
    able = before == ("A", None, "B")
    assert found == ([("B", "A", None)] * 2 + [target] * 2 if able else [target] * 4)


def test_the_cheapest_partitions_are_taken_and_the_work_is_in_pieces() -> None:
    rows: list[ReplicaList] = [("A", "B", None)] * 300 + [("A", None, "B")] * 300
    target: list[ReplicaList] = [("A", "B", None)] * 600
    found, pieces = exchanged(rows, target, "AB")
    assert found == [("A", "B", None)] * 300 + [("B", "A", None)] * 300
    assert pieces >= 600 // 8
    assert exchanged(found, found, "AB") == (found, 0), "even owners cost no look at the rows"


@given(st.lists(st.permutations("ABCD"), min_size=1, max_size=40), st.integers(2, 4))
def test_any_full_rows_become_as_even_as_exchanges_can_make_them(orders: list[list[str]], slots: int) -> None:
    rows = [tuple(order[:slots]) for order in orders]
    found, _ = exchanged(rows, rows, "ABCD")
    assert [set(row[:2]) for row in found] == [set(row[:2]) for row in rows]
    assert [row[2:] for row in found] == [row[2:] for row in rows]
    assert exchanged(found, found, "ABCD")[0] == found, "found again, it stays"
    owned = Counter(row[0] for row in found)
    for start in "ABCD":
        # Whoever can be reached by handing partitions on owns at most one less.
        near, waiting = {start}, [start]
        while waiting:
            member = waiting.pop()
            heirs = {str(row[1]) for row in found if row[0] == member} - near
            near |= heirs
            waiting += heirs
        assert owned[start] - min(owned[member] for member in near) <= 1
