"""The in-process API: a member of the cluster inside your own asyncio program.

async with holdfast.Member(seeds=["127.0.0.1:5751"]) as member:
flights = member.map("flights")
await flights.put("UA1545", {"origin": "EWR"})
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec

from holdfast.config import INTERNAL, Settings
from holdfast.config.addresses import format_address
from holdfast.core.hosted_services import Service
from holdfast.core.model.ids import MemberId
from holdfast.core.model.keys import partition_of
from holdfast.core.model.object_names import part_name
from holdfast.core.model.operations import MAP_NAME_MAX, Op, Request
from holdfast.core.model.partition_events import Kind, Loss, News
from holdfast.core.model.views import ClusterState
from holdfast.errors import Closing, ConfigError, Refused
from holdfast.runtime.in_process.bulk_turns import BulkTurns
from holdfast.runtime.in_process.embedded_maps import Map
from holdfast.runtime.in_process.embedded_transactions import Answer, Isolation, MemberTransaction, transact
from holdfast.runtime.in_process.member_keywords import MemberKeywords, settings_of
from holdfast.runtime.in_process.member_requests import ask, careful
from holdfast.runtime.node import Node
from holdfast.serialization import Serializers

log = logging.getLogger("holdfast")

QUIET_S = 3.0
"""A member that has found no cluster for so long says so once; joining one that is there takes less."""


class Member:
    """One member in this process. Leaving the `async with` block drains it: it goes when its data is safe elsewhere.

    Settings come from the environment (`HOLDFAST_…`), over that from `settings` by their dotted names
    (`{"maps.flights.backups": 2}`), and over these from the keywords, which are those of the sections `cluster` and
    `member` (`seeds`, `name`, `host`, `member_port`, `client_port`, `lite`, …; `cluster_name` is `cluster.name`).
    Settings that were loaded (`holdfast.config.load`) stand alone. `serializers`: how keys and values are written.
    `services` have a share in every partition, beside the maps (docs/services.md). Every member of the cluster is given
    objects of its own, of the same names and backups. Raises ConfigError.
    """

    def __init__(
        self,
        settings: Settings | Mapping[str, Any] | None = None,
        *,
        services: Sequence[Service] = (),
        serializers: Serializers | None = None,
        **keywords: Unpack[MemberKeywords],
    ) -> None:
        settings = settings_of(settings, keywords)
        if not settings.is_given("http.enabled"):
            # A door that the program does not know of is none that it has asked for.
            settings = msgspec.structs.replace(
                settings, http=msgspec.structs.replace(settings.http, enabled=False)
            )
        self._serializers = serializers or Serializers()
        self._turns = BulkTurns()
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
        no cluster is found within `cluster.join_timeout_ms`, if that is not 0.
        """
        await self._inner.start()
        wait_s = self.settings.cluster.join_timeout_ms / 1000
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        deadline_s = begun_s + wait_s
        told = False
        try:
            while not (self._node.joined or self._node.waits_for_others):
                refusal = self._node.refusal
                if refusal:
                    raise Closing(f"the cluster refuses this member: {refusal}")
                # Who is in a cluster, and waits there for others, waits as long as that takes.
                if wait_s and loop.time() >= deadline_s and not self._node.member.picture.admitted:
                    raise TimeoutError(f"in no cluster after {wait_s:g} s; {self._tried()}")
                if not told and loop.time() >= begun_s + QUIET_S and not self._node.member.picture.admitted:
                    told = True
                    until = f"for {wait_s:g} s (cluster.join_timeout_ms)" if wait_s else "without end"
                    log.warning("no cluster found yet, trying %s; %s", until, self._tried())
                await asyncio.sleep(0.02)
        except BaseException:
            await self._node.stop()
            raise

    def _tried(self) -> str:
        """Which seeds are asked for the cluster, and what came of it."""
        seeds = ", ".join(self.settings.cluster.seeds) or "none"
        return f"cluster.seeds: {seeds}" + "".join(f"; {each}" for each in self._node.troubles)

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
        return format_address(info.host, info.port)

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
        return not self.unsafe_reason()

    def unsafe_reason(self) -> str:
        """Why `safe` is False; empty when it is True."""
        self._node.driver.enter()
        return self._stopped_reason() or self._node.member.picture.unsafe_reason()

    @property
    def cluster_safe(self) -> bool:
        """Whether all members say so. What the others say is at most as old as three times
        `cluster.heartbeat_ms`.
        """
        return not self.cluster_unsafe_reason()

    def cluster_unsafe_reason(self) -> str:
        """Why `cluster_safe` is False; empty when it is True."""
        self._node.driver.enter()
        return self._stopped_reason() or self._node.member.picture.cluster_unsafe_reason()

    def _stopped_reason(self) -> str:
        node = self._node
        return f"this member has stopped: {node.ended_because or 'at once'}" if node.ended.is_set() else ""

    async def wait_safe(self, timeout_s: float = 60.0) -> None:
        """Wait until the whole cluster is safe. Raises TimeoutError, which says why it is not."""
        await self._node.control.until(lambda: self.cluster_safe, timeout_s, self.cluster_unsafe_reason)

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

    def evict_without_majority(self, *uuids: str) -> None:
        """Evict these members, which have ended, when the rest is no majority and waits for them.

        Only you can know: were one of them alive and cut off, there would be two clusters, and one would lose what it
        took. Raises Refused for members that are not in the view, or were heard of not long ago.
        """
        self._node.check_here()
        picture = self._node.member.picture
        unknown = set(uuids) - {info.uuid for info in picture.members()}
        if unknown:
            raise Refused(f"no such member in the view: {', '.join(sorted(unknown))}")
        heard = set(uuids) - set(picture.suspects(self._node.now_ns()))
        if heard:
            raise Refused(f"heard of not long ago, so not evicted: {', '.join(sorted(heard))}")
        self._node.driver.evict_without_majority(MemberId(uuid) for uuid in uuids)

    # -- listeners

    def on_migration(self, heard: Callable[[News], None]) -> Callable[[], bool]:
        """Call `heard` with the start, each migration and the end of every rebalance, on any member; in order, each
        once, and as often as it was registered. Answers the function that ends it, which says whether it has.

        An error in `heard` goes to the event loop's exception handler. Raises TypeError when it cannot be called.
        """
        self._node.check_here()
        told = careful(self._node, heard)
        return self._node.on_news(lambda news: told(news) if news.kind is not Kind.LOST else None)

    def on_partition_lost(self, heard: Callable[[Loss], None]) -> Callable[[], bool]:
        """Call `heard` when copies of a partition are gone with their members: how many, and which maps have lost
        entries. The same rules as for `on_migration`.
        """
        self._node.check_here()
        told = careful(self._node, heard)
        return self._node.on_news(lambda news: told(news.loss) if news.loss is not None else None)

    def map(self, name: str) -> Map[Any, Any]:
        """The map of this name; it comes into being with its first entry. For type checkers say what is in it:
        `flights: Map[str, int] = member.map("flights")`. Raises ConfigError for a name that no map can
        have, or that is Holdfast's own.
        """
        if not 1 <= len(name) <= MAP_NAME_MAX or name.startswith(INTERNAL):
            raise ConfigError(
                f"{name!r} is no name for a map: 1 to {MAP_NAME_MAX} characters, and not {INTERNAL!r} first, which is "
                "for Holdfast's own"
            )
        return Map(self._inner, name, self._serializers, self._turns)

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
        return MemberTransaction(self._node, isolation, timeout_s, label, self._serializers)

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
        return ServiceHandle(self._inner, name, self._serializers)


class ServiceHandle:
    """Calls a service: in each call, one share, that of the partition's primary.

    Every call raises `Refused` (or one of its kinds) when it was certainly not applied, and `Unknown` when it
    may have been.
    """

    def __init__(self, node: Node, name: str, serializers: Serializers) -> None:
        self._node = node
        self._serializers = serializers
        self.name = name

    @property
    def partitions(self) -> range:
        """All partitions: there is one share of each."""
        return range(self._node.partition_count)

    def partition_of(self, key: object) -> int:
        """The partition in which an entry with this key would be, of any map. Raises TypeError for what is no key."""
        return partition_of(self._serializers.dump(key), 0, self._node.partition_count)

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
        self._node.check_here()
        told = careful(self._node, heard)
        return self._node.listen(
            part_name(self.name), key=None, local_only=False, heard=lambda event: told(event.value or b"")
        )

    async def _of_share(self, op: Op, partition: int, value: bytes) -> bytes:
        if partition not in self.partitions:
            raise ValueError(f"no partition {partition}: there are 0 to {self._node.partition_count - 1}")
        answer = await ask(self._node, Request(op, self.name, [partition], b"", value))
        if not isinstance(answer, bytes):
            raise TypeError(f"service {self.name!r} answered {type(answer).__name__}, not bytes")
        return answer
