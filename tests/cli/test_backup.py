"""`holdfast backup` and `restore --no-spark`: small grids into a folder and back, by this process alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from tests.server.memory_cluster import MemoryCluster

from holdfast.cli.main import holdfast
from holdfast.client.blocking import Client
from holdfast.client.cut_handles import scan_cut
from holdfast.errors import NotReady
from holdfast.spark.pipeline import export as exporting
from holdfast.spark.pipeline.manifest import ENTRIES, NAME
from holdfast.wire.values import to_stored

ROWS = 1500


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(holdfast, [str(each) for each in arguments])


def fill(cluster: MemoryCluster, name: str = "flights", rows: int = ROWS) -> None:
    with Client(cluster.addresses()) as client:
        keys = [to_stored(number) for number in range(rows)]
        values = [to_stored({"id": number, "word": f"word-{number}"}) for number in range(rows)]
        client.put_columns(name, keys, values, ttl_ms=0)


def entries(cluster: MemoryCluster, name: str) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    with Client(cluster.addresses()) as client:
        for partition in range(client.partition_count):
            for page in client.scan(name, partition):
                found.update(zip(*page.split(), strict=True))
    return found


def test_a_grid_is_backed_up_and_restored_into_another_number_of_partitions(tmp_path: Path) -> None:
    folder = tmp_path / "monday"
    with MemoryCluster(3, 31) as cluster, MemoryCluster(2, 7) as other:
        fill(cluster)
        fill(cluster, "a/b", 1)
        told = run("backup", "--to", folder, "-a", cluster.addresses(), "--json")
        assert told.exit_code == 0, told.output
        done = json.loads(told.stdout)
        assert [(each["name"], each["rows"]) for each in done["maps"]] == [("a/b", 1), ("flights", ROWS)]
        assert (done["rows"], done["partition_count"]) == (ROWS + 1, 31)

        told = run(
            "restore", folder, "--no-spark", "-a", other.addresses(), "--rename", "flights=monday", "--json"
        )
        assert told.exit_code == 0, told.output
        back = json.loads(told.stdout)
        assert (back["sound"], back["rows"]) == (True, ROWS + 1)
        assert {each["to"]: each["verdict"] for each in back["maps"]} == {"a/b": "equal", "monday": "equal"}
        assert entries(other, "monday") == entries(cluster, "flights")

        again = run("restore", folder, "--no-spark", "-a", other.addresses(), "--rename", "flights=monday")
        assert again.exit_code == 2
        assert "has 1 entries" in again.output
        over = run(
            "restore", folder, "--no-spark", "-a", other.addresses(), "--map", "a/b", "--mode", "overwrite"
        )
        assert over.exit_code == 0, over.output
        assert "restored 1 rows of 1 maps" in over.stdout


def test_the_files_are_those_of_an_export(tmp_path: Path) -> None:
    with MemoryCluster(3, 31) as cluster:
        fill(cluster)
        assert run("backup", "flights", "--to", tmp_path / "b", "-a", cluster.addresses()).exit_code == 0
    files = sorted((tmp_path / "b" / ENTRIES / "map=flights").glob("part-*.parquet"))
    assert sum(pq.read_metadata(file).num_rows for file in files) == ROWS
    assert pq.read_schema(files[0]).names == exporting.SCHEMA.names


def test_a_backup_that_was_interrupted_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "b"
    scans = 0

    def scan(*arguments: object, **named: object) -> object:
        nonlocal scans
        scans += 1
        if scans > 20:
            raise NotReady("the power has failed")
        return scan_cut(*arguments, **named)  # type: ignore[arg-type]

    with MemoryCluster(3, 31) as cluster:
        fill(cluster)
        with monkeypatch.context() as failing:
            failing.setattr(exporting, "scan_cut", scan)
            told = run("backup", "--to", folder, "-a", cluster.addresses())
        assert told.exit_code == 1, told.output
        assert "the power has failed" in told.output
        assert (folder / ENTRIES).exists()
        assert not (folder / NAME).exists()
        assert not [file for file in folder.rglob("*") if file.is_file() and file.suffix != ".parquet"]
        for command in (["restore", folder, "--no-spark"], ["backup", "--to", folder]):
            refused = run(*command, "-a", cluster.addresses())
            assert refused.exit_code in (1, 2)
            assert "did not finish" in refused.output


def test_damage_is_found_before_anything_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "b"
    with MemoryCluster(3, 31) as cluster, MemoryCluster(2, 7) as other:
        fill(cluster)
        assert run("backup", "--to", folder, "-a", cluster.addresses()).exit_code == 0
        file = next(folder.rglob("part-*.parquet"))
        data = file.read_bytes()
        file.write_bytes(data[:150] + bytes([data[150] ^ 4]) + data[151:])
        told = run("restore", folder, "--no-spark", "-a", other.addresses())
        assert told.exit_code == 1
        assert "is damaged" in told.output and "nothing was written" in told.output
        with Client(other.addresses()) as client:
            assert client.size("flights") == 0


def test_a_restore_that_others_disturb_is_not_judged(tmp_path: Path) -> None:
    """Entries that were there before, some of them with the same keys: sums are not conclusive."""
    folder = tmp_path / "b"
    with MemoryCluster(3, 31) as cluster:
        fill(cluster)
        assert run("backup", "--to", folder, "-a", cluster.addresses()).exit_code == 0
        with Client(cluster.addresses()) as client:
            client.set("flights", to_stored(7), to_stored("changed"))
            client.set("flights", to_stored("more"), to_stored("changed"))
        told = run("restore", folder, "--no-spark", "--mode", "append", "-a", cluster.addresses(), "--json")
        assert told.exit_code == 3, told.output
        assert [each["verdict"] for each in json.loads(told.stdout)["maps"]] == ["undecided"]


WITHOUT_PYSPARK = """
import sys
from importlib.machinery import PathFinder
from click.testing import CliRunner
find = PathFinder.find_spec
PathFinder.find_spec = classmethod(
    lambda cls, name, path=None, target=None:
        None if name.split(".")[0] in ("pyspark", "pandas") else find(name, path, target)
)
from holdfast.cli.main import holdfast
for command in sys.argv[1:]:
    told = CliRunner().invoke(holdfast, command.split())
    print(told.exit_code, told.stdout.replace(chr(10), " "))
"""


def test_neither_needs_pyspark(tmp_path: Path) -> None:
    with MemoryCluster(2, 7) as cluster:
        fill(cluster)
        address = cluster.addresses()
        backup = f"backup --to {tmp_path}/b -a {address}"
        restore = f"restore {tmp_path}/b -a {address} --rename flights=again"
        told = subprocess.run(
            [sys.executable, "-c", WITHOUT_PYSPARK, backup, restore],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    first, second = told.stdout.splitlines()
    assert first.startswith("0 exported 1,500 rows of 1 map"), first
    assert second.startswith("0 restored 1,500 rows of 1 maps"), second


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_what_spark_has_exported_is_restored_without_it_and_the_other_way_round(tmp_path: Path) -> None:
    with MemoryCluster(3, 31) as cluster, MemoryCluster(2, 7) as other:
        fill(cluster)
        here, there = cluster.addresses(), other.addresses()
        assert run("export", "--to", tmp_path / "e", "-a", here).exit_code == 0
        told = run("restore", tmp_path / "e", "--no-spark", "-a", there)
        assert told.exit_code == 0, told.output
        assert run("backup", "--to", tmp_path / "b", "-a", there).exit_code == 0
        told = run("export", "verify", tmp_path / "b")
        assert told.exit_code == 0, told.output
        told = run("restore", tmp_path / "b", "-a", here, "--rename", "flights=again")
        assert told.exit_code == 0, told.output
        assert entries(cluster, "again") == entries(cluster, "flights")
        file = next((tmp_path / "b").rglob("part-*.parquet"))
        file.write_bytes(file.read_bytes()[:-1])
        assert run("export", "verify", tmp_path / "b").exit_code == 1
