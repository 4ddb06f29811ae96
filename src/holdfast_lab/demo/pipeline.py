"""Spark jobs of the demo: load the rows, and compare the members' contents with the expected ones."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from holdfast.replica_comparison.comparison_report import describe
from holdfast.spark.java import java_home
from holdfast.spark.pipeline.compare import compare_with_source
from holdfast.spark.pipeline.export import Exported, export
from holdfast.spark.pipeline.load import Loaded, load
from holdfast.spark.pipeline.restoring import Restored, restore
from holdfast.spark.pipeline.verify import verify
from holdfast.spark.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAP = "rows"
EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Comparison:
    compared: int
    wrong: int
    examples: list[str] = field(default_factory=list)


def java() -> str:
    """Raises ConfigError, which says what to install."""
    return f"Spark will run on the Java in {java_home()}"


@contextmanager
def stderr_to(file: Path) -> Iterator[None]:
    """Processes started in this block write their standard error into the file."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with file.open("wb") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


class Job:
    """A Spark session and the rows. A context manager: Spark ends with the block."""

    def __init__(self, parquet: Path, key: tuple[str, ...], log: Path) -> None:
        self.key = key
        self.log = log
        self._parquet = parquet
        self._spark: SparkSession
        self._rows: DataFrame

    def __enter__(self) -> Self:
        with stderr_to(self.log):
            self._spark = session("local[2]", "python -m holdfast_lab demo")
        self._rows = self._spark.read.parquet(str(self._parquet))
        return self

    def __exit__(self, *_: object) -> None:
        self._spark.stop()

    def load(self, addresses: list[str]) -> Loaded:
        """Store every row under its key; each task writes directly to the owners of the partitions."""
        return load(self._spark, str(self._parquet), MAP, self.key, address=",".join(addresses))

    def compare_replicas(self, addresses: list[str]) -> Comparison:
        """Every backup with its primary, for all maps, and the replicas of zones."""
        report = verify(self._spark, ",".join(addresses))
        wrong = [finding for finding in report.findings if finding.verdict != "equal"]
        examples = [describe(finding, report.names) for finding in wrong[:EXAMPLES]]
        return Comparison(report.copies, len(wrong), examples)

    def compare_rows(self, addresses: list[str]) -> Comparison:
        """In both directions."""
        found = compare_with_source(self._spark, self._rows, MAP, self.key, address=",".join(addresses))
        wrong = found.missing + found.extra + found.different
        return Comparison(found.equal + wrong, wrong, [str(sample) for sample in found.samples[:EXAMPLES]])

    def export(self, addresses: list[str], folder: Path, maps: Sequence[str]) -> Exported:
        """Write the rows and these other maps, as of one cut, into a new folder."""
        return export(self._spark, ",".join(addresses), folder, maps=[MAP, *maps])

    def restore(self, addresses: list[str], folder: Path) -> Restored:
        """Store an export in a cluster that has nothing of its maps."""
        return restore(self._spark, folder, ",".join(addresses))
