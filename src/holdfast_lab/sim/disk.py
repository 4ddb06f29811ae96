"""The disk of one simulated host: slow, forgetful, and sometimes faulty. It outlives the host's processes.

Written data is visible at once, and durable after a sync. Unfinished submitted work is lost with its process.
A power cut keeps any part of unsynced data, sector by sector, in any state that a sector went through.
Created or put files survive a power cut with their names; removed files may come back, unless a file was
created, put or renamed since.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

from holdfast.core.model.ids import MILLISECOND
from holdfast.engine.ports import (
    Create,
    Deed,
    DeedsDone,
    DiskFailed,
    DiskFull,
    Put,
    Remove,
    Rename,
    Sync,
    Write,
)
from holdfast_lab.sim.clocks import SKEW_MS, WALL_MS
from holdfast_lab.sim.world import Process, World

SECTOR = 512
LINES = ("journal", "checkpoint")
MICROSECOND = 1000
LATENCY_NS: dict[type[Deed], tuple[int, int]] = {
    Create: (200 * MICROSECOND, 8 * MILLISECOND),
    Write: (20 * MICROSECOND, 300 * MICROSECOND),
    Sync: (100 * MICROSECOND, 3 * MILLISECOND),
    Put: (MILLISECOND, 15 * MILLISECOND),
    Remove: (50 * MICROSECOND, MILLISECOND),
    Rename: (100 * MICROSECOND, 5 * MILLISECOND),
}
BYTE_NS = 10


class _File:
    """Journal segments begin as 64 MB of zeros: what follows the last written byte is not kept."""

    def __init__(self, data: bytes, size: int = 0) -> None:
        """The data is durable; zeros follow it up to the size."""
        self.seen = bytearray(data)
        self.durable = bytearray(data)
        self.size = self.durable_size = max(size, len(data))
        self.unsynced: list[tuple[int, bytes]] = []
        self.unreadable: set[int] = set()

    @property
    def differs(self) -> bool:
        """Whether something is visible that is not durable."""
        length = max(len(self.seen), len(self.durable))
        same = self.seen.ljust(length, b"\0") == self.durable.ljust(length, b"\0")
        return self.size != self.durable_size or not same

    def read(self, offset: int, end: int) -> bytes:
        return bytes(self.seen[offset:end]).ljust(end - offset, b"\0")

    def write(self, offset: int, data: bytes) -> None:
        if not data:
            return
        end = offset + len(data)
        self.size = max(self.size, end)
        _reach(self.seen, end)
        self.seen[offset:end] = data
        for sector in range(offset // SECTOR, (end - 1) // SECTOR + 1):
            start = sector * SECTOR
            self.unsynced.append((sector, self.read(start, min(start + SECTOR, self.size))))
            self.unreadable.discard(sector)

    def sync(self) -> None:
        for sector, state in self.unsynced:
            self._settle(sector, state)
        self.unsynced.clear()

    def survive(self, draw: random.Random) -> None:
        """Make durable what may have reached the disk without a sync: nothing, all, all up to some moment, or
        any state of each sector. The rest is dropped, but still visible.
        """
        states = self.unsynced
        match draw.randrange(4):
            case 0:
                kept: list[tuple[int, bytes]] = []
            case 1:
                kept = states
            case 2:
                kept = states[: draw.randint(0, len(states))]
            case _:
                share = draw.choice([0.1, 0.5, 0.9])
                by_sector: dict[int, list[bytes]] = {}
                for sector, state in states:
                    by_sector.setdefault(sector, []).append(state)
                kept = [
                    (sector, draw.choice(each)) for sector, each in by_sector.items() if draw.random() < share
                ]
        for sector, state in kept:
            self._settle(sector, state)
        self.unsynced = []

    def forget(self) -> None:
        self.seen = bytearray(self.durable)
        self.size = self.durable_size

    def _settle(self, sector: int, state: bytes) -> None:
        start = sector * SECTOR
        _reach(self.durable, start)
        self.durable[start : start + len(state)] = state
        self.durable_size = max(self.durable_size, start + len(state))

    def flip(self, at: int, bit: int) -> None:
        for data, size in ((self.durable, self.durable_size), (self.seen, self.size)):
            if at < size:
                _reach(data, at + 1)
                data[at] ^= bit


def _reach(data: bytearray, end: int) -> None:
    if end > len(data):
        data.extend(bytes(end - len(data)))


class _Line:
    def __init__(self) -> None:
        self.groups: deque[tuple[deque[Deed], DeedsDone]] = deque()
        self.present: Deed | None = None
        self.made: tuple[str, bytes] | None = None
        self.turn = 0
        """Incremented with each deed, so that a timer cannot end another one."""
        self.answers: deque[tuple[DeedsDone, Exception | None]] = deque()

    @property
    def busy(self) -> bool:
        return self.present is not None


class SimDisk:
    def __init__(self, world: World, name: str, seed: str) -> None:
        self.world = world
        self.name = name
        self.random = random.Random(f"{seed}/disk/{name}")
        self.full = False
        self.slowness = 1.0
        self.counts: dict[str, int] = {}
        self._files: dict[str, _File] = {}
        self._ghosts: dict[str, _File] = {}
        self._door: MountedDisk | None = None
        self._skew_ms = self.random.randint(-SKEW_MS, SKEW_MS)
        self._may_fail: Callable[[], bool] | None = None
        self._cut_in: int | None = None
        self._cut: Callable[[], None] = lambda: None

    def mount(self, process: Process) -> MountedDisk:
        """Give the disk to a process. The previous one is dead, or has closed it."""
        assert self._door is None or self._door.process.dead, f"{self.name} is in use"
        self._end_of_process()
        self._door = MountedDisk(self, process)
        return self._door

    # -- faults and inspection

    def power_cut(self) -> None:
        """Power failure of the host, whose process is already dead. Unsynced data may be lost."""
        assert self._door is None or self._door.process.dead, f"{self.name} is in use"
        self._end_of_process()
        for name in sorted(self._ghosts):
            if self.random.random() < 0.5:
                self._files[name] = self._ghosts[name]
        self._ghosts.clear()
        for name in sorted(self._files):
            file = self._files[name]
            file.survive(self.random)
            file.forget()
        self._trace("power cut")

    def fail_armed(self, may_fail: Callable[[], bool] | None) -> None:
        """Fail the next deed that makes something durable, if `may_fail` allows it then. None disarms."""
        self._may_fail = may_fail

    def cut_armed(self, deeds: int, strike: Callable[[], None]) -> None:
        """Call `strike` during a deed, so many deeds from now. 0 disarms."""
        self._cut_in, self._cut = deeds or None, strike

    def wipe(self) -> None:
        assert self._door is None or self._door.process.dead, f"{self.name} is in use"
        self._end_of_process()
        self._files.clear()
        self._ghosts.clear()
        self._trace("wiped")

    def rot(self, suitable: Callable[[str], bool] = lambda name: True) -> str:
        """Damage one sector of a suitable file while the disk is not in use: a flipped bit, zeros, or
        unreadable. Returns a description; empty if there is nothing but zeros.
        """
        assert self._door is None or self._door.process.dead, f"{self.name} is in use"
        self._end_of_process()
        names = [name for name in sorted(self._files) if suitable(name) and any(self._files[name].durable)]
        if not names:
            return ""
        name = self.random.choice(names)
        data, size = self._files[name].durable, self._files[name].durable_size
        sectors = range((len(data) + SECTOR - 1) // SECTOR)
        start = SECTOR * self.random.choice(
            [each for each in sectors if any(data[each * SECTOR : (each + 1) * SECTOR])]
        )
        return self.spoil(name, self.random.randrange(start, min(start + SECTOR, size)))

    def spoil(self, name: str, at: int, kind: str = "") -> str:
        """Damage the byte at this offset, or its sector. `kind`: flip, zero or unreadable; random by default."""
        kind = kind or self.random.choice(["flip", "flip", "zero", "unreadable"])
        file, start = self._files[name], at - at % SECTOR
        bit = 1 << self.random.randrange(8)
        if kind == "flip":
            file.flip(at, bit)
        for data in (file.durable, file.seen):
            if kind == "zero":
                data[start : start + SECTOR] = bytes(len(data[start : start + SECTOR]))
        if kind == "unreadable":
            file.unreadable.add(start // SECTOR)
        what = f"{kind} at {at} of {name}"
        self._trace(what)
        return what

    def contents(self) -> dict[str, bytes]:
        return {name: self._files[name].read(0, self._files[name].size) for name in self.names()}

    def names(self) -> list[str]:
        return sorted(self._files)

    # -- used by the mounted disk

    def file(self, name: str) -> _File:
        if name not in self._files:
            raise FileNotFoundError(f"{self.name}: {name}")
        return self._files[name]

    def wall_ms(self) -> int:
        return WALL_MS + self._skew_ms + self.world.now_ns // MILLISECOND

    def duration_ns(self, deed: Deed, size: int) -> int:
        low, high = LATENCY_NS[type(deed)]
        usual = self.random.randint(low, high) + size * BYTE_NS
        return round(usual * self.slowness * (10 if self.random.random() < 0.05 else 1))

    def begun(self, duration_ns: int) -> None:
        if self._cut_in is not None:
            self._cut_in -= 1
            if self._cut_in <= 0:
                self._cut_in = None
                self.world.after(self.random.randint(0, duration_ns), self._cut)

    def carry_out(self, deed: Deed, made: tuple[str, bytes] | None) -> None:
        """Raises DiskFull or DiskFailed."""
        kind = type(deed).__name__
        if self.full and self._needs_room(deed):
            self._trace(f"no room for {kind}")
            raise DiskFull(f"{self.name}: no room for {kind}")
        if self._may_fail is not None and not isinstance(deed, Write | Remove):
            may_fail, self._may_fail = self._may_fail, None
            if may_fail():
                self._fail(deed, made)
                raise DiskFailed(f"{self.name}: {kind} failed")
        self._do(deed, made)

    def closed(self, door: MountedDisk) -> None:
        if self._door is door:
            self._door = None

    # -- internals

    def _trace(self, what: str, data: bytes = b"") -> None:
        self.world.trace(f"{self.name} {what}", data)

    def _needs_room(self, deed: Deed) -> bool:
        if isinstance(deed, Write):
            return deed.offset + len(deed.data) > self.file(deed.name).size
        return isinstance(deed, Create | Put)

    def _do(self, deed: Deed, made: tuple[str, bytes] | None) -> None:
        kind = type(deed).__name__
        self.counts[kind] = self.counts.get(kind, 0) + 1
        match deed:
            case Create(name, size):
                assert name not in self._files, f"{self.name}: {name} is there already"
                self._trace(f"creates {name} of {size}")
                self._name(name, b"", size)
            case Write(name, offset, data):
                self._trace(f"writes {name} at {offset}", data)
                self.file(name).write(offset, data)
            case Sync(name):
                self._trace(f"syncs {name}")
                self.file(name).sync()
            case Put():
                assert made is not None
                self._trace(f"puts {made[0]}", made[1])
                self._name(*made)
            case Rename(name, to):
                self._trace(f"renames {name} to {to}")
                self._rename(name, to)
            case Remove(name):
                self._trace(f"removes {name}")
                if name in self._files:
                    self._ghosts[name] = self._files.pop(name)
            case _:
                assert_never(deed)

    def _name(self, name: str, data: bytes, size: int = 0) -> None:
        """Make a file durable with its name, and all earlier changes of names with it."""
        self._files[name] = _File(data, size)
        self._ghosts.clear()

    def _rename(self, name: str, to: str) -> None:
        if name not in self._files and to in self._files:
            return
        file = self.file(name)
        assert to not in self._files, f"{self.name}: {to} is there already"
        self._files[to] = file
        del self._files[name]
        self._ghosts.clear()

    def _fail(self, deed: Deed, made: tuple[str, bytes] | None) -> None:
        """A failed deed: an unknown part of it is durable, and no later sync will make the rest durable."""
        self._trace(f"fails {type(deed).__name__}")
        if isinstance(deed, Sync):
            self.file(deed.name).survive(self.random)
        elif self.random.random() < 0.5:
            self._do(deed, made)

    def _end_of_process(self) -> None:
        """Carry out the dead process's current deed in part, and drop the queued ones."""
        door, self._door = self._door, None
        if door is None:
            return
        for line in door.lines.values():
            if line.present is not None:
                self._do_in_part(line.present, line.made)
            line.present = None
            line.groups.clear()
        for name in sorted(self._files):
            # Data of a failed sync stays visible until its memory is reused.
            file = self._files[name]
            if not file.unsynced and file.differs and self.random.random() < 0.5:
                file.forget()

    def _do_in_part(self, deed: Deed, made: tuple[str, bytes] | None) -> None:
        share = self.random.choice([0.0, self.random.random(), 1.0])
        if self.full and self._needs_room(deed):
            return
        if isinstance(deed, Write) and share < 1:
            deed = Write(deed.name, deed.offset, deed.data[: int(share * len(deed.data))])
        elif isinstance(deed, Create) and 0 < share < 1:
            deed = Create(deed.name, int(share * deed.size))
        elif share < 0.5:
            return
        self._do(deed, made)


class MountedDisk:
    def __init__(self, disk: SimDisk, process: Process) -> None:
        self.disk = disk
        self.process = process
        self.lines = {line: _Line() for line in LINES}
        self._closed = False

    # -- reading

    def names(self) -> list[str]:
        return self.disk.names()

    def size(self, name: str) -> int:
        return self.disk.file(name).size

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        file = self.disk.file(name)
        end = file.size if size < 0 else min(offset + size, file.size)
        if file.unreadable.intersection(range(offset // SECTOR, (end + SECTOR - 1) // SECTOR)):
            raise DiskFailed(f"{self.disk.name}: {name} cannot be read between {offset} and {end}")
        return file.read(offset, end)

    def wall_ms(self) -> int:
        return self.disk.wall_ms()

    def after(self, delay_ns: int, deed: Callable[[], None]) -> None:
        process = self.process
        process.world.after(delay_ns, lambda: process.whenever_awake(lambda: process.step(deed)))

    # -- deeds

    def submit(self, deeds: Sequence[Deed], done: DeedsDone, *, line: str = "journal") -> None:
        if self.process.dies_here():
            return
        assert not self._closed, f"{self.disk.name} is closed"
        here = self.lines[line]
        here.groups.append((deque(deeds), done))
        if not here.busy:
            self._next(here)

    def close(self) -> None:
        for line in self.lines.values():
            if line.present is not None:
                self._finish(line)
            while line.groups:
                self._take(line)
                if line.present is not None:
                    self._finish(line)
        self._closed = True
        self.disk.closed(self)

    def _next(self, line: _Line) -> None:
        """Begin the next deed unless the process, and with it its writing thread, is paused."""
        process = self.process
        if process.dead or line.busy:
            return
        if process.awake_at_ns > process.world.now_ns:
            process.world.at(process.awake_at_ns, partial(self._next, line))
            return
        process.step(partial(self._take, line))
        if line.present is None:
            return
        size = len(line.present.data) if isinstance(line.present, Write) else len((line.made or ("", b""))[1])
        duration_ns = self.disk.duration_ns(line.present, size)
        process.world.after(duration_ns, partial(self._over, line, line.turn))
        self.disk.begun(duration_ns)

    def _take(self, line: _Line) -> None:
        while line.groups and not line.groups[0][0]:
            self._answer(line, None)
        if not line.groups:
            return
        line.present = line.groups[0][0].popleft()
        line.turn += 1
        line.made = line.present.make() if isinstance(line.present, Put) else None

    def _over(self, line: _Line, turn: int) -> None:
        if self.process.dead or self._closed or line.present is None or line.turn != turn:
            return
        self.process.step(partial(self._finish, line))
        self._next(line)

    def _finish(self, line: _Line) -> None:
        assert line.present is not None
        deed, line.present = line.present, None
        made, line.made = line.made, None
        try:
            self.disk.carry_out(deed, made)
        except (DiskFull, DiskFailed) as error:
            self._answer(line, error)
        else:
            if not line.groups[0][0]:
                self._answer(line, None)

    def _answer(self, line: _Line, error: Exception | None) -> None:
        """The first group of the line is complete: run its callback in a turn of its own, in order."""
        _, done = line.groups.popleft()
        line.answers.append((done, error))
        process = self.process

        def tell() -> None:
            done, error = line.answers.popleft()
            process.step(lambda: done(error))

        process.world.after(0, lambda: process.whenever_awake(tell))
