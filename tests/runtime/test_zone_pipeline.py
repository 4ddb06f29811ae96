"""Maps in zones in Holdfast's own protocol, on real members: scans, bulk writes, and the way to the leaders."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from tests.cluster.crew import until
from tests.runtime.in_process.test_embedded import run
from tests.runtime.test_zone_verify import ROWS, command, order, replicas, zoned, zoned_members

from holdfast.actions.change_zone import CreateZone
from holdfast.client.action_messages import ask_status
from holdfast.client.blocking import Client
from holdfast.client.change_reader import heads, read_changes
from holdfast.core.model.keys import partition_of
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast.errors import Moved, NotReady, Passive
from holdfast.runtime.in_process.embedded import Member
from holdfast.wire import own
from holdfast.wire.values import to_stored

PARTITIONS = 7
T = TypeVar("T")


async def use(members: list[Member], work: Callable[[Client], T], timeout_s: float = 10) -> T:
    def working() -> T:
        with Client([one.client_address for one in members], timeout_s=timeout_s) as client:
            return work(client)

    return await asyncio.to_thread(working)


async def on_one_member(members: list[Member]) -> str:
    """Create the zone with all replicas on the second member, so most owners are no leaders. Returns its UUID."""
    name = members[1]._node.member.picture.info.name
    await order(members, CreateZone("z", replicas=1, filter=f"name={name}"))
    view = members[0]._node.member.agreed.view
    await until(lambda: bool(view.zones()) and not view.summary(view.zones()[0]).leaderless)
    await until(lambda: all(row.owner for row in members[2]._node.local_copies.leaders("orders") or [None]))
    return members[1]._node.member_uuid


def entries(client: Client, **more: object) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for partition in range(PARTITIONS):
        for page in client.scan("orders", partition, **more):  # type: ignore[arg-type]
            keys, values = page.split()
            assert not found.keys() & set(keys)
            found.update(zip(keys, values, strict=True))
    return found


def test_a_scan_reads_each_entry_once_from_the_leaders() -> None:
    async def story() -> None:
        async with zoned_members() as members:
            await zoned(members)
            rows = {to_stored(number): to_stored(f"value {number}") for number in range(600)}
            assert await use(members, entries) == rows
            assert await use(members, lambda client: entries(client, rows_max=7)) == rows
            some = await use(members, lambda client: client.scan("orders", 3, keys=[*rows][:50]))
            assert sum(page.rows for page in some) == sum(
                partition_of(key, 0, PARTITIONS) == 3 for key in [*rows][:50]
            )
            counts = [(await use([one], lambda client: ask_status(client._any()))).entries for one in members]
            assert (sum(one.primary for one in counts), sum(one.all for one in counts)) == (600, 1800)
            await members[0].map("orders").set("short", "lived", ttl_s=0.2)
            await asyncio.sleep(0.3)
            assert await use(members, entries) == rows, "an entry that has expired is not read"

            shown = await command(members, "data", "scan", "orders", "--limit", "0")
            assert (shown.exit_code, len(shown.stdout.splitlines())) == (0, 600), shown.output
            shown = await command(members, "data", "keys", "orders", "--limit", "5")
            assert (shown.exit_code, len(shown.stdout.splitlines())) == (0, 5), shown.output
            shown = await command(members, "data", "size", "orders")
            assert (shown.exit_code, shown.stdout) == (0, "600\n"), shown.output

    run(story())


def test_clients_find_leaders_that_are_not_the_owners() -> None:
    async def story() -> None:
        async with zoned_members() as members:
            leader = await on_one_member(members)

            def work(client: Client) -> None:
                assert {row.owner for row in client.table("orders")} == {leader}
                assert len({row.owner for row in client.table()}) == 3
                keys = [to_stored(number) for number in range(300)]
                count = client.put_columns("orders", keys, keys)
                assert (count.rows, count.rows_resent) == (300, 0)
                assert entries(client) == dict(zip(keys, keys, strict=True))
                other = next(row.owner for row in client.table() if row.owner != leader)
                connection = client.to(other or "")
                scan = own.Scan(connection.next_number(), "orders", 2)
                with pytest.raises(Moved, match="partition 2 is not served here"):
                    connection.ask(scan, own.Page)

            await use(members, work)

    run(story())


def test_a_bulk_write_stores_adds_removes_and_keeps_times_to_live() -> None:
    async def story() -> None:
        async with zoned_members() as members:
            await zoned(members)
            keys = [to_stored(f"row {number}") for number in range(900)]
            one, two = to_stored("one"), to_stored("two")

            def work(client: Client) -> None:
                put = client.put_columns("orders", keys, [one] * 900)
                assert (put.rows, put.kept, put.partitions) == (900, 0, set(range(PARTITIONS)))
                kinds = [own.PutKind.SET, own.PutKind.REMOVE, own.PutKind.ADD] * 300
                put = client.put_columns("orders", keys, [two, b"", two] * 300, kinds=bytes(kinds))
                assert (put.rows, put.kept) == (900, 300), "present keys keep their values"
                again = client.put_columns(
                    "orders", keys[1::3], [two] * 300, kinds=bytes([own.PutKind.ADD] * 300)
                )
                assert (again.rows, again.kept) == (300, 0)
                found = entries(client)
                assert {key: found.get(key) for key in keys} == dict(
                    zip(keys, [two, two, one] * 300, strict=True)
                )
                client.put_columns("orders", keys, [one] * 900, ttls_ms=[200, 0, -1] * 300)
                client.put_columns("orders", [to_stored("all")], [one], ttl_ms=200)
                client.put_columns("orders", [to_stored("idle")], [one], max_idles_ms=[200])

            await use(members, work)
            await asyncio.sleep(1)
            left = await use(members, entries)
            assert {key for key in keys if key in left} == {*keys[1::3], *keys[2::3]}
            assert not {to_stored("all"), to_stored("idle")} & left.keys()

    run(story())


def test_a_passive_cluster_is_scanned_and_takes_no_bulk_write() -> None:
    async def story() -> None:
        async with zoned_members() as members:
            await zoned(members)
            done = await command(members, "cluster", "state", "passive")
            assert done.exit_code == 0, done.output
            assert len(await use(members, entries)) == 600

            def work(client: Client) -> None:
                with pytest.raises(Passive):
                    client.put_columns("orders", [to_stored(1)], [to_stored(1)])

            await use(members, work)

    run(story())


def test_questions_on_a_zone_that_is_not_there_say_how_to_create_it() -> None:
    async def story() -> None:
        async with zoned_members() as members:

            def work(client: Client) -> None:
                with pytest.raises(NotReady, match="holdfast zone create none"):
                    client.scan("nowhere", 0)
                with pytest.raises(NotReady, match="holdfast zone create none"):
                    client.put_columns("nowhere", [to_stored(1)], [to_stored(1)])

            await use(members, work, timeout_s=0.5)

    run(story())


def test_maps_of_both_engines_are_backed_up_together_and_restored(tmp_path: Path) -> None:
    async def story() -> None:
        async with zoned_members() as members:
            await zoned(members)
            await members[0].map("plain").put_all(dict.fromkeys(range(50), "plain"))
            await members[0].map("orders").set("short", "lived", ttl_s=3600)
            shown = await command(members, "data", "maps")
            assert (shown.exit_code, "nowhere" in shown.stdout) == (0, False), shown.output
            folder = tmp_path / "backup"
            done = await command(members, "backup", "--to", str(folder))
            assert done.exit_code == 0, done.output
            assert "exported 651 rows of 2 maps" in done.stdout
            assert "nowhere: left out, because it lives in zone none, which does not exist" in done.stdout
            done = await command(members, "restore", str(folder), "--no-spark")
            assert (done.exit_code, "has 601 entries" in done.output) == (2, True), done.output
            await members[0].map("orders").set(1, "changed")
            await members[0].map("orders").remove(2)
            done = await command(members, "restore", str(folder), "--mode", "overwrite", "--no-spark")
            assert done.exit_code == 0, done.output
            found = {key: value async for key, value in members[1].map("orders").entries()}
            assert found == ROWS | {"short": "lived"}
            held = replicas(members, partition_of(to_stored("short"), 0, PARTITIONS))
            [expiry] = [
                one.state.copies[partition_of(to_stored("short"), 0, PARTITIONS)]
                .maps["orders"]
                .state.expiries[to_stored("short")]
                for one in held.values()
                if one.leads
            ]
            assert 3_000_000 < expiry.ttl_ms <= 3_600_000

    run(story())


def test_entries_with_idle_times_are_restored_into_a_zone(tmp_path: Path) -> None:
    async def story() -> None:
        async with zoned_members() as members:
            await zoned(members)
            await members[0].map("plain").set(1, "one", max_idle_s=3600)
            folder = tmp_path / "backup"
            done = await command(members, "backup", "plain", "--to", str(folder))
            assert done.exit_code == 0, done.output
            words = ("restore", str(folder), "--no-spark", "--mode", "append", "--rename")
            done = await command(members, *words, "plain=orders")
            assert (done.exit_code, "undecided" in done.output) == (3, True), done.output
            partition = partition_of(to_stored(1), 0, PARTITIONS)
            [leader] = [one for one in replicas(members, partition).values() if one.leads]
            state = leader.state.copies[partition].maps["orders"].state
            assert state.expiries[to_stored(1)].max_idle_ms == 3_600_000

    run(story())


FEED = {"maps__feed__raft_zone": "z", "maps__feed__changes_bytes": 1 << 20}
Seen = dict[int, list[tuple[int, bytes, bytes, bytes | None]]]


def follow(client: Client, positions: dict[int, own.Head], seen: Seen) -> None:
    """Read everything after these positions up to the present heads, which are the next positions."""
    for partition, head in heads(client, "feed", range(PARTITIONS)).items():
        before = positions.get(partition)
        after, term = (before.counter, before.term) if before is not None else (0, 0)
        found = read_changes(client, "feed", partition, after, term, head.counter, upto_term=head.term)
        for page in found:
            keys, values = page.columns.split()
            rows = zip(page.counters, page.kinds, keys, values, strict=True)
            for counter, kind, key, value in rows:
                removed = kind == own.ChangeKind.REMOVE
                seen[partition].append((counter, key, value, None if removed else value))
        positions[partition] = head


def test_a_change_stream_goes_on_under_another_leader_and_after_a_crash() -> None:
    async def story() -> None:
        async with zoned_members(**FEED) as members:
            await zoned(members)
            positions: dict[int, own.Head] = {}
            seen: Seen = {partition: [] for partition in range(PARTITIONS)}
            at, wanted = members, {}
            for turn in range(4):
                for number in range(40):
                    await at[turn % 2].map("feed").set(number, turn)
                    wanted[to_stored(number)] = to_stored(turn)
                await at[turn % 2].map("feed").remove(turn)
                wanted[to_stored(turn)] = None
                await use(at, partial(follow, positions=positions, seen=seen))
                if turn == 1:
                    assert any(one.leads for one in led_by(members, 2))
                    await members[2].crash()
                    at = members[:2]
            for partition, changes in seen.items():
                assert [counter for counter, *_ in changes] == list(range(1, len(changes) + 1)), (
                    f"partition {partition}: each update once, in order"
                )
            last = {key: value for changes in seen.values() for _, key, _, value in changes}
            assert last == wanted
            assert len({head.term for head in positions.values()}) > 1 or all(
                len(head.lineage) > 1 for head in positions.values()
            )

    run(story())


def led_by(members: list[Member], at: int) -> list[ZonePartition]:
    groups = members[at]._node.member.agreed.groups
    return [found for p in range(PARTITIONS) if (found := replicas(members, p).get(groups.me)) is not None]


def test_the_official_client_uses_a_map_in_a_zone_like_any_other() -> None:
    hazelcast = pytest.importorskip("hazelcast")

    def work(addresses: list[str]) -> None:
        client = hazelcast.HazelcastClient(cluster_name="dev", cluster_members=addresses)
        try:
            orders = client.get_map("orders").blocking()
            assert orders.size() == len(ROWS)
            assert set(orders.key_set()) == ROWS.keys()
            assert dict(orders.entry_set()) == ROWS
            assert sorted(orders.values()) == sorted(ROWS.values())
            assert orders.contains_value("value 7")
            heard: list[object] = []
            orders.add_entry_listener(include_value=True, added_func=lambda event: heard.append(event.key))
            orders.put("new", "entry", ttl=0.3)
            orders.put_all({f"k{number}": number for number in range(20)})
            assert orders.get_all([f"k{number}" for number in range(3)]) == {"k0": 0, "k1": 1, "k2": 2}
            assert orders.replace_if_same("k0", 0, "other")
            deadline_s = time.monotonic() + 120
            while orders.get("new") is not None or len(heard) < 21:
                assert time.monotonic() < deadline_s, heard
                time.sleep(0.02)
            assert len(heard) == 21
            orders.clear()
            assert orders.is_empty()
        finally:
            client.shutdown()

    async def story() -> None:
        async with zoned_members() as members:
            await zoned(members)
            await asyncio.to_thread(work, [one.client_address for one in members])

    run(story())
