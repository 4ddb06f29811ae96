"""Directed stories of members that leave while something else goes wrong."""

from __future__ import annotations

from functools import partial

from tests.lab.sim.test_scenarios import Stage

from holdfast.actions.drain import Drain
from holdfast.core.events import ActionRequested
from holdfast.core.model.ids import SECOND


def test_the_last_ones_do_not_take_everything_with_them_while_removed_members_are_heard() -> None:
    """Two of four are to leave when they are cut off from the others, whom they remove. The cut ends just before the
    time is over for which removed members are waited for; these have yet to learn that they were removed, and to ask.
    """
    stage = Stage(4)
    for number in range(20):
        stage.put(stage.processes[0], f"k{number}", f"v{number}")
    leaving, staying = stage.processes[:2], stage.processes[2:]
    for one in leaving:
        for other in staying:
            stage.cut(one, other)
            stage.cut(other, one)
    for process in leaving:
        process.step(partial(process.driver.handle, ActionRequested(Drain())))
    master = leaving[0].driver.member.membership
    stage.world.run_until(stage.world.now_ns + 20 * SECOND, stop=lambda: len(master.members()) == 2)
    assert len(master.members()) == 2
    stage.wait(8.3)
    stage.heal()
    stage.wait(60)
    assert [process.dead for process in stage.processes] == [True, True, False, False]
    assert stage.cluster.settled()
    assert [stage.get(staying[0], f"k{n}") for n in range(20)] == [f"v{n}" for n in range(20)]
