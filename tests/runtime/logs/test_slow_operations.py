"""Slow operations: found by looking, told once each, without keys; and what the disk is slow at."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path

import pytest
from msgspec.structs import asdict

from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.member_status import SlowOperation
from holdfast.core.model.open_operations import Followed, OpenOperation
from holdfast.engine.ports import Create, Sync, Write
from holdfast.runtime.disk.real_disk import RealDisk
from holdfast.runtime.disk.slow_disk import DeedClock, DiskWatch
from holdfast.runtime.logs import slow_operations
from holdfast.runtime.logs.limited_lines import LINES, LimitedLines
from holdfast.runtime.logs.slow_operations import KEPT, SlowOperations

LIMIT_MS = 100


class Waiting:
    """What waits, and since when."""

    def __init__(self) -> None:
        self.now_ms = 1000
        self.open: list[OpenOperation] = []
        self.slow = SlowOperations(
            LIMIT_MS,
            self.since,
            lambda: {MemberId("u2"): "m2"},
            LimitedLines(),
            lambda: self.now_ms * MILLISECOND,
        )

    def since(self, before_ns: int, followed: Followed) -> list[OpenOperation]:
        return [one for one in self.open if one.since_ns <= before_ns]

    def writes(self, number: int = 1) -> OpenOperation:
        since_ns = self.now_ms * MILLISECOND
        places = {"flights": set(range(8)), "ev\nil": {3}, "__queue:jobs": {1}}
        one = OpenOperation(
            ("batch", number), "writes", 12, places, since_ns, "backups to acknowledge", (MemberId("u2"),)
        )
        self.open.append(one)
        return one

    def look(self, after_ms: int) -> list[SlowOperation]:
        self.now_ms += after_ms
        self.slow.look()
        return self.slow.status().recent


def test_what_has_ended_soon_is_not_told() -> None:
    waiting = Waiting()
    waiting.writes()
    assert waiting.look(50) == []
    waiting.open.clear()
    assert waiting.look(500) == []
    assert waiting.slow.count == 0


def test_what_took_long_is_told_when_it_has_ended_with_who_was_waited_for() -> None:
    waiting = Waiting()
    waiting.writes()
    assert waiting.look(LIMIT_MS) == []
    (under_way,) = waiting.slow.status().running
    assert (under_way.took_ms, under_way.ended_ms) == (LIMIT_MS, None)
    assert waiting.look(50) == []
    waiting.open.clear()
    (told,) = waiting.look(50)
    assert {name: value for name, value in asdict(told).items() if name != "ended_ms"} == {
        "took_ms": 200,
        "kind": "writes",
        "operations": 12,
        "places": {"queue jobs": [1], "ev\\nil": [3], "flights": [0, 1, 2, 3, 4, "and 3 more"]},
        "waited_for": "backups to acknowledge",
        "members": ["m2"],
    }
    assert waiting.look(50) == [told], "once"


def test_the_last_are_kept_and_a_few_are_written(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Waiting()
    built = []
    monkeypatch.setattr(
        slow_operations.msgspec.structs, "asdict", lambda one: built.append(one) or asdict(one)
    )
    with caplog.at_level(logging.INFO, "holdfast"):
        for number in range(3 * KEPT):
            waiting.writes(number)
        waiting.look(LIMIT_MS)
        waiting.open.clear()
        assert len(waiting.look(50)) == KEPT
    assert waiting.slow.count == 3 * KEPT
    assert len(caplog.messages) == len(built) == LINES, "a line that the limit drops is not built"
    assert all(len(line.splitlines()) == 1 for line in caplog.messages)


def test_a_turn_of_the_loop_counts_as_one(caplog: pytest.LogCaptureFixture) -> None:
    waiting = Waiting()
    waiting.slow.stalled(LIMIT_MS / 1000 - 0.01)
    waiting.slow.stalled(0.25)
    (told,) = waiting.look(0)
    assert (told.took_ms, told.kind) == (250, "a turn of the event loop")


# -- the disk


def test_a_deed_that_hangs_is_told_while_it_does_and_when_it_is_done() -> None:
    now_s = 0.0
    clock = DeedClock(lambda: now_s)
    watch = DiskWatch([clock], 1.0)
    clock.begins("sync of journal-1")
    now_s = 0.9
    assert watch.look() == []
    now_s = 1.5
    assert watch.look() == ["slow disk: sync of journal-1 has taken 1.5 s, and is not done"]
    now_s = 3.0
    assert watch.look() == []
    clock.ends()
    assert watch.look() == ["slow disk: sync of journal-1 took 3.0 s"]
    assert watch.look() == []
    clock.begins("write of journal-1")
    now_s = 5.0
    clock.ends()
    clock.begins("sync of journal-1")
    assert watch.look() == ["slow disk: write of journal-1 took 2.0 s"], "between two looks"


def test_a_real_disk_says_what_it_does_for_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fdatasync = os.fdatasync

    def slow(file: int) -> None:
        time.sleep(0.2)
        fdatasync(file)

    async def story() -> list[str]:
        disk = RealDisk(tmp_path, asyncio.get_running_loop())
        watch = DiskWatch(list(disk.clocks.values()), 0.1)
        done = asyncio.Event()
        monkeypatch.setattr(os, "fdatasync", slow)
        disk.submit([Create("a", 0), Write("a", 0, b"x"), Sync("a")], lambda error: done.set())
        await done.wait()
        disk.close()
        return watch.look()

    (line,) = asyncio.run(story())
    assert line.startswith("slow disk: sync of a took 0.")
