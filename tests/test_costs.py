"""What each file of tests takes: measured, recorded, estimated where it was not."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests import costs
from tests.costs import ESTIMATE_S, CostRecorder, cost, estimate, recorded, used_s

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_the_time_of_programs_that_ended_counts() -> None:
    before_s = used_s()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert used_s() - before_s >= 0.25, "the system counts in steps of 10 ms"


def test_what_was_measured_replaces_the_record_of_files_that_ran(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept, measured = "tests/test_house.py", "tests/test_costs.py"
    monkeypatch.setattr(costs, "RECORD", tmp_path / "costs.toml")
    (tmp_path / "costs.toml").write_text(f'"{kept}" = 7.0\n"{measured}" = 99.0\n"tests/gone.py" = 1.0\n')
    recorded.cache_clear()
    times = iter([10.0, 11.0, 13.0])
    monkeypatch.setattr(costs, "used_s", lambda: next(times))
    recorder = CostRecorder()
    recorder.pytest_collection_finish()
    recorder.pytest_runtest_logfinish(f"{measured}::test_one")
    recorder.pytest_runtest_logfinish(f"{measured}::test_two[a::b]")
    recorder.pytest_sessionfinish()
    monkeypatch.undo()
    recorded.cache_clear()
    assert tomllib.loads((tmp_path / "costs.toml").read_text()) == {kept: 7.0, measured: 3.0}


def test_a_file_without_a_record_is_estimated_by_its_text() -> None:
    assert estimate("def test_it(): ...") == ESTIMATE_S
    assert estimate("from holdfast_lab.sim.run import simulate") > ESTIMATE_S
    assert cost("tests/test_house.py") == recorded()["tests/test_house.py"]
