"""A metastore that is started in a running cluster, on real member processes."""

from __future__ import annotations

import json
from pathlib import Path

import hazelcast
import pytest
from tests.cluster.test_cluster import text
from tests.cluster.test_zones import run, until

from holdfast.client.blocking import Client
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [
    # The client leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[partitions]
count = 11
[maps.orders]
raft_zone = "z"
"""
ENTRIES = 40


def test_zones_are_switched_on_in_a_cluster_that_is_used(tmp_path: Path) -> None:
    with LocalCluster(3, CONFIG, log_dir=tmp_path) as cluster:
        cluster.wait_settled()
        first = cluster.members[0]
        with Client(first.client_address) as client:
            for number in range(ENTRIES):
                client.set("plain", text(f"k{number}"), text(f"v{number}"))
        early = run(cluster, "zone", "create", "z", "--replicas", "3")
        assert early.exit_code == 1
        assert "holdfast metastore start" in early.stderr
        assert run(cluster, "metastore", "status").exit_code == 1
        assert run(cluster, "metastore", "start", "--voters", "2").exit_code == 2

        started = run(cluster, "metastore", "start", "--json")
        assert started.exit_code == 0, started.output
        again = run(cluster, "metastore", "start", "--voters", "3")
        assert (again.exit_code, "3 voters" in again.output) == (0, True)
        seen = json.loads(run(cluster, "metastore", "status", "--json").output)
        assert len(seen["metastore"]["voters"]) == 3
        made = run(cluster, "zone", "create", "z", "--replicas", "3")
        assert made.exit_code == 0, made.output
        until(lambda: run(cluster, "cluster", "safe").exit_code == 0, "the zone is never safe")

        other = hazelcast.HazelcastClient(
            cluster_members=[member.client_address for member in cluster.members],
            cluster_name=cluster.status().cluster,
        )
        try:
            orders = other.get_map("orders").blocking()
            for number in range(ENTRIES):
                orders.put(f"k{number}", f"v{number}")
            cluster.kill(first)
            assert [orders.get(f"k{number}") for number in range(ENTRIES)] == [
                f"v{number}" for number in range(ENTRIES)
            ]
        finally:
            other.shutdown()
        with Client(cluster.alive[0].client_address, timeout_s=30) as client:
            assert client.get("plain", text("k7")) == text("v7")
