"""Reads of backups, with real members over real sockets."""

from __future__ import annotations

import asyncio

from tests.runtime.in_process.test_embedded import cluster, run

READ_BACKUPS = {"maps__default__read_backups": True, "maps__default__async_backups": 1}


def test_no_member_asks_for_what_it_holds_and_none_goes_back() -> None:
    """With three members and two backups every member holds everything."""

    async def story() -> None:
        async with cluster(3, **READ_BACKUPS) as members:
            maps = [one.map("m") for one in members]
            await maps[0].set("count", 0)
            for one in maps:
                while await one.get("count") is None:  # noqa: ASYNC110  (the async backup may be a moment behind)
                    await asyncio.sleep(0.001)
            sent = [one._node.member.router.tickets for one in members]
            for one in maps:
                assert await one.get("count") == 0
                assert await one.contains_key("count")
                assert await one.get_all(["count", "none"]) == {"count": 0}
            assert [one._node.member.router.tickets for one in members] == sent

            done = False
            seen: list[list[int]] = [[] for _ in maps]

            async def read(which: int) -> None:
                while not done:
                    value = await maps[which].get("count")
                    assert isinstance(value, int)
                    seen[which].append(value)
                    await asyncio.sleep(0)

            readers = [asyncio.ensure_future(read(which)) for which in range(3)]
            for value in range(1, 301):
                writer = maps[value % 3]
                await writer.set("count", value)
                assert await writer.get("count") == value, "who has written sees it"
            done = True
            await asyncio.gather(*readers)
            for values in seen:
                assert values == sorted(values)
                assert len(values) > 100

    run(story())


def test_an_entry_that_is_over_is_shown_by_nobody() -> None:
    async def story() -> None:
        async with cluster(3, **READ_BACKUPS) as members:
            maps = [one.map("m") for one in members]
            await maps[0].set("short", 1, ttl_s=0.3)
            await asyncio.sleep(0.5)
            assert [await one.get("short") for one in maps] == [None] * 3

    run(story())
