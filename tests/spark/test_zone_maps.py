"""Maps in zones in the pipeline, on member processes: load, read, export and restore, beside other maps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa

from holdfast.client.blocking import Client
from holdfast.errors import HoldfastError
from holdfast.spark.pipeline.changes import mirror
from holdfast.spark.pipeline.compare import compare_with_source
from holdfast.spark.pipeline.export import export
from holdfast.spark.pipeline.load import load
from holdfast.spark.pipeline.restoring import restore
from holdfast.spark.pipeline.tables import map_batches, table
from holdfast.spark.rows.column_schemas import load_schema
from holdfast.wire.own import PutKind
from holdfast.wire.values import to_stored
from holdfast_lab.processes.local_cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[partitions]
count = 31
[metastore]
voters = 3
[maps.raft]
raft_zone = "z"
[maps.again]
raft_zone = "z"
[maps.feed]
raft_zone = "z"
changes_bytes = 16777216
[maps.copy]
raft_zone = "z"
[maps.nowhere]
raft_zone = "none"
"""
ROWS = 5000


@pytest.fixture(scope="module")
def members(java: None) -> Iterator[LocalCluster]:
    """Four members and three replicas, so that the primaries of some partitions are no leaders."""
    with LocalCluster(4, CONFIG) as running:
        running.wait_settled()
        running.create_zone("z", 3, 3600)
        running.wait_served()
        yield running


@pytest.fixture
def address(members: LocalCluster) -> str:
    return ",".join(members.client_addresses())


def totals(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the rows of a share of the map, in the worker."""
    yield pa.RecordBatch.from_pydict(
        {"rows": pa.array([sum(batch.num_rows for batch in batches)], pa.int64())}
    )


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 4).selectExpr("id", "concat('word-', id) as word", "id / 7 as part")


def test_a_map_in_a_zone_is_loaded_read_exported_and_restored(
    spark: SparkSession, address: str, tmp_path: Path
) -> None:
    frame = rows(spark)
    for name in ("raft", "primary"):
        loaded = load(spark, frame, name, "id", address=address)
        assert (loaded.rows, loaded.kept) == (ROWS, 0), loaded
    again = frame.selectExpr("id", "'new' as word", "part")
    kept = load(spark, again, "raft", "id", address=address, insert_only=True)
    assert kept.kept == ROWS, kept
    wanted = (ROWS, ROWS, ROWS * (ROWS - 1) // 2)
    for cut in ("true", "false"):
        back = spark.read.format("holdfast").options(address=address, cut=cut).load("raft")
        assert back.selectExpr("count(*)", "count(distinct id)", "sum(id)").first() == wanted
    assert compare_with_source(spark, frame, "raft", "id", address=address).same
    read = table(spark, "raft", address=address, cut=True, where={"id": [15, 16]}).toPandas()
    assert sorted(read["word"]) == ["word-15", "word-16"]
    counted = map_batches(spark, "raft", totals, "rows long", address=address, cut=True).toPandas()
    assert int(counted["rows"].sum()) == ROWS
    done = export(spark, address, tmp_path / "e", maps=["raft", "primary"], decoded=True)
    assert {each.name: each.rows for each in done.manifest.maps} == {"raft": ROWS, "primary": ROWS}
    crossed = {"raft": "outside", "primary": "again"}
    restored = restore(spark, tmp_path / "e", address, rename=crossed)
    assert restored.sound, restored
    frame.limit(100).write.format("holdfast").options(address=address, key="id").mode("overwrite").save(
        "again"
    )
    with Client(address.split(",")) as client:
        assert client.size("again") == 100


def test_a_load_that_cannot_write_refuses_before_it_reads_a_row(spark: SparkSession, address: str) -> None:
    def fail(number: int) -> float:
        raise AssertionError("a row was read")

    from pyspark.sql.functions import udf

    unreadable = rows(spark).withColumn("part", udf(fail, "double")("id"))
    with pytest.raises(HoldfastError, match="holdfast zone create none"):
        load(spark, unreadable, "nowhere", "id", address=address, timeout="2")
    with pytest.raises(HoldfastError, match="transactionRows"):
        load(spark, unreadable, "again", "id", address=address, transaction_rows=10, timeout="2")
    with Client(address.split(",")) as client:
        assert load_schema(client, "nowhere") is None, "no columns are registered"


def content(client: Client, name: str) -> dict[bytes, bytes]:
    pages = [page for partition in range(31) for page in client.scan(name, partition)]
    return {key: value for page in pages for key, value in zip(*page.split(), strict=True)}


def test_changes_are_mirrored_into_another_map_though_a_leader_is_killed(
    spark: SparkSession, members: LocalCluster, address: str, tmp_path: Path
) -> None:
    keys = [to_stored(number) for number in range(2000)]
    with Client(address.split(",")) as client:
        for turn in range(3):
            client.put_columns("feed", keys, [to_stored(f"{turn}/{number}") for number in range(2000)])
            gone = keys[turn * 100 : turn * 100 + 50]
            client.put_columns("feed", gone, [b""] * 50, kinds=bytes([PutKind.REMOVE] * 50))
            done = mirror(spark, address, "feed", "copy", checkpoint=str(tmp_path / "at"), once=True)
            done.awaitTermination()
            assert content(client, "copy") == content(client, "feed")
            assert len(content(client, "feed")) == 1950
            if turn == 0:
                members.kill(members.alive[2])
                members.wait_served(60)
