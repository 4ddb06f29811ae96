"""Writing as Spark's tasks do it, without Spark: inserts, times to live, rejects, rates, formats."""

from __future__ import annotations

import json
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.server.memory_cluster import MemoryCluster, MemoryMember

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import StructType  # noqa: E402

from holdfast.client import blocking  # noqa: E402
from holdfast.config import LimitSettings  # noqa: E402
from holdfast.errors import ConfigError  # noqa: E402
from holdfast.spark.rows.column_schemas import arrow_schema  # noqa: E402
from holdfast.spark.rows.compact import CompactDecoder  # noqa: E402
from holdfast.spark.rows.stored import long_data, string_data  # noqa: E402
from holdfast.spark.source.holdfast_source import HoldfastSource  # noqa: E402
from holdfast.spark.source.token_bucket import TokenBucket  # noqa: E402
from holdfast.spark.source.writer import HoldfastWriter, WriteFailed, Written  # noqa: E402
from holdfast.wire.hazelcast.compact_schemas import SCHEMAS_MAP, schema_key, schema_of_entry  # noqa: E402
from holdfast.wire.values import from_stored, to_stored  # noqa: E402

SCHEMA = StructType().add("id", "long").add("word", "string")


def rows(*numbers: int, word: str = "w") -> list[dict[str, Any]]:
    return [{"id": number, "word": f"{word}{number}"} for number in numbers]


def writer(cluster: MemoryCluster, schema: StructType = SCHEMA, **options: str) -> HoldfastWriter:
    source = HoldfastSource(
        {"address": cluster.addresses(), "map": "m", "timeout": "5", "key": "id", **options}
    )
    made = source.writer(schema, False)
    assert isinstance(made, HoldfastWriter)
    return pickle.loads(pickle.dumps(made))


def write(one: HoldfastWriter, some: list[dict[str, Any]], size: int = 1000) -> Written:
    schema = arrow_schema(one._struct)
    done = one.write(iter(pa.Table.from_pylist(some, schema=schema).to_batches(size)))
    assert isinstance(done, Written)
    return done


def entries(cluster: MemoryCluster, name: str = "m") -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    with blocking.Client(cluster.addresses()) as client:
        for partition in range(client.partition_count):
            for page in client.scan(name, partition):
                found.update(zip(*page.split(), strict=True))
    return found


def values(cluster: MemoryCluster) -> dict[Any, Any]:
    return {from_stored(key): from_stored(value) for key, value in entries(cluster).items()}


# -- inserts


def test_what_is_there_stays_when_rows_are_only_inserted(cluster: MemoryCluster) -> None:
    write(writer(cluster), rows(1, 2, 3))
    done = write(writer(cluster, write="insert"), rows(2, 3, 4, word="new"))
    assert (done.rows, done.kept) == (3, 2)
    assert {key: value["word"] for key, value in values(cluster).items()} == {
        1: "w1",
        2: "w2",
        3: "w3",
        4: "new4",
    }


def test_a_task_that_runs_again_finds_the_rows_that_it_has_inserted(cluster: MemoryCluster) -> None:
    one = writer(cluster, write="insert")
    assert write(one, rows(*range(500))).kept == 0
    again = write(one, rows(*range(600)))
    assert (again.rows, again.kept) == (600, 0)


def test_rows_of_which_nobody_knows_are_inserted_once(cluster: MemoryCluster) -> None:
    cluster.unknown_seals = {1, 2, 3}
    done = write(writer(cluster, write="insert"), rows(*range(300)))
    assert (done.rows, done.kept) == (300, 0)
    assert done.rows_resent > 0
    assert len(values(cluster)) == 300


def test_inserts_follow_partitions_that_move(cluster: MemoryCluster) -> None:
    def move(member: MemoryMember) -> None:
        cluster.move(cluster.seals % 31)

    one = writer(cluster, write="insert")
    cluster.after_seal = move
    done = write(one, rows(*range(3000)), size=200)
    assert (done.rows, done.kept) == (3000, 0)
    assert len(values(cluster)) == 3000


@pytest.mark.parametrize("how", ["upsert", "insert"])
def test_a_task_that_runs_twice_at_the_same_time_is_as_good_as_once(
    cluster: MemoryCluster, tmp_path: Path, how: str
) -> None:
    one = writer(cluster, write=how, rejects=str(tmp_path))
    some = [*rows(*range(2000)), {"id": None, "word": "x"}]
    done: list[Written] = []
    twins = [threading.Thread(target=lambda: done.append(write(one, some, size=100))) for _ in range(2)]
    for twin in twins:
        twin.start()
    for twin in twins:
        twin.join()
    assert [(each.rows, each.kept, each.rejected) for each in done] == [(2000, 0, 1)] * 2
    assert values(cluster) == {row["id"]: row for row in rows(*range(2000))}
    (file,) = tmp_path.iterdir()
    assert len(file.read_text().splitlines()) == 1


# -- times to live


def test_every_row_may_have_its_time(cluster: MemoryCluster) -> None:
    schema = StructType().add("id", "long").add("word", "string").add("seconds", "double")
    one = writer(cluster, schema, ttlColumn="seconds", ttl="20")
    write(one, [{"id": 1, "word": "a", "seconds": 5.0}, {"id": 2, "word": "b", "seconds": None}])
    assert values(cluster) == {1: {"id": 1, "word": "a"}, 2: {"id": 2, "word": "b"}}
    assert HoldfastSource({"address": cluster.addresses(), "map": "m"}).schema() == SCHEMA
    later(cluster, 6)
    assert list(values(cluster)) == [2]
    later(cluster, 21)
    assert values(cluster) == {}


def later(cluster: MemoryCluster, seconds: int) -> None:
    for member in cluster.members:
        member.now = seconds * 1_000_000_000


# -- rejects


BAD = [*rows(1), {"id": None, "word": "x"}, *rows(2), {"id": 3, "word": "y" * 5000}]


@pytest.fixture
def narrow(cluster: MemoryCluster) -> MemoryCluster:
    """Members that take small values only."""
    cluster.limits = LimitSettings(value_bytes=1000)
    return cluster


def test_a_batch_with_a_bad_row_fails_before_it_is_written(narrow: MemoryCluster) -> None:
    with pytest.raises(
        WriteFailed, match=r"2 of 4 rows cannot be stored: no value .*'id'.*; a value of 50\d\d bytes"
    ):
        write(writer(narrow), BAD)
    assert values(narrow) == {}


def test_bad_rows_go_to_their_folder_once(narrow: MemoryCluster, tmp_path: Path) -> None:
    folder = tmp_path / "rejects"
    one = writer(narrow, rejects=str(folder))
    for _ in range(2):
        done = write(one, BAD)
        assert (done.rows, done.rejected) == (2, 2)
    assert set(values(narrow)) == {1, 2}
    (file,) = folder.iterdir()
    assert file.suffix == ".jsonl"
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["row"] for line in found] == [{"id": None, "word": "x"}, {"id": 3, "word": "y" * 5000}]
    assert found[0]["reason"] == "no value in the column 'id', part of the key"


def test_an_attempt_that_fails_leaves_no_rejects(narrow: MemoryCluster, tmp_path: Path) -> None:
    one = writer(narrow, rejects=str(tmp_path), timeout="0.2")
    narrow.unknown_seals = set(range(1000))
    with pytest.raises(WriteFailed, match="0 rows"):
        write(one, BAD)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_attempt_has_left_is_cleared_away(
    narrow: MemoryCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = writer(narrow, rejects=str(tmp_path))
    (tmp_path / f".{one._work.job}-00000-left").write_text("half a li")
    (tmp_path / ".other").write_text("")
    done = write(one, BAD)
    one.commit([done])
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other", f"{one._work.job}-00000.jsonl"]
    assert "2 rows cannot be stored" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_refused_first(cluster: MemoryCluster, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written to"):
        writer(cluster, rejects=str(tmp_path / "file" / "rejects"))
    assert entries(cluster, "__schemas.spark") == {}


# -- rates


def test_rows_pass_evenly_and_a_pause_makes_no_burst() -> None:
    now, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 6))
        now[0] += seconds

    bucket = TokenBucket(50, clock=lambda: now[0], sleep=sleep)
    assert bucket.step == 5
    for _ in range(3):
        bucket.take(5)
    assert slept == [0.1, 0.1]
    now[0] += 10
    bucket.take(5)
    bucket.take(5)
    assert slept == [0.1, 0.1, 0.1]
    free = TokenBucket(None, clock=lambda: 0.0, sleep=sleep)
    free.take(10**9)
    assert (free.step, len(slept)) == (None, 3)


def test_a_job_with_a_rate_sends_small_pieces(cluster: MemoryCluster) -> None:
    one = writer(cluster, rowsPerSecond="20000", concurrentTasks="2")
    assert write(one, rows(*range(2500))).rows == 2500
    assert cluster.seals >= 3
    with pytest.raises(ConfigError, match="concurrentTasks"):
        writer(cluster, rowsPerSecond="5")


# -- formats


def test_plain_values_are_read_by_anybody(cluster: MemoryCluster) -> None:
    assert write(writer(cluster, valueFormat="primitive"), rows(1, 2)).rows == 2
    assert entries(cluster) == {long_data(1): to_stored("w1"), long_data(2): to_stored("w2")}


def test_compact_rows_and_their_schema(cluster: MemoryCluster) -> None:
    write(writer(cluster, valueFormat="compact", typeName="thing", key="word"), rows(1, 2))
    found = entries(cluster)

    def fetch(number: int) -> Any:
        with blocking.Client(cluster.addresses()) as client:
            entry = client.get(SCHEMAS_MAP, schema_key(number))
        return None if entry is None else schema_of_entry(entry)

    decoder = CompactDecoder(fetch)
    assert {key: decoder.read(value) for key, value in found.items()} == {
        string_data("w1"): {"id": 1, "word": "w1"},
        string_data("w2"): {"id": 2, "word": "w2"},
    }
    with pytest.raises(ConfigError, match="its type name is 'thing', not 'other'"):
        writer(cluster, valueFormat="compact", typeName="other", key="word")
