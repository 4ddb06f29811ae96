"""A disk in memory whose every step a test decides: what is done when, what is told when, what a crash leaves."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

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

SECTOR = 512


class Platter:
    """What outlives the process."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        """As durable."""
        self.seen: dict[str, bytearray] = {}
        self.unsynced: dict[str, list[tuple[int, bytes]]] = {}

    def crash(self, draw: random.Random, *, power: bool = True) -> None:
        """The process ends; with `power`, of what was not synced any sectors are lost."""
        if power:
            for name, writes in self.unsynced.items():
                keep = draw.choice([0.0, 0.5, 1.0])
                for offset, data in writes:
                    for start in range(0, len(data), SECTOR):
                        if draw.random() < keep:
                            piece = data[start : start + SECTOR]
                            self.files[name][offset + start : offset + start + len(piece)] = piece
            self.seen = {name: bytearray(data) for name, data in self.files.items()}
            self.unsynced = {}


class MemoryDisk:
    """Implements `doors.Disk`. `step` does one thing; `run` everything, up to a time."""

    def __init__(self, platter: Platter, draw: random.Random | None = None) -> None:
        self.platter = platter
        self.now_ns = 0
        self.full = False
        self.fails: Callable[[Deed], bool] = lambda deed: False
        self.unreadable: set[str] = set()
        self.held: set[str] = set()
        """Lines that stand still for now: the disk is slow. "timers": so does the member's own pace."""
        self.fits: set[str] = set()
        """Files that find room though the disk is full."""
        self.log: list[Deed] = []
        self._draw = draw or random.Random(0)
        self.lines: dict[str, deque[tuple[deque[Deed], DeedsDone]]] = {
            "journal": deque(),
            "checkpoint": deque(),
        }
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._answers: deque[Callable[[], None]] = deque()
        self._count = 0
        self.dead = False

    # -- the door

    def names(self) -> list[str]:
        return sorted(self.platter.seen)

    def size(self, name: str) -> int:
        return len(self.platter.seen[name])

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        if name in self.unreadable:
            raise DiskFailed(f"{name} cannot be read")
        if name not in self.platter.seen:
            raise FileNotFoundError(name)
        data = self.platter.seen[name]
        return bytes(data[offset:] if size < 0 else data[offset : offset + size])

    def submit(self, deeds: Sequence[Deed], done: DeedsDone, *, line: str = "journal") -> None:
        self.lines[line].append((deque(deeds), done))

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ns // 1_000_000

    def after(self, delay_ns: int, deed: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._timers, (self.now_ns + delay_ns, self._count, deed))

    def close(self) -> None:
        while self._deed():
            pass
        self.dead = True

    # -- what a test does

    def step(self) -> bool:
        """One thing: tell somebody, do one deed of some line, or let time pass. False: nothing is left."""
        choices: list[Callable[[], object]] = []
        if self._answers:
            choices.append(self._tell)
        choices += [
            lambda groups=groups: self._deed_of(groups)
            for line, groups in self.lines.items()
            if groups and line not in self.held
        ]
        timers = bool(self._timers) and "timers" not in self.held
        if timers and (self._timers[0][0] <= self.now_ns or not choices):
            choices.append(self._time)
        if not choices or self.dead:
            return False
        self._draw.choice(choices)()
        return True

    def run(self, ns: int = 5_000_000_000) -> None:
        """Everything that happens within so long."""
        end = self.now_ns + ns
        self.after(ns, lambda: None)
        while self.now_ns < end and self.step():
            pass

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(100_000):
            if condition():
                return
            if not self.step():
                break
        assert condition()

    def _tell(self) -> None:
        self._answers.popleft()()

    def _time(self) -> None:
        at, _, deed = heappop(self._timers)
        self.now_ns = max(self.now_ns, at)
        deed()

    def _deed(self) -> bool:
        groups = next((groups for groups in self.lines.values() if groups), None)
        if groups is None:
            return False
        self._deed_of(groups)
        return True

    def _deed_of(self, groups: deque[tuple[deque[Deed], DeedsDone]]) -> None:
        deeds, done = groups[0]
        error: Exception | None = None
        if deeds:
            deed = deeds.popleft()
            try:
                self._do(deed)
                self.log.append(deed)
            except (DiskFull, DiskFailed) as failure:
                error = failure
        if error is not None or not deeds:
            groups.popleft()
            self._answers.append(lambda: done(error))

    def _do(self, deed: Deed) -> None:
        if self.fails(deed):
            if isinstance(deed, Sync):
                # What a failed sync has not made durable is taken for clean: no later one makes it so.
                self.platter.unsynced.pop(deed.name, None)
            raise DiskFailed(f"{deed} failed")
        platter = self.platter
        if self.full and isinstance(deed, Create | Put):
            name = deed.make()[0] if isinstance(deed, Put) else deed.name
            if name not in self.fits:
                raise DiskFull("full")
        match deed:
            case Create(name, size):
                assert name not in platter.seen
                platter.files[name] = bytearray(size)
                platter.seen[name] = bytearray(size)
            case Write(name, offset, data):
                assert offset + len(data) <= len(platter.seen[name])
                platter.seen[name][offset : offset + len(data)] = data
                platter.unsynced.setdefault(name, []).append((offset, data))
            case Sync(name):
                for offset, data in platter.unsynced.pop(name, []):
                    platter.files[name][offset : offset + len(data)] = data
            case Put(make):
                name, data = make()
                platter.unsynced.pop(name, None)
                platter.files[name] = bytearray(data)
                platter.seen[name] = bytearray(data)
            case Remove(name):
                for files in (platter.files, platter.seen, platter.unsynced):
                    files.pop(name, None)
            case Rename(name, to):
                assert to not in platter.seen
                for files in (platter.files, platter.seen):
                    files[to] = files.pop(name)
