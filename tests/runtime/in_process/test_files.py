"""A member in a program, and its files: what it says of them, and how it ends when they cannot be used."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path

import pytest

from holdfast.config import Settings, load
from holdfast.core.model.member_status import FilesStatus
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.errors import ConfigError, HoldfastError, InvariantBroken
from holdfast.runtime.in_process.embedded import Member
from holdfast.runtime.process import BROKEN, main

SEGMENT_BYTES = 65_536


def settings(directory: Path, **others: object) -> Settings:
    chosen: dict[str, object] = {
        "member.name": "m1",
        "member.member_port": 0,
        "member.client_port": 0,
        "cluster.heartbeat_ms": 100,
        "cluster.suspect_after_ms": 10_000,
        "partitions.count": 7,
        "persistence.directory": str(directory),
        "persistence.segment_bytes": SEGMENT_BYTES,
        "persistence.checkpoint_bytes": SEGMENT_BYTES,
        "maps.default.journal": "sync",
    }
    return load(None, {}, chosen | {key.replace("__", "."): value for key, value in others.items()})


def test_a_member_says_what_it_keeps_and_has_it_again(tmp_path: Path) -> None:
    async def live(times: int) -> FilesStatus:
        member = Member(settings(tmp_path / "files"))
        await member.start()
        try:
            numbers = member.map("numbers")
            if times > 1:
                assert await numbers.get_all(range(100)) == {
                    number: f"v{number}" * 100 for number in range(100)
                }
                assert await numbers.get("removed") is None
            await numbers.put("removed", 1)
            await numbers.put_all({number: f"v{number}" * 100 for number in range(100)})
            await numbers.remove("removed")
            files = member.status().files
            assert files is not None
            return files
        finally:
            await member.crash()

    first = asyncio.run(live(1))
    second = asyncio.run(live(2))
    assert first.directory == second.directory == str(tmp_path / "files")
    assert first.store == second.store
    assert [first.opened, second.opened] == [1, 2]
    assert first.full is second.full is False
    for files in (first, second):
        assert files.journal_bytes >= SEGMENT_BYTES * files.segments
    assert second.segments > first.segments
    third = asyncio.run(live(3))
    assert third.checkpoints > 0


def test_updates_that_are_held_are_written_before_a_member_stops(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "files", maps__default__journal="lazy", maps__default__backups=0)

    async def served(member: Member) -> PartitionCopy:
        await member.start()
        await member.map("numbers").put(1, 1)
        for _ in range(1000):
            if (copy := member._inner.driver.lane.serving[0]) is not None:
                return copy
            await asyncio.sleep(0.01)
        raise AssertionError("partition 0 is not served")

    async def write() -> None:
        member = Member(chosen)
        copy = await served(member)
        driver = member._inner.driver
        driver.enter()
        driver.lane.set(copy, "numbers", b"held", b"value", 0, 0, 0)
        assert driver.lane.settle()
        driver.leave_lane()
        assert list(driver.member.lane.unsent)
        await member.crash()

    async def read() -> bytes | None:
        member = Member(chosen)
        copy = await served(member)
        found = member._inner.driver.lane.read(copy, "numbers", b"held")
        await member.crash()
        return found

    asyncio.run(write())
    assert asyncio.run(read()) == b"value"


def test_a_member_without_journalled_maps_keeps_nothing(tmp_path: Path) -> None:
    async def live() -> object:
        chosen = load(None, {}, {"member.member_port": 0, "member.client_port": 0, "partitions.count": 7})
        member = Member(chosen)
        await member.start()
        try:
            return member.status().files
        finally:
            await member.crash()

    assert asyncio.run(live()) is None


def test_files_of_which_nobody_can_say_whose_they_are_end_the_process(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text("{")
    assert main(settings(tmp_path)) == BROKEN
    (tmp_path / "identity.json").unlink()
    (tmp_path / "j000000000001.seg").write_bytes(bytes(SEGMENT_BYTES))
    with pytest.raises(ConfigError, match=r"j000000000001\.seg, but no identity\.json"):
        main(settings(tmp_path))


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"persistence\.directory = .* cannot be used"):
        main(settings(tmp_path / "file" / "files"))
    if os.getuid():
        # Root may write everywhere.
        (tmp_path / "files").mkdir(mode=0o500)
        with pytest.raises(ConfigError, match=r"persistence\.directory = .* cannot be used"):
            main(settings(tmp_path / "files"))


def test_a_lite_member_needs_no_directory_and_others_do() -> None:
    chosen: dict[str, object] = {"maps.orders.journal": "lazy"}
    with pytest.raises(
        ConfigError, match=r"persistence\.directory must be set, because maps\.orders\.journal"
    ):
        load(None, {}, chosen)
    assert load(None, {}, chosen | {"member.lite": True}).member.lite


def test_a_directory_that_is_taken_away_stops_the_member(tmp_path: Path) -> None:
    async def live() -> None:
        member = Member(settings(tmp_path / "files"))
        await member.start()
        (tmp_path / "files").rename(tmp_path / "elsewhere")
        while (tmp_path / "elsewhere").exists():
            # It may just be writing there.
            shutil.rmtree(tmp_path / "elsewhere", ignore_errors=True)
        numbers = member.map("numbers")
        number = 0
        with contextlib.suppress(HoldfastError):
            # What is under way when it stops has an outcome that nobody knows.
            while number := number + 1:
                await numbers.put(number, "x" * 1000)
        with pytest.raises(InvariantBroken, match=r"JournalBroken: .*No such file or directory"):
            await numbers.get(1)
        await member.crash()

    asyncio.run(live())
