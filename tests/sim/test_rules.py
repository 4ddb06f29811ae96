"""Each rule, switched off, must do harm that the campaign finds: else the rule, or the simulator, is idle."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.rules import DIRECTED, DURABLE, RULES, Rules
from holdfast.sim.run import simulate

ROOT = Path(__file__).parent.parent.parent
SEED = {
    "all-ack": 11,
    "destination-acks": 2,
    "durable-ack": 1,
    "owner-by-proof": 4,
    "fence": 12,
    "record-order": 15,
    "activate": 18,
    "promotion-by-table": 14,
    "wait-for-copies": 160,
    "copy-complete": 0,
    "destination-first": 15,
    "forget-last": 0,
    "newest-table": 40,
    "table-majority": 115,
    "view-majority": 0,
    "failed-version": 6,
    "drain-waits": 4,
    "plan-keeps-copies": 1,
    "repeat": 1,
    "once": 8,
    "in-order": 36,
    "lives": 0,
}
"""The first seed of the campaign that shows the harm of each. If the code changes so that it does not any more, others
are tried.
"""
SHOWN_BY = {
    "no-gap": "tests/core/migration/test_destination.py",
    "newer-wins": "tests/core/migration/test_shadow.py",
    "term": "tests/sim/test_repair.py",
    "monotonic-reads": "tests/sim/test_backup_reads.py",
    "apply-once": "tests/sim/test_indeterminate.py",
    "fill-durable": "tests/core/journal/test_log.py",
    "failed-sync-stops": "tests/engine/test_journal.py",
    "damage-ends": "tests/core/journal/test_recovery.py",
    "cut-kept": "tests/sim/test_cuts.py",
    "confirmed-answers": "tests/sim/test_confirmed_answers.py",
    "wait-for-stores": "tests/sim/test_waiting_for_stores.py",
    "told-when-safe": "tests/sim/test_changes.py",
}
"""Where a directed test shows the harm that a campaign has not enough luck for."""
OTHERS = 250


@pytest.mark.parametrize("rule", sorted(SEED))
def test_the_campaign_finds_the_rule_that_is_missing(rule: str) -> None:
    for seed in (SEED[rule], *range(OTHERS)):
        verdict = simulate(seed, without=frozenset({rule}), power_cuts=rule in DURABLE)
        if not verdict.ok:
            break
    else:
        pytest.fail(f"without {rule}, {OTHERS} runs were judged good")
    assert simulate(seed, power_cuts=rule in DURABLE).ok, "with the rule in force the same run is good"


def test_every_rule_is_tried() -> None:
    assert SEED.keys() | DIRECTED == RULES.keys()
    assert not SEED.keys() & DIRECTED
    assert SHOWN_BY.keys() == DIRECTED
    for rule, path in SHOWN_BY.items():
        test = (ROOT / path).read_text(encoding="utf-8")
        assert f'without="{rule}"' in test or f"{rule.replace('-', '_')}=False" in test


def test_a_rule_that_does_not_exist_cannot_be_switched_off() -> None:
    with pytest.raises(ValueError, match="no such rule: nonsense"):
        Rules(frozenset({"nonsense"}))
    assert all(Rules().holds(name) for name in RULES)
