"""Changes from before the move of a map: when they are retained, for how long, and for which positions."""

from __future__ import annotations

import pytest

from holdfast.core.model.changes_since import Asked
from holdfast.core.model.map_moves import MapMove, MovePhase
from holdfast.core.model.records import Change, Record
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica
from holdfast.core.streams.retained_changes import KEPT_NS, RetainedChanges

NAME = "m"


class Found:
    def __init__(self, copy: PartitionCopy) -> None:
        self.copy = copy


class Copies:
    """The copies of one engine on a member."""

    def __init__(self, engine: str = "") -> None:
        self._engine = engine
        self.copy = PartitionCopy(0, 0)

    def held_in(self, engine: str, partition: int) -> Found | None:
        return Found(self.copy) if (engine, partition) == (self._engine, 0) else None


def write(held: MapReplica, term: int, count: int) -> None:
    held.enter(term)
    for _ in range(count):
        number = held.updates.next()
        held.keep(term, [Record(NAME, number, Change.SET, b"k", b"%d" % number)], 1 << 20)


def move(number: int, phase: MovePhase = MovePhase.MOVED, source: str = "") -> dict[str, MapMove]:
    return {NAME: MapMove(number, source, "z" if not source else "", phase)}


def retained() -> tuple[RetainedChanges, Copies]:
    """Updates 1 to 5 of term 2, and 6 to 9 of term 3."""
    copies, kept = Copies(), RetainedChanges(2)
    held = copies.copy.open(NAME)
    write(held, 2, 5)
    write(held, 3, 4)
    kept.on_moves(move(1), copies, 0)
    return kept, copies


def finds(kept: RetainedChanges, after: tuple[int, int], upto: tuple[int, int]) -> bool:
    return kept.find(Asked(NAME, 0, *after, *upto)) is not None


@pytest.mark.rule("streams/K-1")
@pytest.mark.parametrize(
    ("after", "upto", "found"),
    [
        ((0, 0), (9, 3), True),
        ((2, 2), (5, 2), True),
        ((5, 2), (9, 3), True),
        ((6, 3), (7, 3), True),
        ((2, 3), (9, 3), False),
        ((6, 2), (9, 3), False),
        ((2, 2), (9, 4), False),
        ((2, 2), (5, 3), False),
        ((2, 2), (10, 3), False),
        ((9, 3), (9, 3), False),
        ((2, 2), (9, 0), False),
    ],
)
def test_a_tail_is_used_if_both_ends_are_in_its_history(
    after: tuple[int, int], upto: tuple[int, int], found: bool
) -> None:
    assert finds(retained()[0], after, upto) is found


@pytest.mark.rule("streams/K-1")
def test_the_term_of_a_position_before_the_tail_is_known_too() -> None:
    copies, kept = Copies(), RetainedChanges(1)
    held = copies.copy.open(NAME)
    write(held, 2, 5)
    held.tail = None
    write(held, 3, 4)
    kept.on_moves(move(1), copies, 0)
    assert finds(kept, (5, 2), (9, 3))
    assert not finds(kept, (5, 3), (9, 3))
    assert not finds(kept, (4, 2), (9, 3)), "update 5 is not in memory"


@pytest.mark.rule("streams/K-2")
def test_a_tail_outlives_the_map_and_its_return() -> None:
    kept, copies = retained()
    copies.copy.forget(NAME)
    write(copies.copy.open(NAME), 9, 20)
    assert finds(kept, (0, 0), (9, 3))


@pytest.mark.parametrize("moves", [move(1, MovePhase.CLEANING), {}])
def test_a_replica_without_a_tail_is_not_kept_after_the_move(moves: dict[str, MapMove]) -> None:
    """It may have all its entries, if the member has no part in the partition any more."""
    copies, kept = Copies(), RetainedChanges(1)
    held = copies.copy.open(NAME)
    kept.on_moves(move(1), copies, 0)
    kept.on_moves(moves, copies, 0)
    write(held, 2, 3)
    assert not finds(kept, (0, 0), (3, 2))


def test_a_late_copy_goes_on_until_it_is_forgotten() -> None:
    copies, kept = Copies(), RetainedChanges(1)
    held = copies.copy.open(NAME)
    kept.on_moves(move(1), copies, 0)
    assert not finds(kept, (0, 0), (3, 2))
    write(held, 2, 3)
    copies.copy.forget(NAME)
    assert finds(kept, (0, 0), (3, 2))


@pytest.mark.parametrize("phase", MovePhase)
def test_changes_are_retained_when_the_map_is_served_elsewhere(phase: MovePhase) -> None:
    copies, kept = Copies(), RetainedChanges(1)
    write(copies.copy.open(NAME), 2, 3)
    kept.on_moves(move(1, phase), copies, 0)
    assert finds(kept, (0, 0), (3, 2)) is (phase in (MovePhase.MOVED, MovePhase.CLEANING))


def test_changes_are_retained_for_an_hour_and_for_two_moves() -> None:
    kept, copies = retained()
    kept.on_moves(move(1, MovePhase.CLEANING), copies, KEPT_NS)
    size = kept.bytes
    assert size > 0
    kept.sweep(KEPT_NS - 1)
    assert finds(kept, (0, 0), (9, 3))
    kept.on_moves(move(2, source="z"), Copies("z"), KEPT_NS - 1)
    assert finds(kept, (0, 0), (9, 3))
    assert kept.bytes == size
    kept.sweep(KEPT_NS)
    assert not finds(kept, (0, 0), (9, 3))
    kept.on_moves(move(3), copies, KEPT_NS)
    assert finds(kept, (0, 0), (9, 3))
    for number in (4, 5):
        kept.on_moves(move(number, source="z"), Copies("z"), KEPT_NS)
    assert not finds(kept, (0, 0), (9, 3)), "of the two latest moves"
    kept.sweep(2 * KEPT_NS)
    assert kept.bytes == 0
