"""Change streams on a Spark cluster with executors of their own, one of which is killed. A test runs it as a process.

`stream_cluster_job.py ADDRESSES FOLDER` follows the map `m` into Parquet and into the map `copy`. It kills an executor
when FOLDER/kill appears, and ends when FOLDER/end does, with what there is by then. It leaves the rows as JSON lines in
FOLDER/rows, and prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.spark.pipeline.changes import changes, follow, into_parquet, mirror
from holdfast.spark.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

EXECUTOR = "CoarseGrainedExecutorBackend"


def executors() -> list[int]:
    """The process ids of the executors below this process."""
    parents: dict[int, int] = {}
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        # The shell that started it has the same words in its arguments.
        if any(word.endswith(EXECUTOR.encode()) for word in arguments) and b"java" in arguments[0]:
            found.append(int(folder.name))

    def ours(pid: int) -> bool:
        while pid > 1:
            if pid == os.getpid():
                return True
            pid = parents.get(pid, 0)
        return False

    return [pid for pid in found if ours(pid)]


def main(addresses: str, folder: Path) -> None:
    spark = session("local-cluster[2,1,1024]", "holdfast stream test")

    def both(*, once: bool) -> list[StreamingQuery]:
        frame = changes(spark, addresses, "m", starting="earliest", max_rows=400, value_format="text")
        every = "200 milliseconds"
        return [
            into_parquet(frame, str(folder / "kept"), once=once, every=every),
            mirror(spark, addresses, "m", "copy", checkpoint=str(folder / "c"), once=once, every=every),
        ]

    queries = both(once=False)
    killed = 0
    print("following", flush=True)
    while not (folder / "end").exists():
        for query in queries:
            follow(query, timeout_s=0.2)
        if (folder / "kill").exists() and not killed:
            killed = executors()[0]
            os.kill(killed, signal.SIGKILL)
        time.sleep(0.1)
    for query in queries:
        query.stop()
    batches = [follow(query).batches for query in both(once=True)]
    rows = spark.read.parquet(str(folder / "kept")).select(
        "partition", "term", "counter", "time", "key", "before", "after"
    )
    with Path(folder, "rows").open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(row.asDict(), default=str) + "\n" for row in rows.collect())
    print(json.dumps({"killed": bool(killed), "executors": len(executors()), "batches": batches}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
