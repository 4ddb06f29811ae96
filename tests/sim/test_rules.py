"""Each rule, switched off, must do harm that the campaign finds: else the rule, or the simulator, is idle."""

from __future__ import annotations

import pytest

from holdfast.core.rules import RULES, Rules
from holdfast.sim.run import simulate

SEED = {
    "all-ack": 26,
    "destination-acks": 0,
    "fence": 6,
    "activate": 26,
    "promotion-by-table": 7,
    "wait-for-copies": 406,
    "copy-complete": 1,
    "destination-first": 22,
    "forget-last": 1,
    "newest-table": 55,
    "view-majority": 1,
    "failed-version": 4,
    "drain-waits": 18,
}
"""A seed that shows the harm of each. If the code changes so that it does not any more, others are tried.

Two rules need a directed story: `table-majority` has it in `test_scenarios`, `record-order` in
`core/replication/test_copies`.
"""
OTHERS = 150


@pytest.mark.parametrize("rule", sorted(SEED))
def test_the_campaign_finds_the_rule_that_is_missing(rule: str) -> None:
    for seed in (SEED[rule], *range(OTHERS)):
        verdict = simulate(seed, without=frozenset({rule}))
        if not verdict.ok:
            break
    else:
        pytest.fail(f"without {rule}, {OTHERS} runs were judged good")
    assert simulate(seed).ok, "with the rule in force the same run is good"


def test_a_rule_that_does_not_exist_cannot_be_switched_off() -> None:
    with pytest.raises(ValueError, match="no such rule: nonsense"):
        Rules(frozenset({"nonsense"}))
    assert all(Rules().holds(name) for name in RULES)
