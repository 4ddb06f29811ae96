"""Locks on entries: tasks exclude each other, and a lock that is not wanted any more is released."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from holdfast.aio import Client
from holdfast.errors import Refused
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def test_tasks_and_clients_exclude_each_other(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with Client(cluster.client_addresses()) as one, Client(cluster.client_addresses()) as other:
            inside: list[int] = []
            await one.map("counts").set("k", 0)

            async def work(client: Client) -> None:
                counts = client.map("counts")
                for _ in range(10):
                    async with counts.lock("k"):
                        inside.append(1)
                        assert len(inside) == 1
                        value = await counts.get("k")
                        await asyncio.sleep(0)
                        await counts.set("k", value + 1)
                        inside.pop()

            async with asyncio.timeout(60):
                await asyncio.gather(*(work(client) for client in (one, other) for _ in range(3)))
            assert await one.map("counts").get("k") == 60
            assert not await one.map("counts").is_locked("k")

    asyncio.run(run())


def test_every_write_of_the_owner_is_done_and_others_wait(cluster: LocalCluster, official: Any) -> None:
    async def run() -> None:
        theirs = official.get_map("guarded").blocking()
        async with Client(cluster.client_addresses()) as client:
            ours = client.map("guarded")
            async with asyncio.timeout(60):
                async with ours.lock("k", lease_s=60) as locked:
                    assert locked
                    assert theirs.is_locked("k")
                    assert not theirs.try_put("k", "theirs", 0)
                    other = asyncio.create_task(asyncio.to_thread(theirs.put, "k", "theirs"))
                    await ours.put("k", 1)
                    await ours.set("k", 2, ttl_s=60)
                    assert await ours.set_ttl("k", 120)
                    await ours.put_all({"k": 3})
                    assert await ours.replace("k", 4) == 3
                    assert await ours.replace_if_same("k", 4, 5)
                    assert await ours.remove_if_same("k", 5)
                    await ours.put_if_absent("k", 6)
                    assert await ours.remove("k") == 6
                    await ours.delete("k")
                    # Tasks that the block starts write as the owner.
                    await asyncio.wait_for(ours.set("k", 7), 30)
                    await asyncio.gather(ours.set("k", 8), ours.set("l", 1))
                    async with ours.lock("k"):
                        assert await ours.get("k") == 8
                    assert theirs.is_locked("k")
                    assert not other.done()
                assert await other == 8
            assert await ours.get("k") == "theirs"

    asyncio.run(run())


def test_a_task_of_the_block_does_not_share_the_lock(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with Client(cluster.client_addresses()) as client:
            ours = client.map("shared_lock")

            async def child() -> bool:
                async with ours.try_lock("k") as locked:
                    return locked

            async with ours.lock("k"):
                assert not await asyncio.create_task(child())
            assert await child()

    asyncio.run(run())


def test_try_lock_says_whether_the_entry_is_locked(cluster: LocalCluster, official: Any) -> None:
    async def run() -> None:
        theirs = official.get_map("tried").blocking()
        async with Client(cluster.client_addresses()) as client:
            ours = client.map("tried")
            theirs.lock("k")
            async with ours.try_lock("k") as locked:
                assert not locked
            began = time.monotonic()
            async with ours.try_lock("k", timeout_s=0.3) as locked:
                assert not locked
            assert time.monotonic() - began > 0.25
            theirs.unlock("k")
            async with ours.try_lock("k", timeout_s=30, lease_s=30) as locked:
                assert locked
                assert theirs.is_locked("k")
            assert not theirs.is_locked("k")
            for wrong in ({"lease_s": 0}, {"lease_s": -1}, {"timeout_s": -1}):
                with pytest.raises(ValueError, match="seconds"):
                    ours.try_lock("k", **wrong)

    asyncio.run(run())


def test_a_lease_that_ends_in_the_block_is_reported(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with Client(cluster.client_addresses()) as client:
            ours = client.map("leased")

            async def outlive(error: Exception | None) -> None:
                async with ours.lock("k", lease_s=0.05):
                    while await ours.is_locked("k"):  # noqa: ASYNC110 - it has no event
                        await asyncio.sleep(0.05)
                    if error is not None:
                        raise error

            with pytest.raises(Refused, match="no lock"):
                await outlive(None)
            with pytest.raises(KeyError):  # The error of the block comes first.
                await outlive(KeyError("k"))

    asyncio.run(run())


@pytest.mark.rule("aio/L-1")
def test_a_cancelled_task_leaves_no_lock(cluster: LocalCluster, official: Any) -> None:
    async def run() -> None:
        theirs = official.get_map("left").blocking()
        async with Client(cluster.client_addresses()) as client:
            ours = client.map("left")

            async def work() -> None:
                async with ours.lock("k"):
                    await asyncio.sleep(60)

            theirs.lock("k")
            waiting, holding = asyncio.create_task(work()), None
            await asyncio.sleep(0.1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            theirs.unlock("k")
            async with asyncio.timeout(60):
                async with ours.lock("k"):
                    pass
                holding = asyncio.create_task(work())
                while not await ours.is_locked("k"):  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.01)
                holding.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await holding
                async with ours.lock("k"):
                    pass

    asyncio.run(run())
