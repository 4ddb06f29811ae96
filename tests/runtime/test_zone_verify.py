"""`holdfast verify` and `repair` of maps in zones, against real members in this process: damaged by hand, late, and
under load.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.cluster.crew import until
from tests.runtime.in_process.test_embedded import cluster, run

from holdfast.actions.change_zone import CreateZone
from holdfast.actions.operator_action import OperatorAction
from holdfast.cli.main import holdfast
from holdfast.client.blocking import Client
from holdfast.client.connection import Credentials
from holdfast.client.operator import CarriedOut, act_at_any
from holdfast.client_core.routing import parse_addresses
from holdfast.core.model.ids import group_of
from holdfast.core.raft.raft_messages import RaftKind, RaftMessage
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast.core.store.replica_comparison import Finding
from holdfast.errors import Refused, Unknown
from holdfast.replica_comparison.comparison_report import Report
from holdfast.replica_comparison.live import diverged, verify
from holdfast.runtime.in_process.embedded import Member
from holdfast.wire.values import to_stored

ROWS = {number: f"value {number}" for number in range(600)}
ZONED: dict[str, Any] = {
    "metastore__voters": 3,
    "http__enabled": True,
    "http__port": 0,
    "partitions__count": 7,
    "maps__orders__raft_zone": "z",
    "maps__nowhere__raft_zone": "none",
    "limits__call_timeout_ms": 5000,
}


@asynccontextmanager
async def zoned_members(**more: object) -> AsyncIterator[list[Member]]:
    """Three members that end at once: who leaves waits until no zone needs it."""
    async with cluster(3, **ZONED, **more) as members:
        try:
            yield members
        finally:
            for one in members:
                await one.crash()


async def command(members: list[Member], *words: str) -> Result:
    arguments = [*words, "-a", members[0].client_address]
    return await asyncio.to_thread(CliRunner().invoke, holdfast, arguments, catch_exceptions=False)


async def told(members: list[Member], *words: str) -> tuple[int, dict[str, Any]]:
    result = await command(members, *words, "--json")
    return result.exit_code, json.loads(result.stdout)


async def order(members: list[Member], wanted: OperatorAction) -> CarriedOut:
    addresses = parse_addresses(members[0].client_address)
    return await asyncio.to_thread(act_at_any, addresses, Credentials(), wanted)


async def zoned(members: list[Member], **settings: Any) -> None:
    """Create the zone, wait for its leaders, and fill its map."""
    await order(members, CreateZone("z", replicas=3, **settings))
    agreed = members[0]._node.member.agreed
    await until(
        lambda: bool(agreed.view.zones()) and not agreed.view.summary(agreed.view.zones()[0]).leaderless
    )
    await members[0].map("orders").put_all(ROWS)
    for partition in range(7):
        await until(partial(still, members, partition))


def still(members: list[Member], partition: int) -> bool:
    """Whether all three replicas have all that was written."""
    found = list(replicas(members, partition).values())
    whole = len(found) == 3 and all("orders" in one.state.copies[partition].maps for one in found)
    return whole and len({one.state.copies[partition].maps["orders"].counter for one in found}) == 1


def replicas(members: list[Member], partition: int) -> dict[str, ZonePartition]:
    """Who has a replica, by node, the leader first."""
    found = {}
    for one in members:
        hosted = one._node.member.agreed.groups.hosted.get(group_of(1, partition))
        if hosted is not None:
            assert isinstance(hosted.client, ZonePartition)
            found[one._node.member.agreed.groups.me] = hosted.client
    return dict(sorted(found.items(), key=lambda named: not named[1].leads))


async def look(members: list[Member], pause: Callable[[float], None] | None = None) -> Report:
    def ask() -> Report:
        with Client(members[0].client_address, timeout_s=5) as client:
            return verify(client, pause=pause) if pause is not None else verify(client)

    return await asyncio.to_thread(ask)


def wrong(findings: list[Finding]) -> set[tuple[int, str, str]]:
    return {(one.partition, one.map, one.member) for one in findings}


def test_replicas_of_a_sound_zone_are_compared_and_a_zone_that_is_not_there_is_said() -> None:
    async def story() -> None:
        async with zoned_members() as members:
            status, plain = await told(members, "verify")
            assert (status, plain["zones"]) == (0, {})
            assert plain["maps_without_zone"] == {"orders": "z", "nowhere": "none"}
            await zoned(members)
            status, plain = await told(members, "verify")
            assert (status, plain["sound"]) == (0, True), plain
            assert (plain["zones"], plain["copies"]) == ({"z": 7}, 14), (
                "of three replicas two, with the third"
            )
            status, plain = await told(members, "verify", "--map", "orders", "--partition", "3")
            assert (status, plain["zones"], plain["copies"]) == (0, {"z": 1}, 2)
            nowhere = await command(members, "verify", "--map", "nowhere")
            assert nowhere.exit_code == 0
            assert "map nowhere lives in zone none, which does not exist" in nowhere.stdout
            assert (await command(members, "verify", "--map", "order")).exit_code == 2
            assert {key: value async for key, value in members[1].map("orders").entries()} == ROWS
            assert (
                await members[2].map("orders").get_all(ROWS)
                == await members[2].map("orders").entries()
                == ROWS
            )
            assert await members[0].map("orders").remove_all(list(ROWS)[:3]) == 3

    run(story())


def test_each_damage_to_a_replica_is_found_and_named() -> None:
    async def story() -> None:
        async with zoned_members() as members:
            await zoned(members)
            expected = set()
            kinds = ("value", "lost", "added", "time", "counter", "lineage", "leader")
            for partition, kind in enumerate(kinds):
                named = replicas(members, partition)
                name = list(named)[0 if kind == "leader" else 1 + partition % 2]
                state = named[name].state
                held = state.copies[partition].maps["orders"]
                key = next(iter(held.state.entries))
                match kind:
                    case "value" | "leader":
                        held.state.entries[key] = to_stored("rotten")
                    case "lost":
                        held.state.drop(key)
                    case "added":
                        held.state.entries[to_stored("stray")] = to_stored("stray")
                    case "time":
                        held.state.schedule(key, 3_600_000, 0, 0)
                    case "counter":
                        held.updates.next()
                    case "lineage":
                        held.lineage[-1] = (held.lineage[-1][0] + 7, held.lineage[-1][1])
                expected.add((partition, "orders", name))
            report = await look(members)
            assert wrong(report.conflicts) == expected
            assert report.undecided == []
            assert all(one.index > 0 and one.zone == "z" for one in report.findings)
            found = await asyncio.to_thread(diverged, members[0].client_address)
            assert len(found) == len(kinds)

            shown = await command(members, "verify")
            assert shown.exit_code == 1
            assert "7 differs, 0 older, 0 busy, 0 unreachable" in shown.stdout
            assert "zone z: 7 partitions, 1 maps (orders), 14 copies compared" in shown.stdout
            _, plain = await told(members, "verify", "--keys")
            keys = {(one["partition"], one["held"], one["value_bytes"] > 0) for one in plain["keys"]}
            # 0 and 6: a rotten value; 1: a lost key; 2: a stray one; 3: one that has ended.
            assert {one["partition"] for one in plain["keys"]} == {0, 1, 2, 3, 6}
            assert {(0, True, True), (1, False, False), (1, True, True), (2, False, False)} <= keys
            assert plain["keys_open"] == 0
            told_only = await command(members, "repair", "--strategy", "majority", "--dry-run")
            assert told_only.exit_code == 1
            assert told_only.stdout.count("would be rebuilt from its leader's state") == 7
            mended = await command(members, "repair", "--strategy", "primary", "--map", "orders")
            assert mended.exit_code == 0, mended.stdout
            assert "7 copies refilled" in mended.stdout
            assert "0 differs" in mended.stdout.splitlines()[-1]
            again = await command(members, "repair", "--strategy", "majority", "--map", "orders")
            assert "nothing to repair: 14 copies were compared" in again.stdout
            assert {key: value async for key, value in members[1].map("orders").entries()} == ROWS

    run(story())


def test_it_decides_while_every_partition_is_written_all_the_time() -> None:
    async def story() -> None:
        async with zoned_members() as members:
            await zoned(members)
            ended = asyncio.Event()
            written = 0

            async def write(turn: int) -> None:
                nonlocal written
                while not ended.is_set():
                    # A group that is handed over refuses what comes just then.
                    with suppress(Refused, Unknown):
                        await (
                            members[turn % 3]
                            .map("orders")
                            .set(turn * 1000 + written % 97, f"again {written}")
                        )
                        written += 1

            writers = [asyncio.create_task(write(turn)) for turn in range(12)]
            try:
                before = written
                report = await look(members)
                assert (report.conflicts, report.undecided) == ([], [])
                assert report.copies == 14
                during = written - before
                name = list(replicas(members, 4))[1]
                hurt = replicas(members, 4)[name].state.copies[4].maps["orders"].state.entries
                hurt[next(iter(hurt))] = to_stored("rotten")
                hurt[to_stored("stray")] = to_stored("stray")
                report = await look(members)
                assert wrong(report.conflicts) == {(4, "orders", name)}
                assert report.undecided == []
                assert during > 0, "nobody has written meanwhile"
            finally:
                ended.set()
                await asyncio.gather(*writers)

    run(story())


@pytest.mark.slow
def test_who_is_behind_is_busy_with_its_lag_and_who_is_silent_cannot_be_compared() -> None:
    async def story() -> None:
        async with zoned_members() as members:
            await zoned(members)
            name = list(replicas(members, 2))[1]
            late = next(one for one in members if one._node.member.agreed.groups.me == name)
            hosted = late._node.member.agreed.groups.hosted[group_of(1, 2)]
            step = hosted.group.step

            def hear(message: RaftMessage) -> None:
                if message.kind is not RaftKind.APPEND:
                    step(message)

            # It hears that its leader is there, and nothing that is in the log.
            hosted.group.step = hear  # type: ignore[method-assign]
            for number in range(50):
                await members[0].map("orders").set(number, "later")
            report = await look(members, pause=lambda seconds: time.sleep(seconds / 4))
            assert [(one.partition, one.member, one.verdict) for one in report.undecided] == [
                (2, name, "busy")
            ]
            assert report.conflicts == []
            await late.crash()
            others = [one for one in members if one is not late]
            report = await look(others, pause=lambda seconds: time.sleep(seconds / 4))
            silent = [one for one in report.undecided if one.verdict == "unreachable"]
            assert {one.partition for one in silent} == set(range(7))
            assert (await command(others, "verify")).exit_code == 3
            assert (await command(others, "repair", "--strategy", "primary", "--dry-run")).exit_code == 3

    run(story())
