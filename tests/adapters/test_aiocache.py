"""aiocache in a map, in one event loop after another."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip(
    "aiocache", reason="aiocache is not installed: pip install '.[aiocache]' in the source folder"
)
from aiocache.lock import OptimisticLock, RedLock
from aiocache.serializers import JsonSerializer

from holdfast.adapters.aiocache import HoldfastCache


def cache_of(addresses: str, name: str, **options: Any) -> HoldfastCache:
    return HoldfastCache(addresses=addresses.split(","), map_name=name, **options)


async def gone(cache: HoldfastCache, key: str) -> None:
    while await cache.exists(key):  # noqa: ASYNC110 - nobody tells of it
        await asyncio.sleep(0.02)


def test_every_operation_does_what_aiocache_says(addresses: str) -> None:
    cache = cache_of(addresses, "every operation of aiocache", namespace="ours:")

    async def use() -> None:
        assert await cache.set("k", {"a": (1, b"2")}, ttl=0.05)
        assert await cache.get("k") == {"a": (1, b"2")}
        await gone(cache, "k")
        assert await cache.get("k", default=7) == 7
        assert await cache.add("k", "v", ttl=60)
        with pytest.raises(ValueError, match="already exists"):
            await cache.add("k", "w")
        await cache.multi_set([("a", 1), ("b", 2)], ttl=60)
        assert await cache.multi_get(["a", "none", "b"]) == [1, None, 2]
        assert [
            await cache.increment("a", 4),
            await cache.increment("n"),
            await cache.increment("n", -3),
        ] == [5, 1, -2]
        with pytest.raises(TypeError, match="not an integer"):
            await cache.increment("k")
        assert await cache.expire("a", 0.05)
        assert await cache.expire("k", 0.05)
        assert not await cache.expire("none", 5)
        await gone(cache, "a")
        await gone(cache, "k")
        assert await cache.delete("b") == 1
        assert await cache.delete("b") == 0
        assert await cache.raw("size") == 1
        assert await cache.clear(namespace="ours:")
        assert await cache.raw("size") == 0
        await cache.close()

    for _ in range(2):
        asyncio.run(use())


def test_locks_of_aiocache_hold(addresses: str) -> None:
    async def use() -> tuple[int, bool]:
        cache = cache_of(addresses, "locks of aiocache")
        made = 0

        async def make() -> None:
            nonlocal made
            async with RedLock(cache, "k", lease=60):
                if await cache.get("k") is None:
                    made += 1
                    await asyncio.sleep(0.05)
                    await cache.set("k", "made")

        await asyncio.gather(make(), make(), make())
        async with OptimisticLock(cache, "k") as lock:
            stored = await lock.cas("changed")
        await cache.close()
        return made, stored

    assert asyncio.run(use()) == (1, True)


def test_a_serializer_of_aiocache_comes_first(addresses: str) -> None:
    async def use() -> list[Any]:
        cache = cache_of(addresses, "json", serializer=JsonSerializer())
        await cache.set("k", {"a": 1})
        found = [await cache.get("k"), await cache.raw("get", "k")]
        await cache.close()
        return found

    assert asyncio.run(use()) == [{"a": 1}, '{"a": 1}']
