"""A counter is said to have lost changes only when the backups have confirmed that this is its primary."""

from __future__ import annotations

import pytest
from tests.core.routing.test_collection_waits import Stage

from holdfast.core.messages import Replicate, Replicated
from holdfast.core.model.collections import CollectionKind, CollectionStep, StepKind, encode_step
from holdfast.core.model.operations import Request

COUNTER = CollectionKind.PN_COUNTER.map_of("c")


def step(kind: StepKind, seen: int) -> Request:
    """`seen`: the version that the client has seen."""
    return Request(kind.op, COUNTER, [0], value=encode_step(CollectionStep(kind, 1, seen)))


def confirm(stage: Stage) -> None:
    for to, message in stage.sent():
        assert isinstance(message, Replicate)
        stage.lane.on_replicated(to, Replicated(message.batches, [0]))


@pytest.mark.rule("collections/P-2")
@pytest.mark.parametrize("kind", [StepKind.COUNT, StepKind.INCREASE])
def test_a_counter_that_is_behind_says_so_when_the_backups_have_confirmed_it(kind: StepKind) -> None:
    stage = Stage(backups=1)
    stage.ask(step(StepKind.INCREASE, -1))
    confirm(stage)
    assert len(stage.values) == 1
    stage.ask(step(StepKind.COUNT, 1))
    assert len(stage.values) == 2, "other reads are not confirmed"
    stage.ask(step(kind, 2))
    assert len(stage.values) == 2
    confirm(stage)
    assert len(stage.values) == 3
