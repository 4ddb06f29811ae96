"""Data nodes and triggers of a zone controller: which event moves a partition, and which moves nothing."""

from __future__ import annotations

import pytest
from tests.core.zones.controller_bench import (
    EVEN,
    HA,
    PATIENT,
    PENDING,
    STABLE,
    THREE,
    Bench,
    layout_of,
    leading,
    look_again,
    made,
    touch,
)
from tests.core.zones.test_transitions import at

from holdfast.core.zones.assignments import ChainLink, PartitionKeys
from holdfast.core.zones.data_nodes import NodesTimer
from holdfast.core.zones.descriptors import NEVER, Adjustment, MemberPlace, ZoneSettings
from holdfast.core.zones.rendezvous import EvenLayout, placed
from holdfast.core.zones.zone_keys import (
    TOPOLOGY_KEY,
    zone_key,
)
from holdfast.core.zones.zone_resets import RecoveryRequest

# -- data nodes


def test_a_timer_that_runs_is_kept_when_members_leave_meanwhile() -> None:
    """Of what was written nothing concerns the timer, so no change tells of it."""
    bench = made(ZoneSettings("z", partitions=1, scale_down_s=60), "ABCD")
    bench.topology("ABD")
    bench.tell()
    bench.settle()
    bench.topology("ABD", leaving="D")
    bench.tell()
    bench.settle()
    assert bench.data_nodes().latest == set("ABC")
    bench.tick(60_000)
    bench.settle()
    assert bench.data_nodes().latest == set("AB")


@pytest.mark.rule("zones/A-28")
def test_a_successor_takes_the_place_of_a_data_node_at_once() -> None:
    bench = made(ZoneSettings("z", partitions=1, replicas=3), "ABC")
    place = MemberPlace("c", "h:1")
    bench.places({"C": place})
    bench.topology("AB")
    bench.tell()
    bench.settle()
    assert bench.data_nodes().latest == set("ABC"), "C may come back"
    bench.places({"C": place, "D": place})
    bench.topology("ABD")
    bench.tell()
    bench.settle()
    assert bench.data_nodes().latest == set("ABD")
    assert bench.data_nodes().down is None
    assert [one.nodes for one in bench.keys().pending] == [frozenset("ABD")]


def test_a_cluster_of_which_nothing_is_known_has_no_members() -> None:
    bench = made(ZoneSettings("z", partitions=1, scale_down_s=0), "AB")
    bench.remove(TOPOLOGY_KEY)
    touch(bench, zone_key(1, "descriptor"))
    bench.settle()
    assert bench.data_nodes().latest == set()


def test_without_data_nodes_no_assignments_are_written() -> None:
    bench = made(ZoneSettings("z", partitions=1, consistency=HA), "AB")
    bench.remove(zone_key(1, "history"), STABLE)
    bench.tell()
    bench.settle()
    assert bench.keys() == PartitionKeys(chain=bench.keys().chain)


def test_a_zone_that_has_lost_its_descriptor_is_left_alone() -> None:
    bench = made(THREE, "ABC")
    bench.leads = False
    bench.remove(zone_key(1, "descriptor"))
    bench.tell()
    before = bench.keys()
    bench.leads = True
    touch(bench, STABLE)
    assert bench.waits() == ["1/0"]
    bench.settle()
    assert bench.keys() == before


def test_partitions_that_the_zone_does_not_have_are_left_alone() -> None:
    bench = made(ZoneSettings("z", partitions=2, replicas=2), "AB")
    for partition in (2, 3):
        bench.set_keys(partition, stable=at("X"), trigger=1)
        before = bench.keys(partition)
        bench.tell()
        bench.settle()
        assert bench.keys(partition) == before


def test_members_that_are_waited_for_are_data_nodes_when_their_timer_is_due() -> None:
    bench = made(ZoneSettings("z", partitions=1, scale_up_s=5), "AB")
    bench.topology("ABC")
    bench.tell()
    bench.settle()
    began = bench.now
    assert bench.data_nodes().up == NodesTimer(began, 5, ("C",))
    bench.tick(4_999)
    assert bench.asked == {}
    bench.tick(1)
    assert bench.waits() == ["1"]
    bench.settle()
    assert [(one.at_ms, one.nodes) for one in bench.data_nodes().history][1:] == [
        (began + 5_000, ("A", "B", "C"))
    ]
    bench.tick(60_000)
    assert bench.asked == {}


def test_a_timer_that_is_overdue_is_looked_at_in_the_next_turn_and_not_in_this_one() -> None:
    bench = made(ZoneSettings("z", partitions=1, scale_up_s=5), "AB")
    bench.topology("ABC")
    bench.tell()
    bench.round()
    assert bench.waits() == ["invoke"]
    bench.now += 9_000
    bench.settle()
    bench.tick(1)
    bench.settle()
    assert bench.data_nodes().latest == set("ABC")


def test_members_that_leave_give_up_their_replicas_before_they_go() -> None:
    bench = made(ZoneSettings("z", partitions=1, replicas=3, scale_down_s=NEVER), "ABC")
    bench.topology("ABC", leaving="C")
    bench.tell()
    bench.settle()
    assert bench.data_nodes().latest == set("AB")
    assert bench.keys().pending[0].nodes == set("AB")


@pytest.mark.rule("zones/A-30")
@pytest.mark.parametrize("back", ["ABC", "BCD"])
def test_a_leaver_stays_a_voter_while_its_group_could_not_go_on_without_it(back: str) -> None:
    """A is away when C wants to leave. C leaves when A is back, or when D has come."""
    bench = made(ZoneSettings("z", partitions=1, replicas=3, scale_up_s=0, scale_down_s=NEVER), "ABC")
    bench.topology("BC")
    bench.tell()
    bench.topology("BC", leaving="C")
    bench.tell()
    bench.settle()
    assert bench.data_nodes().latest == set("AB")
    assert bench.keys().pending == ()
    assert bench.keys().stable is not None
    assert bench.keys().stable.nodes == set("ABC")  # type: ignore[union-attr]
    bench.topology(back, leaving="C")
    bench.tell()
    bench.settle()
    assert bench.keys().pending[0].nodes == set("ABD" if "D" in back else "AB")


def test_a_group_without_a_majority_follows_its_zone_all_the_same() -> None:
    bench = made(ZoneSettings("z", partitions=1, replicas=3, scale_down_s=NEVER), "ABC")
    bench.topology("C")
    bench.tell()
    bench.topology("C", leaving="C")
    bench.tell()
    bench.settle()
    assert bench.keys().pending[0].nodes == set("AB")


def test_members_that_a_filter_leaves_out_are_no_data_nodes() -> None:
    disks = {"C": {"kind": "disk"}, "A": {"kind": "ssd"}, "B": {"kind": "ssd"}, "D": {"kind": "ssd"}}
    bench = Bench()
    bench.topology("AB", **disks)
    bench.create(ZoneSettings("z", partitions=1), "AB")
    bench.topology("ABCD", **disks)
    bench.alter(filter={"kind": ("ssd",)})
    bench.tell()
    bench.settle()
    assert bench.data_nodes().latest == set("ABD")


def test_an_even_zone_gets_its_layout_with_its_data_nodes_and_moves_by_it() -> None:
    bench = made(EVEN, "AB")
    before = layout_of(bench)
    assert before is not None
    bench.topology("ABC")
    bench.tell()
    bench.settle()
    after = layout_of(bench)
    assert after is not None
    assert after.nodes == ("A", "B", "C")
    assert bench.revision(zone_key(1, "layout")) == bench.revision(zone_key(1, "history")), "in one invoke"
    for partition in range(4):
        keys = bench.keys(partition)
        wanted = placed("ABC", partition, EVEN, after)
        target = keys.pending[0] if keys.pending else keys.stable
        assert target is not None
        assert target.same_nodes(wanted)
        if keys.pending:
            assert target.ts == bench.revision(zone_key(1, "layout"))


@pytest.mark.parametrize("stale", ["gone", "nodes", "replicas"])
def test_an_even_zone_waits_for_a_layout_that_fits(stale: str) -> None:
    bench = made(EVEN, "ABC")
    before = [bench.keys(partition) for partition in range(4)]
    layout = layout_of(bench)
    assert layout is not None
    bench.leads = False
    if stale == "gone":
        bench.remove(zone_key(1, "layout"))
    elif stale == "nodes":
        bench.write(layout=EvenLayout(("A", "B"), 2, (("A", "B"),) * 4))
    else:
        bench.write(layout=EvenLayout(layout.nodes, 3, (("A", "B", "C"),) * 4))
    bench.write(history=bench.data_nodes().history)
    bench.tell()
    bench.leads = True
    touch(bench, zone_key(1, "history"))
    assert bench.waits() == ["1/0", "1/1", "1/2", "1/3"], "partitions are looked at, and the zone is not"
    bench.settle()
    assert [bench.keys(partition) for partition in range(4)] == before
    bench.tick()
    bench.leads = False
    bench.tick()
    bench.leads = True
    bench.tick()
    bench.settle()
    assert layout_of(bench) is not None
    assert layout_of(bench).fits("ABC", EVEN)  # type: ignore[union-attr]


def test_a_zone_by_rendezvous_has_no_layout() -> None:
    bench = made(THREE, "AB")
    bench.topology("ABC")
    bench.tell()
    bench.settle()
    assert layout_of(bench) is None


def test_an_even_zone_without_data_nodes_gets_no_layout() -> None:
    bench = made(EVEN, "AB")
    revision = bench.revision(zone_key(1, "layout"))
    bench.topology("")
    bench.tell()
    bench.settle()
    assert bench.data_nodes().latest == set()
    assert bench.revision(zone_key(1, "layout")) == revision


# -- triggers


def test_a_partition_that_has_lost_its_first_assignments_gets_them() -> None:
    for settings in (THREE, ZoneSettings("z", partitions=1, replicas=3, consistency=HA)):
        bench = made(settings, "ABC")
        bench.remove(STABLE)
        bench.tell()
        bench.settle()
        keys = bench.keys()
        assert keys.stable == at("ABC")
        assert keys.chain == ((ChainLink(at("ABC")),) if settings.consistency is HA else ())
        assert keys.pending == ()


def test_a_zone_begins_without_moving_anything() -> None:
    bench = made(ZoneSettings("z", partitions=20, replicas=2), "ABCD")
    assert all(bench.keys(partition).pending == () for partition in range(20))
    assert all(bench.keys(partition).trigger is None for partition in range(20))


def test_the_time_of_an_event_is_that_of_its_newest_cause() -> None:
    bench = leading(THREE, "ABC")
    bench.alter(replicas=2)
    bench.tell()
    bench.settle()
    assert bench.keys().trigger == bench.revision(zone_key(1, "descriptor"))
    assert bench.revision(zone_key(1, "descriptor")) > bench.revision(zone_key(1, "history"))
    bench.topology("ABCD")
    bench.tell()
    bench.settle()
    assert bench.keys().trigger == bench.revision(zone_key(1, "history"))
    assert bench.revision(zone_key(1, "history")) > bench.revision(zone_key(1, "descriptor"))


def test_a_move_that_was_begun_is_not_begun_again() -> None:
    bench = leading(THREE, "AB")
    bench.topology("ABC")
    bench.tell()
    bench.settle()
    revision = bench.revision(PENDING)
    for _ in range(3):
        bench.leads = False
        bench.tick()
        bench.leads = True
        bench.tick()
        bench.settle()
    assert bench.revision(PENDING) == revision


def test_a_zone_of_high_availability_moves_nothing_without_a_cause() -> None:
    bench = leading(PATIENT, "AB")
    bench.topology("ABC")
    bench.tell()
    bench.settle()
    keys = bench.keys()
    assert keys.pending
    for _ in range(2):
        look_again(bench)
        assert bench.keys() == keys


def test_a_strong_zone_makes_up_for_nothing_after_a_reset() -> None:
    bench = made(ZoneSettings("z", partitions=1, replicas=3, scale_down_s=NEVER), "ABC")
    asked = bench.write(recovery=RecoveryRequest(manual=True))
    bench.set_keys(trigger=asked, stable=at("A", ts=asked))
    bench.tell()
    bench.settle()
    look_again(bench)
    assert bench.keys().trigger == asked


def test_a_partition_that_is_moving_before_it_is_stable_goes_on() -> None:
    bench = made(THREE, "ABC")
    bench.set_keys(stable=None, pending=(at("AB", ts=3),), trigger=1)
    bench.alter(replicas=3)
    bench.tell()
    bench.settle()
    keys = bench.keys()
    assert (keys.stable, [one.nodes for one in keys.pending]) == (None, [set("ABC")])


def test_replicas_in_doubt_wait_for_a_move_and_for_the_first_assignments() -> None:
    bench = made(THREE, "ABC")
    bench.set_keys(switch_reduce=at("C"), pending=(at("AB", ts=3),), trigger=1)
    bench.alter(replicas=3)
    bench.tell()
    bench.settle()
    assert [one.nodes for one in bench.keys().pending] == [set("ABC")], (
        "the event counts, and nobody is taken out"
    )
    unborn = made(THREE, "ABC")
    unborn.leads = False
    unborn.set_keys(stable=None, switch_reduce=at("C"))
    unborn.tell()
    unborn.leads = True
    touch(unborn, zone_key(1, "history"))
    unborn.round()
    unborn.answer(min(unborn.asked))
    assert (unborn.keys().stable, unborn.keys().pending) == (at("ABC"), ())


def test_an_event_counts_also_where_nothing_is_known_of_the_cluster() -> None:
    bench = leading(ZoneSettings("z", partitions=1, replicas=3, scale_down_s=NEVER), "ABC")
    bench.remove(TOPOLOGY_KEY)
    touch(bench, zone_key(1, "descriptor"))
    bench.settle()
    assert bench.keys().trigger == bench.revision(zone_key(1, "descriptor"))


@pytest.mark.parametrize("adjustment", Adjustment)
def test_a_second_event_replaces_the_target_or_waits(adjustment: Adjustment) -> None:
    bench = made(ZoneSettings("z", partitions=1, replicas=5, scale_down_s=0, adjustment=adjustment), "AB")
    bench.topology("ABC")
    bench.tell()
    bench.settle()
    bench.topology("ABCD")
    bench.tell()
    bench.settle()
    keys = bench.keys()
    if adjustment is Adjustment.REPLACE:
        assert [one.nodes for one in keys.pending] == [set("ABCD")]
        assert keys.planned is None
    else:
        assert [one.nodes for one in keys.pending] == [set("ABC")]
        assert keys.planned is not None
        assert keys.planned.nodes == set("ABCD")


def test_high_availability_counts_live_members_and_the_topology_is_a_cause() -> None:
    settings = ZoneSettings(
        "z", partitions=1, replicas=3, scale_down_s=NEVER, consistency=HA, reset_after_s=NEVER
    )
    bench = leading(settings, "ABC")
    bench.alter(replicas=4)
    bench.topology("ABD")
    bench.tell()
    bench.settle()
    keys = bench.keys()
    assert bench.data_nodes().latest == set("ABCD")
    assert keys.pending[0].nodes == set("ABCD"), "C is stable, so it is waited for"
    bench.topology("ABCDE")
    bench.alter(replicas=5)
    bench.tell()
    bench.settle()
    assert bench.keys().pending[0].nodes == set("ABCDE")
    revision = bench.topology("ABCE")
    bench.tell()
    bench.settle()
    assert bench.keys().pending[0].nodes == set("ABCE"), "D is no stable node, and not alive"
    assert bench.keys().trigger == revision


def test_a_strong_zone_does_not_go_by_who_is_alive() -> None:
    bench = leading(ZoneSettings("z", partitions=1, replicas=4, scale_down_s=NEVER), "ABC")
    bench.topology("ABCD")
    bench.tell()
    bench.settle()
    trigger = bench.keys().trigger
    bench.topology("AB")
    bench.tell()
    bench.settle()
    assert bench.keys().pending[0].nodes == set("ABCD")
    assert bench.keys().trigger == trigger


def test_a_zone_whose_members_are_all_gone_keeps_its_assignments() -> None:
    bench = made(ZoneSettings("z", partitions=1, replicas=2, scale_down_s=0, consistency=HA), "AB")
    before = bench.keys()
    bench.topology("")
    bench.tell()
    bench.settle()
    assert bench.data_nodes().latest == set()
    assert bench.keys() == before


def test_a_partition_with_nobody_alive_is_left_as_it_is() -> None:
    settings = ZoneSettings(
        "z", partitions=1, replicas=1, scale_down_s=NEVER, consistency=HA, reset_after_s=NEVER
    )
    bench = made(settings, "AB")
    bench.set_keys(stable=at("C"), trigger=None)
    bench.topology("X")
    bench.leads = False
    bench.tell()
    before = bench.keys()
    bench.write(history=(bench.data_nodes().history[0],))
    bench.leads = True
    bench.tell()
    bench.settle()
    assert bench.keys().stable == before.stable
