"""Each rule, switched off, must do harm that the campaign finds: else the rule, or the simulator, is idle."""

from __future__ import annotations

import pytest

from holdfast.core.rules import DIRECTED, RULES, Rules
from holdfast.sim.run import simulate

SEED = {
    "all-ack": 0,
    "destination-acks": 0,
    "fence": 43,
    "record-order": 5,
    "activate": 7,
    "promotion-by-table": 160,
    "wait-for-copies": 160,
    "copy-complete": 0,
    "destination-first": 15,
    "forget-last": 0,
    "newest-table": 6,
    "table-majority": 115,
    "view-majority": 0,
    "failed-version": 1,
    "drain-waits": 1,
    "plan-keeps-copies": 1,
    "repeat": 1,
    "once": 3,
    "in-order": 7,
    "lives": 0,
}
"""The first seed of the campaign that shows the harm of each. If the code changes so that it does not any more, others
are tried.
"""
OTHERS = 250


@pytest.mark.parametrize("rule", sorted(SEED))
def test_the_campaign_finds_the_rule_that_is_missing(rule: str) -> None:
    for seed in (SEED[rule], *range(OTHERS)):
        verdict = simulate(seed, without=frozenset({rule}))
        if not verdict.ok:
            break
    else:
        pytest.fail(f"without {rule}, {OTHERS} runs were judged good")
    assert simulate(seed).ok, "with the rule in force the same run is good"


def test_every_rule_is_tried() -> None:
    assert SEED.keys() | DIRECTED == RULES.keys()


def test_a_rule_that_does_not_exist_cannot_be_switched_off() -> None:
    with pytest.raises(ValueError, match="no such rule: nonsense"):
        Rules(frozenset({"nonsense"}))
    assert all(Rules().holds(name) for name in RULES)
