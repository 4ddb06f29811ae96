"""A time to live goes on while members are away, over any number of restarts, and whatever fills the copies anew."""

from __future__ import annotations

import pytest
from tests.lab.sim.stage import Stage

from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.store.expiry import Expiry
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cluster import Journal, simulated_settings
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process

SHORT_S, LONG_S = 40, 4000
KEYS = [f"k{number}" for number in range(12)]
SKEW_MS = 3000
"""What the way of a record, and of a chunk, may add."""


def put(stage: Stage, key: str, ttl_s: int) -> None:
    answers: list[Outcome] = []
    raw = wire_key(key)
    partition = partition_of(raw, 0, stage.settings.partitions.count)
    process = stage.processes[0]
    request = Request(Op.SET, MAP, [partition], raw, b"v", ttl_ms=ttl_s * 1000)
    process.step(lambda: process.driver.execute(request, answers.append))
    stage.wait(1)
    assert [answer.status for answer in answers] == [Status.OK]


def expiries(process: Process, key: str) -> list[Expiry]:
    """What this member's copies know of the entry's end."""
    raw = wire_key(key)
    copies = process.driver.member.copies.held.values()
    held = [copy.maps[MAP] for copy in copies if MAP in copy.maps]
    return [one.state.expiries[raw] for one in held if raw in one.state.entries]


def blackout(stage: Stage, away_s: float) -> None:
    stage.cluster.power_cut_everywhere()
    stage.wait(away_s)
    stage.processes = [stage.cluster.start(index) for index in range(len(stage.processes))]
    stage.rest()


@pytest.mark.covering(1)
@pytest.mark.parametrize("journal", ["sync", "lazy"])
@pytest.mark.parametrize("away_s", [0.5, 9])
def test_restarts_lengthen_no_time_to_live(journal: Journal, away_s: float) -> None:
    stage = Stage(3, settings=simulated_settings(1, 7, journal=journal))
    put(stage, "short", SHORT_S)
    put(stage, "long", LONG_S)
    stage.wait(2)
    ends_ns = stage.world.now_ns + SHORT_S * SECOND
    while stage.world.now_ns < ends_ns + SKEW_MS * MILLISECOND:
        blackout(stage, away_s)
        if stage.world.now_ns < ends_ns - 5 * SECOND:
            assert stage.get(stage.processes[0], "short") == "v"
    assert stage.get(stage.processes[0], "short") is None
    assert stage.get(stage.processes[0], "long") == "v"
    for process in stage.processes:
        for expiry in expiries(process, "long"):
            left_ms = (expiry.deadline_ns() - ends_ns) // MILLISECOND
            assert abs(left_ms - (LONG_S - SHORT_S) * 1000) < SKEW_MS + 3000


@pytest.mark.rule("primary_backup/O-4")
def test_an_entry_in_use_stays_when_its_primary_dies() -> None:
    """That primary alone knows that the entry was used."""
    stage = Stage(3)
    process = stage.processes[0]
    raw = wire_key("k1")
    partition = partition_of(raw, 0, 7)
    request = Request(Op.SET, MAP, [partition], raw, b"v", max_idle_ms=8000)
    process.step(lambda: process.driver.execute(request, lambda outcome: None))
    stage.wait(1)
    for _ in range(12):
        assert stage.get(stage.owner_of("k1"), "k1") == "v"
    before = stage.owner_of("k1")
    before.crash()
    stage.processes.remove(before)
    for _ in range(12):
        stage.wait(1)
        if stage.lives("k1") and stage.owner_of("k1").driver.member.lane.serving[partition] is not None:
            break
    assert stage.get(stage.owner_of("k1"), "k1") == "v"
    stage.wait(9)
    assert stage.get(stage.owner_of("k1"), "k1") is None, "it ends at last"


def test_a_copy_that_gets_what_it_has_missed_counts_from_when_that_was() -> None:
    settings = simulated_settings(1, 7, journal="sync")
    stage = Stage(3, settings=settings)
    members = stage.processes[:2]
    for key in KEYS:
        stage.put(stage.processes[0], key, "before")
    stage.processes[2].crash()
    stage.wait(8)
    for key in KEYS:
        put(stage, key, SHORT_S)
    written_ns = stage.world.now_ns
    stage.wait(15)
    stage.processes[2] = stage.cluster.start(2)
    stage.rest()
    assert sum(process.driver.member.source.flow.bytes_history for process in members) > 0
    found = [expiry for key in KEYS for expiry in expiries(stage.processes[2], key)]
    assert found
    for expiry in found:
        assert expiry.deadline_ns() < written_ns + (SHORT_S * 1000 + SKEW_MS) * MILLISECOND
