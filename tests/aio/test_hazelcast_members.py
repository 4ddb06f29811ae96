"""The client against Hazelcast's own members, of each version whose jar is found.

Jars are looked for in `HAZELCAST_JARS` and where Maven keeps them; `mvn dependency:get
-Dartifact=com.hazelcast:hazelcast:5.5.0` brings one.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import re
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import hazelcast
import pyarrow as pa
import pytest

from holdfast.aio import BlockingClient, ChangeKind, Client, NearCacheOptions, Serializers, Transaction
from holdfast.errors import Denied, Refused, RolledBack, Unknown
from holdfast_lab.processes.local_cluster import free_ports

STARTER = "com.hazelcast.core.server.HazelcastMemberStarter"
CONFIG = """<hazelcast xmlns="http://www.hazelcast.com/schema/config">
<cluster-name>aio</cluster-name>
<properties>
  <property name="hazelcast.phone.home.enabled">false</property>
  <property name="hazelcast.shutdownhook.enabled">false</property>
  <property name="hazelcast.map.invalidation.batch.enabled">{batches}</property>
  <property name="hazelcast.heartbeat.interval.seconds">1</property>
  <property name="hazelcast.max.no.heartbeat.seconds">5</property>
</properties>
<network><port auto-increment="false">{port}</port><join><auto-detection enabled="false"/><multicast enabled="false"/>
<tcp-ip enabled="true">{members}</tcp-ip></join>
<interfaces enabled="true"><interface>127.0.0.1</interface></interfaces></network>
</hazelcast>"""


def jars() -> dict[str, Path]:
    """By version."""
    folders = [Path(os.environ.get("HAZELCAST_JARS", "/nonexistent"))]
    folders += (Path.home() / ".m2/repository/com/hazelcast/hazelcast").glob("*")
    found = [path for folder in folders for path in sorted(folder.glob("hazelcast-*.jar"))]
    named = {path: re.fullmatch(r"hazelcast-(\d+\.\d+\.\d+)\.jar", path.name) for path in found}
    return {name[1]: path for path, name in named.items() if name}


JARS = jars()
JAVA = shutil.which("java")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.interop,
    pytest.mark.skipif(not JARS or JAVA is None, reason="no jar of Hazelcast, or no Java"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class Members:
    """Two members of a version, one process each."""

    def __init__(self, jar: Path, folder: Path) -> None:
        self._jar = jar
        self._folder = folder
        self.ports = free_ports(2)
        self.addresses = [f"127.0.0.1:{port}" for port in self.ports]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @contextmanager
    def running(self) -> Iterator[Members]:
        with ExitStack() as stack:
            stack.callback(self.stop)
            for port in self.ports:
                self.start(port)
            for port in self.ports:
                self.wait(port)
            yield self

    def start(self, port: int) -> None:
        assert JAVA is not None
        config = self._folder / f"{port}.xml"
        others = "".join(f"<member>{address}</member>" for address in self.addresses)
        config.write_text(CONFIG.format(port=port, members=others, batches="false"))
        log = (self._folder / f"{port}.log").open("wb")
        options = ["-Xmx256m", f"-Dhazelcast.config={config}", "-cp", str(self._jar)]
        self._processes[port] = subprocess.Popen([JAVA, *options, STARTER], stdout=log, stderr=log)

    def wait(self, port: int) -> None:
        """Until it has found the other one."""
        end = time.monotonic() + 120
        while "size:2" not in (log := (self._folder / f"{port}.log").read_text().replace(" ", "")):
            assert time.monotonic() < end, log[-3000:]
            time.sleep(0.1)

    def kill(self, port: int) -> None:
        self._processes[port].send_signal(signal.SIGKILL)
        self._processes.pop(port).wait()

    def stop(self) -> None:
        for port in list(self._processes):
            self.kill(port)


@pytest.fixture(scope="module", params=sorted(JARS))
def members(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    with Members(JARS[request.param], tmp_path_factory.mktemp("hazelcast")).running() as running:
        yield running


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not true():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.02)


VALUES = [
    True,
    7,
    2**40,
    2**80,
    -1.5,
    "ünï",
    b"\x00\xff",
    {"a": [1, None]},
    dt.date(2026, 2, 28),
    dt.time(1, 2, 3, 4),
    dt.datetime(2026, 2, 28, 1, 2, 3, 4, dt.UTC),
    uuid.UUID(int=7),
    Decimal("-1.25"),
]


def test_operations_values_and_listeners(members: Members) -> None:
    async def run() -> None:
        async with Client(members.addresses[:1], cluster_name="aio") as client:
            await until(lambda: len(client.connected) == 2 and all(client.route))
            ours = client.map("plain")
            for value in VALUES:
                assert await ours.put("k", value) is None
                assert await ours.get("k") == value
                assert await ours.remove("k") == value
            listed = Serializers(lists="objects")
            async with Client(members.addresses, cluster_name="aio", serializers=listed) as other:
                await other.map("plain").set("list", [1, "a", [Decimal(1)]])
                assert await ours.get("list") == [1, "a", [Decimal(1)]]
            await ours.clear()
            assert await ours.is_empty()
            async with await ours.listen() as listening:
                await ours.set("a", 1)
                await ours.set("a", 2)
                await ours.set("b", 3, ttl_s=1)
                assert await ours.replace_if_same("a", 2, 4)
                assert await ours.put_if_absent("a", 5) == 4
                assert await ours.contains_key("a")
                await ours.delete("a")
                async with asyncio.timeout(120):
                    kinds = [(await anext(listening)).kind for _ in range(6)]
            named = ChangeKind
            assert sorted(kinds) == sorted(
                [named.ADDED, named.UPDATED, named.ADDED, named.UPDATED, named.REMOVED, named.EXPIRED]
            )
            count = 5000
            await ours.put_many(pa.array(range(count)), pa.array([str(n) for n in range(count)]))
            assert await ours.size() == count
            found = await ours.get_many(pa.array([*range(count), -1]))
            assert found.to_pylist() == [*map(str, range(count)), None]
            assert len(await ours.keys()) == len(await ours.values()) == len(await ours.entries()) == count
        with pytest.raises(Denied):
            async with Client(members.addresses, cluster_name="other"):
                pass

    asyncio.run(run())


def test_transactions(members: Members) -> None:
    async def rolled_back(transaction: Transaction) -> None:
        for name, rest, answer in IN_A_TRANSACTION:
            assert await getattr(transaction.map("rolled back"), name)(*rest) == answer, name
        raise ZeroDivisionError

    async def transfer(transaction: Transaction, number: int) -> None:
        accounts = transaction.map("accounts")
        giver, taker = sorted((number % 5, (number + 2) % 5))  # one order of locks
        await accounts.set(giver, await accounts.get_for_update(giver) - 1)
        await accounts.set(taker, await accounts.get_for_update(taker) + 1)

    async def run() -> None:
        async with Client(members.addresses, cluster_name="aio") as client:
            with pytest.raises(ZeroDivisionError):
                await client.transact(rolled_back)
            assert await client.map("rolled back").is_empty()
            accounts = client.map("accounts")
            await accounts.put_all(dict.fromkeys(range(5), 100))
            # Two transactions of one client exclude each other.
            async with asyncio.TaskGroup() as tasks:
                for number in range(40):
                    tasks.create_task(client.transact(lambda each, number=number: transfer(each, number)))
            totals = await accounts.get_all(range(5))
            assert sum(totals.values()) == 500
            async with client.transaction() as first:
                await first.map("accounts").set(0, 0)
                with pytest.raises(RolledBack):
                    await client.transact(lambda each: transfer(each, 0), timeout_s=0.3, attempts=1)

    asyncio.run(run())


IN_A_TRANSACTION: list[tuple[str, tuple[Any, ...], Any]] = [
    ("put", ("k", 1), None),
    ("put", ("k", 2), 1),
    ("keys", (), ["k"]),
    ("values", (), [2]),
    ("get_for_update", ("k",), 2),
    ("put_if_absent", ("k", 3), 2),
    ("replace", ("none", 4), None),
    ("contains_key", ("k",), True),
    ("remove_if_same", ("k", 5), False),
    ("remove", ("k",), 2),
    ("delete", ("k",), None),
    ("set", ("k", 6), None),
    ("get", ("k",), 6),
    ("replace_if_same", ("k", 5, 7), False),
    ("replace_if_same", ("k", 6, 7), True),
]
"""Hazelcast's members do not show the effects of `replace_if_same` to the transaction, nor its changes in `size`."""


def test_near_caches_and_threads(members: Members) -> None:
    async def run() -> None:
        official = hazelcast.HazelcastClient(cluster_members=members.addresses, cluster_name="aio")
        theirs = official.get_map("near").blocking()
        options = {"near": NearCacheOptions()}
        async with Client(members.addresses, cluster_name="aio", near_caches=options) as client:
            ours = client.map("near")
            cache = ours.near_cache
            assert cache is not None
            await until(lambda: len(client.connected) == 2 and bool(cache._fed) and all(cache._fed))
            for n in range(20):
                await ours.set(n, n)
                assert await ours.get(n) == n
            await asyncio.to_thread(theirs.put, 3, "changed")
            async with asyncio.timeout(120):
                while await ours.get(3) != "changed":  # noqa: ASYNC110 - until it is told
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)
            assert [await ours.get(n) for n in range(20) if n != 3] == [n for n in range(20) if n != 3]
            await asyncio.to_thread(theirs.clear)
            await until(lambda: len(cache) == 0)
            assert await ours.get(3) is None
            await client._repair_all()
            assert len(client.connected) == 2
        official.shutdown()

    asyncio.run(run())
    with BlockingClient(members.addresses, cluster_name="aio") as client:
        ours = client.map("blocking")
        for n in range(200):
            ours.set(n, n)
        assert [ours.get(n) for n in range(200)] == list(range(200))


def test_a_member_is_killed_while_many_write(members: Members) -> None:
    async def run() -> None:
        async with Client(members.addresses, cluster_name="aio") as client:
            ours = client.map("written")
            await until(lambda: len(client.connected) == 2 and all(client.route))
            acknowledged: dict[int, int] = {}
            attempts: dict[int, int] = {}
            strange: list[BaseException] = []
            stop = asyncio.Event()

            async def write(key: int) -> None:
                count = 0
                while not stop.is_set():
                    await asyncio.sleep(0.01)
                    count += 1
                    attempts[key] = count
                    try:
                        await ours.set(key, count)
                        acknowledged[key] = count
                    except (Unknown, Refused):
                        pass
                    except Exception as error:  # noqa: BLE001 - any other is the failure
                        strange.append(error)
                        return

            tasks = [asyncio.create_task(write(key)) for key in range(50)]
            await until(lambda: len(acknowledged) == 50)
            await asyncio.to_thread(members.kill, members.ports[0])
            before = dict(acknowledged)
            async with asyncio.timeout(120):
                while not strange and not all(acknowledged[key] > before[key] for key in before):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            stop.set()
            await asyncio.gather(*tasks)
            assert strange == []
            for key, count in acknowledged.items():
                assert count <= await ours.get(key) <= attempts[key]
            members.start(members.ports[0])
            await asyncio.to_thread(members.wait, members.ports[0])
            await until(lambda: len(client.connected) == 2)

    asyncio.run(run())
