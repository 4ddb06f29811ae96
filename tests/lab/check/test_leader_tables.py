"""The tables of leaders that clients get, as simulated runs judge them."""

from __future__ import annotations

import pytest
from tests.lab.sim.zone_stage import ZONED, ZoneStage

from holdfast.core.model.partition_table import Assignment
from holdfast_lab.check.leader_tables import LeaderTables
from holdfast_lab.sim.world import Process


@pytest.fixture(scope="module")
def stage() -> ZoneStage:
    return ZoneStage(3)


def name(process: Process, partition: int, term: int, leader: Process) -> None:
    """Let a member name this leader."""
    entries = process.picture.copies.zone_entries(ZONED)
    assert entries is not None
    entries.leaders[partition] = Assignment(term, (leader.driver.member.me,))  # type: ignore[index]


def test_a_wrong_table_is_found(stage: ZoneStage) -> None:
    tables, pictures = LeaderTables(ZONED), stage.cluster.pictures()
    assert tables.look(pictures) == tables.judge(pictures) == []
    leader = stage.leader(2)
    one, other = (process for process in stage.processes if process is not leader)
    true = leader.picture.copies.leaders(ZONED)[2]  # type: ignore[index]
    name(one, 2, true.version, other)
    [problem] = tables.look(pictures)
    assert "was named in this term" in problem
    [problem] = tables.judge(pictures)
    assert f"which {leader.driver.member.me} leads" in problem
    name(one, 2, true.version - 1, other)
    [problem] = tables.look(pictures)
    assert f"after {other.driver.member.me} in term {true.version}" in problem
    name(one, 2, true.version, leader)
    assert tables.judge(pictures) == []


def test_a_member_that_missed_an_announcement_is_found() -> None:
    stage = ZoneStage(3)
    tables = LeaderTables(ZONED)
    old = stage.leader(0)
    deaf = next(process for process in stage.processes if process is not old)
    zones = deaf.driver.member.agreed.zones
    zones.on_leaders = lambda sender, message: None  # type: ignore[method-assign]
    stage.isolate(old)
    old.crash()
    stage.wait(12)
    stage.heal()
    pictures = stage.cluster.pictures()
    assert tables.look(pictures) == []
    assert [problem for problem in tables.judge(pictures) if problem.startswith(deaf.picture.info.name)]
