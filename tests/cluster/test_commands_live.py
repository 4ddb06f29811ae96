"""Commands on member processes that die, are evicted, or are given other settings while they run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import holdfast
from holdfast.client.blocking import Client
from holdfast.errors import NotReady
from holdfast.wire.values import to_stored
from holdfast_lab.processes.fork_server import COMMAND
from holdfast_lab.processes.local_cluster import LocalCluster

CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 60000
[partitions]
count = 7
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(holdfast, arguments)


def until(reached: Callable[[], Any], seconds: float = 120.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := reached()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(3, CONFIG, log_dir=tmp_path) as running:
        running.wait_settled()
        yield running


def test_a_member_that_was_killed_is_gone_at_once(cluster: LocalCluster) -> None:
    """A member that stands still refuses no connection: all wait for a minute, unless an operator has seen its end."""
    first, second, third = cluster.members
    with Client(first.client_address) as client:
        client.set("m", to_stored("k"), to_stored("v"))
    address = f"{third.client_address},{first.client_address}"
    told = run("member", "evict", second.name, "--yes", "-a", address)
    assert told.exit_code == 1
    assert "it sent a heartbeat within the last three intervals" in told.stderr

    os.kill(second.pid, signal.SIGSTOP)
    time.sleep(1.0)
    assert len(json.loads(run("status", "--json", "-a", address).stdout)["members"]) == 3
    began_s = time.monotonic()
    told = run("member", "evict", second.name, "--yes", "--json", "-a", address)
    assert told.exit_code == 0, told.output
    assert time.monotonic() - began_s < 50, "it did not wait until silence is suspected"
    assert len(json.loads(run("status", "--json", "-a", address).stdout)["members"]) == 2
    with Client(first.client_address) as client:
        client.set("m", to_stored("k"), to_stored("w"))

    # It lives after all: it ends itself, and was not asked by anybody meanwhile.
    os.kill(second.pid, signal.SIGCONT)
    assert second.process.wait(120) == 1
    assert "this member was evicted by an operator" in second.log.read_text(encoding="utf-8")
    cluster.members.remove(second)
    with Client(first.client_address) as client:
        assert client.get("m", to_stored("k")) == to_stored("w")


def test_a_status_that_is_watched_goes_on_at_another_member_and_says_so(cluster: LocalCluster) -> None:
    first = cluster.members[0]
    # In the background a process is deaf to Ctrl-C.
    command = [
        "env",
        "--default-signal=INT",
        *COMMAND,
        "status",
        "--watch",
        "--interval",
        "0.1",
        "--json",
        "-a",
        first.client_address,
    ]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watching:
        try:
            assert watching.stdout is not None and watching.stderr is not None
            seen = json.loads(watching.stdout.readline())
            assert seen["queried_member"] == first.uuid
            cluster.kill(first)
            assert "asking 127.0.0.1:" in watching.stderr.readline()
            other = until(
                lambda: next(
                    (
                        one
                        for one in [json.loads(watching.stdout.readline())]
                        if one["queried_member"] != first.uuid
                    ),
                    None,
                )
            )
            assert other["queried_member"] in {member.uuid for member in cluster.alive}
        finally:
            watching.send_signal(signal.SIGINT)
            watching.communicate(timeout=120)
    assert watching.returncode == 0


def test_limits_change_while_members_run(cluster: LocalCluster) -> None:
    address = cluster.members[0].client_address
    assert run("config", "set", "limits.connections=1", "-a", address).exit_code == 0
    with Client(address) as one, Client(address) as other:
        assert one.partition_count == 7
        with pytest.raises(NotReady, match=r"limits\.connections"):
            other.get("m", to_stored("k"))
        # An operator has a place, also when clients have taken all others.
        assert run("config", "set", "limits.connections=10", "-a", address).exit_code == 0
        assert other.get("m", to_stored("k")) is None
    members = json.loads(run("status", "--json", "-a", address).stdout)["members"]
    assert [one["status"]["settings_changed"] for one in members] == [{"limits.connections": "10"}] * 3
    wrong = run("config", "set", "limits.connections=0", "limits.idle_timeout_ms=5", "-a", address, "--json")
    assert wrong.exit_code == 1
    told = [json.loads(line) for line in wrong.stdout.splitlines()]
    assert [one["result"] for one in told] == ["failed"] * 3
    assert "limits.connections = '0' is not allowed" in told[0]["message"]
    members = json.loads(run("status", "--json", "-a", address).stdout)["members"]
    assert "limits.idle_timeout_ms" not in members[0]["status"]["settings_changed"], "all of it or nothing"
    refused = run("config", "set", "limits.key_bytes=99999", "-a", address)
    assert refused.exit_code == 2
    assert "limits.key_bytes is read when a member starts" in refused.stderr


def test_the_metastore_goes_on_with_one_of_three(tmp_path: Path) -> None:
    config = (
        "[cluster]\nquorum = 'any'\nheartbeat_ms = 200\nsuspect_after_ms = 10000\n[metastore]\nvoters = 3\n"
    )
    with LocalCluster(3, config, log_dir=tmp_path) as cluster:
        cluster.wait_settled()
        last = cluster.members[2]
        until(lambda: run("metastore", "put", "k", "v", "-a", last.client_address).exit_code == 0)
        for member in cluster.members[:2]:
            cluster.kill(member)
        until(
            lambda: run("metastore", "reset", "--yes", "--json", "-a", last.client_address).exit_code == 0, 40
        )
        told = until(lambda: run("metastore", "get", "k", "-a", last.client_address).stdout, 20)
        assert told == "v\n"
