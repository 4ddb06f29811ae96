"""Forecasts of zones: the placement is that of the metastore, and a lost majority is shown."""

from __future__ import annotations

import pytest

from holdfast.core.zones.assignments import Assignments
from holdfast.core.zones.descriptors import PlacementKind, ZoneSettings
from holdfast.core.zones.rendezvous import placed
from holdfast.core.zones.transitions import Consistency
from holdfast.errors import ConfigError
from holdfast.planning.forecast import ask
from holdfast.planning.scenarios import parse, synthetic
from holdfast.planning.zone_forecast import PresentZone, ZoneFigures, foresee_zone

SETTINGS = ZoneSettings("z", partitions=40, replicas=3)
FIVE = synthetic(5, 0)


def foreseen(scenario: str, settings: ZoneSettings = SETTINGS, **more: object) -> list[ZoneFigures]:
    zone = PresentZone(settings, FIVE, **more)  # type: ignore[arg-type]
    return list(foresee_zone(zone, parse(scenario, zone.members, zone.others)))


def test_a_drain_moves_the_replicas_of_that_member_and_no_other() -> None:
    (found,) = foreseen("drain:m00002")
    gone = [move for move in found.moves if "m00002" in move.voters]
    assert found.moves == gone
    assert found.copied == found.removed == len(gone) > 0
    assert (found.no_majority, found.lost, found.under_replicated) == ([], [], 0)
    left = frozenset(each.uuid for each in FIVE) - {"m00002"}
    for move in found.moves:
        assert move.new_voters == list(placed(left, move.partition, SETTINGS).peers)


def test_a_join_moves_as_many_replicas_as_the_new_member_gets() -> None:
    (found,) = foreseen("join:1")
    assert found.members == 6
    assert found.copied == found.removed == found.loads["join-1"] > 0


def test_partitions_without_a_majority_stay_as_they_are() -> None:
    first, second = foreseen("crash:2,now")
    assert first.no_majority
    assert not {move.partition for move in first.moves} & set(first.no_majority)
    assert second.no_majority == first.no_majority, "they still wait in the next step"
    assert second.copied == 0
    (resets,) = foreseen("crash:2", ZoneSettings("z", 40, 3, consistency=Consistency.HIGH_AVAILABILITY))
    assert resets.no_majority == first.no_majority
    assert set(first.no_majority) < {move.partition for move in resets.moves}


def test_a_partition_whose_holders_all_crash_is_lost() -> None:
    rows = (Assignments(("m00000",)), Assignments(("m00004",)))
    (found,) = foreseen("crash:m00000", ZoneSettings("z", 2, 1), rows=rows)
    assert (found.lost, found.no_majority) == ([0], [0])


def test_a_leaving_member_counts_for_the_majority_until_it_has_left() -> None:
    settings = ZoneSettings("z", 1, 2)
    kept, _ = placed(frozenset(each.uuid for each in FIVE), 0, settings).peers
    rows = (Assignments((kept, "leaving")),)
    (found,) = foreseen("now", settings, rows=rows, others=frozenset({"leaving"}))
    assert (found.no_majority, found.removed) == ([], 1)
    (found,) = foreseen("crash:leaving", settings, rows=rows, others=frozenset({"leaving"}))
    assert found.no_majority == [0]


def test_replicas_and_placement_of_a_zone_change() -> None:
    more, even = foreseen("replicas:5,placement:even")
    assert (more.copied, more.removed, more.replicas) == (80, 0, 5)
    assert set(more.loads.values()) == {40}
    assert even.under_replicated == 0
    one, two = foreseen("placement:even,join:1", ZoneSettings("z", 40, 3, placement=PlacementKind.EVEN))
    assert one.moves == []
    assert max(two.loads.values()) - min(two.loads.values()) <= 1


@pytest.mark.parametrize(
    ("scenario", "why"),
    [("backups:2", "replicas:N"), ("replicas:65", "not 1 to 64"), ("crash:5", "no member would be left")],
)
def test_steps_that_no_zone_can_take(scenario: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        foreseen(scenario)


def test_replicas_are_of_a_zone() -> None:
    with pytest.raises(ConfigError, match="--zone NAME"):
        ask(["replicas:3"], members=3)
