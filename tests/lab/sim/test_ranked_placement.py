"""Partitions placed by rendezvous: whatever has happened, at rest every row is that of the function."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from tests.lab.sim.stage import Stage, change
from tests.lab.sim.test_forecast import Foretold
from tests.sampled_cases import sampled

from holdfast.actions.drain import Drain
from holdfast.config import Settings
from holdfast.core.events import ActionRequested
from holdfast.core.model.migration import ReplicaList
from holdfast.core.model.views import ClusterState
from holdfast.core.placement.affinity import first_ranked
from holdfast.core.placement.layout import Candidate
from holdfast_lab.check import ranked_placement
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.run import simulate
from holdfast_lab.sim.shape import KEPT_SEEDS, drawn
from holdfast_lab.sim.world import Process

PARTITIONS = 31
RANKED = [356, 100, 129]
"""Short runs that are drawn with this placement; the last one moves a lot."""


def ranked(backups: int, *, files: bool = False, placement: str = "rendezvous") -> Settings:
    settings = simulated_settings(backups, PARTITIONS, journal="sync" if files else "off")
    partitions = msgspec.structs.replace(settings.partitions, placement=placement)
    return msgspec.structs.replace(settings, partitions=partitions)


def wanted(living: list[Process], replicas: int) -> list[ReplicaList]:
    """What the function says of these members, who are called as their hosts are."""
    here = [Candidate(process.driver.member.me, "", process.address.host) for process in living]
    return [first_ranked(partition, here, replicas) for partition in range(PARTITIONS)]


def rows(stage: Stage) -> list[ReplicaList]:
    table = stage.cluster.living()[0].driver.member.table
    return [row.replicas for row in table.rows]


def well_placed(stage: Stage, replicas: int) -> bool:
    """Whether all is at rest, and every row is what it should be."""
    stage.rest(120)
    assert ranked_placement.judge(stage.cluster.pictures()) == []
    return rows(stage) == wanted(stage.cluster.living(), replicas)


@pytest.mark.rule("migration/M-8")
@pytest.mark.parametrize(("hosts", "backups"), [(3, 1), (5, 2)])
def test_joins_drains_and_crashes(hosts: int, backups: int) -> None:
    stage = Stage(hosts, settings=ranked(backups), spare=1)
    assert well_placed(stage, backups + 1)
    stage.put(stage.processes[0], "k", "v")
    stage.cluster.start(hosts)
    stage.wait(5)
    assert well_placed(stage, backups + 1)
    leaver = stage.processes[1]
    leaver.step(partial(leaver.driver.handle, ActionRequested(Drain())))
    stage.wait(5)
    assert well_placed(stage, backups + 1)
    before = rows(stage)
    stage.processes[0].crash()  # The master.
    stage.wait(5)
    assert well_placed(stage, backups + 1)
    reborn = stage.cluster.start(0)
    stage.wait(5)
    assert well_placed(stage, backups + 1)
    old, new = stage.processes[0].driver.member.me, reborn.driver.member.me
    assert rows(stage) == [tuple(new if one == old else one for one in row) for row in before], (
        "who comes back under its name gets what it had, though it is another process"
    )
    assert stage.get(reborn, "k") == "v"


@pytest.mark.parametrize("state", [ClusterState.FROZEN, ClusterState.PASSIVE])
def test_a_frozen_table_keeps_its_slots_and_follows_the_function_afterwards(state: ClusterState) -> None:
    stage = Stage(4, settings=ranked(1))
    before = rows(stage)
    change(stage, state)
    stage.processes[3].crash()
    stage.wait(20)
    assert rows(stage) == before
    stage.cluster.start(3)
    stage.wait(20)
    gone = stage.processes[3].driver.member.me
    for row, old in zip(rows(stage), before, strict=True):
        assert [one for one in row if one is not None] == [one for one in old if one != gone or one in row]
    change(stage, ClusterState.ACTIVE)
    assert well_placed(stage, 2)


def test_what_could_not_move_for_a_while_moves_later() -> None:
    """A primary is promoted, its predecessor comes back, and nothing may move: later everything is as it was."""
    stage = Stage(4, settings=ranked(1))
    change(stage, ClusterState.NO_MIGRATION)
    stage.processes[2].crash()
    stage.wait(10)
    stage.cluster.start(2)
    stage.wait(10)
    assert rows(stage) != wanted(stage.cluster.living(), 2)
    assert ranked_placement.judge(stage.cluster.pictures()) == [], "nothing is wrong while nothing may move"
    change(stage, ClusterState.ACTIVE)
    assert well_placed(stage, 2)


def test_everybody_again_from_their_files() -> None:
    stage = Stage(4, settings=ranked(1, files=True))
    stage.put(stage.processes[0], "k", "v")
    before = rows(stage)
    stage.cluster.power_cut_everywhere()
    reborn = [stage.cluster.start(index) for index in range(4)]
    stage.wait(10)
    assert well_placed(stage, 2)
    now = {
        old.driver.member.me: new.driver.member.me for old, new in zip(stage.processes, reborn, strict=True)
    }
    assert rows(stage) == [tuple(now[one] if one else None for one in row) for row in before]  # type: ignore[index]
    assert stage.get(reborn[0], "k") == "v"


def test_what_plan_foretells_of_such_a_cluster_comes_true() -> None:
    stage = Stage(4, settings=ranked(1), spare=1)
    foretold = Foretold(stage, f"join:{stage.cluster.addresses[4].host}")
    newcomer = stage.cluster.start(4)
    assert foretold.came_true(newcomer.driver.member.me)
    foretold = Foretold(stage, f"crash:{stage.processes[2].driver.member.me}")
    stage.processes[2].crash()
    assert foretold.came_true()
    foretold = Foretold(stage, f"drain:{newcomer.driver.member.me}")
    newcomer.step(partial(newcomer.driver.handle, ActionRequested(Drain())))
    assert foretold.came_true()


def test_the_judge_sees_what_is_elsewhere() -> None:
    stage = Stage(4, settings=ranked(1, placement="even"))
    found = ranked_placement.judge(stage.cluster.pictures())
    assert len(found) > PARTITIONS / 2
    assert "ranks" in found[0]


def test_the_judge_counts_replicas_in_each_others_place_and_does_not_mind() -> None:
    """Three in each other's place stay so; two are to exchange their slots."""
    stage = Stage(3, settings=ranked(2))
    assert ranked_placement.swapped(stage.cluster.pictures()) == 0
    first, second, third = stage.cluster.members()[0].table.rows[5].replicas

    def put(*replicas: str | None) -> None:
        for member in stage.cluster.members():
            row = member.table.rows[5]
            member.table.rows[5] = msgspec.structs.replace(row, replicas=replicas)

    put(second, third, first)
    assert ranked_placement.swapped(stage.cluster.pictures()) == 1
    assert ranked_placement.judge(stage.cluster.pictures()) == []
    put(second, first, third)
    assert ranked_placement.swapped(stage.cluster.pictures()) == 1
    assert len(ranked_placement.judge(stage.cluster.pictures())) == 1


@pytest.mark.parametrize("seed", sampled(RANKED, 3))
def test_runs_with_faults(seed: int) -> None:
    assert drawn(seed, "mixed").settings.partitions.placement == "rendezvous"
    verdict = simulate(seed, journal="mixed")
    assert verdict.ok, verdict.problems


def test_runs_that_tests_keep_are_left_alone() -> None:
    assert {drawn(seed).settings.partitions.placement for seed in range(KEPT_SEEDS)} == {"even"}
    shares = [drawn(seed).settings.partitions.placement for seed in range(KEPT_SEEDS, 5 * KEPT_SEEDS)]
    assert 0.1 < shares.count("rendezvous") / len(shares) < 0.3
