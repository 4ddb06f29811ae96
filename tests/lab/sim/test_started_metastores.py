"""Runs whose metastore is started in the middle: their operator, their fault budget, and the judge of its voters."""

from __future__ import annotations

import pytest
from tests.lab.sim.stage import Stage
from tests.lab.sim.test_metastore_start import founding, give, led, without_metastore

from holdfast.core.metastore.metastore_voters import MetastoreVoters
from holdfast_lab.check import zone_invariants
from holdfast_lab.sim.shape import drawn
from holdfast_lab.sim.zone_runs import ZoneOperator


def test_some_runs_start_without_a_metastore_and_their_operator_starts_it() -> None:
    shapes = [drawn(seed, zones=True) for seed in range(100, 140)]
    started = [shape for shape in shapes if shape.start_voters]
    assert 0 < len(started) < len(shapes)
    assert all(shape.settings.metastore.voters == 0 and not shape.builds for shape in started)
    shape = next(shape for shape in started if shape.start_voters == 3)
    assert shape.zone is not None
    stage = Stage(3, settings=without_metastore())
    operator = ZoneOperator(stage.world, stage.cluster, shape.zone, 0, 3)
    operator.start()
    assert operator.waiting
    stage.until(lambda: operator.created, 30)
    assert founding(stage.processes[0]) is not None


def test_a_majority_of_founders_must_live_until_the_group_has_committed() -> None:
    """None of them may have begun yet, so that no replica shows which nodes will vote."""
    stage = Stage(5, settings=without_metastore())
    survive = stage.cluster._founders_survive
    assert survive([])
    give(stage.processes[4])
    stage.until(lambda: any(founding(process) is not None for process in stage.processes), 5)
    first = next(found for process in stage.processes if (found := founding(process)) is not None)
    founders = [
        process for process in stage.processes if process.picture.consensus.groups.me in first.first_voters
    ]
    assert len(founders) == 3
    assert survive(founders[1:])
    assert not survive([process for process in stage.processes if process not in founders[:2]])
    stage.until(lambda: all(led(process) for process in stage.processes), 10)
    assert survive([]), "replicas show now who votes"


def test_a_metastore_with_another_number_of_voters_than_ordered_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(4, settings=without_metastore())
    give(stage.processes[1])
    stage.wait(8)
    assert zone_invariants.judge(stage.cluster.pictures(), None) == []
    monkeypatch.setattr(MetastoreVoters, "look", lambda _: None)
    give(stage.processes[1], voters=1)
    stage.wait(8)
    assert zone_invariants.judge(stage.cluster.pictures(), None) == [
        "the metastore has 3 voters, 1 are ordered and 1 possible"
    ]
