"""Entries that do not fit the columns, in a Spark session: reads, tables, joins, files and comparisons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.server.memory_cluster import MemoryCluster

from holdfast.client.blocking import Client
from holdfast.errors import ConfigError, HoldfastError

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import DoubleType, LongType, StructType
from tests.spark.read_entries import read_entries

from holdfast.spark.failures import in_our_words
from holdfast.spark.pipeline.compare import compare_with_source
from holdfast.spark.pipeline.export import export
from holdfast.spark.pipeline.extract import extract
from holdfast.spark.pipeline.tables import join_maps, table
from holdfast.spark.pipeline.verified_export import verify_export
from holdfast.spark.rows.column_schemas import StoredSchema, store_schema
from holdfast.spark.rows.stored import json_data, long_data, string_data

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 40
TEXT, CELL, CUT = string_data("oops"), json_data(b'{"id":101,"x":"far"}'), json_data(b'{"id":102,"x":')
UNFIT = {100: TEXT, 101: CELL, 102: CUT}
WHOLE = [(at, at * 1.5) for at in range(ROWS)]
AS_NULL = [*WHOLE, (100, None), (101, None), (102, None)]


def source(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 1).selectExpr("id", "id * 1.5D as x")


@pytest.fixture
def filled(cluster: MemoryCluster) -> MemoryCluster:
    columns = StructType().add("id", LongType()).add("x", DoubleType())
    with Client([cluster.addresses()]) as client:
        for name in ("m", "other"):
            # As Spark would write it, without a Spark job for each test.
            store_schema(client, name, StoredSchema.of(columns, ["id"], "json"))
            for number, x in WHOLE:
                client.set(name, long_data(number), json_data(b'{"id":%d,"x":%f}' % (number, x)))
        for number, value in UNFIT.items():
            client.set("m", long_data(number), value)
    return cluster


def read(spark: SparkSession, cluster: MemoryCluster, **options: Any) -> DataFrame:
    options = {"address": cluster.addresses(), "timeout": "10", **options}
    return spark.read.format("holdfast").options(**options).load("m")


def pairs(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def test_reads_go_on_as_the_option_says(spark: SparkSession, filled: MemoryCluster) -> None:
    with (
        pytest.raises(HoldfastError, match=r"key 10\d of map 'm' \(partition \d+\) .*option bad"),
        in_our_words("read"),
    ):
        read(spark, filled).collect()
    assert read(spark, filled, columns="__partition").count() == ROWS + 3, "counting reads no value"
    assert pairs(read(spark, filled, bad="skip")) == sorted(WHOLE, key=repr)
    assert pairs(read(spark, filled, bad="null")) == sorted(AS_NULL, key=repr)
    assert read(spark, filled, bad="skip", limit=ROWS).count() == ROWS
    assert read(spark, filled, bad="null", limit=7).count() == 7
    assert read(spark, filled, bad="null", columns="x").count() == ROWS + 3
    marked = read(spark, filled, bad="column _bad", columns="id")
    assert marked.columns == ["id", "_bad"]
    # `id` alone fits in the second: what is not read is not judged.
    assert {row.id: row._bad for row in marked.where("_bad is not null").collect()} == {
        100: "oops",
        102: '{"id":102,"x":',
    }
    raw = {row.id: row._bad for row in read(spark, filled, bad="column _bad").where("id >= 100").collect()}
    assert raw == {100: "oops", 101: '{"id":101,"x":"far"}', 102: '{"id":102,"x":'}
    given = "id long, x double, _bad string"
    reader = spark.read.format("holdfast").options(address=filled.addresses(), bad="column _bad")
    assert reader.schema(given).load("m").where("_bad is not null").count() == 3
    with pytest.raises(HoldfastError, match="does not have as a string: add it"), in_our_words("read"):
        reader.schema("id long, x double").load("m").collect()
    with pytest.raises(HoldfastError, match="which is a column of map 'm'"), in_our_words("read"):
        read(spark, filled, bad="column x")


def test_tables_and_joins_go_on(spark: SparkSession, filled: MemoryCluster) -> None:
    address = filled.addresses()
    assert pairs(table(spark, "m", address=address, bad="null")) == sorted(AS_NULL, key=repr)
    assert table(spark, "m", address=address, bad="column _bad", where={"id": 100}).first()._bad == "oops"  # type: ignore[union-attr]
    joined = join_maps(spark, "m", "other", "id", "left", address=address, bad="null")
    assert joined.count() == ROWS + 3
    assert join_maps(spark, "m", "other", "id", "left", address=address, bad="skip").count() == ROWS


def test_files_and_summaries_count_them(spark: SparkSession, filled: MemoryCluster, tmp_path: Path) -> None:
    address = filled.addresses()
    done = extract(spark, "m", tmp_path / "all.jsonl", address=address, bad="skip")
    assert (done.rows, done.unfit) == (ROWS, 3)
    assert "3 of the entries read did not fit the columns" in str(done)
    # A condition does not hide them from the summary.
    done = extract(
        spark, "m", tmp_path / "some.csv", address=address, where="x >= 0", bad="null", columns=["id"]
    )
    assert (done.rows, done.unfit) == (ROWS, 3)
    done = extract(spark, "m", address=address, bad="column raw", columns=["id"], keys=["100"])
    assert done.first is not None
    assert (done.first.to_pylist(), done.unfit) == ([{"id": 100, "raw": "oops"}], 1)
    found = compare_with_source(spark, source(spark), "m", "id", address=address, bad="null")
    assert (found.equal, found.extra, found.unfit) == (ROWS, 3, 3)
    assert "3 entries of the map did not fit its columns" in str(found)
    with pytest.raises(ConfigError, match="a comparison has the option bad = fail or null"):
        compare_with_source(spark, source(spark), "m", "id", address=address, bad="skip")


@pytest.mark.parametrize(
    ("bad", "rows"), [("fail", None), ("null", ROWS + 3), ("skip", ROWS), ("column _bad", ROWS + 3)]
)
def test_decoded_exports_are_whole_and_say_so(
    spark: SparkSession, filled: MemoryCluster, tmp_path: Path, bad: str, rows: int | None
) -> None:
    folder = tmp_path / "export"
    done = export(spark, filled.addresses(), folder, maps=["m"], decoded=True, bad=bad)
    (info,) = done.manifest.maps
    assert (info.rows, verify_export(spark, folder).sound) == (ROWS + 3, True)
    if rows is None:
        assert info.tables == []
        assert "not written in columns: the entry with key 10" in str(done)
        assert "option bad" in str(done)
        return
    kept = pa.concat_tables(pq.read_table(folder / file.path, partitioning=None) for file in info.tables)
    assert (kept.num_rows, info.tables_unfit) == (rows, 3)
    assert "did not fit the columns: 3 entries" in str(done)
    if bad == "column _bad":
        assert {row["id"]: row["_bad"] for row in kept.to_pylist() if row["_bad"]}[100] == "oops"
        with pytest.raises(ConfigError, match="'x', which is a column of map 'm'"):
            export(spark, filled.addresses(), tmp_path / "twice", maps=["m"], decoded=True, bad="column x")


LIKE_SPARK = [
    '{"id":1,"n":2,"t":"x","xs":[1]}',
    '{"id":1}',
    '{"id":null,"n":null,"other":[1,{}]}',
    '"oops"',
    "oops",
    "17",
    '{"id":1,"n":2',
    '{"id":1,"n":300,"t":"x"}',
    '{"id":1,"n":"two","t":"x"}',
    '{"id":"one","n":2,"t":"x"}',
    '{"id":1.5,"n":2}',
    '{"id":1,"n":true}',
    '{"id":99999999999999999999,"n":2}',
    '{"id":1,"t":{"a":[1,2]}}',
    '{"id":1,"t":5}',
    '{"id":1,"xs":{"a":1}}',
    '{"id":1,"xs":"a"}',
]


def test_nulls_are_those_of_sparks_permissive_mode(spark: SparkSession) -> None:
    from pyspark.sql import functions

    columns = pa.schema({"id": pa.int64(), "n": pa.int8(), "t": pa.string(), "xs": pa.list_(pa.int64())})
    marked = columns.append(pa.field("_bad", pa.string()))
    frame = spark.createDataFrame([(text,) for text in LIKE_SPARK], "text string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_bad"}
    wanted = "id long, n byte, t string, xs array<long>, _bad string"
    theirs = [
        row.asDict(True)["found"]
        for row in frame.select(functions.from_json("text", wanted, options).alias("found")).collect()
    ]
    keys = [long_data(at) for at in range(len(LIKE_SPARK))]
    values = [json_data(text.encode()) for text in LIKE_SPARK]
    ours = read_entries(marked, "json", keys, values, "column _bad").to_pylist()
    assert dict(zip(LIKE_SPARK, ours, strict=True)) == dict(zip(LIKE_SPARK, theirs, strict=True))
    assert json.loads(LIKE_SPARK[0])["id"] == 1
