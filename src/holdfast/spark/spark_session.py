"""Spark session with the settings for which this pipeline is tuned.

Spark's defaults cost about 60 ms a task (Python workers over TCP), start a web interface, and use the `python3`
on the `PATH` instead of the interpreter with the packages.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    # Loopback TCP between the JVM and its Python workers stalls 40 ms a task (delayed acknowledgements).
    "spark.python.unix.domain.socket.enabled": "true",
    # While this is off, Spark rejects every reader that accepts filters.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Jobs are short: a fast start matters more than peak speed.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def session(
    master: str = "local[2]",
    name: str = "holdfast",
    settings: Mapping[str, str] | None = None,
    *,
    memory: str = "1g",
) -> SparkSession:
    """The Spark session of this process, created if necessary. The data source `holdfast` registers itself.

    `settings` override those above. Raises ConfigError before anything starts if there is no usable Java.
    """
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    scratch = Path(tempfile.mkdtemp(prefix="holdfast-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    # Otherwise workers of a local cluster write into the installed package.
    os.environ.setdefault("SPARK_WORKER_DIR", str(scratch / "work"))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(name).config("spark.driver.memory", memory)
    for key, value in {
        "spark.sql.warehouse.dir": str(scratch / "tables"),
        **SETTINGS,
        **(settings or {}),
    }.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made
