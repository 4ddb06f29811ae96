"""One member in the real world: its engine, its sockets, and its interface for sessions (`server.grid.Grid`)."""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid as uuids
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.actions.operator_action import ActionDone, OperatorAction
from holdfast.config import Settings, is_loopback, missing_for_open_address
from holdfast.core.events import MemoryRoom
from holdfast.core.hosted_services import Service, with_services
from holdfast.core.member import Member
from holdfast.core.membership.identity import Identity
from holdfast.core.model.ids import Address, MemberId
from holdfast.core.model.operations import GROWING, Outcome, Request, Status
from holdfast.core.model.transaction_orders import TransactionAnswer
from holdfast.core.model.views import MemberInfo, Room, built
from holdfast.engine.driver import Driver, DriverForwards
from holdfast.errors import (
    Closing,
    ConfigError,
    InvariantBroken,
    JournalBroken,
    NotReady,
    Refused,
    Unknown,
)
from holdfast.observe.status import Counted, MemberStatus, ProcessStatus, counted, status_of
from holdfast.runtime.control import Control
from holdfast.runtime.data_lane import data_lane
from holdfast.runtime.disk.data_directory import DataDirectory
from holdfast.runtime.doors.clients import Door
from holdfast.runtime.doors.connection_log import FAULTY, ConnectionLog
from holdfast.runtime.doors.polled_door import Sockets
from holdfast.runtime.doors.proving import Proving
from holdfast.runtime.http.http_door import HttpDoor
from holdfast.runtime.logs.audit_log import AuditLog
from holdfast.runtime.member_ports import MemberPorts
from holdfast.runtime.member_watch import MemberWatch
from holdfast.runtime.memory import Gauge, limit_of
from holdfast.runtime.memory_watch import MemoryWatch
from holdfast.runtime.peering.member_network import MemberNetwork
from holdfast.runtime.real_world import RealWorld
from holdfast.server.audit_events import AuditEvent
from holdfast.server.door import DoorMember, DoorOptions
from holdfast.server.member_grid import MemberGrid

log = logging.getLogger("holdfast")

TOO_MUCH = (
    "this member has no room in its memory for a request of {} bytes: send less at a time, remove entries, add a "
    "member, or raise limits.memory_bytes"
)


class Node(MemberGrid):
    """Runs one member. Implements the engine's `World`, and the rest of the sessions' `Grid`."""

    def __init__(self, settings: Settings, services: Sequence[Service] = ()) -> None:
        """Raises ConfigError for ambiguous or impossible services."""
        settings = with_services(settings, services)
        found = limit_of(settings.limits.memory_bytes)
        limits = msgspec.structs.replace(settings.limits, memory_bytes=found.size)
        super().__init__(msgspec.structs.replace(settings, limits=limits), str(uuids.uuid4()))
        self.memory = MemoryWatch(found)
        self.services = tuple(services)
        self.started = False
        self._begun_s = time.monotonic()
        self._starting = False
        self.ended: asyncio.Event = asyncio.Event()
        self.ended_because = ""
        self.broken: BaseException | None = None
        self._asks_as = uuids.uuid4().bytes
        self._asked = 0
        self.calls: set[asyncio.Future[Outcome] | asyncio.Future[TransactionAnswer]] = set()
        self.connection_log = ConnectionLog()
        self._watch = MemberWatch(self.settings, self.connection_log)
        self.control: Control
        self._stopping: asyncio.Task[None] | None = None
        self.driver: Driver
        self.member: Member
        self._files: DataDirectory | None = None
        self._network: MemberNetwork
        self._door: Door
        self._ports: MemberPorts
        self._world: RealWorld
        self.loop: asyncio.AbstractEventLoop
        self._proving: Proving
        self._audit_log: AuditLog | None = None
        self._http = HttpDoor(self)

    # -- start and stop

    async def start(self) -> None:
        if self.started:
            raise Refused("this member was started before; make another one")
        if self._starting:
            raise Refused("this member is being started; wait for that")
        self._starting = True
        try:
            await self._start()
        except BaseException:
            await self._watch.close_traces("it could not start")
            raise
        finally:
            self._starting = False

    async def _start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._proving = Proving(self.loop)
        self._watch.open_traces(self.member_uuid)
        self._open_audit_log()
        ports = self._ports = MemberPorts(self.settings, self.connection_log)
        chosen = self.settings.member
        network = self._network = MemberNetwork(
            self.settings, self.member_uuid, Address(chosen.host, 0), self.connection_log, ports.tls
        )
        self._world = RealWorld(self.loop, network, self, self._watch.note)
        processors = self._world.processors(self.settings)
        await network.listen(await ports.take_member_port(network))
        try:
            await ports.take_client_port(lambda: self._door)
            await self._http.open(ports.tls)
        except ConfigError:
            await ports.close_client_port()
            await network.stop()
            raise
        public = chosen.public_host or chosen.host
        network.address = Address(public, ports.member_port)
        self.client_address = Address(public, ports.client_port)
        identity = self._identity(public, ports.member_port, ports.client_port)
        self.data_lane = data_lane(chosen.lane)
        self.tally = self.data_lane.code.LaneTally()
        self.tally.count_reads_in(self.times.reads)
        self._log_build()
        try:
            self.driver = await self._open(identity)
        except BaseException:
            await ports.close_client_port()
            await self._http.close()
            await network.stop()
            raise
        self.driver.callers.processors = processors
        self._connect()
        self.started = True
        await ports.begin()
        self.driver.start()
        self._begin()

    def _log_build(self) -> None:
        lane, sockets = self.data_lane, self.sockets
        log.info("%s, pid %d", lane.build, os.getpid())
        log.info("the data lane is %s", " because ".join(filter(None, (lane.kind, lane.why))))
        log.info("clients' sockets: %s", " because ".join(filter(None, (sockets.kind, sockets.why))))
        settings = self.settings
        if settings.security.allow_insecure_bind and not is_loopback(settings.member.host):
            lacks = "; ".join(missing_for_open_address(settings)) or "nothing: it can be taken out"
            log.warning("INSECURE (security.allow_insecure_bind), missing: %s", lacks)

    def _connect(self) -> None:
        """No part acts before the ports are open."""
        settings, network, ports = self.settings, self._network, self._ports
        self.member = self.driver.member
        self.lane = self.driver.lane
        self.control = Control(self)
        network.failed = self.failed
        network.on_bytes = self.memory.came
        network.begin(self.driver)
        self._door = Door(
            self,
            settings.limits,
            DoorMember(
                self.driver.enter,
                self.driver.leave_lane,
                self.failed,
                self.memory.came,
                self.member.picture.backlog,
                forwards=DriverForwards(self.driver),
            ),
            self.connection_log,
            DoorOptions(
                request_ids=settings.replication.request_ids,
                client_acks=settings.replication.backup_acks == "client",
                lane_code=self.data_lane.code,
                tally=self.tally,
            ),
        )
        self.memory.connect(self._on_room, self._door.relieve)
        self._door.member_port, network.client_port = ports.member_port, ports.client_port
        self.control.live.limited = (self._door, network)
        ports.serve(self._door, self.data_lane, self.loop)
        self.driver.callers.backpressure_changed = self._door.backlog_changed

    def _begin(self) -> None:
        gauge = self.gauge
        log.info(
            "memory: %d MB may be taken (%s), %d MB are",
            gauge.limit.size // 1_000_000,
            gauge.limit.because,
            gauge.used // 1_000_000,
        )
        self.memory.begin(self.loop, self.data_lane.free_on(self.loop))
        disk = self._files.disk if self._files is not None else None
        self._watch.begin(self.loop, self.member.picture, disk)
        self._http.begin()

    def _open_audit_log(self) -> None:
        """Raises ConfigError when it cannot be written."""
        security = self.settings.security
        if security.audit_file:
            name = self.settings.member.name or self.member_uuid
            self._audit_log = AuditLog(
                Path(security.audit_file), security.audit_bytes, security.audit_files, name
            )

    async def _open(self, identity: Identity) -> Driver:
        settings = self.settings
        if not settings.persistence.directory or settings.member.lite:
            return Driver(Member(identity, settings, self.services, ways=self.data_lane.ways), self._world)
        directory = Path(settings.persistence.directory)
        files = self._files = DataDirectory(
            directory, self.loop, self.guard, compiled=self.data_lane.kind == "compiled"
        )
        driver = files.open(self._world, identity, settings, self.services, self.data_lane.ways, self.failed)
        if not await files.ready(self.ended):
            raise JournalBroken(f"{directory} cannot be written: {self.broken}")
        return driver

    @property
    def refusal(self) -> str:
        """Why no cluster admits this member as it is; empty while one may."""
        here = self._network.denied_everywhere()
        if here and not self.joined:
            return (
                f"security.member_secret is not the one that the members at {here} have. Give this member the same; do "
                "not start it with --bootstrap, which would form a second cluster"
            )
        return self.member.picture.refusal

    @property
    def troubles(self) -> list[str]:
        """Addresses that accept connections but are no members of this cluster, with the reason."""
        return self._network.failure_lines()

    def _identity(self, host: str, member_port: int, client_port: int) -> Identity:
        settings = self.settings
        chosen = settings.member
        name = chosen.name or str(Address(host, client_port))
        kind = settings.partitions.group_by
        # Attributes are sent to others, and filters of Raft zones use them: "zone" is the availability zone.
        places = {"rack": chosen.rack, "zone": chosen.availability_zone}
        group = {"host": host, **places}.get(kind, "")
        if kind in places and not group and not chosen.group and not chosen.lite:
            key = "availability_zone" if kind == "zone" else kind
            raise ConfigError(f"member.{key} must be set, because partitions.group_by is {kind!r}")
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
            attributes={
                **{place: name for place, name in places.items() if name},
                **chosen.attributes,
            },
        )
        return Identity(
            built(info, self._network.speaks.build),
            settings.cluster.name,
            settings.shared(),
            tuple(Address(host, port) for host, port in settings.seed_addresses()),
            settings.cluster.bootstrap,
            str(uuids.uuid4()),
        )

    async def stop(self) -> None:
        """Close all connections at once. To the cluster this is a crash unless the member has left before."""
        self.guard(self.driver.flush)
        self.driver.stopped = True
        self._world.cancel()
        self.memory.stop()
        self._watch.stop()
        self._proving.stop()
        if self.driver.callers.processors is not None:
            self.driver.callers.processors.end()
        await self._ports.close_client_port()
        await self._http.close_port()
        # The last message to clients: where the partitions of this member are now.
        self.notify_watchers()
        await self.control.stop()
        if self.broken is None and self.member.picture.has_left:
            await self._door.close_unused()
        await self._http.close()
        self.ended.set()
        for call in list(self.calls):
            if not call.done():
                call.set_exception(Unknown("this member has stopped before the answer came"))
        await self._network.stop()
        await self._door.close_all()
        self._ports.end()
        if self._files is not None and self.driver.journal is not None:
            # Acknowledged writes are durable; the rest is worth a moment.
            self.driver.journal.close()
        if self._audit_log is not None:
            self._audit_log.close()
        await self._watch.close_traces(self.ended_because or "it was stopped")

    def failed(self, error: BaseException) -> None:
        """After an internal error the member stops rather than guess. To the cluster this is a crash."""
        if self.broken is not None:
            return
        log.critical("this member stops, because of an error inside it: %s", error, exc_info=error)
        self.broken = error
        self.ended_because = f"an error inside it: {type(error).__name__}: {error}"
        self.driver.stopped = True
        self.ended.set()
        self._stopping = self.loop.create_task(self.stop())

    def guard(self, deed: Callable[[], None]) -> None:
        """Let the member act; an error inside it stops it."""
        try:
            deed()
        except Exception as error:  # noqa: BLE001  (whatever it is)
            self.failed(error)

    def new_request_id(self) -> bytes:
        self._asked += 1
        return self._asks_as + self._asked.to_bytes(8, "big")

    def check(self) -> None:
        """Raises NotReady before this member was started, InvariantBroken when an error has stopped it,
        Closing when it has ended otherwise.
        """
        if not self.started:
            raise NotReady("this member is not started yet: await its start(), or use it in an `async with`")
        if self.broken is not None:
            raise InvariantBroken(
                f"this member has stopped, because of {self.ended_because}"
            ) from self.broken
        if self.ended.is_set():
            raise Closing(f"this member has ended: {self.ended_because or 'it was stopped'}")

    def check_here(self) -> None:
        """The same before a request. Raises Refused on another event loop as well."""
        self.check()
        if asyncio.get_running_loop() is not self.loop:
            raise Refused(
                "this member runs on another event loop: call it there "
                "(asyncio.run_coroutine_threadsafe), or use holdfast.aio.BlockingClient in other threads"
            )

    def leave(self) -> None:
        """Drain: `ended` is set when every partition is safe elsewhere."""
        self.control.drain()

    # -- the engine's world

    def tick(self) -> None:
        self.guard(self.driver.tick)

    def stopped(self, why: str) -> None:
        self.ended_because = why
        self.ended.set()

    def _on_room(self, room: Room) -> None:
        self.guard(lambda: self.driver.handle(MemoryRoom(room)))

    @property
    def door(self) -> Door:
        return self._door

    @property
    def gauge(self) -> Gauge:
        return self.memory.gauge

    @property
    def sockets(self) -> Sockets:
        return self._ports.sockets

    # -- the interface for sessions, in addition to `MemberGrid`

    @property
    def clients_loop(self) -> asyncio.AbstractEventLoop:
        return self.loop

    now_ns = staticmethod(time.monotonic_ns)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def rejection(self, request: Request, size: int = 0) -> Outcome | None:
        rejection = self.member.picture.rejection_here(request)
        if rejection is None and request.op in GROWING and not self.memory.fits(size):
            return Outcome(Status.NO_MEMORY, None, TOO_MUCH.format(size))
        return rejection

    def act(self, action: OperatorAction, timeout_ms: int, done: ActionDone) -> None:
        self.control.take(action, timeout_ms, self._watch.action(action, done))

    def faulty(self, kind: str, error: Exception) -> None:
        self.connection_log.report(
            f"{FAULTY}: {kind}",
            f"an error inside this member, {kind} got no response; the member continues: %s",
            error,
            level=logging.ERROR,
            error=error,
        )

    def report_client_event(self, kind: str, line: str, *said: object) -> None:
        self.connection_log.report(kind, line, *said)

    @property
    def prover(self) -> Proving:
        return self._proving

    def audit(self, event: AuditEvent) -> None:
        self._watch.audited(event)
        if self._audit_log is not None:
            self._audit_log.write(event)

    def files(self) -> dict[str, object] | None:
        return self._files.figures() if self._files is not None else None

    @property
    def stall_s(self) -> float:
        return self._watch.stall_s

    @property
    def connections(self) -> dict[str, int]:
        return {"clients": len(self._door.connections), "http": self._http.connections}

    def reads_by_map(self) -> Mapping[str, int]:
        self.tally.report_reads()
        return super().reads_by_map()

    def _operations(self) -> dict[str, int]:
        counted = Counter({name: kept.count for name, kept in self.times.latencies().items()})
        counted.update({name: sum(counts) for name, counts, _ in self.tally.figures()})
        return dict(counted)

    def status(self, count: Counted | None = None) -> MemberStatus:
        process = ProcessStatus(
            uptime_s=round(time.monotonic() - self._begun_s, 3),
            files=self._files.status() if self._files is not None else None,
            memory=self.gauge.status(),
            operations=self._operations(),
            settings_changed=dict(self.control.live.changed),
            rejections=dict(sorted(self.connection_log.counts.items())),
            lane=self.data_lane.kind,
            lane_reason=self.data_lane.why,
            sockets=self.sockets.kind,
            sockets_reason=self.sockets.why,
            member_secret=self._network.secret_status(),
            protocol=self._network.protocol_status(),
            tls=self._ports.tls.status() if self._ports.tls is not None else None,
            stalls=self._watch.stalls(),
            slow_operations=self._watch.slow_operations(),
            http=str(self._http.address or ""),
        )
        self.driver.enter()
        return status_of(self.member, count or counted(self.member), process)

    @property
    def joined(self) -> bool:
        member = self.member
        return member.picture.admitted and member.picture.assigned

    @property
    def waits_for_others(self) -> bool:
        """Whether this member is in the cluster, and too few data members are for the first assignment."""
        picture = self.member.picture
        few = len(picture.data_members()) < self.settings.cluster.initial_members
        return picture.admitted and not self.member.picture.assigned and few
