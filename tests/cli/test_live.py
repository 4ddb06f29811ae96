"""The command line against real members."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from click.testing import CliRunner

from holdfast.cli.main import holdfast
from holdfast.client.blocking import Client
from holdfast_lab.processes.local_cluster import LocalCluster


def test_status_of_a_real_cluster_that_loses_a_member() -> None:
    with LocalCluster(
        members=3, config="[cluster]\nheartbeat_ms = 200\nsuspect_after_ms = 20000\n"
    ) as cluster:
        cluster.wait_safe(120)
        address = cluster.members[0].client_address
        told = json.loads(CliRunner().invoke(holdfast, ["status", address, "--json"]).output)
        assert told["safe"], told["unsafe_reason"]
        assert len(told["members"]) == 3
        assert sum(member["primaries"] for member in told["members"]) == 271
        assert [member["master"] for member in told["members"]] == [True, False, False]
        assert all(member["status"]["uuid"] == member["uuid"] for member in told["members"])

        # Before anybody suspects it, a dead member is silent, and the cluster is not called safe.
        cluster.kill(cluster.members[2])
        told = json.loads(CliRunner().invoke(holdfast, ["status", address, "--json"]).output)
        assert not told["safe"]
        shown = CliRunner().invoke(holdfast, ["status", address]).output
        assert "silent" in shown or "not safe" in shown


def foretold(cluster: LocalCluster, event: str) -> list[dict[str, Any]]:
    """What `holdfast plan --live` says, asked of a member that does not lead."""
    address = cluster.alive[-1].client_address
    told = CliRunner().invoke(
        holdfast, ["plan", "--live", "-a", address, "--scenario", event, "--json"], catch_exceptions=False
    )
    assert told.exit_code == 0, told.stderr
    assert told.stderr == ""
    return [json.loads(line) for line in told.stdout.splitlines()]


def rows(cluster: LocalCluster) -> list[list[str | None]]:
    with Client(cluster.alive[0].client_address) as client:
        return [list(row.replicas) for row in client.table()]


def test_what_plan_foretells_of_a_real_cluster_comes_true() -> None:
    """A join, a crash and a drain: the very rows, by as many migrations as were planned; and asking changes nothing."""
    with LocalCluster(
        members=3, config="[cluster]\nheartbeat_ms = 200\nsuspect_after_ms = 10000\n"
    ) as cluster:
        before = cluster.wait_settled(120)
        plans = foretold(cluster, "join:1")
        summary = CliRunner().invoke(
            holdfast,
            [
                "plan",
                "--live",
                "-a",
                cluster.alive[0].client_address,
                "--scenario",
                "join:1",
                "--summary",
                "--json",
            ],
        )
        counted = sum(len(each["migrations"]) for each in plans)
        assert json.loads(summary.stdout.splitlines()[-1])["migrations"] == counted > 0
        assert cluster.status().table == before.table

        joined = cluster.start_member()
        after = cluster.wait_settled(60)
        expected = [
            [joined.uuid if owner == "join-1" else owner for owner in each["intermediateStates"][-1]]
            for each in plans
        ]
        assert rows(cluster) == expected
        assert after.migrations.completed - before.migrations.completed == counted
        assert after.table.version - before.table.version == sum(each["versionIncrement"] for each in plans)

        plans = foretold(cluster, f"crash:{joined.name}")
        cluster.kill(joined)
        last = cluster.wait_settled(60)
        assert rows(cluster) == [each["intermediateStates"][-1] for each in plans]
        counted = sum(len(each["migrations"]) for each in plans)
        assert last.migrations.completed - after.migrations.completed == counted > 0
        assert any(each["promotion"] for each in plans)

        plans = foretold(cluster, f"drain:{cluster.members[2].uuid[:8]}")
        cluster.drain(cluster.members[2])
        cluster.wait_settled(60)
        assert rows(cluster) == [each["intermediateStates"][-1] for each in plans]


def replicas(cluster: LocalCluster) -> dict[int, set[str]]:
    """The members that hold each partition of the zone, by name; empty while it moves."""
    told = CliRunner().invoke(
        holdfast,
        ["zone", "show", "z", "--json", "-a", cluster.alive[0].client_address],
        catch_exceptions=False,
    )
    found = json.loads(told.stdout)
    if any(one["pending"] or one["planned"] for one in found["partitions"]):
        return {}
    names = found["members"]
    return {
        one["partition"]: {
            names.get(node, node) for node in (*one["stable"]["peers"], *one["stable"]["learners"])
        }
        for one in found["partitions"]
    }


def test_what_plan_foretells_of_a_zone_comes_true() -> None:
    """A drain: the very replicas, and no others move."""
    config = "[cluster]\nheartbeat_ms = 200\nsuspect_after_ms = 10000\n"
    config += "[partitions]\ncount = 7\n[metastore]\nvoters = 3\n"
    with LocalCluster(members=3, config=config) as cluster:
        cluster.wait_settled(120)
        where = ["-a", cluster.alive[0].client_address]
        wait_until(
            lambda: (
                CliRunner().invoke(holdfast, ["zone", "create", "z", "--replicas", "2", *where]).exit_code
                == 0
            )
        )
        before = replicas(cluster)
        gone = cluster.alive[-1]
        scenario = ["--scenario", f"drain:{gone.name}"]
        told = CliRunner().invoke(holdfast, ["plan", "--live", "--zone", "z", *scenario, "--json", *where])
        (plan,) = [json.loads(line) for line in told.stdout.splitlines()]
        shown = CliRunner().invoke(holdfast, ["zone", "show", "z", "--json", *where])
        of_file = CliRunner().invoke(
            holdfast, ["plan", "-", "--zone", "z", *scenario, "--json"], input=shown.stdout
        )
        assert of_file.stdout == told.stdout, "the file has all that the cluster knows"
        drained = CliRunner().invoke(holdfast, ["member", "drain", gone.name, *where])
        assert drained.exit_code == 0, drained.output
        wait_until(
            lambda: bool(after := replicas(cluster)) and all(gone.name not in each for each in after.values())
        )
        after = replicas(cluster)
        moved = {number for number in before if before[number] != after[number]}
        assert (
            moved
            == {move["partition"] for move in plan["moves"]}
            == {number for number, each in before.items() if gone.name in each}
        )
        assert sum(len(after[number] - before[number]) for number in before) == plan["copied"]


def wait_until(reached: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)
