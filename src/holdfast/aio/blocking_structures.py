"""Queues, ringbuffers, topics, locks and listeners for threads. Methods and errors are those of the asyncio classes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Generic, Protocol, Self, TypeVar

from holdfast.aio.event_listening import KEEP, EventListening
from holdfast.aio.map_lock import Asking, LockOwner, MapLock, lock_owner, owner_now
from holdfast.aio.queue import Queue
from holdfast.aio.ringbuffer import Ringbuffer
from holdfast.aio.topic import Topic, TopicMessage
from holdfast.errors import HoldfastError, NotReady, Refused

E = TypeVar("E")
T = TypeVar("T")
V = TypeVar("V")


class Run(Protocol):
    def __call__(self, coroutine: Coroutine[Any, Any, T], /) -> T:
        """Run a coroutine in the event loop of the client, and wait for its result."""


class BlockingListening(Generic[E]):
    """Events of a listener, for `for` and `with`. Iteration ends when the client is closed."""

    def __init__(self, listening: EventListening[E], run: Run) -> None:
        self._listening = listening
        self._run = run

    def __iter__(self) -> Iterator[E]:
        while True:
            try:
                yield self._run(self._next())
            except (_Ended, NotReady):
                return

    async def _next(self) -> E:
        try:
            return await anext(self._listening)
        except StopAsyncIteration:
            raise _Ended from None

    def close(self) -> None:
        self._run(self._listening.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Ended(HoldfastError): ...


class BlockingQueue(Generic[V]):
    """A queue for threads. Methods and errors are those of `Queue`."""

    def __init__(self, queue: Queue[V], run: Run) -> None:
        self.name = queue.name
        self._queue = queue
        self._run = run

    def offer(self, item: V, timeout_s: float = 0) -> bool:
        return self._run(self._queue.offer(item, timeout_s))

    def put(self, item: V) -> None:
        self._run(self._queue.put(item))

    def poll(self, timeout_s: float = 0) -> V | None:
        return self._run(self._queue.poll(timeout_s))

    def take(self) -> V:
        return self._run(self._queue.take())

    def peek(self) -> V | None:
        return self._run(self._queue.peek())

    def size(self) -> int:
        return self._run(self._queue.size())

    def items(self) -> list[V]:
        return self._run(self._queue.items())

    def drain(self, max_items: int = 1000) -> list[V]:
        return self._run(self._queue.drain(max_items))

    def clear(self) -> None:
        self._run(self._queue.clear())

    def __iter__(self) -> Iterator[V]:
        """Takes items without end."""
        while True:
            yield self.take()


class BlockingRingbuffer(Generic[V]):
    """A ringbuffer for threads. Methods and errors are those of `Ringbuffer`."""

    def __init__(self, ringbuffer: Ringbuffer[V], run: Run) -> None:
        self.name = ringbuffer.name
        self._ringbuffer = ringbuffer
        self._run = run

    def add(self, item: V) -> int:
        return self._run(self._ringbuffer.add(item))

    def head_sequence(self) -> int:
        return self._run(self._ringbuffer.head_sequence())

    def tail_sequence(self) -> int:
        return self._run(self._ringbuffer.tail_sequence())

    def read_one(self, sequence: int) -> V:
        return self._run(self._ringbuffer.read_one(sequence))

    def read_many(self, start: int, least: int = 1, most: int = 100) -> list[tuple[int, V]]:
        return self._run(self._ringbuffer.read_many(start, least, most))

    def read_from(self, start: int) -> Iterator[tuple[int, V]]:
        reading = self._ringbuffer.read_from(start)
        while True:
            yield self._run(_first(reading))


async def _first(reading: Any) -> Any:
    return await anext(reading)


class BlockingTopic(Generic[V]):
    """A topic for threads. Methods and errors are those of `Topic`."""

    def __init__(self, topic: Topic[V], run: Run) -> None:
        self.name = topic.name
        self._topic = topic
        self._run = run

    def publish(self, value: V) -> None:
        self._run(self._topic.publish(value))

    def publish_all(self, values: Iterable[V]) -> None:
        self._run(self._topic.publish_all(values))

    def listen(
        self, on_message: Callable[[TopicMessage[V]], None] | None = None, *, keep: int = KEEP
    ) -> BlockingListening[TopicMessage[V]]:
        """`on_message` is called in the client's own thread and must not call the client."""
        return BlockingListening(self._run(self._topic.listen(on_message, keep=keep)), self._run)


class BlockingMapLock:
    """A lock on one entry, for `with`. See `BlockingMap.lock` and `BlockingMap.try_lock`."""

    def __init__(self, lock: MapLock, client: Asking, run: Run) -> None:
        """`client`: what sends the writes of the calling thread."""
        self._lock = lock
        self._client = client
        self._run = run
        self._owner: LockOwner | None = None
        self._outer: LockOwner | None = None
        self._locked = False

    def __enter__(self) -> bool:
        """Returns whether the entry is locked. Raises Refused, Unknown."""
        if self._owner is not None:
            raise Refused("the lock is in use: make another one with `lock` or `try_lock`")
        self._outer = lock_owner.get()
        owner = self._owner = owner_now(self._client, threading.current_thread())
        try:
            self._locked = self._run(self._lock.acquire(owner))
        except BaseException:
            self._owner = None
            raise
        if self._locked:
            lock_owner.set(owner)
        return self._locked

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raises Refused if the lease has ended."""
        owner, self._owner = self._owner, None
        if not self._locked or owner is None:
            return
        self._locked = False
        lock_owner.set(self._outer)
        try:
            self._run(self._lock.release(owner))
        except HoldfastError:
            if error is None:
                raise
