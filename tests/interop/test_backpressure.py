"""A client that writes faster than a backup applies: the primary keeps a bounded amount and reports every outcome."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

LIMIT = 1_048_576
"""Four read buffers: a busy member reads a whole one at once, and may exceed the limit by its size."""
WRITES = 3000
EMPTY = BacklogStatus(0, throttled=False, rejecting=False)


def config(backup_timeout_ms: int) -> str:
    return f"""
[cluster]
suspect_after_ms = 120000
[partitions]
count = 31
[replication]
backup_timeout_ms = {backup_timeout_ms}
[limits]
backlog_bytes = {LIMIT}
"""


class Writer:
    """A client that has sent `WRITES` writes of one key to the first member while the second one is paused."""

    def __init__(self, cluster: LocalCluster, entries: Any, key: str, asking: Client) -> None:
        """`asking`: connected, because a primary that stops reading reads one more request of each connection."""
        self._asking = asking
        self._second = cluster.members[1].pid
        self.entries = entries
        self.key = key
        self.seen: list[BacklogStatus] = []
        """Of the first member, as `until` has seen it."""
        os.kill(self._second, signal.SIGSTOP)
        self._results = [entries.set(key, bytes(1000)) for _ in range(WRITES)]

    def until(self, reached: Callable[[BacklogStatus], bool]) -> None:
        deadline = time.monotonic() + 120
        while not self.seen or not reached(self.seen[-1]):
            assert time.monotonic() < deadline, self.seen[-1:]
            self.seen.append(self._asking.status().backlog)
            time.sleep(0.05)

    def outcomes(self) -> set[str]:
        """Resume the second member, and wait for all writes: the names of their errors, empty for none."""
        os.kill(self._second, signal.SIGCONT)
        return {failure_of(result) for result in self._results}


@contextmanager
def writer(cluster: LocalCluster) -> Iterator[Writer]:
    cluster.wait_settled()
    first, second = cluster.members
    key = key_at(cluster)
    with (
        connected(cluster, cluster_members=[first.client_address], smart_routing=False) as client,
        Client(first.client_address, timeout_s=120) as asking,
    ):
        entries = client.get_map("m")
        entries.set(key, b"").result()
        assert asking.status().backlog == EMPTY
        try:
            yield Writer(cluster, entries, key, asking)
        finally:
            os.kill(second.pid, signal.SIGCONT)
        assert asking.status().backlog == EMPTY
    assert_equal_copies(cluster, key)


def test_a_primary_stops_reading_when_its_backup_falls_behind(sockets: str) -> None:
    """The timeout is so long that it ends no write, however slow the machine is."""
    with LocalCluster(2, config(backup_timeout_ms=240_000) + sockets) as cluster, writer(cluster) as writing:
        writing.until(lambda backlog: backlog.throttled)
        assert LIMIT < writing.seen[-1].bytes < 2 * LIMIT + 2000
        assert not any(backlog.rejecting for backlog in writing.seen)
        assert writing.outcomes() == {""}


def test_a_primary_rejects_writes_when_its_backup_stays_behind(sockets: str) -> None:
    with LocalCluster(2, config(backup_timeout_ms=2000) + sockets) as cluster, writer(cluster) as writing:
        writing.until(lambda backlog: backlog.rejecting)
        assert LIMIT < max(backlog.bytes for backlog in writing.seen) < 2 * LIMIT + 2000
        assert writing.entries.get(writing.key).result() is not None, "reads continue"
        outcomes = writing.outcomes()
        assert outcomes <= {"", "IndeterminateOperationStateError"}
        assert "" in outcomes, "the client retries rejected writes"


def failure_of(result: Any) -> str:
    """The name of the error, if any."""
    try:
        result.result()
    except Exception as error:  # noqa: BLE001
        return type(error).__name__
    return ""
