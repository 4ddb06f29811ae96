"""The pipeline where tasks run in executors of their own: what is pickled, imported and found there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.server.memory_cluster import MemoryCluster

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("local_cluster_job.py")
ROWS = 5000


@pytest.mark.slow
def test_load_compare_and_verify_in_executors(java: None, cluster: MemoryCluster) -> None:
    # A process of its own: Spark has one context a process, and the other tests keep theirs.
    ended = subprocess.run(
        [sys.executable, str(JOB), cluster.addresses(), str(ROWS)],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found == {"equal": ROWS, "same": True, "sound": True, "copies": 31 + 1, "executors": 2}
