"""Simulated members whose memories are short now and again: what is refused, and what goes on."""

from __future__ import annotations

import pytest
from tests.sampled_cases import sampled

from holdfast_lab.sim.run import simulate


@pytest.mark.parametrize("seed", sampled([473, 2, 5], 3))
def test_nothing_is_lost_and_nothing_refused_is_there_while_memories_are_short(seed: int) -> None:
    """Seed 5 has full disks, joins and drains beside."""
    found = simulate(seed, journal="mixed", memory=True)
    assert found.ok, found.problems
    assert found.figures["fault_memory"] > 5
    assert found.figures["writes_refused"] > 100
    assert found.figures["writes_acknowledged"] > 100


@pytest.mark.slow
def test_runs_without_are_what_they_were() -> None:
    plain = simulate(2)
    assert "fault_memory" not in plain.figures
    assert simulate(2, memory=True).trace_hash != plain.trace_hash
