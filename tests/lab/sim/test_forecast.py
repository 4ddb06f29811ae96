"""What `holdfast plan --live` foretells is what the master does: simulated clusters, before and after."""

from __future__ import annotations

from functools import partial

import pytest
from tests.lab.sim.test_scenarios import Stage

from holdfast.actions.drain import Drain
from holdfast.core.events import ActionRequested
from holdfast.core.member import Member
from holdfast.core.model.migration import ReplicaList
from holdfast.core.placement.dryrun import Outlook
from holdfast.observe.status import counted, status_of
from holdfast.planning.live_cluster import LiveCluster
from holdfast.planning.walk import outlooks
from holdfast_lab.sim.cluster import simulated_settings

PARTITIONS = 31


def master(stage: Stage) -> Member:
    return next(member for member in stage.cluster.members() if member.membership.is_master)


def seen(stage: Stage) -> LiveCluster:
    """What the command would be told now."""
    member = master(stage)
    return LiveCluster(status_of(member, counted(member)), [row.replicas for row in member.table.rows])


def planned(cluster: LiveCluster, scenario: str) -> list[Outlook]:
    """The fate of each partition in a scenario of one step."""
    return [
        outlook
        for _, _, found in outlooks(cluster.question([scenario]), cluster.strategy)
        for outlook in found
    ]


class Foretold:
    """The rows that are expected, and how many migrations of the master lead there."""

    def __init__(self, stage: Stage, scenario: str) -> None:
        outlooks = planned(seen(stage), scenario)
        self.stage = stage
        self.rows = [outlook.plan.target for outlook in outlooks]
        self.migrations = sum(len(outlook.plan.migrations) for outlook in outlooks)
        self.completed = master(stage).migrations.completed
        self.leader = master(stage)

    def came_true(self, joined: str = "") -> bool:
        """Whether it is so now; `joined` is the UUID of the member that has joined."""
        self.stage.wait(10)
        self.stage.rest(120)
        rows: list[ReplicaList] = [
            tuple("join-1" if owner == joined else owner for owner in row) for row in seen(self.stage).rows
        ]
        if master(self.stage) is self.leader:
            assert self.leader.migrations.completed - self.completed == self.migrations
        assert self.migrations
        return rows == self.rows


@pytest.mark.parametrize(("hosts", "backups", "mixed"), [(3, 1, False), (4, 1, True), (5, 2, False)])
def test_drain_join_and_crash(hosts: int, backups: int, mixed: bool) -> None:
    stage = Stage(hosts, settings=simulated_settings(backups, PARTITIONS, mixed=mixed))
    leaver = stage.processes[-1]
    foretold = Foretold(stage, f"drain:{leaver.driver.member.me}")
    leaver.step(partial(leaver.driver.handle, ActionRequested(Drain())))
    assert foretold.came_true()

    foretold = Foretold(stage, "join:1")
    newcomer = stage.cluster.start(hosts - 1)
    assert foretold.came_true(newcomer.driver.member.me)

    victim = stage.processes[1]
    foretold = Foretold(stage, f"crash:{victim.driver.member.me}")
    victim.crash()
    assert foretold.came_true()


def test_the_crash_of_the_master() -> None:
    stage = Stage(4, settings=simulated_settings(1, PARTITIONS))
    foretold = Foretold(stage, f"crash:{stage.processes[0].driver.member.me}")
    stage.processes[0].crash()
    assert foretold.came_true()


def test_partitions_that_wait_for_their_copies() -> None:
    """Nothing is foretold for them, and nothing happens to them."""
    stage = Stage(5, settings=simulated_settings(1, PARTITIONS, mixed=True))
    dead = [process.driver.member.me for process in stage.processes[1:3]]
    outlooks = planned(seen(stage), "+".join(f"crash:{uuid}" for uuid in dead))
    lost = [outlook.partition for outlook in outlooks if outlook.lost]
    assert lost
    assert any(any(outlook.left) for outlook in outlooks if outlook.lost), (
        "a colder replica alone will not do"
    )
    for process in stage.processes[1:3]:
        process.crash()
    stage.wait(60)
    now = seen(stage)
    assert sorted(master(stage).migrations.lost) == lost
    for outlook, row in zip(outlooks, now.rows, strict=True):
        assert row == (outlook.before if outlook.lost else outlook.plan.target)
    again = planned(now, "now")
    assert [outlook.partition for outlook in again if outlook.lost] == lost
    assert not any(outlook.plan.steps for outlook in again)
