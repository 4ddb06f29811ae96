"""The data source in a Spark session, against members in this process."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.server.memory_cluster import MemoryCluster

from holdfast.client.blocking import Client
from holdfast.errors import ConfigError
from holdfast.wire.values import to_stored

pytest.importorskip("pyspark")

from holdfast.spark import jobs
from holdfast.spark.failures import JobFailed
from holdfast.spark.source.overwriting import OVERWRITES_MAP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TYPED = """
    id, cast(id as tinyint) as b, cast(id as smallint) as s, cast(id as int) as i, id / 3 as d,
    cast(id / 3 as float) as f, if(id % 5 = 0, null, id % 2 = 0) as flag,
    if(id % 7 = 0, null, concat('ü ', id)) as text,
    encode(concat('x', id), 'utf-8') as bytes, date_add(date'2013-01-01', cast(id as int)) as day,
    timestamp_micros(id * 1000003) as at, cast(id * 1.5 as decimal(20, 3)) as amount,
    timestamp_ntz'2013-01-01 00:00:00.000001' as wall,
    case id % 4 when 0 then double('NaN') when 1 then double('Infinity') when 2 then null else -0.0D end as odd
"""


def numbers(spark: SparkSession, count: int, tasks: int = 2) -> DataFrame:
    return spark.range(0, count, 1, tasks).selectExpr("id", "concat('word-', id) as word", "id * 2 as twice")


def write(cluster: MemoryCluster, frame: DataFrame, mode: str = "append", **options: str) -> None:
    options = {"address": cluster.addresses(), "key": "id", "timeout": "10", **options}
    frame.write.format("holdfast").options(**options).mode(mode).save("m")


def read(spark: SparkSession, cluster: MemoryCluster, **options: str) -> DataFrame:
    return (
        spark.read.format("holdfast").options(address=cluster.addresses(), timeout="10", **options).load("m")
    )


def test_every_type_goes_to_the_grid_and_comes_back(spark: SparkSession, cluster: MemoryCluster) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr(*[part.strip() for part in _columns(TYPED)])
    write(cluster, frame)
    back = read(spark, cluster)
    assert back.dtypes == frame.dtypes
    assert back.count() == 100
    assert back.exceptAll(frame).count() == 0
    assert frame.exceptAll(back).count() == 0


def _columns(text: str) -> list[str]:
    """Cut at the commas that are outside of brackets."""
    found, depth = [""], 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found


def test_an_empty_map_is_an_empty_frame(spark: SparkSession, cluster: MemoryCluster) -> None:
    write(cluster, numbers(spark, 0))
    assert read(spark, cluster).collect() == []


def test_columns_are_pruned_by_option_and_tasks_are_counted(
    spark: SparkSession, cluster: MemoryCluster
) -> None:
    write(cluster, numbers(spark, 100))
    some = read(spark, cluster, columns="twice", numPartitions="3")
    assert some.columns == ["twice"]
    assert some.rdd.getNumPartitions() == 3
    assert sorted(row.twice for row in some.collect()) == [2 * at for at in range(100)]


def test_sql_reads_and_inserts_through_a_temporary_view(spark: SparkSession, cluster: MemoryCluster) -> None:
    write(cluster, numbers(spark, 10))
    options = f"address '{cluster.addresses()}', map 'm', key 'id'"
    spark.sql(f"create or replace temporary view grid using holdfast options ({options})")
    spark.sql("insert into grid values (10, 'word-10', 20)")
    assert spark.sql("select sum(twice) from grid").first()[0] == sum(2 * at for at in range(11))  # type: ignore[index]


def test_overwriting_clears_the_map_first(spark: SparkSession, cluster: MemoryCluster) -> None:
    write(cluster, numbers(spark, 50))
    write(cluster, numbers(spark, 5), "overwrite")
    assert read(spark, cluster).count() == 5


def kept(cluster: MemoryCluster) -> int:
    """How many cuts the members keep."""
    return cluster.do(lambda: sum(len(member.cuts) for member in cluster.members))


def test_a_map_is_overwritten_by_its_own_rows(spark: SparkSession, cluster: MemoryCluster) -> None:
    """Spark has the map cleared before it reads it, and does not tell a data source where rows come from."""
    write(cluster, numbers(spark, 500))
    own = read(spark, cluster).selectExpr("id", "word", "twice + 1 as twice")
    write(cluster, own, "overwrite")
    rows = {row.id: row.twice for row in read(spark, cluster).collect()}
    assert rows == {number: 2 * number + 1 for number in range(500)}
    # Through a shuffle, and a filter; the frame made before reads what there is now.
    write(cluster, own.where("id < 100").repartition(3), "overwrite")
    assert {row.id: row.twice for row in own.collect()} == {at: 2 * at + 3 for at in range(100)}
    with Client(cluster.addresses()) as client:
        assert client.size(OVERWRITES_MAP) == 0
    assert kept(cluster) == 0, "what it held before is let go"


def test_after_a_failure_what_was_overwritten_is_let_go(spark: SparkSession, cluster: MemoryCluster) -> None:
    write(cluster, numbers(spark, 50))
    bad = read(spark, cluster).selectExpr("if(id = 7, null, id) as id", "word", "twice")
    with pytest.raises(Exception, match="cannot be stored"):
        write(cluster, bad, "overwrite")
    with Client(cluster.addresses()) as client:
        assert client.size(OVERWRITES_MAP) == 0
    assert kept(cluster) == 0


def test_what_is_wrong_is_said_before_anything_is_written(
    spark: SparkSession, cluster: MemoryCluster
) -> None:
    frame = numbers(spark, 5)
    for options, why in (
        ({"key": "nope"}, "there is no key column 'nope'"),
        ({"key": ""}, "option key is missing"),
        ({"kee": "id"}, "did you mean key"),
        ({"address": "127.0.0.1:1"}, "no member answers"),
    ):
        with pytest.raises(Exception, match=why):
            write(cluster, frame, **options)
    with pytest.raises(Exception, match=r"give them with \.schema"):
        read(spark, cluster)


def test_a_task_that_spark_runs_again_changes_nothing(
    spark: SparkSession, cluster: MemoryCluster, tmp_path: Path
) -> None:
    failed, addresses = str(tmp_path / "failed"), cluster.addresses()

    def fail_once(batches: Any) -> Any:
        """Fail near the end, when the rows before have begun to arrive in the grid."""
        import time
        from pathlib import Path

        from holdfast.client.blocking import Client

        for number, batch in enumerate(batches):
            if number == 18 and not Path(failed).exists():
                Path(failed).touch()
                with Client(addresses) as client:
                    for _ in range(100):
                        if client.size("m"):
                            raise RuntimeError("once")
                        time.sleep(0.1)
            yield batch

    rows = 20_000
    frame = numbers(spark, rows, tasks=1)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    try:
        write(cluster, frame.mapInArrow(fail_once, frame.schema))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert Path(failed).exists()
    assert sorted(read(spark, cluster).collect()) == sorted(frame.collect())
    stored = sum(
        held.counter
        for partition in range(31)
        for held in [cluster.owner(partition).held[partition].open("m")]
    )
    assert stored > rows, "the first attempt was to write something before it failed"


def test_a_failed_job_says_what_it_has_written(spark: SparkSession, cluster: MemoryCluster) -> None:
    frame = spark.range(0, 3000, 1, 1).selectExpr("if(id = 2500, null, id) as id")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    try:
        with pytest.raises(
            Exception, match="has written 2000 rows into 31 partitions of map 'm', and then failed"
        ):
            write(cluster, frame)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert read(spark, cluster).count() == 2000


def test_reading_and_writing_while_partitions_move(spark: SparkSession, cluster: MemoryCluster) -> None:
    stop = threading.Event()

    def keep_moving() -> None:
        at = 0
        while not stop.is_set():
            cluster.do(lambda: [cluster.move(each % 31) for each in range(at, at + 5)])  # noqa: B023
            at += 5
            time.sleep(0.01)

    mover = threading.Thread(target=keep_moving)
    mover.start()
    try:
        frame = numbers(spark, 20_000)
        write(cluster, frame)
        for _ in range(3):
            assert read(spark, cluster).selectExpr("count(*)", "sum(twice)").first() == (
                20_000,
                19_999 * 20_000,
            )
    finally:
        stop.set()
        mover.join()


def test_the_comparison_finds_the_one_copy_that_differs(spark: SparkSession, cluster: MemoryCluster) -> None:
    from holdfast.spark.pipeline.verify import frame, verify

    write(cluster, numbers(spark, 1000))
    sound = verify(spark, cluster.addresses())
    assert sound.sound
    assert sound.copies == 31 + 1
    assert sound.entries == 1000 + 1
    entries = cluster.by_uuid[str(cluster.rows[7][1])].held[7].maps["m"].state.entries
    entries[next(iter(entries))] = b"else"
    result = verify(spark, cluster.addresses(), maps=["m"])
    (wrong,) = frame(spark, result).collect()
    assert (wrong.partition, wrong.map, wrong.replica, wrong.verdict) == (7, "m", 1, "differs")


def test_a_map_is_compared_with_its_source(spark: SparkSession, cluster: MemoryCluster) -> None:
    from holdfast.spark.pipeline.compare import compare_with_source

    frame = numbers(spark, 200).selectExpr("*", "if(id % 2 = 0, double('NaN'), null) as odd")
    write(cluster, frame)
    same = compare_with_source(spark, frame, "m", "id", address=cluster.addresses())
    assert same.same
    assert (same.equal, same.samples) == (200, [])
    changed = frame.where("id <> 3").selectExpr("id", "if(id = 5, 'else', word) as word", "twice", "odd")
    more = changed.union(spark.sql("select 1000L, 'new', 0L, 0.0D"))
    found = compare_with_source(spark, more, "m", "id", address=cluster.addresses())
    assert not found.same
    assert (found.equal, found.missing, found.extra, found.different) == (198, 1, 1, 1)
    assert {(sample["id"], sample["verdict"]) for sample in found.samples} == {
        (3, "extra"),
        (5, "different"),
        (1000, "missing"),
    }
    shown: list[jobs.Progress] = []
    dotted = frame.selectExpr("id", "twice as `a.b`")
    address = cluster.addresses()
    dotted.write.format("holdfast").options(address=address, key="id").mode("append").save("n")
    assert compare_with_source(spark, dotted, "n", "id", address=address, progress=shown.append).same
    assert shown[-1].tasks_done == shown[-1].tasks > 0
    with Client(cluster.addresses()) as client:
        client.set("n", to_stored("odd"), to_stored("no JSON"))
    with pytest.raises(
        JobFailed,
        match=r"compare: the entry with key 'odd' of map 'n' .* does not fit the columns .*: it is no JSON value",
    ):
        compare_with_source(spark, dotted, "n", "id", address=address)
    with pytest.raises(ConfigError, match="differ in the columns twice"):
        compare_with_source(spark, frame.drop("twice"), "m", "id", address=cluster.addresses())


def test_credentials_are_asked_for_and_not_shown_in_the_plan(
    spark: SparkSession, cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for member in cluster.members:
        member.user = ("me", "hush-hush", None)
    with pytest.raises(Exception, match="credentials are missing or wrong"):
        write(cluster, numbers(spark, 5), user="me", password="wrong")
    write(cluster, numbers(spark, 5), user="me", password="hush-hush")
    frame = read(spark, cluster, user="me", password="hush-hush")
    assert frame.count() == 5
    frame.explain("extended")
    shown = capsys.readouterr().out
    assert "holdfast" in shown.lower()
    assert "hush-hush" not in shown


def test_what_spark_writes_other_clients_read(spark: SparkSession, cluster: MemoryCluster) -> None:
    from holdfast.spark.rows.stored import long_data

    write(cluster, numbers(spark, 3))
    with Client(cluster.addresses()) as client:
        value = client.get("m", long_data(2))
    assert value is not None
    assert value[8:] == b'{"id":2,"word":"word-2","twice":4}'
