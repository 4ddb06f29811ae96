"""Clocks of hosts that drift, jump and stand still, and calendars that are set: members stay safe, and judges know."""

from __future__ import annotations

import random

import pytest
from tests.lab.sim.stage import Stage

from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Request
from holdfast_lab.check.times import OUTLIVES
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.clocks import DRIFT_PPM, MILLION, Clock, Clocks
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.faults import Faults
from holdfast_lab.sim.judging import clocks_of
from holdfast_lab.sim.shape import drawn
from holdfast_lab.sim.workload import MAP

HOUR_MS = 3_600_000


def test_a_clock_never_goes_back_and_knows_when_it_will_show_what() -> None:
    draw = random.Random(7)
    clock = Clock("host0")
    clock.drift(MILLION + 12_345, 5 * SECOND)
    world_ns = before_ns = 0
    for _ in range(500):
        world_ns += draw.randint(0, 3 * SECOND)
        match draw.randrange(8):
            case 0:
                clock.skip(world_ns, draw.randint(0, SECOND))
            case 1:
                clock.stand(world_ns, draw.randint(0, SECOND))
        shown_ns = clock.now_ns(world_ns)
        assert shown_ns >= before_ns
        ahead_ns = shown_ns + draw.randint(1, SECOND)
        at_ns = clock.when(ahead_ns)
        assert clock.now_ns(at_ns - 1) < ahead_ns <= clock.now_ns(at_ns)
        before_ns = shown_ns


def test_a_true_clock_shows_the_time_of_the_world() -> None:
    clock = Clocks().of("host3")
    assert [clock.now_ns(n) for n in (0, 1, 10**12)] == [0, 1, 10**12]
    assert clock.when(12_345) == 12_345


def test_clocks_that_err_agree_in_nothing() -> None:
    clocks = Clocks()
    clocks.err(random.Random(1))
    shown = [clocks.of(f"host{n}").now_ns(SECOND) for n in range(5)]
    assert len(set(shown)) == 5
    assert MILLION - DRIFT_PPM <= clocks.slowest_ppm < MILLION < clocks.fastest_ppm <= MILLION + DRIFT_PPM


def test_judges_are_told_how_far_a_time_to_live_may_be_off() -> None:
    clocks = Clocks()
    assert clocks.earliest_ns(SECOND, files=True) == clocks.latest_ns(SECOND, files=True) == SECOND
    clocks.skip("a", 0, SECOND // 4)
    clocks.stand("b", 0, SECOND // 2)
    assert clocks.earliest_ns(SECOND, files=False) == SECOND * 3 // 4
    assert clocks.latest_ns(SECOND, files=False) == SECOND * 3 // 2
    clocks.set_calendar("a", HOUR_MS)
    clocks.set_calendar("b", -1000)
    assert clocks.earliest_ns(HOUR_MS * MILLISECOND, files=True) == 0, "a restart may end it an hour early"
    assert clocks.earliest_ns(SECOND, files=False) == SECOND * 3 // 4, "without files no calendar counts"
    assert clocks.latest_ns(SECOND, files=True) == SECOND * 5 // 2


def put_for(stage: Stage, key: str, ttl_ms: int) -> None:
    process = stage.owner_of(key)
    raw = wire_key(key)
    request = Request(Op.SET, MAP, [partition_of(raw, 0, 7)], raw, b"v", ttl_ms=ttl_ms)
    process.step(lambda: process.driver.execute(request, lambda outcome: None))
    stage.wait(0.2)


def test_a_clock_that_jumps_ahead_ends_times_to_live_early_and_one_that_stands_ends_them_late() -> None:
    stage = Stage(3)
    clocks, owner = stage.world.clocks, stage.owner_of("k")
    put_for(stage, "k", 10_000)
    clocks.skip(owner.host, stage.world.now_ns, 9 * SECOND)
    owner.clock_jumped()
    stage.wait(2)
    assert stage.get(owner, "k") is None, "by its clock 11 seconds have passed"
    put_for(stage, "k", 3_000)
    clocks.stand(owner.host, stage.world.now_ns, 2 * SECOND)
    owner.awake_at_ns = stage.world.now_ns + 2 * SECOND
    stage.wait(4)
    assert stage.get(owner, "k") == "v", "by its clock 2 seconds have passed"
    stage.wait(2)
    assert stage.get(owner, "k") is None


def test_what_is_due_after_a_jump_is_done_at_once() -> None:
    stage = Stage(3)
    process = stage.processes[1]
    beats = []
    before = process.driver.tick
    process.driver.tick = lambda: (beats.append(stage.world.now_ns), before())[1]  # type: ignore[method-assign]
    stage.world.clocks.skip(process.host, stage.world.now_ns, 10 * SECOND)
    now_ns = stage.world.now_ns
    process.clock_jumped()
    stage.wait(0.05)
    assert beats
    assert beats[0] == now_ns


def test_members_that_disagree_about_the_time_stay_one_cluster() -> None:
    """Their monotonic clocks are far apart, and jump by more than what makes a member suspect another."""
    stage = Stage(4)
    for number, process in enumerate(stage.processes):
        stage.world.clocks.skip(process.host, stage.world.now_ns, number * 20 * SECOND)
        process.clock_jumped()
        stage.wait(0.3)
    stage.wait(5)
    assert len(stage.view().members) == 4
    stage.rest()


def test_the_judge_of_times_allows_for_what_clocks_did_and_for_no_more() -> None:
    stage = Stage(2)
    assert clocks_of(stage.cluster).least(100 * SECOND) == 100 * SECOND
    stage.world.clocks.skip("host0", stage.world.now_ns, 50 * SECOND)
    assert clocks_of(stage.cluster).least(100 * SECOND) == 50 * SECOND
    assert clocks_of(stage.cluster).most(100 * SECOND) == 100 * SECOND + OUTLIVES
    stage.world.clocks.stand("host1", stage.world.now_ns, 20 * SECOND)
    assert clocks_of(stage.cluster).most(100 * SECOND) == 120 * SECOND + OUTLIVES
    stage.world.clocks.set_calendar("host1", 3_600_000)
    assert clocks_of(stage.cluster).least(100 * SECOND) == 50 * SECOND, "who keeps no files never asks it"


@pytest.mark.parametrize("kind", Faults.CLOCKS)
def test_each_fault_of_clocks_does_something(kind: str) -> None:
    stage = Stage(3, settings=simulated_settings(1, 7))
    faults = Faults(1, stage.world, stage.cluster, stage.world.now_ns + 60 * SECOND, clocks=True)
    assert kind in faults.kinds
    clocks = stage.world.clocks
    told = (clocks.stood_ns, clocks.skipped_ns, clocks.set_ahead_ns + clocks.set_back_ns)
    getattr(faults, "_" + kind.replace("-", "_"))()
    after = (clocks.stood_ns, clocks.skipped_ns, clocks.set_ahead_ns + clocks.set_back_ns)
    assert [a > b for a, b in zip(after, told, strict=True)] == [kind == each for each in Faults.CLOCKS]
    assert stage.world.marks[f"fault {kind}"] == 1
    stage.wait(10)
    stage.rest()


def test_seeds_with_such_clocks_are_drawn() -> None:
    assert any(drawn(seed).clocks for seed in range(20))
