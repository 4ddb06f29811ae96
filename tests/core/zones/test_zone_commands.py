"""Commands on zones, bound by bound: what each writes, and in which cases it refuses."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.zones.small_metastore import SmallMetastore
from tests.core.zones.test_descriptors import cluster, create, read_of

from holdfast.core.metastore.invoke import MetastoreEntry, PutKey
from holdfast.core.zones.assignments import Assignments, ChainLink, PartitionKeys, TargetLock
from holdfast.core.zones.data_nodes import DataNodes, NodesTimer, data_nodes_changes, data_nodes_of
from holdfast.core.zones.descriptors import (
    NEVER,
    PARTITIONS_MOST,
    REPLICAS_MOST,
    Adjustment,
    ClusterTopology,
    DataMember,
    DataNodesEntry,
    PlacementKind,
    ZoneDescriptor,
    ZoneRefused,
    ZoneSettings,
    checked,
    node_filter,
    quorums,
    usual_quorum,
)
from holdfast.core.zones.transitions import Consistency
from holdfast.core.zones.zone_commands import altered, created, dropped, found_zone, renamed
from holdfast.core.zones.zone_keys import (
    PART_FIELDS,
    TOPOLOGY_KEY,
    KeysRead,
    changes_to,
    decoded,
    encoded,
    name_key,
    part_key,
    part_keys,
    part_of,
    part_prefix,
    partition_keys,
    zone_key,
    zone_of,
)


def stored(store: SmallMetastore, number: int = 1) -> ZoneSettings:
    value = store.get(zone_key(number, "descriptor")).value
    assert value is not None
    return decoded(value, ZoneDescriptor).settings


def alter(store: SmallMetastore, now_ms: int = 9, **changes: object) -> ZoneSettings:
    after, invoke = altered(read_of(store, "z"), "z", changes, now_ms)
    assert store.invoke(invoke).answer == 1
    assert stored(store) == after.settings
    return after.settings


# -- create, rename, drop


def test_settings_that_cannot_be_are_refused_by_every_command() -> None:
    store = cluster()
    with pytest.raises(ZoneRefused, match="is not a valid zone name"):
        create(store, ZoneSettings("a b"))
    create(store, ZoneSettings("z"))
    with pytest.raises(ZoneRefused, match="is not a valid zone name"):
        renamed(read_of(store, "z", "a b"), "z", "a b")
    with pytest.raises(ZoneRefused, match="there is a zone z already"):
        renamed(read_of(store, "z"), "z", "z")


def test_a_renamed_zone_is_found_by_its_new_name_with_everything_else_as_it_was() -> None:
    store = cluster()
    before = create(store, ZoneSettings("z", replicas=3, scale_down_s=7))
    _, invoke = renamed(read_of(store, "z", "x"), "z", "x")
    assert store.invoke(invoke).answer == 1
    after = found_zone(read_of(store, "x"), "x")
    assert after == ZoneDescriptor(before.id, msgspec.structs.replace(before.settings, name="x"))
    with pytest.raises(ZoneRefused, match="there is no zone z"):
        found_zone(read_of(store, "z"), "z")


def test_a_name_without_its_zone_is_no_zone() -> None:
    store = cluster()
    create(store, ZoneSettings("z"))
    del store.entries[zone_key(1, "descriptor")]
    with pytest.raises(ZoneRefused, match="there is no zone z"):
        dropped(read_of(store, "z"), "z")


# -- alter


@pytest.mark.parametrize(
    ("begin", "changes", "quorum"),
    [
        # The quorum stays while the number of replicas allows it, and is the usual one otherwise.
        ({"replicas": 5, "quorum": 2}, {"replicas": 7}, 2),
        ({"replicas": 5, "quorum": 3}, {"replicas": 7}, 3),
        ({"replicas": 5, "quorum": 3}, {"replicas": 3}, None),
        ({"replicas": 7, "quorum": 4}, {"replicas": 5}, None),
        ({"replicas": 3}, {"replicas": 7}, None),
        ({"replicas": 5, "quorum": 3}, {"replicas": 7, "quorum": 4}, 4),
        ({"replicas": 5, "quorum": 3}, {"quorum": 2}, 2),
        ({"replicas": 5, "quorum": 3}, {"quorum": None}, None),
        ({"replicas": 5, "quorum": 2}, {"scale_up_s": 2}, 2),
    ],
)
def test_what_becomes_of_the_quorum(
    begin: dict[str, int], changes: dict[str, object], quorum: int | None
) -> None:
    store = cluster("ABCDEFG")
    create(store, ZoneSettings("z", **begin))
    after = alter(store, **changes)
    assert after.quorum == quorum
    assert after == msgspec.structs.replace(ZoneSettings("z", **begin), **{**changes, "quorum": quorum})


def test_a_quorum_that_is_asked_for_is_not_silently_another_one() -> None:
    store = cluster("ABCDE")
    create(store, ZoneSettings("z", replicas=5))
    with pytest.raises(ZoneRefused, match="quorum is 3; with 3 replicas it can be 2"):
        altered(read_of(store, "z"), "z", {"replicas": 3, "quorum": 3}, 9)
    assert stored(store) == ZoneSettings("z", replicas=5)


def with_timers(store: SmallMetastore) -> DataNodes:
    """D has come, and C has gone."""
    members = tuple(DataMember(name, attributes={"kind": "ssd"}) for name in "ABD")
    topology = ClusterTopology(2, members)
    before = data_nodes_of(read_of(store), 1)
    data = DataNodes(before.history, NodesTimer(5, 50, ("D",)), NodesTimer(5, 60, ("C",)))
    changes = [PutKey(TOPOLOGY_KEY, encoded(topology)), *data_nodes_changes(1, before, data)]
    store.invoke(store.read([]).guarded(changes))
    return data


def test_settings_without_a_filter_leave_members_that_are_waited_for_waiting() -> None:
    store = cluster()
    create(store, ZoneSettings("z", scale_up_s=50, scale_down_s=60))
    data = with_timers(store)
    alter(store, replicas=3)
    assert data_nodes_of(read_of(store), 1) == data


def test_other_waits_count_at_once() -> None:
    store = cluster()
    create(store, ZoneSettings("z", scale_up_s=50, scale_down_s=60))
    data = with_timers(store)
    alter(store, scale_up_s=70)
    assert data_nodes_of(read_of(store), 1).up == NodesTimer(5, 70, ("D",))
    alter(store, now_ms=1_005, scale_down_s=1)
    after = data_nodes_of(read_of(store), 1)
    assert after.history == (*data.history, DataNodesEntry(1_005, ("A", "B")))


def test_another_filter_ends_the_waiting() -> None:
    store = cluster()
    create(store, ZoneSettings("z", scale_up_s=50, scale_down_s=60))
    with_timers(store)
    alter(store, filter={"kind": ("ssd",)})
    after = data_nodes_of(read_of(store), 1)
    assert (after.latest, after.up, after.down) == (frozenset("ABD"), None, None)


def test_before_any_member_is_known_no_filter_lets_anybody_through() -> None:
    store = cluster()
    create(store, ZoneSettings("z"))
    del store.entries[TOPOLOGY_KEY]
    with pytest.raises(ZoneRefused, match="no member passes that filter"):
        altered(read_of(store, "z"), "z", {"filter": {}}, 9)


def test_consistency_is_not_altered_in_either_direction_and_may_be_repeated() -> None:
    for begin, other in (
        (Consistency.STRONG, Consistency.HIGH_AVAILABILITY),
        (Consistency.HIGH_AVAILABILITY, Consistency.STRONG),
    ):
        store = cluster()
        create(store, ZoneSettings("z", consistency=begin))
        with pytest.raises(ZoneRefused, match="consistency cannot be altered"):
            altered(read_of(store, "z"), "z", {"consistency": other}, 9)
        assert alter(store, consistency=begin).consistency is begin


@pytest.mark.rule("zones/A-6")
@pytest.mark.parametrize("key", [TOPOLOGY_KEY, zone_key(1, "descriptor"), zone_key(1, "up"), name_key("z")])
def test_an_altered_filter_is_refused_when_anything_it_rests_on_has_changed(key: bytes) -> None:
    store = cluster()
    create(store, ZoneSettings("z"))
    _, invoke = altered(read_of(store, "z"), "z", {"filter": {"kind": ("ssd",)}}, 9)
    store.invoke(store.read([]).guarded([PutKey(key, store.get(key).value or b"x")]))
    assert store.invoke(invoke).answer == 0
    assert stored(store) == ZoneSettings("z")


# -- settings


@pytest.mark.parametrize(
    ("replicas", "usual", "allowed", "voters"),
    [
        (1, 1, [1], 1),
        (2, 2, [2], 2),
        (3, 2, [2], 3),
        (4, 2, [2], 3),
        (5, 3, [2, 3], 5),
        (6, 3, [2, 3], 5),
        (7, 3, [2, 3, 4], 5),
        (8, 3, [2, 3, 4], 5),
        (9, 3, [2, 3, 4, 5], 5),
    ],
)
def test_quorums(replicas: int, usual: int, allowed: list[int], voters: int) -> None:
    assert (usual_quorum(replicas), list(quorums(replicas))) == (usual, allowed)
    assert ZoneSettings("z", replicas=replicas).consensus == voters
    for quorum in allowed:
        settings = ZoneSettings("z", replicas=replicas, quorum=quorum)
        checked(settings)
        assert (settings.voters_needed, settings.consensus) == (quorum, min(2 * quorum - 1, replicas))
        assert 2 * quorum > settings.consensus, "two quorums have a voter in common"
    for quorum in {0, 1, *range(allowed[-1] + 1, 9)} - set(allowed):
        least, most = allowed[0], allowed[-1]
        can = f"{least}" if least == most else f"{least} to {most}"
        with pytest.raises(ZoneRefused, match=f"quorum is {quorum}; .* it can be {can}$"):
            checked(ZoneSettings("z", replicas=replicas, quorum=quorum))


def test_a_zone_is_modest_unless_told_otherwise() -> None:
    """The defaults stand in documents and in files of older releases: a field that is left out means these."""
    assert ZoneSettings("z") == ZoneSettings(
        "z", 25, 1, None, {}, 0, (1 << 31) - 1, Consistency.STRONG, 0, Adjustment.REPLACE,
        PlacementKind.RENDEZVOUS,
    )  # fmt: skip
    assert msgspec.json.encode(ZoneSettings("z")) == b'{"name":"z"}'
    assert msgspec.json.encode(ClusterTopology()) == b"{}"
    assert (ClusterTopology().view, DataMember("A").group, DataMember("A").attributes) == (0, "", {})
    assert (PARTITIONS_MOST, REPLICAS_MOST) == (65_000, 64)


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [
        ("partitions", 1, 65_000),
        ("replicas", 1, 64),
        ("scale_up_s", 0, NEVER),
        ("scale_down_s", 0, NEVER),
        ("reset_after_s", 0, NEVER),
    ],
)
def test_bounds_of_settings(field: str, least: int, most: int) -> None:
    for value in (least, most):
        checked(msgspec.structs.replace(ZoneSettings("z"), **{field: value}))
    for value in (least - 1, most + 1):
        with pytest.raises(ZoneRefused, match=f"{field} is {value}, not {least} to {most}"):
            checked(msgspec.structs.replace(ZoneSettings("z"), **{field: value}))


@pytest.mark.parametrize("name", ["z", "_", "Z9_.-", "a" * 64])
def test_names(name: str) -> None:
    assert checked(ZoneSettings(name)) == []


@pytest.mark.parametrize("name", ["", "9", "-a", "a/b", "a b", "ä", "a" * 65, "a\n"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(ZoneRefused):
        checked(ZoneSettings(name))


def test_warnings_name_what_is_lost() -> None:
    ha = Consistency.HIGH_AVAILABILITY
    counts = {
        (replicas, consistency): len(checked(ZoneSettings("z", replicas=replicas, consistency=consistency)))
        for replicas in (1, 2, 3)
        for consistency in (Consistency.STRONG, ha)
    }
    assert counts == {
        (1, "strong"): 0,
        (1, ha): 1,
        (2, "strong"): 1,
        (2, ha): 1,
        (3, "strong"): 0,
        (3, ha): 0,
    }


def test_filters_need_an_attribute_and_a_value() -> None:
    for wrong in ({"": ("a",)}, {"kind": ()}, {"": ()}):
        with pytest.raises(ZoneRefused, match="needs a value"):
            checked(ZoneSettings("z", filter=wrong))
    with pytest.raises(ZoneRefused, match="'a' needs"):
        checked(ZoneSettings("z", filter={"b": (), "a": ()}))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        (" , ,", {}),
        ("a=1", {"a": ("1",)}),
        ("a=2|1||2| ", {"a": ("1", "2")}),
        (" a = x y , b=c=d", {"a": ("x y",), "b": ("c=d",)}),
    ],
)
def test_filters_as_people_write_them(text: str, found: dict[str, tuple[str, ...]]) -> None:
    assert node_filter(text) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a", "write each attribute once"),
        ("=1", "write each attribute once"),
        ("=", "write each attribute once"),
        ("a=1,b=2, a=3", "'a=3' in a filter: write each attribute once"),
        ("a=", "'a=' in a filter names no value"),
        ("a= | ", "names no value"),
    ],
)
def test_filters_that_are_refused(text: str, why: str) -> None:
    with pytest.raises(ZoneRefused, match=why):
        node_filter(text)


def test_a_member_is_used_if_all_of_the_filter_holds_and_it_does_not_leave() -> None:
    def member(name: str, **attributes: str) -> DataMember:
        return DataMember(name, attributes=attributes)

    topology = ClusterTopology(
        3,
        (
            member("A", kind="ssd", region="eu"),
            member("B", kind="ssd", region="us"),
            member("C", kind="disk", region="eu"),
            member("D", region="eu"),
            member("E", kind="ssd", region="eu"),
        ),
        leaving=("E",),
    )
    assert topology.nodes == frozenset("ABCDE")
    for text, nodes in (
        ("", "ABCD"),
        ("kind=ssd", "AB"),
        ("kind=ssd|disk", "ABC"),
        ("kind=ssd|disk,region=eu", "AC"),
        ("colour=red", ""),
    ):
        assert ZoneSettings("z", filter=node_filter(text)).taken(topology) == frozenset(nodes), text


# -- keys


def test_keys_are_spelled_in_the_order_of_numbers() -> None:
    assert zone_key(12, "up") == b"zones/zone/00000012/up"
    assert part_key(12, 345, "stable") == b"zones/part/00000012/00345/stable"
    assert part_prefix(12) == b"zones/part/00000012/"
    assert part_keys(7, 2) == tuple(part_key(7, 2, field) for field in PART_FIELDS)
    for number in (0, 99_999_999):
        assert zone_of(zone_key(number, "a/b")) == (number, "a/b")
        assert part_of(part_key(number, 65_000, "lock")) == (number, 65_000, "lock")
    assert (zone_of(part_key(1, 2, "lock")), part_of(zone_key(1, "up"))) == (None, None)


def test_what_was_not_read_is_absent_and_counts_as_looked_at() -> None:
    read = KeysRead([MetastoreEntry(b"k", b"v", 3)], 8)
    assert read.revision == 8
    assert (read.entry(b"k"), read.entry(b"x")) == (MetastoreEntry(b"k", b"v", 3), MetastoreEntry(b"x"))
    assert read.value(b"x", int) is None
    store = SmallMetastore()
    store.entries[b"k"] = MetastoreEntry(b"k", b"v", 3)
    store.revision = 8
    assert store.invoke(read.guarded([PutKey(b"y", b"1")])).answer == 1
    store.invoke(store.read([]).guarded([PutKey(b"x", b"1")]))
    assert store.invoke(read.guarded([PutKey(b"y", b"2")])).answer == 0, "x has come"
    assert store.get(b"y").value == b"1"


FULL = PartitionKeys(
    stable=Assignments(("A",)),
    pending=(Assignments(("B",), force=True), Assignments(("B", "C"))),
    planned=Assignments(("D",), ("E",), from_reset=True, ts=4),
    trigger=3,
    switch_reduce=Assignments(("F",)),
    switch_append=Assignments(("G",)),
    chain=(ChainLink(Assignments(("A",)), 1, 2),),
    lock=TargetLock(4, 1),
    generation=9,
)


@pytest.mark.parametrize("name", PartitionKeys.__struct_fields__)
def test_every_field_of_a_partition_is_written_read_changed_and_removed(name: str) -> None:
    """One field at a time, so that no two stand under each other's key."""
    store, empty = SmallMetastore(), PartitionKeys()
    other = msgspec.structs.replace(FULL, **{name: getattr(empty, name)})
    for before, after in ((empty, FULL), (FULL, other), (other, FULL), (FULL, empty)):
        changes = changes_to(1, 0, before, after)
        differing = [one for one in FULL.__struct_fields__ if getattr(before, one) != getattr(after, one)]
        assert len(changes) == len(differing)
        assert store.invoke(store.read([]).guarded(changes)).answer == 1
        read = partition_keys(store.read(part_keys(1, 0)), 1, 0)
        assert read == after
        assert partition_keys(store.read(part_keys(1, 1)), 1, 1) == empty
    assert changes_to(1, 0, FULL, FULL) == []


@pytest.mark.parametrize(
    "value",
    [
        DataMember("A"),
        ClusterTopology(),
        ZoneSettings("z"),
        ZoneDescriptor(1, ZoneSettings("z")),
        DataNodesEntry(1, ("A",)),
    ],
)
def test_values_cannot_be_changed_and_unknown_fields_are_refused(value: msgspec.Struct) -> None:
    for field in value.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(value, field, getattr(value, field))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**msgspec.to_builtins(value), "newer": 1}, type(value))


def test_a_zone_that_nobody_could_hold_says_how_many_members_there_are() -> None:
    store = cluster()
    with pytest.raises(ZoneRefused, match="none of the 3 members passes its filter"):
        created(store.read([TOPOLOGY_KEY]), ZoneSettings("z", filter={"kind": ("tape",)}), 1)
    with pytest.raises(ZoneRefused, match="none of the 0 members"):
        created(store.read([]), ZoneSettings("z"), 1)
