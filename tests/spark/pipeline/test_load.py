"""Loads on Spark: files and DataFrames, modes, what is looked through first, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from tests.server.memory_cluster import MemoryCluster

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pyspark")

from holdfast.client.blocking import Client  # noqa: E402
from holdfast.config import LimitSettings  # noqa: E402
from holdfast.errors import ConfigError  # noqa: E402
from holdfast.spark.jobs import Progress  # noqa: E402
from holdfast.spark.pipeline.load import CannotStore, Loaded, load  # noqa: E402
from holdfast.spark.pipeline.parquet import ParquetFiles  # noqa: E402
from holdfast.wire.values import from_stored  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 2000


def values(cluster: MemoryCluster, name: str = "m") -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    with Client(cluster.addresses()) as client:
        for partition in range(client.partition_count):
            for page in client.scan(name, partition):
                keys, cells = page.split()
                found |= {from_stored(key): from_stored(cell) for key, cell in zip(keys, cells, strict=True)}
    return found


def table(count: int = COUNT, word: str = "w") -> Any:
    return pa.table(
        {"id": pa.array(range(count), pa.int64()), "word": [f"{word}{at}" for at in range(count)]}
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Two Parquet files with seven row groups."""
    folder = tmp_path / "files"
    folder.mkdir()
    pq.write_table(table().slice(0, 900), folder / "a.parquet", row_group_size=300)
    pq.write_table(table().slice(900), folder / "b.parquet", row_group_size=300)
    return folder


# -- Parquet files as shares


@pytest.mark.parametrize("tasks", [1, 3, 7, 50])
def test_shares_hold_every_row_once(files: Path, tasks: int) -> None:
    found = ParquetFiles.open([str(files)])
    assert (found.rows, len(found.groups)) == (COUNT, 7)
    shares = found.shares(tasks)
    assert [share.number for share in shares] == list(range(min(tasks, 7)))
    ids = [one for share in shares for batch in share.batches() for one in batch.column(0).to_pylist()]
    assert sorted(ids) == list(range(COUNT))
    rows = [sum(batch.num_rows for batch in share.batches(["word"])) for share in shares]
    assert max(rows) - min(rows) <= 300


def test_folders_named_by_a_value_become_a_column(tmp_path: Path) -> None:
    for year in (2012, 2013):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(table(3), tmp_path / f"year={year}" / "x.parquet")
    found = ParquetFiles.open([str(tmp_path)])
    assert found.schema.names == ["id", "word", "year"]
    rows = [row for share in found.shares(2) for batch in share.batches() for row in batch.to_pylist()]
    assert sorted({row["year"] for row in rows}) == [2012, 2013]


@pytest.mark.parametrize(
    ("path", "why"), [("nothing", "cannot be read as Parquet"), ("*.none", "no file is named")]
)
def test_files_that_are_not_there(tmp_path: Path, path: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ParquetFiles.open([str(tmp_path / path)])


def test_files_without_rows_and_texts_in_dictionaries(tmp_path: Path) -> None:
    words = pa.array(["a", "b"]).dictionary_encode()
    pq.write_table(pa.table({"word": words}), tmp_path / "words.parquet")
    pq.write_table(pa.table({"word": words.slice(0, 0)}), tmp_path / "empty.parquet")
    found = ParquetFiles.open([str(tmp_path / "*.parquet")])
    assert found.schema.field("word").type == pa.string()
    assert [
        word for one in found.shares(2) for batch in one.batches() for word in batch.column(0).to_pylist()
    ] == ["a", "b"]
    empty = ParquetFiles.open([str(tmp_path / "empty.parquet")])
    assert [list(share.batches()) for share in empty.shares(8)] == [[]]


def test_files_are_found_from_other_folders(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files.parent)
    found = ParquetFiles.open(["files/*.parquet"])
    monkeypatch.chdir("/")
    assert sum(batch.num_rows for share in found.shares(3) for batch in share.batches()) == COUNT


def test_files_with_different_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(ConfigError, match="different columns"):
        ParquetFiles.open([str(tmp_path / "*.parquet")])


def test_what_was_done_in_words() -> None:
    done = Loaded("m", "append", 10, 8, 2, 3, 4, 2.0, 1.0)
    assert str(done) == (
        "8 rows loaded into map 'm' in 2.0 s (10 rows/s); 2 kept out, their keys have other values; 3 rejected; "
        "4 sent again; 1.0 s of it to look through them first"
    )


# -- on Spark

spark_test = pytest.mark.spark


@spark_test
@pytest.mark.parametrize("kind", ["path", "frame"])
def test_rows_are_loaded_and_counted(
    spark: SparkSession, cluster: MemoryCluster, files: Path, kind: str
) -> None:
    source = str(files) if kind == "path" else spark.read.parquet(str(files))
    shown: list[Progress] = []
    done = load(spark, source, "m", "id", address=cluster.addresses(), progress=shown.append)
    assert (done.rows, done.inserted, done.kept, done.rejected) == (COUNT, COUNT, 0, 0)
    assert values(cluster) == {row["id"]: row for row in table().to_pylist()}
    last = shown[-1]
    assert (last.title, last.rows, last.tasks_done) == ("load", COUNT, last.tasks)
    assert {one.title for one in shown} == {"check", "load"}
    more = pq.ParquetFile(files / "a.parquet").read().set_column(1, "word", [["new"] * 900])
    pq.write_table(more, files / "a.parquet")
    again = load(spark, source, "m", "id", address=cluster.addresses(), insert_only=True)
    assert (again.rows, again.inserted, again.kept) == (COUNT, COUNT - 900, 900)
    assert values(cluster)[0]["word"] == "w0"


@spark_test
def test_modes(spark: SparkSession, cluster: MemoryCluster, files: Path) -> None:
    address = cluster.addresses()
    for mode in ("error", "ignore"):
        assert load(spark, str(files), mode, "id", address=address, mode=mode).rows == COUNT
    small = spark.createDataFrame([(1, "new")], "id long, word string")
    assert load(spark, small, "ignore", "id", address=address, mode="ignore").skipped
    with pytest.raises(ConfigError, match="the map 'error' exists already"):
        load(spark, small, "error", "id", address=address, mode="error")
    assert len(values(cluster, "ignore")) == len(values(cluster, "error")) == COUNT
    load(spark, small, "error", "id", address=address, mode="overwrite")
    assert values(cluster, "error") == {1: {"id": 1, "word": "new"}}
    with pytest.raises(ConfigError, match="its columns are"):
        load(spark, small.drop("word"), "error", "id", address=address)
    with pytest.raises(ConfigError, match="append, overwrite, ignore or error"):
        load(spark, small, "error", "id", address=address, mode="errorifexists")


@spark_test
@pytest.mark.parametrize("kind", ["path", "frame"])
def test_nothing_is_written_when_a_row_cannot_be(
    spark: SparkSession, cluster: MemoryCluster, files: Path, tmp_path: Path, kind: str
) -> None:
    cluster.limits = LimitSettings(value_bytes=2000)
    address = cluster.addresses()
    load(spark, spark.createDataFrame([(-1, "old")], "id long, word string"), "m", "id", address=address)
    bad = pa.table({"id": pa.array([None, 5000], pa.int64()), "word": ["x", "y" * 3000]})
    pq.write_table(bad, files / "c.parquet")
    source = str(files) if kind == "path" else spark.read.parquet(str(files))
    with pytest.raises(
        CannotStore, match=r"2 of 2002 rows cannot be stored, so nothing was written: "
    ) as told:
        load(spark, source, "m", "id", address=address, mode="overwrite")
    assert "no value in the column 'id'" in str(told.value)
    assert "limits.value_bytes" in str(told.value)
    assert list(values(cluster)) == [-1]
    folder = tmp_path / "rejects"
    done = load(spark, source, "m", "id", address=address, mode="overwrite", rejects=str(folder))
    assert (done.rows, done.rejected, done.check_seconds) == (COUNT, 2, 0.0)
    lines = [json.loads(line) for file in folder.iterdir() for line in file.read_text().splitlines()]
    assert {line["row"]["id"] for line in lines} == {None, 5000}


@spark_test
def test_csv_and_json_lines_with_lines_that_do_not_fit(
    spark: SparkSession, cluster: MemoryCluster, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text("id,n\n1,7\n2,b\n3,9\n")
    (tmp_path / "x.jsonl").write_text('{"id": 1, "n": 7}\n{"id": \n{"id": 3, "n": 9}\n')
    for name in ("x.csv", "x.jsonl"):
        path = str(tmp_path / name)
        address, columns = cluster.addresses(), "id long, n int"
        with pytest.raises(CannotStore, match=r"1 of 3 rows cannot be stored.*does not fit the columns"):
            load(spark, path, name, "id", address=address, columns=columns)
        folder = tmp_path / f"{name}-rejects"
        done = load(spark, path, name, "id", address=address, columns=columns, rejects=str(folder))
        assert (done.rows, done.rejected) == (2, 1)
        assert values(cluster, name) == {1: {"id": 1, "n": 7}, 3: {"id": 3, "n": 9}}
    assert load(spark, str(tmp_path / "x.csv"), "guessed", "id", address=cluster.addresses()).rows == 3


@spark_test
def test_the_rate_is_that_of_all_tasks_together(
    spark: SparkSession, cluster: MemoryCluster, files: Path
) -> None:
    done = load(
        spark,
        str(files),
        "m",
        "id",
        address=cluster.addresses(),
        rows_per_second=2000,
        rejects="fail",
        tasks=2,
    )
    # Never early, however fast the machine: the last steps may go at once in each task.
    assert done.rows == COUNT
    assert done.seconds - done.check_seconds > 0.7


@spark_test
def test_wrong_questions_are_refused_before_anything_runs(
    spark: SparkSession, cluster: MemoryCluster
) -> None:
    address = cluster.addresses()
    for arguments, why in (
        (([], "m", "id"), "no files"),
        ((["a.csv", "b.parquet"], "m", "id"), "several formats"),
        ((spark.range(1), "m", "nope"), "no key column 'nope'"),
    ):
        with pytest.raises(ConfigError, match=why):
            load(spark, *arguments, address=address)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="have their columns in them"):
        load(spark, "x.parquet", "m", "id", address=address, columns="id long")


@spark_test
def test_the_command_says_what_it_did(
    monkeypatch: pytest.MonkeyPatch, cluster: MemoryCluster, files: Path, request: pytest.FixtureRequest
) -> None:
    from contextlib import nullcontext

    from holdfast.cli import load as under_test
    from holdfast.cli.main import holdfast

    # The session of all tests instead of one that would be stopped.
    spark = request.getfixturevalue("spark")
    monkeypatch.setattr(under_test, "spark_job", lambda *_: nullcontext(spark))
    asked = ["load", str(files), "--map", "m", "--key", "id", "--address", cluster.addresses()]
    told = CliRunner().invoke(holdfast, [*asked, "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert (found["rows"], found["inserted"], found["map"]) == (COUNT, COUNT, "m")
    refused = CliRunner().invoke(holdfast, [*asked, "--mode", "error"])
    assert refused.exit_code == 2
    assert "the map 'm' exists already" in refused.stderr
    told = CliRunner().invoke(holdfast, [*asked, "--mode", "ignore"])
    assert (told.exit_code, told.stdout) == (
        0,
        "the map 'm' exists already: nothing was loaded (mode ignore)\n",
    )
