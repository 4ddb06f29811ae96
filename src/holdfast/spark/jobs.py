"""Runs a job on Spark, or on threads: shares of work, a task for each, progress, and readable errors.

    result = run(spark, shares, work, ddl, title="export", progress=show)

`work` gets one share and yields record batches with the columns of `ddl`. It is pickled and runs in a Python
worker without a member. Shares run in any order and possibly more than once, so side effects must be
idempotent. If `spark` is None the tasks are threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from holdfast.spark.failures import in_our_words
from holdfast.spark.task import check_release, leave_garbage
from holdfast.version import __version__

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession

Share = TypeVar("Share")
Work = Callable[[Share], Iterator[pa.RecordBatch]]

POLL_S = 0.2
THREADS = 2
"""More would only wait for members."""
TASKS_PER_SLOT = 4
"""More shares than slots, so that a slow share delays the job little."""


@dataclass(frozen=True, slots=True)
class Progress:
    title: str
    tasks_done: int
    tasks: int
    rows: int
    seconds: float
    partitions: int = 0
    """Partitions of the grid that finished tasks have completed; 0 for jobs without partitions."""


Show = Callable[[Progress], None]


def nothing(progress: Progress) -> None: ...


class _Here:
    def __init__(self) -> None:
        self.value = 0
        self._adding = threading.Lock()

    def add(self, more: int) -> None:
        with self._adding:
            self.value += more


class Counted:
    """Rows and partitions that tasks have processed; pickled with the work. Tasks call `add`; the driver sees
    the sum when a task ends. A task that ran twice may count twice, so use it for display only.
    """

    def __init__(self, spark: SparkSession | None) -> None:
        self._sum: Accumulator[int] | _Here = _Here() if spark is None else spark.sparkContext.accumulator(0)
        self._through: Accumulator[int] | _Here = (
            _Here() if spark is None else spark.sparkContext.accumulator(0)
        )

    def add(self, rows: int, partitions: int = 0) -> None:
        self._sum.add(rows)
        if partitions:
            self._through.add(partitions)

    @property
    def partitions(self) -> int:
        return self._through.value

    @property
    def rows(self) -> int:
        return self._sum.value


def slots(spark: SparkSession | None) -> int:
    """Number of tasks that run at the same time: the cores of the present executors, or without any,
    `spark.default.parallelism`.
    """
    if spark is None:
        return THREADS
    context = spark.sparkContext
    inside = getattr(context, "_jsc", None)
    if inside is None:
        # Not PySpark's own context, so its executors are unknown.
        return max(1, context.defaultParallelism)
    executors = inside.sc().statusStore().executorList(True)
    cores = sum(executors.apply(at).totalCores() for at in range(executors.size()))
    each = int(context.getConf().get("spark.task.cpus", "1") or "1")
    return max(1, cores // each) if cores else max(1, context.defaultParallelism)


def plan(spark: SparkSession, shares: Sequence[Share], work: Work[Share], ddl: str) -> DataFrame:
    """A DataFrame of the rows that `work` yields for all shares; nothing runs yet. `ddl`: its columns."""
    here = __version__

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        check_release(here)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(shares[int(number or 0)])
        leave_garbage()

    numbers = spark.range(0, len(shares), 1, max(1, len(shares)))
    return numbers.mapInArrow(task, ddl)


def run(
    spark: SparkSession | None,
    shares: Sequence[Share],
    work: Work[Share],
    ddl: str,
    *,
    title: str,
    progress: Show = nothing,
    counted: Counted | None = None,
) -> pa.Table:
    """Gathers the rows on the driver. Raises JobFailed, or the error of a task."""
    if spark is None:
        return _run_here(shares, work, title, progress, counted)
    frame = plan(spark, shares, work, ddl)
    with in_our_words(title), watched(spark, title, len(shares), progress, counted):
        return frame.toArrow()


def _run_here(
    shares: Sequence[Share], work: Work[Share], title: str, progress: Show, counted: Counted | None
) -> pa.Table:
    began_s = time.monotonic()

    def tell(done: int) -> None:
        rows, partitions = (counted.rows, counted.partitions) if counted is not None else (0, 0)
        progress(Progress(title, done, len(shares), rows, time.monotonic() - began_s, partitions))

    batches: list[pa.RecordBatch] = []
    with ThreadPoolExecutor(THREADS) as threads:
        tasks = [threads.submit(_all_of, work, share) for share in shares]
        try:
            for done, task in enumerate(tasks, 1):
                while not wait([task], POLL_S).done:
                    tell(done - 1)
                batches += task.result()
                tell(done)
        except BaseException:
            for task in tasks:
                task.cancel()
            raise
    return pa.Table.from_batches(batches) if batches else pa.table({})


def _all_of(work: Work[Share], share: Share) -> list[pa.RecordBatch]:
    return list(work(share))


class watched:  # noqa: N801 - used like a function
    """Context manager that calls `progress` while its block runs. `tasks` 0: as many as Spark reports."""

    def __init__(
        self, spark: SparkSession, title: str, tasks: int, progress: Show, counted: Counted | None = None
    ) -> None:
        self._context: SparkContext = spark.sparkContext
        self._title = title
        self._tasks = tasks
        self._progress = progress
        self._counted = counted
        self._group = f"holdfast-{title}-{time.monotonic_ns()}"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.monotonic()
        self._context.setJobGroup(self._group, f"holdfast {self._title}")
        if self._progress is not nothing:
            self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        if kind is None and self._progress is not nothing:
            # Spark's own count lags behind: all tasks are done.
            tasks = self._tasks or self._done()[1]
            self._tell(tasks, tasks)

    def _watch(self) -> None:
        while not self._over.wait(POLL_S):
            try:
                self._tell(*self._done())
            except Exception:  # noqa: BLE001 - Spark may be ending; progress is not worth a failure
                return

    def _done(self) -> tuple[int, int]:
        tracker = self._context.statusTracker()
        done = known = 0
        for job in tracker.getJobIdsForGroup(self._group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                stage_info = tracker.getStageInfo(stage)
                if stage_info is not None:
                    done += stage_info.numCompletedTasks
                    known += stage_info.numTasks
        tasks = self._tasks or known
        return min(done, tasks), tasks

    def _tell(self, done: int, tasks: int) -> None:
        counted = self._counted
        rows, partitions = (counted.rows, counted.partitions) if counted is not None else (0, 0)
        seconds = time.monotonic() - self._began
        self._progress(Progress(self._title, done, tasks, rows, seconds, partitions))
