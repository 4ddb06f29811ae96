"""A client that writes faster than a backup takes it: what the primary keeps is bounded, and nobody is deceived."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
from tests.interop.test_outcomes import assert_equal_copies, key_at
from tests.interop.test_python_client import connected

from holdfast.client.blocking import Client
from holdfast.core.model.member_status import BacklogStatus
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [
    pytest.mark.interop,
    # The client leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

LIMIT = 262_144
CONFIG = f"""
[cluster]
suspect_after_ms = 120000
[partitions]
count = 31
[replication]
backup_timeout_ms = 2000
[limits]
backlog_bytes = {LIMIT}
"""
WRITES = 3000


def test_a_primary_whose_backup_stands_still_keeps_a_bounded_amount(sockets: str) -> None:
    with LocalCluster(2, CONFIG + sockets) as cluster:
        cluster.wait_settled()
        first = cluster.members[0]
        key = key_at(cluster)
        with (
            connected(cluster, cluster_members=[first.client_address], smart_routing=False) as client,
            Client(first.client_address) as asking,
        ):
            entries = client.get_map("m")
            entries.set(key, b"").result()
            assert asking.status().backlog == BacklogStatus(0, throttled=False, rejecting=False)
            os.kill(cluster.members[1].pid, signal.SIGSTOP)
            try:
                futures = [entries.set(key, bytes(1000)) for _ in range(WRITES)]
                seen = [backlog_of(asking)]
                deadline = time.monotonic() + 120
                while not seen[-1].rejecting and time.monotonic() < deadline:
                    time.sleep(0.05)
                    seen.append(backlog_of(asking))
                assert any(one.throttled and not one.rejecting for one in seen), "first, nothing more is read"
                assert seen[-1].rejecting, "then it is refused"
                assert LIMIT < max(one.bytes for one in seen) < 2 * LIMIT + 2000
                assert entries.get(key).result() is not None, "reads go on"
            finally:
                os.kill(cluster.members[1].pid, signal.SIGCONT)
            outcomes = [failure_of(future) for future in futures]
            assert set(outcomes) <= {"", "IndeterminateOperationStateError"}
            assert outcomes.count("") > WRITES / 2, "what was refused was sent again, and is done"
            assert backlog_of(asking) == BacklogStatus(0, throttled=False, rejecting=False)
        assert_equal_copies(cluster, key)


def backlog_of(client: Client) -> BacklogStatus:
    return client.status().backlog


def failure_of(future: Any) -> str:
    """The name of the error, if any."""
    try:
        future.result()
    except Exception as error:  # noqa: BLE001
        return type(error).__name__
    return ""
