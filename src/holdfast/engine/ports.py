"""The doors through which a member reaches the world: the real one (`runtime`) and the simulated one (`sim`)
have the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.effects import Append, Checkpoint, Note, ReadHistory
from holdfast.core.model.ids import Address, MemberId


class World(Protocol):
    """Clock, network and entropy, and two ears: for notes and for the end."""

    def now_ns(self) -> int:
        """Monotonic nanoseconds of this member."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as this host believes."""

    def jitter(self, limit_ns: int) -> int:
        """A random number of nanoseconds from 0 to `limit_ns`."""

    def open(self, member: MemberId, address: Address) -> None:
        """Be ready to carry packets to a member."""

    def close(self, member: MemberId) -> None:
        """Carry nothing more to it."""

    def carry(self, member: MemberId, packet: bytes) -> None:
        """Carry a packet to a member; it may be lost, late, doubled or overtaken."""

    def send_datagram(self, address: Address, data: bytes) -> None:
        """Carry a message to an address; it may be lost."""

    def shuffle(self, effects: list[object]) -> None:
        """Put the effects of one step into any order (the real world leaves them as they are)."""

    def note(self, note: Note) -> None:
        """Something worth telling happened."""

    def stopped(self, why: str) -> None:
        """The member has ended by itself."""

    def soon(self, deed: Callable[[], None]) -> None:
        """Do this when everything that has arrived by now has been looked at."""

    def wake_at(self, deadline_ns: int) -> None:
        """Call `Driver.tick` at this time at the latest."""


class Writer(Protocol):
    """Who writes down what a member wants to be written: the journal (`engine.journal`)."""

    def carry_out(self, effect: Append | Checkpoint | ReadHistory) -> None:
        """Begin to do this; the member hears of its end as an event, never before this call returns."""

    def close(self) -> None:
        """Write what is left, and let go of the files."""


# -- the disk ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Create:
    """Make a file of so many bytes, all zero, reserved on the disk, durable with its name. It must not be there."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Write:
    """Write bytes at an offset of a file that is there. Not durable before a `Sync` of it."""

    name: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Sync:
    """What was written to the file is durable after this."""

    name: str


@dataclass(frozen=True, slots=True)
class Put:
    """A whole small or large file at once: durable under its name, or not there at all (temporary name, sync, rename).

    `make` is called when its turn comes, perhaps on another thread; it answers the name and the bytes.
    """

    make: Callable[[], tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Remove:
    """Take a file away; no error when it is not there."""

    name: str


@dataclass(frozen=True, slots=True)
class Rename:
    """Give a file that is durable another name, durably; nothing to do when it has it already. The new name is free."""

    name: str
    to: str


Deed = Create | Write | Sync | Put | Remove | Rename


class DiskFull(Exception):
    """There was no room. The deed that failed has changed nothing."""


class DiskFailed(Exception):
    """A write or sync failed otherwise: what is on the disk is not known. It is never tried again."""


DeedsDone = Callable[[Exception | None], None]
"""Called once, in the member's own thread and in a turn of its own: with None, DiskFull or DiskFailed. After a failure
the rest of the deeds that were submitted together is not done."""


class Disk(Protocol):
    """One directory of files, of this process alone.

    Deeds of one `line` are carried out one after the other, in the order of `submit`; `done` is called in that order
    too. There are two lines, so that a checkpoint does not hold up the journal. Reading is at once, and sees what was
    submitted and done.
    """

    def names(self) -> list[str]:
        """The names of all files, sorted."""

    def size(self, name: str) -> int:
        """The bytes of a file."""

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        """Bytes of a file; fewer at its end. Raises FileNotFoundError, or DiskFailed when the disk cannot read them."""

    def submit(self, deeds: Sequence[Deed], done: DeedsDone, *, line: str = "journal") -> None:
        """Carry these out, in this order; `line` is "journal" or "checkpoint"."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for the age of history; no safety rule uses it."""

    def after(self, delay_ns: int, deed: Callable[[], None]) -> None:
        """Call this after a while, in the member's own thread: for the journal's own pace."""

    def close(self) -> None:
        """Wait for what was submitted, and let go of the files."""
