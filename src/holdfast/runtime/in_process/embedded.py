"""The in-process API: a member of the cluster inside your own asyncio program.

async with holdfast.Member(seeds=["127.0.0.1:5751"]) as member:
    flights = member.map("flights")
    await flights.put("UA1545", {"origin": "EWR"})
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import random
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec

from holdfast.actions.demote import Demote
from holdfast.actions.drain import Drain
from holdfast.actions.evict import Evict
from holdfast.actions.promote import Promote
from holdfast.actions.set_state import SetState
from holdfast.actions.shut_down import ShutDown
from holdfast.client_core.transaction_retries import Answer, transact
from holdfast.config import INTERNAL, Settings
from holdfast.config.addresses import format_address
from holdfast.core.events import ActionRequested
from holdfast.core.hosted_services import Service
from holdfast.core.model.keys import partition_of
from holdfast.core.model.member_status import MemberStatus
from holdfast.core.model.object_names import part_name
from holdfast.core.model.operations import MAP_NAME_MAX, Op, Request
from holdfast.core.model.partition_events import Kind, Loss, News
from holdfast.core.model.views import ClusterState
from holdfast.errors import Closing, ConfigError, Refused
from holdfast.runtime.in_process.bulk_turns import BulkTurns
from holdfast.runtime.in_process.embedded_maps import Map
from holdfast.runtime.in_process.embedded_transactions import Isolation, MemberTransaction
from holdfast.runtime.in_process.member_keywords import MemberKeywords, settings_of
from holdfast.runtime.in_process.member_requests import ask, careful
from holdfast.runtime.node import Node
from holdfast.serialization import Serializers

log = logging.getLogger("holdfast")

QUIET_S = 3.0
"""A member that has found no cluster for this long logs a warning once; joining a running one takes less."""


class Member:
    """A member in this process. Leaving the `async with` block drains it: it ends when its data is safe elsewhere.

    Settings come, in rising priority, from the environment (`HOLDFAST_…`), from `settings` by dotted names
    (`{"maps.flights.backups": 2}`), and from the keywords: the settings of the sections `cluster` and `member`
    (`seeds`, `name`, `host`, `member_port`, …; `cluster_name` is `cluster.name`). Loaded settings
    (`holdfast.config.load`) are used alone. `serializers` convert keys and values. `services` are hosted in every
    partition beside the maps (docs/services.md); each member needs instances with the same names and backups. Raises
    ConfigError.
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
            # Open no port that the program has not asked for.
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
        """Open the ports and join the cluster; returns when this member can serve or waits for other members.

        Requests wait until partitions are assigned (`cluster.initial_members`), and raise NoDataMember while all
        members are lite. A member is started once; other calls before raise NotReady.

        Raises Refused if the cluster rejects this member, ConfigError if a port is in use, TimeoutError if no cluster
        is found within `cluster.join_timeout_ms` (0: no limit).
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
                # An admitted member waits for others without limit.
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
        seeds = ", ".join(self.settings.cluster.seeds) or "none"
        return f"cluster.seeds: {seeds}" + "".join(f"; {each}" for each in self._node.troubles)

    async def leave(self) -> None:
        """Drain and stop. After `partitions.drain_timeout_s` the member stops anyway, and TimeoutError is raised.
        Raises InvariantBroken if an error inside the member has stopped it before.
        """
        if self._crashed or not self._inner.started:
            return
        try:
            await self._node.control.run(Drain(), self.settings.partitions.drain_timeout_s)
        finally:
            await self._node.stop()

    async def crash(self) -> None:
        """Stop at once, like a crash of the process, to test the cluster's reaction."""
        self._crashed = True
        if self._inner.started:
            await self._inner.stop()

    async def wait_ended(self) -> str:
        """Wait until this member has ended, and return the reason: it left, the cluster was shut down, or an error.

        A program that only runs a member waits here; an operator may let the member leave.
        """
        await self._node.ended.wait()
        return self._node.ended_because or "it was stopped"

    @property
    def uuid(self) -> str:
        return self._inner.member_uuid

    @property
    def client_address(self) -> str:
        return str(self._node.client_address)

    @property
    def member_address(self) -> str:
        """HOST:PORT for other members, usable as a seed."""
        info = self._node.member.picture.info
        return format_address(info.host, info.port)

    def status(self) -> MemberStatus:
        """State of this member and its view of the cluster; the data of `holdfast status --json`.

        Raises InvariantBroken if an error inside the member has stopped it.
        """
        if self._node.broken is not None:
            self._node.check()
        return self._node.status()

    # -- is it safe?

    @property
    def safe(self) -> bool:
        """Whether, as far as this member knows, a crash would lose no data: every partition has all its copies, and
        none is moving. Cheap.
        """
        return not self.unsafe_reason()

    def unsafe_reason(self) -> str:
        self._node.driver.enter()
        return self._stopped_reason() or self._node.member.picture.unsafe_reason()

    @property
    def cluster_safe(self) -> bool:
        """Whether every member reports `safe`. Reports of others are at most three times `cluster.heartbeat_ms` old."""
        return not self.cluster_unsafe_reason()

    def cluster_unsafe_reason(self) -> str:
        self._node.driver.enter()
        return self._stopped_reason() or self._node.member.picture.cluster_unsafe_reason()

    def _stopped_reason(self) -> str:
        node = self._node
        return f"this member has stopped: {node.ended_because or 'at once'}" if node.ended.is_set() else ""

    async def wait_safe(self, timeout_s: float = 60.0) -> None:
        """Wait until the cluster is safe. Raises TimeoutError with the reason why it is not."""
        await self._node.control.until(lambda: self.cluster_safe, timeout_s, self.cluster_unsafe_reason)

    # -- control

    @property
    def cluster_state(self) -> ClusterState:
        return self._node.member.picture.cluster_state

    async def change_cluster_state(self, state: ClusterState | str, timeout_s: float = 60.0) -> None:
        """Set the state of the cluster; returns when every member has acknowledged it.

        Raises Refused if the command is rejected: this member is in no cluster, or the cluster is being shut down.
        Raises TimeoutError if it was accepted but not finished; it takes effect as soon as a majority can agree.
        """
        await self._node.control.run(SetState(ClusterState(state)), timeout_s)

    async def shut_down_cluster(self, timeout_s: float = 60.0) -> None:
        """Make the cluster passive and let all members leave; returns when this one has. Data in memory is gone then.

        Raises TimeoutError if it was accepted but not finished.
        """
        await self._node.control.run(ShutDown(), timeout_s)

    @property
    def lite(self) -> bool:
        return self._node.member.picture.info.lite

    async def promote(self, timeout_s: float = 60.0) -> None:
        """Make this lite member a data member. Raises TimeoutError if it was accepted but not finished."""
        await self._node.control.run(Promote(), timeout_s)

    async def demote(self, timeout_s: float = 600.0) -> None:
        """Make this a lite member when its partitions are safe elsewhere.

        Raises Refused for the last data member, and TimeoutError, after which it stays a data member.
        """
        await self._node.control.run(Demote(), timeout_s)

    def evict_without_majority(self, *uuids: str) -> None:
        """Evict ended members when the rest is no majority and waits for them.

        Only you can know that they have ended. If one is alive and merely cut off, two clusters result, and one of them
        will lose its writes. Raises Refused for members that are not in the view, or were heard recently.
        """
        self._node.check_here()
        picture = self._node.member.picture
        unknown = set(uuids) - {info.uuid for info in picture.members()}
        if unknown:
            raise Refused(f"no such member in the view: {', '.join(sorted(unknown))}")
        heard = set(uuids) - set(picture.suspects(self._node.now_ns()))
        if heard:
            raise Refused(f"responded recently, so not evicted: {', '.join(sorted(heard))}")
        self._node.driver.handle(ActionRequested(Evict(list(uuids), without_majority=True)))

    # -- listeners

    def on_migration(self, heard: Callable[[News], None]) -> Callable[[], bool]:
        """Call `heard` with the start, each migration and the end of every rebalance in the cluster, in order and
        once per registration. Returns the function that unsubscribes, which returns whether it did.

        An error in `heard` goes to the event loop's exception handler. Raises TypeError if it is not callable.
        """
        self._node.check_here()
        told = careful(self._node, heard)
        return self._node.on_news(lambda news: told(news) if news.kind is not Kind.LOST else None)

    def on_partition_lost(self, heard: Callable[[Loss], None]) -> Callable[[], bool]:
        """Call `heard` when copies of a partition are lost with their members, with the maps that lost entries.
        Otherwise like `on_migration`.
        """
        self._node.check_here()
        told = careful(self._node, heard)
        return self._node.on_news(lambda news: told(news.loss) if news.loss is not None else None)

    def map(self, name: str) -> Map[Any, Any]:
        """The map of this name; its first entry creates it. Annotate it for type checkers:
        `flights: Map[str, int] = member.map("flights")`. Raises ConfigError for an invalid or reserved name.
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
        """An atomic transaction over maps with `transactional = true`, for `async with`.

        `isolation`: "read-committed" locks what is written and reads committed values; "repeatable-read" also locks
        what is read; "serializable" locks nothing, and rolls back if an entry that was read has changed by the
        commit. `timeout_s`: rolled back after this time; 0: `transactions.timeout_ms`. `label`: shown to operators.
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
        """Run `work` in a transaction and return its result; repeat it after a rollback, up to `attempts` times. `work`
        must have no other effects that may not be repeated. Raises RolledBack after the last attempt, Unknown at once.
        """
        return await transact(
            lambda: self.transaction(isolation, timeout_s=timeout_s, label=label),
            work,
            attempts,
            asyncio.sleep,
            random,
        )

    def service(self, name: str) -> ServiceHandle:
        """Raises KeyError if there is no service of this name."""
        names = [service.name for service in self._inner.services]
        if name not in names:
            raise KeyError(f"no service {name!r} here; there are: {', '.join(names) or 'none'}")
        return ServiceHandle(self._inner, name, self._serializers)


class ServiceHandle:
    """Calls a service: each call goes to one share, on the primary of its partition.

    Calls raise `Refused` or a subclass if they were certainly not applied, and `Unknown` if they may have been.
    """

    def __init__(self, node: Node, name: str, serializers: Serializers) -> None:
        self._node = node
        self._serializers = serializers
        self.name = name

    @property
    def partitions(self) -> range:
        return range(self._node.partition_count)

    def partition_of(self, key: object) -> int:
        """The partition of this key in any map. Raises TypeError for an invalid key."""
        return partition_of(self._serializers.dump(key), 0, self._node.partition_count)

    async def call(self, key: object, update: bytes) -> bytes:
        """Apply an update to the share of this key's partition; returns its result.

        Returns when every backup, and the destination of a running migration, has applied it too.
        """
        return await self.call_partition(self.partition_of(key), update)

    async def call_partition(self, partition: int, update: bytes) -> bytes:
        """Like `call`, by partition. Raises ValueError if there is no such partition."""
        return await self._of_share(Op.CALL, partition, update)

    async def ask(self, key: object, question: bytes) -> bytes:
        """Ask the share of this key's partition a question, which changes nothing."""
        return await self.ask_partition(self.partition_of(key), question)

    async def ask_partition(self, partition: int, question: bytes) -> bytes:
        """Like `ask`, by partition. Raises ValueError if there is no such partition."""
        return await self._of_share(Op.ASK, partition, question)

    def listen(self, heard: Callable[[bytes], None]) -> Callable[[], None]:
        """Call `heard` with each update that any share in the cluster applies; returns the function that unsubscribes.

        With `decide`, it is the update that this has made of the caller's. The primary notifies after applying it,
        for each partition in order.
        """
        self._node.check_here()
        told = careful(self._node, heard)
        return self._node.listen(
            part_name(self.name), key=None, local_only=False, on_event=lambda event: told(event.value or b"")
        )

    async def _of_share(self, op: Op, partition: int, value: bytes) -> bytes:
        if partition not in self.partitions:
            raise ValueError(f"no partition {partition}: there are 0 to {self._node.partition_count - 1}")
        answer = await ask(self._node, Request(op, self.name, [partition], b"", value))
        if not isinstance(answer, bytes):
            raise TypeError(f"service {self.name!r} answered {type(answer).__name__}, not bytes")
        return answer
