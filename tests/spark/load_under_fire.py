"""Loads on a Spark cluster with executors of their own, one of which is killed half-way. A test runs it as a process.

`load_under_fire.py ADDRESSES FILES ROWS` loads the files twice, and prints a line before it kills an executor in each
load, so that the test can kill a member at the same time; then a line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.client.blocking import Client
from holdfast.errors import HoldfastError
from holdfast.spark.pipeline.load import load
from holdfast.spark.spark_session import session


def executors() -> list[int]:
    """The processes of the executors that descend from this one."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = []
    for pid in parents:
        above = pid
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid():
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"CoarseGrainedExecutorBackend" in command and b"java" in command.split(b"\0")[0]:
                found.append(pid)
    return found


def kill_half_way(addresses: str, name: str, rows: int, killed: list[int]) -> None:
    """Kill an executor once a third of the rows is there."""
    with Client(addresses) as client:
        while True:
            try:
                if client.size(name) > rows // 3:
                    break
            except HoldfastError:
                pass
            time.sleep(0.05)
    print("now", flush=True)
    victim = executors()[0]
    os.kill(victim, signal.SIGKILL)
    killed.append(victim)


def main(addresses: str, files: str, rows: int) -> None:
    # Executors shall import what this process imports, also where that is not what is installed.
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    same = {"spark.executorEnv.PYTHONPATH": os.pathsep.join(str(Path(one).resolve()) for one in paths if one)}
    spark = session("local-cluster[2,1,1024]", "holdfast load under fire", same)
    told: list[dict[str, Any]] = []
    killed: list[int] = []
    for name, insert_only in (("direct", True), ("frame", False), ("inserted", True)):
        source = files if name == "direct" else spark.read.parquet(files)
        killer = threading.Thread(target=kill_half_way, args=(addresses, name, rows, killed), daemon=True)
        killer.start()
        done = load(
            spark,
            source,
            name,
            "id",
            address=addresses,
            insert_only=insert_only,
            rows_per_second=rows / 8,
            tasks=8 if isinstance(source, str) else None,
        )
        killer.join(timeout=30)
        told.append(asdict(done))
    print(json.dumps({"told": told, "killed": len(killed)}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
