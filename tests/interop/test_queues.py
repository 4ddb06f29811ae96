"""Consumers wait for items of a queue while its primary is killed: each acknowledged item is delivered exactly once."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import hazelcast
import pytest
from hazelcast.errors import HazelcastError

from holdfast.core.model.collections import partition_of_name
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

pytestmark = [
    pytest.mark.interop,
    # The client leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CONFIG = "[cluster]\nheartbeat_ms = 200\nsuspect_after_ms = 2000\n[partitions]\ncount = 31\n"
NAME = "jobs"
TAKERS = 4
"""Of each client."""
END = "no more items"


@dataclass
class Seen:
    offered: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)
    """Offers whose outcome is unknown."""
    taken: list[str] = field(default_factory=list)
    unknown_takes: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def offer(self, queue: Any, producer: str) -> None:
        number = 0
        while not self.over.wait(0.005):
            number += 1
            item = f"{producer}/{number}"
            try:
                if queue.offer(item):
                    self.offered.append(item)
            except (HazelcastError, OSError):
                self.doubtful.append(item)

    def take(self, queue: Any) -> None:
        while True:
            try:
                item = queue.take()
            except (HazelcastError, OSError):
                self.unknown_takes += 1
                continue
            if item == END:
                return
            self.taken.append(item)


def primary(cluster: LocalCluster, client: Any) -> ManagedMember:
    count = client.partition_service.get_partition_count()
    owner = str(client.partition_service.get_partition_owner(partition_of_name(NAME, count)))
    return next(member for member in cluster.alive if member.uuid == owner)


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_an_item_is_taken_once_when_the_primary_is_killed(rounds: int) -> None:
    """Clients use members that live, so requests are forwarded to the primary and repeated at the next one."""
    with LocalCluster(members=3, config=CONFIG) as cluster, ExitStack() as ends:
        cluster.wait_settled()
        seen = Seen()
        for number in range(1, rounds + 1):
            strike(cluster, seen, ends, number)
            if number < rounds:
                cluster.restart([member for member in cluster.members if not member.alive])
                cluster.members[:] = [*cluster.alive]
                cluster.wait_settled()
    counts = Counter(seen.taken)
    assert not [item for item, times in counts.items() if times > 1], "no item is taken twice"
    missing = [item for item in seen.offered if item not in counts]
    assert len(missing) <= seen.unknown_takes, "an acknowledged item is taken, unless a take is unknown"
    assert not missing, "and no take of a client at a living member is unknown"
    assert counts.keys() <= {*seen.offered, *seen.doubtful}
    assert len(seen.offered) > 50 * rounds


def strike(cluster: LocalCluster, seen: Seen, ends: ExitStack, number: int) -> None:
    watching = hazelcast.HazelcastClient(cluster_members=cluster.client_addresses())
    victim = primary(cluster, watching)
    watching.shutdown()
    clients = []
    for member in cluster.alive:
        if member is not victim:
            client = hazelcast.HazelcastClient(
                cluster_members=[member.client_address], smart_routing=False, cluster_connect_timeout=60
            )
            ends.callback(client.shutdown)
            clients.append(client)
    queues = [client.get_queue(NAME).blocking() for client in clients]
    seen.over.clear()
    takers = [threading.Thread(target=seen.take, args=(queue,)) for queue in queues for _ in range(TAKERS)]
    producers = [
        threading.Thread(target=seen.offer, args=(queue, f"{number}.{at}")) for at, queue in enumerate(queues)
    ]
    for thread in (*takers, *producers):
        thread.start()
    seen.over.wait(1)
    cluster.kill(victim)
    cluster.wait_safe()
    seen.over.wait(1)
    seen.over.set()
    for thread in producers:
        thread.join(60)
    for _ in takers:
        assert queues[0].offer(END, 30)
    for thread in takers:
        thread.join(60)
        assert not thread.is_alive()
