"""What a load could have lost or changed without a word: wide types, odd files, times far away, its own map."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from tests.server.memory_cluster import MemoryCluster

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pyspark")

from tests.spark.read_entries import read_entries  # noqa: E402

from holdfast.cli.main import holdfast  # noqa: E402
from holdfast.errors import ConfigError  # noqa: E402
from holdfast.spark.jobs import slots  # noqa: E402
from holdfast.spark.pipeline.extract import extract, json_lines  # noqa: E402
from holdfast.spark.pipeline.load import CannotStore, RowsChanged, _Parquet, _same_rows, load  # noqa: E402
from holdfast.spark.pipeline.parquet import ParquetFiles  # noqa: E402
from holdfast.spark.pipeline.tables import table  # noqa: E402
from holdfast.spark.rows.column_schemas import arrow_schema  # noqa: E402
from holdfast.spark.rows.compact import CompactDecoder, CompactEncoder  # noqa: E402
from holdfast.spark.rows.entry_encoder import EntryEncoder, Limits, Shape  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANY = Limits()
FIRST, LAST = dt.date(1, 1, 1), dt.date(9999, 12, 31)


def rows(files: ParquetFiles) -> list[dict[str, Any]]:
    found = [row for one in files.shares(4) for part in one.batches() for row in part.to_pylist()]
    return sorted(found, key=lambda row: row["id"])


# -- cells that do not fit


def test_a_cell_that_does_not_fit_its_type_is_a_rejected_row() -> None:
    wanted = pa.schema({"id": pa.int64(), "at": pa.timestamp("us"), "n": pa.int32()})
    given = pa.RecordBatch.from_pydict(
        {
            "id": pa.array([1, 2, 3, None, 5], pa.int64()),
            "at": pa.array([1, 1000, 2000, 3000, None], pa.timestamp("ns")),
            "n": pa.array([1, 2, 5_000_000_000, 4, 5], pa.int64()),
        }
    )
    encoder = EntryEncoder(wanted, Shape(("id",)))
    found = encoder.encode(given, ANY)
    assert [(one.row, one.why[:37]) for one in found.wrong] == [
        (0, "the column 'at' cannot become timesta"),
        (2, "the column 'n' cannot become int32: I"),
        (3, "no value in the column 'id', part of "),
    ]
    assert encoder.check(given, ANY) == found.wrong
    read = read_entries(wanted, "json", found.keys.to_pylist(), found.values.to_pylist())
    assert read.to_pylist() == [
        {"id": 2, "at": dt.datetime(1970, 1, 1, microsecond=1), "n": 2},  # noqa: DTZ001 - it has no zone
        {"id": 5, "at": None, "n": 5},
    ]


def test_days_and_times_that_could_not_be_read_again_are_rejected() -> None:
    days = [(FIRST - dt.date(1970, 1, 1)).days, (LAST - dt.date(1970, 1, 1)).days]
    numbers = [days[0], days[1], days[0] - 1, days[1] + 1, None]
    ticks = [days[0] * 86_400_000_000, (days[1] + 1) * 86_400_000_000 - 1]
    moments = [*ticks, ticks[0] - 1, ticks[1] + 1, None]
    for cells in (
        pa.array(numbers, pa.int32()).cast(pa.date32()),
        pa.array(moments, pa.int64()).cast(pa.timestamp("us")),
        pa.array(moments, pa.int64()).cast(pa.timestamp("us", "UTC")),
    ):
        part = pa.RecordBatch.from_arrays([pa.array(range(5), pa.int64()), cells], names=["id", "when"])
        for value_format in ("json", "compact"):
            encoder = EntryEncoder(part.schema, Shape(("id",), value_format, type_name="t"))
            found = encoder.encode(part, ANY)
            assert [one.row for one in found.wrong] == [2, 3]
            assert "not within the years 1 to 9999" in found.wrong[0].why
            few = part.select(encoder.columns_to_check())
            assert encoder.check(few, ANY) == found.wrong
        made = EntryEncoder(part.schema, Shape(("id",))).encode(part, ANY)
        read = read_entries(part.schema, "json", made.keys.to_pylist(), made.values.to_pylist())
        assert read.column(1).equals(cells.filter(pa.array([True, True, False, False, True])))


def test_a_decimal_of_38_digits_is_read_exactly() -> None:
    kind = pa.decimal128(38, 18)
    cells = [decimal.Decimal("12345678901234567890.123456789012345678"), decimal.Decimal("-1E-18"), None]
    part = pa.RecordBatch.from_arrays([pa.array(cells, kind)], names=["d"])
    encoder = CompactEncoder(part.schema, "t")
    decoder = CompactDecoder(lambda _: encoder.schema)
    assert [decoder.read(value)["d"] for value in encoder.cells(part).to_pylist()] == cells


# -- Parquet files


@pytest.mark.parametrize("form", ["", "*.parquet"])
@pytest.mark.parametrize(("columns", "why"), [({"b": ["x"]}, "it also has b"), ({}, "it lacks a")])
def test_no_column_of_a_later_file_is_lost(
    tmp_path: Path, form: str, columns: dict[str, Any], why: str
) -> None:
    pq.write_table(pa.table({"id": [1], "a": [1]}), tmp_path / "one.parquet")
    more = {"a": [2], **columns} if columns else {}
    pq.write_table(pa.table({"id": [2], **more}), tmp_path / "two.parquet")
    with pytest.raises(ConfigError, match=rf"two\.parquet differs from .*one\.parquet: {why}"):
        ParquetFiles.open([str(tmp_path / form)])


@pytest.mark.parametrize("form", ["", "*.parquet"])
def test_files_of_several_widths_make_the_widest(tmp_path: Path, form: str) -> None:
    pq.write_table(pa.table({"id": [1], "v": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [2], "v": [5_000_000_000]}), tmp_path / "b.parquet")
    found = ParquetFiles.open([str(tmp_path / form)])
    assert found.schema.field("v").type == pa.int64()
    assert rows(found) == [{"id": 1, "v": 1}, {"id": 2, "v": 5_000_000_000}]
    pq.write_table(pa.table({"id": [3], "v": ["x"]}), tmp_path / "c.parquet")
    with pytest.raises(ConfigError, match="different columns"):
        ParquetFiles.open([str(tmp_path / form)])


def test_columns_of_other_types_are_looked_through(tmp_path: Path) -> None:
    at = pa.array([1, 1000], pa.timestamp("ns"))
    pq.write_table(pa.table({"id": [1, 2], "at": at, "n": [1, 2]}), tmp_path / "a.parquet")
    made = _Parquet.open([str(tmp_path)], 1)
    assert made.to_cast == {"at"}
    encoder = EntryEncoder(arrow_schema(made.struct), Shape(("id",)))
    found = [one for part in made.shares[0].batches() for one in encoder.check(part, ANY) or []]
    assert [one.row for one in found] == [0]


def test_times_as_spark_writes_them_are_those_that_they_were(tmp_path: Path) -> None:
    moments = [dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, tzinfo=dt.UTC)]
    cells = pa.array(moments, pa.timestamp("us", "UTC"))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2], "at": cells}), path, use_deprecated_int96_timestamps=True)
    made = _Parquet.open([str(path)], 1)
    assert made.struct["at"].dataType.simpleString() == "timestamp"
    found = pa.Table.from_batches(made.shares[0].batches())
    assert found.column("at").combine_chunks().equals(cells)


def test_what_is_no_parquet_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    (tmp_path / "README.txt").write_text("hello")
    with pytest.raises(ConfigError, match=r"cannot be read as Parquet: .*README\.txt"):
        ParquetFiles.open([str(tmp_path)])
    (tmp_path / "none").mkdir()
    with pytest.raises(ConfigError, match="there are no Parquet files in"):
        ParquetFiles.open([str(tmp_path / "none")])


# -- rows as text


def test_numbers_that_json_lacks_are_texts_in_lines() -> None:
    cells = [float("nan"), float("inf"), float("-inf"), 0.5, None]
    found = pa.table({"x": cells, "l": [[one] for one in cells]})
    texts = ["NaN", "Infinity", "-Infinity", 0.5, None]
    assert [json.loads(line) for line in json_lines(found)] == [{"x": one, "l": [one]} for one in texts]


def test_the_commands_have_the_options() -> None:
    told = CliRunner().invoke(holdfast, ["read", "--help"]).output
    assert all(option in told for option in ("--read-from", "--partitions", "--format"))
    assert "--value-column" in CliRunner().invoke(holdfast, ["load", "--help"]).output


# -- on Spark

spark_test = pytest.mark.spark


@pytest.mark.slow
@spark_test
def test_a_map_is_not_overwritten_from_itself(spark: SparkSession, cluster: MemoryCluster) -> None:
    address = cluster.addresses()
    load(spark, spark.range(50).selectExpr("id", "id * 2 as v"), "m", "id", address=address)

    def frame(**options: Any) -> Any:
        return spark.read.format("holdfast").options(address=address, **options).load("m")

    frame().createOrReplaceTempView("held")
    inside = spark.sql("select id, id as v from range(99) where id in (select id from held where v > 4)")
    for source in (frame().selectExpr("id", "v + 1 as v"), inside):
        with pytest.raises(ConfigError, match="the DataFrame reads the map 'm', which overwriting clears"):
            load(spark, source, "m", "id", address=address, mode="overwrite")
    assert frame().count() == 50
    source = frame(cut="true").selectExpr("id", "v + 1 as v")
    assert load(spark, source, "m", "id", address=address, mode="overwrite").rows == 50
    assert frame().where("v = id * 2 + 1").count() == 50
    with MemoryCluster(1, 7) as other:
        assert load(spark, frame(), "m", "id", address=other.addresses(), mode="overwrite").rows == 50
    # Spark's plan says nothing of the fast road, whose reading was planned before: it is done at a cut.
    source = table(spark, "m", address=address).selectExpr("id", "v + 1 as v")
    assert load(spark, source, "m", "id", address=address, mode="overwrite").rows == 50
    assert frame().where("v = id * 2 + 2").count() == 50


def test_rows_that_come_or_go_between_two_looks_are_told() -> None:
    _same_rows("m", 50, 50)
    _same_rows("m", None, 7)
    with pytest.raises(RowsChanged, match="50 rows were checked, and then 49 were written into map 'm'"):
        _same_rows("m", 50, 49)


@spark_test
def test_nothing_is_cleared_for_a_cell_that_does_not_fit(
    spark: SparkSession, cluster: MemoryCluster, tmp_path: Path
) -> None:
    address = cluster.addresses()
    load(spark, spark.range(9), "m", "id", address=address)
    (tmp_path / "in").mkdir()
    at = pa.array([1, 1000], pa.timestamp("ns"))
    pq.write_table(pa.table({"id": [1, 2], "at": at}), tmp_path / "in" / "a.parquet")
    far = spark.sql("select 1L id, date_add(date'9999-12-31', 1) day union all select 2L, date'9999-12-31'")
    for source in (str(tmp_path / "in"), far):
        with pytest.raises(CannotStore, match="1 of 2 rows cannot be stored, so nothing was written"):
            load(spark, source, "m", "id", address=address, mode="overwrite")
    assert table(spark, "m", address=address).count() == 9
    rejects = str(tmp_path / "out")
    for source in (str(tmp_path / "in"), far):
        done = load(spark, source, "m", "id", address=address, mode="overwrite", rejects=rejects)
        assert (done.rows, done.rejected) == (1, 1)
        assert [row["id"] for row in table(spark, "m", address=address).collect()] == [2]
    lines = [json.loads(line) for file in Path(rejects).iterdir() for line in file.read_text().splitlines()]
    assert [line["row"]["id"] for line in lines] == [1, 1]


@spark_test
def test_lines_with_too_many_or_too_few_cells_are_not_stored(
    spark: SparkSession, cluster: MemoryCluster, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text("id,name\n1,a,more\n2\n3,c\n")
    address = cluster.addresses()
    with pytest.raises(CannotStore, match=r"2 of 3 rows cannot be stored.*does not fit the columns"):
        load(spark, str(tmp_path / "x.csv"), "m", "id", address=address)
    done = load(spark, str(tmp_path / "x.csv"), "m", "id", address=address, rejects=str(tmp_path / "out"))
    assert (done.rows, done.rejected) == (1, 2)
    assert [row.asDict() for row in table(spark, "m", address=address).collect()] == [{"id": 3, "name": "c"}]
    with pytest.raises(ConfigError, match="tasks is for Parquet files"):
        load(spark, str(tmp_path / "x.csv"), "m", "id", address=address, tasks=2)


@spark_test
def test_a_column_may_have_a_dot_in_its_name(
    spark: SparkSession, cluster: MemoryCluster, tmp_path: Path
) -> None:
    address = cluster.addresses()
    frame = spark.sql("select 1L id, 'x' `a.b`")
    pq.write_table(pa.table({"id": [1], "a.b": ["x"]}), tmp_path / "a.parquet")
    for at, source in enumerate((frame, str(tmp_path / "a.parquet"))):
        assert load(spark, source, f"m{at}", "id", address=address).rows == 1
        assert extract(spark, f"m{at}", address=address).first.to_pylist() == [{"id": 1, "a.b": "x"}]


@spark_test
def test_files_have_the_times_of_the_map(spark: SparkSession, cluster: MemoryCluster, tmp_path: Path) -> None:
    address = cluster.addresses()
    frame = spark.sql("select 1L id, timestamp'9999-12-31 00:00:00' t, timestamp_ntz'0001-01-01 00:00:00' n")
    frame.write.parquet(str(tmp_path / "in"))
    load(spark, str(tmp_path / "in"), "m", "id", address=address)
    assert table(spark, "m", address=address).schema.simpleString() == frame.schema.simpleString()
    row = {
        "id": 1,
        "t": dt.datetime(9999, 12, 31, tzinfo=dt.UTC),
        "n": dt.datetime(1, 1, 1),  # noqa: DTZ001 - it has no zone
    }
    extract(spark, "m", tmp_path / "out.parquet", address=address)
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.schema.types == arrow_schema(frame.schema).types
    assert found.to_pylist() == [row]
    extract(spark, "m", tmp_path / "out.jsonl", address=address)
    assert json.loads((tmp_path / "out.jsonl").read_text()) == {
        "id": 1,
        "t": "9999-12-31T00:00:00Z",
        "n": "0001-01-01T00:00:00",
    }


@spark_test
def test_slots_are_the_cores_that_there_are(spark: SparkSession) -> None:
    settings = spark.sparkContext._jsc.sc().conf()
    settings.set("spark.default.parallelism", "7")
    try:
        assert spark.sparkContext.defaultParallelism == 7
        assert slots(spark) == 2
    finally:
        settings.remove("spark.default.parallelism")


@spark_test
def test_the_commands_hand_their_options_over(
    monkeypatch: pytest.MonkeyPatch, cluster: MemoryCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    from contextlib import nullcontext

    from holdfast.cli import load as loading
    from holdfast.cli import read as reading

    # The session of all tests instead of one that would be stopped.
    spark = request.getfixturevalue("spark")
    for command in (loading, reading):
        monkeypatch.setattr(command, "spark_job", lambda *_: nullcontext(spark))
    address = cluster.addresses()
    pq.write_table(pa.table({"id": range(200), "word": ["x"] * 200}), tmp_path / "a.parquet")
    files = ["load", str(tmp_path / "a.parquet"), "--map", "m", "--key", "id", "--address", address]
    wrong = CliRunner().invoke(holdfast, [*files, "--value-format", "primitive", "--value-column", "nope"])
    assert "select the key and the value column 'nope'" in wrong.stderr
    asked = [*files, "--value-format", "primitive", "--value-column", "word"]
    assert CliRunner().invoke(holdfast, asked).exit_code == 0
    asked = ["read", "m", address, "--json", "--limit", "999"]
    few = CliRunner().invoke(holdfast, [*asked, "--partitions", "0-9", "--read-from", "backups"])
    assert few.exit_code == 0, few.output
    some = [json.loads(line) for line in few.stdout.splitlines()]
    assert 0 < len(some) < 200
    assert {row["word"] for row in some} == {"x"}
    raw = CliRunner().invoke(holdfast, [*asked, "--format", "binary"])
    assert [set(json.loads(line)) for line in raw.stdout.splitlines()] == [{"key", "value"}] * 200
