"""Placement of a zone's partitions: properties of rendezvous and of the even layout, and a new zone's assignments."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.zones.small_metastore import SmallMetastore

from holdfast.core.zones.assignments import Assignments, ChainLink, PartitionKeys
from holdfast.core.zones.descriptors import (
    ClusterTopology,
    DataMember,
    PlacementKind,
    ZoneDescriptor,
    ZoneSettings,
)
from holdfast.core.zones.rendezvous import (
    EvenLayout,
    even_layout,
    in_roles,
    initial_changes,
    placed,
    preference,
    ranked,
)
from holdfast.core.zones.transitions import Consistency
from holdfast.core.zones.zone_keys import part_keys, partition_keys, zone_key

names = st.sets(st.sampled_from([f"node-{number}" for number in range(8)]), min_size=1)


def topology(nodes: set[str] | str, **groups: str) -> ClusterTopology:
    return ClusterTopology(1, tuple(DataMember(node, groups.get(node, "")) for node in sorted(nodes)))


# -- rendezvous


@pytest.mark.rule("zones/A-9")
@given(names, names, st.integers(0, 2000), st.integers(1, 6))
def test_an_order_is_of_two_nodes_whoever_else_is_there(
    some: set[str], others: set[str], partition: int, replicas: int
) -> None:
    """So a node that comes or goes never changes in which order the others stand."""
    both = ranked(some | others, partition)
    assert [node for node in both if node in some] == ranked(some, partition)
    assert sorted(both) == sorted(some | others)
    settings = ZoneSettings("z", replicas=replicas)
    found = placed(some, partition, settings)
    order = ranked(some, partition)
    assert found.nodes == set(order[:replicas])
    assert set(found.peers) == set(order[: settings.consensus])
    assert (list(found.peers), list(found.learners)) == (sorted(found.peers), sorted(found.learners))
    assert preference(some, partition, None) == order


def test_the_first_vote_and_the_others_learn() -> None:
    settings = ZoneSettings("z", replicas=7, quorum=2)
    assert in_roles("GFEDCBA", settings) == Assignments(("E", "F", "G"), ("A", "B", "C", "D"))
    assert in_roles("GFEDCBAXY", settings) == in_roles("GFEDCBA", settings)
    assert in_roles("BA", settings) == Assignments(("A", "B"))
    assert in_roles("", settings) == Assignments()


# -- the even layout


@given(st.lists(names, min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 12))
def test_an_even_layout_is_even_whole_and_keeps_what_it_can(
    views: list[set[str]], replicas: int, partitions: int
) -> None:
    settings = ZoneSettings("z", partitions=partitions, replicas=replicas, placement=PlacementKind.EVEN)
    layout = None
    for nodes in views:
        before, layout = layout, even_layout(layout, topology(nodes), nodes, settings)
        assert layout.fits(nodes, settings)
        assert layout == even_layout(before, topology(nodes), sorted(nodes, reverse=True), settings)
        width = min(replicas, len(nodes))
        assert [len(set(row)) for row in layout.rows] == [width] * partitions
        assert [len(row) for row in layout.rows] == [width] * partitions
        assert {node for row in layout.rows for node in row} <= nodes
        load = Counter(node for row in layout.rows for node in row)
        assert max(load[node] for node in nodes) - min(load[node] for node in nodes) <= 1
        assert even_layout(layout, topology(nodes), nodes, settings) == layout, "nothing moves for nothing"
        for partition in range(partitions):
            found = placed(nodes, partition, settings, layout)
            assert found.nodes == set(layout.rows[partition])
            assert set(found.peers) == set(layout.rows[partition][: settings.consensus])


def test_a_layout_fits_its_nodes_and_its_number_of_replicas() -> None:
    layout = EvenLayout(("A", "B"), 2, (("A", "B"),))
    two, three = ZoneSettings("z", replicas=2), ZoneSettings("z", replicas=3)
    assert layout.fits("BA", two)
    assert not layout.fits("BA", three)
    assert not layout.fits("A", two)
    assert not layout.fits("ABC", two)


def test_replicas_are_added_to_and_taken_from_a_layout() -> None:
    nodes = set("ABCDE")
    settings = ZoneSettings("z", partitions=10, replicas=2, placement=PlacementKind.EVEN)
    two = even_layout(None, topology(nodes), nodes, settings)
    more = msgspec.structs.replace(settings, replicas=3)
    three = even_layout(two, topology(nodes), nodes, more)
    assert all(set(old) <= set(new) for old, new in zip(two.rows, three.rows, strict=True))
    assert set(Counter(node for row in three.rows for node in row).values()) == {6}
    one = even_layout(three, topology(nodes), nodes, msgspec.structs.replace(settings, replicas=1))
    assert set(Counter(node for row in one.rows for node in row).values()) == {2}
    stay = sum(new[0] in old for old, new in zip(three.rows, one.rows, strict=True))
    assert stay == 10, "no replica has to be sent anywhere"


def test_a_layout_without_nodes_has_no_replicas() -> None:
    settings = ZoneSettings("z", partitions=2, replicas=2)
    assert even_layout(None, topology(""), "", settings) == EvenLayout((), 2, ((), ()))
    before = EvenLayout(("A",), 2, (("A",), ("A",)))
    found = even_layout(before, topology("AB"), "AB", settings)
    assert [sorted(row) for row in found.rows] == [["A", "B"], ["A", "B"]]


def test_groups_are_kept_apart_also_where_a_node_is_not_in_the_topology() -> None:
    settings = ZoneSettings("z", partitions=6, replicas=2)
    here = topology("ABC", A="rack", B="rack")
    layout = even_layout(None, here, set("ABCD"), settings)
    assert all(set(row) != {"A", "B"} for row in layout.rows)
    assert {node for row in layout.rows for node in row} == set("ABCD")


def test_the_layout_comes_first_and_then_the_partitions_own_order() -> None:
    layout = EvenLayout(("A", "B", "C"), 2, (("A", "B"), ("C", "A")))
    for partition, first in ((0, ["A", "B"]), (1, ["C", "A"])):
        order = preference("ABCDE", partition, layout)
        rest = [node for node in ranked("ABCDE", partition) if node not in first]
        assert order == first + rest
    assert preference("BDE", 0, layout) == ["B", *ranked("DE", 0)]


# -- a new zone


@pytest.mark.parametrize("placement", PlacementKind)
@pytest.mark.parametrize("consistency", Consistency)
def test_a_new_zone_begins_with_all_its_assignments(
    placement: PlacementKind, consistency: Consistency
) -> None:
    settings = ZoneSettings(
        "z",
        partitions=4,
        replicas=3,
        filter={"kind": ("ssd",)},
        placement=placement,
        consistency=consistency,
    )
    members = tuple(
        DataMember(name, attributes={"kind": "disk" if name == "A" else "ssd"}) for name in "ABCDEF"
    )
    here = ClusterTopology(1, members, leaving=("F",))
    store = SmallMetastore()
    store.invoke(store.read([]).guarded(initial_changes(ZoneDescriptor(7, settings), here)))
    nodes = set("BCDE")
    layout = even_layout(None, here, nodes, settings) if placement is PlacementKind.EVEN else None
    kept = store.read([zone_key(7, "layout")]).value(zone_key(7, "layout"), EvenLayout)
    assert kept == layout
    for partition in range(4):
        stable = placed(nodes, partition, settings, layout)
        chain = (ChainLink(stable),) if consistency is Consistency.HIGH_AVAILABILITY else ()
        keys = partition_keys(store.read(part_keys(7, partition)), 7, partition)
        assert keys == PartitionKeys(stable=stable, chain=chain)
    written = 4 * (2 if consistency is Consistency.HIGH_AVAILABILITY else 1) + (layout is not None)
    assert len(store.entries) == written


def test_a_layout_cannot_be_changed_and_unknown_fields_are_refused() -> None:
    layout = EvenLayout(("A",), 1, (("A",),))
    for field in layout.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(layout, field, getattr(layout, field))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**msgspec.to_builtins(layout), "newer": 1}, EvenLayout)
