"""Interfaces to the world outside a member, implemented by the real one (`runtime`) and the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.effects import Append, Checkpoint, Note, ReadHistory
from holdfast.core.model.ids import Address, MemberId
from holdfast.core.model.processors import ProcessorResult, ProcessorRun


class World(Protocol):
    """Clock, network and entropy of a member; receives its notes and its end."""

    def now_ns(self) -> int:
        """Monotonic."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, by this host's clock."""

    def jitter(self, limit_ns: int) -> int:
        """Random, from 0 to `limit_ns`."""

    def open(self, member: MemberId, address: Address) -> None: ...

    def close(self, member: MemberId) -> None: ...

    def carry(self, member: MemberId, packet: bytes) -> None:
        """A packet may be lost, delayed, duplicated or reordered."""

    def hold(self) -> None:
        """Packets may be kept until `release`, so that they leave together."""

    def release(self) -> None:
        """Send them. Called soon after `hold`, in the same turn of the event loop."""

    def send_datagram(self, address: Address, data: bytes) -> None:
        """May be lost."""

    def shuffle(self, effects: list[object]) -> None:
        """Reorder the effects of one step arbitrarily. The real world keeps their order."""

    def note(self, note: Note) -> None: ...

    def stopped(self, why: str) -> None: ...

    def soon(self, deed: Callable[[], None]) -> None:
        """Call this when everything that has arrived by now has been handled."""

    def wake_at(self, deadline_ns: int) -> None:
        """Call `Driver.tick` no later than this."""


class ProcessorRunner(Protocol):
    """Runs entry processors."""

    def run(self, asked: ProcessorRun, done: Callable[[ProcessorResult], None]) -> None:
        """`done` is called once, in a later step on the member's thread; perhaps too late, or never."""

    def end(self) -> None:
        """Start no more."""


class Writer(Protocol):
    def carry_out(self, effect: Append | Checkpoint | ReadHistory) -> None:
        """The result comes as an event, never before this call returns."""

    def close(self) -> None: ...


# -- the disk ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Create:
    """Create a zeroed file of this size, durably with its name, which must be free."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Write:
    """Write into a file. Before its `Sync` any part may be missing after a power cut."""

    name: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Sync:
    name: str


@dataclass(frozen=True, slots=True)
class Put:
    """Write a whole file atomically: temporary name, fsync, rename. `make` returns name and bytes; it is
    called when the operation's turn comes, possibly on another thread.
    """

    make: Callable[[], tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Remove:
    """No error if the file does not exist."""

    name: str


@dataclass(frozen=True, slots=True)
class Rename:
    """Rename a durable file, durably. The new name must be free; a file that has it already is left alone."""

    name: str
    to: str


Deed = Create | Write | Sync | Put | Remove | Rename


class DiskFull(Exception):
    """No space left; the failed operation has changed nothing."""


class DiskFailed(Exception):
    """Another failure of a write or sync: the content of the disk is unknown. Never retried."""


DeedsDone = Callable[[Exception | None], None]
"""Called once, on the member's thread in a separate turn, with None, DiskFull or DiskFailed. After a failure
the remaining operations of the same `submit` are skipped.
"""


class Disk(Protocol):
    """One directory, used by this process alone.

    Operations of one `line` run in the order of `submit`, and so do their `done` calls. There are two lines
    so that a checkpoint does not delay the journal. `read` is synchronous and sees finished operations.

    Example: after `submit([Write(f, 0, b"A"), Sync(f)])` and `submit([Write(f, 1, b"B")])` a process crash
    keeps what was written, but a power cut before the next `Sync` may lose B or a part of it. A is safe once
    the first `done` has been called with None.
    """

    def names(self) -> list[str]: ...

    def size(self, name: str) -> int: ...

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        """Fewer bytes at the end. Raises FileNotFoundError or DiskFailed."""

    def submit(self, deeds: Sequence[Deed], done: DeedsDone, *, line: str = "journal") -> None: ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for the age of history; no safety rule depends on it."""

    def after(self, delay_ns: int, deed: Callable[[], None]) -> None:
        """Call this later, on the member's thread."""

    def close(self) -> None: ...
