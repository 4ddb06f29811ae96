"""The history that readers of a moved map's change stream go through, and where it goes on."""

from __future__ import annotations

import pytest

from holdfast.config import SWITCHES_MAP
from holdfast.core.model.map_moves import StreamSwitch, encode_move
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.store.move_marks import stream_lineage, switch_in
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.wire import own

NAME = "m"


def copy(counter: int, lineage: list[tuple[int, int]], switch: StreamSwitch | None) -> PartitionCopy:
    found = PartitionCopy(0, 0)
    held = found.open(NAME)
    held.updates, held.lineage = UpdateCounter(counter), lineage
    if switch is not None:
        found.open(SWITCHES_MAP).state.store(NAME.encode(), encode_move(switch), 0, 0, 0, 0)
    return found


SWITCH = StreamSwitch(50, [(3, 0)], 1030)


@pytest.mark.rule("streams/G-5")
@pytest.mark.parametrize(
    ("counter", "lineage", "expected"),
    [
        (1030, [(2, 1000)], [(3, 0), (0, 50), (2, 1029)]),
        (1031, [(2, 1000)], [(3, 0), (0, 50), (2, 1029)]),
        (1035, [(1, 1000), (2, 1010)], [(3, 0), (0, 50), (2, 1029)]),
        (1035, [(2, 1000), (4, 1030)], [(3, 0), (0, 50), (2, 1029), (4, 1030)]),
        (1035, [(2, 1000), (4, 1033)], [(3, 0), (0, 50), (2, 1029), (4, 1033)]),
    ],
)
def test_a_moved_map_has_one_history_with_a_gap(
    counter: int, lineage: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    assert stream_lineage(copy(counter, lineage, SWITCH).maps, NAME) == expected


@pytest.mark.parametrize(
    ("counter", "lineage"),
    [
        pytest.param(1041, [(2, 1040)], id="it was destroyed and began again"),
        pytest.param(1029, [(2, 1000)], id="it is not filled yet"),
        pytest.param(20, [(2, 0)], id="the partition was lost and began again"),
        pytest.param(0, [], id="it has no updates"),
    ],
)
def test_a_switch_is_void_if_the_map_has_another_history(
    counter: int, lineage: list[tuple[int, int]]
) -> None:
    maps = copy(counter, lineage, SWITCH).maps
    assert switch_in(maps, NAME) is None
    assert stream_lineage(maps, NAME) == lineage


def test_without_a_switch_the_history_is_that_of_the_copy() -> None:
    assert stream_lineage(copy(5, [(2, 0), (9, 5)], None).maps, NAME) == [(2, 0)]
    assert stream_lineage({}, NAME) == []


@pytest.mark.rule("streams/G-5")
def test_a_reader_goes_over_the_gaps_of_a_head() -> None:
    head = own.Head(0, 2009, 5, 2009, [(3, 0), (0, 50), (2, 1029), (0, 1040), (1, 2000), (5, 2005)])
    first, second = (50, 3, 1030, 2), (1040, 2, 2001, 1)
    assert [head.switch_after(at) for at in (0, 50, 1029)] == [first] * 3
    assert [head.switch_after(at) for at in (1030, 1040, 2000)] == [second] * 3
    assert [head.switch_after(at) for at in (2001, 2009)] == [None] * 2
    assert [head.follows(*at) for at in ((50, 3), (1030, 2), (2009, 5))] == [True] * 3
    assert [head.follows(*at) for at in ((51, 3), (1029, 2), (1041, 2))] == [False] * 3
