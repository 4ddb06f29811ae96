"""Each rule, switched off, must do harm that the campaign finds: else the rule, or the simulator, is idle."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.lab.sim.matrix.test_matrix import SHOWN_HERE as SHOWN_BY_MATRIX

from holdfast_lab.cli.simulate import Terms, judged
from holdfast_lab.sim.ablations.rules import DIRECTED, DURABLE, RULES, TRANSACTIONAL, ZONED
from holdfast_lab.sim.run import Verdict
from holdfast_lab.sim.shape import Journalling

ROOT = Path(__file__).parents[4]
SEED = {
    "activate": 4,
    "all-ack": 6,
    "all-prepared": 3,
    "apply-once": 1,
    "confirmed-answers": 5,
    "copy-complete": 108,
    "cut-kept": 1,
    "destination-acks": 2,
    "drain-waits": 4,
    "durable-ack": 3,
    "failed-version": 41,
    "fence": 6,
    "forget-last": 108,
    "in-order": 7,
    "lives": 1,
    "lock-exclusive": 3,
    "once": 7,
    "owner-by-proof": 2,
    "plan-keeps-copies": 1,
    "promotion-by-table": 335,
    "record-order": 42,
    "repeat": 1,
    "table-majority": 62,
    "view-majority": 10,
    "wait-for-copies": 8,
}
"""A short run of the campaign that shows the harm of each that one soon shows. Maps are journalled as in a campaign
(`mixed`), or synchronously, with power cuts, for those of `DURABLE`. If the code changes so that a seed does not
show it any more, `python -m holdfast_lab simulate --alarm --without RULE` finds another one.
"""
SHOWN_BY = {
    "activate": "tests/core/primary_backup/test_primary_activation.py",
    "all-ack": "tests/core/primary_backup/test_lane.py",
    "apply-once": "tests/core/routing/test_retries.py",
    "confirmed-answers": "tests/lab/sim/test_confirmed_answers.py",
    "cut-kept": "tests/core/primary_backup/test_cuts.py",
    "destination-acks": "tests/core/primary_backup/test_lane_entries.py",
    "drain-waits": "tests/core/migration/test_migration_master_limits.py",
    "durable-ack": "tests/core/journal/test_log.py",
    "failed-version": "tests/core/migration/test_migration_master.py",
    "fence": "tests/core/primary_backup/test_local_replicas.py",
    "in-order": "tests/engine/test_link.py",
    "lives": "tests/engine/test_link.py",
    "once": "tests/engine/test_link.py",
    "plan-keeps-copies": "tests/core/migration/test_migration_master.py",
    "record-order": "tests/core/primary_backup/test_local_replicas.py",
    "repeat": "tests/engine/test_link.py",
    "table-majority": "tests/core/partition_table/test_table_replication_orders.py",
    "view-majority": "tests/lab/sim/transaction_scenarios/test_a_figures.py",
    "wait-for-copies": "tests/lab/sim/test_phases.py",
    "newest-table": "tests/core/partition_table/test_table_replication_orders.py",
    "destination-first": "tests/core/partition_table/test_table_replication_orders.py",
    "no-gap": "tests/core/state_transfer/test_destination.py",
    "newer-wins": "tests/core/primary_backup/test_staging_replica.py",
    "term": "tests/lab/sim/test_repair.py",
    "monotonic-reads": "tests/lab/sim/test_backup_reads.py",
    "fill-durable": "tests/core/journal/test_log.py",
    "failed-sync-stops": "tests/engine/test_journal.py",
    "damage-ends": "tests/core/journal/test_recovery.py",
    "wait-for-stores": "tests/lab/sim/test_waiting_for_stores.py",
    "lost-refused": "tests/lab/sim/test_loss_policies.py",
    "lost-stays": "tests/lab/sim/test_loss_policies.py",
    "baseline-history": "tests/lab/sim/test_baseline.py",
    "baseline-outside": "tests/lab/sim/test_baseline.py",
    "level-by-all": "tests/lab/sim/test_builds.py",
    "level-admits": "tests/lab/sim/test_builds.py",
    "level-in-force": "tests/lab/sim/test_builds.py",
    "told-when-safe": "tests/lab/sim/test_changes.py",
    "vote-durable": "tests/core/multiraft/test_persistence.py",
    "append-durable": "tests/core/raft/test_schedule_rules.py",
    "vote-for-complete": "tests/core/raft/test_schedule_rules.py",
    "joint-majorities": "tests/core/raft/test_schedule_rules.py",
    "matching-append": "tests/core/raft/test_schedule_rules.py",
    "catch-up": "tests/core/raft/test_reconfiguration.py",
    "change-token": "tests/core/raft/test_reconfiguration.py",
    "change-agreed": "tests/core/raft/test_reconfiguration.py",
    "read-index": "tests/lab/sim/test_zones.py",
    "read-standing": "tests/core/multiraft/test_read_rounds.py",
    "heads-confirmed": "tests/lab/sim/test_zone_streams.py",
    "forward-term": "tests/lab/sim/test_zones.py",
    "reset-fences": "tests/core/raft/test_reconfiguration.py",
    "metastore-reads": "tests/core/metastore/test_metastore.py",
    "keys-guarded": "tests/core/zones/test_zone_schedules.py",
    "clean-up": "tests/core/zones/test_zone_schedules.py",
    "zone-waits": "tests/lab/sim/test_zones.py",
    "zone-successors": "tests/lab/sim/test_zone_successors.py",
    "map-paused": "tests/lab/sim/test_map_moves.py",
    "waiters-follow": "tests/lab/sim/test_map_moves.py",
    "fills-in-order": "tests/core/operations/test_move_steps.py",
    "source-observed": "tests/core/map_moves/test_partition_transfer.py",
    "lock-respected": "tests/lab/sim/test_transactions.py",
    "locks-checked": "tests/lab/sim/test_transactions.py",
    "reads-checked": "tests/lab/sim/test_transactions.py",
    "prepared-locked": "tests/lab/sim/test_transactions.py",
    "topology-compared": "tests/lab/sim/test_transactions.py",
    "seen-compared": "tests/lab/sim/test_transactions.py",
    "asked-is-fenced": "tests/core/operations/test_transaction_branches.py",
    "branches-decide": "tests/lab/sim/test_transactions.py",
    "all-asked": "tests/lab/sim/test_transactions.py",
    "outcome-kept": "tests/core/operations/test_transaction_branches.py",
    "orphans-end": "tests/lab/sim/test_transactions.py",
    "zone-lock-respected": "tests/lab/sim/test_zone_transactions.py",
    "zone-lock-ordered": "tests/lab/sim/test_zone_transactions.py",
    "zone-lock-term": "tests/lab/sim/test_zone_transactions.py",
    "zone-prepared-kept": "tests/core/raft_partition/test_logged_steps.py",
    "owner-by-proof": "tests/core/migration/test_migration_master_returns.py",
    "all-prepared": "tests/core/transactions/test_two_phase_commit.py",
    "lock-exclusive": "tests/core/operations/test_transaction_branches.py",
}
"""Directed tests that show the harm of a rule in a moment; `SHOWN_BY_MATRIX` are rules that a case of the crash matrix
shows. Runs of the campaign are slow tests, and only for rules that a campaign breaks within some dozen runs.
"""


def run(seed: int, power_cuts: bool, zones: bool, *without: str) -> Verdict:
    journal: Journalling = "sync" if power_cuts else "mixed"
    transactions = bool(TRANSACTIONAL & {*without})
    return judged(
        seed, Terms(frozenset(without), journal, power_cuts, zones=zones, transactions=transactions)
    )


@pytest.mark.slow
@pytest.mark.parametrize("rule", sorted(SEED))
def test_the_campaign_finds_the_rule_that_is_missing(rule: str) -> None:
    assert not run(SEED[rule], rule in DURABLE, rule in ZONED, rule).ok


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "power_cuts", "zones"),
    sorted({(seed, rule in DURABLE, rule in ZONED) for rule, seed in SEED.items()}),
)
def test_with_all_rules_in_force_the_same_runs_are_good(seed: int, power_cuts: bool, zones: bool) -> None:
    verdict = run(seed, power_cuts, zones)
    assert verdict.ok, verdict.problems


def test_every_rule_is_tried() -> None:
    assert sorted([*SHOWN_BY, *SHOWN_BY_MATRIX]) == sorted(RULES), "each in one quick test"
    assert SEED.keys() <= RULES.keys()
    assert SHOWN_BY.keys() >= DIRECTED
    idle = [rule for rule, path in SHOWN_BY.items() if not is_shown_by(rule, ROOT / path)]
    assert idle == [], "no test there, or only slow ones"


def is_shown_by(rule: str, path: Path) -> bool:
    """Whether a test of this file, which is no slow one, runs without the rule."""
    tests = [ast.unparse(node) for node in ast.parse(path.read_text(encoding="utf-8")).body]
    return any(f"ablated('{rule}')" in test and "mark.slow" not in test for test in tests)


def test_a_slow_test_shows_nothing_in_the_normal_run(tmp_path: Path) -> None:
    test = '@ablated("fence")\ndef test_it(): ...\n'
    path = tmp_path / "test.py"
    for text, shown in (
        (test, True),
        (f"@pytest.mark.slow\n{test}", False),
        (f"@pytest.mark.slow\n{test}{test}", True),
    ):
        path.write_text(text)
        assert is_shown_by("fence", path) is shown
    assert not is_shown_by("term", path)
