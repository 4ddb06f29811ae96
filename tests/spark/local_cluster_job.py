"""A whole pipeline on a Spark cluster with executors of their own: load, compare, verify. A test runs it as a process.

`local_cluster_job.py ADDRESSES ROWS` prints one line of JSON.
"""

from __future__ import annotations

import json
import sys

from holdfast.spark.pipeline.compare import compare_with_source
from holdfast.spark.pipeline.verify import verify
from holdfast.spark.spark_session import session


def main(addresses: str, rows: int) -> None:
    quick_to_start = {"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    spark = session("local-cluster[2,1,1024]", "holdfast local-cluster test", quick_to_start)
    frame = spark.range(0, rows, 1, 2).selectExpr("id", "concat('word-', id) as word")
    options = {"address": addresses, "key": "id"}
    frame.write.format("holdfast").options(**options).mode("append").save("m")
    compared = compare_with_source(spark, frame, "m", "id", address=addresses)
    report = verify(spark, addresses)
    executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()  # type: ignore[union-attr]
    print(
        json.dumps(
            {
                "equal": compared.equal,
                "same": compared.same,
                "sound": report.sound,
                "copies": report.copies,
                "executors": len(executors) - 1,
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
