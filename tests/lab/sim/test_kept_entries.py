"""What a node has acknowledged of a Raft log is there after a restart; a log that lost it gets a verdict."""

from __future__ import annotations

import pytest
from tests.lab.sim.zone_stage import ZoneStage, kept_settings

from holdfast_lab.check.linearizability import Call, Outcome
from holdfast_lab.sim.kept_entries import KeptEntries
from holdfast_lab.sim.lies import telling

KEYS = 12


class Story:
    """Clients write to a Raft map, and one member starts again."""

    def __init__(self, more: int = 0) -> None:
        self.stage = ZoneStage(3, settings=kept_settings())
        self.calls: list[Call] = []
        self.kept = KeptEntries(self.calls)
        self.problems: list[str] = []
        for number in range(KEYS + more):
            call = Call("set", f"k{number}", self.stage.world.now_ns, argument=f"v{number}", client="c")
            self.stage.zput(self.stage.processes[number % 3], call.key, f"v{number}")
            call.end, call.outcome = self.stage.world.now_ns, Outcome.DONE
            self.calls.append(call)
        self.stage.cluster.when_up.append(
            lambda started: self.problems.extend(self.kept.started(started.picture))
        )
        members = [process.picture for process in self.stage.living()]
        self.kept.look(members, self.stage.world.now_ns)

    def restart(self) -> None:
        for index in range(3):
            self.stage.processes[index].crash()
            self.stage.processes[index] = self.stage.cluster.start(index)
        self.stage.wait(1)
        assert all(process.up for process in self.stage.processes), "they have read their files"


def test_a_restart_keeps_what_was_acknowledged() -> None:
    story = Story()
    story.restart()
    assert story.problems == []
    story.stage.rest()


@pytest.mark.parametrize("known", [True, False])
def test_an_entry_that_is_gone_is_named_with_key_value_and_time(known: bool) -> None:
    """Also where no client's call is known to have made it."""
    problems: list[str] = []
    for more in range(8):  # The lie drops the end of one log in three, by what was written.
        story = Story(more)
        if not known:
            story.calls.clear()
        with telling({"group-tail-lost"}):
            story.restart()
        if problems := story.problems:
            break
    assert problems and all(problem.startswith("acknowledged and gone: ") for problem in problems)
    named = [call for call in story.calls for problem in problems if str(call) in problem]
    assert bool(named) is known, problems
