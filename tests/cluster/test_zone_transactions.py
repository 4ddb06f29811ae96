"""Maps in zones take no part in transactions: each way to begin one is refused by name, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import hazelcast
import pytest
from hazelcast.errors import HazelcastError

from holdfast import aio
from holdfast.client.blocking import Client
from holdfast.client.grouped_putting import grouped_put_problem
from holdfast.errors import Refused
from holdfast_lab.processes.local_cluster import LocalCluster

CONFIG = """
[partitions]
count = 7
[metastore]
voters = 1
[maps.raft]
raft_zone = "z"
"""
WHY = r"'raft' takes no part in transactions: it lives in zone 'z'; .*use compare and replace"


@pytest.fixture(scope="module")
def members() -> Iterator[LocalCluster]:
    with LocalCluster(1, CONFIG) as running:
        running.wait_settled()
        running.create_zone("z", 1, 3600)
        running.wait_served()
        yield running


@pytest.fixture
def address(members: LocalCluster) -> str:
    return members.client_addresses()[0]


@pytest.fixture(autouse=True)
def unchanged(address: str) -> Iterator[None]:
    yield
    with Client([address]) as client:
        assert (client.size("raft"), client.size("primary")) == (0, 0)


def test_a_hazelcast_client_is_refused(address: str) -> None:
    client = hazelcast.HazelcastClient(cluster_members=[address])
    try:
        for work in (lambda one: one.set("k", "v"), lambda one: one.get("k"), lambda one: one.size()):
            transaction = client.new_transaction(timeout=10)
            transaction.begin()
            transaction.get_map("primary").set("k", "v")
            with pytest.raises(HazelcastError, match=WHY):
                work(transaction.get_map("raft"))
            transaction.rollback()
    finally:
        client.shutdown()


def test_the_asyncio_client_is_refused(address: str) -> None:
    async def run() -> None:
        async with aio.Client([address]) as client, client.transaction() as transaction:
            await transaction.map("primary").set("k", "v")
            await transaction.map("raft").set("k", "v")

    with pytest.raises(Refused, match=WHY):
        asyncio.run(run())


def test_loads_in_transactions_are_refused_before_they_begin(address: str) -> None:
    """`holdfast load --transaction-rows` and Spark's `transactionRows` ask this first."""
    with Client([address]) as client:
        why = grouped_put_problem(client, "raft")
    assert "takes no part in transactions: it lives in zone 'z'" in why
