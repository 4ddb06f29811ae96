"""Queues, ringbuffers and locks of the client for threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.aio import BlockingClient
from holdfast.errors import NotReady, Refused, Unknown
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BlockingClient]:
    with BlockingClient(cluster.client_addresses()) as client:
        yield client


def test_queue(client: BlockingClient) -> None:
    jobs = client.queue("blocking jobs")
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(jobs.take)
        jobs.put("one")
        assert taken.result(60) == "one"
    assert jobs.offer("two")
    assert (jobs.peek(), jobs.size()) == ("two", 1)
    assert next(iter(jobs)) == "two"
    assert jobs.poll(0.01) is None
    jobs.put("three")
    assert jobs.drain() == ["three"]
    jobs.put("four")
    jobs.clear()
    assert jobs.size() == 0


def test_a_take_ends_with_its_client(cluster: LocalCluster) -> None:
    with ThreadPoolExecutor(1) as pool:
        with BlockingClient(cluster.client_addresses()) as client:
            jobs = client.queue("blocking end")
            began = threading.Event()

            def take() -> object:
                began.set()
                return jobs.take()

            taken = pool.submit(take)
            began.wait()
        with pytest.raises((NotReady, Unknown)):
            taken.result(60)


def test_ringbuffer(client: BlockingClient) -> None:
    log = client.ringbuffer("blocking log")
    assert [log.add(item) for item in "abc"] == [0, 1, 2]
    assert (log.head_sequence(), log.tail_sequence()) == (0, 2)
    assert log.read_one(1) == "b"
    assert log.read_many(1, 1, 2) == [(1, "b"), (2, "c")]
    reading = log.read_from(2)
    assert next(reading) == (2, "c")
    log.add("d")
    assert next(reading) == (3, "d")


def test_one_thread_owns_a_lock(client: BlockingClient) -> None:
    accounts = client.map("blocking accounts")
    accounts.set("ann", 0)

    def add() -> None:
        for _ in range(20):
            with accounts.lock("ann"), accounts.lock("ann"):
                accounts.set("ann", accounts.get("ann") + 1)

    def tried() -> bool:
        with accounts.try_lock("ann") as locked:
            return locked

    with ThreadPoolExecutor(4) as pool:
        for adding in [pool.submit(add) for _ in range(4)]:
            adding.result(60)
        assert accounts.get("ann") == 80
        assert not accounts.is_locked("ann")
        with accounts.lock("ann", lease_s=60):
            assert tried(), "its owner may lock it again"
            assert not pool.submit(tried).result(60)
            assert accounts.is_locked("ann")
            accounts.set("ann", 0)
        assert pool.submit(tried).result(60)


def test_a_lease_that_ended_is_reported(client: BlockingClient) -> None:
    accounts = client.map("blocking accounts")

    def outlive_the_lease(error: Exception | None) -> None:
        with accounts.lock("bob", lease_s=0.001):
            while accounts.is_locked("bob"):
                pass
            if error is not None:
                raise error

    with pytest.raises(Refused):
        outlive_the_lease(None)
    with pytest.raises(KeyError, match="not replaced"):
        outlive_the_lease(KeyError("the error of the block is not replaced"))
    lock = accounts.lock("bob")
    with lock, pytest.raises(Refused, match="in use"):
        lock.__enter__()
