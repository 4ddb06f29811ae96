"""A read at a cut on a Spark cluster with executors of their own, one of which is killed. A test runs it as a
process.

`cut_reading_job.py ADDRESSES FOLDER` reads the map `m` at a cut, touches `cut` in the folder when that is taken and
`reading` when a task has begun, waits in each task until there is a file `go`, and prints one line of JSON: digests
of the rows, from two uses of the same frame. The first executor that reads kills itself once, when `go` is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import holdfast
from holdfast.spark.spark_session import session

SETTINGS = {
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.task.maxFailures": "8",
    # The executors' workers have an environment of their own: the package that is tested here, not another one.
    "spark.executorEnv.PYTHONPATH": str(Path(holdfast.__file__).parents[1]),
}


def die_once(folder: Path) -> None:
    """Kill the executor, the parent of this worker's daemon, if nobody has been killed yet."""
    try:
        (folder / "killed").touch(exist_ok=False)
    except FileExistsError:
        return
    daemon = os.getppid()
    executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(executor, signal.SIGKILL)
    time.sleep(30)


def main(addresses: str, folder_name: str) -> None:
    folder = Path(folder_name)
    spark = session("local-cluster[2,1,1024]", "holdfast cut test", SETTINGS)
    options = {"address": addresses, "cut": "true", "readFrom": "any", "numPartitions": "8", "timeout": "60"}
    frame = spark.read.format("holdfast").options(**options).load("m")
    (folder / "cut").touch()

    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            if number == 0:
                (folder / "reading").touch()
                while not (folder / "go").exists():
                    time.sleep(0.05)
                die_once(folder)
            yield batch

    def digest() -> str:
        rows = frame.mapInArrow(slowly, frame.schema).toArrow().to_pylist()
        texts = sorted(f"{row['id']}:{row['word']}" for row in rows)
        return hashlib.sha256("\n".join(texts).encode()).hexdigest() + f" {len(texts)}"

    print(json.dumps({"digests": [digest(), digest()], "killed": (folder / "killed").exists()}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
