"""Members come and go in the simulated world: what clients must not notice."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from tests.lab.sim.test_scenarios import Stage

from holdfast.actions.drain import Drain
from holdfast.core.events import ActionRequested
from holdfast.core.member import Member
from holdfast.core.migration.migration_master import PARTING_NS
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.observe.cluster_events import ClusterEvents
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.world import Process

STEP_NS = MILLISECOND


def moments(stage: Stage, member: Member, leaver: MemberId) -> tuple[int, int]:
    """When this member first knew that the leaver held nothing any more, and when it first knew it gone."""
    world = stage.world
    bare_ns = 0
    for _ in range(60_000):
        world.run_until(world.now_ns + STEP_NS)
        held = any(leaver in row.replicas for row in member.table.rows)
        bare_ns = 0 if held else bare_ns or world.now_ns
        if member.membership.member(leaver) is None:
            return bare_ns, world.now_ns
    raise AssertionError("it has not left")


def leaves(stage: Stage, process: Process) -> int:
    """Drain a member; answers for how long it stayed after it had handed over everything."""
    other = next(one for one in stage.processes if one is not process).driver.member
    process.step(partial(process.driver.handle, ActionRequested(Drain())))
    bare_ns, gone_ns = moments(stage, other, process.driver.member.me)
    return gone_ns - bare_ns


def test_who_leaves_stays_until_clients_have_turned_away() -> None:
    stage = Stage(4)
    assert leaves(stage, stage.processes[2]) >= PARTING_NS - STEP_NS
    stage.wait(5)
    assert not stage.processes[0].dead


def test_the_master_may_leave_likewise() -> None:
    stage = Stage(3)
    assert leaves(stage, stage.processes[0]) >= PARTING_NS - STEP_NS


def planned_in(stage: Stage) -> list[bool]:
    """Watch the master plan: for each part of the work, whether the plan was made then."""
    migrations = stage.processes[0].driver.member.migrations
    go_on = migrations.go_on_planning
    parts: list[bool] = []

    def watched() -> None:
        go_on()
        parts.append(migrations.planned)

    migrations.go_on_planning = watched  # type: ignore[method-assign]
    return parts


def test_the_master_plans_in_parts_and_serves_between_them() -> None:
    stage = Stage(3, settings=simulated_settings(1, 271))
    stage.processes.pop().crash()
    stage.rest()
    parts = planned_in(stage)
    stage.processes.append(stage.cluster.start(2))
    stage.rest()
    assert parts.count(False) > 5
    rows = stage.processes[0].driver.member.table.rows
    shares = Counter(row.owner for row in rows).values()
    assert len(shares) == 3
    assert max(shares) - min(shares) <= 1


def test_a_plan_in_the_making_is_dropped_when_another_one_is_wanted() -> None:
    stage = Stage(3, settings=simulated_settings(1, 271))
    stage.processes.pop().crash()
    stage.rest()
    migrations = stage.processes[0].driver.member.migrations
    go_on, dropped = migrations.go_on_planning, []

    def interrupted() -> None:
        go_on()
        if not migrations.planned and not dropped:
            dropped.append(True)
            migrations.departures_known()

    migrations.go_on_planning = interrupted  # type: ignore[method-assign]
    stage.processes.append(stage.cluster.start(2))
    stage.rest()
    assert dropped


@pytest.mark.parametrize(("crashes", "kind"), [(False, "left"), (True, "gone")])
def test_events_tell_a_member_that_left_between_two_looks_from_one_that_crashed(
    crashes: bool, kind: str
) -> None:
    stage = Stage(3)
    first, leaver = stage.processes[0].driver.member, stage.processes[2]
    cluster_events = ClusterEvents()
    cluster_events.look(0, first)
    if crashes:
        leaver.crash()
        stage.rest()
    else:
        leaves(stage, leaver)
    assert first.membership.member(leaver.driver.member.me) is None
    cluster_events.look(1, first)
    told, _ = cluster_events.since(0)
    assert kind in {one.kind for one in told}
    assert not {"left", "gone"} - {kind} & {one.kind for one in told}
