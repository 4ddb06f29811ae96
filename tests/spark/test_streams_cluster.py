"""Change streams where tasks run in executors of their own, with an executor and a member killed in the middle."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("hazelcast")

from tests.spark.streaming_judge import Verdict, Writer, content_of, judge

from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = Path(__file__).with_name("stream_cluster_job.py")

CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[partitions]
count = 31
[maps.default]
backups = 1
[maps.m]
changes_bytes = 33554432
"""


def test_every_change_once_though_an_executor_and_a_member_are_killed(java: None, tmp_path: Path) -> None:
    with LocalCluster(4, CONFIG) as members:
        members.wait_settled()
        log = tmp_path / "log"
        with log.open("w", encoding="utf-8") as errors:
            job = subprocess.Popen(
                [sys.executable, str(JOB), ",".join(members.client_addresses()), str(tmp_path)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        try:
            with Writer(members.client_addresses(), "m") as writer:
                assert job.stdout is not None
                assert job.stdout.readline() == "following\n", log.read_text()[-4000:]
                time.sleep(8)
                (tmp_path / "kill").touch()
                time.sleep(3)
                members.kill(members.alive[1])
                time.sleep(10)
                members.start_member()
                time.sleep(3)
            members.wait_safe(60)
            (tmp_path / "end").touch()
            told, _ = job.communicate(timeout=240)
        finally:
            if job.poll() is None:
                job.kill()
                job.wait()
        assert job.returncode == 0, log.read_text()[-4000:]
        found = json.loads(told.splitlines()[-1])
        assert (found["killed"], found["executors"]) == (True, 2)
        content = content_of(members.client_addresses(), "m")
        rows = [json.loads(line) for line in (tmp_path / "rows").read_text(encoding="utf-8").splitlines()]
        assert judge(rows, content) == Verdict(rows=len(rows))
        assert len(rows) >= writer.done / 2
        assert content_of(members.client_addresses(), "copy") == content
        print(f"{len(rows)} rows of {writer.done} writes, {found}")
