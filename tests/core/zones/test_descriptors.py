"""Zones as data, the commands on them, and how the metastore's keys of zones are spelled."""

from __future__ import annotations

import pytest
from tests.core.zones.small_metastore import SmallMetastore

from holdfast.core.metastore.invoke import PutKey
from holdfast.core.zones.assignments import Assignments, ChainLink, PartitionKeys, TargetLock
from holdfast.core.zones.data_nodes import data_nodes_of
from holdfast.core.zones.descriptors import (
    ClusterTopology,
    DataMember,
    PlacementKind,
    ZoneDescriptor,
    ZoneRefused,
    ZoneSettings,
    checked,
    node_filter,
    quorums,
)
from holdfast.core.zones.transitions import Consistency
from holdfast.core.zones.zone_commands import ZONE_FIELDS, altered, created, creation_keys, dropped, renamed
from holdfast.core.zones.zone_keys import (
    IDS_KEY,
    TOPOLOGY_KEY,
    KeysRead,
    UnknownFormat,
    changes_to,
    decoded,
    encoded,
    name_key,
    part_keys,
    part_of,
    partition_keys,
    zone_key,
    zone_of,
)


def cluster(names: str = "ABC") -> SmallMetastore:
    store = SmallMetastore()
    members = tuple(DataMember(name, attributes={"kind": "ssd" if name < "C" else "disk"}) for name in names)
    store.entries[TOPOLOGY_KEY] = store.get(TOPOLOGY_KEY).__class__(
        TOPOLOGY_KEY, encoded(ClusterTopology(1, members)), 1
    )
    store.revision = 1
    return store


def create(store: SmallMetastore, settings: ZoneSettings) -> ZoneDescriptor:
    zone, invoke = created(store.read(creation_keys(settings)), settings, 5)
    assert store.invoke(invoke).answer == 1
    return zone


def read_of(store: SmallMetastore, *names: str) -> KeysRead:
    keys = [TOPOLOGY_KEY, *(zone_key(1, field) for field in ZONE_FIELDS), zone_key(2, "descriptor")]
    return store.read([*keys, *map(name_key, names)])


def test_the_quorum_goes_by_the_replicas() -> None:
    assert [list(quorums(count)) for count in (1, 2, 3, 4, 5, 7)] == [[1], [2], [2], [2], [2, 3], [2, 3, 4]]
    usual = [ZoneSettings("z", replicas=count).consensus for count in (1, 2, 3, 4, 5, 7)]
    assert usual == [1, 2, 3, 3, 5, 5]
    assert ZoneSettings("z", replicas=7, quorum=2).consensus == 3


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (ZoneSettings("a b"), "is not a valid zone name"),
        (ZoneSettings("z", partitions=0), "partitions is 0, not 1 to 65000"),
        (ZoneSettings("z", replicas=0), "replicas is 0, not 1 to 64"),
        (ZoneSettings("z", replicas=3, quorum=1), "quorum is 1; with 3 replicas it can be 2"),
        (ZoneSettings("z", replicas=7, quorum=5), "with 7 replicas it can be 2 to 4"),
        (ZoneSettings("z", filter={"kind": ()}), "filter: 'kind' needs a value"),
        (ZoneSettings("z", scale_up_s=-1), "scale_up_s is -1"),
    ],
)
def test_what_cannot_be_is_refused_by_name(settings: ZoneSettings, why: str) -> None:
    with pytest.raises(ZoneRefused, match=why):
        checked(settings)


def test_two_replicas_are_warned_of() -> None:
    (warning,) = checked(ZoneSettings("z", replicas=2))
    assert "two replicas have no majority" in warning
    assert checked(ZoneSettings("z", replicas=3)) == []
    ha = checked(ZoneSettings("z", consistency=Consistency.HIGH_AVAILABILITY))
    assert "cannot be recovered" in ha[0]


def test_a_filter_is_written_as_people_do() -> None:
    assert node_filter(" region=eu|us , kind = ssd ") == {"region": ("eu", "us"), "kind": ("ssd",)}
    assert node_filter("") == {}
    for wrong in ("region", "=eu", "a=1,a=2", "a=|"):
        with pytest.raises(ZoneRefused):
            node_filter(wrong)


@pytest.mark.rule("zones/A-7")
def test_a_zone_comes_with_its_assignments_or_not_at_all() -> None:
    store = cluster()
    create(store, ZoneSettings("z", partitions=3, replicas=2, consistency=Consistency.HIGH_AVAILABILITY))
    assert store.revision == 2, "one invoke"
    for partition in range(3):
        keys = partition_keys(store.read(part_keys(1, partition)), 1, partition)
        assert keys.stable is not None
        assert len(keys.stable.peers) == 2
        assert keys.chain == (ChainLink(keys.stable, -1, -1),)
    with pytest.raises(ZoneRefused, match="none of the 3 members passes its filter"):
        create(store, ZoneSettings("y", filter={"kind": ("tape",)}))
    with pytest.raises(ZoneRefused, match="none of the 0 members"):
        create(SmallMetastore(), ZoneSettings("y"))


@pytest.mark.rule("zones/A-6", "zones/A-8")
def test_of_two_that_create_a_zone_one_is_late() -> None:
    store = cluster()
    one, other = ZoneSettings("z"), ZoneSettings("y")
    first = created(store.read(creation_keys(one)), one, 5)[1]
    second = created(store.read(creation_keys(other)), other, 5)[1]
    assert store.invoke(first).answer == 1
    assert store.invoke(second).answer == 0, "both would have had the same number"
    assert create(store, other).id == 2
    with pytest.raises(ZoneRefused, match="there is a zone z already"):
        create(store, one)


def test_a_zone_that_was_dropped_does_not_give_its_number_on() -> None:
    store = cluster()
    create(store, ZoneSettings("z", partitions=2))
    zone, invoke = dropped(read_of(store, "z"), "z")
    assert store.invoke(invoke).answer == 1
    assert [key for key, entry in store.entries.items() if entry.exists] == [TOPOLOGY_KEY, IDS_KEY]
    assert create(store, ZoneSettings("z")).id == zone.id + 1
    with pytest.raises(ZoneRefused, match="there is no zone y"):
        dropped(read_of(store, "y"), "y")


def test_a_zone_gets_another_name() -> None:
    store = cluster()
    create(store, ZoneSettings("z"))
    create(store, ZoneSettings("y"))
    with pytest.raises(ZoneRefused, match="there is a zone y already"):
        renamed(read_of(store, "z", "y"), "z", "y")
    after, invoke = renamed(read_of(store, "z", "x"), "z", "x")
    assert store.invoke(invoke).answer == 1
    assert (after.id, after.settings.name) == (1, "x")
    assert not store.get(name_key("z")).exists
    assert store.get(name_key("x")).value == encoded(1)


def test_what_of_a_zone_is_altered_and_what_is_not() -> None:
    store = cluster()
    create(store, ZoneSettings("z", replicas=5, quorum=3))
    after, invoke = altered(read_of(store, "z"), "z", {"replicas": 3}, 9)
    assert store.invoke(invoke).answer == 1
    assert (after.settings.replicas, after.settings.voters_needed) == (3, 2)
    for changes, why in (
        ({"partitions": 3}, "keys would belong to other partitions"),
        ({"name": "y"}, "a zone is renamed apart"),
        ({"colour": 3}, "there is no setting .colour."),
        ({"filter": {"kind": ("tape",)}}, "no member passes that filter"),
        ({"consistency": Consistency.HIGH_AVAILABILITY}, "consistency cannot be altered"),
        ({"quorum": 3}, "with 3 replicas it can be 2"),
    ):
        with pytest.raises(ZoneRefused, match=why):
            altered(read_of(store, "z"), "z", changes, 9)


def test_another_filter_counts_in_the_same_invoke() -> None:
    store = cluster()
    create(store, ZoneSettings("z", replicas=3))
    _, invoke = altered(read_of(store, "z"), "z", {"filter": {"kind": ("ssd",)}}, 9)
    assert store.invoke(invoke).answer == 1
    data = data_nodes_of(read_of(store), 1)
    assert [(entry.at_ms, entry.nodes) for entry in data.history] == [(5, ("A", "B", "C")), (9, ("A", "B"))]


def test_a_filter_says_who_may_hold_a_zone() -> None:
    store = cluster()
    create(store, ZoneSettings("z", replicas=3, filter={"kind": ("ssd",)}, placement=PlacementKind.EVEN))
    stable = partition_keys(store.read(part_keys(1, 0)), 1, 0).stable
    assert stable is not None
    assert stable.nodes == {"A", "B"}


# -- keys


def test_keys_are_read_as_they_are_written() -> None:
    assert part_of(part_keys(7, 12)[0]) == (7, 12, "stable")
    assert zone_of(zone_key(7, "history")) == (7, "history")
    assert part_of(TOPOLOGY_KEY) is None
    assert zone_of(TOPOLOGY_KEY) is None


def test_values_are_the_same_bytes_for_the_same_value_and_say_their_format() -> None:
    zone = ZoneDescriptor(1, ZoneSettings("z", filter={"b": ("1",), "a": ("2",)}))
    other = ZoneDescriptor(1, ZoneSettings("z", filter={"a": ("2",), "b": ("1",)}))
    assert encoded(zone) == encoded(other)
    assert encoded(zone) == b'{"of":{"id":1,"settings":{"filter":{"a":["2"],"b":["1"]},"name":"z"}},"v":1}', (
        "what a release has written the next one reads"
    )
    assert decoded(encoded(zone), ZoneDescriptor) == zone
    with pytest.raises(UnknownFormat, match="format 2, and 1 is known"):
        decoded(b'{"of":1,"v":2}', int)
    for damaged in (b"", b"{}", b'{"of":"a","v":1}'):
        with pytest.raises(UnknownFormat, match="is no value of a zone"):
            decoded(damaged, int)


def test_what_changes_of_a_partition_is_written_and_nothing_else() -> None:
    before = PartitionKeys(
        stable=Assignments(("A",)), pending=(Assignments(("B",)),), trigger=3, lock=TargetLock(4, 1)
    )
    after = PartitionKeys(stable=Assignments(("B",)), trigger=3)
    changes = changes_to(1, 0, before, after)
    kinds = {(part_of(one.key) or (0, 0, ""))[2]: isinstance(one, PutKey) for one in changes}
    assert kinds == {"stable": True, "pending": False, "lock": False}
    store = SmallMetastore()
    store.invoke(store.read([]).guarded(changes_to(1, 0, PartitionKeys(), before)))
    assert partition_keys(store.read(part_keys(1, 0)), 1, 0) == before
