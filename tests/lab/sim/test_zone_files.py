"""Zones on members that keep files: power cuts of one and of all, and journals that are cut behind checkpoints."""

from __future__ import annotations

import pytest
from tests.lab.sim.zone_stage import ZoneStage, kept_settings

from holdfast.core.model.operations import Op


@pytest.fixture
def stage() -> ZoneStage:
    made = ZoneStage(3, settings=kept_settings())
    for number in range(20):
        made.zput(made.processes[number % 3], f"k{number}", f"v{number}")
    return made


def judged(stage: ZoneStage) -> None:
    alive = stage.living()
    for number in range(20):
        assert stage.zget(alive[number % len(alive)], f"k{number}") == f"v{number}"
    stage.zput(alive[0], "after", "x")
    stage.wait(2)
    stage.same()


@pytest.mark.rule("zones/Z-3")
def test_all_lose_power_at_once_and_have_all_that_was_answered(stage: ZoneStage) -> None:
    stage.cluster.power_cut_everywhere()
    stage.processes = [stage.cluster.start(index) for index in range(3)]
    stage.rest()
    stage.wait(15)
    judged(stage)


def test_one_comes_back_as_the_voter_that_it_was(stage: ZoneStage) -> None:
    first = stage.leader(0)
    index = stage.processes.index(first)
    voters = stage.voters(0)
    first.crash()
    stage.wait(10)
    stage.zput(stage.living()[0], "meanwhile", "y")
    stage.processes[index] = stage.cluster.start(index)
    stage.rest()
    stage.wait(15)
    assert stage.processes[index] in stage.replicas(0)
    assert stage.voters(0) == voters
    assert stage.zget(stage.processes[index], "meanwhile") == "y"
    judged(stage)


def test_a_journal_that_is_cut_behind_checkpoints_has_all(stage: ZoneStage) -> None:
    """So much is written that every group's first entries are in segments that are gone."""
    for number in range(600):
        stage.request(stage.processes[number % 3], Op.SET, f"k{number % 20}", f"w{number}" * 20)
        if number % 50 == 49:
            stage.wait(1)
    for number in range(20):
        stage.zput(stage.processes[0], f"k{number}", f"v{number}")
    stage.wait(5)
    disk = stage.processes[0].disk
    assert disk is not None
    names = disk.names()
    assert any(name.startswith("p1") for name in names), "groups have checkpoints"
    stage.cluster.power_cut_everywhere()
    stage.processes = [stage.cluster.start(index) for index in range(3)]
    stage.rest()
    stage.wait(15)
    judged(stage)
