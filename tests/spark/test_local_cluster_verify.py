"""The comparison in executors of their own while members are written to and killed: no false alarm."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.client.blocking import Client
from holdfast.wire.values import to_stored
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

JOB = Path(__file__).with_name("local_cluster_verify.py")
CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[partitions]
count = 31
[maps.default]
backups = 1
"""


def test_a_comparison_in_executors_while_a_member_is_killed(java: None, tmp_path: Path) -> None:
    stop, over = tmp_path / "stop", threading.Event()
    with LocalCluster(3, CONFIG) as members:
        members.wait_settled()
        addresses = ",".join(members.client_addresses())

        def write() -> None:
            number = 0
            with Client(addresses) as client:
                while not over.is_set():
                    client.set("m", to_stored(number % 2000), to_stored(number))
                    number += 1

        writer = threading.Thread(target=write)
        writer.start()
        log = (tmp_path / "log").open("w+")
        job = subprocess.Popen(
            [sys.executable, str(JOB), addresses, str(stop)], stdout=subprocess.PIPE, stderr=log, text=True
        )

        def next_line() -> dict[str, int]:
            assert job.stdout is not None
            line = job.stdout.readline()
            assert line, (tmp_path / "log").read_text()[-4000:]
            found: dict[str, int] = json.loads(line)
            return found

        try:
            told = [next_line()]
            members.kill(members.members[1])
            told += [next_line() for _ in range(2)]
            members.wait_safe(60)
            over.set()
            writer.join()
            stop.touch()
            assert job.stdout is not None
            told += [json.loads(line) for line in job.stdout]
            assert job.wait(60) == 0
        finally:
            over.set()
            writer.join()
            job.kill()
            job.wait()
            log.close()
            if job.stdout is not None:
                job.stdout.close()
    assert [each["differs"] for each in told] == [0] * len(told)
    assert told[-1]["sound"], told
    assert told[-1]["copies"] == 31
