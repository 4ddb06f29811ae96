"""Several members in one process: real stores and real sessions behind real sockets, and moves at the test's command.

No protocol between the members: a write goes into every copy at once, and the table changes when the test says so.
For tests of sessions, clients and the Spark pipeline that must not wait for a cluster to form.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from tests.server.hazelcast.one_member import Clock, OneLane, OneMemberGrid, Rows
from tests.server.local_copies import LiveCopies, LocalCopies
from tests.statuses import status

from holdfast.config import MapSettings, Settings
from holdfast.core.model.changes_since import Asked, ChangesSince
from holdfast.core.model.ids import MemberId
from holdfast.core.model.member_status import MemberStatus
from holdfast.core.model.operations import WHOLE, Done, Op, Outcome, Request, Status
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.cuts import Cuts
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica
from holdfast.core.streams.change_streams import ChangeStreams
from holdfast.server.grid import ClusterCard, MemberCard
from holdfast.server.handshake import Capabilities
from holdfast.server.own_session import OwnSession
from holdfast.version import __version__
from holdfast.wire import own


class MemoryLane(OneLane):
    """Writes go into every copy that the table names."""

    grid: MemoryMember

    def set(
        self,
        copy: PartitionCopy,
        name: str,
        key: bytes,
        value: bytes,
        ttl_ms: int,
        max_idle_ms: int,
        key_hash: int,
    ) -> bytes | None:
        held = copy.open(name)
        old = self.read(copy, name, key)
        lifetimes = (max(ttl_ms, 0), max(max_idle_ms, 0))
        told = (b"", old, self.grid.wall_ms()) if self.grid.streams(name) else ()
        record = Record(name, held.counter + 1, Change.SET, key, value, *lifetimes, key_hash, *told)
        self.grid.share(copy.partition, record)
        return old

    def remove(self, copy: PartitionCopy, name: str, key: bytes) -> bytes | None:
        old = self.read(copy, name, key)
        if old is not None:
            counter = copy.open(name).counter + 1
            told = (b"", 0, 0, 0, b"", old, self.grid.wall_ms()) if self.grid.streams(name) else ()
            self.grid.share(copy.partition, Record(name, counter, Change.REMOVE, key, *told))
        else:
            self.rest_on(copy, name)
        return old

    def log(
        self, copy: PartitionCopy, held: MapReplica, change: Change, key: bytes = b"", *, ttl_ms: int = 0
    ) -> None:
        self.grid.share(copy.partition, Record(held.name, held.counter + 1, change, key, ttl_ms=ttl_ms))

    # -- what a change stream asks: nothing waits for a backup here

    unsent = ()

    def batches_of(self, partition: int) -> tuple[()]:
        return ()

    def close_batch(self, done: Callable[[bool], None]) -> None:
        self.grid.world.seals += 1
        if self.grid.world.seals in self.grid.world.unknown_seals:
            done(False)
            return
        super().close_batch(done)
        self.grid.world.after_seal(self.grid)


class MemoryMember(OneMemberGrid):
    """One of them."""

    def __init__(self, world: MemoryCluster, number: int) -> None:
        super().__init__(world.partition_count)
        self.world = world
        self.member_uuid = f"{number:08d}-0000-4000-8000-000000000000"
        self.number = number
        self.held: dict[int, PartitionCopy] = {}
        self.lane = MemoryLane(self)
        self.cuts = Cuts(MemberId(self.member_uuid), Settings(), Clock(self), Rows(self.row), self.lane)  # type: ignore[arg-type]
        self.lane.serving = [None] * world.partition_count
        self.row_versions: dict[int, int] = {}
        """Rows that this member knows in another version than 1."""
        self.behind: list[MemberId] = []
        self.waiting: set[int] = set()
        """Partitions with writes that wait for backups."""
        self.port = 0
        self.alive = True
        self.server: asyncio.Server | None = None
        self.writers: set[asyncio.StreamWriter] = set()
        settings = Settings(maps={"default": MapSettings(changes_bytes=world.changes_bytes)})
        self.changes = ChangeStreams(settings, Outbox(), self.lane, journal=False)  # type: ignore[arg-type]
        self.changes.attach(LiveCopies(lambda: self.local_copies))

    def ask_changes(self, asked: Asked, done: Callable[[ChangesSince], None]) -> None:
        self.changes.ask(asked, done)

    def streams(self, name: str) -> bool:
        """Whether changes of this map are told."""
        return bool(self.world.changes_bytes)

    def share(self, partition: int, record: Record) -> None:
        """Apply a record to every copy."""
        for uuid in self.world.rows[partition]:
            if uuid is not None:
                member = self.world.by_uuid[uuid]
                held = member.held[partition].open(record.map)
                held.enter(self.world.terms[partition])
                held.apply(record, self.now)
                if record.change is Change.PIN and member is not self:
                    member.cuts.keep(record.key, partition, held, record.ttl_ms)
                if self.world.changes_bytes:
                    held.changes = self.world.changes_bytes
                    held.keep(self.world.terms[partition], [record], held.changes)
        held = self.held[partition].open(record.map)
        held.targets = tuple(uuid for uuid in self.world.rows[partition][1:] if uuid is not None)

    # -- Grid

    def rows(self) -> list[list[str | None]]:
        return self.world.rows

    def row(self, partition: int) -> Assignment:
        replicas = tuple(None if uuid is None else MemberId(uuid) for uuid in self.rows()[partition])
        return Assignment(self.row_versions.get(partition, 1), replicas, 0, tuple(self.behind))

    def table_version(self) -> int:
        return self.world.version

    def table_stamp(self) -> int:
        return hash(tuple(sorted(self.row_versions.items()))) & 0xFFFF_FFFF

    def unfinished(self, partition: int) -> bool:
        return partition in self.waiting

    @property
    def local_copies(self) -> LocalCopies:
        return LocalCopies(self.held, self.lane.leading, self.now_ns())

    def map_names(self) -> list[str]:
        return sorted({held.name for copy in self.held.values() for held in copy if held.state.entries})

    def cluster(self) -> ClusterCard:
        cards = [
            MemberCard(member.member_uuid, "127.0.0.1", member.port, 1, lite=False)
            for member in self.world.members
            if member.alive
        ]
        return ClusterCard(1, cards, 1, {})

    def status(self) -> MemberStatus:
        rows = [
            {"uuid": other.member_uuid, "name": f"m{other.number}", "client_port": other.port}
            for other in self.world.members
            if other.alive
        ]
        return status(uuid=self.member_uuid, name=f"m{self.number}", members=rows, maps=self.map_names())

    def execute(self, request: Request, done: Done) -> None:
        self.requests.append(request)
        if self.answer_with is not None:
            done(self.answer_with)
            return
        if request.op in WHOLE:
            done(Outcome(Status.OK, self._everywhere(request)))
            return
        owner = self.world.owner(request.partitions[0])
        copy, lane = owner.held[request.partitions[0]], owner.lane
        value = None
        if request.op is Op.SET:
            lane.set(copy, request.map, request.key, request.value, request.ttl_ms, -1, 0)
        elif request.op is Op.GET:
            value = lane.read(copy, request.map, request.key)
        elif request.op in (Op.PUT, Op.PUT_IF_ABSENT):
            value = lane.read(copy, request.map, request.key)
            if value is None or request.op is Op.PUT:
                lane.set(copy, request.map, request.key, request.value, request.ttl_ms, -1, 0)
        elif request.op is Op.REMOVE:
            value = lane.read(copy, request.map, request.key)
            lane.remove(copy, request.map, request.key)
        elif request.op is Op.DELETE:
            value = lane.remove(copy, request.map, request.key) is not None
        else:
            raise AssertionError(request.op)
        done(Outcome(Status.OK, value))

    def _everywhere(self, request: Request) -> int:
        count = 0
        for partition in request.partitions:
            owner = self.world.owner(partition)
            held = owner.held[partition].maps.get(request.map)
            count += len(held.state.entries) if held else 0
            if request.op is Op.CLEAR and held:
                owner.share(partition, Record(request.map, held.counter + 1, Change.CLEAR))
        return count


@dataclass
class Wire:
    """A connection without a socket, to a session under test."""

    session: OwnSession
    frames: own.Frames
    closed_with: list[str]
    number: int = 0

    @classmethod
    def to(cls, grid: Any, **more: Any) -> Wire:
        frames = own.Frames(1 << 30)
        closed: list[str] = []
        return cls(OwnSession(grid, frames.feed, closed.append, **more), frames, closed)

    def answers(self) -> list[own.Answer]:
        """What has come back since the last time."""
        found = []
        while (body := self.frames.take()) is not None:
            found.append(own.read_answer(body))
        return found

    def ask(self, kind: type, *fields: Any, **more: Any) -> Any:
        """Ask one question; its answer, which must be the only one."""
        self.number += 1
        self.session.receive(own.frame(kind(self.number, *fields, **more)))
        while self.session._flow.halted:
            self.session.resume()
        (answer,) = self.answers()
        assert answer.id == self.number, answer
        return answer

    def hello(self, **more: Any) -> Any:
        return self.ask(own.Hello, own.VERSION, **more)


class MemoryCluster:
    """A context manager: the members listen on free ports of 127.0.0.1 while the block runs."""

    def __init__(
        self, members: int = 3, partition_count: int = 31, copies: int = 2, changes_bytes: int = 0
    ) -> None:
        """`changes_bytes`: of every map."""
        self.changes_bytes = changes_bytes
        self.terms = [1] * partition_count
        """Of each partition's primary."""
        self.partition_count = partition_count
        self.version = 1
        self.seals = 0
        self.unknown_seals: set[int] = set()
        self.limits: Any = None
        """`LimitSettings` of connections made from now on; None: the usual ones."""
        self.after_seal: Callable[[MemoryMember], None] = lambda member: None
        self.members = [MemoryMember(self, number) for number in range(1, members + 1)]
        self.by_uuid = {member.member_uuid: member for member in self.members}
        self.rows: list[list[str | None]] = []
        for partition in range(partition_count):
            holders = [self.members[(partition + slot) % members] for slot in range(min(copies, members))]
            self.rows.append([member.member_uuid for member in holders])
            for member in holders:
                member.held[partition] = PartitionCopy(partition, 0)
            holders[0].lane.serving[partition] = holders[0].held[partition]

    def owner(self, partition: int) -> MemoryMember:
        uuid = self.rows[partition][0]
        assert uuid is not None
        return self.by_uuid[uuid]

    def addresses(self) -> str:
        """The client doors of the members that live, for an `address` option."""
        return ",".join(f"127.0.0.1:{member.port}" for member in self.members if member.alive)

    # -- what happens to it: call on the loop's thread, or through `do`

    def do(self, deed: Callable[[], Any]) -> Any:
        """Run `deed` on the members' thread."""
        done: list[Any] = []
        event = threading.Event()

        def run() -> None:
            try:
                done.append(deed())
            finally:
                event.set()

        self.loop.call_soon_threadsafe(run)
        assert event.wait(120)
        return done[0]

    def move(self, partition: int) -> None:
        """Hand the partition to the next member that lives; the one before forgets it."""
        old = self.owner(partition)
        living = [member for member in self.members if member.alive and partition not in member.held]
        new = living[0] if living else self.by_uuid[str(self.rows[partition][1])]
        copy = old.held.pop(partition)
        old.lane.serving[partition] = None
        if partition in new.held:
            self.rows[partition] = [new.member_uuid]
        else:
            new.held[partition] = copy
            self.rows[partition][0] = new.member_uuid
        new.lane.serving[partition] = new.held[partition]
        self.terms[partition] += 1
        self._aim(partition)

    def kill(self, member: MemoryMember) -> None:
        """The member is gone at once; backups are promoted."""
        member.alive = False
        if member.server is not None:
            member.server.close()
        for writer in list(member.writers):
            writer.transport.abort()
        for partition, row in enumerate(self.rows):
            if member.member_uuid in row:
                row.remove(member.member_uuid)
                new = self.owner(partition)
                new.lane.serving[partition] = new.held[partition]
                self.terms[partition] += 1
                self._aim(partition)

    def _aim(self, partition: int) -> None:
        self.version += 1
        targets = tuple(uuid for uuid in self.rows[partition][1:] if uuid is not None)
        for held in self.owner(partition).held[partition]:
            held.targets = targets

    # -- sockets

    def __enter__(self) -> Self:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="memory-cluster", daemon=True)
        self.thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self.loop).result(120)
        return self

    def __exit__(self, *failure: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self.loop).result(120)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(120)
        self.loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    async def _listen(self) -> None:
        for member in self.members:
            member.server = await asyncio.start_server(
                lambda reader, writer, member=member: self._serve(member, reader, writer), "127.0.0.1", 0
            )
            member.port = member.server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        for member in self.members:
            assert member.server is not None
            member.server.close()
            for writer in list(member.writers):
                writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(
        self, member: MemoryMember, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if not member.alive:
            writer.transport.abort()
            return
        member.writers.add(writer)
        session = OwnSession(
            member,
            writer.write,
            lambda reason: writer.close(),
            limits=self.limits,
            capabilities=Capabilities(release=__version__),
        )
        try:
            assert await reader.readexactly(3) == own.PREAMBLE
            while data := await reader.read(1 << 18):
                session.receive(data)
                while session._flow.halted:
                    session.resume()
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            session.closed()
            member.writers.discard(writer)
            writer.close()
