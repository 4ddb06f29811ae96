"""The in-process API: a member of the cluster inside your own asyncio program.

async with holdfast.Member(seeds=["127.0.0.1:5751"]) as member:
flights = member.map("flights")
await flights.put("UA1545", {"origin": "EWR"})
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from holdfast.config import INTERNAL, Settings, load
from holdfast.core.model.ids import MemberId
from holdfast.core.model.keys import partition_of
from holdfast.core.model.object_names import part_name
from holdfast.core.model.operations import (
    DEFAULT_TTL,
    LIFETIME_MS_MAX,
    MAP_NAME_MAX,
    READS,
    WHOLE,
    EntryEvent,
    Op,
    Outcome,
    Request,
    Status,
    Value,
)
from holdfast.core.model.partition_events import Kind, Loss, News
from holdfast.core.model.views import ClusterState
from holdfast.core.services.hosting import Service
from holdfast.errors import (
    Closing,
    ConfigError,
    Moved,
    NoDataMember,
    NoMemory,
    NoRoom,
    NotReady,
    PartitionLost,
    Passive,
    Refused,
    RequestError,
    TooLarge,
    Unknown,
)
from holdfast.runtime.node import Node
from holdfast.runtime.transactions_api import Answer, Isolation, MemberTransaction, transact
from holdfast.wire.values import from_stored, to_stored

Heard = TypeVar("Heard")

RETRY_S = 0.05
"""Between two tries of a request whose outcome is unknown."""

REFUSALS: dict[Status, type[RequestError]] = {
    Status.UNKNOWN: Unknown,
    Status.MOVED: Moved,
    Status.NOT_READY: NotReady,
    Status.CLOSING: Closing,
    Status.TOO_LARGE: TooLarge,
    Status.PASSIVE: Passive,
    Status.NO_ROOM: NoRoom,
    Status.NO_DATA_MEMBER: NoDataMember,
    Status.FAILED: Refused,
    Status.NO_MEMORY: NoMemory,
    Status.LOST: PartitionLost,
}


def _milliseconds(seconds: float | None) -> int:
    """Raises ValueError for what is no time to live."""
    if seconds is None:
        return DEFAULT_TTL
    if not 0 <= seconds <= LIFETIME_MS_MAX / 1000:
        raise ValueError(f"a lifetime of {seconds} s: it is 0 (for ever) to {LIFETIME_MS_MAX // 1000}")
    return max(1, round(seconds * 1000)) if seconds else 0


class Member:
    """One member in this process. Leaving the `async with` block drains it: it goes when its data is safe elsewhere.

    Settings come from `settings`, or from the environment (`HOLDFAST_…`) and the keywords, which are those of
    the sections `cluster` and `member` (`seeds`, `name`, `host`, `member_port`, `client_port`, `lite`, …).
    `services` have a share in every partition, beside the maps (docs/services.md). Every member of the cluster is given
    objects of its own, of the same names and backups. Raises ConfigError.
    """

    def __init__(
        self, settings: Settings | None = None, *, services: Sequence[Service] = (), **keywords: object
    ) -> None:
        if settings is None:
            sections = {"cluster": Settings().cluster, "member": Settings().member}
            overrides: dict[str, object] = {}
            for key, value in keywords.items():
                section = "cluster" if hasattr(sections["cluster"], key) and key != "name" else "member"
                overrides[f"{section}.{key}"] = value
            settings = load(None, os.environ, overrides)
        elif keywords:
            raise TypeError("give either settings or keywords")
        self._inner = Node(settings, services)
        self.settings = self._inner.settings
        self._crashed = False

    @property
    def _node(self) -> Node:
        """The member that was started. Raises NotReady before."""
        if not self._inner.started:
            self._inner.check()
        return self._inner

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()

    async def start(self) -> None:
        """Open the doors and join the cluster; returns when this member can serve, or waits for others to come.

        Before the first assignment of partitions (`cluster.initial_members`) requests wait. While there are lite
        members alone, who have none, requests are refused: NoDataMember.
        A member is started once. Every call before raises NotReady.
        Raises Refused when the cluster does not take this member, ConfigError when a port is taken, TimeoutError when
        no cluster is found.
        """
        await self._inner.start()
        try:
            async with asyncio.timeout(self.settings.cluster.join_timeout_ms / 1000):
                while not (self._node.joined or self._node.waits_for_others):
                    refusal = self._node.refusal
                    if refusal:
                        raise Closing(f"the cluster refuses this member: {refusal}")
                    await asyncio.sleep(0.02)
        except TimeoutError:
            await self._node.stop()
            seeds = ", ".join(self.settings.cluster.seeds)
            wait_s = self.settings.cluster.join_timeout_ms / 1000
            trouble = "".join(f"; {each}" for each in self._node.troubles)
            raise TimeoutError(
                f"in no cluster after {wait_s:g} s; cluster.seeds: {seeds or 'none'}{trouble}"
            ) from None
        except BaseException:
            await self._node.stop()
            raise

    async def leave(self) -> None:
        """Drain and stop. Gives up after `partitions.drain_timeout_s`, with TimeoutError; the member then
        stops anyway. Raises InvariantBroken when an error inside the member has stopped it before.
        """
        if self._crashed or not self._inner.started:
            return
        try:
            await self._node.control.leave(self.settings.partitions.drain_timeout_s)
        finally:
            await self._node.stop()

    async def crash(self) -> None:
        """Stop at once, as if the process had died: for tests of what the cluster does then. `leave` is then
        no more.
        """
        self._crashed = True
        if self._inner.started:
            await self._inner.stop()

    async def wait_ended(self) -> str:
        """Wait until this member has ended, and answer why: it left, the cluster was shut down, or an error inside it.

        A program that only runs a member waits here; the member may be told to leave from outside.
        """
        await self._node.ended.wait()
        return self._node.ended_because or "it was stopped"

    @property
    def uuid(self) -> str:
        """Who this member is."""
        return self._inner.member_uuid

    @property
    def client_address(self) -> str:
        """HOST:PORT for clients."""
        return str(self._node.client_address)

    @property
    def member_address(self) -> str:
        """HOST:PORT for other members: what they take as a seed."""
        info = self._node.member.picture.info
        return f"{info.host}:{info.port}"

    def status(self) -> dict[str, object]:
        """What this member knows of itself and the cluster; the same data as `holdfast status --json`.

        Raises InvariantBroken when an error inside the member has stopped it.
        """
        if self._node.broken is not None:
            self._node.check()
        return self._node.status()

    # -- is it safe?

    @property
    def safe(self) -> bool:
        """Whether this member sees nothing that a crash could cost: every partition has all its copies, and nothing
        is moving. Cheap: ask as often as you like.
        """
        return not self.why_unsafe()

    def why_unsafe(self) -> str:
        """Why `safe` is False; empty when it is True."""
        self._node.driver.enter()
        return self._why_stopped() or self._node.member.picture.why_unsafe()

    @property
    def cluster_safe(self) -> bool:
        """Whether all members say so. What the others say is at most as old as three times `cluster.heartbeat_ms`."""
        return not self.why_cluster_unsafe()

    def why_cluster_unsafe(self) -> str:
        """Why `cluster_safe` is False; empty when it is True."""
        self._node.driver.enter()
        return self._why_stopped() or self._node.member.picture.why_cluster_unsafe()

    def _why_stopped(self) -> str:
        node = self._node
        return f"this member has stopped: {node.ended_because or 'at once'}" if node.ended.is_set() else ""

    async def wait_safe(self, timeout_s: float = 60.0) -> None:
        """Wait until the whole cluster is safe. Raises TimeoutError, which says why it is not."""
        await self._node.control.until(lambda: self.cluster_safe, timeout_s, self.why_cluster_unsafe)

    # -- control

    @property
    def cluster_state(self) -> ClusterState:
        """What the operator allows."""
        return self._node.member.picture.cluster_state

    async def change_cluster_state(self, state: ClusterState | str, timeout_s: float = 60.0) -> None:
        """Put the whole cluster into this state; answers when every member has said that it is in it.

        Raises TimeoutError, after which the order stands: it is carried out as soon as a majority of the members can
        agree. Raises Refused when it was not taken: this member is in no cluster, or the cluster is being shut down.
        """
        await self._node.control.change_state(ClusterState(state), timeout_s)

    async def shut_down_cluster(self, timeout_s: float = 60.0) -> None:
        """Make the cluster passive and let every member leave; answers when this one has. What it held is gone then.

        Raises TimeoutError, after which the order stands.
        """
        await self._node.control.shut_down_cluster(timeout_s)

    @property
    def lite(self) -> bool:
        """Whether this member owns no partitions by its nature."""
        return self._node.member.picture.info.lite

    async def promote(self, timeout_s: float = 60.0) -> None:
        """Let this lite member own partitions. Raises TimeoutError, after which the order stands."""
        await self._node.control.promote(timeout_s)

    async def demote(self, timeout_s: float = 600.0) -> None:
        """Make this member a lite one when its partitions are safe elsewhere.

        Raises Refused when it is the last one with data, and TimeoutError (then it stays a data member).
        """
        await self._node.control.demote(timeout_s)

    def declare_dead(self, *uuids: str) -> None:
        """Vouch that these members have ended, when the rest is no majority and waits for them.

        Only you can know: were one of them alive and cut off, there would be two clusters, and one would lose what it
        took. Raises Refused for members that are not in the view, or were heard of not long ago.
        """
        picture = self._node.member.picture
        unknown = set(uuids) - {info.uuid for info in picture.members()}
        if unknown:
            raise Refused(f"no such member in the view: {', '.join(sorted(unknown))}")
        heard = set(uuids) - set(picture.suspects(self._node.now_ns()))
        if heard:
            raise Refused(f"heard of not long ago, so not dead: {', '.join(sorted(heard))}")
        self._node.driver.declare_dead(MemberId(uuid) for uuid in uuids)

    # -- listeners

    def on_migration(self, heard: Callable[[News], None]) -> Callable[[], bool]:
        """Call `heard` with the start, each migration and the end of every rebalance, on any member; in order, each
        once, and as often as it was registered. Answers the function that ends it, which says whether it has.

        An error in `heard` goes to the event loop's exception handler. Raises TypeError when it cannot be called.
        """
        told = careful(self._node, heard)
        return self._node.on_news(lambda news: told(news) if news.kind is not Kind.LOST else None)

    def on_partition_lost(self, heard: Callable[[Loss], None]) -> Callable[[], bool]:
        """Call `heard` when copies of a partition are gone with their members: how many, and which maps have lost
        entries. The same rules as for `on_migration`.
        """
        told = careful(self._node, heard)
        return self._node.on_news(lambda news: told(news.loss) if news.loss is not None else None)

    def map(self, name: str) -> Map:
        """The map of this name; it comes into being with its first entry. Raises ConfigError for a name that no map can
        have, or that is Holdfast's own.
        """
        if not 1 <= len(name) <= MAP_NAME_MAX or name.startswith(INTERNAL):
            raise ConfigError(
                f"{name!r} is no name for a map: 1 to {MAP_NAME_MAX} characters, and not {INTERNAL!r} first, which is "
                "for Holdfast's own"
            )
        return Map(self._inner, name)

    def transaction(
        self, isolation: Isolation = "repeatable-read", *, timeout_s: float = 0.0, label: str = ""
    ) -> MemberTransaction:
        """A transaction over maps that say `transactional = true`, to be used with `async with`: what is done in it
        happens when the block ends, all of it or nothing.

        `isolation`: with "read-committed" what is written is locked, and reads see what others have committed; with
        "repeatable-read" what is read is locked, too; with "serializable" nothing is locked, and the transaction is
        rolled back if what it has read has changed when it ends. `timeout_s`: it is rolled back after so long; 0:
        `transactions.timeout_ms`. `label`: shown to operators.
        """
        return MemberTransaction(self._node, isolation, timeout_s, label)

    async def transact(
        self,
        work: Callable[[MemberTransaction], Awaitable[Answer]],
        *,
        isolation: Isolation = "repeatable-read",
        timeout_s: float = 0.0,
        attempts: int = 10,
        label: str = "",
    ) -> Answer:
        """Do `work` in a transaction, and again, up to so many times, when that is rolled back: it must do nothing
        outside of its transaction that must not be done twice. Answers what `work` does. Raises RolledBack after the
        last attempt, and Unknown at once.
        """
        return await transact(
            lambda: self.transaction(isolation, timeout_s=timeout_s, label=label), work, attempts
        )

    def service(self, name: str) -> ServiceHandle:
        """The service of this name, wherever in the cluster its shares are. Raises KeyError if there is none."""
        names = [service.name for service in self._inner.services]
        if name not in names:
            raise KeyError(f"no service {name!r} here; there are: {', '.join(names) or 'none'}")
        return ServiceHandle(self._inner, name)


async def _ask(node: Node, request: Request) -> Value:
    """Carry a request out. Raises what its refusal stands for (REFUSALS).

    What changes something carries an id, and is sent again when its outcome is unknown, until the call timeout.
    """
    settings = node.settings
    repeats = settings.replication.on_unknown == "retry" and settings.replication.request_ids > 0
    if request.op in READS or request.op in WHOLE or not repeats:
        outcome = await _ask_once(node, request)
    else:
        node.check()
        request = msgspec.structs.replace(request, id=node.new_request_id())
        outcome = await _ask_again(node, request, settings.limits.call_timeout_ms / 1000)
    if outcome.status is not Status.OK:
        raise REFUSALS[outcome.status](outcome.detail)
    return outcome.value


async def _ask_again(node: Node, request: Request, timeout_s: float) -> Outcome:
    """Ask until it is known what became of the request. A refusal after an unknown outcome leaves that unknown."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    doubt = ""
    while True:
        try:
            outcome = await _ask_once(node, request)
        except Closing as closing:
            if doubt:
                raise Unknown(doubt) from closing
            raise
        if outcome.status is Status.UNKNOWN:
            doubt = outcome.detail
        elif not doubt or outcome.status is Status.OK:
            return outcome
        if outcome.status is Status.PASSIVE or loop.time() + RETRY_S > deadline_s:
            return Outcome(Status.UNKNOWN, None, doubt)
        await asyncio.sleep(RETRY_S)


async def _ask_once(node: Node, request: Request) -> Outcome:
    node.check()
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def done(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    node.calls.add(future)
    try:
        node.guard(lambda: node.execute(request, done))
        return await future
    finally:
        node.calls.discard(future)


class ServiceHandle:
    """Calls a service: in each call, one share, that of the partition's primary.

    Every call raises `Refused` (or one of its kinds) when it was certainly not applied, and `Unknown` when it
    may have been.
    """

    def __init__(self, node: Node, name: str) -> None:
        self._node = node
        self.name = name

    @property
    def partitions(self) -> range:
        """All partitions: there is one share of each."""
        return range(self._node.partition_count)

    def partition_of(self, key: object) -> int:
        """The partition in which an entry with this key would be, of any map. Raises TypeError: see `to_stored`."""
        return partition_of(to_stored(key), 0, self._node.partition_count)

    async def call(self, key: object, update: bytes) -> bytes:
        """Have the share of this key's partition apply an update; answers what it answered.

        It answers when every backup of the service, and the destination of a running migration, has applied it too.
        """
        return await self.call_partition(self.partition_of(key), update)

    async def call_partition(self, partition: int, update: bytes) -> bytes:
        """The same for the share of a partition. Raises ValueError when there is no such partition."""
        return await self._of_share(Op.CALL, partition, update)

    async def ask(self, key: object, question: bytes) -> bytes:
        """Have the share of this key's partition answer a question; it changes nothing."""
        return await self.ask_partition(self.partition_of(key), question)

    async def ask_partition(self, partition: int, question: bytes) -> bytes:
        """The same for the share of a partition. Raises ValueError when there is no such partition."""
        return await self._of_share(Op.ASK, partition, question)

    def listen(self, heard: Callable[[bytes], None]) -> Callable[[], None]:
        """Call `heard` with each update that any share applies, on any member; answers the function that ends it.

        It is the update that was carried out: with `decide`, what that has made of the caller's. Told by the primary,
        once it has applied it; updates of one partition in their order.
        """
        self._node.check()
        told = careful(self._node, heard)
        return self._node.listen(
            part_name(self.name), key=None, local_only=False, heard=lambda event: told(event.value or b"")
        )

    async def _of_share(self, op: Op, partition: int, value: bytes) -> bytes:
        if partition not in self.partitions:
            raise ValueError(f"no partition {partition}: there are 0 to {self._node.partition_count - 1}")
        answer = await _ask(self._node, Request(op, self.name, [partition], b"", value))
        if not isinstance(answer, bytes):
            raise TypeError(f"service {self.name!r} answered {type(answer).__name__}, not bytes")
        return answer


class Map:
    """A named map, partitioned over the cluster. Keys and values are plain Python data (see `wire.values`).

    Every call raises `Refused` (or one of its kinds) when it was certainly not applied, and `Unknown` when it
    may have been.
    """

    def __init__(self, node: Node, name: str) -> None:
        self._node = node
        self.name = name

    async def _ask(self, request: Request) -> Value:
        return await _ask(self._node, request)

    async def _on_key(
        self,
        op: Op,
        key: object,
        value: object = None,
        *,
        expected: object = None,
        ttl_s: float | None = None,
        max_idle_s: float | None = None,
    ) -> Value:
        raw = to_stored(key)
        partition = partition_of(raw, 0, self._node.partition_count)
        stored = to_stored(value) if value is not None else b""
        wanted = to_stored(expected) if expected is not None else b""
        ttl_ms, max_idle_ms = _milliseconds(ttl_s), _milliseconds(max_idle_s)
        return await self._ask(
            Request(op, self.name, [partition], raw, stored, wanted, [], ttl_ms, max_idle_ms)
        )

    async def _on_all(self, op: Op, value: object = None) -> Value:
        partitions = list(range(self._node.partition_count))
        stored = to_stored(value) if value is not None else b""
        return await self._ask(Request(op, self.name, partitions, value=stored))

    async def get(self, key: object) -> object:
        """The value, or None."""
        return _plain(await self._on_key(Op.GET, key))

    async def put(
        self, key: object, value: object, *, ttl_s: float | None = None, max_idle_s: float | None = None
    ) -> object:
        """Store, and answer the old value. `ttl_s` and `max_idle_s` in seconds; None: the map's setting, 0:
        for ever.
        """
        return _plain(await self._on_key(Op.PUT, key, _given(value), ttl_s=ttl_s, max_idle_s=max_idle_s))

    async def set(
        self, key: object, value: object, *, ttl_s: float | None = None, max_idle_s: float | None = None
    ) -> None:
        """Store."""
        await self._on_key(Op.SET, key, _given(value), ttl_s=ttl_s, max_idle_s=max_idle_s)

    async def put_if_absent(self, key: object, value: object, *, ttl_s: float | None = None) -> object:
        """Store if there is none; answers the value that was there, or None."""
        return _plain(await self._on_key(Op.PUT_IF_ABSENT, key, _given(value), ttl_s=ttl_s))

    async def replace(self, key: object, value: object) -> object:
        """Store if there is one; answers the old value, or None."""
        return _plain(await self._on_key(Op.REPLACE, key, _given(value)))

    async def replace_if_same(self, key: object, expected: object, value: object) -> bool:
        """Store if the present value equals `expected`; answers whether it did."""
        return bool(await self._on_key(Op.REPLACE_IF_SAME, key, _given(value), expected=_given(expected)))

    async def remove(self, key: object) -> object:
        """Take out; answers the old value, or None."""
        return _plain(await self._on_key(Op.REMOVE, key))

    async def remove_if_same(self, key: object, expected: object) -> bool:
        """Take out if the present value equals `expected`; answers whether it did."""
        return bool(await self._on_key(Op.REMOVE_IF_SAME, key, expected=_given(expected)))

    async def delete(self, key: object) -> bool:
        """Take out; answers whether there was one."""
        return bool(await self._on_key(Op.DELETE, key))

    async def contains_key(self, key: object) -> bool:
        """Whether there is an entry."""
        return bool(await self._on_key(Op.CONTAINS_KEY, key))

    async def contains_value(self, value: object) -> bool:
        """Whether any entry has this value."""
        return bool(await self._on_all(Op.CONTAINS_VALUE, _given(value)))

    async def set_ttl(self, key: object, ttl_s: float) -> bool:
        """Give the entry a new time to live, counted from now; 0: for ever. Answers whether there was one."""
        return bool(await self._on_key(Op.SET_TTL, key, ttl_s=ttl_s))

    async def evict(self, key: object) -> bool:
        """Take out, as an eviction to listeners; answers whether there was one."""
        return bool(await self._on_key(Op.EVICT, key))

    async def put_all(self, entries: Mapping[object, object]) -> None:
        """Store many; not atomic: each partition on its own."""
        parts: dict[int, list[bytes]] = {}
        for key, value in entries.items():
            raw = to_stored(key)
            part = parts.setdefault(partition_of(raw, 0, self._node.partition_count), [])
            part += (raw, to_stored(_given(value)))
        await asyncio.gather(
            *(self._ask(Request(Op.PUT_ALL, self.name, [p], items=items)) for p, items in parts.items())
        )

    async def get_all(self, keys: Iterable[object]) -> dict[object, object]:
        """The present ones of these keys with their values."""
        parts: dict[int, list[bytes]] = {}
        for key in keys:
            raw = to_stored(key)
            parts.setdefault(partition_of(raw, 0, self._node.partition_count), []).append(raw)
        answers = await asyncio.gather(
            *(self._ask(Request(Op.GET_ALL, self.name, [p], items=items)) for p, items in parts.items())
        )
        return {key: value for answer in answers for key, value in _pairs(answer)}

    async def size(self) -> int:
        """How many entries there are, over all partitions; not a snapshot."""
        answer = await self._on_all(Op.SIZE)
        return answer if isinstance(answer, int) else 0

    async def is_empty(self) -> bool:
        """Whether there is no entry."""
        return bool(await self._on_all(Op.IS_EMPTY))

    async def clear(self) -> None:
        """Take out every entry."""
        await self._on_all(Op.CLEAR)

    async def keys(self) -> list[object]:
        """All keys."""
        return _plains(await self._on_all(Op.KEYS))

    async def values(self) -> list[object]:
        """All values."""
        return _plains(await self._on_all(Op.VALUES))

    async def entries(self) -> dict[object, object]:
        """All entries. Raises TypeError when a key is a list or a dictionary."""
        return dict(_pairs(await self._on_all(Op.ENTRIES)))

    def listen(self, heard: Callable[[EntryEvent], None], *, key: object = None) -> Callable[[], None]:
        """Call `heard` after each change on any member; answers the function that ends it.

        Keys and values of events are in stored form: see `wire.values.from_stored`.
        """
        self._node.check()
        raw = None if key is None else to_stored(key)
        return self._node.listen(self.name, key=raw, local_only=False, heard=careful(self._node, heard))


def careful(node: Node, heard: Callable[[Heard], None]) -> Callable[[Heard], None]:
    """The program's own function, so that an error in it is told to the program, and does not stop the member."""
    if not callable(heard):
        raise TypeError(f"a listener must be callable, not {heard!r}")

    def told(what: Heard) -> None:
        try:
            heard(what)
        except Exception as error:  # noqa: BLE001  (it is the program's, whatever it is)
            context = {"message": "a listener of a Holdfast member has failed", "exception": error}
            node.loop.call_exception_handler(context)

    return told


def _given(value: object) -> object:
    if value is None:
        raise TypeError("None cannot be a value of a map; remove the entry instead")
    return value


def _plain(value: Value) -> object:
    return from_stored(value) if isinstance(value, bytes) else None


def _plains(value: Value) -> list[object]:
    return [_plain(one) for one in value] if isinstance(value, list) else []


def _pairs(value: Value) -> list[tuple[object, object]]:
    flat = _plains(value)
    return list(zip(flat[::2], flat[1::2], strict=True))
