"""How much memory may this member take, and how much of it has it taken?

The limit is `limits.memory_bytes`; without one it is a share of what the container, the host or `RLIMIT_AS` allows,
whichever is least. What is taken is measured, not counted: whatever it is used for, it is in what the kernel says.

Memory that is freed does not always go back to the kernel: Python gives back only arenas that are wholly empty, and the
C library only what is at an end of its heap, or is asked for by `malloc_trim`. What is free inside both is used again,
so it does not count as taken. Where it cannot be known (another C library, another Python) it does, and a member
recovers only when the kernel has the memory back.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast.core.model.views import Room
from holdfast.wire.checkpoint import need_arrow

PAGE = os.sysconf("SC_PAGE_SIZE")
HOST_SHARE = 0.5
"""Of the host's memory: others live there, too."""
OWN_SHARE = 0.75
"""Of the container's memory, or of `RLIMIT_AS`: those are for this process alone. The rest is for peaks, and
for what the kernel counts beside what is resident."""
UNLIMITED = 1 << 60
"""What cgroups of version 1 say when there is no limit is about this, or more."""

M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -8, -3, -1
"""Of the C library's `mallopt`: how many heaps there may be; from which size on a block is a mapping of its own; how
much may be free at the end of the heap."""
MAPPED_BYTES, KEPT_BYTES = 32 * 1024 * 1024, 64 * 1024 * 1024
"""What is set for the last two. By default both follow what was freed, and begin at 128 KB: then each turn that answers
with large values gets its buffers from the kernel, page by page, and gives them back."""
AMPLE = 4 * 1024**3
"""Of a smaller limit what is kept free would be too large a part; there the defaults stay."""

LITTLE_AT, LITTLE_UNTIL = 0.80, 0.75
"""Parts of the limit: there is little room from the one on, and plenty again below the other."""
NONE_AT, NONE_UNTIL = 0.90, 0.85
"""The same of no room."""
COPIES = 8
"""So much of what a large request brings is in memory at a time, at about: as it came, decoded, and on its way to
backups, to the journal and to sockets."""
LARGEST_PART = 0.4
"""What all these may be of the limit: backups, which are not asked, have their reserve for it."""
TAKEN_AT = 0.97
"""From here on what is free inside counts as taken: too much of it cannot be used for what comes."""
PAUSES = 50
"""After a look inside it is so many times as long until the next one: with many pieces it takes milliseconds. The same
of `malloc_trim`, which may take 100 ms for each gigabyte that it gives back."""
TRIM_S = 1.0
"""At least so long it is between two of these."""
TRIM_PART = 0.05
"""It is called when at least this part of the limit would be given back."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How much memory this process may take."""

    size: int
    """Bytes."""
    because: str
    """Where the number is from, in words."""


def limit_of(given: int) -> Limit:
    """The limit: `given` (`limits.memory_bytes`), or what is found if that is 0; at most what `RLIMIT_AS` leaves."""
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
    """What `RLIMIT_AS` leaves: what is mapped and not resident (libraries, stacks) is no room for entries."""
    space = address_space()
    if space is None:
        return None
    resident, size = _taken()
    left = max(0, space - (size - resident))
    return Limit(max(1, int(left * OWN_SHARE)), "three quarters of what RLIMIT_AS leaves")


def prepare(*, files: bool, memory_bytes: int = 0) -> None:
    """At the start of a process: see to it that what is taken can be known, and is little where addresses are limited.

    `files`: whether checkpoints will be written. What that needs is loaded now then, for later there may be no room.
    `memory_bytes`: as for `limit_of`.
    """
    if files:
        # Arrow's own allocators keep what is freed, and reserve a gigabyte of addresses.
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
            # Else each thread that allocates reserves 64 MB for itself.
            mallopt(M_ARENA_MAX, 1)
    if files and limited:
        need_arrow()  # Only here: it takes a second, and checkpoints load it anyway.


def address_space() -> int | None:
    """`RLIMIT_AS` of this process in bytes; None when there is none."""
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def container_bytes(root: Path = Path("/")) -> int | None:
    """The least memory limit of the cgroups that this process is in, of version 1 or 2; None when there is none."""
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
        # The limit of any group above counts as well. In a container its own group may be shown as the root.
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
    """Bytes of this process that are resident, and that are mapped; 0 where the kernel does not say (not Linux)."""
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return 0, 0
    try:
        size, resident = os.read(file, 100).split()[:2]
    finally:
        os.close(file)
    return int(resident) * PAGE, int(size) * PAGE


# -- what is free inside


@dataclass(frozen=True, slots=True)
class Inside:
    """What the allocators of this process have from the kernel."""

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
    """Python's own allocator, and that of the C library. What is not there is told as nothing."""

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
        """What both have, and what of it is free."""
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
        """What `sys._debugmallocstats` would print. Nothing else in Python knows how much is free in its arenas."""
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
        """Give back to the kernel what is free in the heap of the C library."""
        if self._malloc:
            self._libc.malloc_trim(0)


def _number(text: bytes) -> int:
    return int(text.replace(b",", b""))


# -- the gauge


class Gauge:
    """Measures what is taken, and says how much room there is."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.used = self.resident = 0
        """Bytes, at the last look: what is used; and what the kernel says is resident, in which some may be free."""
        self.room = Room.PLENTY
        self._space = address_space()
        self._allocators = Allocators()
        self._inside = self._allocators.look()
        self._top = 0
        """What was taken when it was looked inside."""
        self._next_inside_s = self._next_trim_s = 0.0
        resident, _ = _taken()
        self._least_else = max(0, resident - self._inside.used - self._inside.free)
        """What is resident and of neither allocator: programs, libraries, stacks."""
        self._else = self._least_else
        self.look()

    def look(self) -> Room:
        """Measure; answers how much room there is now."""
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
        """What of it is used, as far as is known. What has been taken since the last look inside counts as used."""
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
            # Address space: what is free there stays taken for others, but not for this process.
            used = max(used, top - inside.free)
        return used

    def _trim(self, resident: int, now_s: float) -> None:
        """Give back what is free in the heap of the C library, if that is much: Python's arenas cannot use it."""
        limit, inside = self.limit.size, self._inside
        spare = min(inside.free, resident - inside.used - self._least_else)
        if resident >= LITTLE_AT * limit and spare >= TRIM_PART * limit and now_s >= self._next_trim_s:
            self._allocators.trim()
            done_s = time.monotonic()
            self._next_trim_s = done_s + max(TRIM_S, PAUSES * (done_s - now_s))

    def fits(self, size: int) -> bool:
        """Whether there is room for a request of so many bytes, measured just now."""
        self.look()
        return size * COPIES <= min(TAKEN_AT * self.limit.size - self.used, LARGEST_PART * self.limit.size)

    def figures(self) -> dict[str, object]:
        """What is told of it in the status."""
        return {
            "limit_bytes": self.limit.size,
            "limit_from": self.limit.because,
            "used_bytes": self.used,
            "resident_bytes": self.resident,
            "room": self.room.name.lower(),
        }


def _room(part: float, before: Room) -> Room:
    """How much room there is when this part of the limit is used: easing needs more than worsening, so that it does not
    go to and fro.
    """
    if part >= (NONE_UNTIL if before is Room.NONE else NONE_AT):
        return Room.NONE
    if part >= (LITTLE_UNTIL if before is not Room.PLENTY else LITTLE_AT):
        return Room.LITTLE
    return Room.PLENTY
