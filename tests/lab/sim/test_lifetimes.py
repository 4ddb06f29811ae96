"""Entries keep their end over restarts, and a time to live that begins again is noticed from entry views."""

from __future__ import annotations

import pytest
from tests.lab.sim.stage import Stage

from holdfast.core.model.ids import SECOND
from holdfast_lab.check.linearizability import Call
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.judging import clocks_of, judge_times
from holdfast_lab.sim.lies import telling
from holdfast_lab.sim.lifetimes import Lifetimes
from holdfast_lab.sim.workload import MAP

S = SECOND


def judged_over_restarts(restarts: int) -> list[str]:
    """What the judge says of entries that are written and read while all members lose power so many times."""
    stage = Stage(3, settings=simulated_settings(1, 7, journal="sync"))
    calls: list[Call] = []
    lifetimes = Lifetimes(stage.world, stage.cluster, "t", lambda key: MAP, calls.append)
    lifetimes.start()
    stage.wait(8)
    for _ in range(restarts):
        stage.wait(8)
        stage.cluster.power_cut_everywhere()
        stage.processes = [stage.cluster.start(index) for index in range(len(stage.processes))]
        stage.rest()
    lifetimes.running = False
    assert lifetimes.look() == []
    assert any(one.call.start > 16 * S for one in lifetimes.seen), "entries are read after the restarts"
    clocks = clocks_of(stage.cluster)
    return judge_times(calls, lifetimes.seen, clocks, clocks)


def test_restarts_change_no_end() -> None:
    assert judged_over_restarts(2) == []


@pytest.mark.parametrize("lie", ["ttl-restarts", "ttl-quarter"])
def test_another_end_is_noticed_from_views(lie: str) -> None:
    with telling({lie}):
        problems = judged_over_restarts(2)
    assert any("should end by" in one or "should not end before" in one for one in problems), problems
