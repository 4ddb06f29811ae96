"""Two data members and a lite one as processes: the cluster serves on after any one of them is killed."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from tests.cluster.test_cluster import text
from tests.cluster.test_commands_live import until

from holdfast.cli.main import holdfast
from holdfast.client.blocking import Client
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[partitions]
count = 11
[metastore]
voters = 3
[maps.default]
backups = 1
"""
KEYS = [f"k{number}" for number in range(40)]


def run(through: ManagedMember, *words: str) -> str:
    result = CliRunner().invoke(holdfast, [*words, "-a", through.client_address], catch_exceptions=False)
    return result.output if result.exit_code == 0 else ""


def names(through: ManagedMember) -> list[str]:
    """Of the members that this one has in its view."""
    return [
        member["name"] for member in json.loads(run(through, "status", "--json") or "{}").get("members", ())
    ]


def voters(through: ManagedMember) -> list[str]:
    status = json.loads(run(through, "metastore", "status", "--json") or "{}")
    found: list[str] = status["metastore"]["voters"] if status else []
    return found


def assert_serves(through: ManagedMember, value: str) -> None:
    """Every entry is read, every key and the metastore accept a write, and two members agree that this is safe."""
    until(lambda: run(through, "cluster", "safe"))
    with Client(through.client_address) as client:
        assert {client.get("plain", text(key)) for key in KEYS} == {text(value)}
        for key in KEYS:
            client.set("plain", text(key), text(f"{value}+"))
    assert run(through, "metastore", "put", "app/value", value)
    assert run(through, "metastore", "get", "app/value").strip() == value


def test_any_one_of_two_data_members_and_a_witness_may_be_killed(tmp_path: Path) -> None:
    with LocalCluster(2, CONFIG, lite_members=1, log_dir=tmp_path) as cluster:
        first, second, witness = cluster.members
        until(lambda: len(voters(first)) == 3)
        until(lambda: run(first, "cluster", "safe"))
        with Client(first.client_address) as client:
            for key in KEYS:
                client.set("plain", text(key), text("v"))

        cluster.kill(witness)
        until(lambda: len(names(first)) == 2)
        assert_serves(second, "v")

        cluster.start_member(lite=True)
        until(lambda: len(names(first)) == 3 and len(voters(first)) == 3)
        until(lambda: run(first, "cluster", "safe"))
        cluster.kill(first)
        until(lambda: len(names(second)) == 2)
        assert_serves(second, "v+")
        assert_serves(cluster.alive[-1], "v++")
