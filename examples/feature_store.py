"""A feature store in one file: Parquet → map → served to a Hazelcast client while a stream updates it → exported again.

    .venv/bin/python examples/feature_store.py                        # starts three members of its own, on loopback
    .venv/bin/python examples/feature_store.py --address HOST:PORT    # or uses yours, see CONFIG

What it shows, step by step, is what a data engineer does with Holdfast:

1. A batch job has left features of customers as Parquet. Spark loads them into the map `features`.
2. A model server, here the official Hazelcast client, reads features by key, and measures how long it waits.
3. Meanwhile a stream of events updates features (Structured Streaming into the map), and a second stream keeps every
   change of the map as Parquet, with old and new values.
4. The map is exported at a consistent cut. Pandas reads the export; the changes, replayed over the first Parquet, must
   give exactly what the members hold.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.spark.pipeline.changes import changes, into_map, into_parquet
from holdfast.spark.pipeline.export import export
from holdfast.spark.pipeline.load import load
from holdfast.spark.spark_session import session
from holdfast_lab.processes.local_cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

MAP = "features"
CONFIG = f"[maps.{MAP}]\nbackups = 1\nchanges_bytes = 4194304\n"
SETTLE_S = 60.0
EVENTS_PER_S = 500
SEED = 271


def write_features(path: Path, customers: int) -> None:
    """What the batch job of last night has left: one row a customer."""
    dice = random.Random(SEED)
    pq.write_table(
        pa.table(
            {
                "customer": [f"c{number:06}" for number in range(customers)],
                "visits": pa.array([dice.randrange(200) for _ in range(customers)], pa.int64()),
                "spent": [round(dice.uniform(0, 5000), 2) for _ in range(customers)],
                "country": [dice.choice(["de", "fr", "it", "pl"]) for _ in range(customers)],
            }
        ),
        path,
    )


def events(spark: SparkSession, customers: int) -> DataFrame:
    """Newer features of some customers, as they would come from a message broker."""
    from pyspark.sql import functions as f

    number = f.pmod(f.hash("value"), f.lit(customers))
    return (
        spark.readStream.format("rate")
        .option("rowsPerSecond", EVENTS_PER_S)
        .load()
        .select(
            f.lit("update").alias("op"),
            f.lit(0).alias("term"),
            # Of several events of a customer the one with the highest number wins...
            f.col("value").alias("counter"),
            f.format_string("c%06d", number).alias("customer"),
            (f.col("value") + 1000).alias("visits"),
            (f.pmod(f.hash("value", "timestamp"), f.lit(500_000)) / 100).alias("spent"),
            f.lit("de").alias("country"),
        )
        # ...if one task has them all.
        .repartition("customer")
    )


class ModelServer:
    """A Hazelcast client that reads features all the time, in a thread of its own."""

    def __init__(self, address: str, customers: int) -> None:
        import hazelcast

        self._client = hazelcast.HazelcastClient(cluster_members=address.split(","))
        self._map: Any = self._client.get_map(MAP).blocking()
        self._customers = customers
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.waits_ms: list[float] = []
        self.missing = 0

    @contextmanager
    def serving(self) -> Iterator[ModelServer]:
        """Serve while the block runs."""
        self._thread.start()
        try:
            yield self
        finally:
            self._over.set()
            self._thread.join(timeout=30)
            self._client.shutdown()

    def _serve(self) -> None:
        dice = random.Random(SEED)
        while not self._over.wait(0.002):
            began = time.perf_counter()
            features = self._map.get(f"c{dice.randrange(self._customers):06}")
            self.waits_ms.append(1000 * (time.perf_counter() - began))
            self.missing += features is None

    def __str__(self) -> str:
        waits = sorted(self.waits_ms)
        middle, late = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
        return f"{len(waits)} reads, {self.missing} without features, p50 {middle:.1f} ms, p99 {late:.1f} ms"


def replayed(
    spark: SparkSession, first: Path, changed: Path
) -> tuple[dict[str, tuple[int, float, str]], int]:
    """The features after every change, made of the first Parquet and the stream's files alone; and of how many
    customers an older event has won over a newer one.
    """
    table = pq.read_table(first).to_pylist()
    found = {row["customer"]: (row["visits"], row["spent"], row["country"]) for row in table}
    newest: dict[str, int] = {}
    rows = spark.read.parquet(str(changed)).orderBy("partition", "term", "counter").collect()
    for row in rows:
        after = row["after"]
        found[after["customer"]] = (after["visits"], after["spent"], after["country"])
        newest[after["customer"]] = max(newest.get(after["customer"], 0), after["visits"])
    return found, sum(found[customer][0] < visits for customer, visits in newest.items())


def wait_for(query: StreamingQuery, rows: int) -> None:
    """Until a stream has finished a batch of at least so many rows."""
    while not any(progress["numInputRows"] >= rows for progress in query.recentProgress):
        failure = query.exception()
        if failure is not None:
            raise failure
        time.sleep(0.2)


def run(spark: SparkSession, address: str, folder: Path, customers: int, seconds: float) -> int:
    """The whole story; answers the exit status."""
    import pandas as pd

    first, changed, exported = folder / "features.parquet", folder / "changes", folder / "export"
    write_features(first, customers)

    print("1. load:", load(spark, str(first), MAP, "customer", address=address, mode="overwrite"))
    keeping = into_parquet(changes(spark, address, MAP), str(changed))
    # Changes are told from its first batch on.
    wait_for(keeping, rows=0)

    print(f"2. + 3. a model server reads while a stream updates, {seconds:g} s")
    with ModelServer(address, customers).serving() as server:
        updating = into_map(
            events(spark, customers),
            address,
            MAP,
            key="customer",
            opColumn="op",
            checkpoint=str(folder / "updating"),
        )
        wait_for(updating, rows=1)
        time.sleep(seconds)
        updating.stop()
    print("   the model server:", server)
    keeping.processAllAvailable()
    keeping.stop()

    print("4. export:", export(spark, address, exported, maps=[MAP], decoded=True))
    held = pd.read_parquet(exported / "tables" / f"map={MAP}")
    expected, older = replayed(spark, first, changed)
    exact = {row.customer: (row.visits, row.spent, row.country) for row in held.itertuples()}
    different = sum(exact.get(key) != value for key, value in expected.items()) + len(
        exact.keys() - expected.keys()
    )
    updates = sum(value[0] >= 1000 for value in expected.values())
    print(f"   {len(exact)} customers exported, {updates} of them updated by the stream, {different} differ")
    return (
        0 if not different and not older and updates and not server.missing and len(exact) == customers else 1
    )


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--address", help="HOST:PORT of members; three of its own if left out")
    parser.add_argument("--customers", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long the stream runs")
    chosen = parser.parse_args()
    # Members that were started here end with this program, also when it is told to end.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-features-")))
        address = chosen.address
        if not address:
            cluster = stack.enter_context(LocalCluster(3, CONFIG))
            cluster.wait_settled(SETTLE_S)
            address = ",".join(cluster.client_addresses())
        spark = session("local[2]", "feature store")
        stack.callback(spark.stop)
        return run(spark, address, folder, chosen.customers, chosen.seconds)


if __name__ == "__main__":
    sys.exit(main())
