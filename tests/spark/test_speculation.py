"""Two attempts of a task that run at the same time store, count and reject its rows once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.server.memory_cluster import MemoryCluster

from holdfast.client.blocking import Client
from holdfast.spark.java import java_home
from holdfast_lab.processes.local_cluster import free_ports

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = Path(__file__).with_name("speculation_job.py")
ROWS = 4000


@pytest.fixture
def master(java: None, tmp_path: Path) -> Iterator[str]:
    """A Spark cluster of two workers: on hosts of their own, for Spark runs no twin on the host of the first."""
    import pyspark

    command = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    (port,) = free_ports(1)
    at = f"spark://127.0.0.1:{port}"
    work = ["--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work"), at]
    deploy = "org.apache.spark.deploy"
    commands = [
        [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"],
        *([f"{deploy}.worker.Worker", "--host", host, *work] for host in ("127.0.0.2", "127.0.0.3")),
    ]
    environment = {**os.environ, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}
    with ExitStack() as running:
        for arguments in commands:
            host = arguments[2]
            process = subprocess.Popen(
                [command, *arguments],
                env={**environment, "SPARK_LOCAL_IP": host},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            running.callback(process.wait, 30)
            running.callback(process.terminate)
        yield at


def test_a_twin_of_a_slow_task_changes_nothing(master: str, cluster: MemoryCluster, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(JOB), master, cluster.addresses(), str(ROWS), str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    attempts = {path.name for path in tmp_path.glob("0-*")}
    assert {"0-0", "0-1"} <= attempts, "Spark has run no twin"
    assert json.loads(ended.stdout.splitlines()[-1]) == {"rows": ROWS - 1, "rejected": 1}
    with Client(cluster.addresses()) as client:
        assert client.size("m") == ROWS - 1
    lines = [
        line for file in (tmp_path / "rejects").glob("*.jsonl") for line in file.read_text().splitlines()
    ]
    assert [json.loads(line)["row"]["n"] for line in lines] == [0]
