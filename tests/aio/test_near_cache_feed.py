"""Near caches fed by real members: nothing stale is kept."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.aio import Client, NearCache, NearCacheOptions
from holdfast.aio.near_cache_feed import NearCacheFeed
from holdfast.client_core.invalidations import ONE
from holdfast.client_core.message_decoding import reader_of
from holdfast.client_core.request_forms import GET
from holdfast.errors import Refused, Unknown
from holdfast.wire.hazelcast.hazelcast_frames import IS_NULL
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::ResourceWarning")]

H1, H2 = b"\0" + bytes(16), b"\0" + bytes(15) + b"\1"


async def until(true: Callable[[], bool | Awaitable[bool]]) -> None:
    while True:
        found = true()
        if found if isinstance(found, bool) else await found:
            return
        await asyncio.sleep(0.02)


def near(client: Client, name: str = "near") -> tuple[Any, NearCache, NearCacheFeed]:
    of = client.map(name)
    assert of.near_cache is not None
    return of, of.near_cache, client._feeds[name]


NEAR = {"near": NearCacheOptions()}


@pytest.mark.rule("client_core/C-2", "server/N-1")
def test_others_changes_are_heard_of_and_own_ones_at_once(cluster: LocalCluster, official: Any) -> None:

    async def run() -> None:
        theirs = official.get_map("near").blocking()
        async with Client(cluster.client_addresses(), near_caches=NEAR) as client:
            await until(lambda: all(client.route) and len(client.connected) == 3)
            mine, cache, feed = near(client)
            await until(lambda: all(cache._fed))
            for change in (lambda: theirs.put("k", 2), lambda: theirs.remove("k"), theirs.clear):
                await mine.set("k", 1)

                async def is_cached() -> bool:
                    """Not before the invalidation by this client's own write has arrived."""
                    hits = cache.statistics.hits
                    assert await mine.get("k") == 1
                    return cache.statistics.hits > hits

                await asyncio.sleep(0.1)
                await until(is_cached)
                await asyncio.to_thread(change)
                await until(lambda: len(cache) == 0)
            for n in range(200):
                await mine.set("k", n)
                assert await mine.get("k") == n
                await mine.put("k", -n)
                assert await mine.get("k") == -n
                await mine.put_all({"k": n})
                assert await mine.get("k") == n
            await mine.remove("k")
            assert await mine.get("k") is None
            assert not cache._reserved
            assert feed.cache is cache

    asyncio.run(run())


@pytest.mark.rule("client_core/C-1")
def test_an_answer_that_an_invalidation_has_overtaken_is_not_kept(
    cluster: LocalCluster, official: Any
) -> None:
    """The get was answered, its answer is held up, and the entry changes meanwhile."""

    async def run() -> None:
        theirs = official.get_map("near").blocking()
        async with Client(cluster.client_addresses(), near_caches=NEAR) as client:
            mine, cache, _ = near(client)
            await until(lambda: bool(cache._fed) and all(cache._fed))
            go = asyncio.Event()
            answered = asyncio.Event()
            ask = client.ask

            async def slowly(form: Any, partition: int, rest: bytes) -> Any:
                found = await ask(form, partition, rest)
                if form.kind == GET and not go.is_set():
                    answered.set()
                    await go.wait()
                return found

            client.ask = slowly  # type: ignore[method-assign]
            await asyncio.to_thread(theirs.put, "k", "old")
            reading = asyncio.create_task(mine.get("k"))
            await answered.wait()
            while not cache._reserved:
                # The invalidation by the put itself has come only now.
                go.set()
                assert await reading == "old"
                go.clear()
                answered.clear()
                reading = asyncio.create_task(mine.get("k"))
                await answered.wait()
            await asyncio.to_thread(theirs.put, "k", "new")
            await until(lambda: not cache._reserved)
            go.set()
            assert await reading == "old"
            assert len(cache) == 0
            assert await mine.get("k") == "new"
            # And one that is overtaken by a write of the same client.
            go.clear()
            answered.clear()
            await mine.delete("k")
            await asyncio.to_thread(theirs.put, "k", "old")
            reading = asyncio.create_task(mine.get("k"))
            await answered.wait()
            await mine.set("k", "newest")
            go.set()
            assert await reading == "old"
            assert await mine.get("k") == "newest"

    asyncio.run(run())


@pytest.mark.rule("client_core/C-3")
def test_an_invalidation_that_is_lost_is_found_out(cluster: LocalCluster, official: Any) -> None:
    """By the next one of the partition, and by asking."""

    async def run() -> None:
        theirs = official.get_map("near").blocking()
        async with Client(cluster.client_addresses(), near_caches=NEAR) as client:
            mine, cache, feed = near(client)
            await until(lambda: bool(cache._fed) and all(cache._fed))
            await asyncio.to_thread(theirs.put, "k", 1)
            keys = [
                n for n in range(3000) if mine._partition(mine._dump(n)) == mine._partition(mine._dump("k"))
            ]
            heard, lost = feed.heard, 0

            def deaf(line: Any, kind: int, whole: bytes) -> None:
                nonlocal lost
                lost += 1

            async def lose() -> None:
                await asyncio.sleep(0.1)
                assert await mine.get("k") is not None
                before = lost
                feed.heard = deaf  # type: ignore[method-assign]
                await asyncio.to_thread(theirs.put, "k", random.random())
                await until(lambda: lost > before)
                feed.heard = heard  # type: ignore[method-assign]
                assert len(cache) == 1

            await lose()
            await asyncio.to_thread(theirs.put, keys[0], 1)
            await until(lambda: len(cache) == 0)
            assert cache.statistics.missed == 1
            await lose()
            await client._repair_all()
            assert len(cache) == 0
            assert await mine.get("k") == await asyncio.to_thread(theirs.get, "k")

    asyncio.run(run())


@pytest.mark.parametrize("end", ["kill", "drain"])
@pytest.mark.rule("server/N-2", "server/N-3")
def test_nothing_stale_is_left_when_members_die_and_leave(end: str) -> None:
    """Somebody writes, others read by their near caches, a member goes, another one comes."""

    async def run(cluster: LocalCluster) -> None:
        addresses = cluster.client_addresses()
        async with Client(addresses) as writer, Client(addresses, near_caches=NEAR) as client:
            mine, cache, _ = near(client)
            stop = asyncio.Event()
            newest: dict[int, int] = {}
            strange: list[BaseException] = []

            async def write(key: int) -> None:
                n = 0
                while not stop.is_set():
                    n += 1
                    try:
                        await writer.map("near").set(key, n)
                    except (Unknown, Refused):
                        pass
                    await asyncio.sleep(random.random() * 0.05)
                while True:
                    try:
                        newest[key] = n + 1
                        await writer.map("near").set(key, n + 1)
                        return
                    except (Unknown, Refused):
                        await asyncio.sleep(0.1)

            async def read(key: int) -> None:
                seen = 0
                try:
                    while not stop.is_set():
                        found = await mine.get(key)
                        seen = found or seen
                        await asyncio.sleep(random.random() * 0.02)
                except BaseException as error:  # noqa: BLE001 - any is the failure
                    strange.append(error)

            writing = [asyncio.create_task(write(key)) for key in range(40)]
            reading = [asyncio.create_task(read(key)) for key in range(40)]
            await asyncio.sleep(0.5)
            if end == "kill":
                await asyncio.to_thread(cluster.kill, cluster.members[1])
            else:
                await asyncio.to_thread(cluster.drain, cluster.members[1])
            await asyncio.sleep(1)
            await asyncio.to_thread(cluster.start_member)
            await asyncio.sleep(1)
            stop.set()
            await asyncio.gather(*writing, *reading)
            assert strange == []
            assert cache.statistics.hits > 100
            for key, value in newest.items():

                async def agrees(key: int = key, value: int = value) -> bool:
                    return bool(await mine.get(key) == value)

                async with asyncio.timeout(120):
                    await until(agrees)

    with LocalCluster(members=3) as cluster:
        cluster.wait_settled()
        asyncio.run(run(cluster))


@pytest.mark.rule("server/N-3")
def test_a_registration_that_follows_others_is_told_to_forget(cluster: LocalCluster) -> None:
    """The connection breaks, an entry changes meanwhile, and the client comes back."""

    async def run() -> None:
        addresses = cluster.client_addresses()
        async with Client(addresses, near_caches=NEAR) as client, Client(addresses) as other:
            mine, cache, _ = near(client)
            await until(lambda: bool(cache._fed) and all(cache._fed))
            await other.map("near").put_all(dict.fromkeys(range(100), 1))
            await asyncio.sleep(0.2)
            assert (await mine.get(5), await mine.get(5)) == (1, 1)
            line = client.route[mine._partition(mine._dump(5))]
            assert line is not None
            line.end("for a test")
            await other.map("near").set(5, 2)
            assert await mine.get(5) == 2
            await until(lambda: all(cache._fed))
            assert (await mine.get(5), await mine.get(5)) == (2, 2)

    asyncio.run(run())


@pytest.mark.rule("server/N-2")
def test_who_takes_partitions_over_has_everything_forgotten() -> None:
    """Clients that do not look at owners, as the official Python client, hear of it all the same."""

    async def run(cluster: LocalCluster) -> None:
        async with Client(cluster.client_addresses(), near_caches=NEAR) as client:
            mine, cache, feed = near(client)
            await until(lambda: len(client.connected) == 3 and all(client.route) and all(cache._fed))
            await mine.set("k", 1)
            told: set[bytes] = set()
            heard = feed.heard

            def noting(line: Any, kind: int, whole: bytes) -> None:
                if kind == ONE and reader_of(whole).next()[0] & IS_NULL:
                    told.add(line.member)
                heard(line, kind, whole)

            feed.heard = noting  # type: ignore[method-assign]
            await asyncio.to_thread(cluster.kill, cluster.members[1])
            # Three members with one backup: both of the others take something over.
            await until(lambda: len(told) == 2)

    with LocalCluster(members=3) as cluster:
        cluster.wait_settled()
        asyncio.run(run(cluster))
