"""Maps in zones on simulated members: created, written, read, moved; leaders die, members come and leave."""

from __future__ import annotations

from functools import partial

import pytest
from tests.sim.zone_stage import ZONED, ZoneStage

from holdfast.core.groups.local_groups import node_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.sim.calls import wire_key


@pytest.fixture
def stage() -> ZoneStage:
    return ZoneStage(4, spare=2)


def test_a_zone_is_created_and_its_maps_are_written_and_read_anywhere(stage: ZoneStage) -> None:
    for part in range(7):
        assert len(stage.replicas(part)) == 3
        stage.leader(part)
    for number, process in enumerate(stage.processes):
        stage.zput(process, f"k{number}", f"v{number}")
    for process in stage.processes:
        assert [stage.zget(process, f"k{number}") for number in range(4)] == [f"v{n}" for n in range(4)]
    stage.same()


def test_a_leader_that_dies_is_followed_by_another_with_all_that_was_answered(stage: ZoneStage) -> None:
    for number in range(20):
        stage.zput(stage.processes[0], f"k{number}", f"v{number}")
    first = stage.leader(0)
    first.crash()
    stage.wait(15)
    alive = stage.living()
    for number in range(20):
        assert stage.zget(alive[number % 3], f"k{number}") == f"v{number}"
    stage.zput(alive[0], "after", "x")
    stage.same()


@pytest.mark.rule("agreed/Z-2")
def test_a_member_that_leaves_is_replaced_first(stage: ZoneStage) -> None:
    for number in range(20):
        stage.zput(stage.processes[0], f"k{number}", f"v{number}")
    first = stage.leader(0)
    first.step(first.driver.leave)
    stage.wait(60)
    assert first.driver.stopped
    alive = stage.living()
    assert all(len(stage.replicas(part)) == 3 for part in range(7))
    for number in range(20):
        assert stage.zget(alive[number % 3], f"k{number}") == f"v{number}"
    stage.same()


@pytest.mark.rule("agreed/Z-1")
def test_a_member_that_joins_gets_its_share(stage: ZoneStage) -> None:
    for number in range(20):
        stage.zput(stage.processes[0], f"k{number}", f"v{number}")
    new = stage.cluster.start(4)
    stage.processes.append(new)
    stage.rest()
    stage.wait(20)
    held = sum(new in stage.replicas(part) for part in range(7))
    assert held
    assert all(len(stage.replicas(part)) == 3 for part in range(7))
    topology = {node_of(process.driver.member.membership.info) for process in stage.living()}
    assert len(topology) == 5
    for number in range(20):
        assert stage.zget(new, f"k{number}") == f"v{number}"
    stage.same()


@pytest.mark.rule("agreed/Z-4")
def test_groups_are_led_by_the_owners_of_the_partitions_and_rest_there(stage: ZoneStage) -> None:
    stage.wait(10)
    for part in range(7):
        owner = stage.processes[0].driver.member.table.rows[part].owner
        here = {process.driver.member.me for process in stage.replicas(part)}
        assert stage.leader(part).driver.member.me == owner or owner not in here
    groups = [process.driver.member.agreed.groups for process in stage.processes]
    assert all(hosted.asleep for each in groups for hosted in each.hosted.values())
    stage.wait(20)
    assert all(hosted.asleep for each in groups for hosted in each.hosted.values())


def test_what_a_zone_does_not_do_is_refused_by_name(stage: ZoneStage) -> None:
    process = stage.processes[0]
    answers: list[Outcome] = []
    asked = Request(Op.SET, ZONED, [0], wire_key("k"), b"v", max_idle_ms=1000)
    process.step(partial(process.driver.execute, asked, answers.append))
    stage.wait(1)
    assert [answer.status for answer in answers] == [Status.FAILED]
    assert "idle" in answers[0].detail


def test_operations_on_all_of_a_map_see_all_partitions(stage: ZoneStage) -> None:
    for number in range(30):
        stage.zput(stage.processes[0], f"k{number}", f"v{number}")
    answers: list[Outcome] = []
    whole = list(range(7))
    process = stage.processes[3]
    for op in (Op.SIZE, Op.CLEAR, Op.SIZE):
        process.step(partial(process.driver.execute, Request(op, ZONED, whole), answers.append))
        stage.wait(3)
    assert [answer.value for answer in answers] == [30, 30, 0]
    stage.same()


def test_an_entry_view_is_answered_like_any_read(stage: ZoneStage) -> None:
    stage.zput(stage.processes[0], "k", "value")
    for process in stage.processes:
        answers = stage.request(process, Op.ENTRY_VIEW, "k")
        stage.wait(2)
        assert isinstance(answers[0].value, list)
        assert answers[0].value[0] == b"value"
