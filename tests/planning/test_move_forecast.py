"""What a move of a map copies, by the rows of its source and its target."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.planning.move_forecast import MoveFlow, MoveLoad, Place, foresee_move

SOURCE = Place("", (("a", "b"), ("b", "a"), ("c", "a")))
ZONE = Place("z", (("a", "b", "c"), ("a", "b", "c"), ("b", "a", "c")))


def test_bytes_go_from_leader_to_leader_and_then_to_the_other_replicas() -> None:
    found = foresee_move(SOURCE, ZONE, [10, 20, 30], entries=6)
    assert (found.partitions, found.entries, found.bytes) == (3, 6, 60)
    assert (found.replicas_before, found.replicas_after) == (2, 3)
    assert (found.copied_bytes, found.local_bytes, found.replicated_bytes) == (60, 10, 120)
    assert found.flows == [MoveFlow("a", "a", 1, 10), MoveFlow("b", "a", 1, 20), MoveFlow("c", "b", 1, 30)]
    assert found.loads == [
        MoveLoad("a", 60, 120, 60),
        MoveLoad("b", 30, 90, 60),
        MoveLoad("c", 30, 90, 60),
    ]


def test_the_way_back_is_the_same_with_changed_places() -> None:
    found = foresee_move(ZONE, SOURCE, [10, 20, 30])
    assert (found.replicas_before, found.replicas_after, found.replicated_bytes) == (3, 2, 60)
    assert found.loads[0] == MoveLoad("a", 60, 120, 60)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (Place("z", (("a",),)), "different numbers of partitions"),
        (Place("z", (("a",), ("a",), ())), "partition 2 of zone z is on no member"),
    ],
)
def test_a_place_that_does_not_fit_is_rejected(target: Place, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        foresee_move(SOURCE, target, [1, 1, 1])
