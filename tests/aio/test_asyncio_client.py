"""The asyncio client against real members over real sockets, and against a server that says what is wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.aio import Client, Map, asyncio_client
from holdfast.errors import ConfigError, Denied, NotReady, ProtocolError, Refused, Unknown
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

VALUES = [True, 7, 2**40, 2**80, -1.5, "ünï", b"\x00\xff"]


async def until(true: Callable[[], bool]) -> None:
    """Wait for it; pytest's own limit ends a wait in vain."""
    while not true():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.02)


def test_every_operation_answers_what_the_official_client_is_answered(
    cluster: LocalCluster, official: Any, steps: list[Any]
) -> None:
    async def ours() -> list[Any]:
        async with Client(cluster.client_addresses()[:1]) as client:
            return [await getattr(client.map("ours"), name)(*rest) for name, rest in steps]

    theirs = official.get_map("theirs").blocking()
    expected = [getattr(theirs, name)(*rest) for name, rest in steps]
    nothing = [name for name, _ in steps].index("put_all")
    expected[nothing] = None  # Theirs answers a None for each partition.
    assert asyncio.run(ours()) == expected


def told(found: list[Any]) -> list[str]:
    """In one order and one form, whichever client has read it."""
    return sorted(repr(each).replace("bytearray(b'\\x00\\xff')", "b'\\x00\\xff'") for each in found)


def test_each_reads_what_the_other_has_written(cluster: LocalCluster, official: Any) -> None:
    async def run() -> None:
        theirs = official.get_map("shared").blocking()
        async with Client(cluster.client_addresses()) as client:
            ours = client.map("shared")
            for value in VALUES:
                await ours.set("our " + repr(value), value)
                assert theirs.get("our " + repr(value)) == value
                if not isinstance(value, int) or value < 2**31:  # Theirs writes whole numbers in 32 bits.
                    # Theirs pickles `bytes`; its byte arrays are `bytearray`.
                    their = bytearray(value) if isinstance(value, bytes) else value
                    theirs.set("their " + repr(value), their)
                    assert await ours.get("their " + repr(value)) == value
                    await ours.set(value, "key")
                    assert theirs.get(their) == "key"
            await ours.delete(7)
            assert not theirs.contains_key(7)
            assert told(await ours.keys()) == told(theirs.key_set())
            assert told(await ours.values()) == told(theirs.values())
            assert told(await ours.entries()) == told(theirs.entry_set())
            await ours.set("json", {"a": [1, None]})
            assert await ours.get("json") == {"a": [1, None]}
            await ours.put("brief", 1, ttl_s=0.05)
            while await ours.contains_key("brief"):  # noqa: ASYNC110 - an entry that ends
                await asyncio.sleep(0.02)

    asyncio.run(run())


def test_there_is_one_connection_to_each_member_and_one_send_for_a_turn(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with Client(cluster.client_addresses()[:1]) as client:
            await until(lambda: len(client.connected) == 3 and all(client.route))
            sent: list[bytes] = []
            owner = client.route[0]
            assert owner is not None
            assert owner._transport is not None
            write = owner._transport.write

            def count(out: Any) -> None:
                sent.append(out)
                write(out)

            owner._transport.write = count  # type: ignore[method-assign]
            asked = client.map("turn")
            mine = [
                n for n in range(1000) if client.route[asked._partition(struct.pack(">ii", -7, n))] is owner
            ]
            assert await asyncio.gather(*map(asked.get, mine)) == [None] * len(mine)
            assert len(mine) > 100
            assert len(sent) == 1

    asyncio.run(run())


def test_a_member_is_killed_while_many_write_and_one_joins() -> None:
    async def run(cluster: LocalCluster) -> None:
        async with Client(cluster.client_addresses()) as client:
            written = client.map("written")
            await until(lambda: len(client.connected) == 3)
            acknowledged: dict[str, int] = {}
            attempts: dict[str, int] = {}
            strange: list[BaseException] = []
            stop = asyncio.Event()

            async def write(task: int) -> None:
                count = 0
                while not stop.is_set():
                    await asyncio.sleep(0.01)
                    count += 1
                    attempts[f"{task}"] = count
                    try:
                        await written.set(f"{task}", count)
                        acknowledged[f"{task}"] = count
                    except (Unknown, Refused):
                        pass
                    except Exception as error:  # noqa: BLE001 - any other is the failure
                        strange.append(error)
                        return

            tasks = [asyncio.create_task(write(task)) for task in range(50)]
            await until(lambda: len(acknowledged) == 50)
            await asyncio.to_thread(cluster.kill, cluster.members[1])
            before = dict(acknowledged)
            await until(lambda: bool(strange) or all(acknowledged[key] > before[key] for key in before))
            joined = await asyncio.to_thread(cluster.start_member)
            await until(lambda: bool(strange) or joined.client_address in client.connected)
            door = next(
                line for line in client._lines.values() if line.address[1] == int(joined.client_address[-5:])
            )
            await until(lambda: bool(strange) or door in client.route)
            stop.set()
            await asyncio.gather(*tasks)
            assert strange == []
            found = await written.get_all(acknowledged)
            for key, count in acknowledged.items():
                value = found[key]
                assert isinstance(value, int)
                assert count <= value <= attempts[key]

    with LocalCluster(members=3) as cluster:
        cluster.wait_settled()
        asyncio.run(run(cluster))


def test_a_stranger_is_told_what_to_check(cluster: LocalCluster) -> None:
    async def enter(**options: Any) -> None:
        async with Client(cluster.client_addresses(), **options):
            pass

    with pytest.raises(Denied, match="cluster_name"):
        asyncio.run(enter(cluster_name="other"))
    with pytest.raises(ConfigError, match=r"addresses = '::1:5701' is not allowed: put .* in brackets"):
        Client(["::1:5701"])
    guard = '[security]\nusername = "ada"\npassword = "a long enough secret"\n'
    with LocalCluster(members=1, config=guard) as guarded:

        async def knock(password: str) -> None:
            async with Client(guarded.client_addresses(), username="ada", password=password) as client:
                await client.map("m").set("k", 1)

        asyncio.run(knock("a long enough secret"))
        with pytest.raises(Denied, match="password"):
            asyncio.run(knock("wrong"))


@contextmanager
def held_up(members: list[ManagedMember]) -> Iterator[None]:
    """Within, the members' processes stand still, so that no answer comes."""
    try:
        for member in members:
            os.kill(member.process.pid, signal.SIGSTOP)
            stat = Path(f"/proc/{member.process.pid}/stat")
            while stat.read_text().rpartition(")")[2].split()[0] != "T":
                time.sleep(0.01)
        yield
    finally:
        for member in members:
            os.kill(member.process.pid, signal.SIGCONT)


def test_a_silent_viewer_is_replaced_by_another_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members and owners arrive on one connection. If that member hangs, another one reports its removal, and a
    request that waits for it goes to the next owner.
    """
    monkeypatch.setattr(asyncio_client, "SILENCE_S", 1e9)
    monkeypatch.setattr(asyncio_client, "PING_AFTER_S", 0.2)
    monkeypatch.setattr(asyncio_client, "VIEWER_SILENCE_S", 3.0)

    async def run(cluster: LocalCluster) -> None:
        async with Client(cluster.client_addresses()) as client:
            await until(lambda: len(client.connected) == 3)
            viewer = client._viewer
            assert viewer is not None
            entries = client.map("silent")
            keys = [f"k{number}" for number in range(100)]
            for key in keys:
                await entries.set(key, key)
            silent = next(m for m in cluster.members if m.client_address.endswith(f":{viewer.address[1]}"))
            with held_up([silent]):
                assert await asyncio.gather(*map(entries.get, keys)) == keys
                assert client._viewer is not viewer
                assert viewer.ended == "the member has left the cluster"

    with LocalCluster(members=3, config="[cluster]\nsuspect_after_ms = 10000\n") as cluster:
        cluster.wait_settled()
        asyncio.run(run(cluster))


def test_only_the_viewer_reports_members_and_owners(cluster: LocalCluster) -> None:
    """A member that hung may send, when it goes on, what was true before."""

    async def run() -> None:
        async with Client(cluster.client_addresses()) as client:
            await until(lambda: len(client.connected) == 3 and None not in client.route)
            other = next(line for line in client.lines() if line is not client._viewer)
            route = list(client.route)
            viewer = client._viewer
            assert viewer is not None
            with pytest.raises(ProtocolError):
                client._heard(viewer, asyncio_client.PARTITIONS_VIEW, b"no message")
            client._heard(other, asyncio_client.PARTITIONS_VIEW, b"no message")
            assert client.route == route

    asyncio.run(run())


def test_cancelled_and_closed_leave_nothing(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with Client(cluster.client_addresses()) as client:
            asked = client.map("cancelled")
            tasks = [asyncio.create_task(asked.put(n, n)) for n in range(100)]
            await asyncio.sleep(0)
            assert sum(len(line.pending) for line in client._lines.values()) >= 100
            for task in tasks:
                task.cancel()
            assert all(
                isinstance(end, asyncio.CancelledError)
                for end in await asyncio.gather(*tasks, return_exceptions=True)
            )
            assert sum(len(line.pending) for line in client._lines.values()) == 0
            await asked.set("after", 1)
            with held_up(cluster.members):
                waiting = asyncio.create_task(asked.put("k", 1))
                await asyncio.sleep(0)
                await client.close()
            with pytest.raises(Unknown):
                await waiting
            assert asyncio.all_tasks() == {asyncio.current_task()}
            with pytest.raises(NotReady, match="closed"):
                await asked.get("k")

    asyncio.run(run())


def test_nobody_is_there() -> None:
    async def run() -> None:
        await Client(["127.0.0.1:1"], connect_timeout_s=0.05).connect()

    with pytest.raises(NotReady, match="no member could be reached"):
        asyncio.run(run())


FRAME = struct.Struct("<iH")


def spoiled_frame(answer: bytes) -> bytes:
    return FRAME.pack(3, 0xE000) + answer[6:]


def too_long(answer: bytes) -> bytes:
    return FRAME.pack(2**31 - 1, 0xC000) + answer[6:]


def never_asked(answer: bytes) -> bytes:
    return answer[:10] + struct.pack("<q", 1 << 40) + answer[18:]


def another_kind(answer: bytes) -> bytes:
    return answer[:6] + struct.pack("<i", 0x012B01) + answer[10:]


def without_value(answer: bytes) -> bytes:
    return FRAME.pack(19, 0xE000) + answer[6:19]


@pytest.mark.parametrize("spoil", [spoiled_frame, too_long, never_asked, another_kind, without_value])
def test_wrong_bytes_end_that_connection_only(cluster: LocalCluster, spoil: Callable[[bytes], bytes]) -> None:
    """Between the client and a real member stands one who spoils the answer to the put."""

    async def run() -> None:
        host, _, port = cluster.client_addresses()[0].rpartition(":")
        ends: list[asyncio.Task[None]] = []

        async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            near, far = await asyncio.open_connection(host, int(port))

            async def there() -> None:
                while data := await reader.read(65536):
                    far.write(data)
                far.close()

            task = asyncio.create_task(there())
            ends.append(task)
            while data := await near.read(65536):
                at = data.find(struct.pack("<i", 0x010101))
                writer.write(data if at < 6 else data[: at - 6] + spoil(data[at - 6 :]))
            writer.close()
            await task

        server = await asyncio.start_server(between, "127.0.0.1", 0)
        door = server.sockets[0].getsockname()[1]
        async with Client([f"127.0.0.1:{door}"], message_bytes=1 << 24) as client:
            await until(lambda: len(client.connected) == 3)
            (line,) = (line for line in client._lines.values() if line.address[1] == door)
            await until(lambda: line in client.route)
            asked: Map = client.map("spoiled")
            key = next(
                n for n in range(10_000) if client.route[asked._partition(struct.pack(">ii", -7, n))] is line
            )
            others = set(client._lines.values()) - {line}
            with pytest.raises(Unknown, match="an invalid response"):
                await asked.put(key, 1)
            assert "an invalid response" in line.ended
            assert not any(other.ended for other in others)
            assert await asked.get(key) == 1
        server.close()
        await server.wait_closed()
        for task in ends:
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_a_broken_stored_value_is_told(cluster: LocalCluster) -> None:
    from holdfast.wire.values import Serialized

    async def run() -> None:
        async with Client(cluster.client_addresses()) as client:
            await client.map("broken").set("k", Serialized(struct.pack(">iH", -7, 1)))
            with pytest.raises(ProtocolError, match="broken"):
                await client.map("broken").get("k")

    asyncio.run(run())


def test_a_client_that_is_not_connected_says_so() -> None:
    async def run() -> None:
        flights = Client("127.0.0.1:5701").map("flights")
        for call in (flights.get("a"), flights.set("a", 1), flights.size(), flights.get_all(["a", "b"])):
            with pytest.raises(ConfigError, match="async with Client"):
                await call

    asyncio.run(run())


def test_another_port_than_the_client_port_is_named_at_once(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with Client(cluster.alive[0].member_address, connect_timeout_s=200):
            pass

    with pytest.raises(ConfigError, match=r"the port for .*; give the port for clients"):
        asyncio.run(run())


def test_wrong_arguments_are_named(cluster: LocalCluster) -> None:
    endless: list[Any] = []
    endless.append({"again": endless})

    async def run() -> None:
        async with Client(cluster.client_addresses()[0]) as client:
            for name in (5, "", None, "m" * 1025):
                with pytest.raises(ConfigError, match="a map's name"):
                    client.map(name)  # type: ignore[arg-type]
            flights = client.map("wrong arguments")
            for call, message in (
                (lambda: flights.put("a", 1, ttl_s="5"), "ttl_s is a number of seconds, not str"),  # type: ignore[arg-type]
                (lambda: flights.put(None, 1), "None cannot be a key"),
                (lambda: flights.put("a", None), "None cannot be a value"),
                (lambda: flights.put("a", endless), "contains itself"),
                (lambda: flights.put("a", object()), "object cannot be stored: use .*Decimal.*Codec"),
                (lambda: flights.get_many(["a"]), "a pyarrow array is needed, not list"),  # type: ignore[arg-type]
                (lambda: flights.put_many(["a"], [1]), "a pyarrow array is needed, not list"),  # type: ignore[arg-type]
            ):
                with pytest.raises(TypeError, match=message):
                    await call()
            with pytest.raises(ValueError, match=r"0 \(for ever\) or more"):
                await flights.put("a", 1, ttl_s=float("nan"))
            assert await flights.size() == 0

    asyncio.run(run())


def test_requests_of_one_connection_are_answered_in_their_order(cluster: LocalCluster) -> None:
    """The first request of a map goes another way than the next ones, which may find nothing to change."""

    async def order(client: Client, number: int) -> list[int]:
        answered: list[int] = []
        fresh = client.map(f"fresh {number}")

        async def put(place: int) -> None:
            await fresh.put_if_absent("k", place)
            answered.append(place)

        await asyncio.gather(*(put(place) for place in range(3)))
        return answered

    async def use() -> list[list[int]]:
        async with Client(cluster.client_addresses()) as client:
            return [await order(client, number) for number in range(10)]

    assert asyncio.run(use()) == [[0, 1, 2]] * 10
