"""The doors through which a member reaches the world: the real one (`runtime`) and the simulated one (`sim`)
have the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.core.machine import Address, MemberId, Note


class World(Protocol):
    """Clock, network and entropy, and two ears: for notes and for the end."""

    def now_ns(self) -> int:
        """Monotonic nanoseconds of this member."""

    def jitter(self, limit_ns: int) -> int:
        """A random number of nanoseconds from 0 to `limit_ns`."""

    def open(self, member: MemberId, address: Address) -> None:
        """Be ready to carry packets to a member."""

    def close(self, member: MemberId) -> None:
        """Carry nothing more to it."""

    def carry(self, member: MemberId, packet: bytes) -> None:
        """Carry a packet to a member; it may be lost, late, doubled or overtaken."""

    def whisper(self, address: Address, data: bytes) -> None:
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
