"""Near caches of the official Python client, fed by real members: nothing old is left when all is quiet."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import hazelcast
import pytest
from hazelcast.errors import HazelcastError
from tests.cluster.test_zones import run, until
from tests.interop import recorded

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


class Load:
    """Threads that read through a near cache, and that write beside it, until the block ends."""

    def __init__(self, near: Any, plain: Any) -> None:
        self._near, self._plain = near, plain
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._read, self._read, self._write)]

    def _read(self) -> None:
        while not self._stop.wait(0.004):
            try:
                self._near.get(random.randrange(KEYS))
            except HazelcastError:
                pass

    def _write(self) -> None:
        count = 0
        while not self._stop.wait(0.005):
            count += 1
            try:
                self._plain.set(random.randrange(KEYS), count)
            except HazelcastError:
                pass

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()
        time.sleep(1)

    def __exit__(self, *failed: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def assert_nothing_old(near: Any, plain: Any) -> None:
    newest = {key: plain.get(key) for key in range(KEYS)}
    end = time.monotonic() + 120
    while {key: near.get(key) for key in range(KEYS)} != newest:
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.rule("server/N-2", "server/N-3")
def test_nothing_old_is_left_after_a_member_was_killed() -> None:
    with LocalCluster(members=3) as cluster:
        cluster.wait_settled()
        reader, writer = connect(cluster, near_caches={"near": {}}), connect(cluster)
        try:
            near, plain = reader.get_map("near").blocking(), writer.get_map("near").blocking()
            with Load(near, plain):
                cluster.kill(cluster.members[1])
                time.sleep(3)
            assert_nothing_old(near, plain)
        finally:
            reader.shutdown()
            writer.shutdown()


ZONED = """
[metastore]
voters = 3
[maps.zoned]
raft_zone = "z"
"""


@pytest.mark.rule("server/N-2", "streams/E-1", "raft_partition/R-4")
def test_a_near_cache_of_a_map_in_a_zone_keeps_nothing_old() -> None:
    """With 25 groups for 271 partitions most leaders do not own the partition: through moves, and a kill."""
    with LocalCluster(members=3, config=ZONED) as cluster:
        cluster.wait_settled()
        assert run(cluster, "zone", "create", "z", "--replicas", "3", "--partitions", "25").exit_code == 0
        until(lambda: run(cluster, "cluster", "safe").exit_code == 0, "the zone is never safe")
        reader, writer = connect(cluster, near_caches={"zoned": {}}), connect(cluster)
        try:
            near, plain = reader.get_map("zoned").blocking(), writer.get_map("zoned").blocking()
            with Load(near, plain):
                time.sleep(3)
            assert_nothing_old(near, plain)
            for place in (["--no-zone"], ["--zone", "z"]):
                with Load(near, plain):
                    moved = run(cluster, "map", "move", "zoned", *place)
                    assert moved.exit_code == 0, moved.output
                assert_nothing_old(near, plain)
            with Load(near, plain):
                cluster.kill(cluster.members[1])
                time.sleep(3)
            assert_nothing_old(near, plain)
        finally:
            reader.shutdown()
            writer.shutdown()
