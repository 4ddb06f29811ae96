"""Common parts of commands that run Spark jobs: options, a session that is stopped, progress.

@click.command
@spark_options
@credentials
def export(..., master: str, memory: str, credentials: Credentials) -> None:
    with spark_job(master, memory, "export") as spark:
        result = job(spark, ..., progress=show_progress(quiet=as_json))
    click.echo(result)
"""

from __future__ import annotations

import functools
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.control import Control

from holdfast.errors import ConfigError, NotInstalled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.spark.jobs import Progress, Show

NEEDED = ("pyspark", "pyarrow", "pandas")
LINE_EVERY_S = 5.0
"""Interval of progress lines without a terminal."""

NO_LOG = """
appender.none.type = Null
appender.none.name = none
rootLogger.level = off
rootLogger.appenderRef.none.ref = none
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = off
"""
"""Without an appender Spark would use its own settings."""


def _settings(command: Callable[..., Any], *more: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options `master` and `memory`, and `more`."""
    for option in (
        click.option(
            "--memory", default="1g", show_default=True, metavar="SIZE", help="Memory of Spark's driver."
        ),
        click.option(
            "--master", default="local[2]", show_default=True, help="The Spark master that runs the job."
        ),
        *more,
    ):
        command = option(command)
    return command


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options `master` and `memory` for the Spark job. The command fails early if Spark is missing."""

    @functools.wraps(command)
    def with_spark(*arguments: Any, **named: Any) -> Any:
        need_packages()
        return command(*arguments, **named)

    return _settings(with_spark)


@dataclass(frozen=True, slots=True)
class SparkSettings:
    master: str
    memory: str


def optional_spark(meaning: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the option `--spark` with its settings: the command gets `spark`, None without it."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_spark(*call: Any, on_spark: bool, master: str, memory: str, **others: Any) -> Any:
            return command(*call, spark=SparkSettings(master, memory) if on_spark else None, **others)

        return _settings(with_spark, click.option("--spark", "on_spark", is_flag=True, help=meaning))

    return decorated


def bad_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option `bad`: the handling of entries that do not fit the columns."""
    return click.option(
        "--bad",
        metavar="MODE",
        default="fail",
        show_default=True,
        help="Handling of an entry that does not fit the columns: fail, null (null in columns that do not fit), "
        "skip, or 'column NAME' (its raw value goes to that column).",
    )(command)


def spark_or_none_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `master` and `memory`, and `no_spark` for a run without Spark (`spark_or_none`)."""
    no_spark = click.option(
        "--no-spark",
        is_flag=True,
        help="Restore in this process: for data that one host can read and write. Implied without PySpark.",
    )
    return _settings(command, no_spark)


@contextmanager
def spark_or_none(
    master: str, memory: str, title: str, *, no_spark: bool = False
) -> Iterator[SparkSession | None]:
    """A Spark session for the block; None if it is not wanted or PySpark is not installed. Raises ConfigError."""
    if no_spark or find_spec("pyspark") is None:
        if find_spec("pyarrow") is None:
            raise ConfigError(
                "pyarrow is not installed: pip install pyarrow, or '.[spark]' in the source folder"
            )
        yield None
        return
    need_packages()
    with spark_job(master, memory, title) as spark:
        yield spark


def need_packages(extras: str = "spark") -> None:
    """Check early that all packages are present in supported versions. Raises ConfigError.

    `extras`: of Holdfast's package, which install them.
    """
    for package in NEEDED:
        if find_spec(package) is None:
            raise NotInstalled.of("this runs on Spark", package, extras)
    try:
        import holdfast.spark  # noqa: F401 - it looks at the version
    except ImportError as unfit:
        raise ConfigError(str(unfit)) from unfit


def need_spark(extras: str = "spark") -> None:
    """As `need_packages`, and Java. Raises ConfigError."""
    need_packages(extras)
    from holdfast.spark.java import java_home

    java_home()


@contextmanager
def spark_job(master: str, memory: str, title: str) -> Iterator[SparkSession]:
    """A Spark session for the block, stopped after it. Spark's own log is off.

    Raises ConfigError before anything starts if a package or Java is missing, and JobFailed for errors of Spark
    in the block.
    """
    need_spark()
    from holdfast.spark.failures import in_our_words
    from holdfast.spark.spark_session import SETTINGS, session

    java_options = "spark.driver.extraJavaOptions"
    with in_our_words(title), tempfile.TemporaryDirectory(prefix="holdfast-log-") as folder:
        silence = Path(folder, "log4j2.properties")
        silence.write_text(NO_LOG, encoding="utf-8")
        settings = {java_options: f"{SETTINGS[java_options]} -Dlog4j2.configurationFile={silence.as_uri()}"}
        spark = session(master, f"holdfast {title}", settings, memory=memory)
        try:
            spark.sparkContext.setLogLevel("OFF")
            # PySpark would write the Java stack trace of a wrong condition to standard error.
            for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
                logging.getLogger(name).disabled = True
            yield spark
        finally:
            spark.stop()


def show_progress(*, quiet: bool = False) -> Show:
    """Progress of a job on standard error: one line that is updated, or lines at intervals without a terminal.

    `quiet`: show nothing (for `--json`).
    """
    if quiet:
        return _nothing
    console = Console(stderr=True, highlight=False)
    return _Line(console) if console.is_terminal else _Lines()


def progress_text(progress: Progress) -> str:
    """Progress as text: `export: 3 of 8 tasks, 12,000 rows, 4,000 rows/s, 3 s`."""
    parts = [f"{progress.tasks_done} of {progress.tasks} tasks"]
    if progress.partitions:
        parts.append(f"{progress.partitions:,} partitions")
    if progress.rows:
        parts.append(f"{progress.rows:,} rows")
        if progress.seconds > 0:
            parts.append(f"{progress.rows / progress.seconds:,.0f} rows/s")
    return f"{progress.title}: {', '.join(parts)}, {progress.seconds:.0f} s"


class _Line:
    """A line of a terminal that is overwritten."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._over = False

    def __call__(self, progress: Progress) -> None:
        over = progress.tasks_done >= progress.tasks
        if over and self._over:
            return
        self._over = over
        self._console.control(Control.move_to_column(0))
        text = progress_text(progress)[: max(1, self._console.width - 1)]
        self._console.print(text.ljust(self._console.width - 1), end="\n" if over else "", markup=False)


class _Lines:
    def __init__(self) -> None:
        self._told_s = time.monotonic()
        self._over = False

    def __call__(self, progress: Progress) -> None:
        now_s = time.monotonic()
        over = progress.tasks_done >= progress.tasks
        if now_s - self._told_s >= LINE_EVERY_S or over != self._over:
            self._told_s, self._over = now_s, over
            print(progress_text(progress), file=sys.stderr, flush=True)


def _nothing(progress: Progress) -> None: ...
