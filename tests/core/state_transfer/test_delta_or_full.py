"""What is sent of a map: never less than is missing, and more only for a reason that is told."""

from __future__ import annotations

import random

import pytest

from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.records import Change, Record
from holdfast.core.model.sync_request import Base, How
from holdfast.core.state_transfer.delta_or_full import HISTORY_LEAST, Choice, Mine, choose
from holdfast.core.store.map_state import MapState
from holdfast_lab.sim.ablations.switching import ablated

MINE = Mine(lineage=[(2, 0), (5, 10), (9, 20)], counter=30, entries=1000, starts=0)


def base(lwm: int, *lineage: tuple[int, int], highest: int = 0, digests: list[int] | None = None) -> Base:
    return Base("m", list(lineage), lwm, highest or lwm, digests or [])


FIRST, SECOND, THIRD = (2, 0), (5, 10), (9, 20)


@pytest.mark.rule("state_transfer/C-2")
@pytest.mark.parametrize(
    ("held", "after", "how"),
    [
        (base(30, FIRST, SECOND, THIRD), 30, How.SAME),
        (base(29, FIRST, SECOND, THIRD), 29, How.HISTORY),
        (base(20, FIRST, SECOND), 20, How.HISTORY),
        (base(15, FIRST, SECOND), 15, How.HISTORY),
        (base(10, FIRST), 10, How.HISTORY),
        (base(1, FIRST), 1, How.HISTORY),
        # Gaps of a copy that was read from a disk: what it has above them is told again.
        (base(12, FIRST, SECOND, highest=20), 12, How.HISTORY),
    ],
)
def test_a_prefix_gets_what_followed(held: Base, after: int, how: How) -> None:
    choice = choose(MINE, held)
    assert (choice.how, choice.after) == (how, after)


@pytest.mark.rule("state_transfer/C-4")
@pytest.mark.parametrize(
    ("held", "why"),
    [
        (None, "the receiver holds nothing"),
        (base(0), "the receiver holds nothing"),
        (base(0, FIRST, highest=7), "the receiver can prove nothing"),
        (base(7), "its history is unknown"),
        (base(7, (3, 0)), "term 3 is not known here"),
        (base(30, FIRST, SECOND, (12, 20)), "term 12 is not known here"),
        (base(31, FIRST, SECOND, THIRD), "diverged: 31 of term 9 is held there, which ended at 30 here"),
        (base(21, FIRST, SECOND), "diverged: 21 of term 5 is held there, which ended at 20 here"),
        (base(18, FIRST, SECOND, highest=21), "diverged: 21 of term 5 is held there, which ended at 20 here"),
        (base(15, FIRST, (5, 11)), "term 5 began after 10 here and after 11 there"),
    ],
)
def test_what_is_no_prefix_gets_everything(held: Base | None, why: str) -> None:
    assert choose(MINE, held) == Choice(How.FULL, why)


def test_another_epoch_gets_everything() -> None:
    same = base(30, FIRST, SECOND, THIRD)
    assert choose(MINE, same, same_epoch=False) == Choice(How.FULL, "the partition was started again, empty")


@pytest.mark.rule("state_transfer/C-4")
def test_history_that_is_not_known_any_more_is_the_reason() -> None:
    mine = Mine([(1, 0)], 9500, 10_000, 9000)
    choice = choose(mine, base(8120, (1, 0)))
    assert (choice.how, choice.short) == (How.FULL, True)
    assert choice.why == "history starts at 9000 and 8120 was asked"
    assert choose(mine, base(9000, (1, 0))).how is How.HISTORY
    assert choose(Mine([(1, 0)], 9500, 10, 9500), base(9500, (1, 0))).how is How.SAME


def test_more_updates_than_entries_are_not_sent_one_by_one() -> None:
    choice = choose(Mine([(1, 0)], 5000, 10, 0), base(1, (1, 0)))
    assert choice == Choice(How.FULL, "4999 updates were missed, and there are 10 entries")
    assert choose(Mine([(1, 0)], 1 + HISTORY_LEAST, 0, 0), base(1, (1, 0))).how is How.HISTORY


@pytest.mark.rule("state_transfer/C-3")
def test_only_ranges_that_differ_are_sent() -> None:
    mine = Mine([(1, 0)], 7, 10, 0, digests=[1, 2, 3, 4])
    equal = base(7, (1, 0), digests=[1, 2, 3, 4])
    assert choose(mine, equal).how is How.SAME
    differs = choose(mine, base(7, (1, 0), digests=[1, 9, 3, 9]))
    assert (differs.how, differs.ranges, differs.after) == (How.RANGES, (1, 3), 7)
    behind = choose(mine, base(5, (1, 0), digests=[1, 2, 3, 9]))
    assert (behind.how, behind.ranges, behind.after) == (How.RANGES, (3,), 5)


def test_without_the_rule_of_terms_equal_counters_of_other_histories_count_as_equal() -> None:
    other = base(30, FIRST, (7, 10))
    assert choose(MINE, other).how is How.FULL
    with ablated("term"):
        assert choose(MINE, other).how is How.SAME


@pytest.mark.rule("state_transfer/C-1")
@pytest.mark.parametrize("seed", range(300))
def test_a_base_is_taken_for_a_prefix_just_when_it_is_one(seed: int) -> None:
    """Histories as they come about: primaries of ascending terms, each beginning with some prefix of what was there."""
    draw = random.Random(seed)
    histories: list[list[tuple[int, int]]] = [[]]
    for term in range(1, 8):
        before = draw.choice(histories)
        kept = before[: draw.randint(0, len(before))]
        made = [(term, len(kept) + n) for n in range(1, draw.randint(1, 6))]
        histories.append(kept + made)
    for mine in histories:
        for other in histories:
            at = draw.randint(0, len(other))
            held = other[:at]
            choice = choose(
                Mine(lineage_of(mine), len(mine), 100, 0), Base("m", lineage_of(held), len(held), len(held))
            )
            if not held or mine[: len(held)] != held:
                assert choice.how is How.FULL
            else:
                assert choice.how is (How.SAME if len(held) == len(mine) else How.HISTORY)
                assert choice.after == len(held)


def lineage_of(history: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for at, (term, _) in enumerate(history):
        if not found or found[-1][0] != term:
            found.append((term, at))
    return found


def test_history_that_would_cost_more_than_everything_is_not_looked_for_in_the_journal() -> None:
    """`short` makes the source search its journal; for a copy that is sent whole all the same that is for nothing."""
    mine = Mine([(1, 0)], 1_000_000, 10, 999_990, ())
    choice = choose(mine, Base("m", [(1, 0)], 5, 5, []))
    assert choice.how is How.FULL
    assert not choice.short


def test_what_was_missed_goes_with_what_is_left_of_its_time_to_live() -> None:
    """Else a replica that comes back would keep an entry for its whole time again."""
    state = MapState("m")
    state.store(b"key", b"value", 60_000, 0, 0, 0)
    record = Record("m", 7, Change.SET, b"key", b"value", 60_000)
    assert state.with_remaining_ttl(record, 50_000 * MILLISECOND).ttl_ms == 10_000
    gone = Record("m", 7, Change.SET, b"other", b"value", 60_000)
    assert state.with_remaining_ttl(gone, 0) is gone
    lasting = Record("m", 8, Change.SET, b"key", b"value")
    assert state.with_remaining_ttl(lasting, 0) is lasting
