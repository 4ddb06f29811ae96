"""Stories of zones in which members are lost, by the names that the acceptance scenarios give them."""

from __future__ import annotations

import pytest
from tests.core.zones.test_scenarios import begun, same_data
from tests.core.zones.zone_cluster import Cluster

from holdfast.core.zones.assignments import Assignments, ChainLink
from holdfast.core.zones.descriptors import NEVER, ZoneSettings
from holdfast.core.zones.transitions import Consistency
from holdfast.core.zones.zone_keys import part_key, zone_key
from holdfast.core.zones.zone_resets import RecoveryRequest

HA = ZoneSettings("z", partitions=1, replicas=3, consistency=Consistency.HIGH_AVAILABILITY)
STRONG = ZoneSettings("z", partitions=1, replicas=3)


def stable(cluster: Cluster, partition: int = 0) -> Assignments:
    found = cluster.keys(partition).stable
    assert found is not None
    return found


def resets(cluster: Cluster) -> int:
    key = zone_key(1, "recovery")
    return sum(after.key == key for _, _, changes in cluster.store.batches for _, after in changes)


def test_13_16_a_queue_is_worked_off_while_its_leader_restarts() -> None:
    cluster = begun(ZoneSettings("z", partitions=1, replicas=1), "ABCD")
    (first,) = stable(cluster).peers
    queue = (Assignments((first, "D")), Assignments(("A", "B", "C")), Assignments(("B", "C", "D")))
    cluster.write(part_key(1, 0, "pending"), queue)
    cluster.go(8)
    leader = next((m for m in cluster.members.values() if cluster._leading(m, (1, 0))), None)
    if leader is not None:
        cluster.crash(leader.name, seen=False)
        cluster.go(3)
        cluster.come(leader.name)
    cluster.settled()
    assert cluster.shown() == "S=BCD P=- N=-"
    assert len({one.nodes for one in cluster.configurations[1, 0]}) == len(set(queue))


def test_14_15_a_further_replica_is_a_learner_and_takes_the_place_of_a_voter_that_dies() -> None:
    cluster = begun(ZoneSettings("z", partitions=1, replicas=3, scale_down_s=0), "ABCD")
    cluster.alter(replicas=4)
    cluster.settled()
    four = stable(cluster)
    assert (len(four.peers), len(four.learners)) == (3, 1)
    cluster.crash(four.peers[0])
    cluster.settled()
    assert set(stable(cluster).peers) == four.nodes - {four.peers[0]}
    assert stable(cluster).learners == ()


def test_20_assignments_that_are_missing_are_written() -> None:
    cluster = begun(STRONG, "ABC")
    cluster.store.entries.pop(part_key(1, 0, "stable"))
    cluster.driver = "-"
    cluster.go(1)
    cluster.driver = "B"
    cluster.go(10)
    assert stable(cluster).nodes == set("ABC")


def test_23_sc10_only_the_partitions_that_were_named_are_reset() -> None:
    cluster = begun(ZoneSettings("z", partitions=2, replicas=3), "ABC")
    cluster.crash("B")
    cluster.crash("C")
    cluster.write(zone_key(1, "recovery"), RecoveryRequest(manual=True, partitions=(1,)))
    cluster.settled(parts=(0, 1))
    assert (stable(cluster, 0).peers, stable(cluster, 1).peers) == (("A", "B", "C"), ("A",))


@pytest.mark.parametrize("manual", [False, True])
def test_24_sc11_of_a_partition_whose_only_copy_is_lost_an_operator_makes_a_new_one(*, manual: bool) -> None:
    cluster = begun(ZoneSettings("z", partitions=1, replicas=1), "AB")
    (lost,) = stable(cluster).peers
    cluster.crash(lost)
    cluster.write(zone_key(1, "recovery"), RecoveryRequest(manual=manual))
    cluster.settled()
    cluster.go(30)
    other = "B" if lost == "A" else "A"
    assert stable(cluster).peers == ((other,) if manual else (lost,))
    assert cluster.put() is manual


def test_25_while_a_reset_is_under_way_those_that_come_back_start_nothing() -> None:
    cluster = begun(STRONG, "ABC")
    cluster.crash("B")
    cluster.crash("C")
    cluster.write(part_key(1, 0, "pending"), (Assignments(("A",), force=True),))
    cluster.driver = "-"
    for name in "BC":
        cluster.members[name].start()
        assert cluster.members[name].kept[1, 0].group is None
    cluster.settled()
    cluster.go(30)
    assert cluster.shown() == "S=A P=- N=-"
    assert cluster.put()


def test_30_the_longest_log_goes_on_and_a_second_voter_without_it_follows() -> None:
    cluster = begun(ZoneSettings("z", partitions=1, replicas=5), "ABCDE")
    cluster.cut = {"A"}
    for _ in range(5):
        cluster.put()
        cluster.go()
    longest = len(cluster.members["B"].kept[1, 0].data)
    assert len(cluster.members["A"].kept[1, 0].data) < longest
    for name in "CDE":
        cluster.crash(name)
    cluster.cut = set()
    cluster.ask_reset()
    cluster.settled()
    assert stable(cluster).nodes == {"A", "B"}
    same_data(cluster, "AB")
    assert len(cluster.members["A"].kept[1, 0].data) >= longest - 5


def test_31_the_quorum_that_was_set_counts_and_not_half_of_the_replicas() -> None:
    cluster = Cluster(1, "ABCDEFG")
    cluster.begin(ZoneSettings("z", partitions=1, replicas=7, quorum=2), "ABCDEFG")
    before = stable(cluster)
    assert len(before.peers) == 3
    for name in [*before.learners, before.peers[0]]:
        cluster.crash(name)
    cluster.ask_reset()
    cluster.settled()
    assert stable(cluster) == before


def test_33_the_time_before_a_reset_and_none_for_a_minority() -> None:
    never = ZoneSettings(
        "z", partitions=1, replicas=3, consistency=Consistency.HIGH_AVAILABILITY, reset_after_s=NEVER
    )
    cluster = begun(never, "ABC")
    cluster.crash("A")
    cluster.crash("B")
    cluster.go(60)
    assert resets(cluster) == 0
    cluster.alter(reset_after_s=1)
    cluster.settled()
    cluster.go(60)
    cluster.settled()
    assert cluster.shown() == "S=C P=- N=-"
    assert resets(cluster) == 1
    minority = begun(HA, "ABC")
    minority.crash("A")
    minority.go(60)
    assert resets(minority) == 0


def test_35_all_restart_one_by_one_and_nothing_moves() -> None:
    cluster = begun(HA, "ABC")
    for name in "ABC":
        cluster.crash(name)
        cluster.go(20)
        cluster.come(name)
        cluster.settled()
    assert cluster.shown() == "S=ABC P=- N=-"
    same_data(cluster, "ABC")


def test_37_all_voters_are_lost_and_learners_take_over() -> None:
    ha = ZoneSettings("z", partitions=1, replicas=5, quorum=2, consistency=Consistency.HIGH_AVAILABILITY)
    cluster = begun(ha, "ABCDE")
    before = stable(cluster)
    for name in before.peers:
        cluster.crash(name)
    cluster.go(100)
    cluster.settled()
    assert set(stable(cluster).peers) == set(before.learners)
    cluster.go(20)
    assert cluster.put()


def test_38_40_sc12_two_resets_one_after_the_other_and_the_chain_of_both() -> None:
    ha = ZoneSettings("z", partitions=1, replicas=5, consistency=Consistency.HIGH_AVAILABILITY)
    cluster = begun(ha, "ABCDE")
    assert cluster.keys().chain == (ChainLink(stable(cluster)),)
    for name in "CDE":
        cluster.crash(name)
    cluster.go(100)
    cluster.settled()
    assert cluster.shown() == "S=AB P=- N=-"
    chain = cluster.keys().chain
    assert ["".join(link.assignments.peers) for link in chain] == ["ABCDE", "AB"]
    group = cluster.members["A"].kept[1, 0].group
    assert group is not None
    assert (chain[-1].index, chain[-1].term) == (
        group.log.configuration_index,
        group.log.term(chain[-1].index),
    )
    cluster.crash("B")
    cluster.go(100)
    cluster.settled()
    assert cluster.shown() == "S=A P=- N=-"
    cluster.come("C")
    cluster.settled()
    same_data(cluster, "AC")


@pytest.mark.rule("zones/A-29")
def test_a_group_of_two_that_narrows_to_one_is_reset_when_the_files_of_the_other_are_damaged() -> None:
    """One voter suffices for the altered zone, and the group in force still needs both."""
    cluster = begun(ZoneSettings("z", partitions=1, replicas=2), "AB")
    cluster.alter(replicas=1)
    cluster.crash("B", damaged=True)
    cluster.come("B")
    cluster.go(60)
    assert not cluster.put()
    cluster.ask_reset()
    cluster.settled()
    assert cluster.shown() == "S=A P=- N=-"
    assert cluster.put()


@pytest.mark.rule("zones/A-29")
def test_a_group_with_its_majority_is_not_reset_because_the_altered_zone_wants_more_voters() -> None:
    cluster = begun(ZoneSettings("z", partitions=1, replicas=3), "ABC")
    cluster.crash("C")
    cluster.driver = "-"
    cluster.alter(replicas=5)
    cluster.ask_reset()
    cluster.driver = "A"
    cluster.go(60)
    assert cluster.keys().generation == 0, "two of three voters are there: nothing is given up"
    assert cluster.put()
