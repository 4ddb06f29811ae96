"""Blocking client with the same operations, for programs without an event loop.

The calling thread sends and receives requests about one entry, on its own connection (`direct_line`). All
others run on an event loop in a thread of the client: members and owners, requests about many entries,
listeners and near caches.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from holdfast.aio.asyncio_client import SILENCE_S, Client
from holdfast.aio.asyncio_map import Map
from holdfast.aio.blocking_structures import (
    BlockingListening,
    BlockingMapLock,
    BlockingQueue,
    BlockingRingbuffer,
    BlockingTopic,
    Run,
)
from holdfast.aio.direct_line import DirectLine, DirectLines
from holdfast.aio.event_listening import KEEP
from holdfast.aio.map_lock import Asking as Locking
from holdfast.aio.member_line import MemberLine
from holdfast.aio.subscriptions import Subscriptions
from holdfast.client_core.near_cache import NearCache, NearCacheOptions
from holdfast.client_core.request_forms import RequestForm
from holdfast.client_core.retries import Retries, retry_reason
from holdfast.config.client_tls import ClientTls
from holdfast.errors import ConfigError, HoldfastError, NotReady
from holdfast.serialization.entry_changes import EntryChange
from holdfast.serialization.serializers import Serializers

if TYPE_CHECKING:
    import pyarrow as pa

PRUNE_S = 60.0
"""Interval at which idle connections are closed. Members close connections that were idle for 300 s."""
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, because the calling thread does all the waiting."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        answer: T = ended.value
        return answer
    coroutine.close()
    raise AssertionError("a direct request does not wait for an event loop")


class _Direct:
    """Stands for the client (`Asking`) in maps whose requests are answered in the calling thread."""

    def __init__(self, client: Client, connections: int, patience_s: float, timeout_s: float) -> None:
        self._client = client
        self._connections = connections
        self._patience_s = patience_s
        self._timeout_s = timeout_s
        self._lines: dict[MemberLine, DirectLines] = {}
        self._making = threading.Lock()
        self.closed = False
        self.route: list[MemberLine | None] = []
        """Empty, so that no request takes the connections of the event loop."""
        self.serializers = client.serializers
        self.subscriptions: Subscriptions = client.subscriptions
        client.on_lost = self._lost

    @property
    def partition_count(self) -> int:
        return self._client.partition_count

    def lines(self) -> list[MemberLine]:
        return []

    async def wait_connected(self) -> None:
        """Maps of the event loop have the listeners."""

    def next_thread(self) -> int:
        return self._client.next_thread()

    async def ask(self, form: RequestForm, partition: int, rest: bytes) -> Any:
        """Blocks the thread and never suspends."""
        retries: Retries | None = None
        while True:
            line = self._client.line_for(partition)
            why = "no member is connected"
            if line is not None and not self.closed:
                try:
                    return self._to(line).ask(form, partition, rest)
                except HoldfastError as failed:
                    why = retry_reason(form, failed)
            if self.closed:
                raise NotReady("the client is closed")
            retries = retries or Retries(self._patience_s, time.monotonic)
            pause_s = retries.pause_s()
            if pause_s is None:
                raise NotReady(f"given up after {self._patience_s:g} s: {why}")
            time.sleep(pause_s)  # noqa: ASYNC251 - of a thread, not of a loop

    async def ask_each(self, form: RequestForm, asked: Sequence[tuple[int, bytes]]) -> list[Any]:
        """See `Client.ask_each`. Blocks the thread, for one request after the other."""
        found: list[Any] = []
        for partition, rest in asked:
            try:
                found.append(await self.ask(form, partition, rest))
            except HoldfastError as failed:
                found.append(failed)
        return found

    def _to(self, line: MemberLine) -> DirectLines:
        found = self._lines.get(line)
        if found is None:
            with self._making:
                found = self._lines.setdefault(line, DirectLines(lambda: self._make(line), self._connections))
            if line.ended:
                self._lost(line)
        return found

    def _make(self, line: MemberLine) -> DirectLine:
        return DirectLine(
            line.address,
            self._client.introduction,
            limit=self._client.message_bytes,
            timeout_s=self._timeout_s,
            silence_s=SILENCE_S,
            tls=self._client.tls_context(),
        )

    def _lost(self, line: MemberLine) -> None:
        lines = self._lines.pop(line, None)
        if lines is not None:
            lines.end(line.ended)

    def prune(self) -> None:
        for lines in list(self._lines.values()):
            lines.prune()

    def socket_numbers(self) -> list[int]:
        return [number for lines in self._lines.values() for number in lines.socket_numbers()]

    def close(self) -> None:
        self.closed = True
        for lines in list(self._lines.values()):
            lines.end("the client is closed")


_ABANDONED: list[BlockingClient] = []
"""Keeps forked clients alive: closing their event loop would change the epoll set that the parent shares."""


class BlockingClient:
    """One client of one cluster, for any number of threads. A context manager.

        with BlockingClient(["127.0.0.1:5701"]) as client:
            client.map("flights").put("UA1545", "EWR")

    For Holdfast's own protocol, which operators use, see `holdfast.client.blocking`.
    """

    def __init__(
        self,
        addresses: str | Sequence[str] = ("127.0.0.1:5701",),
        *,
        cluster_name: str = "dev",
        username: str | None = None,
        password: str | None = None,
        connect_timeout_s: float | None = None,
        patience_s: float = 120.0,
        message_bytes: int = 256 * 1024 * 1024,
        near_caches: Mapping[str, NearCacheOptions] | None = None,
        serializers: Serializers | None = None,
        connections: int = 16,
        tls: ClientTls | ssl.SSLContext | None = None,
    ) -> None:
        """Connect. The options are those of `Client`; `connections`: how many threads may wait for the same
        member at the same time. Raises ConfigError, Denied, NotReady.
        """
        if connections < 1:
            raise ConfigError("connections: at least 1")

        async def begin() -> Client:
            client = Client(
                addresses,
                cluster_name=cluster_name,
                username=username,
                password=password,
                connect_timeout_s=connect_timeout_s,
                patience_s=patience_s,
                message_bytes=message_bytes,
                near_caches=near_caches,
                serializers=serializers,
                tls=tls,
            )
            return await client.connect()

        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast.aio", daemon=True)
        self._thread.start()
        self._gate = threading.Lock()
        self._closed = False
        try:
            self._client = self._run(begin())
        except BaseException:
            self._stop()
            raise
        self._direct = _Direct(self._client, connections, patience_s, self._client.connect_timeout_s)
        self._loop.call_soon_threadsafe(self._prune_later)

    def _prune_later(self) -> None:
        self._loop.call_later(PRUNE_S, self._prune)

    def _prune(self) -> None:
        self._direct.prune()
        self._prune_later()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        with self._gate:
            # Start it before `close` begins, or not at all: then `close` also waits for it.
            if self._closed:
                coroutine.close()
                raise NotReady("the client is closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _stop(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._loop.close()

    def close(self) -> None:
        """End all connections. Writes in flight raise Unknown. The thread and all sockets are gone afterwards."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
        self._direct.close()
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._stop()

    def abandon(self) -> None:
        """Release the parent's connections in a forked process. This client cannot be used here any more; that of the
        parent continues, since nothing is sent on its connections.
        """
        nowhere = os.open(os.devnull, os.O_RDWR)
        sockets = [line.socket_number() for line in self._client.lines()]
        for number in filter(lambda number: number >= 0, [*sockets, *self._direct.socket_numbers()]):
            # Keep the number in use, so that a later close of it closes nothing else.
            os.dup2(nowhere, number, inheritable=False)
        os.close(nowhere)
        self._closed = True
        _ABANDONED.append(self)

    async def _end(self) -> None:
        await self._client.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=1)
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def connected(self) -> list[str]:
        return self._client.connected

    def map(self, name: str) -> BlockingMap[Any, Any]:
        """The map of this name; its first write creates it."""
        of_loop = self._client.map(name)
        return BlockingMap(of_loop, Map(self._direct, name, of_loop.near_cache), self._direct, self._run)

    def queue(self, name: str) -> BlockingQueue[Any]:
        """The queue of this name; its first item creates it. Raises ConfigError for an invalid name."""
        return BlockingQueue(self._run(_made(self._client.queue, name)), self._run)

    def ringbuffer(self, name: str) -> BlockingRingbuffer[Any]:
        """The ringbuffer of this name; its first item creates it. Raises ConfigError for an invalid name."""
        return BlockingRingbuffer(self._client.ringbuffer(name), self._run)

    def topic(self, name: str) -> BlockingTopic[Any]:
        """The topic of this name. Raises ConfigError for an invalid name."""
        return BlockingTopic(self._client.topic(name), self._run)


async def _made(make: Callable[[str], T], name: str) -> T:
    """Made in the thread of the loop, where the tasks of queues run."""
    return make(name)


class BlockingMap(Generic[K, V]):
    """A map for threads. Methods and errors are those of `Map`."""

    def __init__(self, of_loop: Map[K, V], direct: Map[K, V], client: Locking, run: Run) -> None:
        """`direct`: for requests about one entry, which `client` sends; `of_loop`: for all others, run by `run`."""
        self.name = of_loop.name
        self._map = of_loop
        self._direct = direct
        self._client = client
        self._run = run

    @property
    def near_cache(self) -> NearCache | None:
        return self._map.near_cache

    # -- one entry

    def get(self, key: K) -> V | None:
        return at_once(self._direct.get(key))

    def contains_key(self, key: K) -> bool:
        return at_once(self._direct.contains_key(key))

    def set(self, key: K, value: V, *, ttl_s: float | None = None) -> None:
        at_once(self._direct.set(key, value, ttl_s=ttl_s))

    def put(self, key: K, value: V, *, ttl_s: float | None = None) -> V | None:
        return at_once(self._direct.put(key, value, ttl_s=ttl_s))

    def put_if_absent(self, key: K, value: V, *, ttl_s: float | None = None) -> V | None:
        return at_once(self._direct.put_if_absent(key, value, ttl_s=ttl_s))

    def replace(self, key: K, value: V) -> V | None:
        return at_once(self._direct.replace(key, value))

    def execute(self, key: K, processor: str, argument: object = None) -> Any:
        return at_once(self._direct.execute(key, processor, argument))

    def replace_if_same(self, key: K, old: V, new: V) -> bool:
        return at_once(self._direct.replace_if_same(key, old, new))

    def remove(self, key: K) -> V | None:
        return at_once(self._direct.remove(key))

    def remove_if_same(self, key: K, value: V) -> bool:
        return at_once(self._direct.remove_if_same(key, value))

    def delete(self, key: K) -> None:
        at_once(self._direct.delete(key))

    def set_ttl(self, key: K, ttl_s: float) -> bool:
        return at_once(self._direct.set_ttl(key, ttl_s))

    # -- several

    def get_all(self, keys: Iterable[K]) -> dict[K, V]:
        found: dict[Any, Any] = self._run(self._map.get_all(keys))
        return found

    def put_all(self, entries: Mapping[K, V] | Iterable[tuple[K, V]], *, ttl_s: float | None = None) -> None:
        self._run(self._map.put_all(entries, ttl_s=ttl_s))

    def delete_all(self, keys: Iterable[K]) -> None:
        self._run(self._map.delete_all(keys))

    def get_many(self, keys: pa.Array[Any], value_type: pa.DataType | None = None) -> pa.Array[Any]:
        found: pa.Array[Any] = self._run(self._map.get_many(keys, value_type))
        return found

    def put_many(self, keys: pa.Array[Any], values: pa.Array[Any]) -> None:
        self._run(self._map.put_many(keys, values))

    def size(self) -> int:
        return int(self._run(self._map.size()))

    def is_empty(self) -> bool:
        return bool(self._run(self._map.is_empty()))

    def keys(self) -> list[K]:
        return list(self._run(self._map.keys()))

    def values(self) -> list[V]:
        return list(self._run(self._map.values()))

    def entries(self) -> list[tuple[K, V]]:
        return list(self._run(self._map.entries()))

    def clear(self) -> None:
        self._run(self._map.clear())

    # -- locks

    def lock(self, key: K, *, lease_s: float | None = None) -> BlockingMapLock:
        """A lock on the entry of this key, for `with`. The thread that enters the block owns it. See `Map.lock`."""
        return BlockingMapLock(self._map.lock(key, lease_s=lease_s), self._client, self._run)

    def try_lock(self, key: K, *, timeout_s: float = 0, lease_s: float | None = None) -> BlockingMapLock:
        """See `Map.try_lock`."""
        lock = self._map.try_lock(key, timeout_s=timeout_s, lease_s=lease_s)
        return BlockingMapLock(lock, self._client, self._run)

    def is_locked(self, key: K) -> bool:
        return bool(self._run(self._map.is_locked(key)))

    # -- listening

    def listen(
        self,
        heard: Callable[[EntryChange], None] | None = None,
        *,
        key: K | None = None,
        include_value: bool = True,
        keep: int = KEEP,
    ) -> BlockingListening[EntryChange]:
        """See `Map.listen`. `heard` is called in the client's own thread and must not call the client."""
        listening = self._run(self._map.listen(heard, key=key, include_value=include_value, keep=keep))
        return BlockingListening(listening, self._run)
