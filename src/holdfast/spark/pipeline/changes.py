"""Change streams of maps: followed, kept as Parquet, or applied to another map.

    frame = changes(spark, "127.0.0.1:5701", "flights", starting="snapshot")
    query = into_parquet(frame, "/data/flights", every="10 seconds")
    query = mirror(spark, "127.0.0.1:5701", "flights", "copy", checkpoint="/data/flights-to-copy", once=True)
    print(follow(query))

A stream resumes from its checkpoint. The sinks here contain every change once, whatever fails in between.
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
"""Without a pause Spark would ask the members for news a hundred times a second."""

OBSERVED = "holdfast"
UNFIT = "__unfit"
"""Column from which unfit rows are counted."""

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
    """The changes of these maps as a streaming DataFrame; `docs/spark.md` describes its columns.

    `max_rows`: about how many rows a batch may have. `options`: others of the data source (`bad`, `user`, ...).
    Raises JobFailed, or the error of an option.
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
    """As `changes`, with bad rows counted in the progress of the query, which a source cannot do itself."""
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
    """Keep a stream as Parquet files; `once`: process what there is now, and end.

    The folder's list of files (`_spark_metadata`) names files of finished batches only: read the folder with
    Spark, and every change is there once. `checkpoint`: `_checkpoint` in the folder by default. Raises
    ConfigError for a URI; use `frame.writeStream` where Spark has a file system for it.
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
    """Let the map `target` follow the map `source`, in this or another cluster with the same credentials.

    Other entries of the target stay, unless a partition restarts (`on_gap="restart"`): then entries that the
    source does not have are removed, so nothing else should be stored in the target. Raises ConfigError if a
    map would follow itself.
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
    """Start a stream; `once`: process what there is now, and end."""
    writer = writer.option("checkpointLocation", checkpoint)
    paced = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)
    with in_our_words("stream"):
        return paced.start()


# -- while it runs


@dataclass(frozen=True, slots=True)
class Followed:
    batches: int
    rows: int
    seconds: float
    unfit: int = 0
    """Changes that did not fit the columns, if the stream was made by `changes`."""

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
    """Wait until the query ends, or for `timeout_s`; returns its progress. An interrupt (Ctrl-C) stops the
    query between two calls to Spark; a second one is raised as usual.

    Raises JobFailed, or the error of the task or the source.
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
    """Event that the first SIGINT in the block sets, instead of raising an exception.

    An exception within a call to Spark breaks the connection to its JVM, and both sides print stack traces.
    Only the main thread may handle signals; other threads change nothing.
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
        # None: not set from Python, so it cannot be restored.
        signal.signal(signal.SIGINT, signal.default_int_handler if before is None else before)


class _Counted:
    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._unfit: dict[int, int] = {}

    def take(self, query: StreamingQuery) -> None:
        for told in query.recentProgress:
            # Spark reports a batch again, without rows, while there is nothing new.
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
