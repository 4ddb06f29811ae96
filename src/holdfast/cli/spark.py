"""What the commands that run Spark jobs share: options, a session that is stopped again, progress.

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
"""How often progress is told where there is no terminal."""

NO_LOG = """
appender.none.type = Null
appender.none.name = none
rootLogger.level = off
rootLogger.appenderRef.none.ref = none
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = off
"""
"""Without an appender Spark takes its own settings after all."""


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `master` and `memory`: where its Spark job runs. It is not begun where there is no Spark."""

    @functools.wraps(command)
    def with_spark(*arguments: Any, **named: Any) -> Any:
        need_packages()
        return command(*arguments, **named)

    made: Callable[..., Any] = with_spark
    for option in (
        click.option(
            "--memory", default="1g", show_default=True, metavar="SIZE", help="Memory of Spark's driver."
        ),
        click.option(
            "--master", default="local[2]", show_default=True, help="The Spark master that runs the job."
        ),
    ):
        made = option(made)
    return made


def bad_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `bad`: what happens to entries that do not fit the columns."""
    return click.option(
        "--bad",
        metavar="MODE",
        default="fail",
        show_default=True,
        help="Handling of an entry that does not fit the columns: fail, null (null in columns that do not fit), "
        "skip, or 'column NAME' (its raw value goes to that column).",
    )(command)


def spark_or_none_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `master` and `memory` as above, and `no_spark`: whether it is to do without (`spark_or_none`)."""
    for option in (
        click.option(
            "--memory", default="1g", show_default=True, metavar="SIZE", help="Memory of Spark's driver."
        ),
        click.option(
            "--master", default="local[2]", show_default=True, help="The Spark master that runs the job."
        ),
        click.option(
            "--no-spark",
            is_flag=True,
            help="Restore in this process: for data that one host can read and write. Implied without PySpark.",
        ),
    ):
        command = option(command)
    return command


@contextmanager
def spark_or_none(
    master: str, memory: str, title: str, *, no_spark: bool = False
) -> Iterator[SparkSession | None]:
    """A Spark session for the block; None when it is not wanted, or PySpark is not installed. Raises ConfigError."""
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
    """Say what is missing, or too old, before anything starts, rather than by a stack of import errors.

    `extras`: those of the package that bring it. Raises ConfigError.
    """
    for package in NEEDED:
        if find_spec(package) is None:
            raise NotInstalled.of("this runs on Spark", package, extras)
    try:
        import holdfast.spark  # noqa: F401 - it looks at the version
    except ImportError as unfit:
        raise ConfigError(str(unfit)) from unfit


def need_spark(extras: str = "spark") -> None:
    """The same, and Java. Raises ConfigError."""
    need_packages(extras)
    from holdfast.spark.java import java_home

    java_home()


@contextmanager
def spark_job(master: str, memory: str, title: str) -> Iterator[SparkSession]:
    """A Spark session for the block, stopped after it. Spark's own log is off: what fails is raised in our words.

    Raises ConfigError before anything starts when a package or Java is missing, and JobFailed for what Spark raises in
    the block.
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
            # PySpark writes the whole Java stack trace of a wrong condition to standard error by itself.
            for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
                logging.getLogger(name).disabled = True
            yield spark
        finally:
            spark.stop()


def show_progress(*, quiet: bool = False) -> Show:
    """Progress of a job on standard error: one line that changes, or a line now and then where there is no terminal.

    `quiet`: nothing is shown (for `--json`).
    """
    if quiet:
        return _nothing
    console = Console(stderr=True, highlight=False)
    return _Line(console) if console.is_terminal else _Lines()


def progress_text(progress: Progress) -> str:
    """Progress in words: `export: 3 of 8 tasks, 12,000 rows, 4,000 rows/s, 3 s`."""
    parts = [f"{progress.tasks_done} of {progress.tasks} tasks"]
    if progress.partitions:
        parts.append(f"{progress.partitions:,} partitions")
    if progress.rows:
        parts.append(f"{progress.rows:,} rows")
        if progress.seconds > 0:
            parts.append(f"{progress.rows / progress.seconds:,.0f} rows/s")
    return f"{progress.title}: {', '.join(parts)}, {progress.seconds:.0f} s"


class _Line:
    """One line of a terminal, written over and over."""

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
    """A line every few seconds, and one at the end."""

    def __init__(self) -> None:
        self._told_s = time.monotonic()
        self._over = False

    def __call__(self, progress: Progress) -> None:
        now_s = time.monotonic()
        over = progress.tasks_done >= progress.tasks
        if now_s - self._told_s >= LINE_EVERY_S or over != self._over:
            self._told_s, self._over = now_s, over
            print(progress_text(progress), file=sys.stderr, flush=True)


def _nothing(progress: Progress) -> None:
    """Show nothing."""
