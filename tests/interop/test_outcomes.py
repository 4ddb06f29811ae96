"""Done, refused and unknown are three different answers for every kind of client: the table in docs/guarantees.md.

Two members: of a key's partition one is the primary, the other the only backup. While the backup's process is stopped
the outcome of a write is unknown; while the cluster is passive it is refused.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner
from hazelcast.errors import IllegalStateError, IndeterminateOperationStateError
from tests.interop.test_node_client import finish, packages, start
from tests.interop.test_python_client import connected

import holdfast
from holdfast.cli.main import holdfast as command
from holdfast.client.blocking import Client
from holdfast.client.replica_questions import ask_digests
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Request, Value
from holdfast.errors import Passive, Unknown
from holdfast.wire.values import from_stored, to_stored
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [
    pytest.mark.interop,
    # The client leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CONFIG = """
[cluster]
suspect_after_ms = 120000
[partitions]
count = 31
[replication]
backup_timeout_ms = 1000
"""
node_packages = packages
"""What the Node.js client needs, installed once."""


@pytest.fixture(scope="module")
def members(sockets: str) -> Iterator[LocalCluster]:
    with LocalCluster(2, CONFIG + sockets) as running:
        running.wait_settled()
        yield running


@contextmanager
def stopped_backup(members: LocalCluster) -> Iterator[str]:
    """A key of which the first member is the primary, while the process of the other stands still."""
    pid = members.members[1].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield key_at(members)
    finally:
        os.kill(pid, signal.SIGCONT)


def key_at(members: LocalCluster) -> str:
    with Client(members.members[0].client_address) as client:
        table = client.table()
        mine = (f"k{number}" for number in range(1000))
        return next(
            key for key in mine if table.owner(partition_of(to_stored(key), 0, 31)) == members.members[0].uuid
        )


def change(cluster: LocalCluster, state: str) -> None:
    told = CliRunner().invoke(command, ["cluster", "state", state, "-a", cluster.members[0].client_address])
    assert told.exit_code == 0, told.output


@contextmanager
def passive(members: LocalCluster) -> Iterator[None]:
    change(members, "passive")
    try:
        yield
    finally:
        change(members, "active")


def eventually(question: Callable[[], Any], wanted: Any) -> None:
    deadline = time.monotonic() + 120
    while (answer := question()) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    assert answer == wanted


def held(members: LocalCluster, key: str) -> list[list[tuple[int, int]]]:
    """Counter and digest of each map in each copy of the key's partition."""
    with Client(members.members[0].client_address) as client:
        partition = partition_of(to_stored(key), 0, 31)
        told, _ = ask_digests(client, {member.uuid: [partition] for member in members.members})
        copies = [told[member.uuid, partition] for member in members.members]
    return [[(one.counter, one.digest) for one in copy.maps] for copy in copies]


def assert_equal_copies(members: LocalCluster, key: str) -> None:
    def equal() -> bool:
        first, *others = held(members, key)
        return all(other == first for other in others)

    eventually(equal, True)


@pytest.mark.parametrize("redo", [False, True], ids=["", "redo"])
@pytest.mark.parametrize("smart", [True, False], ids=["smart", "unisocket"])
def test_the_python_client(members: LocalCluster, *, smart: bool, redo: bool) -> None:
    addresses = [members.members[0].client_address]
    with connected(members, smart_routing=smart, redo_operation=redo, cluster_members=addresses) as client:
        waiting = client.get_map(f"outcomes {smart} {redo}")
        entries = waiting.blocking()
        key = key_at(members)
        assert entries.put(key, "first") is None
        with stopped_backup(members):
            before = time.monotonic()
            # All at once: each takes the whole `backup_timeout_ms`.
            writes = [
                waiting.put(key, "second"),
                waiting.replace(key, "second"),
                waiting.put_all({key: "second"}),
                waiting.set_ttl(key, 100),
            ]
            for write in writes:
                with pytest.raises(IndeterminateOperationStateError, match="the outcome is unknown") as told:
                    write.result()
                assert members.members[1].uuid in str(told.value), "who is missing is said"
            assert time.monotonic() - before < 60, "none was tried again and again"
            assert entries.get(key) == "second"
        assert_equal_copies(members, key)
        with passive(members), pytest.raises(IllegalStateError, match="not applied"):
            entries.put(key, "third")
        assert entries.get(key) == "second"
        assert entries.put(key, "third") == "second"


def test_the_node_client(members: LocalCluster) -> None:
    key = key_at(members)
    running = start("outcomes", members, key=key, addresses=[members.members[0].client_address])
    assert running.stdout is not None
    assert running.stdin is not None

    def go_on() -> None:
        assert running.stdin is not None
        running.stdin.write("go on\n")
        running.stdin.flush()

    def now() -> None:
        assert running.stdout is not None
        assert running.stdout.readline() == "now\n"

    try:
        now()
        go_on()
        now()
        with stopped_backup(members):
            go_on()
            now()
        with passive(members):
            found = finish(running, "go on\n")["seen"]
    finally:
        if running.poll() is None:
            running.kill()
            running.communicate()
    done, first, unknown, second, refused, third = found
    assert done is None
    assert first == "first"
    assert unknown["name"] == "IndeterminateOperationStateError", json.dumps(found)
    assert members.members[1].uuid in unknown["message"]
    assert second == "second"
    assert refused["name"] == "IllegalStateError"
    assert third == "second"
    assert_equal_copies(members, key)


def put(client: Client, key: str, value: str) -> Value:
    raw = to_stored(key)
    return client.execute(Request(Op.PUT, "outcomes", [partition_of(raw, 0, 31)], raw, to_stored(value)))


def test_our_own_client(members: LocalCluster) -> None:
    key = key_at(members)
    address = members.members[0].client_address
    with Client(address, timeout_s=20, retry_unknown=False) as client:
        assert put(client, key, "first") is None
        with stopped_backup(members), pytest.raises(Unknown, match=members.members[1].uuid):
            put(client, key, "second")
        assert_equal_copies(members, key)
        with passive(members), pytest.raises(Passive):
            put(client, key, "third")
        assert from_stored(put(client, key, "fourth")) == "second"  # type: ignore[arg-type]


def test_our_own_client_asks_again_and_it_is_done_once(members: LocalCluster) -> None:
    key = key_at(members)
    with Client(members.members[0].client_address, timeout_s=20) as client:
        put(client, key, "first")
        before = held(members, key)[0]
        pid = members.members[1].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            answers: list[Value] = []
            asking = threading.Thread(target=lambda: answers.append(put(client, key, "second")))
            asking.start()
            time.sleep(1.5)
            assert answers == []
        finally:
            os.kill(pid, signal.SIGCONT)
        asking.join(120)
        assert [from_stored(answer) for answer in answers] == ["first"]  # type: ignore[arg-type]
        after = held(members, key)[0]
        assert sum(counter for counter, _ in after) == sum(counter for counter, _ in before) + 1


def test_a_member_in_this_process(members: LocalCluster) -> None:
    asyncio.run(_in_process(members))


async def _in_process(members: LocalCluster) -> None:
    settings = {
        "cluster.seeds": members.members[0].member_address,
        "cluster.suspect_after_ms": 120_000,
        "partitions.count": 31,
        "limits.call_timeout_ms": 2000,
        "member.lite": True,
        "member.member_port": 0,
        "member.client_port": 0,
    }
    async with holdfast.Member(holdfast.config.load(None, {}, settings)) as member:
        key = key_at(members)
        entries = member.map("in this process")
        assert await entries.put(key, "first") is None
        with stopped_backup(members):
            with pytest.raises(Unknown, match=members.members[1].uuid):
                await entries.put(key, "second")
            late = asyncio.ensure_future(entries.put(key, "third"))
            await asyncio.sleep(0.2)
        assert await late == "second", "it was tried until the backup had it"
        await member.change_cluster_state("passive")
        with pytest.raises(Passive):
            await entries.put(key, "fourth")
        await member.change_cluster_state("active")
        assert await entries.get(key) == "third"
