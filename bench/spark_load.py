"""Rows a second into two members: `load` of Parquet and of a DataFrame, and plain pyarrow in two processes.

    python bench/spark_load.py [ROWS [FORMAT]]

Members, processes and Spark share the machine, so the ratios matter, not the rates: those of the best times, and those
of the processor time that all of them took together, which other work on the machine disturbs less. Each way ends when
every row is stored on its backup too (`--no-backup`: none is kept).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from holdfast.client.blocking import Client
from holdfast.demo.cluster import LocalCluster
from holdfast.spark.pipeline.load import load
from holdfast.spark.pipeline.parquet import ParquetFiles
from holdfast.spark.rows.schemas import arrow_schema
from holdfast.spark.session import session
from holdfast.spark.source.options import Options
from holdfast.spark.source.writer import Work, write_rows

CONFIG = "[maps.default]\nbackups = {}\n"


TURNS = 4
WAYS = ("plain", "load(path)", "load(DataFrame)", "df.write")


def make(folder: Path, rows: int, value_format: str) -> None:
    """Two files of eight row groups in all: 16-byte keys, 100-byte values."""
    dice = np.random.default_rng(1)
    for part in range(2):
        count = rows // 2
        numbers = np.arange(part * count, (part + 1) * count)
        keys = [b"key-%012d" % number for number in numbers]
        data = dice.integers(0, 255, (count, 100), np.uint8)
        values = [row.tobytes() for row in data]
        if value_format == "binary":
            table = pa.table(
                {
                    "key": pa.array([b"\xff\xff\xff\xf5\x00\x00\x00\x10" + key for key in keys], pa.binary()),
                    "value": pa.array(
                        [b"\xff\xff\xff\xf4\x00\x00\x00\x64" + value for value in values], pa.binary()
                    ),
                }
            )
        else:
            table = pa.table(
                {"key": pa.array([key.decode() for key in keys]), "value": pa.array(values, pa.binary())}
            )
        pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=count // 4, compression="none")


def push(address: str, name: str, value_format: str, file: str) -> None:
    """One of the processes of plain pyarrow."""
    from pyspark.sql.pandas.types import from_arrow_schema

    files = ParquetFiles.open([file])
    key = {} if value_format == "binary" else {"key": "key"}
    options = Options.parse({"address": address, "map": name, "valueFormat": value_format, **key})
    work = Work(options, arrow_schema(from_arrow_schema(files.schema)))
    began, before_s = time.monotonic(), time.process_time()
    written = write_rows(work, files.shares(1)[0].batches(), 0)
    print(written.rows, time.monotonic() - began, before_s)


def processor_seconds() -> float:
    """Of this process and all that descend from it, ended or not."""
    ticks = 0
    own = os.getpid()
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(stat[1])
            spent[int(folder.name)] = sum(map(int, stat[11:15]))
    for pid in parents:
        above = pid
        while above in parents and above != own:
            above = parents[above]
        if above == own:
            ticks += spent[pid]
    return ticks / os.sysconf("SC_CLK_TCK")


def one_way(
    spark: SparkSession, what: str, address: str, folder: Path, value_format: str, rows: int
) -> tuple[float, float, float]:
    """Seconds that it took to write, and to look through the rows before; processor seconds of processes that start."""
    key = "" if value_format == "binary" else "key"
    began = time.monotonic()
    if what == "plain":
        command = [sys.executable, __file__, "push", address, what, value_format]
        running = [
            subprocess.Popen([*command, str(file)], stdout=subprocess.PIPE, text=True)
            for file in sorted(folder.iterdir())
        ]
        told = [one.communicate()[0].split() for one in running]
        return max(float(one[1]) for one in told), 0.0, sum(float(one[2]) for one in told)
    frame = spark.read.parquet(str(folder))
    if what == "df.write":
        options = {"address": address, "valueFormat": value_format, "key": key}
        frame.write.format("holdfast").options(**options).mode("overwrite").save(what)
        return time.monotonic() - began, 0.0, 0.0
    source = str(folder) if what == "load(path)" else frame
    done = load(spark, source, what, key, address=address, valueFormat=value_format)
    assert done.rows == rows, done
    return done.seconds - done.check_seconds, done.check_seconds, 0.0


def main(rows: int, value_format: str, *, backups: int) -> None:
    """Measure all three, several times in turn, and print the best of each."""
    with tempfile.TemporaryDirectory() as path, LocalCluster(2, CONFIG.format(backups)) as cluster:
        folder = Path(path)
        make(folder, rows, value_format)
        cluster.wait_settled()
        address = ",".join(cluster.client_addresses())
        spark = session("local[2]", "bench", memory="2g")
        best: dict[str, float] = {}
        least: dict[str, float] = {}
        for _ in range(TURNS):
            for what in WAYS:
                began_cpu = processor_seconds()
                seconds, checked, aside = one_way(spark, what, address, folder, value_format, rows)
                cpu = processor_seconds() - began_cpu - aside
                said = (
                    f"{what:16} {seconds:6.2f} s {rows / seconds:12,.0f} rows/s {cpu:6.2f} processor seconds"
                )
                print(said + (f", check {checked:.2f} s" if checked else ""), flush=True)
                best[what] = min(best.get(what, 1e9), seconds)
                least[what] = min(least.get(what, 1e9), cpu)
                with Client(address) as client:
                    client.clear(what)
        for what, seconds in best.items():
            print(
                f"best {what:16} {rows / seconds:12,.0f} rows/s, {best['plain'] / seconds:.2f} of plain; "
                f"{least[what]:.2f} processor seconds, {least['plain'] / least[what]:.2f} of plain"
            )
        spark.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["push"]:
        push(*sys.argv[2:])
    else:
        arguments = [one for one in sys.argv[1:] if not one.startswith("-")]
        main(
            int(arguments[0]) if arguments else 1_000_000,
            arguments[1] if len(arguments) > 1 else "primitive",
            backups=0 if "--no-backup" in sys.argv else 1,
        )
