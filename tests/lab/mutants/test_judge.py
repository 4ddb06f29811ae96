"""The driver of mutants: what a test notices, what none does, and what the list of equivalents may not say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from holdfast_lab.mutants.__main__ import stale

ROOT = Path(__file__).parents[3]


def run(*args: str, tests: str = "tests/core/primary_backup/test_client_acks.py") -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast_lab.mutants", *args, "--tests", tests],
        cwd=ROOT,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def test_what_tests_notice_and_what_not() -> None:
    _, told = run("client_acks", "update_counter", "--match", "return", "--kills")
    assert "killed: ClientAcks" in told
    assert "test_client_acks.py::" in told, "it says which test has noticed"
    assert "unreached: src/holdfast/core/model/update_counter.py:" in told


def test_modules_of_the_laboratory_are_mutated_as_well() -> None:
    _, told = run(
        "check/atomicity", "--match", "return", "--kills", tests="tests/lab/check/test_atomicity.py"
    )
    assert "killed: " in told
    assert "could not be run" not in told


def test_a_mutant_without_super_is_judged_too() -> None:
    call = "WrittenState.read_from: super().read_from(taken, at_ns) -> pass"
    _, told = run("service_state", "--match", call, tests="tests/core/store/test_service_state.py")
    assert "1 mutants" in told
    assert "unjudged" not in told


def test_tests_that_fail_without_a_mutant_do_not_end_the_run(tmp_path: Path) -> None:
    failing = tmp_path / "test_failing.py"
    failing.write_text("def test_fails() -> None:\n    raise AssertionError\n", encoding="utf-8")
    status, told = run("client_acks", "update_counter", "--match", "return", tests=str(failing))
    assert status == 1
    for module in ("core/primary_backup/client_acks.py", "core/model/update_counter.py"):
        assert f"{module}: the tests could not be run" in told


def test_a_sample_is_the_same_for_the_same_seed() -> None:
    one, same, other = (
        run("core/journal", "--list", "--sample", "20", "--seed", seed)[1] for seed in ("1", "1", "2")
    )
    assert one == same != other
    assert len(one.splitlines()) == 20


def test_an_unknown_module_is_told() -> None:
    status, told = run("nosuch")
    assert status
    assert "knows no module 'nosuch'" in told


def test_every_name_in_the_lists_is_there() -> None:
    """A function that moves takes its equivalents with it, a test file its place in the table of modules."""
    status, told = run("--list", "--sample", "1")
    assert (status, told.count("\n")) == (0, 1), told


def test_a_name_that_is_gone_is_told() -> None:
    table = {"core/a.py": {"tests": ["tests/nosuch.py"]}}
    reasons = [{"module": "core/b.py", "mutants": ["f: 1 -> 2"], "why": "so"}]
    assert stale(table, reasons) == [
        "src/holdfast_lab/mutants/equivalents.toml: core/b.py is no module of src/holdfast_lab/mutants/modules.toml",
        "src/holdfast_lab/mutants/modules.toml: there is no tests/nosuch.py",
    ]
