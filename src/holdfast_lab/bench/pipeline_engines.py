"""Spark jobs on maps of both engines: `python -m holdfast_lab.bench.pipeline_engines`. A part of docs/performance.md.

Three members; one map has two sync backups, the other one three replicas of each of 271 Raft partitions. Each round
loads, reads and exports the same rows once with each map, in turns; figures are medians of the rounds.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.actions.change_zone import CreateZone
from holdfast.client.blocking import Client
from holdfast.client.connection import Credentials
from holdfast.client.operator import act_at_any
from holdfast.client_core.routing import parse_addresses
from holdfast_lab.bench import report
from holdfast_lab.bench.pipeline import count_bytes, make_parquet, processor_seconds
from holdfast_lab.bench.run import ROOT
from holdfast_lab.processes.local_cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZONE = "z"
BACKED_UP, RAFT = "backed_up", "raft"
MAPS = (BACKED_UP, RAFT)
CONFIG = f"""
[metastore]
voters = 3
[maps.{BACKED_UP}]
backups = 2
[maps.{RAFT}]
raft_zone = "{ZONE}"
"""
SETTLE_S = 120.0
WARM_ROWS = 20_000
HEAD = ["job", "two backups, rows /s", "Raft, rows /s", "ratio", "by processor"]
METHOD = """
Rows have a key of 16 and a value of 100 bytes. Members, Spark's JVM and its two Python workers share two cores. "By
processor" is the ratio of the processor time of all of them.
"""


@dataclass(slots=True)
class Engines:
    spark: SparkSession
    address: str
    file: Path
    folder: Path
    rows: int
    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    busy: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def time(self, job: str, name: str, work: Callable[[], object]) -> None:
        began, before = time.perf_counter(), processor_seconds()
        work()
        seconds, busy = time.perf_counter() - began, processor_seconds() - before
        self.seconds.setdefault((job, name), []).append(seconds)
        self.busy.setdefault((job, name), []).append(busy)
        click.echo(f"  {job}, {name}: {seconds:.1f} s, {busy:.1f} processor seconds", err=True)

    def round(self) -> None:
        for name in MAPS:
            self._jobs(name)

    def _jobs(self, name: str) -> None:
        from holdfast.spark.pipeline.export import export
        from holdfast.spark.pipeline.load import load
        from holdfast.spark.pipeline.tables import map_batches

        spark, options = self.spark, {"address": self.address, "valueFormat": "binary"}
        with Client(self.address, timeout_s=120) as client:
            client.clear(name)
        self.time("load of Parquet files", name, lambda: load(spark, str(self.file), name, **options))
        with Client(self.address, timeout_s=120) as client:
            if client.size(name) != self.rows:
                raise click.ClickException(f"{client.size(name)} of {self.rows} rows are in {name}")
        reader = spark.read.format("holdfast").options(**options)
        self.time(
            "read, every row into Spark",
            name,
            lambda: reader.load(name).write.format("noop").mode("overwrite").save(),
        )
        self.time(
            "read with `map_batches`",
            name,
            lambda: map_batches(spark, name, count_bytes, "size long", **options).toArrow(),
        )
        exported = self.folder / "export"
        self.time("export at a cut", name, lambda: export(spark, self.address, str(exported), maps=[name]))
        shutil.rmtree(exported)

    def table(self) -> list[list[str]]:
        found = []
        for job in dict.fromkeys(job for job, _ in self.seconds):
            other, raft = (statistics.median(self.seconds[job, name]) for name in MAPS)
            other_busy, raft_busy = (statistics.median(self.busy[job, name]) for name in MAPS)
            rates = [f"{self.rows / seconds:,.0f}" for seconds in (other, raft)]
            found.append([job, *rates, f"{other / raft:.2f}", f"{other_busy / raft_busy:.2f}"])
        return found


@click.command()
@click.option("--rows", default=1_000_000, show_default=True, help="Rows of 16-byte key and 100-byte value.")
@click.option("--rounds", default=3, show_default=True, help="How often everything is done.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=ROOT / "docs" / "performance.md", show_default=True
)
def main(rows: int, rounds: int, out: Path) -> None:
    """Measure Spark jobs on maps of both engines."""
    from holdfast.spark.spark_session import session

    load_average = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-pipeline-")))
        file, warm = folder / "rows.parquet", folder / "warm.parquet"
        make_parquet(file, rows)
        make_parquet(warm, WARM_ROWS)
        spark = session("local[2]", "holdfast bench", memory="2g")
        stack.callback(spark.stop)
        cluster = stack.enter_context(LocalCluster(3, CONFIG))
        cluster.wait_settled(SETTLE_S)
        address = ",".join(cluster.client_addresses())
        act_at_any(parse_addresses(address), Credentials(), CreateZone(ZONE, replicas=3))
        cluster.wait_safe(SETTLE_S)
        Engines(spark, address, warm, folder, WARM_ROWS).round()
        engines = Engines(spark, address, file, folder, rows)
        for number in range(rounds):
            click.echo(f"round {number + 1} of {rounds}", err=True)
            engines.round()
    program = "python -m holdfast_lab.bench.pipeline_engines"
    facts = f"* {rows:,} rows, medians of {rounds} rounds. {report.machine(load_average)}."
    table = report.table(HEAD, engines.table())
    text = f"## The pipeline on Raft maps\n\nMade by `{program}`.\n\n{table}\n\n{facts}\n{METHOD}"
    report.write_part(out, "bench pipeline engines", text, program)
    click.echo(text)


if __name__ == "__main__":
    main()
