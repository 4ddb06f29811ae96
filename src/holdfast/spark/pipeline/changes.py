"""The changes of maps as a stream: followed, kept as Parquet, or applied to another map.

    frame = changes(spark, "127.0.0.1:5701", "flights", starting="snapshot")
    query = into_parquet(frame, "/data/flights", every="10 seconds")
    query = mirror(spark, "127.0.0.1:5701", "flights", "copy", checkpoint="/data/flights-to-copy", once=True)
    print(follow(query))

A stream goes on where its checkpoint says. Each of the sinks here holds every change once, whatever fails meanwhile.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from holdfast.config.local_paths import local_path
from holdfast.errors import ConfigError
from holdfast.spark.failures import in_our_words
from holdfast.spark.jobs import POLL_S, Progress, Show, nothing
from holdfast.spark.rows.bad_rows import BadRows
from holdfast.spark.rows.column_schemas import load_schema, store_schema
from holdfast.spark.source.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

EVERY = "1 second"
"""Without a pause Spark asks the members a hundred times a second whether there is something new."""

OBSERVED = "holdfast"
"""The name of what is counted in a query's progress."""
UNFIT = "__unfit"
"""The column by which it is counted."""

MIRRORED = ("op", "partition", "term", "counter", "key", "after as value")


def changes(
    spark: SparkSession,
    address: str,
    *maps: str,
    starting: str = "latest",
    on_gap: str = "fail",
    max_rows: int | None = None,
    value_format: str | None = None,
    **options: str,
) -> DataFrame:
    """The changes of these maps as a streaming DataFrame; `docs/spark.md` tells its columns.

    `max_rows`: about how many rows a batch may have. `options`: others of the data source (`bad`, `user`, ...).
    Raises JobFailed, or what the options' error says.
    """
    given = {
        "address": address,
        "maps": ",".join(maps),
        "startingPosition": starting,
        "onGap": on_gap,
        **options,
    }
    if max_rows is not None:
        given["maxRowsPerBatch"] = str(max_rows)
    if value_format is not None:
        given["valueFormat"] = value_format
    bad = BadRows.parse(options.get("bad", "fail"))
    if bad.mode == "fail":
        with in_our_words("changes"):
            return spark.readStream.format("holdfast").options(**given).load()
    return _counted(spark, given, bad)


def _counted(spark: SparkSession, given: Mapping[str, str], bad: BadRows) -> DataFrame:
    """The same with rows that do not fit counted in the progress of the query: a source cannot do that by itself."""
    from pyspark.sql import functions

    with in_our_words("changes"):
        source = spark.readStream.format("holdfast").options(**{**given, "bad": f"column {UNFIT}"})
        frame = source.load().observe(OBSERVED, functions.count(UNFIT).alias("unfit"))
    if bad.mode == "column":
        if bad.column in frame.columns:
            raise ConfigError(
                f"the option bad names {bad.column!r}, which is a column of every change stream"
            )
        return frame.withColumnRenamed(UNFIT, bad.column)
    if bad.mode == "skip":
        frame = frame.where(functions.col(UNFIT).isNull())
    return frame.drop(UNFIT)


def into_parquet(
    frame: DataFrame,
    folder: str,
    *,
    checkpoint: str | None = None,
    once: bool = False,
    every: str = EVERY,
) -> StreamingQuery:
    """Keep a stream as Parquet files; `once`: what there is now, and then end.

    The folder's list of files (`_spark_metadata`) names those of finished batches only: read it with Spark, and every
    change is there once. `checkpoint`: `_checkpoint` in the folder if left out. Raises ConfigError for a URI: where
    Spark itself has a file system for it, `frame.writeStream` takes it.
    """
    local_path(folder)
    writer = frame.writeStream.format("parquet").option("path", folder)
    return start(writer, checkpoint or f"{folder.rstrip('/')}/_checkpoint", once=once, every=every)


def into_map(
    frame: DataFrame,
    address: str,
    target: str,
    *,
    checkpoint: str,
    once: bool = False,
    every: str = EVERY,
    **options: str,
) -> StreamingQuery:
    """Store a stream in a map. `options`: of the data source (`key`, `valueFormat`, `opColumn`, ...)."""
    writer = frame.writeStream.format("holdfast").options(address=address, map=target, **options)
    return start(writer.outputMode("append"), checkpoint, once=once, every=every)


def mirror(
    spark: SparkSession,
    address: str,
    source: str,
    target: str,
    *,
    checkpoint: str,
    to_address: str | None = None,
    starting: str = "snapshot",
    on_gap: str = "fail",
    max_rows: int | None = None,
    once: bool = False,
    every: str = EVERY,
    credentials: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Let the map `target` follow the map `source`, here or in another cluster, which has the same credentials.

    Whatever else is in the target stays, unless a partition starts over (`on_gap="restart"`): then what the source does
    not have in it is removed, so let nothing else be stored in the target. Raises ConfigError when a map would follow
    itself.
    """
    common = dict(credentials or {})
    to_address = to_address or address
    with (
        Options.parse({"address": address, "map": source, **common}).client() as here,
        Options.parse({"address": to_address, "map": target, **common}).client() as there,
    ):
        if source == target and here.cluster_id == there.cluster_id:
            raise ConfigError(f"the map {source!r} would follow itself; name another map, or another cluster")
        partitions = here.partition_count
        stored = load_schema(here, source)
        if stored is not None and load_schema(there, target) is None:
            store_schema(there, target, stored)
    frame = changes(
        spark,
        address,
        source,
        starting=starting,
        on_gap=on_gap,
        max_rows=max_rows,
        value_format="binary",
        **common,
    )
    return into_map(
        frame.selectExpr(*MIRRORED),
        to_address,
        target,
        checkpoint=checkpoint,
        once=once,
        every=every,
        valueFormat="binary",
        opColumn="op",
        sourceMap=source,
        sourcePartitions=str(partitions),
        **common,
    )


def start(writer: DataStreamWriter, checkpoint: str, *, once: bool, every: str = EVERY) -> StreamingQuery:
    """Run a stream to wherever it goes; `once`: what there is now, and then end."""
    writer = writer.option("checkpointLocation", checkpoint)
    paced = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)
    with in_our_words("stream"):
        return paced.start()


# -- while it runs


@dataclass(frozen=True, slots=True)
class Followed:
    """What a query has done while it was followed."""

    batches: int
    rows: int
    seconds: float
    unfit: int = 0
    """Of the rows: changes that did not fit the columns, if the stream was made by `changes`."""

    def __str__(self) -> str:
        rate = f", {self.rows / self.seconds:,.0f} rows/s" if self.seconds > 0 else ""
        unfit = f"; {self.unfit:,} did not fit the columns" if self.unfit else ""
        return f"{self.rows:,} rows in {self.batches} batches, {self.seconds:.1f} s{rate}{unfit}"


def follow(
    query: StreamingQuery,
    progress: Show = nothing,
    *,
    title: str = "changes",
    timeout_s: float | None = None,
) -> Followed:
    """Wait until the query ends, or so long; what it has done. An interrupt (Ctrl-C) stops it between two questions to
    Spark; a second one is raised as always.

    Raises JobFailed, or what the error of the task or the source says.
    """
    began = time.monotonic()
    counted = _Counted()
    ended = False
    with in_our_words(title), _interrupts() as interrupted:
        while not ended:
            # Spark takes fractions of seconds, whatever its types say.
            ended = bool(query.awaitTermination(POLL_S))  # type: ignore[arg-type]
            counted.take(query)
            seconds = time.monotonic() - began
            progress(Progress(title, counted.batches, counted.batches + (not ended), counted.rows, seconds))
            if interrupted.is_set():
                query.stop()
                break
            if timeout_s is not None and seconds >= timeout_s:
                break
        counted.take(query)
    return Followed(counted.batches, counted.rows, time.monotonic() - began, counted.unfit)


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Set by the first SIGINT of the block, instead of an exception.

    One that comes up within a call to Spark tears the connection to its JVM, and both sides print their stacks. Only
    the main thread may say what signals do; in others nothing is changed.
    """
    seen = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def note(_: int, __: FrameType | None) -> None:
        if seen.is_set():
            raise KeyboardInterrupt
        seen.set()

    before = signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        # None: not set from Python, so it cannot be put back.
        signal.signal(signal.SIGINT, signal.default_int_handler if before is None else before)


class _Counted:
    """Batches and their rows, from what Spark tells of the latest ones."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._unfit: dict[int, int] = {}

    def take(self, query: StreamingQuery) -> None:
        for told in query.recentProgress:
            # A batch is told again, without rows, while there is nothing new.
            self._rows[told.batchId] = max(told.numInputRows, self._rows.get(told.batchId, 0))
            observed = told.observedMetrics.get(OBSERVED)
            if observed is not None and observed.unfit:
                self._unfit[told.batchId] = observed.unfit

    @property
    def batches(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> int:
        return sum(self._rows.values())

    @property
    def unfit(self) -> int:
        return sum(self._unfit.values())
