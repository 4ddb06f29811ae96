"""Comparisons of real members on a Spark cluster with executors of their own. A test runs it as a process.

`local_cluster_verify.py ADDRESSES STOP` prints JSON for each comparison until the file STOP exists, and once more.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from holdfast.spark.pipeline.verify import verify
from holdfast.spark.spark_session import session


def main(addresses: str, stop: Path) -> None:
    spark = session("local-cluster[2,1,1024]", "holdfast local-cluster verify")
    over = False
    while True:
        result = verify(spark, addresses, keys=True, timeout="60")
        verdicts = {verdict: result.count(verdict) for verdict in ("equal", "differs", "busy", "unreachable")}
        print(json.dumps({**verdicts, "sound": result.sound, "copies": result.copies}), flush=True)
        if over:
            break
        over = stop.exists()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
