"""Tests that are compiled before workers collect them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.rewritten import compile_tests, compiled, is_compiled, is_test

TEXT = "def test_sum() -> None:\n    assert 1 + 1 == 3\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "test_sums.py"
    file.write_text(TEXT)
    (tmp_path / "helper.py").write_text(TEXT)
    return file


def test_only_what_is_out_of_date_is_compiled(pytestconfig: pytest.Config, file: Path) -> None:
    assert compile_tests(pytestconfig, file.parent) == 1
    assert compile_tests(pytestconfig, file.parent) == 0
    file.write_text(TEXT.replace("3", "4"))
    assert not is_compiled(file)
    assert compile_tests(pytestconfig, file.parent) == 1


def test_pytest_reads_what_was_compiled(pytestconfig: pytest.Config, file: Path) -> None:
    compile_tests(pytestconfig, file.parent)
    written = compiled(file).stat().st_mtime_ns
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", file.name]
    ran = subprocess.run(
        command, cwd=file.parent, env={"PYTHONPATH": ""}, capture_output=True, text=True, check=False
    )
    assert "assert (1 + 1) == 3" in ran.stdout
    assert compiled(file).stat().st_mtime_ns == written


def test_conftests_are_tests_too() -> None:
    assert [is_test(Path(name)) for name in ("test_a.py", "conftest.py", "crew.py")] == [True, True, False]
