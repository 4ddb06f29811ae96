"""Random schedules of a group: nothing that must not happen does, and without a rule it is seen to."""

from __future__ import annotations

import pytest
from tests.core.consensus.schedules import Broken, Schedule


def play(seed: int, steps: int = 3000) -> Schedule:
    schedule = Schedule(seed)
    schedule.run(steps)
    schedule.compare()
    schedule.settle()
    schedule.compare()
    return schedule


@pytest.mark.parametrize("seed", range(20))
def test_a_group_keeps_its_promises(seed: int) -> None:
    schedule = play(seed)
    assert schedule.leader is not None, "when nothing bad happens any more somebody leads"
    last = schedule.leader.log.committed
    assert schedule.leader.log.last == last, "and everything is committed"
    for index in schedule.answered.values():
        assert index in schedule.committed


def test_the_schedules_are_rich_enough() -> None:
    plays = [play(seed) for seed in range(20)]
    assert sum(len(one.leaders) for one in plays) > 100
    assert sum(len(one.answered) for one in plays) > 1000
    assert sum(one.changed for one in plays) > 50
    assert sum(one.confirmed for one in plays) > 100
