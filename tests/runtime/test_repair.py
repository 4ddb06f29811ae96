"""`holdfast verify` and `holdfast repair` against real members in this process, whose copies are damaged by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.runtime.in_process.test_embedded import cluster, member, run

from holdfast.actions.refill import Refill
from holdfast.cli.main import holdfast
from holdfast.client.blocking import Client
from holdfast.core.store.replica import MapReplica
from holdfast.replica_comparison.comparison_report import Report
from holdfast.replica_comparison.live import verify
from holdfast.replica_comparison.repair import carry_out, make_plans
from holdfast.runtime.in_process.embedded import Member
from holdfast.wire.values import from_stored, to_stored
from holdfast_lab.processes.local_cluster import free_ports

PARTITIONS = 31
ROWS = {number: f"value {number}" for number in range(600)}


async def command(members: list[Member], *words: str) -> Result:
    arguments = [*words, "-a", members[0].client_address]
    return await asyncio.to_thread(CliRunner().invoke, holdfast, arguments, catch_exceptions=False)


async def told(members: list[Member], *words: str) -> tuple[int, dict[str, Any]]:
    result = await command(members, *words, "--json")
    return result.exit_code, json.loads(result.stdout)


async def look(members: list[Member], *, partitions: list[int] | None = None) -> Report:
    def ask() -> Report:
        with Client(members[0].client_address) as client:
            return verify(client, partitions=partitions)

    return await asyncio.to_thread(ask)


def held(members: list[Member], partition: int, replica: int, name: str = "m") -> MapReplica:
    row = members[0]._node.member.table.rows[partition]
    holder = next(one for one in members if one.uuid == row.replicas[replica])
    return holder._node.member.copies.held[partition].maps[name]


def damaged(members: list[Member]) -> dict[int, str]:
    """Four kinds of damage to the first backup, in four partitions."""
    wrong, missing, extra, behind = (held(members, partition, 1) for partition in (3, 4, 5, 6))
    key = next(iter(wrong.state.entries))
    wrong.state.entries[key] = to_stored("wrong")
    missing.state.drop(next(iter(missing.state.entries)))
    extra.state.entries[key_in(5, "extra")] = to_stored("extra")
    behind.updates = type(behind.updates)(behind.updates.lwm - 1)
    return {3: "content", 4: "content", 5: "content", 6: "counter"}


def key_in(partition: int, prefix: str) -> bytes:
    from holdfast.core.model.keys import partition_of

    keys = (to_stored(f"{prefix}{number}") for number in range(100_000))
    return next(key for key in keys if partition_of(key, 0, PARTITIONS) == partition)


def kinds(plain: dict[str, Any]) -> dict[int, str]:
    found = {one["partition"]: "counter" for one in plain["findings"] if one["counter_conflict"]}
    return found | {one["partition"]: "content" for one in plain["findings"] if one["content_conflict"]}


async def content(members: list[Member]) -> dict[object, object]:
    return await members[0].map("m").entries()


def test_a_sound_cluster_is_said_to_be() -> None:
    async def story() -> None:
        async with cluster(3, maps__default__backups=2) as members:
            await members[0].map("m").put_all(ROWS)
            status, plain = await told(members, "verify", "--keys")
            assert (status, plain["sound"], plain["partitions"], plain["copies"]) == (0, True, 31, 62)
            assert plain["keys"] == plain["tables"] == plain["findings"] == []
            shown = await command(members, "verify", "--map", "m", "--partition", "3")
            assert "1 partitions, 2 copies compared" in shown.stdout
            assert shown.exit_code == 0
            assert (await command(members, "verify", "--partition", "31")).exit_code == 2
            for asked in (("verify",), ("repair", "--strategy", "primary")):
                unknown = await command(members, *asked, "--map", "mm")
                assert unknown.exit_code == 2
                assert "there is no map 'mm' with entries: did you mean 'm'? there are m" in unknown.stderr
            nobody = await asyncio.to_thread(
                CliRunner().invoke, holdfast, ["verify", "-a", f"127.0.0.1:{free_ports(1)[0]}"]
            )
            assert nobody.exit_code == 4, "no member can be reached"

    run(story())


def test_damage_is_found_by_kind_and_key() -> None:
    async def story() -> None:
        async with cluster(3, replication__anti_entropy_ms=0) as members:
            await members[0].map("m").put_all(ROWS)
            expected = damaged(members)
            status, plain = await told(members, "verify", "--keys")
            assert (status, kinds(plain)) == (1, expected)
            assert [one["partition"] for one in plain["findings"] if one["counter_conflict"]] == [6]
            assert [(one["partition"], one["held"]) for one in plain["keys"]] == [
                (3, True), (3, True), (4, True), (4, False), (5, False), (5, True)
            ]  # fmt: skip
            assert from_stored(bytes.fromhex(plain["keys"][1]["value"])) == "wrong"
            shown = await command(members, "verify", "--keys")
            assert "1 counter conflicts, 3 content conflicts" in shown.stdout
            assert "partition 3, map m, key" in shown.stdout
            assert "extra" in shown.stdout

    run(story())


@pytest.mark.rule("replica_comparison/R-2")
@pytest.mark.parametrize("strategy", ["primary", "newest", "majority"])
def test_each_strategy_mends_a_damaged_backup(strategy: str) -> None:
    async def story() -> None:
        # Members would mend some of it themselves on a busy machine.
        async with cluster(3, maps__default__backups=2, replication__anti_entropy_ms=0) as members:
            await members[0].map("m").put_all(ROWS)
            expected = damaged(members)
            status, plain = await told(members, "repair", "--strategy", strategy, "--dry-run")
            assert status == 1
            assert sorted(plan["partition"] for plan in plain["plans"]) == [3, 4, 5, 6]
            assert all(
                len(plan["refill"]) == 1 and not plan["writes"] and not plan["skip_reason"]
                for plan in plain["plans"]
            )
            assert kinds((await told(members, "verify"))[1]) == expected, "a dry run changes nothing"

            status, plain = await told(members, "repair", "--strategy", strategy)
            assert plain["outcome"] == {"refilled": 4, "written": 0, "overtaken": 0, "failed": []}
            assert (status, plain["after"]["sound"]) == (0, True)
            assert await content(members) == ROWS
            # The backups follow again.
            await members[0].map("m").put_all(dict.fromkeys(range(100), "new"))
            assert (await told(members, "verify"))[0] == 0

    run(story())


def test_the_majority_is_right_against_the_primary() -> None:
    async def story() -> None:
        async with cluster(3, maps__default__backups=2) as members:
            await members[0].map("m").put_all(ROWS)
            primary = held(members, 7, 0)
            wrong, missing, *_ = primary.state.entries
            extra = key_in(7, "extra")
            primary.state.entries[wrong] = to_stored("wrong")
            lost = primary.state.entries.pop(missing)
            primary.state.entries[extra] = to_stored("extra")
            status, plain = await told(members, "repair", "--strategy", "majority", "--dry-run")
            (plan,) = plain["plans"]
            assert (status, len(plan["writes"]), len(plan["refill"])) == (1, 3, 2)
            writes = {write["stored"]: write for write in plan["writes"]}
            assert writes[extra.hex()]["right"] is None
            assert writes[missing.hex()]["seen"] is None
            assert writes[missing.hex()]["right"] == lost.hex()

            status, plain = await told(members, "repair", "--strategy", "majority")
            assert plain["outcome"] == {"refilled": 2, "written": 3, "overtaken": 0, "failed": []}
            assert status == 0
            assert await content(members) == ROWS
            assert primary.counter == held(members, 7, 1).counter, "what mends is counted as every write"

    run(story())


def test_the_newest_copy_is_right_against_the_primary_and_a_backup_that_lacks_updates() -> None:
    async def story() -> None:
        async with cluster(3, maps__default__backups=2) as members:
            m = members[0].map("m")
            await m.put_all(ROWS)
            first = next(number for number in ROWS if to_stored(number) in held(members, 7, 0).state.entries)
            await m.put(first, "the newest")
            newest = held(members, 7, 2)
            for replica, lag in ((0, 1), (1, 2)):
                old = held(members, 7, replica)
                old.state.entries[to_stored(first)] = to_stored(ROWS[first])
                old.updates = type(old.updates)(newest.counter - lag)
            status, plain = await told(members, "repair", "--strategy", "newest", "--dry-run")
            (plan,) = plain["plans"]
            assert [from_stored(bytes.fromhex(write["right"])) for write in plan["writes"]] == ["the newest"]
            status, plain = await told(members, "repair", "--strategy", "newest")
            assert plain["outcome"] == {"refilled": 2, "written": 1, "overtaken": 0, "failed": []}
            assert status == 0
            assert await content(members) == {**ROWS, first: "the newest"}

    run(story())


@pytest.mark.rule("replica_comparison/R-3")
def test_a_tie_is_left_alone_unless_the_primary_decides() -> None:
    async def story() -> None:
        async with cluster(2) as members:
            await members[0].map("m").put_all(ROWS)
            backup = held(members, 3, 1)
            backup.state.entries[next(iter(backup.state.entries))] = to_stored("wrong")
            status, plain = await told(members, "repair", "--strategy", "majority")
            (plan,) = plain["plans"]
            assert (status, plan["skip_reason"], len(plan["ties"]), plan["refill"]) == (1, "a tie", 1, [])
            shown = await command(members, "repair", "--strategy", "majority", "--dry-run")
            assert "1 keys without a majority: left alone" in shown.stdout
            assert (
                await command(members, "repair", "--strategy", "newest", "--tie", "primary")
            ).exit_code == 2
            status, plain = await told(members, "repair", "--strategy", "majority", "--tie", "primary")
            assert (status, plain["outcome"]["refilled"]) == (0, 1)
            assert await content(members) == ROWS

    run(story())


def test_a_newer_write_is_never_overwritten() -> None:
    async def story() -> None:
        async with cluster(3, maps__default__backups=2) as members:
            m = members[0].map("m")
            await m.put_all(ROWS)
            primary = held(members, 7, 0)
            keys = [number for number in ROWS if to_stored(number) in primary.state.entries][:3]
            for number in keys:
                primary.state.entries[to_stored(number)] = to_stored("wrong")
            report = await look(members)

            def plan_then(wait: Callable[[], None]) -> Any:
                with Client(members[0].client_address) as client:
                    plans = list(make_plans(client, report, "majority"))
                    wait()
                    return carry_out(client, plans)

            loop = asyncio.get_running_loop()

            def overtake() -> None:
                async def write() -> None:
                    await m.put(keys[0], "newer")
                    await m.delete(keys[1])

                asyncio.run_coroutine_threadsafe(write(), loop).result(120)

            outcome = await asyncio.to_thread(plan_then, overtake)
            assert (outcome.written, outcome.overtaken, outcome.failed) == (1, 2, [])
            expected = {**ROWS, keys[0]: "newer"}
            del expected[keys[1]]
            assert await content(members) == expected
            assert (await look(members)).conflicts == []

    run(story())


@pytest.mark.rule("replica_comparison/R-4")
def test_writes_go_on_while_a_backup_that_lacks_updates_is_filled_anew() -> None:
    """What was written while the backup was wrong, and while it was filled, is on it in the end."""

    async def story() -> None:
        async with cluster(2, partitions__chunk_bytes=1024) as members:
            m = members[0].map("m")
            await m.put_all(dict.fromkeys(ROWS, "x" * 200))
            behind = held(members, 6, 1)
            behind.updates = type(behind.updates)(behind.updates.lwm - 1)
            mine = [number for number in ROWS if to_stored(number) in behind.state.entries]
            waiting = [asyncio.create_task(m.put(number, "while wrong")) for number in mine[: len(mine) // 2]]
            await asyncio.sleep(0.2)
            assert not any(one.done() for one in waiting), "the backup cannot say that it holds them"

            async def go_on() -> None:
                for number in mine:
                    waiting.append(asyncio.create_task(m.put(number, f"{number} while filled")))
                    await asyncio.sleep(0)

            primary = next(one for one in members if one.uuid == owner_of(members, 6))
            backup = next(one for one in members if one is not primary)
            refill = asyncio.create_task(primary._node.control.run(Refill(6, backup.uuid), 30))
            await go_on()
            await refill
            await asyncio.gather(*waiting)
            ours, theirs = held(members, 6, 0), held(members, 6, 1)
            assert theirs is not behind
            assert {from_stored(key) for key in theirs.state.entries} == set(mine)
            assert (theirs.counter, theirs.state.entries) == (ours.counter, ours.state.entries)

    run(story())


def owner_of(members: list[Member], partition: int) -> str:
    return str(members[0]._node.member.table.rows[partition].owner)


def test_a_refill_is_refused_in_words() -> None:
    async def story() -> None:
        async with cluster(2) as members:
            primary = next(one for one in members if one.uuid == owner_of(members, 6))
            other = next(one for one in members if one is not primary)
            for ordered, member_, why in (
                (other, other.uuid, f"the primary is {primary.uuid}"),
                (primary, primary.uuid, "is no backup of partition 6"),
                (primary, "nobody", "is no backup of partition 6"),
            ):
                with pytest.raises(Exception, match=why):
                    await ordered._node.control.run(Refill(6, member_), 5)

    run(story())


def test_live_writes_and_a_migration_raise_no_alarm() -> None:
    async def story() -> None:
        # What is wrong is to be found here, not mended by the members themselves before.
        async with cluster(3, maps__default__backups=2, replication__anti_entropy_ms=0) as members:
            m = members[0].map("m")
            await m.put_all(ROWS)
            stop = asyncio.Event()
            written = 0

            async def write(offset: int) -> None:
                nonlocal written
                while not stop.is_set():
                    number = (offset + written * 7) % len(ROWS)
                    await m.put(number, f"again {written}")
                    written += 1
                    await asyncio.sleep(
                        0.001
                    )  # On a slow machine eight writers leave no time for anything else.

            writers = [asyncio.create_task(write(offset)) for offset in range(8)]
            for _ in range(3):
                report = await look(members)
                assert report.conflicts == report.tables == []
            joins = {"maps__default__backups": 2, "replication__anti_entropy_ms": 0}
            async with member(members[0].member_address, **joins):
                looks = 0
                while looks < 3 or not members[0].cluster_safe:
                    report = await look(members)
                    assert report.conflicts == report.tables == []
                    looks += 1
            report = await look(members)
            assert report.conflicts == report.tables == []
            # A wrong copy is found under the same load, when no migration replaces it any more.
            while not members[0].cluster_safe:  # noqa: ASYNC110 - nothing tells when it is
                await asyncio.sleep(0.05)
            wrong = held(members, 3, 1)
            wrong.state.entries[key_in(3, "extra")] = to_stored("extra")
            report = await look(members, partitions=[3])
            assert [one.content_conflict for one in report.conflicts] == [True] or report.undecided
            stop.set()
            await asyncio.gather(*writers)
            report = await look(members)
            assert [one.partition for one in report.conflicts] == [3]
            assert written > 100

    run(story())


def test_a_passive_cluster_is_mended_from_its_primaries_alone() -> None:
    async def story() -> None:
        async with cluster(3, maps__default__backups=2) as members:
            await members[0].map("m").put_all(ROWS)
            for replica, partition in ((1, 3), (0, 4)):
                entries = held(members, partition, replica).state.entries
                entries[next(iter(entries))] = to_stored("wrong")
            await members[0].change_cluster_state("passive")
            status, plain = await told(members, "repair", "--strategy", "majority", "--partition", "4")
            assert (status, plain["outcome"]["written"], len(plain["outcome"]["failed"])) == (1, 0, 1)
            assert "passive" in plain["outcome"]["failed"][0]
            status, plain = await told(members, "repair", "--strategy", "primary")
            assert (status, plain["after"]["sound"]) == (0, True)
            await members[0].change_cluster_state("active")

    run(story())


def test_what_holds_up_one_map_does_not_hold_up_the_repair_of_another() -> None:
    """The backup lacks updates of one map; the primary is wrong in both; and one key is written meanwhile."""

    async def story() -> None:
        async with cluster(3, maps__default__backups=2) as members:
            for name in ("m", "n"):
                await members[0].map(name).put_all(ROWS)
            behind = held(members, 7, 1)
            behind.updates = type(behind.updates)(behind.updates.lwm - 1)
            for name in ("m", "n"):
                primary = held(members, 7, 0, name)
                for key in list(primary.state.entries)[:3]:
                    primary.state.entries[key] = to_stored("wrong")
            status, plain = await told(members, "repair", "--strategy", "majority")
            assert plain["outcome"] == {"refilled": 2, "written": 6, "overtaken": 0, "failed": []}
            assert status == 0
            assert await content(members) == await members[0].map("n").entries() == ROWS

    run(story())
