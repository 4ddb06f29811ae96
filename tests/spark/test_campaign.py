"""Campaigns: a run is a row, whatever becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from holdfast.errors import ConfigError
from holdfast_lab import spark_campaign as job
from holdfast_lab.cli.main import holdfast_lab
from holdfast_lab.cli.simulate import parse_seeds
from holdfast_lab.sim.ablations.rules import RULES
from holdfast_lab.sim.run import simulate
from holdfast_lab.spark_campaign import ERROR, FAILED, GOOD, SCHEMA, CampaignResult, Run, judged, plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.spark.jobs import Progress

QUICK, QUICKER = 13, 3
"""Seeds whose runs are short, and good also without `all-ack`."""
BROKEN = 12
"""A seed that shows the harm of not waiting for all backups."""


@pytest.mark.slow
def test_a_run_is_the_same_as_by_the_command_that_replays_it() -> None:
    row = judged(Run("plain", QUICK))
    alone = simulate(QUICK, journal="off")
    assert row["verdict"] == GOOD and alone.ok
    assert row["trace_hash"] == alone.trace_hash
    assert row["figures"]["events"] == alone.figures["events"]
    assert {f"fault_{kind}": count for kind, count in row["faults"].items()} == {
        name: count for name, count in alone.figures.items() if name.startswith("fault_")
    }
    assert row["replay"] == f"python -m holdfast_lab simulate --seed {QUICK} --journal off"
    assert row["story"] and not row["last"]
    assert row["rules"].keys() <= RULES.keys()
    # Every write waits for all backups; no file is there that could be durable.
    assert row["rules"]["all-ack"] > 100
    assert "owner-by-proof" not in row["rules"]


def test_an_error_in_the_code_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seed: int, **_: Any) -> None:
        raise SystemExit(f"seed {seed} ends the process")

    monkeypatch.setattr(job, "simulate", broken)
    row = judged(Run("cuts", 7))
    assert row["verdict"] == ERROR
    assert row["problems"] == ["SystemExit: seed 7 ends the process"]
    assert row["replay"] == "python -m holdfast_lab simulate --seed 7 --power-cuts"
    pa.RecordBatch.from_pylist([row], schema=SCHEMA)


def test_a_broken_rule_is_found_and_its_story_is_kept() -> None:
    """Without acknowledgements of all backups, writes are lost when members crash."""
    found = judged(Run("plain", BROKEN, frozenset({"all-ack"})))
    assert found["verdict"] == FAILED
    assert found["problems"] and found["last"]
    assert "--without all-ack" in found["replay"]


def row(settings: str, seed: int, verdict: str) -> dict[str, Any]:
    return {
        "settings": settings,
        "seed": seed,
        "verdict": verdict,
        "problems": [] if verdict == GOOD else ["it broke"],
        "faults": {"kill": 2},
        "rules": {"fence": 5},
        "figures": {"migrations_under_faults": 3.0},
        "replay": f"python -m holdfast_lab simulate --seed {seed}",
    }


def test_the_summary_begins_with_what_failed() -> None:
    rows = [row("plain", 9, FAILED), row("plain", 1, GOOD), row("cuts", 2, GOOD)]
    result = CampaignResult(pa.Table.from_pylist(rows, schema=SCHEMA), 1.0)
    assert not result.ok
    assert result.idle == [name for name in RULES if name != "fence"]
    lines = str(result).splitlines()
    assert lines[0] == "plain seed 9 failed; replay it: python -m holdfast_lab simulate --seed 9"
    assert lines[1] == "  it broke"
    assert "6 kill" in str(result)
    assert lines[-1] == "3 runs (2 plain, 1 cuts), 9 migrations under faults, 1 s: 1 not good"
    assert CampaignResult(pa.Table.from_pylist(rows[1:], schema=SCHEMA), 1.0).ok


def test_what_cannot_be_run_is_refused() -> None:
    assert [(run.settings, run.seed) for run in plan(range(2), ["cuts", "plain", "cuts"])] == [
        ("cuts", 0),
        ("plain", 0),
        ("cuts", 1),
        ("plain", 1),
    ]
    for seeds, settings, without in (
        (range(1), ["fast"], frozenset()),
        (range(0), ["plain"], frozenset()),
        (range(1), [], frozenset()),
        (range(1), ["plain"], frozenset({"none"})),
    ):
        with pytest.raises(ConfigError):
            plan(seeds, settings, without)
    told = CliRunner().invoke(holdfast_lab, ["campaign", "--settings", "plain,fast"])
    assert told.exit_code == 2 and "plain, sync" in told.stderr
    assert parse_seeds("3..4") == range(3, 5)


@pytest.mark.spark
@pytest.mark.slow
def test_failing_runs_come_first_and_the_job_goes_on(spark: SparkSession) -> None:
    told: list[Progress] = []
    without = frozenset({"all-ack"})
    result = job.campaign(spark, [QUICK, QUICKER, BROKEN], ["plain"], without=without, progress=told.append)
    rows = result.rows()
    assert [(run["seed"], run["verdict"]) for run in rows] == [
        (BROKEN, FAILED),
        (QUICKER, GOOD),
        (QUICK, GOOD),
    ]
    assert not result.ok and "--without all-ack" in str(result)
    assert rows[1]["trace_hash"] == simulate(QUICKER, journal="off", without=without).trace_hash
    assert told[-1].rows == 3
    assert result.frame(spark).where("map_contains_key(rules, 'fence')").count() == 2, (
        "one of them is a cluster of one"
    )
