"""A member that forwards reads, and does not take in the answers, gets no more of them than it may keep waiting."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from tests.lab.sim.stage import Stage, settings

from holdfast.config import LimitSettings
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.workload import MAP

ANSWER_BYTES = 65_536
VALUE = "v" * 10_000


@pytest.mark.rule("routing/R-8")
def test_answers_that_nobody_takes_in_are_bounded() -> None:
    base = settings()
    limits = msgspec.structs.replace(base.limits, answer_bytes=ANSWER_BYTES)
    assert isinstance(limits, LimitSettings)
    stage = Stage(3, settings=msgspec.structs.replace(base, limits=limits))
    owner, key = stage.owner_of("a"), wire_key("a")
    stage.put(owner, "a", VALUE)
    asker = next(process for process in stage.processes if process is not owner)
    stage.cut(owner, asker)
    answers: list[Outcome] = []
    request = Request(Op.GET, MAP, [partition_of(key, 0, 7)], key)
    for _ in range(100):
        asker.step(partial(asker.driver.execute, request, answers.append))
    stage.wait(1)
    link = owner.driver.links[asker.driver.member.me]
    assert ANSWER_BYTES < link.unacknowledged_bytes < ANSWER_BYTES + 2 * len(VALUE) + 100 * 200
    stage.heal()
    stage.rest()
    assert len(answers) == 100
    assert all(answer.status is Status.OK and answer.value == VALUE.encode() for answer in answers)
    assert link.unacknowledged_bytes == 0
    assert stage.cluster.leftovers() == []
