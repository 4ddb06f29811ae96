"""The memory limit of a member, and how much of it is in use.

The limit is `limits.memory_bytes`, or else the least share of the memory that the container, the host or `RLIMIT_AS`
allows. Use is measured as resident memory, so it includes everything.

Freed memory does not always return to the kernel. Example: a map of 3 GB is cleared, and 100 MB of entries remain
spread over Python's arenas. Python returns only empty arenas, so the kernel still counts most of the 3 GB; but new
entries fit into the free parts. So free memory inside the allocators does not count as used. Where it cannot be
determined (another C library or Python) it does.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast.core.model.member_status import MemoryStatus
from holdfast.core.model.views import Room
from holdfast.wire.checkpoint import need_arrow

PAGE = os.sysconf("SC_PAGE_SIZE")
HOST_SHARE = 0.5
"""Share of the host's memory, which other programs use as well."""
OWN_SHARE = 0.75
"""Share of the container's memory or `RLIMIT_AS`, which this process has for itself. The rest is for peaks, and for
memory that the kernel counts besides resident memory.
"""
UNLIMITED = 1 << 60
"""Version 1 of cgroups reports about this much, or more, if there is no limit."""

M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -8, -3, -1
"""Parameters of `mallopt`: number of heaps; size from which a block is its own mapping; free bytes that stay
at the end of the heap.
"""
MAPPED_BYTES, KEPT_BYTES = 32 * 1024 * 1024, 64 * 1024 * 1024
"""Values for the last two. By default both adapt to freed sizes and begin at 128 KB: then each turn that
sends large values gets its buffers from the kernel, page by page, and returns them.
"""
AMPLE = 4 * 1024**3
"""Below this limit `KEPT_BYTES` would be too large a part, and the defaults stay."""

LITTLE_AT, LITTLE_UNTIL = 0.80, 0.75
"""Parts of the limit: memory is short from the first on, until use falls below the second."""
NONE_AT, NONE_UNTIL = 0.90, 0.85
"""The same for "no room"."""
COPIES = 8
"""Rough number of copies of a large request's data at one time: as received, decoded, and in buffers for
backups, the journal and sockets.
"""
LARGEST_PART = 0.4
"""All these copies, as a part of the limit; backups, which are not asked, have their reserve for it."""
TAKEN_AT = 0.97
"""From here on free memory inside the allocators counts as used: too much of it is in unusable pieces."""
PAUSES = 50
"""Pause after an inspection of the allocators, as a multiple of its duration (milliseconds with many pieces).
The same for `malloc_trim`, which may take 100 ms per gigabyte.
"""
TRIM_S = 1.0
TRIM_PART = 0.05
"""Trim only if at least this part of the limit would be returned."""


@dataclass(frozen=True, slots=True)
class Limit:
    size: int
    because: str


def limit_of(given: int) -> Limit:
    """`given` (`limits.memory_bytes`) or, if 0, the detected limit; never more than `RLIMIT_AS` leaves."""
    space = _space_limit()
    if given:
        return space if space is not None and space.size < given else Limit(given, "limits.memory_bytes")
    host = os.sysconf("SC_PHYS_PAGES") * PAGE
    found = [Limit(int(host * HOST_SHARE), "half of this host's memory")]
    container = container_bytes()
    if container is not None:
        found.append(Limit(int(container * OWN_SHARE), "three quarters of this container's memory"))
    if space is not None:
        found.append(space)
    return min(found, key=lambda limit: limit.size)


def _space_limit() -> Limit | None:
    """Memory left by `RLIMIT_AS`. Mapped memory that is not resident (libraries, stacks) is no room for
    entries.
    """
    space = address_space()
    if space is None:
        return None
    resident, size = _taken()
    left = max(0, space - (size - resident))
    return Limit(max(1, int(left * OWN_SHARE)), "three quarters of what RLIMIT_AS leaves")


def prepare(*, files: bool, memory_bytes: int = 0) -> None:
    """Prepare the allocators at the start of the process.

    `files`: whether checkpoints will be written; their library is loaded now, as later there may be no room.
    `memory_bytes`: as for `limit_of`.
    """
    if files:
        # Arrow's own allocators keep freed memory, and reserve a gigabyte of addresses.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    limited = address_space() is not None
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        pass  # Another C library.
    else:
        if limit_of(memory_bytes).size >= AMPLE:
            mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
            mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        if limited:
            # Otherwise each allocating thread reserves 64 MB of addresses.
            mallopt(M_ARENA_MAX, 1)
    if files and limited:
        need_arrow()  # Only here: it takes a second, and checkpoints load it anyway.


def address_space() -> int | None:
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def container_bytes(root: Path = Path("/")) -> int | None:
    """The lowest memory limit of this process's cgroups, version 1 or 2."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    limits: list[int] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # Limits of parent groups apply as well. Inside a container its own group may appear as the root.
        group = base / path.strip("/")
        for place in [group, *group.parents]:
            limits += _limit_in(place / name)
            if place == base:
                break
    return min(limits, default=None)


def _limit_in(file: Path) -> list[int]:
    try:
        text = file.read_text().strip()
    except OSError:
        return []
    return [int(text)] if text.isdecimal() and int(text) < UNLIMITED else []


def _taken() -> tuple[int, int]:
    """Resident and mapped bytes; 0 where the kernel does not report them (not Linux)."""
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return 0, 0
    try:
        size, resident = os.read(file, 100).split()[:2]
    finally:
        os.close(file)
    return int(resident) * PAGE, int(size) * PAGE


# -- free memory inside the allocators


@dataclass(frozen=True, slots=True)
class Inside:
    used: int
    free: int


class _MallInfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()  # noqa: SIM905
        )
    ]


_ARENAS = re.compile(rb"([\d,]+) arenas \* ([\d,]+) bytes/arena")
_BLOCKS = re.compile(rb"# bytes in allocated blocks += +([\d,]+)")


class Allocators:
    """Python's allocator and the C library's. One that cannot be inspected counts as empty."""

    def __init__(self) -> None:
        self._libc = libc = ctypes.CDLL(None)
        try:
            libc.mallinfo2.restype = _MallInfo
            self._malloc = True
        except AttributeError:
            self._malloc = False
        try:
            libc.open_memstream.restype = ctypes.c_void_p
            libc.open_memstream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
            libc.fclose.argtypes = libc.free.argtypes = [ctypes.c_void_p]
            self._tell = ctypes.pythonapi._PyObject_DebugMallocStats  # noqa: SLF001 -- see `_python_says`
            self._tell.argtypes = [ctypes.c_void_p]
            self._python = True
        except AttributeError:
            self._python = False

    def look(self) -> Inside:
        used = free = 0
        if self._malloc:
            info = self._libc.mallinfo2()
            used, free = info.uordblks + info.hblkhd, info.fordblks
        if self._python and (text := self._python_says()):
            arenas, blocks = _ARENAS.search(text), _BLOCKS.search(text)
            if arenas is not None and blocks is not None:
                whole = _number(arenas[1]) * _number(arenas[2])
                used += _number(blocks[1])
                free += whole - _number(blocks[1])
        return Inside(used, free)

    def _python_says(self) -> bytes:
        """The text of `sys._debugmallocstats`, the only source for the free part of Python's arenas."""
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        stream = self._libc.open_memstream(ctypes.byref(text), ctypes.byref(size))
        if not stream:
            return b""
        self._tell(stream)
        self._libc.fclose(stream)
        told = ctypes.string_at(text, size.value) if text.value else b""
        self._libc.free(text)
        return told

    def trim(self) -> None:
        if self._malloc:
            self._libc.malloc_trim(0)


def _number(text: bytes) -> int:
    return int(text.replace(b",", b""))


# -- the gauge


class Gauge:
    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.used = self.resident = 0
        """Bytes at the last look: in use; and resident, possibly with free space inside."""
        self.room = Room.PLENTY
        self._space = address_space()
        self._allocators = Allocators()
        self._inside = self._allocators.look()
        self._top = 0
        self._next_inside_s = self._next_trim_s = 0.0
        resident, _ = _taken()
        self._least_else = max(0, resident - self._inside.used - self._inside.free)
        """Resident memory of neither allocator: programs, libraries, stacks."""
        self._else = self._least_else
        self.look()

    def look(self) -> Room:
        limit = self.limit.size
        resident, size = _taken()
        top = resident
        if self._space is not None:
            top = max(top, limit - (self._space - size))
        self.resident = resident
        self.used = top if top < LITTLE_UNTIL * limit else self._without_free(top, resident)
        assert limit > 0 <= self.used
        self.room = _room(self.used / limit, self.room)
        return self.room

    def _without_free(self, top: int, resident: int) -> int:
        """The part that is in use, as far as known. Growth since the last inspection counts as used."""
        limit = self.limit.size
        now_s = time.monotonic()
        if now_s >= self._next_inside_s:
            self._inside = inside = self._allocators.look()
            self._top = top
            self._else = max(self._least_else, resident - inside.used - inside.free)
            done_s = time.monotonic()
            self._next_inside_s = done_s + PAUSES * (done_s - now_s)
            self._trim(resident, done_s)
        if top >= TAKEN_AT * limit:
            return top
        inside = self._inside
        since = max(0, top - self._top)
        used = min(resident, self._else + inside.used + since)
        if top > resident:
            # Free addresses stay mapped, so other programs cannot use them, but this process can.
            used = max(used, top - inside.free)
        return used

    def _trim(self, resident: int, now_s: float) -> None:
        """Return a large free part of the C library's heap, because Python's arenas cannot use it."""
        limit, inside = self.limit.size, self._inside
        spare = min(inside.free, resident - inside.used - self._least_else)
        if resident >= LITTLE_AT * limit and spare >= TRIM_PART * limit and now_s >= self._next_trim_s:
            self._allocators.trim()
            done_s = time.monotonic()
            self._next_trim_s = done_s + max(TRIM_S, PAUSES * (done_s - now_s))

    def fits(self, size: int) -> bool:
        self.look()
        return size * COPIES <= min(TAKEN_AT * self.limit.size - self.used, LARGEST_PART * self.limit.size)

    def status(self) -> MemoryStatus:
        limit = self.limit
        return MemoryStatus(limit.size, limit.because, self.used, self.resident, self.room.name.lower())


def _room(part: float, before: Room) -> Room:
    """The level for this part of the limit, with hysteresis: a better level needs a lower part."""
    if part >= (NONE_UNTIL if before is Room.NONE else NONE_AT):
        return Room.NONE
    if part >= (LITTLE_UNTIL if before is not Room.PLENTY else LITTLE_AT):
        return Room.LITTLE
    return Room.PLENTY
