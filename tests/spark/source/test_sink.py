"""A stream into a map without Spark: what the writers of batches store, and what they do not store again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.memory_cluster import MemoryCluster

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from holdfast.client.blocking import Client
from holdfast.core.model.keys import partition_of
from holdfast.errors import ConfigError
from holdfast.spark.rows.column_schemas import arrow_schema, load_schema
from holdfast.spark.rows.stored import json_data, long_data
from holdfast.spark.source import sink
from holdfast.spark.source.query_batch import Batch
from holdfast.spark.source.sink import HoldfastStreamWriter, StreamWritten, finished
from holdfast.spark.source.stream_options import SinkOptions
from holdfast.spark.source.writer import WriteFailed

PLAIN = StructType().add("id", LongType()).add("word", StringType())
CHANGED = (
    StructType()
    .add("op", StringType())
    .add("partition", IntegerType())
    .add("term", LongType())
    .add("counter", LongType())
    .add("key", BinaryType())
    .add("value", BinaryType())
)

Cells = tuple[object, ...]


class Sink:
    """Writes batches as Spark does: a new writer for each, and another one for its end."""

    def __init__(
        self, cluster: MemoryCluster, struct: StructType, monkeypatch: pytest.MonkeyPatch, **options: str
    ) -> None:
        self.cluster = cluster
        self.struct = struct
        self.batch: Batch | None = Batch("query", 0)
        self.given = {
            "address": cluster.addresses(),
            "map": "m",
            "timeout": "5",
            "checkpointLocation": "/x",
            **options,
        }
        monkeypatch.setattr(sink, "this_batch", lambda: self.batch)

    def writer(self) -> HoldfastStreamWriter:
        writer = HoldfastStreamWriter(SinkOptions.parse(self.given), self.struct)
        writer.prepare()
        return writer

    def task(self, *batches: list[Cells]) -> StreamWritten:
        schema = arrow_schema(self.struct)
        made = [
            pa.RecordBatch.from_arrays(
                [
                    pa.array(column, field.type)
                    for column, field in zip(zip(*rows, strict=True), schema, strict=True)
                ],
                schema=schema,
            )
            for rows in batches
        ]
        written = self.writer().write(iter(made))
        assert isinstance(written, StreamWritten)
        return written

    def run(self, number: int, *tasks: list[Cells], query: str = "query") -> list[StreamWritten]:
        self.batch = Batch(query, number)
        written = [self.task(rows) for rows in tasks]
        self.writer().commit(written, number)
        return written

    def entries(self) -> dict[bytes, bytes]:
        with Client(self.cluster.addresses()) as client:
            found: dict[bytes, bytes] = {}
            for partition in range(client.partition_count):
                for page in client.scan("m", partition):
                    found.update(zip(*page.split(), strict=True))
            return found


@pytest.fixture
def plain(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> Sink:
    return Sink(cluster, PLAIN, monkeypatch, key="id")


@pytest.fixture
def changed(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> Sink:
    return Sink(cluster, CHANGED, monkeypatch, opColumn="op", valueFormat="binary", sourceMap="source")


def change(
    op: str, key: int, value: int | None = None, *, at: tuple[int, int] = (1, 1), partition: int = 0
) -> Cells:
    return op, partition, *at, long_data(key), None if value is None else long_data(value)


def restart(partition: int, at: tuple[int, int]) -> Cells:
    return "restart", partition, *at, None, None


def numbers(**entries: int) -> dict[bytes, bytes]:
    return {long_data(int(key[1:])): long_data(value) for key, value in entries.items()}


def test_rows_are_stored_and_a_later_one_of_the_same_key_wins(plain: Sink) -> None:
    written = plain.run(0, [(1, "a"), (2, "b"), (1, "c")])
    assert (written[0].stored, written[0].removed) == (2, 0)
    plain.run(1, [(2, "d")])
    assert plain.entries() == {
        long_data(1): json_data(b'{"id":1,"word":"c"}'),
        long_data(2): json_data(b'{"id":2,"word":"d"}'),
    }


def test_the_columns_are_remembered_and_others_are_refused(plain: Sink, cluster: MemoryCluster) -> None:
    plain.run(0, [(1, "a")])
    with Client(cluster.addresses()) as client:
        stored = load_schema(client, "m")
    assert stored is not None
    assert (stored.key, stored.struct.names) == (["id"], ["id", "word"])
    plain.struct = StructType().add("id", LongType()).add("other", StringType())
    with pytest.raises(ConfigError, match="was written differently"):
        plain.run(1, [(1, "a")])


def test_a_batch_that_is_finished_is_not_written_again(plain: Sink) -> None:
    plain.run(3, [(1, "a")])
    plain.run(4, [(1, "b")])
    for number in (3, 4):
        again = plain.run(number, [(1, "x")])
        assert again[0].again
        assert again[0].stored == 0
    with Client(plain.cluster.addresses()) as client:
        last = finished(client, "query", "m")
    assert last is not None
    assert last.batch == 4
    assert plain.entries() == {long_data(1): json_data(b'{"id":1,"word":"b"}')}
    plain.run(0, [(1, "y")], query="another")
    assert plain.entries() == {long_data(1): json_data(b'{"id":1,"word":"y"}')}


def test_a_batch_that_is_not_finished_is_written_again(plain: Sink) -> None:
    plain.batch = Batch("query", 5)
    plain.task([(1, "a")])
    plain.writer().abort([None], 5)
    assert not plain.run(5, [(1, "a"), (2, "b")])[0].again
    assert len(plain.entries()) == 2


def test_changes_are_applied_in_the_order_of_their_counters(changed: Sink) -> None:
    changed.run(
        0,
        [
            change("update", 1, 11, at=(2, 1)),
            change("insert", 1, 10, at=(1, 9)),
            change("insert", 2, 20, at=(1, 1)),
            change("remove", 2, at=(1, 2)),
            change("remove", 3, at=(1, 3)),
            change("insert", 3, 30, at=(1, 4)),
        ],
    )
    assert changed.entries() == numbers(k1=11, k3=30)
    written = changed.run(1, [change("remove", 1), change("delete", 9)])
    assert written[0].removed == 2
    assert changed.entries() == numbers(k3=30)


def test_an_earlier_change_does_not_win_because_the_later_one_is_written_already(
    changed: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "HELD_BYTES", 1)
    changed.run(0, [change("update", 1, 11, at=(1, 2)), change("insert", 1, 10, at=(1, 1))])
    assert changed.entries() == numbers(k1=11)
    changed.run(1, [change("remove", 1, at=(1, 4)), change("update", 1, 12, at=(1, 3))])
    assert changed.entries() == {}


def test_rows_of_several_record_batches_are_one_batch(changed: Sink) -> None:
    changed.task(
        [change("update", 1, 11, at=(1, 2))], [change("insert", 1, 10, at=(1, 1)), change("insert", 2, 5)]
    )
    assert changed.entries() == numbers(k1=11, k2=5)


def test_many_keys_are_removed(changed: Sink) -> None:
    changed.run(0, [change("insert", key, key) for key in range(1500)])
    assert len(changed.entries()) == 1500
    assert changed.run(1, [change("remove", key) for key in range(1, 1500)])[0].removed == 1499
    assert changed.entries() == numbers(k0=0)


@pytest.mark.parametrize("source_partitions", [None, "7"])
def test_a_partition_that_starts_over_loses_what_is_not_told_again(
    changed: Sink, source_partitions: str | None
) -> None:
    if source_partitions is not None:
        changed.given["sourcePartitions"] = source_partitions
    count = int(source_partitions or changed.cluster.partition_count)
    homes = {key: partition_of(long_data(key), 0, count) for key in range(200)}
    over = homes[0]
    same = [key for key, home in homes.items() if home == over]
    assert 2 < len(same) < 200
    new = next(key for key in range(200, 1000) if partition_of(long_data(key), 0, count) == over)
    changed.run(0, [change("insert", key, key, partition=homes[key]) for key in homes])
    changed.run(
        1,
        [
            change("update", same[1], 1000, at=(1, 5), partition=over),
            change("insert", new, 1001, at=(1, 6), partition=over),
            restart(over, (1, 9)),
            change("insert", same[0], 77, at=(1, 9), partition=over),
            change("update", same[0], 78, at=(1, 10), partition=over),
        ],
    )
    left = {long_data(key): long_data(key) for key, home in homes.items() if home != over}
    assert changed.entries() == {**left, long_data(same[0]): long_data(78)}


def test_a_partition_does_not_start_over_where_entries_may_be_of_several_maps(changed: Sink) -> None:
    """Keys of two maps in one target cannot be told apart: a restart of one would remove those of the other."""
    del changed.given["sourceMap"]
    home = partition_of(long_data(1), 0, changed.cluster.partition_count)
    changed.run(0, [change("insert", 1, 10, partition=home), change("insert", 2, 20)])
    with pytest.raises(WriteFailed, match="name it with the option sourceMap"):
        changed.run(1, [restart(home, (1, 9)), change("insert", 2, 21, at=(1, 9), partition=home)])
    assert changed.entries() == numbers(k1=10, k2=20)
    changed.given["sourceMap"] = "source"
    changed.run(1, [restart(home, (1, 9))])
    assert long_data(1) not in changed.entries()


def test_a_leftover_attempt_does_not_write_over_later_batches(
    changed: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that Spark started twice goes on while the other one's batch, and the next one, are finished."""
    monkeypatch.setattr(sink, "HELD_BYTES", 1)
    first = [change("insert", 1, 10, at=(1, 1)), change("insert", 2, 20, at=(1, 2))]
    changed.batch = Batch("query", 0)
    slow = changed.writer()
    schema = arrow_schema(CHANGED)

    def arriving() -> Iterator[pa.RecordBatch]:
        for cells in first:
            columns = [pa.array([cell], field.type) for cell, field in zip(cells, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
            if cells is first[0]:
                changed.run(0, first)
                changed.run(1, [change("update", 2, 99, at=(1, 3)), change("remove", 1, at=(1, 4))])
                changed.batch = Batch("query", 0)

    written = slow.write(arriving())
    assert changed.entries() == numbers(k2=99)
    assert isinstance(written, StreamWritten)
    assert (written.again, written.stored) == (True, 1)


def test_rows_that_cannot_be_applied_are_named(changed: Sink, plain: Sink) -> None:
    with pytest.raises(WriteFailed, match="opColumn has 'upsort'"):
        changed.run(0, [change("upsort", 1, 1)])
    changed.struct = StructType([one for one in CHANGED.fields if one.name != "partition"])
    with pytest.raises(WriteFailed, match="keep the column partition in the stream"):
        changed.run(0, [("restart", 1, 1, None, None)])
    with pytest.raises(WriteFailed, match="no value in the column 'id'"):
        plain.run(0, [(None, "a")])
    plain.given["opColumn"] = "nope"
    with pytest.raises(ConfigError, match="there is no text column 'nope'"):
        plain.run(0, [(1, "a")])


def test_where_spark_does_not_tell_the_batch_the_way_out_is_named(plain: Sink) -> None:
    plain.batch = None
    with pytest.raises(ConfigError, match="idempotent=false"):
        plain.task([(1, "a")])
    plain.given["idempotent"] = "false"
    written = plain.task([(1, "a")])
    plain.writer().commit([written], 0)
    assert len(plain.entries()) == 1
