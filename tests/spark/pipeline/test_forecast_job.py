"""Plans as Spark jobs, and against real members."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from tests.command_lines import group_of

from holdfast.cli.main import holdfast
from holdfast.cli.paths import check_folders
from holdfast.client.blocking import Client
from holdfast.client.connection import Connection, Credentials
from holdfast.client_core.routing import parse_addresses
from holdfast.core.model.partition_events import Kind
from holdfast.planning.forecast import ask, foresee
from holdfast.planning.live_cluster import live_sizes, look
from holdfast.spark.pipeline.forecast_job import foresee_on_spark, frame, moves
from holdfast.wire import own
from holdfast_lab.processes.local_cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Move = tuple[int, str, str | None, int, int, str, int, int]


def test_a_plan_on_spark_is_what_one_process_finds(spark: SparkSession) -> None:
    table = {"members": 30, "groups": 5, "partitions": 900, "copies": 3}
    told = []
    question = ask(["join:3", "crash-zone"], **table, block=100, orders=True)
    result = foresee_on_spark(spark, question, progress=told.append)
    assert result.tasks == 9 and told[-1].tasks_done == 9
    # A block is counted once for each of its states: as it is, and after the one step, in both scenarios.
    assert told[-1].partitions == 4 * 900
    assert result.figures == foresee(question).figures
    assert result.find("join:3").migrations > 0
    rows = frame(spark, result)
    assert rows.count() == 4
    assert rows.where("step = 0 and scenario = 'crash-zone'").first()["fewest"] == 2  # type: ignore[index]
    text = str(result)
    assert "crash-zone, by arrange" in text and "copies at the worst moment" in text


def news(cluster: LocalCluster, after: own.Heard | None = None) -> own.Heard:
    """What the oldest member tells: from now on, or since then."""
    address = parse_addresses(cluster.alive[0].client_address)[0]
    connection = Connection(address, Credentials(), 5.0)
    try:
        last = after.last if after is not None else None
        return connection.ask(own.Watch(connection.next_number(), last), own.Heard)
    finally:
        connection.close()


def executed(heard: own.Heard) -> list[Move]:
    """The migrations that were carried out, in the order of each partition."""
    assert heard.complete
    done = [each.migration for each in heard.news if each.kind is Kind.COMPLETED]
    return sorted(
        (
            (
                each.partition,
                each.kind.value,
                each.source,
                each.source_current,
                each.source_new,
                each.destination,
                each.destination_current,
                each.destination_new,
            )
            for each in done
            if each is not None
        ),
        key=lambda move: move[0],
    )


def foretold(spark: SparkSession, cluster: LocalCluster, scenario: str) -> tuple[list[Move], int]:
    """The migrations that Spark foretells from the table as it is now, in the order of each partition."""
    seen = look(cluster.alive[-1].client_address, Credentials())
    question = seen.question([scenario])
    rows = sorted(moves(spark, question).collect(), key=lambda row: (row["partition"], row["place"]))
    result = foresee_on_spark(spark, question).figures[-1]
    assert result.migrations == len(rows)
    assert result.fewest == seen.status.partitions.replicas
    return [
        (
            row["partition"],
            row["kind"],
            row["source"],
            row["source_current"],
            row["source_new"],
            row["destination"],
            row["destination_current"],
            row["destination_new"],
        )
        for row in rows
    ], result.migrations


@pytest.mark.slow
def test_what_spark_foretells_of_real_members_is_what_they_do(spark: SparkSession) -> None:
    """A join and a drain: the migrations in the members' news are those foretold, one by one."""
    with LocalCluster(
        members=3, config="[cluster]\nheartbeat_ms = 200\nsuspect_after_ms = 10000\n"
    ) as cluster:
        cluster.wait_settled(120)
        address = cluster.members[0].client_address
        with Client(address) as client:
            for number in range(200):
                client.set("words", b"\x00\x00\x00\x01k%d" % number, b"v")
        sizes = live_sizes("entries:50", look(address, Credentials()), address, Credentials(), 0)
        assert sum(sizes.measured) == 200 * 50

        expected, count = foretold(spark, cluster, "join:1")
        before = news(cluster)
        joined = cluster.start_member()
        cluster.wait_settled(60)
        named_so = [tuple(joined.uuid if part == "join-1" else part for part in move) for move in expected]
        assert executed(news(cluster, before)) == named_so
        assert len(named_so) == count > 0

        leaving = cluster.members[2]
        expected, count = foretold(spark, cluster, f"drain:{leaving.uuid[:8]}")
        before = news(cluster)
        cluster.drain(leaving)
        cluster.wait_settled(60)
        assert executed(news(cluster, before)) == expected
        assert len(expected) == count > 0


@pytest.mark.slow
def test_the_command_writes_figures_and_migrations(tmp_path: Path) -> None:
    """Slow, for it starts and stops a Spark of its own."""
    import subprocess
    import sys

    import pyarrow.parquet as pq

    told = subprocess.run(
        [
            sys.executable, "-c", "from holdfast.cli.main import main; main()", "plan", "--spark",
            "--members", "6", "--groups", "3", "--partitions", "300", "--scenario", "crash-zone,join:2",
            "--json", "--to", str(tmp_path / "figures"), "--moves", str(tmp_path / "moves"),
        ],
        capture_output=True, text=True, check=True, timeout=180,
    )  # fmt: skip
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    assert [row["text"] for row in rows] == ["as it is", "crash-zone", "join:2"]
    assert pq.read_table(tmp_path / "figures").num_rows == 3
    assert pq.read_table(tmp_path / "moves").num_rows == sum(row["migrations"] for row in rows)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scenario", "explode"], "is not known"),
        (["--groups", "500"], "cannot be"),
        (["--bandwidth", "fast"], "1Gbit"),
        (["--mtbf", "0s"], "more than 0"),
        (["--size", "entries:9"], "is not allowed"),
        (["--size", "lognormal:1MiB,nan"], "is not allowed"),
        (["--size", "lognormal:1MiB,900"], "is not allowed"),
        (["--size", "1e999"], "is not allowed"),
        (["--size", "1e18", "--partitions", "1000"], "too much"),
        (["--mtbf", "1e999s"], "is not allowed"),
        (["--bandwidth", "1e999Gbit"], "is not allowed"),
    ],
)
def test_wrong_options_are_told_before_anything_is_planned(arguments: list[str], words: str) -> None:
    told = CliRunner().invoke(holdfast, ["plan", "--members", "100", *arguments])
    assert told.exit_code == 2
    assert words in told.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["plan", "--spark", "--to"],
        ["plan", "--spark", "--moves"],
        ["campaign", "--seeds", "1", "--to"],
        ["analyse", "--to"],
    ],
)
def test_a_folder_with_something_in_it_is_refused_and_left_alone(tmp_path: Path, command: list[str]) -> None:
    stopped = tmp_path / "stopped"
    stopped.mkdir()
    (stopped / "j000000000001.seg").write_bytes(b"")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter").write_text("to be kept")
    arguments = [command[0], str(stopped)] if command[0] == "analyse" else command[:-1]
    for wrong in (mine, mine / "letter", mine / "letter" / "new"):
        told = CliRunner().invoke(group_of(arguments), [*arguments, command[-1], str(wrong)])
        assert told.exit_code == 2
        assert str(wrong) in told.stderr
        assert (mine / "letter").read_text() == "to be kept"
    if command[0] == "analyse":
        told = CliRunner().invoke(holdfast, [*arguments, "--to", str(stopped / "reports")])
        assert told.exit_code == 2 and "where nothing is changed" in told.stderr


def test_figures_and_migrations_want_folders_of_their_own(tmp_path: Path) -> None:
    for moves_to in (tmp_path / "out", tmp_path / "out" / "moves"):
        told = CliRunner().invoke(
            holdfast, ["plan", "--spark", "--to", str(tmp_path / "out"), "--moves", str(moves_to)]
        )
        assert told.exit_code == 2 and "use separate folders" in told.stderr
    # What is not there yet, or empty, may be written to; nothing is made before Spark starts.
    (tmp_path / "empty").mkdir()
    check_folders(tmp_path / "out", tmp_path / "empty", None)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "empty"]
