"""Threads of clients hand over a lock while its primary is killed: there is one holder at a time, and none is stuck."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import hazelcast
import pytest
from hazelcast.errors import HazelcastError

from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

pytestmark = [
    pytest.mark.interop,
    # The client leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CONFIG = "[cluster]\nheartbeat_ms = 200\nsuspect_after_ms = 2000\n[partitions]\ncount = 31\n"
NAME, KEY = "guarded", "k"
THREADS = 3
"""Of each client."""


@dataclass
class Seen:
    inside: int = 0
    most: int = 0
    holds: int = 0
    gate: threading.Lock = field(default_factory=threading.Lock)
    over: threading.Event = field(default_factory=threading.Event)

    def work(self, guarded: Any) -> None:
        while not self.over.is_set():
            try:
                guarded.lock(KEY)
            except (HazelcastError, OSError):
                continue
            with self.gate:
                self.inside += 1
                self.holds += 1
                self.most = max(self.most, self.inside)
            threading.Event().wait(0.002)
            with self.gate:
                self.inside -= 1
            unlocked = False
            while not unlocked:
                try:
                    guarded.unlock(KEY)
                    unlocked = True
                except hazelcast.errors.IllegalMonitorStateError:
                    unlocked = True  # A request that had no known outcome was done.
                except (HazelcastError, OSError):
                    continue


def primary(cluster: LocalCluster, client: Any) -> ManagedMember:
    partition = client.partition_service.get_partition_id(KEY)
    owner = str(client.partition_service.get_partition_owner(partition))
    return next(member for member in cluster.alive if member.uuid == owner)


def strike(cluster: LocalCluster, seen: Seen) -> None:
    with ExitStack() as ends:
        clients = [
            hazelcast.HazelcastClient(
                cluster_members=cluster.client_addresses(), smart_routing=smart, cluster_connect_timeout=60
            )
            for smart in (True, True, False)
        ]
        for client in clients:
            ends.callback(client.shutdown)
        victim = primary(cluster, clients[0])
        seen.over.clear()
        threads = [
            threading.Thread(target=seen.work, args=(client.get_map(NAME).blocking(),))
            for client in clients
            for _ in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        seen.over.wait(0.7)
        cluster.kill(victim)
        cluster.wait_safe()
        before = seen.holds
        seen.over.wait(0.7)
        seen.over.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a lock is handed over"
        assert seen.holds > before, "by the next primary, too"


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_a_lock_has_one_holder_when_its_primary_is_killed(rounds: int) -> None:
    seen = Seen()
    with LocalCluster(members=3, config=CONFIG) as cluster:
        cluster.wait_settled()
        for number in range(1, rounds + 1):
            strike(cluster, seen)
            if number < rounds:
                cluster.restart([member for member in cluster.members if not member.alive])
                cluster.members[:] = [*cluster.alive]
                cluster.wait_settled()
    assert seen.most == 1
    assert seen.holds > 50 * rounds


def test_the_lock_of_a_client_that_has_gone_is_released() -> None:
    with LocalCluster(members=2, config=CONFIG) as cluster:
        cluster.wait_settled()
        gone = hazelcast.HazelcastClient(cluster_members=cluster.client_addresses())
        gone.get_map(NAME).blocking().lock(KEY)
        stays = hazelcast.HazelcastClient(cluster_members=cluster.client_addresses())
        try:
            guarded = stays.get_map(NAME).blocking()
            assert not guarded.try_lock(KEY)
            gone.shutdown()
            assert guarded.try_lock(KEY, timeout=20)
        finally:
            stays.shutdown()
