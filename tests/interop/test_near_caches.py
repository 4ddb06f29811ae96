"""Near caches of the official Python client, fed by real members: nothing old is left when all is quiet."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import hazelcast
import pytest
from hazelcast.errors import HazelcastError
from tests.interop import recorded

from holdfast.aio import BlockingClient, NearCacheOptions
from holdfast.errors import Unsupported
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::ResourceWarning")]

KEYS = 60


def connect(cluster: LocalCluster, **options: Any) -> Any:
    return hazelcast.HazelcastClient(cluster_members=cluster.client_addresses(), **options)


@pytest.mark.rule("server/N-1")
def test_changes_of_others_are_told(cluster: LocalCluster) -> None:
    reader, writer = connect(cluster, near_caches={"near": {}}), connect(cluster)
    try:
        near, plain = reader.get_map("near").blocking(), writer.get_map("near").blocking()
        for round_ in range(3):
            plain.put_all({key: (round_ << 8) + key for key in range(KEYS)})
            end = time.monotonic() + 120
            while [near.get(key) for key in range(KEYS)] != [(round_ << 8) + key for key in range(KEYS)]:
                assert time.monotonic() < end
        recorded.compare("python", hazelcast.__version__, "near cache", recorded.NEAR_CACHE)
        plain.clear()
        end = time.monotonic() + 120
        while any(near.get(key) is not None for key in range(KEYS)):
            assert time.monotonic() < end
    finally:
        reader.shutdown()
        writer.shutdown()


@pytest.mark.rule("server/N-2", "server/N-3")
def test_nothing_old_is_left_after_a_member_was_killed() -> None:
    with LocalCluster(members=3) as cluster:
        cluster.wait_settled()
        reader, writer = connect(cluster, near_caches={"near": {}}), connect(cluster)
        try:
            near, plain = reader.get_map("near").blocking(), writer.get_map("near").blocking()
            stop = threading.Event()

            def read() -> None:
                while not stop.is_set():
                    try:
                        near.get(random.randrange(KEYS))
                    except HazelcastError:
                        pass

            def write() -> None:
                count = 0
                while not stop.is_set():
                    count += 1
                    try:
                        plain.set(random.randrange(KEYS), count)
                    except HazelcastError:
                        pass

            threads = [threading.Thread(target=each) for each in (read, read, write, write)]
            for thread in threads:
                thread.start()
            time.sleep(1)
            cluster.kill(cluster.members[1])
            time.sleep(3)
            stop.set()
            for thread in threads:
                thread.join()
            newest = {key: plain.get(key) for key in range(KEYS)}
            end = time.monotonic() + 120
            while {key: near.get(key) for key in range(KEYS)} != newest:
                assert time.monotonic() < end
                time.sleep(0.05)
        finally:
            reader.shutdown()
            writer.shutdown()


def test_a_near_cache_for_a_map_in_a_zone_is_refused() -> None:
    config = '[metastore]\nvoters = 1\n[maps.zoned]\nraft_zone = "z"\n'
    with LocalCluster(members=1, config=config) as cluster:
        client = connect(cluster, near_caches={"zoned": {}})
        try:
            with pytest.raises(HazelcastError, match="Listener cannot be added"):
                client.get_map("zoned")
            with pytest.raises(Unsupported, match="zone 'z'"):
                BlockingClient(cluster.client_addresses(), near_caches={"zoned": NearCacheOptions()})
        finally:
            client.shutdown()
