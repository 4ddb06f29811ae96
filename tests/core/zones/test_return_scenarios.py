"""Stories of zones with several maps, replicas that go and return, and unfinished resets, by their scenario numbers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.core.zones.test_reset_scenarios import HA, STRONG, resets, stable
from tests.core.zones.test_scenarios import ONE, begun, same_data
from tests.core.zones.zone_cluster import Cluster

from holdfast.core.zones.assignments import Assignments
from holdfast.core.zones.descriptors import ZoneSettings
from holdfast.core.zones.transitions import Consistency
from holdfast.core.zones.zone_keys import part_key


class Sided(Cluster):
    """Members with an attribute: those of `left`, and the others."""

    def __init__(self, seed: int, names: str, left: str) -> None:
        super().__init__(seed, names)
        self._sides = {name: {"side": "left" if name in left else "right"} for name in names}

    def here(self, names: str | None = None, **attributes: Mapping[str, str]) -> None:
        super().here(names, **(self._sides | attributes))


def test_7_while_messages_are_lost_those_of_both_sets_have_replicas_and_then_exactly_one_set() -> None:
    cluster = begun(ONE, "AB")
    (first,) = stable(cluster).peers
    other = "B" if first == "A" else "A"
    cluster.cut = {other}
    cluster.write(part_key(1, 0, "pending"), (Assignments((other,)),))
    cluster.go(30)
    assert stable(cluster).peers == (first,)
    assert cluster.holders() == "AB"
    assert cluster.put(), "who was there serves on"
    cluster.cut = set()
    cluster.settled()
    assert cluster.shown() == f"S={other} P=- N=-"
    assert cluster.holders() == other


def test_10_what_was_pending_before_a_member_started_is_applied_when_it_starts() -> None:
    cluster = begun(ONE, "AB")
    (first,) = stable(cluster).peers
    other = "B" if first == "A" else "A"
    cluster.deaf = {"A", "B"}
    cluster.write(part_key(1, 0, "pending"), (Assignments(("A", "B")),))
    cluster.go(30)
    assert cluster.holders() == first, "nobody has heard of it"
    cluster.deaf = set()
    for name in (first, other):
        cluster.crash(name, seen=False)
    cluster.come("AB")
    cluster.settled()
    assert cluster.shown() == "S=AB P=- N=-"
    same_data(cluster, "AB")


def test_18_partitions_leave_for_other_members_and_come_back() -> None:
    parts = range(6)
    cluster = Sided(3, "ABCD", left="AB")
    cluster.begin(ZoneSettings("z", partitions=6, replicas=2, scale_down_s=0), "ABCD")
    for part in parts:
        for _ in range(3):
            assert cluster.put((1, part))
            cluster.go()
    for side, names in (("left", "AB"), ("right", "CD"), ("left", "AB")):
        cluster.alter(filter={"side": (side,)})
        cluster.settled(parts=parts)
        cluster.go(20)
        for part in parts:
            assert cluster.holders(part) == names
            for name in names:
                assert len(cluster.members[name].kept[1, part].data) == 3


def test_26_a_stable_member_that_is_not_in_an_unforced_target_starts_its_replica_again() -> None:
    cluster = begun(STRONG, "ABCD")
    staying = stable(cluster).peers
    (outside,) = set("ABCD") - set(staying)
    leaving = staying[0]
    cluster.cut = {outside}
    cluster.write(part_key(1, 0, "pending"), (Assignments((*sorted({*staying[1:], outside}),)),))
    cluster.go(5)
    cluster.crash(leaving, seen=False)
    cluster.go(3)
    cluster.come(leaving)
    cluster.go(3)
    assert leaving in stable(cluster).nodes
    assert cluster.members[leaving].kept[1, 0].group is not None
    cluster.cut = set()
    cluster.settled()
    same_data(cluster, cluster.holders())


def test_27_a_pending_member_with_the_data_goes_on_when_the_stable_one_is_lost() -> None:
    cluster = begun(ZoneSettings("z", partitions=1, replicas=1), "ABC")
    (first,) = stable(cluster).peers
    near, far = (name for name in "ABC" if name != first)
    cluster.cut = {far}
    cluster.write(part_key(1, 0, "pending"), (Assignments(("A", "B", "C")),))
    cluster.go(10)
    held = dict(cluster.members[first].kept[1, 0].data)
    assert cluster.members[near].kept[1, 0].data == held
    cluster.crash(first)
    cluster.ask_reset()
    cluster.cut = set()
    cluster.go(100)
    cluster.settled()
    assert stable(cluster).nodes == {near}, "and not the one without the data"
    assert held.items() <= cluster.members[near].kept[1, 0].data.items()
    assert cluster.put()


def test_29_an_automatic_reset_keeps_who_is_alive_of_the_target_that_was_not_reached() -> None:
    cluster = begun(HA, "ABCDE")
    lost, also_lost, survivor = stable(cluster).peers
    new = set("ABCDE") - stable(cluster).nodes
    cluster.cut = set(new)
    cluster.alter(replicas=5, quorum=None)
    cluster.go(5)
    assert cluster.keys().pending[0].nodes == set("ABCDE")
    cluster.crash(lost)
    cluster.crash(also_lost)
    queues = []
    for _ in range(60):
        cluster.go()
        queues.append(cluster.keys().pending)
    forced = next(queue for queue in queues if queue and queue[0].force)
    assert forced[0].nodes == {survivor}
    assert [one.nodes for one in forced[1:]] == [{survivor, *new}]
    cluster.cut = set()
    cluster.settled()
    assert stable(cluster).nodes == {survivor, *new}
    same_data(cluster, cluster.holders())


def test_28_a_further_reset_takes_the_place_of_an_unfinished_one_and_a_later_trigger_of_what_waits() -> None:
    cluster = begun(STRONG, "ABCDE")
    voters = stable(cluster).peers
    survivor = voters[2]
    for name in voters[:2]:
        cluster.crash(name)
    cluster.driver = next(name for name in "ABCDE" if name not in voters)
    cluster.deaf = {survivor}
    cluster.write(part_key(1, 0, "pending"), (Assignments(voters[:1], force=True),))
    cluster.write(part_key(1, 0, "planned"), Assignments(voters[:2], from_reset=True))
    cluster.ask_reset()
    cluster.go(20)
    (head,) = cluster.keys().pending
    assert (head.peers, head.force, head.from_reset) == ((survivor,), True, False)
    waiting = cluster.keys().planned
    assert waiting is not None
    assert (waiting.nodes, waiting.from_reset) == (set("ABCDE") - set(voters[:2]), True)
    cluster.alter(replicas=4, quorum=None)
    cluster.go(20)
    assert cluster.keys().pending == (head,)
    waiting = cluster.keys().planned
    assert waiting is not None
    assert (len(waiting.nodes), waiting.from_reset) == (4, False)
    cluster.deaf = set()
    cluster.come("".join(voters[:2]))
    cluster.settled()
    assert len(stable(cluster).nodes) == 4
    same_data(cluster, cluster.holders())


def test_34_of_high_availability_a_minority_that_stops_is_not_taken_out() -> None:
    cluster = begun(HA, "ABC")
    cluster.alter(replicas=5, quorum=None)
    cluster.come("DE")
    cluster.settled()
    assert stable(cluster).nodes == set("ABCDE")
    for name in "DE":
        cluster.crash(name)
    cluster.go(60)
    cluster.come("D")
    cluster.settled()
    assert stable(cluster).nodes == set("ABCDE")
    same_data(cluster, "ABCD")


@pytest.mark.parametrize("changes", [False, True])
def test_36_the_filter_limits_whom_a_reset_may_use(*, changes: bool) -> None:
    cluster = Sided(5, "ABCDE", left="ABC")
    left = {"side": ("left",)}
    cluster.begin(
        ZoneSettings("z", partitions=1, replicas=3, filter=left, consistency=Consistency.HIGH_AVAILABILITY),
        "ABCDE",
    )
    for _ in range(5):
        cluster.put()
        cluster.go()
    assert cluster.shown() == "S=ABC P=- N=-"
    cluster.crash("A")
    cluster.crash("B")
    if changes:
        cluster.alter(filter={"side": ("left", "right")})
    cluster.go(100)
    cluster.settled()
    after = stable(cluster).nodes
    assert "C" in after
    assert len(after) == (3 if changes else 1)
    assert after <= set("CDE")
    same_data(cluster, "".join(sorted(after)))


def test_39_after_a_reset_by_hand_the_one_of_the_timer_changes_nothing() -> None:
    cluster = begun(HA, "ABC")
    cluster.alter(reset_after_s=3)
    cluster.crash("A")
    cluster.crash("B")
    cluster.ask_reset()
    cluster.settled()
    by_hand = cluster.shown()
    held = dict(cluster.members["C"].kept[1, 0].data)
    cluster.go(100)
    cluster.settled()
    assert resets(cluster) >= 1
    assert cluster.shown() == by_hand == "S=C P=- N=-"
    assert held.items() <= cluster.members["C"].kept[1, 0].data.items()
    assert cluster.put()
