"""An operator says that a member has ended (membership/V-9): it goes at once if so, and ends if not."""

from __future__ import annotations

import pytest
from tests.lab.sim.stage import Stage

from holdfast.actions.evict import Evict
from holdfast.core.events import ActionRequested
from holdfast.core.model.ids import SECOND
from holdfast.core.model.operations import Op, Outcome, Status
from holdfast_lab.sim.world import Process


def suspect(through: Process, *ended: Process) -> None:
    members = [process.driver.member.me for process in ended]
    through.step(lambda: through.driver.handle(ActionRequested(Evict(list(members)))))


def members(process: Process) -> int:
    return len(process.driver.member.membership.members())


@pytest.mark.rule("membership/V-9")
@pytest.mark.parametrize("dead", [0, 1, 3])
def test_a_crashed_member_is_gone_at_once_whoever_it_was_and_whoever_is_told(dead: int) -> None:
    stage = Stage(4)
    stage.put(stage.processes[0], "k", "v")
    gone = stage.processes[dead]
    # Nobody refuses a connection for it: its host is off.
    stage.isolate(gone)
    gone.crash()
    stage.processes.remove(gone)
    heartbeat_s = stage.settings.cluster.heartbeat_ms / 1000
    stage.wait(4 * heartbeat_s)
    assert members(stage.processes[-1]) == 4, "it is not missed yet"
    suspect(stage.processes[-1], gone)
    stage.wait(heartbeat_s)
    assert [members(process) for process in stage.processes] == [3, 3, 3]
    stage.heal()
    stage.rest()
    assert stage.get(stage.processes[0], "k") == "v"


@pytest.mark.rule("membership/V-9")
@pytest.mark.parametrize("key", ["a", "b", "c", "d"])
def test_a_living_member_that_is_said_to_have_ended_serves_nothing_and_ends(key: str) -> None:
    """It stands still, and wakes when the others have gone on: it answers nobody, and leaves the world."""
    stage = Stage(3)
    stage.put(stage.processes[0], key, "before")
    stopped = stage.owner_of(key)
    others = [process for process in stage.processes if process is not stopped]
    heartbeat_s = stage.settings.cluster.heartbeat_ms / 1000
    stopped.awake_at_ns = stage.world.now_ns + round(9 * heartbeat_s * SECOND)
    stage.wait(4 * heartbeat_s)
    suspect(others[-1], stopped)
    stage.wait(2 * heartbeat_s)
    assert [members(process) for process in others] == [2, 2]
    stage.processes = others
    stage.put(others[0], key, "after")
    asked: list[list[Outcome]] = []
    stopped.whenever_awake(lambda: asked.append(stage.ask(stopped, Op.SET, key, "lost")))
    stage.wait(30)
    assert stopped.dead, "it has heard what was said of it"
    assert len(asked) == 1
    assert Status.OK not in [answer.status for answer in asked[0]]
    assert [members(process) for process in others] == [2, 2]
    stage.rest()
    assert stage.get(others[0], key) == "after"


@pytest.mark.rule("membership/V-9")
def test_a_member_that_is_heard_of_stays_whatever_an_operator_says() -> None:
    stage = Stage(3)
    alive = stage.processes[2]
    suspect(stage.processes[0], alive)
    stage.wait(20)
    assert [members(process) for process in stage.processes] == [3, 3, 3]


@pytest.mark.rule("membership/V-9")
def test_a_minority_goes_on_without_nobody_whatever_an_operator_says() -> None:
    """One of three is cut off: were its word enough, there would be two clusters."""
    stage = Stage(3)
    lonely, *others = stage.processes
    stage.isolate(lonely)
    stage.wait(4 * stage.settings.cluster.heartbeat_ms / 1000)
    suspect(lonely, *others)
    stage.wait(20)
    assert members(lonely) == 3
    assert [members(process) for process in others] == [2, 2]
    stage.heal()
    stage.rest()


@pytest.mark.rule("membership/V-9")
def test_a_new_process_at_the_place_of_one_that_has_ended_is_taken() -> None:
    stage = Stage(3)
    gone = stage.processes.pop()
    stage.isolate(gone)
    gone.crash()
    stage.wait(4 * stage.settings.cluster.heartbeat_ms / 1000)
    suspect(stage.processes[0], gone)
    stage.wait(1)
    stage.heal()
    stage.processes.append(stage.cluster.start(2))
    stage.rest()
    assert [members(process) for process in stage.processes] == [3, 3, 3]
