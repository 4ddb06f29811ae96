"""A map that moves between engines on real member processes, while clients of both protocols use it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hazelcast
import pytest
from hazelcast.proxy.map import BlockingMap
from tests.cluster.test_cluster import text
from tests.cluster.test_zones import run, until

from holdfast.client.blocking import Client
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[partitions]
count = 11
[metastore]
voters = 3
[maps.orders]
backups = 1
[maps.near]
backups = 1
"""
PARTITIONS = 271
ENTRIES = 400


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(3, CONFIG, log_dir=tmp_path) as running:
        running.wait_settled()
        assert run(running, "zone", "create", "z", "--replicas", "3").exit_code == 0
        until(lambda: run(running, "cluster", "safe").exit_code == 0, "the zone is never safe")
        yield running


@contextmanager
def connected(cluster: LocalCluster, **options: object) -> Iterator[hazelcast.HazelcastClient]:
    client = hazelcast.HazelcastClient(
        cluster_members=[str(member.client_address) for member in cluster.members],
        cluster_name=cluster.status().cluster,
        **options,
    )
    try:
        yield client
    finally:
        client.shutdown()


class Writer(threading.Thread):
    """Sets keys to rising numbers, one after the other, and reads each back."""

    def __init__(self, there: BlockingMap) -> None:
        super().__init__(daemon=True)
        self._there = there
        self.last: dict[str, int] = {}
        self.wrong: list[object] = []
        self.longest_s = 0.0
        self.ended = False

    def run(self) -> None:
        turn = 0
        while not self.ended:
            turn += 1
            for number in range(20):
                key, begun = f"w{number}", time.monotonic()
                try:
                    old = self._there.put(key, turn)
                    read = self._there.get(key)
                except Exception as error:  # noqa: BLE001 - reported by the test
                    self.wrong.append(error)
                    return
                self.longest_s = max(self.longest_s, time.monotonic() - begun)
                if old != self.last.get(key) or read != turn:
                    self.wrong.append((key, turn, old, read))
                self.last[key] = turn
                time.sleep(0.002)

    def end(self) -> None:
        self.ended = True
        self.join(30)


def entries(cluster: LocalCluster) -> int:
    """Entries on all primaries and leaders, with Holdfast's own."""
    return sum(cluster.status(member).entries.primary for member in cluster.members)


def test_a_used_map_moves_into_a_zone_and_out_again(cluster: LocalCluster) -> None:
    with connected(cluster) as client, Client(cluster.members[0].client_address) as own:
        orders = client.get_map("orders").blocking()
        orders.put_all({f"k{number}": number for number in range(ENTRIES)})
        heard: list[object] = []
        orders.add_entry_listener(
            include_value=True,
            added_func=lambda event: heard.append(event.key),
            updated_func=lambda event: heard.append(event.key),
        )
        writer = Writer(orders)
        writer.start()
        until(lambda: len(writer.last) == 20, "the writer does not write")
        before_moves = entries(cluster)
        for command, home in ((["--zone", "z"], "z"), (["--no-zone"], "no zone"), (["--zone", "z"], "z")):
            moved = run(cluster, "map", "move", "orders", *command)
            assert moved.exit_code == 0, moved.output
            assert home in moved.output
            assert orders.get("k7") == 7
            assert orders.size() == ENTRIES + 20
            assert sorted(key for key in orders.key_set() if key.startswith("k")) == sorted(
                f"k{number}" for number in range(ENTRIES)
            )
            own.set("orders", text("own"), text(home))
            assert own.get("orders", text("own")) == text(home)
            assert orders.remove("own") == home
            before = len(heard)
            until(lambda at=before: len(heard) > at, "no event comes after the move")  # type: ignore[misc]
        writer.end()
        assert writer.wrong == []
        assert all(orders.get(key) == turn for key, turn in writer.last.items())
        shown = json.loads(run(cluster, "map", "show", "orders", "--json").output.splitlines()[0])
        assert "z" in json.dumps(shown)
        # The ids of requests that have moved along stay for some minutes: at most one entry in each partition.
        most = before_moves + PARTITIONS
        until(lambda: before_moves <= entries(cluster) <= most, "copies are left behind", 20)
        assert run(cluster, "verify").exit_code == 0


def test_a_move_is_planned_as_it_is_then_made(cluster: LocalCluster) -> None:
    names = {member.name for member in cluster.status().members}
    with connected(cluster) as client:
        orders = client.get_map("orders").blocking()
        orders.put_all({f"k{number}": "v" * 100 for number in range(ENTRIES)})

        def plan(*where: str) -> dict[str, Any]:
            told = run(cluster, "plan", "--live", "--move", "orders", *where, "--json")
            assert told.exit_code == 0, told.output
            return json.loads(told.output)  # type: ignore[no-any-return]

        planned = plan("--zone", "z")
        figures = planned["figures"]
        assert (planned["source"], planned["target"], planned["rejections"]) == ("", "z", [])
        assert (figures["entries"], figures["replicas_before"], figures["replicas_after"]) == (ENTRIES, 2, 3)
        assert {flow["source"] for flow in figures["flows"]} == names
        assert figures["bytes"] > 100 * ENTRIES
        for where in (["--no-zone"], ["--zone", "none"], ["--zone", "z", "--json"]):
            before = run(cluster, "plan", "--live", "--move", "near" if "z" in where else "orders", *where)
            assert before.exit_code == (0 if "z" in where else 1), before.output
        refused = run(cluster, "plan", "--live", "--move", "orders", "--no-zone")
        assert "lives in no zone" in refused.output
        assert (
            "there is no zone 'none'"
            in run(cluster, "plan", "--live", "--move", "orders", "--zone", "none").output
        )
        assert run(cluster, "map", "move", "orders", "--zone", "z").exit_code == 0
        back = plan("--no-zone")
        assert (back["source"], back["target"], back["figures"]["entries"]) == ("z", "", ENTRIES)
        assert {load["member"] for load in back["figures"]["loads"]} == names


def test_a_command_that_times_out_leaves_the_move_to_the_cluster(cluster: LocalCluster) -> None:
    with Client(cluster.members[0].client_address) as client:
        client.set("orders", text("k"), text("v"))
    begun = run(cluster, "map", "move", "orders", "--zone", "z", "--timeout", "0.01")
    assert begun.exit_code == 3, begun.output
    until(lambda: "z" in run(cluster, "map", "show", "orders", "--json").output, "it does not move")
    until(
        lambda: run(cluster, "map", "move", "orders", "--no-zone").exit_code == 0,
        "it does not move out again",
    )


def test_what_cannot_move_is_refused_with_advice(cluster: LocalCluster) -> None:
    for arguments, advice in (
        (["orders", "--zone", "y"], "holdfast zone create y"),
        (["orders", "--no-zone"], "lives in no zone"),
        (["orders", "--cancel"], "is not being moved"),
        (["default", "--zone", "z"], "name a map"),
    ):
        refused = run(cluster, "map", "move", *arguments)
        assert refused.exit_code == 1, refused.output
        assert advice in refused.output
    wrong = run(cluster, "map", "move", "orders")
    assert wrong.exit_code == 2
    assert "--no-zone" in wrong.output
