"""One member in the real world: its engine, its sockets, and what its sessions see of it (`server.grid.Grid`)."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import ssl
import time
import uuid as uuids
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import msgspec

from holdfast.config import Settings, is_loopback, missing_for_open_address
from holdfast.core import effects, events
from holdfast.core.hosted_services import Service, with_services
from holdfast.core.member import Member
from holdfast.core.membership.identity import Identity
from holdfast.core.model.ids import Address, MemberId
from holdfast.core.model.operations import GROWING, Outcome, Request, Status
from holdfast.core.model.transaction_orders import TransactionAnswer
from holdfast.core.model.views import MemberInfo, Room, built
from holdfast.engine.driver import Driver
from holdfast.engine.journal import Journal
from holdfast.engine.member_files import driver_with_files
from holdfast.errors import (
    Closing,
    ConfigError,
    InvariantBroken,
    JournalBroken,
    NotInstalled,
    NotReady,
    Refused,
    Unknown,
)
from holdfast.observe.status import EntriesHeld, status_of
from holdfast.runtime.control import Control
from holdfast.runtime.data_lane import data_lane
from holdfast.runtime.disk.real_disk import RealDisk, uncollected
from holdfast.runtime.doors.clients import Connection, Door
from holdfast.runtime.doors.proving import Proving
from holdfast.runtime.doors.sockets import PolledDoor, sockets_way
from holdfast.runtime.doors.strangers import FAULTY, Strangers
from holdfast.runtime.doors.taken_ports import begin, listen, loop_server, polled_door, secured
from holdfast.runtime.doors.tls import MemberTls
from holdfast.runtime.http.http_door import HttpDoor
from holdfast.runtime.logs.audit_log import AuditLog
from holdfast.runtime.member_watch import MemberWatch
from holdfast.runtime.memory import Gauge, limit_of
from holdfast.runtime.peering.peers import GREETING_TIMEOUT_S, Incoming, Network
from holdfast.server.audit_events import AuditEvent
from holdfast.server.member_grid import MemberGrid
from holdfast.wire import doors, own

log = logging.getLogger("holdfast")

MEASURE_S = 0.1
"""How often memory is measured at least."""
MEASURE_PART, MEASURE_BYTES_MIN = 256, 262_144
"""And each time that so small a part of it has come, if it is not less than this. Stored, a small entry takes several
times what its message took: with its share of the backlog, and of the last updates."""
HELD_PART = 32
"""Where there is no room in memory, messages that have not come whole may have this part of it."""
TOO_MUCH = (
    "this member has no room in its memory for a request of {} bytes: send less at a time, remove entries, add a "
    "member, or raise limits.memory_bytes"
)


class Node(MemberGrid):
    """Runs one member. Implements the engine's `World`, and the rest of the sessions' `Grid`."""

    def __init__(self, settings: Settings, services: Sequence[Service] = ()) -> None:
        """Raises ConfigError when the services cannot be told apart, or want what cannot be."""
        settings = with_services(settings, services)
        found = limit_of(settings.limits.memory_bytes)
        limits = msgspec.structs.replace(settings.limits, memory_bytes=found.size)
        super().__init__(msgspec.structs.replace(settings, limits=limits), str(uuids.uuid4()))
        self.gauge = Gauge(found)
        self._unmeasured = 0
        """Bytes that have come since memory was measured."""
        self._measure_after = max(MEASURE_BYTES_MIN, found.size // MEASURE_PART)
        self._room = Room.PLENTY
        self.services = tuple(services)
        self.started = False
        """Whether it was started, however long ago: it is started once."""
        self._begun_s = time.monotonic()
        self._starting = False
        self.ended: asyncio.Event = asyncio.Event()
        self.ended_because = ""
        self.broken: BaseException | None = None
        """The error inside the member that has stopped it, if any."""
        self._asks_as = uuids.uuid4().bytes
        self._asked = 0
        self.calls: set[asyncio.Future[Outcome] | asyncio.Future[TransactionAnswer]] = set()
        """Requests of the in-process API that wait for their answer."""
        self.strangers = Strangers()
        self._watch = MemberWatch(self.settings, self.strangers)
        self.control: Control
        self._stopping: asyncio.Task[None] | None = None
        self.driver: Driver
        self.member: Member
        self._disk: RealDisk | None = None
        self._journal: Journal | None = None
        self._network: Network
        self._door: Door
        self._client_server: asyncio.Server | PolledDoor | None = None
        self._tls: MemberTls | None = None
        self._looking_at_files: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ns = 0
        self.loop: asyncio.AbstractEventLoop
        self._measuring: asyncio.TimerHandle | None = None
        self._free_no_more: Callable[[], None] | None = None
        self._proving: Proving
        self._audit_log: AuditLog | None = None
        self._http = HttpDoor(self)

    # -- start and stop

    async def start(self) -> None:
        """Open both doors and look for the cluster. Raises ConfigError (a port is taken), Refused the second time."""
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
        settings = self.settings
        chosen = settings.member
        self._proving = Proving(self.loop)
        self._watch.open_traces(self.member_uuid)
        self._open_audit_log()
        self.sockets = sockets_way(chosen.sockets, chosen.lane, tls=settings.tls.enabled)
        self._tls = MemberTls(settings.tls) if settings.tls.enabled else None
        network = self._network = Network(
            settings, self.member_uuid, Address(chosen.host, 0), self.strangers, self._tls
        )
        member_server, member_port = await self._open_member_door()
        await network.listen(member_server)
        try:
            server, client_port = await self._open_client_door()
        except ConfigError:
            await network.stop()
            raise
        self._client_server = server
        try:
            await self._http.open(self._tls)
        except ConfigError:
            server.close()
            await network.stop()
            raise
        public = chosen.public_host or chosen.host
        network.address = Address(public, member_port)
        self.client_address = Address(public, client_port)
        identity = self._identity(public, member_port, client_port)
        self.data_lane = data_lane(chosen.lane)
        self.tally = self.data_lane.tally()
        self.tally.count_reads_in(self.times.reads)
        log.info("%s, pid %d", self.data_lane.build, os.getpid())
        log.info(
            "the data lane is %s", " because ".join(filter(None, (self.data_lane.kind, self.data_lane.why)))
        )
        log.info(
            "clients' sockets: %s", " because ".join(filter(None, (self.sockets.kind, self.sockets.why)))
        )
        if settings.security.allow_insecure_bind and not is_loopback(chosen.host):
            lacks = "; ".join(missing_for_open_address(settings)) or "nothing: it can be taken out"
            log.warning("INSECURE (security.allow_insecure_bind), missing: %s", lacks)
        try:
            self.driver = await self._open(identity)
        except BaseException:
            server.close()
            self._http.close()
            await network.stop()
            raise
        self.member = self.driver.member
        self.lane = self.driver.lane
        self.control = Control(self)
        network.failed = self.failed
        network.came = self.came
        network.begin(self.driver)
        self._door = Door(
            self,
            settings.limits,
            self.driver.enter,
            self.driver.leave_lane,
            self.failed,
            backlog=self.member.picture.backlog,
            request_ids=settings.replication.request_ids,
            client_acks=settings.replication.backup_acks == "client",
            strangers=self.strangers,
            came=self.came,
            serve=self.data_lane.serve,
            tally=self.tally,
        )
        self._door.member_port, network.client_port = member_port, client_port
        self.control.live.limited = (self._door, network)
        if isinstance(server, PolledDoor):
            assert self.sockets.module is not None, "there is a poll"
            server.serve(self._door, self.sockets.module, self.data_lane.serve)
        if self._tls is not None:
            log.info("TLS %s and newer at both doors", settings.tls.minimum_version)
            self._look_at_tls_later(self._tls)
        self.driver.callers.backpressure_changed = self._door.backlog_changed
        self.started = True
        await begin(member_server, "member.member_port")
        await begin(server, "member.client_port")
        self.driver.start()
        log.info(
            "memory: %d MB may be taken (%s), %d MB are",
            self.gauge.limit.size // 1_000_000,
            self.gauge.limit.because,
            self.gauge.used // 1_000_000,
        )
        self._free_no_more = self.data_lane.free_on(self.loop)
        self._measure_again()
        self._watch.begin(self.loop, self.member.picture, self._disk)
        self._http.begin()

    async def _open_member_door(self) -> tuple[asyncio.Server, int]:
        """Take the port for members, and tell which it is. Raises ConfigError."""
        chosen, network, tls = self.settings.member, self._network, self._tls
        make: Callable[[], asyncio.BaseProtocol] = lambda: Incoming(network)  # noqa: E731
        if tls is not None:
            make = self._secured(
                make, lambda: tls.contexts.members, doors.MEMBERS_PORT, round(GREETING_TIMEOUT_S * 1000)
            )
        return await listen(
            partial(loop_server, make),
            chosen.host,
            chosen.member_port,
            given=self.settings.is_given("member.member_port"),
            key="member.member_port",
        )

    def _open_audit_log(self) -> None:
        """Raises ConfigError when it cannot be written."""
        security = self.settings.security
        if security.audit_file:
            name = self.settings.member.name or self.member_uuid
            self._audit_log = AuditLog(
                Path(security.audit_file), security.audit_bytes, security.audit_files, name
            )

    async def _open_client_door(self) -> tuple[asyncio.Server | PolledDoor, int]:
        """Take the port for clients, and tell which it is. Raises ConfigError."""
        chosen, tls = self.settings.member, self._tls
        given, key = self.settings.is_given("member.client_port"), "member.client_port"
        if self.sockets.kind == "poll":
            return await listen(polled_door, chosen.host, chosen.client_port, given=given, key=key)
        make: Callable[[], asyncio.BaseProtocol] = lambda: Connection(self._door)  # noqa: E731
        if tls is not None:
            timeout_ms = self.settings.limits.auth_timeout_ms
            make = self._secured(make, lambda: tls.contexts.clients, doors.CLIENTS_PORT, timeout_ms)
        return await listen(partial(loop_server, make), chosen.host, chosen.client_port, given=given, key=key)

    def _secured(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        context: Callable[[], ssl.SSLContext],
        name: str,
        timeout_ms: int,
    ) -> Callable[[], asyncio.BaseProtocol]:
        """The same connections, behind TLS."""
        handshakes = self.settings.limits.unauthenticated_connections
        return secured(make, context, self.strangers, name=name, handshakes=handshakes, timeout_ms=timeout_ms)

    def _look_at_tls_later(self, tls: MemberTls) -> None:
        def look() -> None:
            tls.look()
            self._look_at_tls_later(tls)

        self._looking_at_files = self.loop.call_later(self.settings.tls.reload_s, look)

    async def _open(self, identity: Identity) -> Driver:
        """The member, with what its files hold; returns when it may act."""
        settings = self.settings
        if not settings.persistence.directory or settings.member.lite:
            return Driver(Member(identity, settings, self.services, ways=self.data_lane.ways), self)
        directory = Path(settings.persistence.directory)
        if find_spec("pyarrow") is None:
            # Now, and not at the first checkpoint: by then clients rely on the files.
            raise NotInstalled.of(
                f"persistence.directory is {str(directory)!r}: checkpoints are Parquet files",
                "pyarrow",
                "arrow",
            )
        self._disk = RealDisk(directory, self.loop, self.guard)
        began = time.monotonic()
        log.info("opening %s", directory)
        try:
            with uncollected():
                driver, self._journal, recovered = driver_with_files(
                    self._disk,
                    self,
                    identity,
                    settings,
                    self.services,
                    name=settings.member.name,
                    new_id=lambda: str(uuids.uuid4()),
                    failed=self.failed,
                    ways=self.data_lane.ways,
                )
        except BaseException:
            self._disk.close()
            raise
        if not recovered.whole:
            log.error("%s has lost something that was durable; the other members make up for it", directory)
        for what in recovered.damage:
            log.warning("in %s: %s", directory, what)
        for partition, why in sorted(recovered.uncertain.items()):
            log.error("partition %d: it may be that not all of it is here: %s", partition, why)
        entries = sum(copy.entry_count() for copy in recovered.copies.values())
        log.info(
            "files opened: %d entries of %d partitions, in %.1f s (start %d from this directory)",
            entries,
            len(recovered.copies),
            time.monotonic() - began,
            recovered.incarnation,
        )
        ready = asyncio.Event()
        self._journal.when_ready(ready.set)
        broken = asyncio.create_task(self.ended.wait())
        waits = {asyncio.create_task(ready.wait()), broken}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if not ready.is_set():
            raise JournalBroken(f"{directory} cannot be written: {self.broken}")
        return driver

    @property
    def refusal(self) -> str:
        """Why no cluster will take this member as it is, in words; empty while one may."""
        here = self._network.denied_everywhere()
        if here and not self.joined:
            return (
                f"security.member_secret is not the one that the members at {here} have. Give this member the same; do "
                "not start it with --bootstrap, which would form a second cluster"
            )
        return self.member.picture.refusal

    @property
    def troubles(self) -> list[str]:
        """Addresses of members at which somebody listens, and why there is no talking to him."""
        return self._network.told_troubles()

    def _identity(self, host: str, member_port: int, client_port: int) -> Identity:
        settings = self.settings
        chosen = settings.member
        name = chosen.name or str(Address(host, client_port))
        kind = settings.partitions.group_by
        # Attributes are sent to others, and filters of Raft zones go by them: "zone" is the availability zone.
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
        """Close every door, at once: to the cluster this is a crash unless the member has left before."""
        self.driver.stopped = True
        for timer in (self._timer, self._measuring, self._looking_at_files):
            if timer is not None:
                timer.cancel()
        if self._free_no_more is not None:
            self._free_no_more()
            self._free_no_more = None
        self._watch.stop()
        self._proving.stop()
        if self._client_server is not None:
            self._client_server.close()
        self._http.close_port()
        # The last that clients hear of this member is where its partitions are now.
        self.tell_watchers()
        await self.control.stop()
        self._http.close()
        self.ended.set()
        for call in list(self.calls):
            if not call.done():
                call.set_exception(Unknown("this member has stopped before the answer came"))
        await self._network.stop()
        await self._door.close_all()
        if isinstance(self._client_server, PolledDoor):
            self._client_server.end()
        if self._disk is not None and self.driver.journal is not None:
            # What was acknowledged is durable; the rest is worth a moment.
            self.driver.journal.close()
        if self._audit_log is not None:
            self._audit_log.close()
        await self._watch.close_traces(self.ended_because or "it was stopped")

    def failed(self, error: BaseException) -> None:
        """Something went wrong inside the member: it stops rather than guess. To the cluster this is a crash."""
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
        """An id for a request of the in-process API, which nobody else gives to another one."""
        self._asked += 1
        return self._asks_as + self._asked.to_bytes(8, "big")

    def check(self) -> None:
        """Raises NotReady before this member was started, InvariantBroken when an error has stopped it, Closing when it
        has ended otherwise.
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
        """The same for whoever asks something of it. Raises Refused on another event loop."""
        self.check()
        if asyncio.get_running_loop() is not self.loop:
            raise Refused(
                "this member runs on another event loop: call it there "
                "(asyncio.run_coroutine_threadsafe), or use holdfast.aio.BlockingClient in other threads"
            )

    def leave(self) -> None:
        """Drain: `ended` is set when every partition is safe elsewhere."""
        self.guard(self.driver.leave)

    # -- memory

    def came(self, size: int) -> None:
        """So many bytes have come from clients or members. Memory is measured often enough that what comes in between
        stays well within the reserve.
        """
        self._unmeasured += size
        if self._unmeasured >= self._measure_after:
            self._measure()

    def _measure_later(self) -> None:
        self._measuring = self.loop.call_later(MEASURE_S, self._measure_again)

    def _measure_again(self) -> None:
        self._measure()
        if not self.ended.is_set():
            self._measure_later()

    def _measure(self) -> None:
        self._unmeasured = 0
        room = self.gauge.look()
        if room is not self._room:
            self._room = room
            self.guard(lambda: self.driver.handle(events.MemoryRoom(room)))
        if room is Room.NONE:
            self._door.relieve(self.gauge.limit.size // HELD_PART)

    # -- the engine's doors

    now_ns = staticmethod(time.monotonic_ns)

    def jitter(self, limit_ns: int) -> int:
        return random.randint(0, limit_ns)  # noqa: S311  (spreads retries; no secret)

    def open(self, member: MemberId, address: Address) -> None:
        self._network.open(member, address)

    def close(self, member: MemberId) -> None:
        self._network.close(member)

    def carry(self, member: MemberId, packet: bytes) -> None:
        self._network.carry(member, packet)

    def send_datagram(self, address: Address, data: bytes) -> None:
        self._network.send_datagram(address, data)

    def shuffle(self, effects: list[object]) -> None:
        """The real world leaves them as they are."""

    def note(self, note: effects.Note) -> None:
        self._watch.note(note)

    def stopped(self, why: str) -> None:
        self.ended_because = why
        self.ended.set()

    def soon(self, deed: Callable[[], None]) -> None:
        self.loop.call_soon(self.guard, deed)

    def wake_at(self, deadline_ns: int) -> None:
        if self._timer is not None:
            if self._timer_at_ns <= deadline_ns:
                return
            self._timer.cancel()
        self._timer_at_ns = deadline_ns
        self._timer = self.loop.call_later(max(0, deadline_ns - time.monotonic_ns()) / 1e9, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.guard(self.driver.tick)

    # -- what sessions see, beside what `MemberGrid` tells

    @property
    def clients_loop(self) -> asyncio.AbstractEventLoop:
        return self.loop

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def rejection(self, request: Request, size: int = 0) -> Outcome | None:
        refused = self.member.picture.rejection_here(request)
        if (
            refused is None
            and size > self._measure_after
            and request.op in GROWING
            and not self.gauge.fits(size)
        ):
            return Outcome(Status.NO_MEMORY, None, TOO_MUCH.format(size))
        return refused

    def order(self, order: own.Order, done: Callable[[own.Fate, str], None]) -> None:
        self.control.take(order, self._watch.order(order, done))

    def faulty(self, kind: str, error: Exception) -> None:
        self.strangers.tell(
            f"{FAULTY}: {kind}",
            f"an error inside this member, {kind} got no response; the member continues: %s",
            error,
            level=logging.ERROR,
            error=error,
        )

    def knocked(self, kind: str, line: str, *said: object) -> None:
        self.strangers.tell(kind, line, *said)

    @property
    def prover(self) -> Proving:
        return self._proving

    def audit(self, event: AuditEvent) -> None:
        self._watch.audited(event)
        if self._audit_log is not None:
            self._audit_log.tell(event)

    def files(self) -> dict[str, object] | None:
        """What the journal says of itself; None: there is none."""
        return self._journal.figures() if self._journal is not None else None

    @property
    def stall_s(self) -> float:
        """The longest turn of the loop in the last minute."""
        return self._watch.stall_s

    @property
    def connections(self) -> dict[str, int]:
        """How many there are, by door."""
        return {"clients": len(self._door.connections), "http": self._http.connections}

    def reads_by_map(self) -> Mapping[str, int]:
        self.tally.tell_reads()
        return super().reads_by_map()

    def _operations(self) -> dict[str, int]:
        """How many were answered, by kind."""
        counted = Counter({name: kept.count for name, kept in self.times.latencies().items()})
        counted.update({name: sum(counts) for name, counts, _ in self.tally.figures()})
        return dict(counted)

    def status(self, entries: EntriesHeld | None = None) -> dict[str, object]:
        files: dict[str, object] | None = None
        if self._journal is not None:
            files = {"directory": str(Path(self.settings.persistence.directory).absolute())}
            files |= self._journal.figures()
        told = status_of(
            self.member,
            files,
            self.gauge.figures(),
            entries,
            uptime_s=time.monotonic() - self._begun_s,
        )
        return told | {
            "operations": self._operations(),
            "settings_changed": dict(self.control.live.changed),
            "rejections": dict(sorted(self.strangers.counts.items())),
            "lane": self.data_lane.kind,
            "lane_reason": self.data_lane.why,
            "sockets": self.sockets.kind,
            "sockets_reason": self.sockets.why,
            "member_secret": self._network.secret_figures(),
            "protocol": self._network.protocol_figures(),
            "tls": self._tls.figures() if self._tls is not None else None,
            **self._watch.figures(),
            "http": str(self._http.address or ""),
        }

    @property
    def joined(self) -> bool:
        """Whether this member is in the cluster and knows the newest table."""
        member = self.member
        return member.picture.admitted and member.picture.assigned

    @property
    def waits_for_others(self) -> bool:
        """Whether this member is in the cluster, and too few data members are for the first assignment."""
        picture = self.member.picture
        few = len(picture.data_members()) < self.settings.cluster.initial_members
        return picture.admitted and not self.member.picture.assigned and few
