"""Where replicas belong: the same everywhere, about even, and nobody moves who need not."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.metastore.invoke import MetastoreEntry
from holdfast.core.zones.descriptors import (
    ClusterTopology,
    DataMember,
    PlacementKind,
    ZoneDescriptor,
    ZoneSettings,
)
from holdfast.core.zones.rendezvous import EvenLayout, even_layout, placed, placed_by, preference, ranked
from holdfast.core.zones.zone_keys import KeysRead, encoded, zone_key

NODES = st.sets(st.text("abcdef0123456789", min_size=4, max_size=8), min_size=1, max_size=9)


@pytest.mark.rule("zones/A-9")
def test_the_order_is_the_same_in_every_release() -> None:
    orders = ["".join(ranked("ABCDE", partition)) for partition in range(4)]
    assert orders == ["ABECD", "BECAD", "DEBAC", "DCBAE"]
    assert orders == ["".join(ranked("EDCBA", partition)) for partition in range(4)]


@given(NODES, st.text("xyz", min_size=4, max_size=6), st.integers(1, 7), st.integers(0, 999))
def test_who_joins_takes_one_place_and_moves_nothing_else(
    nodes: set[str], other: str, replicas: int, partition: int
) -> None:
    settings = ZoneSettings("z", replicas=replicas)
    before = placed(nodes, partition, settings)
    after = placed({*nodes, other}, partition, settings)
    if other in after.nodes:
        gone = before.nodes - after.nodes
        assert len(gone) == (1 if len(nodes) >= replicas else 0)
    else:
        assert after == before
    assert len(after.peers) == min(settings.consensus, len(nodes) + 1)
    assert len(after.nodes) == min(replicas, len(nodes) + 1)
    assert not set(after.peers) & set(after.learners)


def test_loads_are_about_even() -> None:
    nodes = [f"node-{number}" for number in range(5)]
    settings = ZoneSettings("z", partitions=1000, replicas=3)
    load = Counter(node for partition in range(1000) for node in placed(nodes, partition, settings).nodes)
    assert all(540 < count < 660 for count in load.values()), load


def test_roles_go_by_the_quorum() -> None:
    three = placed("ABCDE", 0, ZoneSettings("z", replicas=4))
    assert (len(three.peers), len(three.learners)) == (3, 1)
    assert placed("A", 0, ZoneSettings("z", replicas=3)).peers == ("A",)
    order = ranked("ABCDE", 0)
    assert three.learners == (order[3],)


def test_the_even_layout_differs_by_one_at_most_and_goes_on_from_where_it_was() -> None:
    settings = ZoneSettings("z", partitions=20, replicas=3, placement=PlacementKind.EVEN)
    members = tuple(DataMember(name) for name in "ABCDE")
    four = ClusterTopology(1, members[:4])
    layout = even_layout(None, four, four.nodes, settings)
    rows = [placed(four.nodes, partition, settings, layout) for partition in range(20)]
    assert set(Counter(node for row in rows for node in row.nodes).values()) == {15}
    assert layout.fits("DCBA", settings)
    assert not layout.fits("ABCDE", settings)
    five = ClusterTopology(2, members)
    grown = even_layout(layout, five, five.nodes, settings)
    after = [placed(five.nodes, partition, settings, grown) for partition in range(20)]
    assert set(Counter(node for row in after for node in row.nodes).values()) == {12}
    moved = sum(len(new.nodes - old.nodes) for old, new in zip(rows, after, strict=True))
    assert moved == 12, "only what the new one gets"


def test_two_of_one_host_are_together_only_where_there_is_no_other() -> None:
    settings = ZoneSettings("z", partitions=10, replicas=2, placement=PlacementKind.EVEN)
    hosts = {"A": "h1", "B": "h1", "C": "h2"}
    topology = ClusterTopology(1, tuple(DataMember(name, host) for name, host in hosts.items()))
    layout = even_layout(None, topology, topology.nodes, settings)
    for partition in range(10):
        row = placed(topology.nodes, partition, settings, layout)
        assert {hosts[node] for node in row.nodes} == {"h1", "h2"}
    assert sorted(preference("AB", 0, layout)) == ["A", "B"], "a node that is gone is passed over"


def test_the_stored_layout_of_a_zone_comes_first() -> None:
    """Without one the order is that of the hash."""
    zone = ZoneDescriptor(7, ZoneSettings("z", partitions=4, replicas=2, placement=PlacementKind.EVEN))
    layout = EvenLayout(("A", "B", "C"), 2, (("B", "A"), ("C", "B"), ("A", "C"), ("B", "C")))
    stored = KeysRead([MetastoreEntry(zone_key(7, "layout"), encoded(layout))])
    missing = KeysRead([MetastoreEntry(zone_key(7, "layout"), None)])
    for partition, row in enumerate(layout.rows):
        assert placed_by(stored, zone, partition, "ABC") == placed("ABC", partition, zone.settings, layout)
        assert placed_by(stored, zone, partition, "ABC").nodes == set(row)
        assert placed_by(missing, zone, partition, "ABC") == placed("ABC", partition, zone.settings)
