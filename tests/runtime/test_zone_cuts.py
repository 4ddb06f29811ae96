"""Cuts over a map in a zone and one outside, taken and read with a client, against real members in this process."""

from __future__ import annotations

import asyncio

import pytest
from tests.runtime.in_process.test_embedded import run
from tests.runtime.test_zone_verify import ROWS, zoned, zoned_members

from holdfast.client.blocking import Client
from holdfast.client.cut_handles import Cut, end_cut, hold_cut, scan_cut, take_cut
from holdfast.errors import CutLost
from holdfast.wire.values import from_stored


def read(client: Client, cut: Cut, name: str, *, spread: bool = False) -> dict[object, object]:
    """All entries of a map at the cut."""
    found: dict[object, object] = {}
    for partition in range(client.partition_count):
        for page in scan_cut(client, cut, name, partition, spread=spread):
            keys, values = page.columns.split()
            found |= {from_stored(key): from_stored(value) for key, value in zip(keys, values, strict=True)}
    return found


@pytest.mark.rule("raft_partition/Z-7", "raft_partition/C-1")
def test_a_cut_over_both_engines_shows_both_maps_as_they_were() -> None:
    async def story() -> None:
        async with zoned_members() as members:
            await zoned(members)
            await members[0].map("plain").put_all(ROWS)

            def cut_both() -> Cut:
                with Client(members[1].client_address, timeout_s=10) as client:
                    return take_cut(client, ["orders", "plain", "unwritten"], lease_s=60)

            cut = await asyncio.to_thread(cut_both)
            for name in ("orders", "plain"):
                await members[0].map(name).put_all(dict.fromkeys(ROWS, "later"))
                assert cut.entries(name) == len(ROWS)
            assert {len(mark.holders) for (name, _), mark in cut.marks.items() if name == "orders"} == {3}

            def look() -> None:
                with Client(members[2].client_address, timeout_s=10) as client:
                    for spread in (False, True):
                        assert read(client, cut, "orders", spread=spread) == ROWS
                        assert read(client, cut, "plain", spread=spread) == ROWS
                    assert read(client, cut, "unwritten") == {}
                    hold_cut(client, cut, 60)
                    end_cut(client, cut)
                    with pytest.raises(CutLost):
                        read(client, cut, "orders")

            await asyncio.to_thread(look)
            assert all(not one._node.member.copies.cuts.pins for one in members)

    run(story())
