"""The phase of a run in which groups of a zone lose their majority: whom it strikes, and what it finds."""

from __future__ import annotations

import random

import pytest
from tests.lab.sim.zone_stage import ZoneStage

from holdfast.core.model.ids import METASTORE_GROUP, SECOND
from holdfast.core.zones.descriptors import ZoneSettings
from holdfast_lab.sim.faults import Faults
from holdfast_lab.sim.phases import Phases
from holdfast_lab.sim.zone_loss import ZoneLoss


def staged(replicas: int = 1) -> ZoneStage:
    return ZoneStage(5, zone=ZoneSettings("z", partitions=7, replicas=replicas, scale_down_s=0))


def phases(stage: ZoneStage) -> Phases:
    return Phases(stage.world, stage.cluster, Faults(1, stage.world, stage.cluster, SECOND))


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_majority_of_some_groups_dies_and_nothing_else_is_lost(replicas: int) -> None:
    stage = staged(replicas)
    loss = ZoneLoss(stage.world, stage.cluster, random.Random(3))
    assert loss.served()
    if not loss.strike():
        assert replicas == 3, "two of five members can always take the only replica of some partition"
        return
    assert loss.lost
    assert [partition for partition, _ in stage.cluster.zone_lost] == loss.lost
    stage.wait(15)
    assert loss.noticed()
    assert loss.led() == set(range(7)) - set(loss.lost)
    stage.until(lambda: any(p.picture.consensus.groups.term(METASTORE_GROUP) for p in stage.living()), 20)


def test_the_zone_is_reset_and_then_all_partitions_are_served() -> None:
    stage = staged()
    phases(stage).lose_zone()
    assert stage.world.failures == []
    assert stage.world.marks["zone: reset"] == 1
    assert ZoneLoss(stage.world, stage.cluster, random.Random(3)).served()


def test_a_zone_that_stays_without_leaders_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ZoneLoss, "reset", lambda _: None)
    stage = staged()
    phases(stage).lose_zone()
    [failure] = stage.world.failures
    assert "no leader after its reset" in failure


def test_a_leader_without_a_majority_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ZoneLoss, "led", lambda _: set(range(7)))
    stage = staged()
    phases(stage).lose_zone()
    [failure] = stage.world.failures
    assert "have a leader though they have no majority" in failure
