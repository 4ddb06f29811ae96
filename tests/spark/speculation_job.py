"""A load with a slow task, of which Spark runs a twin at the same time. A test runs it as a process.

`speculation_job.py MASTER ADDRESSES ROWS FOLDER` leaves a file PARTITION-ATTEMPT in FOLDER for each begun task,
and prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.spark.pipeline.load import load
from holdfast.spark.spark_session import session

if TYPE_CHECKING:
    import pyarrow as pa

SLOW_S = 12.0
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def main(master: str, addresses: str, rows: int, folder: str) -> None:
    spark = session(master, "holdfast speculation test", SETTINGS)

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        Path(folder, f"{context.partitionId()}-{context.attemptNumber()}").touch()
        for batch in batches:
            if context.partitionId() == 0 and context.attemptNumber() == 0:
                time.sleep(SLOW_S)
            yield batch

    frame = spark.range(0, rows, 1, 4).mapInArrow(slowly, "id long")
    rejects = str(Path(folder, "rejects"))
    # One row cannot be stored, for the twins' rejects to meet.
    frame = frame.selectExpr("nullif(id, 0) as id", "id as n")
    done = load(spark, frame, "m", "id", address=addresses, rejects=rejects)
    print(json.dumps({"rows": done.rows, "rejected": done.rejected}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
