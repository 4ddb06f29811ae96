"""`replication.backup_acks` = "client": the official client waits for the backups itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from hazelcast.errors import IndeterminateOperationStateError
from hazelcast.invocation import InvocationService
from tests.interop.test_outcomes import assert_equal_copies, key_at
from tests.interop.test_python_client import connected

from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [
    pytest.mark.interop,
    # The client leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CONFIG = """
[cluster]
suspect_after_ms = 120000
[partitions]
count = 31
[replication]
backup_acks = "client"
backup_timeout_ms = 30000
"""
WRITES = 2000


@pytest.fixture(scope="module", params=[1, 2], ids=["one backup", "two backups"])
def members(request: pytest.FixtureRequest, sockets: str) -> Iterator[LocalCluster]:
    backups = f"[maps.default]\nbackups = {request.param}\n"
    with LocalCluster(1 + request.param, CONFIG + backups + sockets) as running:
        running.wait_settled()
        yield running


def test_every_write_is_acknowledged_by_the_backups_themselves(
    members: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = []
    handle = InvocationService._backup_event_handler

    def counted(service: InvocationService, correlation: int) -> None:
        events.append(correlation)
        handle(service, correlation)

    monkeypatch.setattr(InvocationService, "_backup_event_handler", counted)
    patience_s = 120
    options = {"operation_backup_timeout": patience_s, "fail_on_indeterminate_operation_state": True}
    with connected(members, **options) as client:
        entries = client.get_map("m").blocking()
        reach_all(client, members)
        before = len(events)
        began = time.monotonic()
        for number in range(WRITES):
            entries.set(number % 97, number)
        took_s = time.monotonic() - began
        backups = len(members.members) - 1
        assert len(events) - before >= WRITES * backups * 0.95, "for some the owner may have waited"
        assert len(set(events)) * backups == len(events), "each backup tells it once"
        assert took_s < patience_s, "none has waited for the client's patience to end"
        assert entries.get(3) == max(number for number in range(WRITES) if number % 97 == 3)


def test_the_first_writes_after_connecting_wait_for_nobody_in_vain(members: LocalCluster) -> None:
    """A backup that the client has not reached yet is waited for by the owner: else the client's patience would end."""
    for _ in range(3):
        with connected(members, fail_on_indeterminate_operation_state=True) as client:
            entries = client.get_map("first").blocking()
            for number in range(30):
                entries.set(number, number)


def reach_all(client: object, members: LocalCluster) -> None:
    """The client connects to all members in the background; the members learn of it a moment later."""
    deadline = time.monotonic() + 120
    connections = client._connection_manager.active_connections  # type: ignore[attr-defined]
    while len(connections) < len(members.members) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    assert len(connections) == len(members.members)


def test_a_client_that_wants_to_know_is_told_when_a_backup_is_silent(members: LocalCluster) -> None:
    options = {"operation_backup_timeout": 1, "fail_on_indeterminate_operation_state": True}
    with connected(members, **options) as client:
        entries = client.get_map("m").blocking()
        key = key_at(members)
        entries.set(key, 1)
        reach_all(client, members)
        pid = members.members[1].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(IndeterminateOperationStateError, match="backup acks are missed"):
                entries.set(key, 2)
        finally:
            os.kill(pid, signal.SIGCONT)
        entries.set(key, 3)
        assert entries.get(key) == 3
    assert_equal_copies(members, key)


def test_a_client_of_one_connection_is_answered_when_the_backups_have_it(members: LocalCluster) -> None:
    with connected(members, smart_routing=False, fail_on_indeterminate_operation_state=True) as client:
        entries = client.get_map("m").blocking()
        for number in range(200):
            entries.set(number, number)
        assert entries.get(7) == 7


def test_for_a_client_that_does_not_offer_it_the_owner_waits(members: LocalCluster) -> None:
    """Because it has not offered to."""
    with connected(members, backup_ack_to_client_enabled=False) as client:
        entries = client.get_map("m").blocking()
        for number in range(200):
            entries.set(number, number)
        assert entries.get(7) == 7
