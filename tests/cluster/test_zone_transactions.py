"""Transactions over a map in a zone and one outside, with the clients that programs use."""

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
voters = 3
[maps.raft]
raft_zone = "z"
[maps.apart]
raft_zone = "z"
transactional = false
"""


@pytest.fixture(scope="module")
def members() -> Iterator[LocalCluster]:
    with LocalCluster(3, CONFIG) as running:
        running.wait_settled()
        running.create_zone("z", 3, 3600)
        running.wait_served()
        yield running


@pytest.fixture
def address(members: LocalCluster) -> str:
    return members.client_addresses()[0]


def test_a_hazelcast_client_changes_both_together(address: str) -> None:
    client = hazelcast.HazelcastClient(cluster_members=[address])
    try:
        raft, primary = client.get_map("raft").blocking(), client.get_map("primary").blocking()
        raft.set("a", 100)
        with client.new_transaction(timeout=10) as transaction:
            inside, outside = transaction.get_map("raft"), transaction.get_map("primary")
            assert inside.get_for_update("a") == 100
            inside.set("a", 90)
            outside.set("b", 10)
            assert raft.is_locked("a") and not raft.is_locked("b")
            assert (raft.get("a"), primary.get("b")) == (100, None)
            assert inside.size() == 1
        assert (raft.get("a"), primary.get("b")) == (90, 10)
        assert not raft.is_locked("a")

        transaction = client.new_transaction(timeout=10)
        transaction.begin()
        transaction.get_map("raft").set("a", 0)
        transaction.get_map("primary").set("b", 0)
        transaction.rollback()
        assert (raft.get("a"), primary.get("b")) == (90, 10)
    finally:
        client.shutdown()


def test_totals_stay_the_same_while_many_tasks_transfer(address: str) -> None:
    accounts = [("raft", f"r{number}") for number in range(3)] + [
        ("primary", f"p{number}") for number in range(3)
    ]

    async def transfer(client: aio.Client, task: int) -> None:
        async def work(transaction: aio.Transaction) -> None:
            changes = [(accounts[task % 6], -task), (accounts[(task + 1) % 6], task)]
            for (name, key), amount in sorted(changes):
                entries = transaction.map(name)
                await entries.set(key, await entries.get_for_update(key) + amount)

        await client.transact(work)

    async def run() -> list[int]:
        async with aio.Client([address]) as client:
            for name, key in accounts:
                await client.map(name).set(key, 100)
            await asyncio.gather(*(transfer(client, task) for task in range(60)))
            return [await client.map(name).get(key) for name, key in accounts]

    found = asyncio.run(run())
    assert sum(found) == 600
    assert found != [100] * 6


def test_a_map_that_takes_no_part_is_refused_by_name(address: str) -> None:
    async def run() -> None:
        async with aio.Client([address]) as client, client.transaction() as transaction:
            await transaction.map("primary").set("refused", "v")
            await transaction.map("apart").set("k", "v")

    why = "'apart' takes no part in transactions: maps.apart.transactional"
    with pytest.raises(Refused, match=why):
        asyncio.run(run())
    client = hazelcast.HazelcastClient(cluster_members=[address])
    try:
        assert client.get_map("primary").blocking().get("refused") is None
        transaction = client.new_transaction(timeout=10)
        transaction.begin()
        with pytest.raises(HazelcastError, match=why):
            transaction.get_map("apart").set("k", "v")
        transaction.rollback()
    finally:
        client.shutdown()


def test_loads_in_transactions_may_begin(address: str) -> None:
    """`holdfast load --transaction-rows` and Spark's `transactionRows` ask this first."""
    with Client([address]) as client:
        assert grouped_put_problem(client, "raft") == ""
        assert "takes no part in transactions" in grouped_put_problem(client, "apart")
