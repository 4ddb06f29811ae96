"""Ringbuffers: reads that wait, and sequences that are gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.aio import Client, Ringbuffer
from holdfast.errors import ConfigError, Refused
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def test_items_are_read_by_sequence_and_as_they_come(cluster: LocalCluster, official: Any) -> None:
    async def run() -> None:
        theirs = official.get_ringbuffer("log").blocking()
        async with Client(cluster.client_addresses()) as client, asyncio.timeout(60):
            log: Ringbuffer[str] = client.ringbuffer("log")
            assert (await log.head_sequence(), await log.tail_sequence()) == (0, -1)
            assert [await log.add(item) for item in "abc"] == [0, 1, 2]
            assert theirs.read_one(1) == "b"
            assert await log.read_one(2) == "c"
            assert await log.read_many(0, 1, 2) == [(0, "a"), (1, "b")]
            assert await log.read_many(1) == [(1, "b"), (2, "c")]
            assert await log.read_many(3, 0) == []
            waiting = asyncio.create_task(log.read_one(3))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            theirs.add("d")
            assert await waiting == "d"
            found: list[tuple[int, str]] = []
            adding = asyncio.create_task(log.add("e"))
            async for each in log.read_from(2):
                found.append(each)
                if len(found) == 3:
                    break
            assert found == [(2, "c"), (3, "d"), (4, "e")]
            await adding
            with pytest.raises(Refused, match="too large"):
                await log.read_one(100)

    asyncio.run(run())


def test_a_reader_that_is_too_slow_begins_with_the_oldest_item(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with Client(cluster.client_addresses()) as client, asyncio.timeout(60):
            log: Ringbuffer[int] = client.ringbuffer("long")
            for begin in range(0, 10_100, 100):
                await asyncio.gather(*map(log.add, range(begin, begin + 100)))
            assert await log.head_sequence() == 100
            with pytest.raises(Refused, match="not there any more"):
                await log.read_one(5)
            assert (await log.read_many(5))[0][0] == 100
            with pytest.raises(ConfigError, match="ringbuffer's name"):
                client.ringbuffer("")

    asyncio.run(run())
