"""Reading in a Spark session: filters, cuts, the fast road and joins, against members in this process."""

from __future__ import annotations

import csv
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from tests.server.memory_cluster import MemoryCluster

from holdfast.client.blocking import Client
from holdfast.errors import ConfigError, HoldfastError
from holdfast.server.own_session import OwnSession
from holdfast.wire import own
from holdfast_lab.processes.fork_server import COMMAND

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.spark import jobs
from holdfast.spark.failures import JobFailed, in_our_words
from holdfast.spark.pipeline.extract import extract
from holdfast.spark.pipeline.tables import How, join_maps, map_batches, one_cut, table
from holdfast.spark.rows.stored import json_data, string_data

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 300


def write(cluster: MemoryCluster, frame: DataFrame, name: str = "m", key: str = "id") -> None:
    options = {"address": cluster.addresses(), "key": key, "timeout": "10"}
    frame.write.format("holdfast").options(**options).mode("append").save(name)


def numbers(spark: SparkSession, first: int = 0, count: int = ROWS) -> DataFrame:
    return spark.range(first, first + count, 1, 1).selectExpr(
        "id", "concat('word-', id) as word", "id % 7 as part"
    )


def read(spark: SparkSession, cluster: MemoryCluster, **options: Any) -> DataFrame:
    reader = spark.read.format("holdfast").options(address=cluster.addresses(), timeout="10", **options)
    return reader.load("m")


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[own.Scan]:
    """What members were asked for."""
    found: list[own.Scan] = []
    before = OwnSession._answer

    def answer(session: OwnSession, question: own.Question) -> None:
        if isinstance(question, own.Scan) and not question.map.startswith("__"):
            found.append(question)
        before(session, question)

    monkeypatch.setattr(OwnSession, "_answer", answer)
    return found


def test_filters_on_keys_and_partitions_reach_the_members_if_that_is_wanted(
    spark: SparkSession, cluster: MemoryCluster, scans: list[own.Scan]
) -> None:
    write(cluster, numbers(spark))
    for where, asked, wanted in (
        ("id in (1, 2, 3) and part = 2 and word like 'w%'", 12, [2]),
        ("id = 3 or part = 3 and id < 20", 31, [3, 10, 17]),
    ):
        scans.clear()
        frame = read(spark, cluster, pushdown="true").where(where)
        assert sorted(row.id for row in frame.collect()) == wanted, where
        assert len(scans) <= asked, where
    scans.clear()
    some = read(spark, cluster, pushdown="true", partitionColumn="true").where("__partition between 3 and 5")
    assert {row["__partition"] for row in some.collect()} == {3, 4, 5}
    assert {scan.partition for scan in scans} == {3, 4, 5}


def test_a_frame_that_is_used_with_several_filters_loses_no_row(
    spark: SparkSession, cluster: MemoryCluster
) -> None:
    """What Spark plans with the filters of one query it keeps for the next ones on the same frame or view."""
    write(cluster, numbers(spark))
    frame = read(spark, cluster)
    assert frame.where("id = 3").count() == 1
    assert frame.count() == ROWS
    assert sorted(row.id for row in frame.where("id = 3").union(frame.where("id = 4")).collect()) == [3, 4]
    assert frame.where("id = 3").selectExpr("id as a").crossJoin(frame).count() == ROWS


def test_a_session_that_hands_no_filters_over_reads_all_the_same(
    spark: SparkSession, cluster: MemoryCluster, scans: list[own.Scan]
) -> None:
    write(cluster, numbers(spark))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        scans.clear()
        assert read(spark, cluster, pushdown="true").where("id = 7").count() == 1
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    assert len(scans) == 31


def test_all_uses_of_a_frame_have_one_cut(spark: SparkSession, cluster: MemoryCluster) -> None:
    write(cluster, numbers(spark))
    frame = read(spark, cluster, cut="true")
    given = read(spark, cluster, cut="true", pushdown="true")
    write(cluster, numbers(spark, ROWS, 50))
    assert frame.count() == ROWS
    assert frame.where("id >= 0").count() == ROWS
    assert given.where(f"id in ({ROWS - 1}, {ROWS})").count() == 1
    assert frame.agg({"id": "max"}).first() == (ROWS - 1,)
    assert read(spark, cluster, cut="true").count() == ROWS + 50


@pytest.mark.slow
def test_secrets_are_in_no_plan_and_no_error(
    spark: SparkSession, cluster: MemoryCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    for member in cluster.members:
        member.user = ("me", "hush-hush", None)
    secret = {"user": "me", "password": "hush-hush"}
    options = {"address": cluster.addresses(), "key": "id", **secret}
    numbers(spark).write.format("holdfast").options(**options).mode("append").save("m")
    frames = [
        read(spark, cluster, **secret).where("id > 3"),
        table(spark, "m", address=cluster.addresses(), **secret),
        join_maps(spark, "m", "m", "id", address=cluster.addresses(), **secret),
    ]
    shown = ""
    for frame in frames:
        frame.count()
        frame.explain("extended")
        shown += frame._jdf.queryExecution().toString()  # type: ignore[operator]
    with Client(cluster.addresses(), username="me", password="hush-hush") as client:
        client.set("m", string_data("bad"), json_data(b"17"))
    for frame in frames[:2]:
        with pytest.raises(Exception, match="key 'bad'") as failed:
            frame.collect()
        shown += str(failed.value)
    for frame in frames[2:]:
        with (
            pytest.raises(JobFailed, match=r"^read: the entry with key 'bad' of map 'm' does not fit"),
            in_our_words("read"),
        ):
            frame.collect()
    out, err = capfd.readouterr()
    assert "holdfast" in shown.lower()
    for text in (shown, out, err):
        assert "hush-hush" not in text


# -- the fast road


def test_a_table_is_what_the_source_reads(
    spark: SparkSession, cluster: MemoryCluster, scans: list[own.Scan]
) -> None:
    write(cluster, numbers(spark))
    address = cluster.addresses()
    whole = table(spark, "m", address=address)
    assert whole.dtypes == read(spark, cluster).dtypes
    assert sorted(whole.collect()) == sorted(numbers(spark).collect())
    scans.clear()
    some = table(spark, "m", address=address, columns=["word", "id"], where={"id": [3, 4, 10_000]})
    assert sorted(some.collect()) == [("word-3", 3), ("word-4", 4)]
    assert all(scan.keys and scan.fields == ["word", "id"] for scan in scans)
    none = table(spark, "m", address=address, where={"id": []})
    assert (none.columns, none.collect()) == (["id", "word", "part"], [])
    assert table(spark, "m", address=address, limit=5).count() == 5
    with pytest.raises(ConfigError, match="there is no column 'x'; the columns are id, word, part"):
        table(spark, "m", address=address, where={"x": 1})


def test_rows_are_worked_on_where_they_are_pulled(spark: SparkSession, cluster: MemoryCluster) -> None:
    write(cluster, numbers(spark))
    address = cluster.addresses()

    def totals(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counted = pa.Table.from_batches([batch]).group_by("part").aggregate([("id", "sum")])
            yield from counted.to_batches()

    into = f"part {dict(read(spark, cluster).dtypes)['part']}, id_sum long"
    sums = map_batches(spark, "m", totals, into, address=address, columns=["part", "id"], cut=True)
    found = {row[0]: row[1] for row in sums.groupBy("part").sum("id_sum").collect()}
    assert found == {row[0]: row[1] for row in numbers(spark).groupBy("part").sum("id").collect()}
    assert len(found) > 1
    with pytest.raises(ConfigError, match="no column 'x'"):
        map_batches(spark, "m", totals, into, address=address, columns=["x"])


def test_several_maps_are_read_at_one_cut(spark: SparkSession, cluster: MemoryCluster) -> None:
    write(cluster, numbers(spark))
    write(cluster, numbers(spark, count=20), "n")
    address = cluster.addresses()
    with one_cut(["m", "n"], address=address) as cut:
        write(cluster, numbers(spark, 1000, 20))
        write(cluster, numbers(spark, 1000, 20), "n")
        assert table(spark, "m", address=address, cut=cut).count() == ROWS
        assert table(spark, "n", address=address, cut=cut).count() == 20
    assert all(len(member.cuts) == 0 for member in cluster.members)


def test_fields_of_structs_may_have_any_name(spark: SparkSession, cluster: MemoryCluster) -> None:
    write(
        cluster,
        spark.sql("select 1L as id, named_struct('a b', 1, 'c-d', array(named_struct('e f', 2))) as s"),
    )
    (row,) = table(spark, "m", address=cluster.addresses()).collect()
    assert (row.s["a b"], row.s["c-d"][0]["e f"]) == (1, 2)


# -- joins


def test_maps_are_joined_as_spark_joins_them(spark: SparkSession, cluster: MemoryCluster) -> None:
    left = numbers(spark, 0, 120)
    right = numbers(spark, 60, 120).selectExpr("id", "concat('other-', id) as word", "id * 0.5 as half")
    write(cluster, left)
    write(cluster, right, "n")
    for how in get_args(How):
        joined = join_maps(spark, "m", "n", "id", how, address=cluster.addresses(), numPartitions=2)
        wanted = left.join(right.withColumnRenamed("word", "word_right"), "id", how)
        assert joined.columns == wanted.columns
        assert Counter(joined.collect()) == Counter(wanted.collect()), how


def test_keys_of_several_columns_are_joined_and_no_shuffle_is_planned(
    spark: SparkSession, cluster: MemoryCluster
) -> None:
    frame = numbers(spark, 0, 100).selectExpr("word", "part", "id")
    write(cluster, frame, "a", "word,part")
    write(cluster, frame.where("id % 2 = 0"), "b", "word,part")
    address = cluster.addresses()
    joined = join_maps(
        spark, "a", "b", ["word", "part"], address=address, columns=["id"], right_columns=["id"], cut=True
    )
    assert joined.columns == ["word", "part", "id", "id_right"]
    assert sorted(row.id for row in joined.collect()) == list(range(0, 100, 2))
    assert "Exchange" not in joined._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]


def test_maps_that_are_not_in_step_are_left_to_spark(spark: SparkSession, cluster: MemoryCluster) -> None:
    write(cluster, numbers(spark))
    write(cluster, numbers(spark, count=20), "by-word", "word")
    write(cluster, numbers(spark, count=20).selectExpr("cast(id as int) as id"), "ints")
    with Client(cluster.addresses()) as client:
        client.set("foreign", string_data("a"), json_data(b'{"id": 5}'))
    for right, why in (
        ("by-word", "the key of map 'by-word' is word, not id; Spark joins such maps"),
        ("ints", "'id' is bigint in map 'm' and int in map 'ints'"),
        ("foreign", "was not written through Spark"),
    ):
        with pytest.raises(ConfigError, match=why):
            join_maps(spark, "m", right, "id", address=cluster.addresses())


def test_an_entry_under_another_key_than_its_columns_say_is_not_joined_wrongly(
    spark: SparkSession, cluster: MemoryCluster
) -> None:
    write(cluster, numbers(spark))
    write(cluster, numbers(spark), "n")
    with Client(cluster.addresses()) as client:
        client.set("n", string_data("elsewhere"), json_data(b'{"id": 5, "word": "x"}'))
    with (
        pytest.raises(HoldfastError, match="key 'elsewhere' of map 'n' has other key columns"),
        in_our_words("join"),
    ):
        join_maps(spark, "m", "n", "id", address=cluster.addresses()).collect()


# -- into files


def test_rows_go_into_one_file(spark: SparkSession, cluster: MemoryCluster, tmp_path: Path) -> None:
    write(cluster, numbers(spark))
    address = cluster.addresses()
    seen: list[jobs.Progress] = []
    result = extract(spark, "m", tmp_path / "all.parquet", address=address, cut=True, progress=seen.append)
    assert result.rows == ROWS
    assert f"{ROWS} rows of map 'm' into" in str(result)
    assert sorted(pq.read_table(tmp_path / "all.parquet")["id"].to_pylist()) == list(range(ROWS))
    assert seen[-1].tasks_done == seen[-1].tasks
    extract(
        spark, "m", tmp_path / "some.csv", address=address, columns=["word"], where="part = 3 and id < 50"
    )
    with (tmp_path / "some.csv").open() as lines:
        assert sorted(row["word"] for row in csv.DictReader(lines)) == sorted(
            f"word-{at}" for at in range(50) if at % 7 == 3
        )
    extract(spark, "m", tmp_path / "two.jsonl", address=address, keys=["7", "9"])
    found = [json.loads(line) for line in (tmp_path / "two.jsonl").read_text().splitlines()]
    assert sorted(row["id"] for row in found) == [7, 9]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.parquet", "some.csv", "two.jsonl"]
    with pytest.raises(ConfigError, match=r"\.parquet, \.csv, \.jsonl"):
        extract(spark, "m", tmp_path / "a.txt", address=address)


def test_a_failed_read_leaves_the_file_as_it_was(
    spark: SparkSession, cluster: MemoryCluster, tmp_path: Path
) -> None:
    write(cluster, numbers(spark))
    file = tmp_path / "all.csv"
    file.write_text("before")
    with Client(cluster.addresses()) as client:
        client.set("m", string_data("bad"), json_data(b"17"))
    with pytest.raises(JobFailed, match=r"^read m: the entry with key 'bad'"):
        extract(spark, "m", file, address=cluster.addresses())
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.slow
def test_the_command_shows_rows_and_tells_errors_in_one_line(java: None, cluster: MemoryCluster) -> None:
    with Client(cluster.addresses()) as client:
        for at in range(30):
            client.set(
                "other", string_data(f"k{at}"), json_data(b'{"id": %d, "text": "a [b] %d"}' % (at, at))
            )

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, "read", *words, cluster.addresses().split(",")[0]]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)

    good = run("other", "--where", "id >= 28", "--json")
    assert good.returncode == 0, good.stderr
    assert sorted(json.loads(line)["text"] for line in good.stdout.splitlines()) == ["a [b] 28", "a [b] 29"]
    bad = run("other", "--where", "nonsense = 1")
    assert bad.returncode == 1
    assert "nonsense" in bad.stderr
    assert "at org.apache" not in bad.stderr
    assert "Traceback" not in bad.stderr


def test_a_view_keeps_its_options_and_a_table_of_the_catalog_does_not(
    spark: SparkSession, cluster: MemoryCluster
) -> None:
    """As docs/spark.md says of `CREATE TABLE`."""
    given = f"address '{cluster.addresses()}', map 'm', key 'id', timeout '10'"
    named = f"address = '{cluster.addresses()}', map = 'm', timeout = '10'"
    spark.sql(f"CREATE TEMPORARY VIEW of_m (id BIGINT, word STRING) USING holdfast OPTIONS ({given})")
    spark.sql("INSERT INTO of_m VALUES (1, 'one')")
    assert spark.sql("SELECT * FROM of_m").collect() == [(1, "one")]
    spark.sql(f"CREATE TABLE table_of_m (id BIGINT, word STRING) USING holdfast OPTIONS ({given})")
    try:
        with pytest.raises(Exception, match="the option address is missing"):
            spark.sql("SELECT * FROM table_of_m").collect()
        assert spark.sql(f"SELECT * FROM table_of_m WITH ({named})").collect() == [(1, "one")]
    finally:
        spark.sql("DROP TABLE table_of_m")
        spark.sql("DROP VIEW of_m")
    with pytest.raises(Exception, match="unknown option"):
        spark.sql(f"CREATE TABLE another USING holdfast OPTIONS ({given})")
