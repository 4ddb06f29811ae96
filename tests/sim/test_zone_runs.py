"""Whole runs with a metastore and a zone: `make zones` has more of them."""

from __future__ import annotations

import pytest
from tests.sampled_cases import sampled

from holdfast.sim.run import simulate

FOUND = {
    158: "a clock that was set back stopped the timers of data nodes until it was as late again",
    20: "a metastore's state that was older than the zone destroyed replicas, which began anew without what they held",
}
"""Seeds that failed once, and what they found."""


@pytest.mark.parametrize("seed", [*sampled(FOUND, 2), 3])
def test_maps_in_a_zone_are_linearizable_and_come_to_rest(seed: int) -> None:
    verdict = simulate(seed, journal="mixed", zones=True)
    assert verdict.ok, verdict.problems
