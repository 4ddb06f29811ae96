"""`holdfast changes`: what it refuses, how it prints, and a stream of real members."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.changes import as_json, as_text
from holdfast.cli.main import holdfast
from holdfast.client.blocking import Client
from holdfast.wire.values import to_stored
from holdfast_lab.processes.local_cluster import LocalCluster

CONFIG = """
[partitions]
count = 7
[maps.m]
changes_bytes = 1048576
"""


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--to-map", "n"], "needs --checkpoint"),
        (["--to-map", "n", "--to", "parquet", "x"], "not both"),
        (["--to-map", "n", "--checkpoint", "x", "--format", "text"], "not for --to-map"),
        (["--to-map", "n", "--checkpoint", "x", "--bad", "skip"], "not for --to-map"),
        (["--to-address", "a:1"], "goes with --to-map"),
        (["--to", "csv", "x"], "csv"),
        (["--from", "now"], "now"),
    ],
)
def test_what_does_not_go_together_is_refused_before_spark_starts(arguments: list[str], why: str) -> None:
    told = CliRunner().invoke(holdfast, ["changes", "m", *arguments])
    assert told.exit_code == 2
    assert why in told.output


def row(**cells: object) -> dict[str, object]:
    empty = dict.fromkeys(("time", "transaction", "key", "before", "after"))
    return {"map": "m", "partition": 3, "term": 2, "counter": 17, **empty, **cells}


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (
            row(op="update", key="k", before="1", after="2", time=datetime(2026, 1, 2, 3, 4, 5, 6000, UTC)),
            "2026-01-02 03:04:05.006 m 3:2:17 update k 1 -> 2",
        ),
        (row(op="insert", key="k", after="2"), f"{'-' * 23} m 3:2:17 insert k 2"),
        (row(op="remove", key=b"\x01k", before="1"), f"{'-' * 23} m 3:2:17 remove 016b 1"),
        (
            row(op="remove", key="k", before="1", transaction="0a1b"),
            f"{'-' * 23} m 3:2:17 remove k 1 (transaction 0a1b)",
        ),
        (row(op="restart"), f"{'-' * 23} m 3:2:17 restart"),
    ],
)
def test_a_change_is_a_line(told: dict[str, object], line: str) -> None:
    assert as_text(told) == line


def test_a_change_is_an_object() -> None:
    told = row(op="insert", key=b"\x01", after={"a": 1}, time=datetime(2026, 1, 2, tzinfo=UTC))
    assert json.loads(as_json(told)) == {
        "map": "m",
        "partition": 3,
        "term": 2,
        "counter": 17,
        "time": "2026-01-02T00:00:00+00:00",
        "op": "insert",
        "key": "01",
        "after": {"a": 1},
    }


def test_what_json_has_no_form_for_is_a_text() -> None:
    inner = {
        "price": Decimal("1.50"),
        "none": None,
        "yes": True,
        "day": date(2026, 1, 2),
        "raw": bytearray(b"\x02"),
        "all": [math.nan, math.inf, -math.inf, 0.5],
        "by": {Decimal(1): Decimal(2)},
        "long": timedelta(seconds=1),
    }
    told = as_json(row(op="update", key=Decimal("7.0"), before=math.nan, after=inner))
    assert "nan" not in told
    found = json.loads(told, parse_constant=pytest.fail)
    assert (found["key"], found["before"]) == ("7.0", "NaN")
    assert found["after"] == {
        "price": "1.50",
        "none": None,
        "yes": True,
        "day": "2026-01-02",
        "raw": "02",
        "all": ["NaN", "Infinity", "-Infinity", 0.5],
        "by": {"1": "2"},
        "long": "0:00:01",
    }


@pytest.mark.spark
@pytest.mark.slow
def test_changes_of_real_members_are_printed_and_applied(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    with LocalCluster(2, CONFIG) as members:
        members.wait_settled()
        with Client(members.client_addresses()) as client:
            for number in range(20):
                client.set("m", to_stored(f"k{number % 10}"), to_stored(f"v{number}"))

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [
                    sys.executable,
                    "-c",
                    "from holdfast.cli.main import main; main()",
                    "changes",
                    *arguments,
                    "--once",
                ],
                check=False,
                capture_output=True,
                text=True,
                timeout=120,
            )

        where = ("--address", ",".join(members.client_addresses()))
        printed = run("m", *where, "--from", "earliest", "--json")
        assert printed.returncode == 0, printed.stderr
        rows = [json.loads(line) for line in printed.stdout.splitlines()]
        assert sorted((one["key"], one["after"]) for one in rows) == sorted(
            (f"k{number % 10}", f"v{number}") for number in range(20)
        )
        assert "20 rows in" in printed.stderr
        applied = run("m", *where, "--to-map", "n", "--checkpoint", str(tmp_path / "c"), "--json")
        assert applied.returncode == 0, applied.stderr
        assert json.loads(applied.stdout)["rows"] == 10
        with Client(members.client_addresses()) as client:
            assert client.get("n", to_stored("k3")) == to_stored("v13")
            assert client.size("n") == 10
        refused = run("other", *where)
        assert refused.returncode == 1
        assert "changes_bytes" in refused.stderr
        assert "Traceback" not in refused.stderr
