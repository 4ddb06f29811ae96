"""A read at a cut while an executor and a member are killed and a writer goes on: exactly the rows of the cut."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from holdfast.client.blocking import Client
from holdfast.errors import HoldfastError
from holdfast.spark.rows.column_schemas import StoredSchema, store_schema
from holdfast.spark.rows.stored import json_data, long_data
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

JOB = Path(__file__).with_name("cut_reading_job.py")
CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[maps.default]
backups = 1
"""
ROWS = 20_000


def put(client: Client, rows: range, word: str) -> None:
    for first in range(rows.start, rows.stop, 4000):
        some = range(first, min(rows.stop, first + 4000))
        values = [json_data(b'{"id":%d,"word":"%b-%d"}' % (at, word.encode(), at)) for at in some]
        client.put_columns("m", [long_data(at) for at in some], values)


def digest(rows: int, word: str) -> str:
    texts = sorted(f"{at}:{word}-{at}" for at in range(rows))
    return hashlib.sha256("\n".join(texts).encode()).hexdigest() + f" {rows}"


def wait_for(file: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while not file.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"no {file}"
        time.sleep(0.05)


def test_exactly_the_rows_of_the_cut_are_read(java: None, tmp_path: Path) -> None:
    from pyspark.sql.types import LongType, StringType, StructType

    struct = StructType().add("id", LongType()).add("word", StringType())
    with LocalCluster(4, CONFIG) as members:
        members.wait_settled()
        addresses = ",".join(members.client_addresses())
        over = threading.Event()
        failures: list[HoldfastError] = []

        def write_on() -> None:
            """New values, and new rows."""
            try:
                with Client(addresses, timeout_s=60) as client:
                    number = 0
                    while not over.is_set():
                        number += 1
                        put(client, range(ROWS), f"later{number}")
                        put(client, range(ROWS, ROWS + 4000), "new")
                        over.wait(0.5)
            except HoldfastError as failed:
                failures.append(failed)

        with Client(addresses) as client:
            store_schema(client, "m", StoredSchema.of(struct, ["id"], "json"))
            put(client, range(ROWS), "word")
        command = [sys.executable, str(JOB), addresses, str(tmp_path)]
        # A process of its own: Spark has one context a process.
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        writer = threading.Thread(target=write_on)
        try:
            wait_for(tmp_path / "cut", job)
            writer.start()
            wait_for(tmp_path / "reading", job)
            members.kill(members.members[1])
            (tmp_path / "go").touch()
            out, err = job.communicate(timeout=300)
        finally:
            job.kill()
            job.wait()
            over.set()
            if writer.ident is not None:
                writer.join(90)
        assert job.returncode == 0, err[-4000:]
        assert not failures
        found = json.loads(out.splitlines()[-1])
        assert found == {"digests": [digest(ROWS, "word")] * 2, "killed": True}
        members.wait_safe(60)
        with Client(members.client_addresses()) as client:
            assert client.size("m") == ROWS + 4000
