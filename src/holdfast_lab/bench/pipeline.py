"""The Spark pipeline compared with plain pyarrow: `python -m holdfast_lab.bench.pipeline`. A part of
docs/performance.md.

Two real members with one sync backup; Spark on `local[2]`, and two processes of plain pyarrow alternate on the
same cores: the same rows are pushed, loaded, pulled, read, exported and verified. Each round does everything
once; figures are medians of the rounds. At the end it computes plans for clusters of up to a million
partitions.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.client.blocking import Client
from holdfast_lab.bench import bulk, report
from holdfast_lab.bench.run import ROOT
from holdfast_lab.processes.local_cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAP = "bench"
KEY_BYTES, VALUE_BYTES = 16, 100
ROWS_AT_ONCE = 100_000
"""Rows per row group of the generated file."""
SETTLE_S = 120.0
BYTES_TYPE = (-12).to_bytes(4, "big", signed=True)
"""Type id of byte arrays; 4 bytes of length follow."""
PARTITIONS = (10_000, 100_000, 1_000_000)
MEMBERS, GROUPS, COPIES = 1_000, 20, 3
SCENARIO = "join:50"
HEAD = ["job", "rows /s", "MB/s", "seconds", "processor s", "against", "ratio", "by processor", "aim"]


@dataclass(slots=True)
class Job:
    title: str
    against: str = ""
    aim: float | None = None
    seconds: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    """Processor seconds of all processes started here: members, Spark, plain processes."""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def make_parquet(path: Path, rows: int) -> int:
    """The rows as a Parquet file of stored keys and values (byte arrays of 16 and 100 bytes); returns the size
    of the rows.
    """
    dice = random.Random(271)
    schema = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary())])
    key_head = BYTES_TYPE + KEY_BYTES.to_bytes(4, "big")
    value_head = BYTES_TYPE + VALUE_BYTES.to_bytes(4, "big")
    with pq.ParquetWriter(path, schema, compression="zstd", compression_level=1) as writer:
        for start in range(0, rows, ROWS_AT_ONCE):
            numbers = range(start, min(rows, start + ROWS_AT_ONCE))
            keys = [key_head + bulk.key_of(number) for number in numbers]
            values = [value_head + bulk.value_of(dice.randrange(1 << 30), VALUE_BYTES) for _ in numbers]
            writer.write_table(
                pa.table([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=schema)
            )
    return rows * (KEY_BYTES + VALUE_BYTES + 16)


def plain(what: str, address: str, *more: str, parts: int = 2) -> float:
    """Run `parts` processes of plain pyarrow in parallel; returns the seconds of the longest."""
    command = [sys.executable, "-m", "holdfast_lab.bench.plain", what, address, MAP]
    running = [
        subprocess.Popen(
            [*command, str(part), str(parts), *more],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for part in range(parts)
    ]
    for one in running:
        assert one.stdout is not None
        assert one.stdout.readline().strip() == "ready"
    for one in running:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    answers = [json.loads(one.communicate()[0]) for one in running]
    return float(max(answer["seconds"] for answer in answers))


def processor_seconds() -> float:
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(stat[1])
            # Includes ended children.
            spent[int(folder.name)] = sum(map(int, stat[11:15]))
    ticks = 0
    for pid in parents:
        above = pid
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid():
            ticks += spent[pid]
    return ticks / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Bench:
    spark: SparkSession
    address: str
    file: Path
    folder: Path
    rows: int
    jobs: dict[str, Job] = field(
        default_factory=lambda: {
            "push": Job("plain pyarrow pushes, two processes"),
            "load": Job("load of Parquet files (`load(spark, path)`)", "push", 0.8),
            "load frame": Job("load of a DataFrame (`df.write`)", "push", 0.8),
            "pull": Job("plain pyarrow pulls, two processes"),
            "read": Job("read, every row into Spark (`spark.read`, noop sink)", "pull", 0.8),
            "table": Job("read, worked on where it is pulled (`map_batches`)", "pull", 0.8),
            "parquet": Job("Spark: Parquet to Parquet (zstd)"),
            "export": Job("export at a cut (zstd)", "parquet", 0.7),
            "verify": Job("verify: rows of replicas compared"),
        }
    )

    def time(self, name: str, work: Callable[[], object]) -> None:
        began, before = time.perf_counter(), processor_seconds()
        result = work()
        seconds = result if isinstance(result, float) else time.perf_counter() - began
        busy = processor_seconds() - before
        self.jobs[name].seconds.append(seconds)
        self.jobs[name].busy.append(busy)
        click.echo(
            f"  {name}: {seconds:.1f} s, {self.rows / seconds:,.0f} rows/s, {busy:.1f} processor seconds",
            err=True,
        )

    def empty(self) -> None:
        with Client(self.address, timeout_s=120) as client:
            client.clear(MAP)

    def full(self) -> None:
        """Raises if a row is missing from the map."""
        with Client(self.address, timeout_s=120) as client:
            held = client.size(MAP)
        if held != self.rows:
            raise click.ClickException(f"{held} of {self.rows} rows are in the map")

    def round(self) -> None:
        from holdfast.spark.pipeline.export import export
        from holdfast.spark.pipeline.load import load
        from holdfast.spark.pipeline.tables import map_batches
        from holdfast.spark.pipeline.verify import verify

        source = str(self.file)
        options = {"address": self.address, "valueFormat": "binary"}
        spark = self.spark
        for name, work in (
            ("push", lambda: plain("push", self.address, source)),
            ("load", lambda: load(spark, source, MAP, address=self.address, valueFormat="binary")),
            (
                "load frame",
                lambda: (
                    spark.read.parquet(source)
                    .write.format("holdfast")
                    .options(**options)
                    .mode("append")
                    .save(MAP)
                ),
            ),
        ):
            self.empty()
            self.time(name, work)
            self.full()
        self.time("pull", lambda: plain("pull", self.address))
        reader = spark.read.format("holdfast").options(**options)
        self.time("read", lambda: reader.load(MAP).write.format("noop").mode("overwrite").save())
        self.time(
            "table",
            lambda: map_batches(
                spark, MAP, count_bytes, "size long", address=self.address, valueFormat="binary"
            ).toArrow(),
        )
        copy, exported = self.folder / "copy", self.folder / "export"
        self.time(
            "parquet",
            lambda: (
                spark.read.parquet(source)
                .write.option("compression", "zstd")
                .mode("overwrite")
                .parquet(str(copy))
            ),
        )
        self.time("export", lambda: export(spark, self.address, str(exported), maps=[MAP]))
        shutil.rmtree(exported)
        self.time("verify", lambda: verify(spark, self.address, maps=[MAP]))

    def table(self) -> list[list[str]]:
        found = []
        for job in self.jobs.values():
            rate = self.rows / job.median
            other = self.jobs.get(job.against)
            found.append(
                [
                    job.title,
                    f"{rate:,.0f}",
                    f"{rate * (KEY_BYTES + VALUE_BYTES) / 1e6:,.0f}",
                    f"{job.median:.1f}",
                    f"{statistics.median(job.busy):.1f}",
                    job.against,
                    f"{other.median / job.median:.2f}" if other else "",
                    f"{statistics.median(other.busy) / statistics.median(job.busy):.2f}" if other else "",
                    f"≥ {job.aim}" if job.aim else "",
                ]
            )
        return found


def count_bytes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    size = sum(column.nbytes for batch in batches for column in batch.columns)
    yield pa.RecordBatch.from_pydict({"size": [size]})


def plans(spark: SparkSession) -> list[list[str]]:
    """Planning times for a large cluster in seconds, by partitions."""
    from holdfast.planning.forecast import ask
    from holdfast.spark.pipeline.forecast_job import foresee_on_spark

    found = []
    for count in PARTITIONS:
        question = ask([SCENARIO], members=MEMBERS, groups=GROUPS, partitions=count, copies=COPIES)
        answer = foresee_on_spark(spark, question)
        figures = answer.find(SCENARIO)
        click.echo(f"  plan, {count} partitions: {answer.seconds:.1f} s", err=True)
        found.append(
            [
                f"{count:,}",
                f"{answer.seconds:.1f}",
                f"{answer.cpu_s:.1f}",
                f"{count / answer.seconds:,.0f}",
                f"{figures.migrations:,}",
                "..".join(f"{held:,}" for held in figures.held),
            ]
        )
    return found


@click.command()
@click.option("--rows", default=4_000_000, show_default=True, help="Rows of 16-byte key and 100-byte value.")
@click.option("--rounds", default=3, show_default=True, help="How often everything is done.")
@click.option(
    "--plans/--no-plans", "with_plans", default=True, show_default=True, help="Plans of large clusters, too."
)
@click.option("--out", type=click.Path(path_type=Path), help="Page whose part is written.")
def main(rows: int, rounds: int, out: Path | None, *, with_plans: bool) -> None:
    from holdfast.spark.spark_session import session

    load_average = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-pipeline-")))
        file = folder / "rows.parquet"
        make_parquet(file, rows)
        spark = session("local[2]", "holdfast bench", memory="2g")
        stack.callback(spark.stop)
        with LocalCluster(2, "[maps.default]\nbackups = 1\n") as cluster:
            cluster.wait_settled(SETTLE_S)
            address = ",".join(cluster.client_addresses())
            warm = folder / "warm.parquet"
            make_parquet(warm, 20_000)
            click.echo("warming up", err=True)
            Bench(spark, address, warm, folder, 20_000).round()
            bench = Bench(spark, address, file, folder, rows)
            for number in range(rounds):
                click.echo(f"round {number + 1} of {rounds}", err=True)
                bench.round()
        figures = plans(spark) if with_plans else []
    text = page(bench, figures, rounds, load_average)
    click.echo(text)
    target = out or ROOT / "docs" / "performance.md"
    report.write_part(target, "bench pipeline", text, "python -m holdfast_lab.bench.pipeline")
    click.echo(f"Written to {target}")


PLANS_HEAD = [
    "partitions",
    "seconds",
    "processor s of tasks",
    "partitions /s",
    "migrations",
    "replicas a member",
]
METHOD = f"""
Rows have a key of {KEY_BYTES} and a value of {VALUE_BYTES} bytes: byte arrays in their stored form (`binary`).
All of it shares two cores: two members, Spark's JVM, its two Python workers. "Against" is the job of the same table
that the ratio is held to, by time and by processor time. Plain pyarrow is two processes that start, connect, and wait
for a signal before their time runs; Spark's jobs are timed whole, with their planning. "Push" and "load" lay out
messages by the same code; a load also looks through all rows first (`rejects=fail`) and waits for the slower of its
tasks. Processor seconds are those of the members, Spark and the plain processes together.

Where the aim is missed. Reading every row into Spark takes three times the processor time of working on the same rows
where they are pulled (`map_batches`): the difference is what it costs to hand rows from Python to the JVM, which Spark
does row by row. A DataFrame on its way into a map crosses the same border the other way.
"""


def page(bench: Bench, figures: list[list[str]], rounds: int, load_average: float) -> str:
    rows = report.table(HEAD, bench.table())
    text = (
        f"## The pipeline\n\nMade by `python -m holdfast_lab.bench.pipeline`.\n\n{rows}\n\n"
        f"* {bench.rows:,} rows, medians of {rounds} rounds. {report.machine(load_average)}.\n{METHOD}"
    )
    if figures:
        text += (
            f"\n### Plans\n\n{MEMBERS:,} members in {GROUPS} groups, {COPIES} copies, `{SCENARIO}`, "
            "on `local[2]`:\n\n"
            f"{report.table(PLANS_HEAD, figures)}\n"
        )
    return text


if __name__ == "__main__":
    main()
