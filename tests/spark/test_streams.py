"""Change streams in a Spark session, against member processes that move, die and come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("hazelcast")

from pyspark.sql.types import DoubleType, LongType, StructType
from tests.spark.streaming_judge import Verdict, Writer, content_of, judge

from holdfast.client.blocking import Client
from holdfast.client.client_transaction import ClientTransaction
from holdfast.client_core.routing import parse_addresses
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Request
from holdfast.errors import HoldfastError
from holdfast.spark.pipeline.changes import Followed, changes, follow, into_map, into_parquet, mirror, start
from holdfast.spark.rows.column_schemas import StoredSchema, store_schema
from holdfast.spark.rows.stored import json_data, long_data, string_data
from holdfast.spark.source.holdfast_source import HoldfastSource
from holdfast.spark.source.member_changes import GridHistory, Head
from holdfast.spark.source.offsets import Place
from holdfast_lab.processes.local_cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[partitions]
count = 31
[maps.default]
backups = 1
[maps.m]
changes_bytes = 16777216
[maps.short]
changes_bytes = 1048576
[maps.repeated]
changes_bytes = 1048576
[maps.twice]
changes_bytes = 1048576
[maps.empty]
changes_bytes = 1048576
[maps.poisoned]
changes_bytes = 1048576
[maps.rows]
changes_bytes = 1048576
[maps.debit]
changes_bytes = 1048576
[maps.credit]
changes_bytes = 1048576
"""


@pytest.fixture(scope="module")
def members(java: None) -> Iterator[LocalCluster]:
    with LocalCluster(3, CONFIG) as running:
        running.wait_settled()
        yield running


def addresses(members: LocalCluster) -> str:
    return ",".join(members.client_addresses())


def put(members: LocalCluster, name: str, *numbers: int, word: str = "x") -> None:
    with Client(members.client_addresses()) as client:
        for number in numbers:
            client.set(name, long_data(number), string_data(f"{word}{number}"))


def removal(client: Client, name: str, number: int) -> Request:
    key = long_data(number)
    return Request(Op.DELETE, name, [partition_of(key, 0, client.partition_count)], key)


def test_the_columns_of_a_map_are_followed_once_and_again(
    spark: SparkSession, members: LocalCluster, tmp_path: Path
) -> None:
    options = {"address": addresses(members), "key": "id"}
    first = spark.range(0, 50, 1, 2).selectExpr("id", "concat('word-', id) as word")
    first.write.format("holdfast").options(**options).mode("append").save("rows")
    frame = changes(spark, addresses(members), "rows", starting="snapshot", max_rows=40)
    assert dict(frame.dtypes)["after"] == "struct<id:bigint,word:string>"
    folder = str(tmp_path / "kept")
    told = follow(into_parquet(frame, folder, once=True))
    assert (told.rows, told.batches > 1) == (50, True)
    second = spark.range(40, 60, 1, 2).selectExpr("id", "concat('new-', id) as word")
    second.write.format("holdfast").options(**options).mode("append").save("rows")
    assert follow(into_parquet(frame, folder, once=True)).rows == 20
    kept = spark.read.parquet(folder)
    assert {row.op: row["count"] for row in kept.groupBy("op").count().collect()} == {
        "insert": 60,
        "update": 10,
    }
    update = kept.where("op = 'update' and key = 45").first()
    assert update is not None
    assert (update.before.word, update.after.word) == ("word-45", "new-45")
    assert update.time is not None


def test_entries_are_read_as_they_were(members: LocalCluster) -> None:
    with Client(members.client_addresses()) as client:
        history = GridHistory(client, 10.0)
        seen: list[tuple[dict[int, Head], dict[bytes, bytes]]] = []
        held: dict[bytes, bytes] = {}
        for turn in range(3):
            for number in range(40):
                key, value = long_data(number), string_data(f"{turn}-{number}")
                if (number + turn) % 5:
                    client.set("repeated", key, value)
                    held[key] = value
                elif held.pop(key, None) is not None:
                    client.execute(removal(client, "repeated", number))
            seen.append((history.heads("repeated"), dict(held)))
        for heads, then in seen:
            found: dict[bytes, bytes] = {}
            for partition, head in heads.items():
                found |= history.entries(("repeated", partition), head.place)
            assert found == then
        last = seen[-1][0]
        sizes = history.sizes("repeated", list(last))
        assert sum(sizes.values()) == len(held)
        assert history.entries(("empty", 3), Place()) == {}


@pytest.mark.slow
def test_the_changes_of_a_transaction_are_found_by_its_id(
    spark: SparkSession, members: LocalCluster, tmp_path: Path
) -> None:
    seeds = parse_addresses(members.client_addresses())
    wanted: dict[str | None, set[tuple[str, str]]] = {None: set()}
    found: dict[str | None, set[tuple[str, str]]] = {}

    def keep(batch: DataFrame, _: int) -> None:
        for row in batch.collect():
            found.setdefault(row.transaction, set()).add((row["map"], row.key))

    def read() -> None:
        names = ("debit", "credit")
        frame = changes(spark, addresses(members), *names, value_format="text", starting="earliest")
        follow(start(frame.writeStream.foreachBatch(keep), str(tmp_path / "c"), once=True))

    def move(turn: int, count: int, *, optimistic: bool) -> None:
        with ClientTransaction(seeds, optimistic=optimistic) as transaction:
            touched = wanted[transaction.id] = set()
            for number in range(count):
                key = 100 * turn + number
                transaction.set("debit", key, -1)
                transaction.set("credit", key, 1)
                touched |= {("debit", str(key)), ("credit", str(key))}

    for turn in range(4):
        put(members, "debit", 100 * turn + 50)
        # One entry of each map under the same key: one partition, so one phase.
        move(turn, 1 if turn == 2 else 8, optimistic=turn % 2 == 0)
        put(members, "credit", 100 * turn + 60)
        wanted[None] |= {("debit", str(100 * turn + 50)), ("credit", str(100 * turn + 60))}
        if turn % 2:
            read()
            assert found == wanted


@pytest.mark.slow
def test_forgotten_history_fails_or_starts_over(
    spark: SparkSession, members: LocalCluster, tmp_path: Path
) -> None:
    put(members, "short", *range(40))
    kept: list[tuple[str, str | None]] = []

    def keep(batch: DataFrame, _: int) -> None:
        kept.extend((row.op, row.key) for row in batch.collect())

    def run(on_gap: str) -> None:
        frame = changes(
            spark, addresses(members), "short", starting="earliest", on_gap=on_gap, value_format="text"
        )
        follow(start(frame.writeStream.foreachBatch(keep), str(tmp_path / "checkpoint"), once=True))

    run("fail")
    assert len(kept) == 40
    with Client(members.client_addresses()) as client:
        client.execute(removal(client, "short", 7))
        # More than the history of one partition holds.
        for number in range(40):
            client.set("short", long_data(1), string_data(f"{number}" * 20_000))
    with pytest.raises(HoldfastError, match=r"map 'short', partition .* are gone"):
        run("fail")
    del kept[:]
    run("restart")
    assert [op for op, _ in kept].count("restart") == 1
    assert ("insert", "1") in kept
    assert ("remove", "7") in kept or ("insert", "7") not in kept


@pytest.mark.slow
def test_a_batch_that_spark_repeats_is_the_same(
    spark: SparkSession, members: LocalCluster, tmp_path: Path
) -> None:
    put(members, "twice", *range(20))
    batches: list[tuple[int, list[tuple[object, ...]]]] = []

    def keep(batch: DataFrame, number: int) -> None:
        batches.append((number, sorted(tuple(row) for row in batch.collect())))

    def run(forget: int | None = None) -> None:
        if forget is not None:
            # As if Spark had died before it could say that the batch is done.
            for name in (str(forget), f".{forget}.crc"):
                (tmp_path / "c" / "commits" / name).unlink()
        frame = changes(spark, addresses(members), "twice", value_format="text", starting="latest")
        follow(start(frame.drop("time").writeStream.foreachBatch(keep), str(tmp_path / "c"), once=True))

    run()
    put(members, "twice", *range(15, 25), word="y")
    run(forget=0)
    put(members, "twice", *range(20, 30), word="z")
    run(forget=1)
    (empty, none), (again, still_none), (first, ten), (repeated, ten_again), (last, rest) = batches
    assert (empty, again, first, repeated, last) == (0, 0, 1, 1, 2)
    assert none == still_none == []
    assert sorted((row[4], row[5]) for row in ten) == sorted(
        [("update", str(key)) for key in range(15, 20)] + [("insert", str(key)) for key in range(20, 25)]
    )
    assert ten_again == ten
    assert {row[7] for row in rest} == {f"z{key}" for key in range(20, 30)}


def test_what_cannot_be_followed_is_said_in_our_words(
    spark: SparkSession, members: LocalCluster, tmp_path: Path
) -> None:
    where = addresses(members)
    with pytest.raises(HoldfastError, match="follow it with valueFormat=text or binary"):
        changes(spark, where, "nobody-wrote-it")
    with pytest.raises(HoldfastError, match="would follow itself"):
        mirror(spark, where, "m", "m", checkpoint=str(tmp_path / "c"))
    frame = changes(spark, where, "no-stream", value_format="text")
    with pytest.raises(HoldfastError, match="changes_bytes"):
        follow(start(frame.writeStream.format("noop"), str(tmp_path / "d"), once=True))
    rows = HoldfastSource({"address": where, "map": "counts", "key": "key"})
    with pytest.raises(HoldfastError, match="outputMode append or update"):
        rows.streamWriter(frame.schema, overwrite=True)


@pytest.mark.slow
def test_a_stream_of_rows_is_stored_in_a_map(
    spark: SparkSession, members: LocalCluster, tmp_path: Path
) -> None:
    source = str(tmp_path / "source")
    spark.range(0, 100, 1, 2).selectExpr("id", "id * 2 as twice").write.parquet(source)
    frame = spark.readStream.schema("id long, twice long").parquet(source)
    for _ in range(2):
        follow(
            into_map(frame, addresses(members), "stored", checkpoint=str(tmp_path / "c"), key="id", once=True)
        )
    back = spark.read.format("holdfast").options(address=addresses(members)).load("stored")
    assert back.selectExpr("count(*)", "sum(twice)").first() == (100, 99 * 100)


@pytest.mark.slow
def test_every_change_once_through_moves_a_crash_and_restarts(
    spark: SparkSession, members: LocalCluster, tmp_path: Path
) -> None:
    folder = str(tmp_path / "kept")

    def both(*, once: bool) -> list[StreamingQuery]:
        where = addresses(members)
        frame = changes(spark, where, "m", starting="earliest", max_rows=500, value_format="text")
        return [
            into_parquet(frame, folder, once=once, every="500 milliseconds"),
            mirror(
                spark, where, "m", "copy", checkpoint=str(tmp_path / "c"), once=once, every="500 milliseconds"
            ),
        ]

    def follow_for(queries: list[StreamingQuery], seconds: float) -> None:
        for query in queries:
            follow(query, timeout_s=seconds / 2)
            query.stop()

    with Writer(members.client_addresses(), "m") as writer:
        follow_for(both(once=False), 4)
        queries = both(once=False)
        members.start_member()
        members.wait_safe(60)
        follow_for(queries, 2)
        queries = both(once=False)
        members.kill(members.alive[1])
        follow_for(queries, 6)
    members.wait_safe(60)
    for query in both(once=True):
        follow(query)
    content = content_of(members.client_addresses(), "m")
    rows = [row.asDict() for row in spark.read.parquet(folder).collect()]
    verdict = judge(rows, content)
    assert verdict == Verdict(rows=len(rows))
    assert len(rows) >= writer.done / 2
    assert content_of(members.client_addresses(), "copy") == content


@pytest.mark.slow
def test_a_stream_goes_on_after_all_members_have_died_and_come_back(
    spark: SparkSession, java: None, tmp_path: Path
) -> None:
    config = CONFIG.replace("[maps.m]", '[maps.m]\njournal = "sync"')
    folder = str(tmp_path / "kept")
    with LocalCluster(3, config, data_dir=tmp_path / "data", ready_timeout=60) as members:
        members.wait_settled()

        def keep() -> int:
            frame = changes(spark, addresses(members), "m", starting="earliest", value_format="text")
            return follow(into_parquet(frame, folder, once=True)).rows

        with Writer(members.client_addresses(), "m", keys=50) as writer:
            wait_until(lambda: writer.done > 200)
            told = keep()
            before = writer.done
            wait_until(lambda: writer.done > before + 100)
            gone = members.kill_all()
            members.restart(gone)
            members.wait_safe(60)
            before = writer.done
            wait_until(lambda: writer.done > before + 50)
        assert keep() > 100
        rows = [row.asDict() for row in spark.read.parquet(folder).collect()]
        assert len(rows) > told
        assert judge(rows, content_of(members.client_addresses(), "m")) == Verdict(rows=len(rows))


def wait_until(so: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_bad_value_stops_no_stream_for_good(
    spark: SparkSession, members: LocalCluster, tmp_path: Path
) -> None:
    address, folder = addresses(members), str(tmp_path / "kept")
    columns = StructType().add("id", LongType()).add("x", DoubleType())

    def run(bad: str) -> Followed:
        frame = changes(spark, address, "poisoned", starting="earliest", bad=bad)
        return follow(into_parquet(frame, folder, once=True))

    with Client(members.client_addresses()) as client:
        store_schema(client, "poisoned", StoredSchema.of(columns, ["id"], "json"))
        for number in range(3):
            client.set("poisoned", long_data(number), json_data(b'{"id":%d,"x":0.5}' % number))
        client.set("poisoned", long_data(7), string_data("oops"))
        with pytest.raises(HoldfastError, match=r"map 'poisoned', partition \d+, key 7 .*option bad"):
            run("fail")
        client.set("poisoned", long_data(7), json_data(b'{"id":7,"x":7.5}'))
        # The batch that failed is the one that goes on; the correction is in the next.
        told = run("fail")
        assert told.batches == 2
        client.set("poisoned", long_data(8), string_data("oops"))
        with pytest.raises(HoldfastError, match="key 8"):
            run("fail")
        told = run("column raw")
        assert (told.rows, told.unfit) == (1, 1)
        assert "1 did not fit the columns" in str(told)
    kept = spark.read.option("mergeSchema", True).parquet(folder)
    assert sorted((row.key, row.op, row.after.x, row.raw) for row in kept.collect()) == [
        (0, "insert", 0.5, None),
        (1, "insert", 0.5, None),
        (2, "insert", 0.5, None),
        (7, "update", 7.5, None),
        (8, "insert", None, "oops"),
    ]
