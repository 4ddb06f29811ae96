"""How the processes of `make test` share the tests: what a file starts is started once."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_a_file_stays_on_one_worker() -> None:
    files = [
        "wire/test_bounds.py",
        "core/streams/test_entry_listeners.py",
        "spark/source/test_options.py",
        "spark/rows/test_cells.py",
    ]
    options = re.search(r"^SHARED := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert options is not None
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-n", "2", "-p", "no:cacheprovider", *options[1].split()]
        + [f"tests/{file}" for file in files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    workers = defaultdict(set)
    for worker, file in re.findall(r"^\[(gw\d)\].* (tests/\S+?\.py)::", told.stdout, re.MULTILINE):
        workers[file].add(worker)
    assert len(workers) == len(files), told.stdout
    assert all(len(one) == 1 for one in workers.values()), workers
    assert set.union(*workers.values()) == {"gw0", "gw1"}, "both have worked"


def test_files_that_start_a_spark_session_are_one_group(request: pytest.FixtureRequest) -> None:
    (shared,) = (
        plugin for plugin in request.config.pluginmanager.get_plugins() if hasattr(plugin, "FilesTogether")
    )
    groups = [
        shared.FilesTogether._split_scope(None, f"tests/spark/{file}::test")
        for file in (
            "pipeline/test_load.py",
            "files/test_analysis.py",
            "rows/test_cells.py",
            "source/test_options.py",
        )
    ]
    assert groups == [
        "tests/spark",
        "tests/spark",
        "tests/spark/rows/test_cells.py",
        "tests/spark/source/test_options.py",
    ]


def test_the_collector_works_while_tests_run() -> None:
    """It is off during the collection only (conftest.py)."""
    assert gc.isenabled()
