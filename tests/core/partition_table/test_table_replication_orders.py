"""Every order of the table replication's messages in a cluster of three whose master dies, or is removed, at any
moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tests.core.seats import A, B, C, Links, Picks, Seat, every_order, info, view_of

from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import View
from holdfast.errors import InvariantBroken
from holdfast_lab.sim.ablations.switching import ablated

PAIRS = {
    "of the master, then of one other": (Assignment(1, (A,)), Assignment(2, (B,))),
    "of one other, then of another": (Assignment(1, (C,)), Assignment(2, (B,))),
    "of both others": (Assignment(1, (B, C)), Assignment(2, (C, B))),
}


@dataclass
class Found:
    """In how many ways it went, and in how many of them a promise was broken."""

    ways: int = 0
    split: int = 0
    """One version of a partition has two rows."""
    forgotten: int = 0
    """A row that somebody took for the table is not followed by a newer one."""
    early: int = 0
    """Somebody knows a row that not all whom it names have stored."""
    unequal: int = 0
    """In the end the tables differ."""

    @property
    def broken(self) -> int:
        return self.split + self.forgotten + self.early + self.unequal


def together() -> Links:
    seats = [Seat(name) for name in (A, B, C)]
    for seat in seats:
        seat.install(view_of(1, A, B, C))
    links = Links(*seats)
    links.settle()
    return links


def deliver_until(links: Links, pick: Picks, look: Callable[[], None], seen: set[str]) -> bool | None:
    """Deliver in any order, and stop anywhere. Answers whether something is still under way; None when all that
    can come of this has been seen before.
    """
    links.collect()
    look()
    while choices := links.choices():
        picked = pick(len(choices) + 1)
        if picked == len(choices):
            return True
        links.deliver(choices[picked])
        look()
        if pick.fresh:
            state = links.state()
            if state in seen:
                return None
            seen.add(state)
    return False


def go_on_without(links: Links, oldest: MemberId, other: MemberId, *, carried: bool) -> None:
    """These two have agreed on a view without the master. `carried`: with the newest rows that both know
    (membership/A-2); else only what the new master asks for (partition_table/L-3) is between them and a loss.
    """
    seats = [links.seats[oldest], links.seats[other]]
    rows: dict[int, Assignment] = {}
    for seat in seats if carried else ():
        for partition, row in seat.table_replication.known():
            if row.version > rows.get(partition, Assignment()).version:
                rows[partition] = row
    for seat in seats:
        seat.membership.carried = sorted(rows.items())
        seat.install(View(2, "id", [info(oldest), info(other)]))
    links.settle()
    leader = seats[0].table_replication
    leader.propose({0: Assignment(leader.head[0].version + 1, (oldest, None, other))})
    links.settle()


def explore(rows: tuple[Assignment, Assignment], *, carried: bool) -> Found:
    """Two rounds; the master dies at any moment, or is removed by the others and goes on for a while."""
    found = Found()
    seen: set[str] = set()

    def run(pick: Picks) -> None:
        links = together()
        seats = links.seats
        early = False

        def look() -> None:
            nonlocal early
            for row in rows:
                knowing = {name for name, seat in seats.items() if (0, row) in seat.table_replication.known()}
                stored = {
                    name
                    for name, seat in seats.items()
                    for _, one in seat.table_replication.known()
                    if one.version >= row.version
                }
                if knowing - set(row.replicas) and not stored.issuperset(filter(None, row.replicas)):
                    early = True

        for row in rows:
            seats[A].table_replication.propose({0: row})
        going_on = deliver_until(links, pick, look, seen)
        if going_on is None:
            return
        if going_on and pick(2):
            for name in (B, C):
                seats[name].seal(view_of(2, B, C))
            links.settle()
        links.crash(A)
        try:
            go_on_without(links, *((B, C) if pick(2) else (C, B)), carried=carried)
        except InvariantBroken:
            found.split += 1
            return
        history: dict[int, set[Assignment]] = {}
        for seat in seats.values():
            for _, _, new in seat.applied:
                history.setdefault(new.version, set()).add(new)
        taken = [version for version, known in history.items() if known.intersection(rows)]
        found.early += early
        found.split += any(len(known) > 1 for known in history.values())
        found.forgotten += any(version >= seats[B].table.rows[0].version for version in taken)
        found.unequal += seats[B].table.rows != seats[C].table.rows

    found.ways = every_order(run)
    return found


@pytest.mark.parametrize("carried", [True, False])
@pytest.mark.parametrize("rows", PAIRS.values(), ids=PAIRS.keys())
def test_whenever_a_master_goes_every_row_that_anybody_took_for_the_table_lives_on(
    rows: tuple[Assignment, Assignment], *, carried: bool
) -> None:
    found = explore(rows, carried=carried)
    assert found.ways > 30
    assert found.broken == 0, found


@ablated("newest-table")
def test_without_the_newest_table_a_row_that_was_committed_is_forgotten() -> None:
    found = explore(PAIRS["of one other, then of another"], carried=False)
    assert found.forgotten or found.split, found


@ablated("table-majority")
def test_without_a_majority_a_row_is_committed_that_nobody_else_knows() -> None:
    found = explore(PAIRS["of the master, then of one other"], carried=True)
    assert found.split, found


@ablated("destination-first")
def test_without_destinations_first_somebody_knows_a_row_before_its_replicas_do() -> None:
    found = explore(PAIRS["of one other, then of another"], carried=True)
    assert found.early, found
