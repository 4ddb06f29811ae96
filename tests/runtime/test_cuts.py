"""Cuts of real members, over real sockets, while entries change and a member is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.runtime.in_process.test_embedded import cluster, run

from holdfast.client.blocking import Client
from holdfast.client.cut_handles import Cut, end_cut, hold_cut, scan_cut, take_cut
from holdfast.errors import CutLost
from holdfast.wire import own
from holdfast.wire.values import from_stored, to_stored

ROWS = {number: f"value {number}" for number in range(500)}


def read(client: Client, cut: Cut, *, spread: bool = False) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for partition in range(client.partition_count):
        for page in scan_cut(client, cut, "m", partition, spread=spread):
            keys, values = page.columns.split()
            found.update(zip(map(from_stored, keys), map(from_stored, values), strict=True))
    return found


def test_a_cut_is_read_while_entries_change_and_a_member_is_lost() -> None:
    async def story() -> None:
        async with cluster(3, maps__default__backups=1) as members:
            m = members[0].map("m")
            await m.put_all(ROWS)
            await m.put("short", 1, ttl_s=0.4)
            addresses = ",".join(member.client_address for member in members)

            def taken() -> Cut:
                with Client(addresses) as client:
                    return take_cut(client, ["m"], lease_s=30)

            cut = await asyncio.to_thread(taken)
            await m.put_all(dict.fromkeys(range(0, 500, 3), "changed"))
            await m.put_all(dict.fromkeys(range(1000, 1100), "new"))
            await m.remove(7)
            await asyncio.sleep(1.2)
            assert await m.get("short") is None

            def looked(spread: bool) -> dict[Any, Any]:
                with Client(addresses) as client:
                    return read(client, cut, spread=spread)

            expected = {**ROWS, "short": 1}
            assert await asyncio.to_thread(looked, False) == expected
            assert await asyncio.to_thread(looked, True) == expected
            await m.clear()
            await members[2].crash()
            assert await asyncio.to_thread(looked, False) == expected

            def ended() -> None:
                with Client(addresses) as client:
                    assert hold_cut(client, cut, 30) == sum(1 for mark in cut.marks.values() if mark.counter)
                    end_cut(client, cut)
                    with pytest.raises(CutLost):
                        read(client, cut)

            await asyncio.to_thread(ended)
            assert [len(member._node.cuts) for member in members[:2]] == [0, 0]

    run(story())


def test_rows_are_stored_added_and_removed_on_real_members() -> None:
    async def story() -> None:
        async with cluster(2, maps__default__backups=1) as members:

            def put() -> None:
                with Client(members[0].client_address) as client:
                    keys = [to_stored(number) for number in range(200)]
                    first = [to_stored("first")] * 200
                    client.put_columns("m", keys, first, kinds=bytes([own.PutKind.ADD] * 200))
                    kinds = bytes(
                        [own.PutKind.REMOVE] * 50 + [own.PutKind.ADD] * 50 + [own.PutKind.SET] * 100
                    )
                    times = [0] * 199 + [60_000]
                    second = [to_stored("second")] * 200
                    for _ in range(2):
                        count = client.put_columns("m", keys, second, kinds=kinds, ttls_ms=times)
                        assert (count.rows, count.kept) == (200, 50)

            await asyncio.to_thread(put)
            expected = dict.fromkeys(range(50, 100), "first") | dict.fromkeys(range(100, 200), "second")
            assert await members[1].map("m").entries() == expected
            copies = [copy for member in members for copy in member._node.member.copies.held.values()]
            assert sum(copy.entry_count() for copy in copies) == 2 * len(expected)
            assert sum(len(held.state.expiries) for copy in copies for held in copy) == 2

    run(story())
