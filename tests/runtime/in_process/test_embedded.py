"""The in-process API, with real members over real sockets in one process."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.actions.configure import Configure
from holdfast.client.blocking import Client
from holdfast.config import load
from holdfast.errors import Closing, ConfigError, NoDataMember, NotReady, ProtocolError, Refused, TooLarge
from holdfast.runtime.data_lane import data_lane
from holdfast.runtime.in_process.embedded import Member
from holdfast.runtime.in_process.embedded_maps import Map, milliseconds
from holdfast.serialization import ChangeKind, EntryChange


def run(coroutine: Coroutine[None, None, None]) -> None:
    """Each test has a loop of its own."""
    asyncio.run(coroutine)


def member(*seeds: str, **keywords: object) -> Member:
    overrides: dict[str, object] = {
        "member.member_port": 0,
        "member.client_port": 0,
        "cluster.seeds": list(seeds),
        "cluster.heartbeat_ms": 200,
        "cluster.suspect_after_ms": 10_000,
        "partitions.count": 31,
        **{key.replace("__", "."): value for key, value in keywords.items()},
    }
    return Member(load(None, {}, overrides))


JOIN_TIMEOUTS_MS = 800, 3200, 12_800, 51_200


async def cannot_join(kind: type[Exception], reason: str, seed: str, **keywords: object) -> None:
    """A member with this seed fails to start. On a busy machine its time may end before it has found the reason: then
    another one tries for longer.
    """
    for join_timeout_ms in JOIN_TIMEOUTS_MS:
        with pytest.raises(kind) as failure:
            await member(seed, cluster__join_timeout_ms=join_timeout_ms, **keywords).start()
        if re.search(reason, str(failure.value)):
            return
    raise failure.value


@asynccontextmanager
async def cluster(count: int, **keywords: object) -> AsyncIterator[list[Member]]:
    async with AsyncExitStack() as stack:
        members = [await stack.enter_async_context(member(**keywords))]
        for _ in range(count - 1):
            members.append(await stack.enter_async_context(member(members[0].member_address, **keywords)))
        for one in members:
            await one.wait_safe()
        yield members
        if any(one._crashed for one in members):
            # The last member would wait half a minute for those that were removed, as they may return with their data.
            for one in members:
                await one.crash()


def test_every_call_of_a_map() -> None:
    async def story() -> None:
        async with cluster(2) as (first, second):
            here, there = first.map("m"), second.map("m")
            assert await here.put("a", 1) is None
            assert await there.put("a", 2) == 1
            await here.set(7, {"deep": [1, None, True, 2.5]})
            assert await there.get(7) == {"deep": [1, None, True, 2.5]}
            assert await there.put_if_absent("a", 3) == 2
            assert await there.put_if_absent("b", b"bytes") is None
            assert await here.replace("zz", 1) is None
            assert await here.replace("b", "new") == b"bytes"
            assert not await here.replace_if_same("b", "old", "x")
            assert await here.replace_if_same("b", "new", 2**70)
            assert await there.get("b") == 2**70
            assert await here.contains_key("b")
            assert await here.contains_value(2**70)
            assert not await here.contains_value("nowhere")
            assert await here.size() == 3
            assert sorted(map(str, await there.keys())) == ["7", "a", "b"]
            assert await here.entries() == {"a": 2, 7: {"deep": [1, None, True, 2.5]}, "b": 2**70}
            assert not await here.remove_if_same("a", 1)
            assert await here.remove_if_same("a", 2)
            assert await here.remove("b") == 2**70
            assert await here.delete(7)
            assert not await here.delete(7)
            assert await here.is_empty()
            await here.put_all({n: n * n for n in range(200)})
            assert await there.get_all([3, 4, 1000]) == {3: 9, 4: 16}
            assert sum(n for n in await there.values() if isinstance(n, int)) == sum(
                n * n for n in range(200)
            )
            assert await there.evict(3)
            await there.clear()
            assert await here.size() == 0

    run(story())


async def stays_in_use(m: Map[Any, Any], other: Map[Any, Any], idle_s: float) -> bool:
    """An entry that is used often enough stays. False: a use came too late to prove that, on a busy machine."""
    used_s = time.monotonic()
    await m.put("idle", 1, max_idle_s=idle_s)
    for _ in range(4):
        await asyncio.sleep(0.15)
        asked_s = time.monotonic()
        found = await other.get("idle")
        if time.monotonic() - used_s >= idle_s:
            return False
        assert found == 1
        used_s = asked_s
    return True


def copies(*members: Member) -> list[int]:
    return [one.status().entries.all for one in members]


def subscribed(one: Member) -> bool:
    """Whether another member has told this one that it listens to the map."""
    return bool(one._node.member.picture.subscribers("m"))


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not reached():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.02)


def test_entries_end_by_time_to_live_and_by_idleness() -> None:
    async def story() -> None:
        async with cluster(2) as (first, second):
            m = first.map("m")
            await m.put("ttl", 1, ttl_s=0.3)
            await m.put("stays", 1)
            while not await stays_in_use(m, second.map("m"), 0.4):
                pass
            await asyncio.sleep(0.3)
            assert await m.get("ttl") is None
            await until(lambda: copies(first, second) == [1, 1])
            assert await m.keys() == ["stays"]

    run(story())


def test_listeners_hear_of_changes_on_every_member() -> None:
    async def story() -> None:
        async with cluster(2) as (first, second):
            heard: list[EntryChange] = []
            end = first.map("m").listen(heard.append)
            await until(lambda: subscribed(second))
            for key in range(20):
                await second.map("m").put(key, key)
            await second.map("m").put(0, "x")
            await second.map("m").remove(1)
            await until(lambda: len(heard) >= 22)
            kinds = [event.kind for event in heard]
            assert kinds.count(ChangeKind.ADDED) == 20
            assert kinds.count(ChangeKind.UPDATED) == 1
            assert kinds.count(ChangeKind.REMOVED) == 1
            changed = next(event for event in heard if event.kind is ChangeKind.UPDATED)
            assert (changed.key, changed.value, changed.old, changed.count) == (0, "x", 0, 1)
            assert {change.member for change in heard} == {first.uuid, second.uuid}
            end()
            await until(lambda: not subscribed(second))
            await second.map("m").put("after", 1)
            await asyncio.sleep(0.2)
            assert len(heard) == 22

    run(story())


def test_a_crash_of_one_of_three_loses_nothing_and_copies_are_restored() -> None:
    async def story() -> None:
        async with cluster(3) as members:
            m = members[0].map("m")
            await m.put_all({n: f"v{n}" for n in range(500)})
            await members[2].crash()
            assert await m.get_all(range(500)) == {n: f"v{n}" for n in range(500)}
            await members[0].wait_safe()
            assert sum(one.status().entries.all for one in members[:2]) == 1000

    run(story())


def test_leaving_takes_everything_to_those_who_stay() -> None:
    async def story() -> None:
        async with cluster(1, maps__default__backups=0) as (first,):
            second = member(first.member_address, maps__default__backups=0)
            await second.start()
            await second.wait_safe()
            m = first.map("m")
            await m.put_all({n: n for n in range(300)})
            await second.leave()
            assert await m.size() == 300, "without any backup, a graceful leave still loses nothing"

    run(story())


def test_an_operator_slows_partitions_down_that_move() -> None:
    """`partitions.max_in_flight_bytes` counts from when it is changed."""

    async def story() -> None:
        async with member() as first:
            await first.wait_safe()
            await first.map("m").put_all(dict.fromkeys(range(2000), "v" * 100))
            await first._node.control.run(Configure({"partitions.max_in_flight_bytes": "1500"}), 1)
            flow = first._node.member.source.flow
            async with member(first.member_address) as second:
                await second.wait_safe()
                assert await second.map("m").size() == 2000
                assert flow.bytes_full > 200_000
                assert flow.chunks_sent > flow.bytes_full / 1500
            await first._node.control.run(Configure({"partitions.max_in_flight_bytes": "16777216"}), 1)
            before, sent = flow.chunks_sent, flow.bytes_full
            async with member(first.member_address) as third:
                await third.wait_safe()
            assert flow.bytes_full - sent > 100_000
            assert flow.chunks_sent - before < (flow.bytes_full - sent) / 1500

    run(story())


def test_a_member_says_which_data_lane_it_has() -> None:
    async def story() -> None:
        async with member(member__lane="python") as plain, member() as free:
            told = plain.status()
            assert (told.lane, told.lane_reason) == ("python", "member.lane = 'python'")
            told = free.status()
            assert (told.lane, told.lane_reason) == (data_lane().kind, data_lane().why)

    run(story())


def test_a_lite_member_owns_nothing_and_serves_everything() -> None:
    async def story() -> None:
        async with cluster(1) as (first,), member(first.member_address, member__lite=True) as lite:
            await lite.map("m").put("k", "v")
            assert await first.map("m").get("k") == "v"
            assert lite.status().partitions.primaries == 0

    run(story())


def logged(caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == level]


@pytest.mark.parametrize(
    ("settings", "level", "words"),
    [
        ({}, "WARNING", "partitions lost their owners: a backup has taken over, no entry is gone"),
        ({"maps__default__backups": 0}, "ERROR", "partitions lost: they wait for a copy to return"),
        (
            {"maps__default__backups": 0, "partitions__lost": "accept"},
            "ERROR",
            "partitions lost: started again, empty",
        ),
    ],
)
def test_after_a_crash_the_logs_name_who_is_gone_and_what_is_lost(
    caplog: pytest.LogCaptureFixture, settings: dict[str, object], level: str, words: str
) -> None:
    async def story() -> None:
        async with cluster(3, **settings) as members:
            last = members[2]
            address, name = last.member_address, last.client_address
            owned = last.status().partitions.primaries
            await last.crash()
            gone = f"member gone without leaving: .* name={name} address={address}"
            for _ in range(400):
                told = [line for line in logged(caplog, "WARNING") if re.match(gone, line)]
                lost = [line for line in logged(caplog, level) if line.startswith(words)]
                if len(told) == len(lost) == 2:
                    break
                await asyncio.sleep(0.02)
            assert len(told) == 2, "by each of those who stay"
            assert len(lost) == 2, "what is lost, too"
            assert all(f"count={owned} partitions=" in line for line in lost)
            for one in members:
                await one.crash()

    run(story())


def test_nobody_is_warned_of_a_member_that_leaves(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with cluster(1) as (first,):
            async with member(first.member_address) as second:
                await second.wait_safe()
            await first.wait_safe()

    run(story())
    assert logged(caplog, "WARNING") == []


def test_a_member_that_is_not_started_says_so_and_can_be_started_then() -> None:
    async def story() -> None:
        one = member()
        flights = one.map("flights")
        for call in (flights.put("k", "v"), flights.get("k"), flights.size(), one.wait_safe(), one.promote()):
            with pytest.raises(NotReady, match="not started yet: await its start"):
                await call
        for look in (
            one.status,
            one.unsafe_reason,
            lambda: one.safe,
            lambda: one.client_address,
            lambda: one.lite,
        ):
            with pytest.raises(NotReady, match="not started yet"):
                look()
        await one.leave()  # there is nothing to leave
        assert one.uuid
        async with one:
            await flights.put("k", "v")
            assert await flights.get("k") == "v"
            with pytest.raises(Refused, match="started before"):
                await one.start()
            assert await flights.size() == 1
        with pytest.raises(Refused, match="started before"):
            await one.start()

    run(story())


def test_lite_members_alone_say_at_once_that_nobody_holds_data() -> None:
    async def story() -> None:
        async with member(member__lite=True) as lite:
            with pytest.raises(NoDataMember, match="lite members alone"):
                await asyncio.wait_for(lite.map("m").put("k", "v"), 60)
            with pytest.raises(NoDataMember):
                await asyncio.wait_for(lite.map("m").get("k"), 60)
            with pytest.raises(NoDataMember):
                await asyncio.wait_for(lite.map("m").size(), 60)
            async with member(lite.member_address) as data:
                await lite.map("m").put("k", "v")
                await data.crash()
            with pytest.raises(NoDataMember):
                await asyncio.wait_for(lite.map("m").get("k"), 120)
            await lite.crash()

    run(story())


def test_copies_keep_to_different_zones() -> None:
    async def story() -> None:
        shared = {"partitions__group_by": "zone"}
        async with AsyncExitStack() as stack:
            members: list[Member] = []
            for zone in ("east", "east", "west"):
                seeds = [members[0].member_address] if members else []
                one = member(*seeds, member__availability_zone=zone, **shared)
                members.append(await stack.enter_async_context(one))
            for one in members:
                await one.wait_safe()
            west = members[2].status().partitions
            assert west.primaries + west.backups == 31

    run(story())


def test_a_member_with_other_settings_is_refused_with_the_key() -> None:
    async def story() -> None:
        async with cluster(1) as (first,):
            with pytest.raises(
                holdfast.Refused, match=r"partitions\.count is 31 in this cluster, yours is 32"
            ):
                await member(first.member_address, partitions__count=32).start()

    run(story())


def test_what_is_too_large_or_of_no_type_is_refused_and_changes_nothing() -> None:
    async def story() -> None:
        async with cluster(1, limits__value_bytes=1000) as (first,):
            m = first.map("m")
            with pytest.raises(TooLarge, match=r"limits\.value_bytes is 1000"):
                await m.put("k", "x" * 2000)
            with pytest.raises(TypeError, match="cannot be stored"):
                await m.put("k", object())
            with pytest.raises(TypeError, match="remove the entry instead"):
                await m.put("k", None)
            assert await m.size() == 0

    run(story())


def test_whoever_takes_one_port_for_another_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    async def heard(address: str, said: bytes) -> bytes:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(said)
        answer = await asyncio.wait_for(reader.read(), 120)
        writer.close()
        return answer

    async def story() -> None:
        async with cluster(1) as (first,):
            clients, members = first.client_address, first.member_address
            port = clients.rpartition(":")[2]
            with pytest.raises(
                ProtocolError,
                match=f"{members} is the port for members .* give the port for clients .*, which is {port}",
            ):
                await asyncio.to_thread(Client(members).status)
            assert b"400 Bad Request" in await heard(clients, b"GET / HTTP/1.1\r\n\r\n")
            assert "an HTTP request came to the port for clients" in caplog.text
            await heard(clients, b"GET / HTTP/1.1\r\n\r\n")
            assert "an HTTP request came to the port for clients" in caplog.text
            await heard(clients, b"\x16\x03\x01\x00\xa0")
            assert "a TLS client came to the port for clients" in caplog.text
            await heard(members, b"GET / HTTP/1.1\r\n\r\n")
            assert "an HTTP request came to the port for members" in caplog.text
            await heard(members, b"CP2" + bytes(40))
            assert "a Hazelcast client came to the port for members" in caplog.text

            lost = member(clients, cluster__join_timeout_ms=6000)
            with pytest.raises(
                TimeoutError,
                match=r"there is the port for clients .* give the port for members .*, which is \d+",
            ):
                await lost.start()
            assert (
                "no cluster found yet, trying for 6 s (cluster.join_timeout_ms); cluster.seeds: "
                in caplog.text
            )

    run(story())


def test_clients_at_the_http_port_are_told_which_port_they_want() -> None:
    async def story() -> None:
        async with member(http__enabled=True, http__port=0) as only:
            address = str(only.status().http)

            def ours() -> None:
                with pytest.raises(
                    ProtocolError, match=r"is the port for HTTP .*; give the port for clients"
                ):
                    Client(address, timeout_s=60).status()

            await asyncio.to_thread(ours)
            with pytest.raises(ConfigError, match=r"is the port for HTTP .*; give the port for clients"):
                await aio.Client(address).connect()

    run(story())


def test_a_member_whose_seed_is_something_else_says_what(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"SSH-2.0-OpenSSH_9.9\r\n")
            await reader.read()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            host, port = server.sockets[0].getsockname()
            reason = f"{host}:{port}: there is an SSH server; give the port for members"
            await cannot_join(TimeoutError, reason, f"{host}:{port}")

    run(story())


def test_a_member_with_another_secret_is_not_heard() -> None:
    async def story() -> None:
        async with cluster(1, security__member_secret="one") as (first,):
            reason = r"security.member_secret is not the one that the members at"
            await cannot_join(Closing, reason, first.member_address, security__member_secret="two")
            assert len(first.status().members) == 1

    run(story())


@pytest.mark.parametrize("name", ["", "__objects", "__x", "x" * 1025])
def test_maps_of_the_members_are_not_for_programs(name: str) -> None:
    with pytest.raises(ConfigError, match="is no name for a map"):
        member().map(name)


@pytest.mark.parametrize("seconds", [-1.0, 1e300, float("nan"), float("inf")])
def test_a_lifetime_has_an_end_that_fits(seconds: float) -> None:
    with pytest.raises(ValueError, match="a lifetime"):
        milliseconds(seconds)
