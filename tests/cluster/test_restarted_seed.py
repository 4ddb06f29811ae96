"""The only seed restarts: it finds the others by its files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.runtime.in_process.test_embedded import member, run

from holdfast.runtime.in_process.embedded import Member


@pytest.mark.rule("membership/V-11")
@pytest.mark.parametrize("seed", ["none", "itself"])
def test_the_first_member_returns_to_the_others_without_other_seeds(tmp_path: Path, seed: str) -> None:
    """The others have the first member as their only seed. It leaves for an upgrade, and starts again."""
    folders = [str(tmp_path / name) for name in "abc"]

    async def started(folder: str, *seeds: str, port: int = 0) -> Member:
        one = member(
            *seeds, persistence__directory=folder, member__member_port=port, maps__default__journal="sync"
        )
        await one.start()
        return one

    async def story() -> None:
        first = await started(folders[0])
        address = first.member_address
        others = [await started(folder, address) for folder in folders[1:]]
        for one in (first, *others):
            await one.wait_safe()
        await others[0].map("m").set("k", "v")
        await first.leave()
        seeds = (address,) if seed == "itself" else ()
        again = await started(folders[0], *seeds, port=int(address.rpartition(":")[2]))
        await again.wait_safe()
        assert len(again.status().members) == 3
        assert await again.map("m").get("k") == "v"
        for one in (again, *others):
            await one.leave()

    run(story())


@pytest.mark.rule("membership/V-11")
def test_a_stopped_cluster_comes_back_when_another_one_has_the_address_of_a_member(tmp_path: Path) -> None:
    """The rejection by that member of another cluster neither ends the first member nor holds it up."""

    def at(folder: str, *seeds: str, **changed: object) -> Member:
        return member(
            *seeds, persistence__directory=str(tmp_path / folder), maps__default__journal="sync", **changed
        )

    async def story() -> None:
        first = at("a")
        await first.start()
        address = first.member_address
        second = at("b", address)
        await second.start()
        await second.wait_safe()
        await first.map("m").set("k", "v")
        places = [int(one.member_address.rpartition(":")[2]) for one in (first, second)]
        await first.crash()
        await second.crash()
        foreign = at("c", cluster__name="other", member__member_port=places[1])
        await foreign.start()
        again, moved = at("a", address, member__member_port=places[0]), at("b", address)
        await asyncio.gather(again.start(), moved.start())
        assert await again.map("m").get("k") == "v"
        for one in (again, moved, foreign):
            await one.crash()

    run(story())


@pytest.mark.rule("membership/V-11")
@pytest.mark.parametrize("count", [2, 3])
def test_the_first_member_returns_from_a_crash_to_one_that_hears_no_majority(
    tmp_path: Path, count: int
) -> None:
    """That one cannot admit it, and joins the cluster that it forms again from its files."""

    def at(number: int, *seeds: str, port: int = 0) -> Member:
        folder = str(tmp_path / str(number))
        return member(
            *seeds, persistence__directory=folder, member__member_port=port, maps__default__journal="sync"
        )

    async def story() -> None:
        first = at(0)
        await first.start()
        address = first.member_address
        others = [at(number, address) for number in range(1, count)]
        for one in others:
            await one.start()
        for one in (first, *others):
            await one.wait_safe()
        await first.map("m").set("k", "v")
        crashed = [first, *others[1:]]
        ports = [int(one.member_address.rpartition(":")[2]) for one in crashed]
        for one in crashed:
            await one.crash()
        numbers = [0, *range(2, count)]
        again = [at(number, address, port=port) for number, port in zip(numbers, ports, strict=True)]
        await asyncio.gather(*(one.start() for one in again))
        for one in (*again, others[0]):
            await one.wait_safe()
            assert len(one.status().members) == count
        assert await again[0].map("m").get("k") == "v"
        for one in (*again, others[0]):
            await one.crash()

    run(story())
