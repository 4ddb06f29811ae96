"""Asyncio client of a cluster: its connections, the owners of partitions, and requests on their way.

The client keeps one connection to each member and sends a request about one key to the owner of its partition.
A request that was certainly not applied is retried for `patience_s`; a write that may have been applied raises
Unknown (`verdicts`).

A partition moves like this: members send every change of ownership on one of the connections (`_viewer`), and
`route` is rebuilt from it. A request that leaves before that arrives reaches the old owner, which forwards it
or rejects it as not applied; the client waits for the next change of route, at most for a short pause, and
sends it to the new owner.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count, cycle
from random import random
from threading import Lock
from types import TracebackType
from typing import Any, Self
from weakref import WeakValueDictionary

from holdfast.aio.asyncio_map import Map
from holdfast.aio.asyncio_transaction import Transaction
from holdfast.aio.client_handshake import ClientHandshake, no_tls
from holdfast.aio.member_line import MemberLine
from holdfast.aio.near_cache_feed import NearCacheFeed
from holdfast.aio.queue import Queue
from holdfast.aio.queue_takers import QueueTakers
from holdfast.aio.ringbuffer import Ringbuffer
from holdfast.aio.subscriptions import Subscriptions
from holdfast.aio.topic import Topic
from holdfast.client_core.answer_stream import OtherAnswer
from holdfast.client_core.message_decoding import (
    NotAnswered,
    Welcome,
    answer_in,
    read_members,
    read_owners,
    reader_of,
)
from holdfast.client_core.near_cache import NearCache, NearCacheOptions
from holdfast.client_core.request_forms import CLUSTER_VIEW, PING, WHOLE, RequestForm, form
from holdfast.client_core.retries import LineBroken, LineClosed, Retries, WrongPort, in_words, retry_reason
from holdfast.client_core.transaction_retries import Answer, transact
from holdfast.config.addresses import format_address, parse_addresses
from holdfast.config.client_tls import ClientTls
from holdfast.errors import ConfigError, Denied, HoldfastError, NotReady, ProtocolError, Unreachable
from holdfast.serialization.serializers import Serializers
from holdfast.wire.doors import HAZELCAST_CLIENT

DEFAULT_PORT = 5701
CONNECT_S = 10.0
MEMBERS_VIEW, PARTITIONS_VIEW = 0x000302, 0x000303
BEAT_S = 1.0
PING_AFTER_S = 5.0
SILENCE_S = 60.0
"""A connection without any answer for so long is closed, as official clients do."""
VIEWER_SILENCE_S = 7.0
"""After so long without any answer from the viewer, another connection becomes the viewer. Longer than `PING_AFTER_S`,
and not than `cluster.suspect_after_ms`, so that the removal of a member that hangs is heard at once.
"""
ALL_CONNECTED_S = 5.0
"""How long a listener that begins waits for connections to all members: one may have crashed just now."""
REPAIR_S = 60.0
"""Interval of the check of near caches for lost invalidations."""
_VIEW, _PING = form(CLUSTER_VIEW, b"\0", alone=True), form(PING, b"", alone=True)


class Client:
    """One client of one cluster; use it from one event loop. An asynchronous context manager."""

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
        tls: ClientTls | ssl.SSLContext | None = None,
    ) -> None:
        """Create a client; `connect`, or entering the context, connects it.

        `addresses`: client ports as `host:port` or `[ipv6]:port`; one that answers is enough.
        `connect_timeout_s`: how long `connect` tries; by default 10 s, or `patience_s` if that is less.
        `patience_s`: how long a request that was not applied is retried. `message_bytes`: the longest answer
        that is accepted. `near_caches`: options of near caches, by map name. `serializers`: how values are
        written, if not by default. `tls`: for members that use TLS; the files of a `ClientTls` are read again
        for each connection.

        Raises: ConfigError.
        """
        self._seeds = parse_addresses(addresses, "addresses", DEFAULT_PORT)
        self.introduction = ClientHandshake.new(cluster_name, username, password)
        self.serializers = serializers or Serializers()
        self.subscriptions = Subscriptions()
        self._feeds = {
            name: NearCacheFeed(name, NearCache(options, time.monotonic, Lock()), self)
            for name, options in (near_caches or {}).items()
        }
        self._takers: WeakValueDictionary[str, QueueTakers] = WeakValueDictionary()
        self.unsettled: set[QueueTakers] = set()
        """Queues with requests or items of cancelled calls."""
        self._tls = tls
        self.tls_context()  # Report wrong files now.
        self.connect_timeout_s = (
            min(CONNECT_S, patience_s) if connect_timeout_s is None else connect_timeout_s
        )
        self._patience_s = patience_s
        self.message_bytes = message_bytes
        self.partition_count = 0
        self._cluster = b""
        self._members: dict[bytes, tuple[str, int]] = {}
        self._owners: list[bytes] = []
        self._lines: dict[bytes, MemberLine] = {}
        self.route: list[MemberLine | None] = []
        self._turns: cycle[MemberLine | None] = cycle([None])
        self._viewer: MemberLine | None = None
        """The connection on which members and owners are sent."""
        self._opening: set[MemberLine] = set()
        self._changed = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._threads = count(2)  # 1 is that of requests outside of transactions.
        self._closed = False
        self.on_lost: Callable[[MemberLine], None] = _nobody_cares

    # -- beginning and end

    async def connect(self) -> Self:
        """Connect to the cluster. Raises Denied if the cluster name or the credentials are rejected, ConfigError if an
        address is not a client port, NotReady if no member answers.
        """
        if self._closed or self._keeper is not None:
            raise ConfigError("a client is connected once; make another one")
        loop = asyncio.get_running_loop()
        retries = Retries(self.connect_timeout_s, loop.time)
        try:
            while not (self._lines and self._members):
                told = await self._open_missing()
                pause_s = retries.pause_s()
                if self._lines and pause_s is not None:
                    await self._wait_changed(pause_s)
                    continue
                if final := next((error for error in told if isinstance(error, Denied | WrongPort)), None):
                    raise ConfigError(str(final)) if isinstance(final, WrongPort) else final
                if pause_s is None:
                    raise Unreachable("no member could be reached: " + "; ".join(map(str, told)))
                await asyncio.sleep(pause_s)
            for feed in self._feeds.values():
                if feed.cache.options.invalidate_on_change:
                    await self.subscriptions.begin(feed, self.lines())
            try:
                await self._repair(self.lines())
            except (NotAnswered, LineBroken, LineClosed) as failed:
                raise in_words(failed) from failed
        except BaseException:
            await self.close()
            raise
        self._keeper = loop.create_task(self._keep(), name="holdfast.aio keeps connections")
        return self

    async def close(self) -> None:
        """End all connections, tasks included. Requests in flight fail, writes with Unknown. Items that cancelled calls
        took go back to their queues first; that lasts up to 3 s.
        """
        try:
            if self.unsettled and not self._closed:
                await asyncio.gather(*(takers.settle() for takers in self.unsettled))
        finally:
            await self._end()

    async def _end(self) -> None:
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        for line in [*self._lines.values(), *self._opening]:
            line.end("the client is closed")
        self.subscriptions.close()
        self._changed.set()
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def connected(self) -> list[str]:
        """Members with a connection, as `host:port`."""
        return sorted(format_address(*line.address) for line in self.lines())

    def map(self, name: str) -> Map[Any, Any]:
        """The map of this name; its first write creates it. Annotate it for type checkers:
        `flights: Map[str, int] = client.map("flights")`.
        """
        return Map(self, name, self.near_cache(name))

    def queue(self, name: str) -> Queue[Any]:
        """The queue of this name; its first item creates it. Annotate it for type checkers:
        `jobs: Queue[str] = client.queue("jobs")`. Raises ConfigError for an invalid name.
        """
        takers = self._takers.get(name)
        if takers is None:
            takers = self._takers[name] = QueueTakers(self, name)
        return Queue(takers, self.serializers)

    def ringbuffer(self, name: str) -> Ringbuffer[Any]:
        """The ringbuffer of this name; its first item creates it. Raises ConfigError for an invalid name."""
        return Ringbuffer(self, name)

    def topic(self, name: str) -> Topic[Any]:
        """The topic of this name. Raises ConfigError for an invalid name."""
        return Topic(self, name)

    def near_cache(self, name: str) -> NearCache | None:
        feed = self._feeds.get(name)
        return feed.cache if feed is not None else None

    def transaction(self, *, timeout_s: float = 0.0) -> Transaction:
        """A transaction for `async with`: its changes of all maps are applied completely or not at all. `timeout_s`: it
        is rolled back after this time; 0: `transactions.timeout_ms` of the members. Raises TypeError, ValueError.
        """
        return Transaction(self, timeout_s)

    async def transact(
        self, work: Callable[[Transaction], Awaitable[Answer]], *, timeout_s: float = 0.0, attempts: int = 10
    ) -> Answer:
        """Run `work` in a transaction and return its result; repeat it after a rollback, up to `attempts` times. `work`
        must have no other effects that may not be repeated. Raises RolledBack after the last attempt, Unknown at once.
        """
        return await transact(
            lambda: self.transaction(timeout_s=timeout_s), work, attempts, asyncio.sleep, random
        )

    def next_thread(self) -> int:
        """A thread id for one transaction: Hazelcast's members give locks to a client's thread, and two transactions of
        one thread would not exclude each other.
        """
        return next(self._threads)

    def lines(self) -> list[MemberLine]:
        return list(self._lines.values())

    # -- requests

    async def ask(self, form: RequestForm, partition: int, rest: bytes) -> Any:
        """Send a request to the owner of the partition (-1: to any member). Returns what its form says: a
        stored value or None, a boolean, or the whole message. `rest`: the frames that follow those of the
        form, the last one flagged final. Raises Refused, Unknown.
        """
        retries: Retries | None = None
        while True:
            line = self.line_for(partition)
            why = "no member is connected"
            if line is not None:
                try:
                    if not line.ready:
                        await line.room.wait()
                    correlation, future = line.begin(form, partition, rest)
                    try:
                        found = await future
                        return answer_in(form, found) if form.code == WHOLE else found
                    except OtherAnswer as other:
                        return answer_in(form, other.whole)
                    finally:
                        line.pending.pop(correlation, None)
                except ProtocolError as broken:
                    line.end(f"{format_address(*line.address)} sent an invalid response: {broken}")
                    why = retry_reason(form, LineBroken(line.ended))
                except HoldfastError as failed:
                    why = retry_reason(form, failed)
            retries = await self.wait_to_retry(retries, why)

    async def wait_to_retry(self, retries: Retries | None, why: str) -> Retries:
        """Wait for the next try of a request, or for the next change of route. `retries`: None after the first try.
        Raises NotReady with `why` when the patience is over.
        """
        if self._closed:
            raise NotReady("the client is closed")
        if self._keeper is None:
            raise ConfigError(
                "the client is not connected: use it inside `async with Client(...) as client:`, or call "
                "`await client.connect()` first"
            )
        # Made at the first failure: most requests need no second try.
        retries = retries or Retries(self._patience_s, asyncio.get_running_loop().time)
        pause_s = retries.pause_s()
        if pause_s is None:
            raise NotReady(f"given up after {self._patience_s:g} s: {why}")
        await self._wait_changed(pause_s)
        return retries

    async def ask_each(self, form: RequestForm, asked: Sequence[tuple[int, bytes]]) -> list[Any]:
        """Send several requests, each with its partition and frames as for `ask`, at the same time. Returns the
        result of each, or its exception.

        Most requests need no second try, so there is no task for each: only those that do are passed to `ask`.
        """
        sent = [self._begin(form, partition, rest) for partition, rest in asked]
        futures = [one[2] for one in sent if one is not None]
        try:
            await asyncio.gather(*futures, return_exceptions=True)
        finally:
            for one in sent:
                if one is not None:
                    one[0].pending.pop(one[1], None)
        found = [None if one is None else _result(form, one[0], one[2]) for one in sent]
        again = [place for place, one in enumerate(found) if one is None or isinstance(one, _Retry)]
        if again:
            asks = (self.ask(form, *asked[place]) for place in again)
            for place, result in zip(again, await asyncio.gather(*asks, return_exceptions=True), strict=True):
                found[place] = result
        return found

    def _begin(
        self, form: RequestForm, partition: int, rest: bytes
    ) -> tuple[MemberLine, int, asyncio.Future[Any]] | None:
        line = self.line_for(partition)
        return (line, *line.begin(form, partition, rest)) if line is not None and line.ready else None

    def line_for(self, partition: int) -> MemberLine | None:
        if partition >= 0 and partition < len(self.route):
            line = self.route[partition]
            if line is not None:
                return line
        return next(self._turns)

    # -- connections

    def tls_context(self) -> ssl.SSLContext | None:
        """None without TLS. Raises ConfigError."""
        return self._tls.context() if isinstance(self._tls, ClientTls) else self._tls

    async def _open(self, address: tuple[str, int]) -> None:
        """Connect, authenticate and register. Raises HoldfastError, OSError."""
        loop = asyncio.get_running_loop()
        line = MemberLine(self.message_bytes, self._heard, self._lost)
        line.address = address
        self._opening.add(line)
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                await loop.create_connection(lambda: line, *address, ssl=self.tls_context())
                welcome = await self._greet(line)
                self._admit(line, welcome)
                if self._viewer is None:
                    self._viewer = line
                    await self._control(line, _VIEW)
                await self.subscriptions.admit(line)
                await self._repair([line])
        except TimeoutError as late:
            line.end("no answer in time")
            raise NotReady(f"{format_address(*address)} does not answer") from late
        except ssl.SSLError as failed:
            line.end(str(failed))
            raise no_tls(failed, address) from failed
        except BaseException as failed:
            line.end(str(failed) or "the client is closed")
            raise
        finally:
            self._opening.discard(line)

    async def _control(self, line: MemberLine, asked: RequestForm) -> None:
        _, future = line.begin(asked, -1, b"")
        answer_in(asked, await future)

    async def _greet(self, line: MemberLine) -> Welcome:
        line.greet(HAZELCAST_CLIENT)
        _, future = line.begin(self.introduction.form, -1, self.introduction.frames)
        return self.introduction.read(await future, line.address)

    async def _repair(self, lines: list[MemberLine]) -> None:
        for feed in self._feeds.values():
            if feed.cache.options.invalidate_on_change:
                await asyncio.gather(*map(feed.repair, lines))

    def _admit(self, line: MemberLine, welcome: Welcome) -> None:
        """Raises HoldfastError if the connection belongs to another cluster or is a duplicate."""
        if self._closed:
            raise NotReady("the client is closed")
        if welcome.partitions < 1 or (self.partition_count and welcome.partitions != self.partition_count):
            raise ProtocolError(
                f"a cluster of {welcome.partitions} partitions; it had {self.partition_count} before"
            )
        if self._lines and welcome.cluster != self._cluster:
            raise NotReady("the member belongs to another cluster than those that are connected")
        if welcome.member in self._lines:
            raise NotReady("there is a connection to this member already")
        self._cluster = welcome.cluster
        self.partition_count = welcome.partitions
        line.member = welcome.member
        self._lines[line.member] = line
        self._reroute()

    def _lost(self, line: MemberLine) -> None:
        self.on_lost(line)
        if self._viewer is line:
            self._viewer = None
        if self._lines.get(line.member) is line:
            del self._lines[line.member]
            self.subscriptions.lose(line)
            self._reroute()

    def _reroute(self) -> None:
        self.route = [self._lines.get(owner) for owner in self._owners]
        self._turns = cycle(list(self._lines.values()) or [None])
        for feed in self._feeds.values():
            feed.rerouted()
        self._wake()

    async def wait_connected(self) -> None:
        """Wait for a connection to each member, at most `ALL_CONNECTED_S`: a listener misses the events of others."""
        now = asyncio.get_running_loop().time
        until_s = now() + ALL_CONNECTED_S
        while not self._closed and self._members.keys() - self._lines.keys() and now() < until_s:
            await self._wait_changed(until_s - now())

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _wait_changed(self, seconds: float) -> None:
        changed = self._changed
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            pass

    def _heard(self, line: MemberLine, kind: int, whole: bytes) -> None:
        if line is not self._viewer:
            # A former viewer that hung may send what is no longer true.
            return
        if kind == MEMBERS_VIEW:
            if members := read_members(reader_of(whole)):
                self._members = members
                for left in [other for uuid, other in self._lines.items() if uuid not in members]:
                    left.end("the member has left the cluster")
                self._wake()
        elif kind == PARTITIONS_VIEW:
            self._owners = read_owners(reader_of(whole), self.partition_count)
            self._reroute()

    # -- upkeep

    async def _open_missing(self) -> list[Exception]:
        """Connect to each member without a connection; returns the errors. Without any connection, the seeds
        are tried too.
        """
        missing = [address for uuid, address in self._members.items() if uuid not in self._lines]
        if not self._lines:
            missing += self._seeds
        told: list[Exception] = []
        if self._lines:
            results = await asyncio.gather(*map(self._open, missing), return_exceptions=True)
            told += [result for result in results if isinstance(result, Exception)]
            return told
        for address in dict.fromkeys(missing):
            try:
                await self._open(address)
            except (HoldfastError, OSError) as failed:
                told.append(failed)
            else:
                break
        return told

    async def _keep(self) -> None:
        """Reconnect, choose another viewer, send pings, close silent connections and check near caches."""
        repaired_s = asyncio.get_running_loop().time()
        while True:
            await self._open_missing()
            await self._choose_viewer()
            for line in list(self._lines.values()):
                now = line.loop.time()
                if now - line.heard_s > SILENCE_S:
                    line.end(f"{format_address(*line.address)} was silent for {SILENCE_S:g} s")
                elif now - line.said_s > PING_AFTER_S or now - line.heard_s > PING_AFTER_S:
                    _, future = line.begin(_PING, -1, b"")
                    future.add_done_callback(_heed)
            if asyncio.get_running_loop().time() > repaired_s + REPAIR_S:
                repaired_s = asyncio.get_running_loop().time()
                await self._repair_all()
            await self._wait_changed(BEAT_S)

    async def _choose_viewer(self) -> None:
        """If there is no viewer or it is silent: the connection that was heard last becomes the viewer."""
        best = max(self._lines.values(), key=lambda line: line.heard_s, default=None)
        viewer = self._viewer
        if best is None or best is viewer:
            return
        now = best.loop.time()
        if viewer is not None and (
            now - viewer.heard_s <= VIEWER_SILENCE_S or now - best.heard_s > VIEWER_SILENCE_S
        ):
            return
        self._viewer = best
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                await self._control(best, _VIEW)
        except (HoldfastError, TimeoutError) as failed:
            best.end(f"no updates of members and owners: {str(failed) or 'no answer in time'}")

    async def _repair_all(self) -> None:
        for line in self.lines():
            try:
                async with asyncio.timeout(self.connect_timeout_s):
                    await self._repair([line])
            except (HoldfastError, TimeoutError) as failed:
                line.end(f"near caches cannot be synchronized: {failed}")


class _Retry:
    """The request may be sent again."""


def _result(form: RequestForm, line: MemberLine, future: asyncio.Future[Any]) -> Any:
    """The result of a request that is answered, its exception, or `_Retry`."""
    try:
        try:
            found = future.result()
            return answer_in(form, found) if form.code == WHOLE else found
        except OtherAnswer as other:
            return answer_in(form, other.whole)
        except ProtocolError as broken:
            line.end(f"{format_address(*line.address)} sent an invalid response: {broken}")
            retry_reason(form, LineBroken(line.ended))
        except HoldfastError as failed:
            retry_reason(form, failed)
    except HoldfastError as final:
        return final
    return _Retry()


def _nobody_cares(_: MemberLine) -> None: ...


def _heed(pinged: asyncio.Future[object]) -> None:
    """Mark the exception as seen: a ping that fails ends its connection anyway."""
    if not pinged.cancelled():
        pinged.exception()
