"""Entry listeners: what is told, in which order, and what is said of that which was not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.aio import ChangeKind, Client, EntryChange, ListenerLags
from holdfast.wire.values import Serialized
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::ResourceWarning")]
K = ChangeKind


async def changes(listening: Any, count: int) -> list[tuple[Any, ...]]:
    async with asyncio.timeout(120):
        found = [await anext(listening) for _ in range(count)]
    return [(each.kind, each.key, each.value, each.old) for each in found]


async def connected(client: Client) -> None:
    while len(client.connected) < 3 or not all(client.route):  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.02)


def test_each_kind_of_change_is_told_once(cluster: LocalCluster, official: Any) -> None:
    async def run() -> None:
        theirs = official.get_map("heard").blocking()
        async with Client(cluster.client_addresses()) as client:
            ours = client.map("heard")
            called: list[EntryChange] = []
            async with await ours.listen() as all_of_it, await ours.listen(key="b") as one:
                bare = await ours.listen(called.append, include_value=False)
                await ours.set("a", 1)
                await ours.set("a", 2)
                await ours.remove("a")
                await asyncio.to_thread(theirs.put, "b", 5)
                await asyncio.to_thread(theirs.evict, "b")
                await ours.set("c", 1, ttl_s=0.05)
                told = await changes(all_of_it, 7)
                # The changes of a key come in their order; keys of different members in any.
                assert {
                    key: [(kind, new, old) for kind, of, new, old in told if of == key] for key in "abc"
                } == {
                    "a": [(K.ADDED, 1, None), (K.UPDATED, 2, 1), (K.REMOVED, None, 2)],
                    "b": [(K.ADDED, 5, None), (K.EVICTED, None, 5)],
                    "c": [(K.ADDED, 1, None), (K.EXPIRED, None, 1)],
                }
                assert await changes(one, 2) == [(K.ADDED, "b", 5, None), (K.EVICTED, "b", None, 5)]
                assert {(each.value, each.old) for each in called} == {(None, None)}
                told_by = {str(member.uuid) for member in official.cluster_service.get_members()}
                assert {each.member for each in called} <= told_by
                await ours.put_all({n: n for n in range(50)})
                assert sorted(await changes(all_of_it, 50), key=lambda each: int(each[1])) == [
                    (K.ADDED, n, n, None) for n in range(50)
                ]
                await ours.clear()
                cleared = await anext(all_of_it)
                assert (cleared.kind, cleared.key, cleared.count) == (K.CLEARED, None, 50)
                await bare.close()
                heard = len(called)
                await ours.set("late", 1)
                await changes(all_of_it, 1)
                assert len(called) == heard
            with pytest.raises(StopAsyncIteration):
                await anext(all_of_it)
            for line in client.lines():
                assert not line.listening

    asyncio.run(run())


def test_a_connection_that_broke_is_registered_again_and_said_to_have_missed(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with Client(cluster.client_addresses()) as client:
            await connected(client)
            ours = client.map("broken off")
            listening = await ours.listen()
            for line in client.lines():
                line.end("for a test")
            assert [kind for kind, *_ in await changes(listening, 3)] == [K.MISSED] * 3
            await connected(client)
            await ours.put_all({n: n for n in range(100)})
            assert len(await changes(listening, 100)) == 100

    asyncio.run(run())


def test_a_member_that_comes_tells_its_changes_and_one_that_died_is_no_harm() -> None:
    async def run(cluster: LocalCluster) -> None:
        async with Client(cluster.client_addresses()) as client:
            ours = client.map("moving")
            listening = await ours.listen()
            await asyncio.to_thread(cluster.kill, cluster.members[0])
            joined = await asyncio.to_thread(cluster.start_member)
            while joined.client_address not in client.connected:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.02)
            await asyncio.to_thread(cluster.wait_settled)
            seen = set()
            await ours.put_all({n: n for n in range(300)})
            async with asyncio.timeout(120):
                async for change in listening:
                    if change.kind is not K.MISSED:
                        assert change.kind is K.ADDED
                        assert change.key not in seen
                        seen.add(change.key)
                    if len(seen) == 300:
                        break

    with LocalCluster(members=3) as cluster:
        cluster.wait_settled()
        asyncio.run(run(cluster))


def test_who_reads_too_slowly_is_told_so(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with Client(cluster.client_addresses()) as client:
            await connected(client)
            ours = client.map("slow reader")
            listening = await ours.listen(keep=10)
            failing = await ours.listen(lambda change: 1 // 0)  # type: ignore[arg-type]
            told: list[dict[str, Any]] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
            await ours.put_all({n: n for n in range(50)})
            assert len(await changes(listening, 10)) == 10
            with pytest.raises(ListenerLags, match="more than 10"):
                await anext(listening)
            with pytest.raises(StopAsyncIteration):
                await anext(listening)
            while len(told) < 50:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.02)
            assert len(client.connected) == 3, "a listener of the user that fails ends no connection"
            await failing.close()

    asyncio.run(run())


def test_a_value_that_cannot_be_read_ends_no_connection(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with Client(cluster.client_addresses()) as client:
            await connected(client)
            ours = client.map("unreadable")
            broken = Serialized(b"\xff\xff\xff\xf5\x00\x00\x00\x01\xff")
            async with await ours.listen() as listening:
                await ours.set("k", broken)
                await ours.set("k", 1)
                assert await changes(listening, 2) == [
                    (K.ADDED, "k", broken, None),
                    (K.UPDATED, "k", 1, broken),
                ]
            assert len(client.connected) == 3

    asyncio.run(run())
