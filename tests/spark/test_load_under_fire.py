"""A load while an executor and a member are killed: every row is in the map, once, as it is in the source."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pyspark")

from holdfast.client.blocking import Client  # noqa: E402
from holdfast.replica_comparison.live import verify  # noqa: E402
from holdfast.wire.values import from_stored  # noqa: E402
from holdfast_lab.processes.local_cluster import LocalCluster  # noqa: E402

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = Path(__file__).with_name("load_under_fire.py")
ROWS = 60_000
CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[maps.default]
backups = 1
"""


def test_every_row_is_there_once(java: None, tmp_path: Path) -> None:
    table = pa.table({"id": pa.array(range(ROWS), pa.int64()), "word": [f"word-{at}" for at in range(ROWS)]})
    for part in range(2):
        half = table.slice(part * ROWS // 2, ROWS // 2)
        pq.write_table(half, tmp_path / f"part-{part}.parquet", row_group_size=ROWS // 8)
    with LocalCluster(4, CONFIG) as members:
        members.wait_settled()
        addresses = ",".join(members.client_addresses())
        command = [sys.executable, str(JOB), addresses, str(tmp_path), str(ROWS)]
        lines = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
            try:
                assert job.stdout is not None
                for line in job.stdout:
                    lines.append(line)
                    # Two of the four members die; backups are made anew in between.
                    if line == "now\n" and len(members.alive) > 2:
                        members.wait_safe(60)
                        members.kill(members.alive[1])
                assert job.wait(timeout=60) == 0, lines
            finally:
                job.kill()
        found = json.loads(lines[-1])
        assert found["killed"] == 3
        for told in found["told"]:
            assert (told["rows"], told["kept"], told["rejected"]) == (ROWS, 0, 0), told
        members.wait_safe(60)
        with Client(members.client_addresses()) as client:
            for name in ("direct", "frame", "inserted"):
                assert contents(client, name) == table.to_pylist()
            report = verify(client)
            assert not report.conflicts
            assert not report.undecided


def contents(client: Client, name: str) -> list[object]:
    """All values, in the order of their keys; a key that came twice would be there twice."""
    found = [
        (from_stored(key), from_stored(value))
        for partition in range(client.partition_count)
        for page in client.scan(name, partition)
        for key, value in zip(*page.split(), strict=True)
    ]
    return [value for _, value in sorted(found, key=lambda entry: int(str(entry[0])))]
