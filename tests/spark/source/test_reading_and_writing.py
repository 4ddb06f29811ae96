"""The reader and the writer as Spark calls them, without Spark: plain Python against members behind real sockets."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from tests.server.memory_cluster import MemoryCluster, MemoryMember

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import IntegerType, MapType, StructType  # noqa: E402

from holdfast.client import blocking  # noqa: E402
from holdfast.errors import ConfigError  # noqa: E402
from holdfast.spark.rows.column_schemas import SCHEMAS_MAP, arrow_schema  # noqa: E402
from holdfast.spark.rows.stored import json_data, long_data, string_data  # noqa: E402
from holdfast.spark.source.holdfast_source import HoldfastSource  # noqa: E402
from holdfast.spark.source.read_plan import Share  # noqa: E402
from holdfast.spark.source.reader import HoldfastReader  # noqa: E402
from holdfast.spark.source.writer import HoldfastWriter, WriteFailed, Written  # noqa: E402


def columns(text: str) -> StructType:
    """Columns from `name type, name type`."""
    found = StructType()
    for column in text.split(", "):
        found.add(*column.split())
    return found


SCHEMA = columns("id long, word string")
ROWS = [{"id": at, "word": f"word-{at}"} for at in range(3000)]


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    with MemoryCluster(3, 31) as running:
        yield running


def source(cluster: MemoryCluster, **options: str) -> HoldfastSource:
    return HoldfastSource({"address": cluster.addresses(), "map": "m", "timeout": "5", **options})


def batches(rows: list[dict[str, Any]], size: int = 1000, schema: StructType = SCHEMA) -> Iterator[Any]:
    return iter(pa.Table.from_pylist(rows, schema=arrow_schema(schema)).to_batches(size))


def write(
    cluster: MemoryCluster, rows: list[dict[str, Any]], *, overwrite: bool = False, **options: str
) -> Written:
    writer = source(cluster, **{"key": "id", **options}).writer(SCHEMA, overwrite)
    travelled: HoldfastWriter = pickle.loads(pickle.dumps(writer))
    done = travelled.write(batches(rows))
    writer.commit([done])
    assert isinstance(done, Written)
    return done


def read(cluster: MemoryCluster, schema: StructType | None = None, **options: str) -> list[dict[str, Any]]:
    one = source(cluster, **options)
    schema = schema or one.schema()
    reader: HoldfastReader = pickle.loads(pickle.dumps(one.reader(schema)))
    found: list[dict[str, Any]] = []
    for share in pickle.loads(pickle.dumps(reader.partitions())):
        for batch in reader.read(share):
            assert batch.schema.equals(arrow_schema(schema))
            found += batch.to_pylist()
    return sorted(found, key=lambda row: (row.get("id") is None, row.get("id")))


def test_what_is_written_is_read(cluster: MemoryCluster) -> None:
    done = write(cluster, ROWS)
    assert (done.rows, done.rows_resent, len(done.partitions)) == (3000, 0, 31)
    assert read(cluster) == ROWS


def test_a_task_that_runs_again_changes_nothing(cluster: MemoryCluster) -> None:
    write(cluster, ROWS)
    write(cluster, ROWS[:1500])
    assert read(cluster) == ROWS


def test_the_schema_is_kept_in_the_grid(cluster: MemoryCluster) -> None:
    write(cluster, ROWS[:1])
    stored = source(cluster).schema()
    assert stored == SCHEMA
    assert all(field.nullable for field in stored.fields)
    with blocking.Client(cluster.addresses()) as client:
        assert client.get(SCHEMAS_MAP, string_data("m")) is not None


def test_a_map_without_columns_wants_some(cluster: MemoryCluster) -> None:
    with pytest.raises(ConfigError, match=r"\.schema\(\.\.\.\)"):
        source(cluster).schema()


def test_entries_of_other_clients_are_read_with_a_schema(cluster: MemoryCluster) -> None:
    with blocking.Client(cluster.addresses()) as client:
        client.set("m", string_data("any"), json_data(b'{"id": 5, "word": "five", "more": [1]}'))
        client.set("m", long_data(6), json_data(b'{"id": 6}'))
    assert read(cluster, SCHEMA) == [{"id": 5, "word": "five"}, {"id": 6, "word": None}]
    assert read(cluster, valueFormat="binary")[0].keys() == {"key", "value"}


def test_only_some_columns(cluster: MemoryCluster) -> None:
    write(cluster, ROWS)
    assert read(cluster, columns="id") == [{"id": row["id"]} for row in ROWS]
    with pytest.raises(ConfigError, match="no column 'x'; it has id, word"):
        source(cluster, columns="x").schema()


def test_binary_is_copied_from_map_to_map(cluster: MemoryCluster) -> None:
    write(cluster, ROWS[:10])
    raw = read(cluster, valueFormat="binary")
    one = source(cluster, map="copy", valueFormat="binary")
    writer = one.writer(one.schema(), False)
    writer.write(batches(raw, schema=one.schema()))  # type: ignore[arg-type]
    again = source(cluster, map="copy")
    assert again.schema().names == ["key", "value"]
    assert {row["key"]: row["value"] for row in read(cluster, map="copy")} == {
        row["key"]: row["value"] for row in raw
    }


def test_overwriting_removes_what_was_there(cluster: MemoryCluster) -> None:
    write(cluster, ROWS)
    write(cluster, ROWS[:5], overwrite=True)
    assert read(cluster) == ROWS[:5]


@pytest.mark.parametrize(
    ("ddl", "options", "why"),
    [
        ("id long, word integer", {"key": "id"}, "its columns are"),
        ("id long", {"key": "id"}, "its columns are"),
        ("id long, word string", {"key": "word"}, "its key is id, not word"),
        ("key binary, value binary", {"key": "", "valueFormat": "binary"}, "its format is json, not binary"),
    ],
)
def test_a_map_that_was_written_differently_is_left_alone(
    cluster: MemoryCluster, ddl: str, options: dict[str, str], why: str
) -> None:
    write(cluster, ROWS[:5])
    with pytest.raises(ConfigError, match=why):
        source(cluster, **options).writer(columns(ddl), False)
    assert read(cluster) == ROWS[:5]
    other = source(cluster, **options)
    other.writer(columns(ddl), True)
    assert other.schema() == columns(ddl)


def test_a_wrong_key_is_refused_before_anything_is_sent() -> None:
    nobody = HoldfastSource({"address": "127.0.0.1:1", "map": "m", "key": "nope"})
    with pytest.raises(ConfigError, match="no key column 'nope'"):
        nobody.writer(SCHEMA, True)


def test_a_missing_key_fails_the_task_and_says_what_it_has_written(cluster: MemoryCluster) -> None:
    rows = [*ROWS[:1000], {"id": None, "word": "x"}]
    with pytest.raises(
        WriteFailed, match=r"has written 1000 rows into 31 partitions of map 'm'.*column 'id'"
    ):
        write(cluster, rows)
    assert read(cluster) == ROWS[:1000]


def test_a_failed_job_says_what_stays(cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]) -> None:
    writer = source(cluster, key="id").writer(SCHEMA, False)
    assert isinstance(writer, HoldfastWriter)
    done = writer.write(batches(ROWS[:100]))
    writer.abort([done, None, None])
    said = capsys.readouterr().err
    assert "1 of its 3 tasks have finished; they have written 100 rows" in said
    assert "writing the same rows again is safe" in said.lower()


def test_entries_end_when_their_time_is_over(cluster: MemoryCluster) -> None:
    write(cluster, ROWS[:100], ttl="10")
    assert len(read(cluster)) == 100
    for member in cluster.members:
        member.now = 11_000_000_000
    assert read(cluster) == []
    assert source(cluster).schema() == SCHEMA


def test_tasks_are_a_handful_and_hold_every_partition_once(cluster: MemoryCluster) -> None:
    for options, count in (({}, 4), ({"numPartitions": "2"}, 2), ({"numPartitions": "100"}, 31)):
        shares = source(cluster, **options).reader(SCHEMA).partitions()
        assert isinstance(shares, list)
        assert len(shares) == count
        assert sorted(one for share in shares for one in share.partitions) == list(range(31))  # type: ignore[attr-defined]


def test_reading_follows_partitions_that_move_meanwhile(cluster: MemoryCluster) -> None:
    write(cluster, ROWS)
    reader = source(cluster).reader(SCHEMA)
    found: list[dict[str, Any]] = []
    for number, share in enumerate(reader.partitions()):
        cluster.do(lambda: [cluster.move(partition) for partition in range(31)])
        for batch in reader.read(share):
            found += batch.to_pylist()
        if number == 1:
            cluster.do(lambda: cluster.kill(cluster.members[0]))
    assert sorted(found, key=lambda row: row["id"]) == ROWS


def test_writing_follows_partitions_that_move_meanwhile(cluster: MemoryCluster) -> None:
    def move(member: MemoryMember) -> None:
        cluster.move(cluster.seals % 31)

    cluster.after_seal = move
    assert write(cluster, ROWS).rows == 3000
    assert read(cluster) == ROWS


def test_batches_for_spark_are_of_a_good_size(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.spark.source import reader as under_test

    write(cluster, ROWS)
    monkeypatch.setattr(under_test, "BATCH_ROWS", 500)
    one = source(cluster, numPartitions="1").reader(SCHEMA)
    (share,) = one.partitions()
    sizes = [batch.num_rows for batch in one.read(share)]  # type: ignore[union-attr]
    assert sum(sizes) == 3000
    assert min(sizes[:-1]) >= 500
    assert max(sizes) < 1000


def test_a_map_that_is_not_there_has_no_rows(cluster: MemoryCluster) -> None:
    assert read(cluster, SCHEMA) == []


def test_the_reader_wants_the_columns_of_its_format(cluster: MemoryCluster) -> None:
    with pytest.raises(ConfigError, match="key and value"):
        source(cluster, valueFormat="binary").reader(SCHEMA)
    with pytest.raises(ConfigError, match="cannot be stored"):
        source(cluster).reader(StructType().add("a", MapType(IntegerType(), IntegerType())))


def test_a_share_is_what_spark_hands_over(cluster: MemoryCluster) -> None:
    assert isinstance(source(cluster).reader(SCHEMA).partitions()[0], Share)
