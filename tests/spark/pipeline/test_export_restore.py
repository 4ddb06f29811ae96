"""Export and restore in a Spark session: against members in this process, and against processes that are killed."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pandas as pd
import pyarrow.parquet as pq
import pytest
from tests.server.memory_cluster import MemoryCluster

from holdfast.client.blocking import Client
from holdfast.errors import ConfigError
from holdfast.replica_comparison.live import diverged
from holdfast.wire.hazelcast.compact_schemas import schema_entry
from holdfast.wire.hazelcast.layouts import Schema
from holdfast.wire.values import from_stored, to_stored
from holdfast_lab.processes.local_cluster import LocalCluster

pytest.importorskip("pyspark")

from holdfast.client.holdings import read_holdings
from holdfast.spark.jobs import Progress
from holdfast.spark.pipeline.export import export
from holdfast.spark.pipeline.manifest import BadExport, hex_digest, read_manifest
from holdfast.spark.pipeline.restoring import restore
from holdfast.spark.pipeline.verified_export import verify_export

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = schema_entry(Schema("Flight", [("id", 7)]))
CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[maps.default]
backups = 1
"""
KEYS = 400


def write(cluster: MemoryCluster | LocalCluster, frame: DataFrame, name: str) -> None:
    options = {"address": addresses(cluster), "key": "id"}
    frame.write.format("holdfast").options(**options).mode("append").save(name)


def addresses(cluster: MemoryCluster | LocalCluster) -> str:
    return cluster.addresses() if isinstance(cluster, MemoryCluster) else ",".join(cluster.client_addresses())


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr(
        "id", "concat('word-', id) as word", "timestamp_micros(id) as at"
    )


def test_a_grid_is_exported_and_restored_under_another_name(
    spark: SparkSession, cluster: MemoryCluster, tmp_path: Path
) -> None:
    frame = numbers(spark, 2000)
    write(cluster, frame, "flights")
    with Client(cluster.addresses()) as client:
        client.put_columns("a/b", [to_stored("k")], [to_stored(b"\x00\xff")], ttl_ms=0)
        client.put_columns("__schemas", [SCHEMA[0]], [SCHEMA[1]], ttl_ms=0)
    shown: list[Progress] = []
    done = export(spark, cluster.addresses(), tmp_path / "e", decoded=True, progress=shown.append)
    assert [(each.name, each.rows) for each in done.manifest.maps] == [("a/b", 1), ("flights", 2000)]
    assert shown[-1].tasks_done == shown[-1].tasks
    assert shown[-1].rows == 2001
    assert "exported 2,001 rows of 2 maps" in str(done)
    assert verify_export(spark, tmp_path / "e").sound
    # Other programs read the columns where they lie.
    table = pd.read_parquet(tmp_path / "e" / "tables" / "map=flights")
    assert sorted(table["id"]) == list(range(2000))
    assert set(table[table["id"] == 7]["word"]) == {"word-7"}
    with MemoryCluster(2, 7) as other, Client(other.addresses()) as there:
        back = restore(
            spark, tmp_path / "e", other.addresses(), maps=["flights"], rename={"flights": "monday"}
        )
        assert (back.sound, back.rows, back.rows_resent) == (True, 2000, 0)
        read = spark.read.format("holdfast").options(address=other.addresses()).load("monday")
        assert read.exceptAll(frame).count() == 0
        assert there.get("__schemas", SCHEMA[0]) == SCHEMA[1]
        assert there.size("a/b") == 0
        with pytest.raises(ConfigError, match="the map 'monday' has 2,000 entries"):
            restore(spark, tmp_path / "e", other.addresses(), rename={"flights": "monday"})
        # Nothing of it is new, and it is found to be so.
        again = restore(spark, tmp_path / "e", other.addresses(), rename={"flights": "monday"}, mode="append")
        assert (again.sound, there.get("a/b", to_stored("k"))) == (True, to_stored(b"\x00\xff"))
        there.set("monday", to_stored("more"), to_stored(1))
        over = restore(
            spark,
            tmp_path / "e",
            other.addresses(),
            maps=["flights"],
            rename={"flights": "monday"},
            mode="overwrite",
        )
        assert (over.sound, there.size("monday")) == (True, 2000)


@pytest.mark.slow
def test_a_damaged_export_is_refused_before_anything_is_written(
    spark: SparkSession, cluster: MemoryCluster, tmp_path: Path
) -> None:
    write(cluster, numbers(spark, 500), "m")
    done = export(spark, cluster.addresses(), tmp_path / "e")
    path = tmp_path / "e" / done.manifest.maps[0].files[0].path
    data = path.read_bytes()
    path.write_bytes(data[:150] + bytes([data[150] ^ 4]) + data[151:])
    found = verify_export(spark, tmp_path / "e")
    assert not found.sound
    assert [str(path) in why for why in found.damaged] == [True]
    with MemoryCluster(2, 7) as other, Client(other.addresses()) as there:
        with pytest.raises(BadExport, match=r"is damaged.*nothing was written"):
            restore(spark, tmp_path / "e", other.addresses())
        assert (there.size("m"), there.size("__schemas.spark")) == (0, 0)
    with pytest.raises(ConfigError, match="is not empty"):
        export(spark, cluster.addresses(), tmp_path / "e")
    (tmp_path / "e" / "manifest.json").unlink()
    with pytest.raises(BadExport, match="did not finish"):
        verify_export(spark, tmp_path / "e")


class Writes:
    """Sets key 0, 1, 2… of map `w`, over and over, to the number of the write, one after the other."""

    def __init__(self, addresses: str) -> None:
        self._addresses = addresses
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.count = 0

    def __enter__(self) -> Self:
        self._thread.start()
        while self.count < KEYS:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _write(self) -> None:
        with Client(self._addresses) as client:
            while not self._over.is_set():
                client.set("w", to_stored(self.count % KEYS), to_stored(self.count))
                self.count += 1


def one_moment_of_each_partition(folder: Path) -> bool:
    """Whether what was exported of `w` is, in each partition, what one moment has left of the writes in their order."""
    rows = pq.read_table(folder / "entries" / "map=w", partitioning=None).to_pylist()
    latest: dict[int, int] = {}
    for row in rows:
        latest[row["partition"]] = max(latest.get(row["partition"], 0), int(from_stored(row["value"])))  # type: ignore[arg-type]
    for row in rows:
        key, value = int(from_stored(row["key"])), int(from_stored(row["value"]))  # type: ignore[arg-type]
        assert value % KEYS == key
        if value + KEYS <= latest[row["partition"]]:
            return False
    return len(rows) == KEYS


@pytest.mark.slow
def test_a_member_is_killed_while_a_grid_in_use_is_exported(
    spark: SparkSession, java: None, tmp_path: Path
) -> None:
    killed: list[Progress] = []
    with LocalCluster(3, CONFIG) as members:
        members.wait_settled()
        write(members, numbers(spark, 20_000), "m")

        def kill(progress: Progress) -> None:
            if progress.title == "export" and 1 <= progress.tasks_done < progress.tasks and not killed:
                killed.append(progress)
                # The oldest one: the master, and the first that everybody asks.
                members.kill(members.members[0])

        with Writes(addresses(members)) as writes:
            # Until the kill falls into an export: on a quick machine one may be over before it is looked at.
            for attempt in range(20):
                folder = tmp_path / f"e{attempt}"
                done = export(spark, addresses(members), folder, progress=kill)
                if killed:
                    break
        assert killed
        assert writes.count > KEYS
        members.wait_safe(60)
        assert diverged(members.client_addresses()[0]) == []
    assert {each.name: each.rows for each in done.manifest.maps} == {"m": 20_000, "w": KEYS}
    assert one_moment_of_each_partition(folder)
    assert verify_export(spark, folder).sound
    manifest = read_manifest(folder)
    with LocalCluster(2, f"{CONFIG}\n[partitions]\ncount = 50\n") as others:
        others.wait_settled()
        back = restore(spark, folder, addresses(others))
        assert back.sound, back
        with Client(addresses(others)) as client:
            assert client.partition_count == 50
            held = read_holdings(client, range(50), ["m", "w"])
        for name in ("m", "w"):
            assert hex_digest(held[name].digest) == manifest.map(name).digest
        others.wait_safe(60)
        assert diverged(others.client_addresses()[0]) == []
