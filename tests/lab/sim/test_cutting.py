"""The client that takes cuts in simulated runs: of which moment it says that a cut is."""

from __future__ import annotations

from tests.lab.sim.stage import Stage

from holdfast.core.model.keys import partition_of
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cutting import Cut, Cutter
from holdfast_lab.sim.workload import MAP


def test_a_cut_that_is_asked_for_again_is_of_the_time_since_it_was_asked_for_first() -> None:
    stage = Stage(2)
    stage.put(stage.processes[0], "k", "before")
    cutter = Cutter(stage.world, stage.cluster, [MAP], noted=lambda call: None)
    cut = Cut(b"c" * 16, stage.world.now_ns, (MAP,))
    where = (partition_of(wire_key("k"), 0, 7), MAP)
    cutter._take(cut)
    stage.wait(0.1)
    first = cut.marks.pop(where)
    cut.done.discard(where[0])  # The answer is lost.
    stage.put(stage.processes[0], "k", "later")
    cutter._take(cut)
    stage.wait(0.1)
    again = cut.marks[where]
    assert (again.counter, again.term, again.start) == (first.counter, first.term, first.start)
