"""Change streams of a map that moves between engines, on real member processes: under load, and from Spark."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.test_changes import MAP, Reader
from tests.cluster.test_zones import run, until

from holdfast.client.blocking import Client
from holdfast.core.model.keys import partition_of
from holdfast.errors import HoldfastError
from holdfast.spark.java import java_home
from holdfast.spark.source.member_changes import GridHistory, undo
from holdfast.wire.values import to_stored
from holdfast_lab.processes.local_cluster import LocalCluster

CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[partitions]
count = 7
[metastore]
voters = 3
[maps.numbers]
backups = 1
changes_bytes = 4194304
"""
KEYS = [to_stored(number) for number in range(20)]
MOVES = [("--zone", "z"), ("--no-zone",), ("--zone", "z")]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """With four members, a zone of two replicas: some members have a copy in one engine only."""
    with LocalCluster(4, CONFIG, log_dir=tmp_path) as running:
        running.wait_settled()
        assert run(running, "zone", "create", "z", "--replicas", "2").exit_code == 0
        until(lambda: run(running, "cluster", "safe").exit_code == 0, "the zone is never safe")
        yield running


class Writer(threading.Thread):
    """Sets keys to rising numbers; each is acknowledged before the next."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self._client = client
        self.turns = 0
        self.failed: BaseException | None = None
        self.ended = False

    def run(self) -> None:
        try:
            while not self.ended:
                for key in KEYS:
                    self._client.set(MAP, key, to_stored(self.turns))
                    time.sleep(0.002)
                self.turns += 1
        except BaseException as error:  # noqa: BLE001 - reported by the test
            self.failed = error

    def end(self) -> None:
        self.ended = True
        self.join(30)
        assert self.failed is None


def seen(reader: Reader) -> dict[bytes, list[bytes]]:
    """The values of each key, in the order of their changes."""
    found: dict[bytes, list[bytes]] = {key: [] for key in KEYS}
    for (partition, _, _), (_, key, value, _) in sorted(reader.seen.items(), key=lambda one: one[0][2]):
        assert partition == partition_of(key, 0, 7)
        found[key].append(value)
    return found


def test_readers_get_each_acknowledged_write_once_and_in_order(cluster: LocalCluster) -> None:
    with (
        Client(cluster.members[0].client_address) as client,
        Client(cluster.members[1].client_address) as mine,
    ):
        reader, late = Reader(7), Reader(7)
        writer = Writer(mine)
        writer.start()
        until(lambda: writer.turns > 1, "the writer does not write")
        for place in MOVES:
            moved = run(cluster, "map", "move", MAP, *place)
            assert moved.exit_code == 0, moved.output
            reader.read(client)
            if place is MOVES[1]:
                # Two moves behind.
                late.read(client)
            if place is MOVES[0]:
                history = GridHistory(client, 10.0)
                middle = {(MAP, at): head.place for at, head in history.heads(MAP).items()}
                entries = {at: history.entries(at, there) for at, there in middle.items()}
            turns = writer.turns
            until(lambda before=turns: writer.turns > before + 2, "the writer does not write")  # type: ignore[misc]
        writer.end()
        reader.read(client)
        late.read(client)
        expected = [to_stored(turn) for turn in range(writer.turns)]
        assert seen(reader) == seen(late) == dict.fromkeys(KEYS, expected)
        # A batch of a stream that is read again has the same rows.
        for at, there in middle.items():
            end = history.heads(MAP)[at[1]].place
            changes = list(history.changes(at, there, end))
            assert changes
            assert changes == list(history.changes(at, there, end))
            assert undo(history.entries(at, end), changes) == history.entries(at, there) == entries[at]


@pytest.mark.spark
@pytest.mark.slow
def test_a_spark_stream_goes_on_from_its_checkpoint(cluster: LocalCluster, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    try:
        java_home()
    except HoldfastError as missing:
        pytest.skip(str(missing))
    words = ["changes", MAP, "--from", "snapshot", "--once", "--json", "--format", "text"]
    words += ["--checkpoint", str(tmp_path / "checkpoint")]

    def changes() -> list[tuple[object, ...]]:
        done = run(cluster, *words)
        assert done.exit_code == 0, done.output
        rows = [json.loads(line) for line in done.output.splitlines() if line.startswith("{")]
        return sorted((row["op"], row["key"], row.get("before"), row["after"]) for row in rows)

    texts = [to_stored(f"key {number}") for number in range(len(KEYS))]
    named = sorted(f"key {number}" for number in range(len(KEYS)))
    with Client(cluster.members[0].client_address) as client:
        for value in ("one", "two"):
            client.put_columns(MAP, texts, [to_stored(value)] * len(texts))
            if value == "one":
                assert changes() == [("insert", key, None, "one") for key in named]
        assert run(cluster, "map", "move", MAP, "--zone", "z").exit_code == 0
        client.put_columns(MAP, texts, [to_stored("three")] * len(texts))
        assert changes() == sorted(
            ("update", key, before, after)
            for key in named
            for before, after in (("one", "two"), ("two", "three"))
        )
        assert changes() == []
