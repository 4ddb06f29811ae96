"""Random schedules of a group: nothing that must not happen does."""

from __future__ import annotations

import pytest
from tests.core.raft.schedules import Rivals, Schedule


def play(seed: int, steps: int = 3000, kind: type[Schedule] = Schedule) -> Schedule:
    schedule = kind(seed)
    schedule.run(steps)
    schedule.compare()
    schedule.settle()
    schedule.compare()
    return schedule


@pytest.mark.parametrize("kind", [Schedule, Rivals])
@pytest.mark.parametrize("seed", range(0, 30, 10))
def test_a_group_keeps_its_promises(kind: type[Schedule], seed: int) -> None:
    """Scenario 53."""
    for one in range(seed, seed + 10):
        schedule = play(one, kind=kind)
        assert schedule.leader is not None, f"{one}: when nothing bad happens any more somebody leads"
        assert schedule.leader.log.last == schedule.leader.log.committed, f"{one}: everything is committed"


def test_the_schedules_are_rich_enough() -> None:
    plays = [play(seed) for seed in range(20)]
    assert sum(len(one.judges[0].leaders) for one in plays) > 60
    assert sum(len(one.answered) for one in plays) > 300
    assert sum(one.changed for one in plays) > 15
    assert sum(one.confirmed for one in plays) > 60
