"""Queues: items of cancelled calls, waits, and the official client beside ours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.aio import Client, Queue
from holdfast.aio.queue_takers import QueueTakers
from holdfast.client_core import request_forms as forms
from holdfast.client_core.request_forms import RequestForm
from holdfast.errors import ConfigError, Unknown
from holdfast.serialization import Serializers
from holdfast.wire.hazelcast.hazelcast_frames import data, message, response
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@asynccontextmanager
async def connected(cluster: LocalCluster) -> AsyncIterator[Client]:
    async with Client(cluster.client_addresses()) as client:
        while len(client.connected) < 3 or not all(client.route):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.02)
        yield client


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_operations_answer_as_the_official_client_is_answered(cluster: LocalCluster, official: Any) -> None:
    async def run() -> None:
        theirs = official.get_queue("jobs@1").blocking()
        async with connected(cluster) as client:
            ours: Queue[Any] = client.queue("jobs@1")
            assert await ours.poll() is None
            assert await ours.peek() is None
            assert await ours.offer("a")
            await ours.put({"b": [1]})
            theirs.offer("c")
            assert (await ours.size(), await ours.peek(), theirs.size()) == (3, "a", 3)
            assert theirs.poll() == "a"
            assert await ours.take() == {"b": [1]}
            assert await ours.drain() == ["c"]
            for number in range(10):
                await ours.offer(number)
            assert await ours.drain(4) == [0, 1, 2, 3]
            await ours.clear()
            assert (await ours.drain(), await ours.size()) == ([], 0)

    asyncio.run(run())


def test_wrong_arguments_are_rejected_before_anything_is_sent(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with connected(cluster) as client:
            for name in ("", 5, "x" * 100_000):
                with pytest.raises(ConfigError, match="queue's name"):
                    client.queue(name)  # type: ignore[arg-type]
            queue = client.queue("arguments")
            for wrong in (-1, float("nan")):
                with pytest.raises(ValueError, match="timeout_s"):
                    await queue.poll(wrong)
            with pytest.raises(TypeError, match="timeout_s"):
                await queue.offer("a", True)
            with pytest.raises(TypeError, match="None"):
                await queue.offer(None)
            with pytest.raises(ValueError, match="max_items"):
                await queue.drain(0)
            assert await queue.size() == 0

    asyncio.run(run())


def test_waiting_calls_end_with_an_item_or_at_their_timeout(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with connected(cluster) as client:
            queue = client.queue("waits")
            began = time.monotonic()
            assert await queue.poll(1.3) is None
            assert 1.25 < time.monotonic() - began < 10
            late = asyncio.create_task(queue.take())
            await asyncio.sleep(1.5)  # Longer than one request of it.
            await queue.offer("late")
            async with asyncio.timeout(60):
                assert await late == "late"
            taken: list[str] = []

            async def work() -> None:
                async for item in queue:
                    taken.append(item)  # noqa: PERF401 - the iteration has no end

            worker = asyncio.create_task(work())
            for number in range(20):
                await queue.offer(f"{number}")
            while len(taken) < 20:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
            assert taken == [f"{number}" for number in range(20)]
            await cancelled(worker)

    asyncio.run(run())


@pytest.mark.rule("aio/Q-1")
def test_no_item_is_lost_while_calls_are_cancelled(cluster: LocalCluster, official: Any) -> None:
    async def run() -> None:
        theirs = official.get_queue("cancelled").blocking()
        taken: list[int] = []
        async with connected(cluster) as client, connected(cluster) as producer:
            queue, count = client.queue("cancelled"), 300

            async def work() -> None:
                while True:
                    try:
                        async with asyncio.timeout(0.004):
                            taken.append(await queue.take())
                            taken.extend(await queue.drain(3))
                    except TimeoutError:
                        pass

            workers = [asyncio.create_task(work()) for _ in range(4)]
            for number in range(count):
                await producer.queue("cancelled").offer(number)
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.1)
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        rest: list[int] = []
        theirs.drain_to(rest)
        assert sorted(taken + rest) == list(range(count))

    asyncio.run(run())


@pytest.mark.rule("aio/Q-1")
def test_the_item_of_a_cancelled_call_returns_to_the_queue_when_the_client_closes(
    cluster: LocalCluster, official: Any
) -> None:
    async def run() -> None:
        async with connected(cluster) as client:
            queue = client.queue("returned")
            waiting = asyncio.create_task(queue.take())
            await asyncio.sleep(0.1)
            await cancelled(waiting)
            await queue.offer("item")  # It goes to the request that waits.
            while await queue.size():  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
            assert client.unsettled
        assert official.get_queue("returned").blocking().poll() == "item"

    asyncio.run(run())


class Members:
    """Answers requests for items when the test says so."""

    def __init__(self) -> None:
        self.serializers = Serializers()
        self.unsettled: set[QueueTakers] = set()
        self.partition_count = 271
        self.asked: list[tuple[int, asyncio.Future[bytes]]] = []

    async def ask(self, form: RequestForm, partition: int, rest: bytes) -> Any:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.asked.append((form.kind, future))
        return await future

    def answer(self, place: int, item: str | None) -> None:
        kind, future = self.asked[place]
        stored = None if item is None else self.serializers.dump(item)
        future.set_result(message([response(kind + 1, 0), data(stored)]))


@pytest.mark.rule("aio/Q-1")
def test_tasks_adopt_the_request_of_a_cancelled_one_or_find_its_item() -> None:
    async def run() -> None:
        members = Members()
        takers = QueueTakers(members, "jobs")
        queue: Queue[str] = Queue(takers, members.serializers)
        first, second = (asyncio.create_task(queue.take()) for _ in range(2))
        await asyncio.sleep(0.01)
        await cancelled(first)
        assert members.unsettled == {takers}
        members.answer(0, "a")
        assert await second == "a"  # It waited with a request of its own.
        third = asyncio.create_task(queue.take())
        await asyncio.sleep(0.01)
        assert len(members.asked) == 2  # It has adopted that one.
        members.answer(1, "b")
        assert await third == "b"
        assert not members.unsettled

        fourth = asyncio.create_task(queue.take())
        await asyncio.sleep(0.01)
        members.answer(2, "c")
        await cancelled(fourth)  # The answer has arrived, and the task has not run.
        await asyncio.sleep(0.01)
        assert await queue.drain(1) == ["c"]
        assert not members.unsettled

    asyncio.run(run())


@pytest.mark.rule("aio/Q-1")
def test_a_cancelled_call_with_an_unknown_outcome_is_reported() -> None:
    async def run() -> list[str]:
        members, reported = Members(), list[str]()
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reported.append(context["message"])
        )
        takers = QueueTakers(members, "jobs")
        waiting = asyncio.create_task(Queue[str](takers, members.serializers).poll(0.5))
        await asyncio.sleep(0.01)
        await cancelled(waiting)
        members.asked[0][1].set_exception(Unknown("the connection broke"))
        await asyncio.sleep(0.01)
        assert members.asked[0][0] == forms.QUEUE_POLL
        assert not members.unsettled
        return reported

    assert asyncio.run(run()) == ["a cancelled call may have lost items of queue 'jobs'"]
