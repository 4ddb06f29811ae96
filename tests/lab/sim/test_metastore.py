"""The metastore's group on simulated members: it begins, follows the members, and comes back."""

from __future__ import annotations

from functools import partial

import pytest
from tests.lab.sim.stage import Stage, settings

from holdfast.actions.drain import Drain
from holdfast.core.events import ActionRequested, StepEnded
from holdfast.core.model.ids import METASTORE_GROUP, SECOND
from holdfast.core.multiraft.group_host import node_of
from holdfast.core.raft.configuration import Configuration
from holdfast_lab.sim.world import Process


def configuration(process: Process) -> Configuration:
    found = process.driver.member.agreed.voters.configuration
    assert found is not None, "it knows nothing of the metastore"
    return found


def node(process: Process) -> str:
    return node_of(process.driver.member.membership.info)


def _members(stage: Stage) -> int:
    """How many members the newest view of those who live has."""
    views = [process.picture.view for process in stage.processes if not process.dead]
    return len(max((view for view in views if view is not None), key=lambda view: view.number).members)


def leader(stage: Stage) -> Process:
    found = [
        process
        for process in stage.processes
        if not process.dead and process.driver.member.agreed.groups.term(METASTORE_GROUP) is not None
    ]
    assert len(found) == 1
    return found[0]


@pytest.fixture
def stage() -> Stage:
    made = Stage(4, settings=settings(metastore={"voters": 3}), spare=2)
    made.wait(10)
    return made


@pytest.mark.rule("metastore/V-1", "metastore/V-2")
def test_it_begins_with_the_first_member_and_grows(stage: Stage) -> None:
    known = {str(configuration(process)) for process in stage.processes}
    assert len(known) == 1
    now = configuration(stage.processes[0])
    assert not now.joint
    assert now.voters == {node(process) for process in stage.processes[:3]}
    assert now.learners == {node(stage.processes[3])}


@pytest.mark.rule("metastore/V-3")
def test_a_dead_voter_is_replaced(stage: Stage) -> None:
    first = leader(stage)
    first.crash()
    stage.world.run_until(stage.world.now_ns + 30 * SECOND, stop=lambda: _members(stage) == 3)
    stage.wait(3)
    alive = [process for process in stage.processes if not process.dead]
    lacking = "the metastore lacks 1 of its voters: other members replace them first"
    assert [process.picture.unsafe_reason() for process in alive] == [lacking] * 3, (
        "the next crash may cost its majority"
    )
    stage.wait(27)
    assert [process.picture.unsafe_reason() for process in alive] == [""] * 3
    assert configuration(alive[0]).voters == {node(process) for process in alive}
    assert leader(stage) in alive


@pytest.mark.rule("metastore/V-4")
def test_it_is_moved_away_before_a_member_leaves(stage: Stage) -> None:
    first = leader(stage)
    left = node(first)
    first.step(partial(first.driver.handle, ActionRequested(Drain())))
    stage.wait(30)
    assert first.driver.stopped
    alive = [process for process in stage.processes if not process.dead and not process.driver.stopped]
    now = configuration(alive[0])
    assert len(alive) == 3
    assert now.voters == {node(process) for process in alive}
    assert left not in now.members


@pytest.mark.rule("metastore/V-5")
def test_an_operator_may_go_on_without_the_voters_that_are_gone() -> None:
    stage = Stage(5, settings=settings(metastore={"voters": 3}))
    stage.wait(10)
    now = configuration(stage.processes[0])
    for process in [process for process in stage.processes if node(process) in now.voters][:2]:
        assert process.driver.member.agreed.voters.reset().startswith("most of the 3 voters")
        process.crash()
    stage.wait(40)
    alive = [process for process in stage.processes if not process.dead]
    assert not [p for p in alive if p.driver.member.agreed.groups.term(METASTORE_GROUP) is not None]
    # Two operators at once, who know nothing of each other.
    said: list[str] = []
    for process in alive:
        process.step(lambda process=process: said.append(process.driver.member.agreed.voters.reset()))
        process.driver.handle(StepEnded())
    assert said == ["", "", ""]
    stage.wait(30)
    assert leader(stage) in alive
    assert len({str(configuration(process)) for process in alive}) == 1
    assert configuration(alive[0]).members == {node(process) for process in alive}
