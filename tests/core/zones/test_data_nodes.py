"""Data nodes of a zone: who comes, who goes, and when that counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.zones.small_metastore import SmallMetastore

from holdfast.core.zones.data_nodes import (
    DataNodes,
    data_nodes_changes,
    data_nodes_of,
    filter_altered,
    gone_replaced,
    successors,
    timers_run_out,
    topology_changed,
    waits_altered,
)
from holdfast.core.zones.descriptors import (
    NEVER,
    ClusterTopology,
    DataMember,
    DataNodesEntry,
    MemberPlace,
    ZoneSettings,
)
from holdfast.core.zones.zone_keys import zone_key

SLOW = ZoneSettings("z", scale_up_s=10, scale_down_s=20)


def begun(nodes: str = "ABC") -> DataNodes:
    return DataNodes((DataNodesEntry(0, tuple(nodes)),))


def shown(data: DataNodes) -> list[tuple[int, str]]:
    return [(entry.at_ms, "".join(entry.nodes)) for entry in data.history]


def test_by_default_who_comes_counts_at_once_and_who_goes_never() -> None:
    data = topology_changed(begun(), ZoneSettings("z"), "ABD", 5)
    assert shown(data) == [(0, "ABC"), (5, "ABCD")]
    assert data.up is None
    assert data.down is not None
    assert (data.down.nodes, data.down.due_ms, data.next_ms) == (("C",), None, None)
    assert shown(timers_run_out(data, 10**15)) == shown(data)


@pytest.mark.rule("zones/A-10")
def test_a_timer_counts_from_when_it_was_due_and_not_from_when_it_was_seen() -> None:
    data = topology_changed(begun(), SLOW, "ABCD", 1_000)
    assert (shown(data), data.next_ms) == ([(0, "ABC")], 11_000)
    assert timers_run_out(data, 10_999) == data
    for late in (11_000, 99_000):
        assert shown(timers_run_out(data, late)) == [(0, "ABC"), (11_000, "ABCD")]


def test_a_timer_that_began_in_the_future_begins_now() -> None:
    """The member that began it had a clock that was ahead: nobody waits until it is as late."""
    settings = ZoneSettings("z", scale_down_s=3)
    data = topology_changed(begun(), settings, "AB", 1_000_000)
    data = topology_changed(data, settings, "AB", 5_000)
    assert data.next_ms == 8_000
    assert data.latest == frozenset("ABC")
    data = topology_changed(data, settings, "AB", 8_000)
    assert data.latest == frozenset("AB")


def test_who_comes_later_is_waited_for_and_all_count_together() -> None:
    data = topology_changed(begun(), SLOW, "ABCD", 1_000)
    data = topology_changed(data, SLOW, "ABCDE", 6_000)
    assert data.next_ms == 16_000
    assert topology_changed(data, SLOW, "ABCE", 7_000).next_ms == 16_000, "who goes is no reason to wait anew"
    assert shown(timers_run_out(data, 16_000)) == [(0, "ABC"), (16_000, "ABCDE")]


@pytest.mark.rule("zones/A-11")
def test_who_is_back_in_time_was_never_away() -> None:
    data = topology_changed(begun(), SLOW, "AB", 1_000)
    data = topology_changed(data, SLOW, "ABC", 2_000)
    assert data == begun()
    come = topology_changed(begun(), SLOW, "ABCD", 1_000)
    assert topology_changed(come, SLOW, "ABC", 2_000) == begun()


def test_both_timers_run_and_the_earlier_counts_first() -> None:
    data = topology_changed(begun(), SLOW, "ABD", 1_000)
    assert shown(timers_run_out(data, 60_000)) == [(0, "ABC"), (11_000, "ABCD"), (21_000, "ABD")]


def test_another_filter_counts_at_once_and_ends_the_timers() -> None:
    data = topology_changed(begun(), SLOW, "ABD", 1_000)
    assert filter_altered(data, "AD", 2_000) == DataNodes(
        (*begun().history, DataNodesEntry(2_000, ("A", "D")))
    )


def test_other_waits_count_from_when_the_timers_began() -> None:
    data = topology_changed(begun(), SLOW, "AB", 1_000)
    assert waits_altered(data, ZoneSettings("z", scale_down_s=5), 3_000).next_ms == 6_000
    assert shown(waits_altered(data, ZoneSettings("z", scale_down_s=1), 3_000)) == [(0, "ABC"), (2_000, "AB")]
    assert waits_altered(data, ZoneSettings("z", scale_down_s=NEVER), 10**12).next_ms is None


@given(
    st.lists(st.tuples(st.sets(st.sampled_from("ABCDE"), min_size=1), st.integers(0, 30_000)), max_size=12)
)
def test_repeated_nothing_changes_and_in_the_end_it_is_who_is_here(
    events: list[tuple[set[str], int]],
) -> None:
    data, now = begun(), 0
    for alive, after in events:
        now += after
        data = topology_changed(timers_run_out(data, now), SLOW, alive, now)
        assert topology_changed(data, SLOW, alive, now) == data
        times = [entry.at_ms for entry in data.history]
        assert times == sorted(times)
        assert data.up is None or not set(data.up.nodes) & data.latest
        assert data.down is None or set(data.down.nodes) <= data.latest
        assert timers_run_out(data, now + 60_000).latest == alive


def test_they_are_written_and_read() -> None:
    store = SmallMetastore()
    keys = [zone_key(1, field) for field in ("history", "up", "down")]
    data = topology_changed(begun(), SLOW, "ABD", 1_000)
    for before, after in ((DataNodes(), data), (data, timers_run_out(data, 60_000))):
        read = store.read(keys)
        assert data_nodes_of(read, 1) == before
        assert store.invoke(read.guarded(data_nodes_changes(1, before, after))).answer == 1
        assert data_nodes_of(store.read(keys), 1) == after


def topology(nodes: str, leaving: str = "") -> ClusterTopology:
    members = tuple(DataMember(node, attributes={"disk": "hdd" if node == "Z" else "ssd"}) for node in nodes)
    return ClusterTopology(7, members, tuple(leaving))


PLACES = {node: MemberPlace(f"member {node.lower()}", f"h:{ord(node.lower())}") for node in "ABCD"}


@pytest.mark.rule("zones/A-28")
@pytest.mark.parametrize(
    ("here", "places", "replaced"),
    [
        ("ABX", {"X": PLACES["C"]}, {"C": "X"}),
        ("AXY", {"X": PLACES["C"], "Y": PLACES["B"]}, {"B": "Y", "C": "X"}),
        ("AB", {}, {}),
        # Only the same name at the same address counts.
        ("ABX", {"X": MemberPlace("member c", "h:1")}, {}),
        ("ABX", {"X": MemberPlace("another", PLACES["C"].address)}, {}),
        # C is not out of the view yet.
        ("ABCX", {"X": PLACES["C"]}, {}),
        # The filter rejects the member, so the zone cannot use it.
        ("ABZ", {"Z": PLACES["C"]}, {}),
        # D was never a data node.
        ("ABCX", {"X": PLACES["D"]}, {}),
    ],
)
def test_a_member_at_the_place_of_a_data_node_that_has_gone_replaces_it(
    here: str, places: dict[str, MemberPlace], replaced: dict[str, str]
) -> None:
    settings = ZoneSettings("z", filter={"disk": ("ssd",)}, scale_up_s=NEVER)
    found = successors(begun(), settings, topology(here), {**PLACES, **places})
    assert found == replaced
    data = gone_replaced(begun(), found, 5)
    assert data.latest == (frozenset("ABC") - replaced.keys()) | frozenset(replaced.values())


@pytest.mark.rule("zones/A-28")
def test_a_successor_that_leaves_replaces_nothing_and_places_of_unknown_members_do_not_count() -> None:
    settings = ZoneSettings("z")
    places = {**PLACES, "X": PLACES["C"]}
    assert successors(begun(), settings, topology("ABX", leaving="X"), places) == {}
    assert successors(begun(), settings, topology("ABX"), {}) == {}
    assert gone_replaced(begun(), {}, 5) == begun()
