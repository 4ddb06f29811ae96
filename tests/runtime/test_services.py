"""Services beside the maps, on real members over real sockets in one process."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.core.operations.queues import Queue
from tests.runtime.in_process.test_embedded import member as plain_member
from tests.runtime.in_process.test_embedded import run
from tests.runtime.in_process.test_files import settings as kept

import holdfast
from holdfast.config import load
from holdfast.errors import Passive
from holdfast.runtime.in_process.embedded import Member
from holdfast_lab.sim.tally import Tally, judge_order, share_of

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "services.md"


def member(*seeds: str, services: list[Tally]) -> Member:
    overrides: dict[str, object] = {
        "member.member_port": 0,
        "member.client_port": 0,
        "cluster.seeds": list(seeds),
        "cluster.heartbeat_ms": 200,
        "cluster.suspect_after_ms": 10_000,
        "partitions.count": 31,
    }
    return Member(load(None, {}, overrides), services=services)


def held(one: Member) -> dict[int, tuple[int, list[int]]]:
    """Partition -> replica index and what its share was told, of those of which this member holds one."""
    inner = one._node.member
    shares = {partition: share_of(inner.picture, partition) for partition in range(31)}
    return {
        partition: (inner.table.rows[partition].index_of(inner.me), list(share.told))
        for partition, share in shares.items()
        if share is not None
    }


def test_calls_go_on_while_members_come_and_go() -> None:
    tallies = [Tally(1), Tally(1), Tally(1)]
    acknowledged: list[int] = []

    async def tell(one: Member, first: int) -> None:
        number = first
        while True:
            answer = await one.service("tally").call(number, b"%d" % number)
            assert int(answer) > 0
            acknowledged.append(number)
            number += 2
            if stop.is_set():
                return

    stop = asyncio.Event()

    async def story() -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(member(services=[tallies[0]]))
            second = await stack.enter_async_context(member(first.member_address, services=[tallies[1]]))
            await second.wait_safe()
            tellers = [asyncio.create_task(tell(one, n)) for n, one in enumerate([first, second])]
            third = member(first.member_address, services=[tallies[2]])
            await third.start()
            await third.wait_safe()
            assert held(third), "it has taken its part"
            await asyncio.sleep(0.05)
            await third.leave()
            await first.wait_safe()
            stop.set()
            await asyncio.gather(*tellers)
            here, there = held(first), held(second)
            assert {partition: told for partition, (_, told) in here.items()} == {
                partition: told for partition, (_, told) in there.items()
            }
            numbers = sorted(number for _, told in here.values() for number in told)
            assert numbers == sorted(acknowledged)
            assert len(acknowledged) > 100
            asked = [await second.service("tally").ask_partition(p, b"count") for p in range(31)]
            assert sum(map(int, asked)) == len(acknowledged)

    run(story())
    for one in tallies:
        assert one.heard
        assert judge_order(one.heard) == []
    assert all(event.new == -1 for what, event in tallies[2].heard[-3:] if what == "commit")


def test_a_key_and_its_partition_are_one_share() -> None:
    async def story() -> None:
        async with member(services=[Tally(0)]) as one:
            service = one.service("tally")
            partition = service.partition_of("key")
            assert await service.call("key", b"5") == b"1"
            assert await service.call_partition(partition, b"6") == b"2"
            assert await service.ask("key", b"total") == b"11"
            assert await service.ask_partition((partition + 1) % 31, b"total") == b"0"
            assert "tally" not in str(one._node.map_names())
            with pytest.raises(ValueError, match="no partition 31: there are 0 to 30"):
                await service.call_partition(31, b"1")
            with pytest.raises(KeyError, match="no service 'other' here; there are: tally"):
                one.service("other")
            await one.change_cluster_state(holdfast.ClusterState.PASSIVE)
            with pytest.raises(Passive):
                await service.call("key", b"1")
            assert await service.ask("key", b"total") == b"11"

    run(story())


@pytest.mark.parametrize(
    ("services", "told"),
    [
        ([], "this cluster runs the service 'tally', you do not"),
        ([Tally(2)], "the service 'tally' has 1 backups in this cluster, yours has 2"),
    ],
)
def test_a_member_with_other_services_is_refused(services: list[Tally], told: str) -> None:
    async def story() -> None:
        async with member(services=[Tally(1)]) as first:
            with pytest.raises(holdfast.Refused, match=told):
                await member(first.member_address, services=services).start()

    run(story())


def test_a_member_with_one_service_more_is_refused() -> None:
    async def story() -> None:
        async with plain_member() as first:
            with pytest.raises(holdfast.Refused, match="you run the service 'tally', this cluster does not"):
                await member(first.member_address, services=[Tally(1)]).start()

    run(story())


def test_impossible_services_are_refused_at_once() -> None:
    spaced, many = Tally(1), Tally(7)
    spaced.name = "a b"
    with pytest.raises(holdfast.ConfigError, match="cannot be called 'a b'"):
        member(services=[spaced])
    with pytest.raises(holdfast.ConfigError, match="backups is 7; use 0 to 6"):
        member(services=[many])
    with pytest.raises(holdfast.ConfigError, match="two services are called 'tally'"):
        member(services=[Tally(1), Tally(1)])


def test_a_journalled_queue_comes_back_from_files_and_lets_callers_wait(tmp_path: Path) -> None:
    """More than a segment is written, so that part of it is in a checkpoint, and part of it in the journal."""
    items = [b"%d" % number * 500 for number in range(200)]

    async def first() -> None:
        async with Member(kept(tmp_path / "files"), services=[Queue(0, "sync")]) as one:
            queue = one.service("queue")
            waits = asyncio.create_task(queue.call_partition(3, b"-20000"))
            for item in items:
                await queue.call_partition(3, b"+" + item)
            assert await waits == items[0]
            assert await queue.call_partition(3, b"-0") == items[1]
            assert await queue.call_partition(4, b"-10") == b"", "nothing has come in time"
            await one.crash()

    async def second() -> None:
        async with Member(kept(tmp_path / "files"), services=[Queue(0, "sync")]) as one:
            queue = one.service("queue")
            assert await queue.ask_partition(3, b"") == b"198"
            assert [await queue.call_partition(3, b"-0") for _ in items[2:]] == items[2:]
            await one.crash()

    async def third() -> None:
        async with Member(kept(tmp_path / "files"), services=[Queue(0, "sync")]) as one:
            assert await one.service("queue").ask_partition(3, b"") == b"0"

    run(first())
    read = subprocess.run(
        [sys.executable, "-m", "holdfast", "journal", "verify", str(tmp_path / "files")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert read.returncode == 0, read.stdout + read.stderr
    run(second())
    run(third())


def test_a_journal_needs_a_directory() -> None:
    with pytest.raises(
        holdfast.ConfigError, match=r"persistence\.directory must be set, because service queue has"
    ):
        Member(load(None, {}, {}), services=[Queue(1, "sync")])


def test_the_example_of_the_documentation_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (told,) = re.findall(r"^It prints (.*)\.$", text, re.MULTILINE)
    example = tmp_path / "example.py"
    example.write_text(code, encoding="utf-8")
    ran = subprocess.run([sys.executable, example], capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == re.findall(r"`([^`]*)`", told)


@pytest.mark.parametrize("name", ["Endpoint", "MigrationEvent", "Service", "Share"])
def test_what_a_service_needs_comes_without_sockets(name: str) -> None:
    code = f"import sys, holdfast; holdfast.{name}; sys.exit('holdfast.runtime.in_process.embedded' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
