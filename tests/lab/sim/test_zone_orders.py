"""What operators ask of the metastore and of zones, through any simulated member."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
from tests.lab.sim.stage import Stage, settings
from tests.lab.sim.zone_stage import ZoneStage

from holdfast.actions.change_zone import AlterZone, CreateZone, DropZone, RenameZone, ResetZone
from holdfast.actions.drain import Drain
from holdfast.actions.metastore_keys import PutKey, ReadKey, RemoveKey
from holdfast.actions.operator_action import OperatorAction
from holdfast.actions.reset_metastore import ResetMetastore
from holdfast.actions.show_zones import ListZones, ShowZone
from holdfast.core.events import ActionRequested
from holdfast.core.model.ids import group_of
from holdfast.core.model.keys import partition_of
from holdfast.core.model.metastore_answers import MetastoreRevision
from holdfast.core.model.operations import Op, Status
from holdfast.core.model.zone_answers import ZoneChanged
from holdfast.core.zones.descriptors import ZoneSettings
from holdfast.core.zones.topology_writer import TopologyWriter
from holdfast.errors import Denied, NotReady, Refused
from holdfast_lab.sim import cluster
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.world import Process


@pytest.fixture
def stage() -> ZoneStage:
    return ZoneStage(4)


def order(stage: Stage, process: Process, wanted: OperatorAction, seconds: float = 3) -> Any:
    """The answer of this member to an action or a query, which it gives within this time."""
    answers: list[Any] = []
    process.step(partial(process.driver.act, wanted, answers.append))
    stage.wait(seconds)
    [answer] = answers
    return answer


def ask(stage: Stage, process: Process, question: OperatorAction) -> Any:
    return order(stage, process, question, 2)


def test_a_zone_is_created_shown_altered_renamed_and_dropped_through_any_member(stage: ZoneStage) -> None:
    first, second, third, fourth = stage.processes
    count = stage.settings.partitions.count
    made = order(stage, second, CreateZone("y", replicas=2, scale_down_s="never"))
    assert (made.partitions, made.replicas) == (count, 2)
    assert "two replicas have no majority" in made.warnings[0]
    twice = order(stage, third, CreateZone("y"))
    assert (type(twice), str(twice)) == (Refused, "there is a zone y already")

    stage.wait(5)
    listed = {zone.name: zone for zone in order(stage, fourth, ListZones()).zones}
    assert sorted(listed) == ["y", "z"]
    assert (listed["y"].leaderless, listed["y"].moving, listed["y"].under_replicated) == (0, 0, 0)

    shown = order(stage, first, ShowZone("y"))
    assert [one.partition for one in shown.partitions] == list(range(count))
    for one in shown.partitions:
        assert one.stable is not None
        assert one.leader in one.stable.peers
        assert {replica.node for replica in one.replicas} == set(one.stable.peers)
        assert all(replica.state == "HEALTHY" and replica.index for replica in one.replicas)
    assert len(shown.members) == 4

    altered = order(stage, first, AlterZone("y", replicas=3))
    assert altered == ZoneChanged(count, 3)
    stage.wait(20)
    shown = order(stage, second, ShowZone("y"))
    assert all(one.stable is not None and len(one.stable.peers) == 3 for one in shown.partitions)
    assert shown.zone.settings["quorum"] == 2

    assert order(stage, second, RenameZone("y", "x")) is None
    assert str(order(stage, third, DropZone("y"))) == "there is no zone y"
    assert order(stage, third, DropZone("x")) is None
    stage.wait(5)
    assert not any(
        process.driver.member.agreed.groups.hosted.keys() & stage_groups(2, count)
        for process in stage.processes
    )
    assert [zone.name for zone in order(stage, first, ListZones()).zones] == ["z"]


def stage_groups(zone: int, count: int) -> set[int]:
    return {group_of(zone, partition) for partition in range(count)}


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (CreateZone("9"), "'9' is not a valid zone name"),
        (CreateZone("y", replicas=0), "replicas is 0"),
        (CreateZone("y", filter="group=mars"), "none of the 4 members passes its filter"),
        (CreateZone("y", partitions=6001), "not 1 to 6000"),
        (RenameZone("z", "z"), "there is a zone z already"),
        (ResetZone("z", [1, 700]), "partitions are 0 to 6"),
        (ShowZone("y"), "there is no zone y"),
    ],
)
def test_what_cannot_be_is_refused_in_words(wanted: OperatorAction, why: str, shared: ZoneStage) -> None:
    answer = order(shared, shared.processes[1], wanted)
    assert type(answer) is Refused
    assert why in str(answer)


@pytest.fixture(scope="module")
def shared() -> ZoneStage:
    return ZoneStage(4)


@pytest.mark.rule("zones/Z-5")
def test_of_orders_at_the_same_time_each_is_carried_out_once_or_refused(stage: ZoneStage) -> None:
    answers: list[Any] = []
    for number, process in enumerate(stage.processes):
        process.step(partial(process.driver.act, CreateZone("same"), answers.append))
        process.step(partial(process.driver.act, CreateZone(f"own{number}"), answers.append))
    stage.wait(5)
    assert Counter(map(type, answers)) == {ZoneChanged: 5, Refused: 3}
    zones = order(stage, stage.processes[0], ListZones()).zones
    assert sorted(zone.name for zone in zones) == ["own0", "own1", "own2", "own3", "same", "z"]
    assert sorted(zone.id for zone in zones) == [1, 2, 3, 4, 5, 6]


@pytest.mark.rule("zones/Z-6")
def test_a_zone_counts_on_a_member_that_has_just_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader of the metastore is slow to write who is in the cluster."""
    stage = ZoneStage(4, spare=1)
    answers: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(TopologyWriter, "on_members", lambda writer: None)
        patch.setattr(cluster, "PARITIES", ("new", "new"))
        patch.setattr(cluster.Cluster, "has_groups", True)
        stage.processes.append(stage.cluster.start(4))
        stage.wait(2)
        asked = stage.processes[1]
        wanted = CreateZone("y", filter=f"{cluster.PARITY}=new")
        asked.step(partial(asked.driver.act, wanted, answers.append))
        stage.wait(2)
        assert answers == []
    for process in stage.processes:
        process.step(process.driver.member.agreed.zone_host.topology.on_members)
    stage.wait(2)
    assert [type(answer) for answer in answers] == [ZoneChanged]


def test_an_operator_gives_up_a_lost_majority(stage: ZoneStage) -> None:
    stage.zput(stage.processes[0], "k", "v")
    for process in stage.processes[2:]:
        process.crash()
        stage.wait(20)
    alive = stage.living()[0]
    [zone] = order(stage, alive, ListZones()).zones
    assert zone.leaderless
    assert zone.under_replicated
    assert (
        f"zone z: {zone.leaderless} of 7 partitions have no leader"
        in alive.driver.member.picture.unsafe_reason()
    )
    assert order(stage, alive, ResetZone("z")) is None
    stage.wait(30)
    [zone] = order(stage, alive, ListZones()).zones
    assert not zone.leaderless
    assert stage.zget(alive, "k") == "v"


def test_a_member_that_must_stay_says_which_zone_needs_it() -> None:
    only = {"name": ("host2#3",)}
    stage = ZoneStage(3, zone=ZoneSettings("z", partitions=7, replicas=1, filter=only))
    process = stage.processes[2]
    process.step(partial(process.driver.handle, ActionRequested(Drain())))
    stage.wait(10)
    picture = process.driver.member.picture
    kept = process.driver.member.agreed.leave_blocker(picture.me)
    assert "of zone z); they move to other members first" in kept
    order(stage, stage.processes[0], AlterZone("z", filter=""))
    stage.wait(60)
    assert process.driver.stopped, picture.leave_blocker()


def test_keys_of_operators_and_those_of_zones(stage: ZoneStage) -> None:
    first, second = stage.processes[:2]
    put = ask(stage, first, PutKey("app/a", "1", 0))
    assert isinstance(put, MetastoreRevision)
    assert ask(stage, second, ReadKey("app/a")).keys[0].value == "1"
    again = ask(stage, second, PutKey("app/a", "2", 0))
    assert str(again) == f"key app/a is at revision {put.revision}; nothing was changed"
    for question in (PutKey("zones/ids", "junk"), RemoveKey("zones/topology")):
        with pytest.raises(Denied, match="can only be changed with holdfast zone"):
            question.check(second.picture, None)  # type: ignore[arg-type]
    assert ask(stage, second, ReadKey("zones/ids")).keys[0].value == '{"of":1,"v":1}'


def test_a_metastore_without_its_voters_goes_on_when_an_operator_says_so() -> None:
    stage = Stage(5, settings=settings(metastore={"voters": 3}))
    stage.wait(10)
    refused = ask(stage, stage.processes[0], ResetMetastore())
    assert (type(refused), "are here: it needs no reset" in str(refused)) == (Refused, True)
    voters = stage.processes[0].driver.member.agreed.metastore_replica().voters  # type: ignore[union-attr]
    gone = [process for process in stage.processes if process.driver.member.picture.info.name in voters][:2]
    for process in gone:
        process.crash()
    stage.wait(40)
    alive = [process for process in stage.processes if process not in gone]
    silent = order(stage, alive[0], PutKey("k", "v"), 15)
    assert (type(silent), "holdfast metastore reset" in str(silent)) == (NotReady, True), silent
    for process in alive:
        assert "the metastore has no leader" in process.driver.member.agreed.unsafe_reason()
        assert process.driver.member.agreed.metastore_replica().leader == ""  # type: ignore[union-attr]
    assert isinstance(ask(stage, alive[0], ResetMetastore()), MetastoreRevision)
    stage.wait(30)
    assert isinstance(ask(stage, alive[1], PutKey("k", "v")), MetastoreRevision)
    assert [process.driver.member.agreed.unsafe_reason() for process in alive] == [""] * 3


def test_without_a_metastore_it_is_said_what_to_set() -> None:
    stage = Stage(1)
    stage.wait(5)
    [process] = stage.processes
    assert "holdfast metastore start" in str(order(stage, process, CreateZone("z")))
    assert "holdfast metastore start" in str(ask(stage, process, PutKey("k", "v")))


def test_nothing_is_left_when_the_metastore_does_not_answer(stage: ZoneStage) -> None:
    for process in stage.processes[:3]:
        process.crash()
    last = stage.processes[3]
    answer = order(stage, last, CreateZone("y"), seconds=15)
    assert isinstance(answer, NotReady)
    assert "orders about zones" not in last.driver.member.picture.under_way()


def test_how_far_followers_are_behind_is_told_by_their_leaders_and_by_themselves(stage: ZoneStage) -> None:
    leader = stage.leader(0)
    late = next(process for process in stage.replicas(0) if process is not leader)
    [zone] = order(stage, leader, ListZones()).zones
    assert zone.lag == 0
    third = next(process for process in stage.processes if process not in (leader, late))
    stage.cut(leader, late)
    stage.cut(late, leader)
    keys = [key for key in (f"k{n}" for n in range(200)) if partition_of(wire_key(key), 0, 7) == 0][:5]
    for key in keys:
        answers = stage.request(leader, Op.SET, key, "v")
        stage.wait(0.1)
        assert [answer.status for answer in answers] == [Status.OK]
    [told] = [one for one in leader.picture.zones() if one.name == "z"]
    assert told.lag == len(keys)
    shown = order(stage, third, ShowZone("z"), 0.5).partitions[0]
    behind = {replica.node: replica.lag for replica in shown.replicas}
    assert behind[leader.driver.member.agreed.groups.me] == 0
    assert behind[late.driver.member.agreed.groups.me] == len(keys)
    stage.heal()
    stage.wait(10)
    assert order(stage, leader, ListZones()).zones[0].lag == 0
