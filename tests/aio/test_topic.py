"""Topics: messages for all listeners, in order, and gaps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast.aio import BlockingClient, Client, ListenerLags, Topic, TopicListening, TopicMessage
from holdfast.errors import ConfigError
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::ResourceWarning")]


async def happens(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - of another thread, or of the client's own tasks
        await asyncio.sleep(0.01)


async def published(
    topic: Topic[int], messages: TopicListening, count: int
) -> AsyncIterator[TopicMessage[int]]:
    """Publish until so many messages have arrived; those that are published in a gap do not."""
    while count:
        await topic.publish(4)
        try:
            async with asyncio.timeout(0.5):
                yield await anext(messages)
        except TimeoutError:
            continue
        count -= 1


def test_all_listeners_get_all_messages_in_order(cluster: LocalCluster, official: Any) -> None:
    async def run() -> None:
        theirs: list[Any] = []
        official.get_topic("news").blocking().add_listener(lambda event: theirs.append(event.message))
        async with Client(cluster.client_addresses()) as client, asyncio.timeout(60):
            news: Topic[Any] = client.topic("news")
            called: list[TopicMessage[Any]] = []
            listening = await news.listen(called.append)
            async with await news.listen() as messages:
                await news.publish("first")
                await news.publish_all(["second", 3])
                await news.publish_all([])
                await asyncio.to_thread(official.get_topic("news").blocking().publish, "fourth")
                found = [await anext(messages) for _ in range(4)]
            assert [each.value for each in found] == ["first", "second", 3, "fourth"]
            assert [each.value for each in called] == [each.value for each in found]
            assert not any(each.missed for each in found)
            assert found[0].member
            assert found[0].published_ms > 1_700_000_000_000
            await happens(lambda: len(theirs) == 4)
            assert theirs[:2] == ["first", "second"]
            await listening.close()
            await news.publish("not for it")
            assert len(called) == 4
            with pytest.raises(ConfigError, match="topic's name"):
                client.topic("")

    asyncio.run(run())


def test_a_listener_that_lags_ends_and_one_that_was_cut_off_knows_it(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with Client(cluster.client_addresses()) as client, asyncio.timeout(60):
            news: Topic[int] = client.topic("cut")
            lagging = await news.listen(keep=2)
            async with await news.listen() as messages:
                await news.publish_all([1, 2, 3])
                assert [(await anext(messages)).value for _ in range(3)] == [1, 2, 3]
                assert [(await anext(lagging)).value for _ in range(2)] == [1, 2]
                with pytest.raises(ListenerLags, match="more than 2 events of 'cut'"):
                    await anext(lagging)
                for line in client.lines():
                    line.end("by the test")
                await happens(lambda: len(client.connected) == len(cluster.client_addresses()))
                found = [each async for each in published(news, messages, count=5)]
                assert found[0].missed
                # Each of the three connections has its own gap.
                assert sum(each.missed for each in found) <= 3
                assert not found[-1].missed

    asyncio.run(run())


def test_threads_publish_and_listen(cluster: LocalCluster) -> None:
    with BlockingClient(cluster.client_addresses()) as client, client.topic("threads").listen() as messages:
        client.topic("threads").publish("first")
        client.topic("threads").publish_all(["second"])
        found = iter(messages)
        assert [next(found).value for _ in range(2)] == ["first", "second"]
