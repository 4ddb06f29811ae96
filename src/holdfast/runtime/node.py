"""One member in the real world: its engine, its sockets, and what its sessions see of it (`server.grid.Grid`)."""

from __future__ import annotations

import asyncio
import hmac
import logging
import random
import time
import uuid as uuids
from collections.abc import Callable

from holdfast.config import Settings
from holdfast.core.cluster.membership import Identity
from holdfast.core.machine import Address, MemberId, Note
from holdfast.core.member import Member
from holdfast.core.messages import MemberInfo
from holdfast.core.rules import Rules
from holdfast.core.store.operations import Done, EntryEvent, Request
from holdfast.core.store.partition import PartitionCopy
from holdfast.engine.driver import Driver
from holdfast.errors import ConfigError
from holdfast.observe.status import status_of
from holdfast.runtime.clients import Connection, Door
from holdfast.runtime.peers import Incoming, Network
from holdfast.server.grid import ClusterCard, MemberCard

log = logging.getLogger("holdfast")

PORTS_TRIED = 100


async def _listen(
    make: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, given: bool, key: str
) -> tuple[asyncio.Server, int]:
    """Listen at the port, or, if it was not set by anyone and is taken, at the next free one."""
    loop = asyncio.get_running_loop()
    for candidate in range(port, port + (1 if given or port == 0 else PORTS_TRIED)):
        try:
            server = await loop.create_server(make, host, candidate, backlog=1024)
        except OSError as error:
            if given or port == 0:
                raise ConfigError(
                    f"{key} = {candidate}: cannot listen on {host}:{candidate}: {error}"
                ) from None
            continue
        return server, int(server.sockets[0].getsockname()[1])
    raise ConfigError(f"{key}: none of the ports {port} to {port + PORTS_TRIED - 1} is free on {host}")


class Node:
    """Runs one member. Implements the engine's `World` and the sessions' `Grid`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.member_uuid = str(uuids.uuid4())
        self.cluster_name = settings.cluster.name
        self.partition_count = settings.partitions.count
        self.ended: asyncio.Event = asyncio.Event()
        self.ended_because = ""
        self.driver: Driver
        self.member: Member
        self._network: Network
        self._door: Door
        self._client_server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ns = 0
        self._loop: asyncio.AbstractEventLoop

    # -- start and stop

    async def start(self) -> None:
        """Open both doors and look for the cluster. Raises ConfigError when a port is taken."""
        self._loop = asyncio.get_running_loop()
        settings = self.settings
        chosen = settings.member
        network = self._network = Network(settings, self.member_uuid, Address(chosen.host, 0))
        member_server, member_port = await _listen(
            lambda: Incoming(network),
            chosen.host,
            chosen.member_port,
            given=settings.is_given("member.member_port"),
            key="member.member_port",
        )
        await network.listen(member_server)
        try:
            self._client_server, client_port = await _listen(
                lambda: Connection(self._door),
                chosen.host,
                chosen.client_port,
                given=settings.is_given("member.client_port"),
                key="member.client_port",
            )
        except ConfigError:
            await network.stop()
            raise
        public = chosen.public_host or chosen.host
        network.address = Address(public, member_port)
        self.client_address = Address(public, client_port)
        self.member = Member(self._identity(public, member_port, client_port), settings, Rules())
        self.lane = self.member.lane
        self.driver = network.driver = Driver(self.member, self)
        network.own_life = lambda: self.member.membership.info.life
        self._door = Door(self, settings.limits, self.driver.enter, self.driver.leave_lane)
        self.driver.start()

    def _identity(self, host: str, member_port: int, client_port: int) -> Identity:
        settings = self.settings
        chosen = settings.member
        name = chosen.name or f"{host}:{client_port}"
        kind = settings.partitions.group_by
        group = {"member": "", "host": host, "rack": chosen.rack, "zone": chosen.zone}[kind]
        if kind != "member" and not group and not chosen.group and not chosen.lite:
            raise ConfigError(f"member.{kind} must be set, because partitions.group_by is {kind!r}")
        info = MemberInfo(
            MemberId(self.member_uuid),
            1,
            host,
            member_port,
            host,
            client_port,
            name,
            chosen.lite,
            chosen.group or group,
        )
        return Identity(
            info,
            settings.cluster.name,
            settings.shared(),
            tuple(Address(host, port) for host, port in settings.seed_addresses()),
            settings.cluster.bootstrap,
            str(uuids.uuid4()),
        )

    async def stop(self) -> None:
        """Close every door, at once: to the cluster this is a crash unless the member has left before."""
        self.driver.stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._client_server is not None:
            self._client_server.close()
        self._door.close_all()
        await self._network.stop()

    def leave(self) -> None:
        """Drain: `ended` is set when every partition is safe elsewhere."""
        self.driver.leave()

    # -- the engine's doors

    now_ns = staticmethod(time.monotonic_ns)

    def jitter(self, limit_ns: int) -> int:
        return random.randint(0, limit_ns)  # noqa: S311  (spreads retries; no secret)

    def open(self, member: MemberId, life: int, address: Address) -> None:
        self._network.open(member, life, address)

    def close(self, member: MemberId) -> None:
        self._network.close(member)

    def carry(self, member: MemberId, packet: bytes) -> None:
        self._network.carry(member, packet)

    def whisper(self, address: Address, data: bytes) -> None:
        self._network.whisper(address, data)

    def shuffle(self, effects: list[object]) -> None:
        """The real world leaves them as they are."""

    def note(self, note: Note) -> None:
        fields = " ".join(f"{key}={value}" for key, value in note.fields.items())
        log.log(logging.getLevelNamesMapping()[note.level.upper()], "%s %s", note.kind, fields)

    def stopped(self, why: str) -> None:
        self.ended_because = why
        self.ended.set()

    def soon(self, deed: Callable[[], None]) -> None:
        self._loop.call_soon(deed)

    def wake_at(self, deadline_ns: int) -> None:
        if self._timer is not None:
            if self._timer_at_ns <= deadline_ns:
                return
            self._timer.cancel()
        self._timer_at_ns = deadline_ns
        self._timer = self._loop.call_later(max(0, deadline_ns - time.monotonic_ns()) / 1e9, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.driver.tick()

    # -- what sessions see

    @property
    def cluster_id(self) -> str:
        """The cluster's UUID; empty before this member is in one."""
        view = self.member.membership.view
        return view.cluster_id if view else ""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def execute(self, request: Request, done: Done) -> None:
        self.driver.execute(request, done)

    def cluster(self) -> ClusterCard:
        membership = self.member.membership
        view = membership.view
        cards = [
            MemberCard(
                info.uuid, info.client_host, info.client_port, info.port, info.lite, {"name": info.name}
            )
            for info in membership.members()
        ]
        living = {card.uuid for card in cards}
        owners: dict[str, list[int]] = {}
        for partition, row in enumerate(self.member.table.rows):
            if row.owner is None or row.owner not in living:
                owners = {}
                break
            owners.setdefault(row.owner, []).append(partition)
        return ClusterCard(view.number if view else 0, cards, self.member.table.version, owners)

    def rows(self) -> list[list[str | None]]:
        return [list(row.replicas) for row in self.member.table.rows]

    def table_version(self) -> int:
        return self.member.table.version

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        return self.member.watch(changed)

    def listen(
        self, name: str, *, key: bytes | None, local_only: bool, heard: Callable[[EntryEvent], None]
    ) -> Callable[[], None]:
        return self.member.listeners.add(name, key, heard, local_only=local_only)

    def admit(self, username: str | None, password: str | None, token: bytes | None) -> bool:
        security = self.settings.security
        if not security.clients_authenticate:
            return True
        if security.token and token is not None and hmac.compare_digest(security.token.encode(), token):
            return True
        if not security.username or username is None or password is None:
            return False
        same_name = hmac.compare_digest(security.username.encode(), username.encode())
        return hmac.compare_digest(security.password.encode(), password.encode()) and same_name

    def map_names(self) -> list[str]:
        names = {
            name
            for copy in self.member.copies.held.values()
            for name, held in copy.maps.items()
            if held.entries
        }
        return sorted(names | {name for name in self.settings.maps if name != "default"})

    def local_copy(self, partition: int) -> PartitionCopy | None:
        return self.member.copies.held.get(partition)

    def status(self) -> dict[str, object]:
        return status_of(self.member)

    @property
    def joined(self) -> bool:
        """Whether this member is in the cluster and knows the newest table."""
        member = self.member
        return member.membership.state == "member" and member.table.assigned
