"""Members whose memory is limited, filled until they refuse: nobody dies, nothing is lost, and there is a way back."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import hazelcast
import pytest
from click.testing import CliRunner
from hazelcast.errors import ReachedMaxSizeError
from hazelcast.protocol.codec import map_put_codec
from hazelcast.serialization.data import Data
from tests.cluster.crew import MAP, PARTITIONS, SETTINGS, Crew, until
from tests.cluster.rude import Rude, connect

from holdfast.cli.main import holdfast
from holdfast.client.blocking import Client
from holdfast.config import load
from holdfast.core.events import MemoryRoom
from holdfast.core.model.keys import partition_of
from holdfast.core.model.views import Room
from holdfast.core.routing.request_refusals import NO_MEMORY
from holdfast.core.state_transfer.destination import MEMORY_FULL
from holdfast.errors import NoMemory
from holdfast.runtime.in_process.embedded import Member
from holdfast.wire import own
from holdfast.wire.values import from_stored, to_stored
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

Beginning = Callable[[ManagedMember], tuple[socket.socket, bytes]]

pytestmark = [
    # The client leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

MB = 1 << 20
WRITERS = 4


# -- real processes, filled


class Filling:
    """Writers that store entries until they are refused, and remember what was acknowledged."""

    def __init__(self, cluster: LocalCluster, value_bytes: int, rows: int) -> None:
        self.cluster = cluster
        self.padding = "." * value_bytes
        self.rows = rows
        self.acknowledged: list[str] = []
        self.runs = 0

    def value(self, key: str) -> str:
        return f"{key}{self.padding}"

    def fill(self) -> list[str]:
        """Until every writer is refused; answers why they were."""
        self.runs += 1
        with ThreadPoolExecutor(WRITERS) as threads:
            return list(threads.map(partial(self._write, self.runs), range(WRITERS)))

    def _write(self, run: int, writer: int) -> str:
        with Client(self.cluster.client_addresses()[writer % 3], timeout_s=20) as client:
            for batch in range(100_000):
                keys = [f"{run}/{writer}/{batch}/{row}" for row in range(self.rows)]
                try:
                    client.put_columns(
                        MAP, list(map(to_stored, keys)), [to_stored(self.value(key)) for key in keys]
                    )
                except NoMemory as refused:
                    return str(refused)
                self.acknowledged += keys
        raise AssertionError("nobody refused")

    def remove(self, part: int) -> None:
        """Every so many of them."""
        going = self.acknowledged[::part]
        gone = set(going)
        with Client(self.cluster.client_addresses()[0], timeout_s=20) as client:
            for at in range(0, len(going), 2000):
                keys = list(map(to_stored, going[at : at + 2000]))
                removes = bytes([own.PutKind.REMOVE]) * len(keys)
                client.put_columns(MAP, keys, [b""] * len(keys), kinds=removes)
        self.acknowledged = [key for key in self.acknowledged if key not in gone]

    def missing(self) -> list[str]:
        """What was acknowledged, and is not there as it was written."""
        found: dict[object, object] = {}
        with Client(self.cluster.client_addresses()[0], timeout_s=20) as client:
            for partition in range(client.partition_count):
                for batch in client.scan(MAP, partition):
                    keys, values = batch.split()
                    found |= zip(map(from_stored, keys), map(from_stored, values), strict=True)
        return [key for key in self.acknowledged if found.get(key) != self.value(key)]


def wait(reached: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def rooms(cluster: LocalCluster) -> list[str]:
    return [cluster.status(member).memory.room for member in cluster.alive]


def filled_emptied_and_relieved(
    folder: Path, *, backups: int, journal: str, memory: int, space: int, value_bytes: int, rows: int
) -> None:
    config = (
        f"[limits]\nmemory_bytes = {memory}\n[maps.default]\nbackups = {backups}\njournal = '{journal}'\n"
        "[partitions]\ncount = 61\n"
    )
    files = folder / "files" if journal != "off" else None
    with LocalCluster(3, config, log_dir=folder / "logs", data_dir=files, address_space=space) as cluster:
        cluster.wait_settled()
        filling = Filling(cluster, value_bytes, rows)

        for why in filling.fill():
            assert "is nearly full; remove entries, add a member, or raise limits.memory_bytes" in why
        assert len(cluster.alive) == 3
        assert filling.missing() == []
        assert "memory is nearly full" in "".join(member.log_tail(1000) for member in cluster.members)

        filling.remove(2)
        wait(lambda: rooms(cluster) == ["plenty"] * 3)
        assert filling.missing() == []
        stored = len(filling.acknowledged)
        filling.fill()
        assert len(filling.acknowledged) > 1.3 * stored, "half of what was there was removed"

        cluster.start_member()
        cluster.wait_settled(60)
        wait(lambda: rooms(cluster) == ["plenty"] * 4)
        stored = len(filling.acknowledged)
        filling.fill()
        assert len(filling.acknowledged) > stored
        assert len(cluster.alive) == 4
        assert filling.missing() == []
        for member in cluster.alive:
            status = cluster.status(member).memory
            assert status.limit_bytes == memory
            assert status.resident_bytes < memory


def test_members_refuse_before_their_memory_is_full_and_recover(tmp_path: Path) -> None:
    filled_emptied_and_relieved(
        tmp_path, backups=1, journal="off", memory=130 * MB, space=420 * MB, value_bytes=4000, rows=100
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("value_bytes", [1000, 100_000])
@pytest.mark.parametrize("journal", ["off", "sync", "lazy"])
@pytest.mark.parametrize("backups", [0, 1])
def test_members_refuse_whatever_they_hold(
    tmp_path: Path, backups: int, journal: str, value_bytes: int
) -> None:
    files = journal != "off"
    filled_emptied_and_relieved(
        tmp_path,
        backups=backups,
        journal=journal,
        # To write its files a member takes some 60 MB more, and libraries of 150 MB are mapped.
        memory=(280 if files else 160) * MB,
        space=(1000 if files else 450) * MB,
        value_bytes=value_bytes,
        rows=20 if value_bytes > 10_000 else 1000,
    )


# -- what members make of it, in one process


def squeeze(member: Member, room: Room) -> None:
    """Let this member believe that it has so much room."""
    member._node.driver.handle(MemoryRoom(room))


def knows(crew: Crew, short: dict[str, Room]) -> Callable[[], bool]:
    return lambda: all(member._node.member.router.refusals.short == short for member in crew.members)


@pytest.mark.rule("routing/R-7")
def test_what_a_full_backup_would_have_to_keep_is_refused_by_its_primary() -> None:
    async def story() -> None:
        async with Crew(maps__default__backups=1) as crew:
            full, *others = await crew.start(3)
            await crew.fill()
            squeeze(full, Room.LITTLE)
            await until(knows(crew, {full.uuid: Room.LITTLE}))
            table = crew.table()
            for member in crew.members:
                numbers = member.map(MAP)
                held, free, reasons = set(), set(), set()
                for number in range(500):
                    try:
                        await numbers.set(number, f"w{number}")
                    except NoMemory as refused:
                        reasons.add(str(refused))
                        held.add(number)
                    else:
                        free.add(number)
                assert reasons == {NO_MEMORY.format("m1")}
                holders = {
                    number: table[partition_of(to_stored(number), 0, PARTITIONS)] for number in held | free
                }
                assert all(full.uuid in holders[number][:2] for number in held)
                assert not any(full.uuid in holders[number][:2] for number in free)
                found = await numbers.get_all(range(500))
                assert {number for number, value in found.items() if value == f"v{number}"} == held
            with pytest.raises(NoMemory):
                await others[0].map(MAP).put_all(dict.fromkeys(held, "x"))
            number = min(held)
            numbers = others[1].map(MAP)
            with pytest.raises(NoMemory):
                await numbers.set_ttl(number, 100)
            assert await numbers.remove(number) == f"v{number}"
            assert await numbers.evict(max(held))
            await numbers.clear()
            assert await numbers.size() == 0
            squeeze(full, Room.PLENTY)
            await until(knows(crew, {}))
            await crew.fill()
            assert await crew.missing() == []

    asyncio.run(story())


def test_what_is_over_goes_also_where_memory_is_short() -> None:
    async def story() -> None:
        async with Crew(maps__default__backups=1) as crew:
            first, second = await crew.start(2)
            numbers = first.map(MAP)
            for number in range(100):
                await numbers.set(number, "x", ttl_s=0.1)
            squeeze(first, Room.LITTLE)
            squeeze(second, Room.NONE)
            await until(knows(crew, {first.uuid: Room.LITTLE, second.uuid: Room.NONE}))
            await until(lambda: all(member.status().entries.all == 0 for member in crew.members))

    asyncio.run(story())


def test_no_partition_moves_to_a_member_without_room_until_it_has_some() -> None:
    async def story() -> None:
        async with Crew(maps__default__backups=1) as crew:
            first, second = await crew.start(2)
            await crew.fill()
            seeds = {"cluster.seeds": [first.member_address], "limits.memory_bytes": MB}
            third = Member(load(None, {}, SETTINGS | crew.settings | seeds))
            await third.start()
            crew.members.append(third)
            crew._started.append(third)
            migrations = first._node.member.migrations
            await until(lambda: migrations.queued > 0 and not migrations.running)
            assert crew.holds(third) == 0
            assert first.status().low_memory == {third._node.member.membership.info.name: "none"}
            assert await second.map(MAP).put(1, "v1") == "v1"
            assert await crew.missing() == []
            third._node.gauge.limit = first._node.gauge.limit
            await crew.rest()
            assert crew.holds(third) > 15
            assert await crew.missing() == []

    asyncio.run(story())


def test_a_destination_without_room_says_so() -> None:
    async def story() -> None:
        async with Crew(maps__default__backups=1) as crew:
            (first,) = await crew.start(1)
            await crew.fill()
            member = first._node.member
            assert member.destination._room_problem() == ""
            squeeze(first, Room.LITTLE)
            assert member.destination._room_problem() == ""
            squeeze(first, Room.NONE)
            assert member.destination._room_problem() == MEMORY_FULL

    asyncio.run(story())


@pytest.fixture
def members() -> Iterator[LocalCluster]:
    """One that may take no more than it has taken when it began."""
    with LocalCluster(1, f"[limits]\nmemory_bytes = {30 * MB}\n[partitions]\ncount = 31\n") as running:
        yield running


@pytest.mark.interop
def test_hazelcast_clients_are_told_what_to_do(members: LocalCluster) -> None:
    client = hazelcast.HazelcastClient(
        cluster_members=members.client_addresses(), cluster_connect_timeout=120
    )
    try:
        numbers = client.get_map("numbers").blocking()
        writes = {
            "put": lambda: numbers.put("k", 0),
            "set": lambda: numbers.set("k", 0),
            "put_if_absent": lambda: numbers.put_if_absent("k", 0),
            "put_all": lambda: numbers.put_all({f"k{number}": number for number in range(100)}),
        }
        for name, write in writes.items():
            before = time.monotonic()
            with pytest.raises(ReachedMaxSizeError, match="remove entries, add a member, or raise limits"):
                write()
            assert time.monotonic() - before < 60, f"{name} was tried again and again"
        shown = CliRunner().invoke(holdfast, ["status", members.client_addresses()[0]]).output
        assert "memory nearly full: m1; writes that store entries in its partitions are refused; no " in shown
        assert numbers.get("k") is None
        assert numbers.remove("k") is None
        assert numbers.size() == 0
        numbers.clear()
    finally:
        client.shutdown()


def test_messages_that_never_come_whole_take_no_memory_without_a_bound() -> None:
    config = f"[limits]\nmemory_bytes = {150 * MB}\n[partitions]\ncount = 31\n"
    greeting = own.PREAMBLE + own.frame(own.Hello(1, own.VERSION, None, None, None, None))
    columns = own.ColumnBatch.of([b"k"], [bytes(15 * MB)])
    message = own.frame(own.PutColumns(2, MAP, [0], [1], columns))[:-1]
    with LocalCluster(1, config, address_space=420 * MB) as cluster:
        host, _, port = cluster.client_addresses()[0].rpartition(":")
        with contextlib.ExitStack() as opened:
            ended = 0
            for _ in range(30):
                stranger = opened.enter_context(socket.create_connection((host, int(port)), 10))
                try:
                    stranger.sendall(greeting + message)
                except OSError:
                    ended += 1
            assert cluster.alive, cluster.log_tails()
            with Client(cluster.client_addresses()[0], timeout_s=20) as client:
                assert client.get(MAP, to_stored("k")) is None
                status = client.status()
            # It is looked at between two reads, so what one stranger has just sent may be above the limit.
            assert status.memory.resident_bytes < (150 + 15) * MB
        assert "clients whose messages had not come whole were closed" in cluster.log_tails()
        wait(lambda: rooms(cluster) == ["plenty"])


def stranger_with_own_protocol(member: ManagedMember) -> tuple[socket.socket, bytes]:
    """A connection, and a message that lacks its last byte."""
    stranger = connect(member)
    stranger.sendall(own.PREAMBLE + own.frame(own.Hello(1, own.VERSION, None, None, None, None)))
    columns = own.ColumnBatch.of([b"k"], [bytes(15 * MB)])
    return stranger, own.frame(own.PutColumns(2, MAP, [0], [1], columns))[:-1]


def stranger_with_hazelcast_protocol(member: ManagedMember) -> tuple[socket.socket, bytes]:
    stranger = Rude(member)
    value = Data(bytes(15 * MB))
    put = map_put_codec.encode_request(MAP, Data(bytes(8) + b"k"), value, 1, -1)
    return stranger.socket, stranger.bytes_of(put, 0)[:-1]


@pytest.mark.rule("server/F-4")
@pytest.mark.parametrize("begin", [stranger_with_own_protocol, stranger_with_hazelcast_protocol])
def test_a_message_that_finds_no_memory_ends_its_connection_alone(begin: Beginning) -> None:
    """The system refuses memory long before the member's own limit."""
    with LocalCluster(1, "[partitions]\ncount = 31\n") as cluster:
        member = cluster.alive[0]
        mapped = Path(f"/proc/{member.pid}/statm").read_text(encoding="utf-8").split()[0]
        most = int(mapped) * resource.getpagesize() + 50 * MB
        resource.prlimit(member.pid, resource.RLIMIT_AS, (most, most))
        with contextlib.ExitStack() as opened:
            for _ in range(20):
                stranger, message = begin(member)
                opened.enter_context(stranger)
                with contextlib.suppress(OSError):
                    stranger.sendall(message)
            assert cluster.alive, cluster.log_tails()
        with Client(cluster.client_addresses()[0], timeout_s=20) as client:
            client.set(MAP, to_stored("k"), to_stored("v"))
            assert client.get(MAP, to_stored("k")) == to_stored("v")
        assert "no memory" in cluster.log_tails()


def test_the_limit_is_not_shared_between_members() -> None:
    one = load(None, {}, {"limits.memory_bytes": 1 << 30})
    assert one.shared() == load(None, {}, {}).shared()
