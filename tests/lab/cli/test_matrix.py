"""`python -m holdfast_lab matrix`: what it plays, how failures are told and replayed, what it refuses."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from holdfast_lab.cli.main import holdfast_lab


def run(*arguments: str) -> Result:
    return CliRunner().invoke(holdfast_lab, ["matrix", *arguments])


def test_a_sweep_tells_what_was_played_and_fails_with_its_cases() -> None:
    good = run("--form", "copy-first", "--kinds", "lost", "--workers", "1")
    assert good.exit_code == 0, good.output
    assert "copy-first" in good.output
    assert "0 failed" in good.output
    bad = run("--form", "copy-first", "--kinds", "lost", "--workers", "1", "--without", "copy-complete")
    assert bad.exit_code == 1
    assert "replay it: python -m holdfast_lab matrix --case 'copy-first/source/0/none'" in bad.output


def test_a_sweep_for_scripts_is_json() -> None:
    told = run(
        "--form", "copy-first", "--kinds", "lost", "--workers", "1", "--without", "copy-complete", "--json"
    )
    *failures, figures = map(json.loads, told.output.splitlines())
    assert figures["failed"] == len(failures) > 0
    assert all(failure["key"].startswith("copy-first/") and failure["problems"] for failure in failures)


@pytest.mark.slow
def test_two_processes_find_the_same_as_one() -> None:
    chosen = ("--form", "move-alone", "--kinds", "crash", "--pairs", "--sample", "40", "--json")
    alone, together = (json.loads(run(*chosen, "--workers", workers).output) for workers in ("1", "2"))
    assert alone.pop("seconds") >= 0
    assert together.pop("seconds") >= 0
    assert alone == together
    assert alone["cases"] > 20


def test_one_case_is_replayed_with_its_story() -> None:
    key = "move-owner/neither/0/crash:source@17"
    told = run("--case", key)
    assert told.exit_code == 0
    assert "FAULT crash:source@17 when" in told.output
    assert f"{key}: good" in told.output
    quiet = run("--case", key, "--quiet")
    assert "FAULT" not in quiet.output
    assert "trace hash" in quiet.output
    bad = run("--case", "move-owner/source/0/none", "--without", "copy-complete", "--quiet")
    assert bad.exit_code == 1
    assert "FAILED" in bad.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--case", "move-owner"], "write FORM/ROLE/SEED/FAULT"),
        (["--kinds", "crash,smash"], "write main, all, or some of"),
        (["--form", "move"], "the forms are move-owner"),
        (["--without", "fnce"], "the rules are"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(arguments: list[str], told: str) -> None:
    refused = run(*arguments)
    assert refused.exit_code == 2
    assert told in refused.output
