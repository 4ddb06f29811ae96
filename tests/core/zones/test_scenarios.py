"""Stories of zones with controllers and real groups, each by the name that the acceptance scenarios give it."""

from __future__ import annotations

import pytest
from tests.core.zones.zone_cluster import Cluster

from holdfast.core.zones.data_nodes import data_nodes_of
from holdfast.core.zones.descriptors import Adjustment, PlacementKind, ZoneSettings
from holdfast.core.zones.transitions import Consistency
from holdfast.core.zones.zone_keys import encoded, zone_key
from holdfast.core.zones.zone_resets import RecoveryRequest

ONE = ZoneSettings("z", partitions=1, replicas=1, scale_down_s=0)
THREE = ZoneSettings("z", partitions=1, replicas=3, scale_down_s=0)


def moved(cluster: Cluster) -> list[str]:
    return ["".join(one.peers) for one in cluster.configurations.get((1, 0), [])]


def begun(settings: ZoneSettings, names: str = "ABC", *, seed: int = 1, all_names: str = "ABCDE") -> Cluster:
    cluster = Cluster(seed, all_names)
    cluster.begin(settings, names)
    for _ in range(5):
        cluster.put()
        cluster.go()
    return cluster


def same_data(cluster: Cluster, names: str) -> None:
    cluster.go(10)
    contents = [cluster.members[name].kept[1, 0].data for name in names]
    assert all(one == contents[0] for one in contents), "replicas hold the same"
    assert len(contents[0]) >= 5


@pytest.mark.parametrize("adjustment", Adjustment)
def test_sc01_one_replica_becomes_two(adjustment: Adjustment) -> None:
    cluster = begun(ZoneSettings("z", partitions=1, replicas=1, adjustment=adjustment), "AB")
    cluster.alter(replicas=2)
    cluster.settled()
    assert cluster.shown() == "S=AB P=- N=-"
    assert cluster.holders() == "AB"
    same_data(cluster, "AB")


def test_sc02_and_sc05_a_second_event_waits_and_each_replica_is_started_once() -> None:
    cluster = begun(ZoneSettings("z", partitions=1, replicas=1, adjustment=Adjustment.CANCEL))
    for replicas in (2, 3):
        cluster.alter(replicas=replicas)
        cluster.go(1)
    cluster.settled()
    assert cluster.shown() == "S=ABC P=- N=-"
    assert all(len(cluster.members[name].started) == 1 for name in "ABC")
    same_data(cluster, "ABC")


@pytest.mark.parametrize("last", [2, 1])
def test_sc03_and_sc04_a_third_event_takes_back_the_second(last: int) -> None:
    cluster = begun(ZoneSettings("z", partitions=1, replicas=1))
    for replicas in (2, 3, last):
        cluster.alter(replicas=replicas)
        cluster.go(1)
    cluster.settled()
    keys = cluster.keys()
    assert keys.stable is not None
    assert len(keys.stable.peers) == last
    assert len(cluster.holders()) == last


def test_sc06_roles_change_while_another_event_comes() -> None:
    cluster = begun(ZoneSettings("z", partitions=1, replicas=4, scale_down_s=0), "ABCDE")
    assert len(cluster.keys().stable.learners) == 1  # type: ignore[union-attr]
    cluster.alter(replicas=5)
    cluster.go(1)
    cluster.alter(replicas=3)
    cluster.settled()
    keys = cluster.keys()
    assert (len(keys.stable.peers), len(keys.stable.learners)) == (3, 0)  # type: ignore[union-attr]


def test_sc07_and_12_the_same_event_again_writes_nothing() -> None:
    cluster = begun(THREE, "ABC")
    cluster.come("D")
    cluster.settled()
    before = cluster.store.revision
    for driver in "BCDA":
        cluster.driver = driver
        cluster.go(20)
    assert cluster.store.revision == before


def test_sc08_late_completions_change_nothing() -> None:
    cluster = begun(ONE, "AB")
    cluster.alter(replicas=2)
    cluster.settled()
    before = cluster.store.revision
    leader = next(m for m in cluster.members.values() if cluster._leading(m, (1, 0)))
    group = leader.kept[1, 0].group
    assert group is not None
    group.change_peers(group.term, group.configuration.voters, (), group.configuration.token)
    cluster.go(10)
    assert cluster.store.revision == before


@pytest.mark.parametrize("placement", PlacementKind)
def test_8_and_9_a_member_goes_and_comes_back(placement: PlacementKind) -> None:
    cluster = begun(ZoneSettings("z", partitions=1, replicas=3, scale_down_s=0, placement=placement), "ABCD")
    first = cluster.keys().stable
    assert first is not None
    gone = first.peers[0]
    cluster.crash(gone)
    cluster.settled()
    assert gone not in cluster.keys().stable.nodes  # type: ignore[union-attr]
    assert len(cluster.keys().stable.nodes) == 3  # type: ignore[union-attr]
    cluster.come(gone)
    cluster.settled()
    assert len(cluster.keys().stable.peers) == 3  # type: ignore[union-attr]
    assert cluster.holders() == "".join(sorted(cluster.keys().stable.nodes)), "nothing is left over"  # type: ignore[union-attr]
    if placement is PlacementKind.RENDEZVOUS:
        assert cluster.keys().stable.same_nodes(first)  # type: ignore[union-attr]
    same_data(cluster, cluster.holders())


@pytest.mark.rule("zones/A-19")
def test_3_and_59_catching_up_fails_again_and_again_until_somebody_is_told() -> None:
    cluster = begun(ONE, "AB")
    first = cluster.keys().stable
    cluster.cut = set("AB") - set(first.peers)  # type: ignore[union-attr]
    cluster.alter(replicas=2)
    cluster.go(1100)
    leader = next(m for m in cluster.members.values() if cluster._leading(m, (1, 0)))
    told = [one for one in leader.told if one != "failed"]
    assert told, "the failure handler"
    assert told[0].startswith("10: ")
    assert leader.told[:9] == ["failed"] * 9
    assert cluster.keys().stable == first
    cluster.cut = set()
    cluster.settled()
    assert cluster.shown() == "S=AB P=- N=-"


def test_2_the_leader_changes_before_the_new_voter_has_caught_up() -> None:
    cluster = begun(ZoneSettings("z", partitions=1, replicas=3), "ABC")
    cluster.cut = {"D"}
    cluster.come("D")
    cluster.alter(replicas=4)
    cluster.go(5)
    leader = next(m for m in cluster.members.values() if cluster._leading(m, (1, 0)))
    group = leader.kept[1, 0].group
    assert group is not None
    cluster.crash(leader.name, seen=False)
    cluster.go(40)
    cluster.cut = set()
    cluster.come(leader.name)
    cluster.settled()
    keys = cluster.keys()
    assert keys.stable.nodes == set("ABCD")  # type: ignore[union-attr]
    same_data(cluster, "ABCD")


@pytest.mark.rule("zones/A-18")
def test_11_a_trigger_that_was_lost_is_made_up_for_by_the_next_leader_of_the_metastore() -> None:
    cluster = begun(ONE, "AB")
    cluster.driver = "-"
    cluster.alter(replicas=2)
    cluster.go(40)
    assert cluster.keys().pending == ()
    cluster.driver = "B"
    cluster.settled()
    assert cluster.shown() == "S=AB P=- N=-"


@pytest.mark.parametrize("adjustment", Adjustment)
def test_56_57_58_of_targets_that_follow_each_other_only_the_last_is_joined(adjustment: Adjustment) -> None:
    cluster = begun(
        ZoneSettings("z", partitions=1, replicas=2, scale_down_s=0, adjustment=adjustment), "ABCDE"
    )
    first = cluster.keys().stable
    rest = [name for name in "ABCDE" if name not in first.nodes]  # type: ignore[union-attr]
    cluster.cut = set(rest)
    for replicas in (3, 4, 5):
        cluster.alter(replicas=replicas, quorum=None)
        cluster.go(5)
    assert moved(cluster) == []
    cluster.cut = set()
    cluster.settled()
    assert moved(cluster)[0] == "ABCDE", "none of those before was joined"
    assert cluster.shown() == "S=ABCDE P=- N=-"
    same_data(cluster, "ABCDE")


def test_58_the_leader_dies_with_the_lock_and_the_next_one_goes_on() -> None:
    cluster = begun(THREE, "ABCD")
    cluster.alter(replicas=4)
    for _ in range(100):
        cluster.go(1)
        if cluster.keys().lock is not None:
            break
    leader = next((m for m in cluster.members.values() if cluster._leading(m, (1, 0))), None)
    if leader is not None:
        cluster.crash(leader.name, seen=False)
        cluster.go(60)
        cluster.come(leader.name)
    cluster.settled()
    assert cluster.keys().lock is None
    assert cluster.keys().stable.nodes == set("ABCD")  # type: ignore[union-attr]


@pytest.mark.rule("zones/A-21")
def test_17_22_sc09_a_majority_is_lost_and_an_operator_goes_on_without_it() -> None:
    cluster = begun(ZoneSettings("z", partitions=1, replicas=3), "ABCDE")
    voters = cluster.keys().stable.peers  # type: ignore[union-attr]
    for name in voters[:2]:
        cluster.crash(name)
    cluster.go(60)
    assert not cluster.put()
    cluster.ask_reset()
    cluster.settled()
    keys = cluster.keys()
    assert set(keys.stable.peers) == set("ABCDE") - set(voters[:2])  # type: ignore[union-attr]
    assert (keys.stable.force, keys.stable.from_reset) == (False, False)  # type: ignore[union-attr]
    cluster.go(30)
    assert cluster.put()
    same_data(cluster, "".join(keys.stable.peers))  # type: ignore[union-attr]
    cluster.come("".join(voters[:2]))
    cluster.go(100)
    assert cluster.holders() == "".join(sorted(cluster.keys().stable.nodes)), (
        "who was given up starts nothing"
    )  # type: ignore[union-attr]


def test_32_of_high_availability_a_partition_narrows_and_widens() -> None:
    ha = ZoneSettings("z", partitions=1, replicas=3, consistency=Consistency.HIGH_AVAILABILITY)
    cluster = begun(ha, "ABC")
    cluster.crash("A")
    cluster.go(30)
    assert cluster.shown() == "S=ABC P=- N=-", "a minority is no reason"
    cluster.crash("B")
    cluster.settled(parts=(0,))
    cluster.go(100)
    cluster.settled()
    assert cluster.shown() == "S=C P=- N=-"
    assert cluster.put()
    cluster.come("A")
    cluster.settled()
    assert cluster.shown() == "S=AC P=- N=-"
    cluster.come("B")
    cluster.settled()
    assert cluster.shown() == "S=ABC P=- N=-"
    same_data(cluster, "ABC")
    assert len(cluster.keys().chain) >= 1


def test_33_a_strong_zone_waits() -> None:
    cluster = begun(ZoneSettings("z", partitions=1, replicas=3), "ABC")
    cluster.crash("A")
    cluster.crash("B")
    cluster.go(200)
    assert cluster.shown() == "S=ABC P=- N=-"
    assert encoded(RecoveryRequest(manual=False)) not in {one.value for one in cluster.store.entries.values()}


def test_21_a_zone_is_dropped_while_it_moves() -> None:
    cluster = begun(THREE, "ABC")
    cluster.come("D")
    cluster.alter(replicas=4)
    cluster.go(3)
    cluster.drop()
    cluster.go(60)
    assert cluster.holders() == ""
    assert cluster.keys().stable is None


def test_5_6_who_was_evicted_while_it_was_down_destroys_what_it_has() -> None:
    cluster = begun(THREE, "ABC")
    cluster.crash("C", seen=False)
    cluster.alter(replicas=2, quorum=None)
    cluster.settled()
    cluster.come("C")
    cluster.go(40)
    assert cluster.holders() == "".join(sorted(cluster.keys().stable.nodes))  # type: ignore[union-attr]


@pytest.mark.rule("zones/A-20")
@pytest.mark.parametrize("local", [False, True])
def test_a_leader_that_was_elected_does_not_go_by_what_has_arrived_here(*, local: bool) -> None:
    """E01: and with reads of its own copy it would."""
    cluster = begun(THREE, "ABCD")
    voters = sorted(cluster.keys().stable.peers)  # type: ignore[union-attr]
    cluster.driver = next(name for name in "ABCD" if name not in voters)
    cluster.deaf, cluster.local_reads = set(voters), local
    cluster.go(5)
    cluster.local_reads = False
    cluster.alter(replicas=2, quorum=None)
    cluster.go(10)
    cluster.local_reads = local
    assert cluster.keys().pending
    leader = next(m for m in cluster.members.values() if cluster._leading(m, (1, 0)))
    group = leader.kept[1, 0].group
    assert group is not None
    group.transfer(next(name for name in voters if name != leader.name))
    cluster.go(40)
    assert len(cluster.keys().stable.peers) == (3 if local else 2)  # type: ignore[union-attr]


@pytest.mark.rule("zones/A-17")
def test_an_answer_that_comes_twice_counts_once() -> None:
    cluster = begun(ONE, "AB")
    driver = cluster.members["A"]
    cluster.alter(replicas=2)
    cluster._tell()
    asked = [one for one in cluster.asked if isinstance(one[2], list) and one[0] is driver]
    for member, ticket, keys in asked:
        assert isinstance(keys, list)
        for _ in range(3):
            member.controller.on_read(
                ticket, [cluster.store.get(key) for key in keys], cluster.store.revision
            )
    invokes = [what for _, _, what in cluster.asked if not isinstance(what, list)]
    assert len(invokes) == 1
    driver.controller.on_read(99_999, [], 1)
    cluster.settled()


def test_a_timer_runs_out_though_something_else_was_written_meanwhile() -> None:
    """A member has gone, and before it is given up another one comes (even layout: that is written, too)."""
    settings = ZoneSettings("z", partitions=3, replicas=2, scale_down_s=3, placement=PlacementKind.EVEN)
    cluster = begun(settings, "ABC")
    cluster.crash("C")
    cluster.go(10)
    cluster.come("D")
    cluster.go(200)
    nodes = data_nodes_of(cluster.store.read([zone_key(1, "history"), zone_key(1, "down")]), 1)
    assert nodes.latest == {"A", "B", "D"}
    assert nodes.down is None


@pytest.mark.rule("zones/A-22")
@pytest.mark.parametrize("leads", [False, True])
def test_a_replica_whose_files_are_damaged_is_replaced_by_a_copy_of_the_others(*, leads: bool) -> None:
    cluster = begun(THREE)
    leader = next(name for name in "ABC" if cluster.members[name].term((1, 0)) is not None)
    struck = leader if leads else next(name for name in "ABC" if name != leader)
    cluster.crash(struck, damaged=True)
    cluster.go(20)
    cluster.put()
    cluster.come(struck)
    cluster.settled()
    assert cluster.shown() == "S=ABC P=- N=-"
    assert cluster.keys().switch_reduce is None
    assert not cluster.members[struck].doubted
    assert "".join(sorted(set("ABC") - {struck})) in moved(cluster), "it was out of the group in between"
    same_data(cluster, "ABC")


@pytest.mark.rule("zones/A-25")
@pytest.mark.parametrize("struck", [0, 1])
def test_an_operator_frees_a_partition_whose_target_was_damaged_while_it_moved(struck: int) -> None:
    """Three voters become two; both sets have to agree, and then the files of one of the two are damaged."""
    cluster = begun(THREE)
    cluster.alter(replicas=2, quorum=None)
    for _ in range(200):
        cluster.go(1)
        if cluster.keys().lock is not None:
            break
    assert cluster.keys().lock is not None
    target = cluster.keys().pending[0].peers
    assert len(target) == 2
    cluster.crash(target[struck], damaged=True)
    cluster.come(target[struck])
    cluster.go(200)
    assert not cluster.put(), "one of two voters does not decide"
    cluster.ask_reset()
    cluster.settled()
    assert cluster.put()
    keys = cluster.keys()
    assert keys.lock is None
    assert keys.stable is not None and len(keys.stable.peers) == 2
    same_data(cluster, "".join(keys.stable.peers))


@pytest.mark.rule("zones/A-22")
def test_the_only_replica_is_not_given_up_though_its_files_are_damaged() -> None:
    cluster = begun(ONE)
    (holder,) = cluster.holders()
    cluster.crash(holder, damaged=True)
    cluster.come(holder)
    cluster.go(200)
    assert cluster.members[holder].doubted == {(1, 0)}
    assert cluster.keys().stable.peers == (holder,)  # type: ignore[union-attr]
    cluster.ask_reset()
    cluster.settled()
    assert not cluster.members[holder].doubted
    assert cluster.put(), "an operator has given up what was there"
