"""When does an entry end? And what keeps that of the entries of a map in one partition?

Only entries with a time to live or a maximum idle time have an ending. Beside a dictionary of entries it is an object
each (`heaped_endings`); a table keeps it as numbers in the block of its entry (`entry_table.pyx`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Protocol

import msgspec

from holdfast.core.model.ids import MILLISECOND


class Expiry(msgspec.Struct, gc=False):
    """When an entry ends.

    Numbers only: out of the collector's sight, for which millions of them would be work.
    """

    ttl_ms: int
    max_idle_ms: int
    stored_ns: int
    accessed_ns: int
    noted_ns: int = 0
    """The time under which the key is in the heap of deadlines: not later than its deadline, but on a backup that
    waits for its primary's word some time later, after it was looked at.
    """

    def copy(self) -> Expiry:
        """Another one of the same entry, in another copy."""
        return copy(self)

    def deadline_ns(self) -> int:
        """The moment, in this member's monotonic nanoseconds, from which the entry is gone."""
        by_ttl = self.stored_ns + self.ttl_ms * MILLISECOND if self.ttl_ms else 0
        by_idle = self.accessed_ns + self.max_idle_ms * MILLISECOND if self.max_idle_ms else 0
        if by_ttl and by_idle:
            return min(by_ttl, by_idle)
        return by_ttl or by_idle

    def remaining_ttl_ms(self, now_ns: int) -> int:
        """What is left of the time to live, at least 1 ms; 0 when it has none."""
        if not self.ttl_ms:
            return 0
        return max(1, self.ttl_ms - (now_ns - self.stored_ns) // MILLISECOND)


class Endings(Protocol):
    """What keeps the endings of entries. Changed only through this; read as `MapState.expiries`, a mapping of keys."""

    def set(self, key: bytes, ttl_ms: int, max_idle_ms: int, now_ns: int) -> None:
        """The entry, which is there, ends so, counted from now."""

    def drop(self, key: bytes) -> None:
        """The entry ends only when it is told to, or is gone."""

    def clear(self) -> None:
        """All entries are about to go."""

    def use(self, keys: Iterable[bytes], now_ns: int) -> None:
        """These entries count as used now."""

    def ended(self, key: bytes, now_ns: int, touch: bool) -> bool:
        """Whether the entry has ended; a living one counts as used now when `touch`."""

    def due(self, now_ns: int, limit: int) -> tuple[list[bytes], int]:
        """Look at up to `limit` entries that may have ended; answers those that have, the one that ended first before
        all others, and of several by their keys; and how many were looked at. The caller removes them.
        """

    def tidy(self, now_ns: int, limit: int) -> None:
        """On a backup: forget what is noted of entries that are gone, past up to `limit` that seem to have ended."""

    def all_used(self, now_ns: int) -> None:
        """Whoever has been idle counts as used, and what has ended is found."""

    def start_from(self, base: Mapping[bytes, Expiry]) -> None:
        """Be those of another copy, whose entries are here."""

    @property
    def first_ns(self) -> int | None:
        """No entry ends before this moment, as far as this need be looked at (`due`); None: none does."""
