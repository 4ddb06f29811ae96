"""Expiry: when entries end, and the interface of what keeps the endings of a map in one partition.

An ending is an object beside a dictionary (`heaped_endings`), or numbers in the block of the entry in a table
(`entry_table.pyx`).

How expiry stays equal on replicas: only the primary expires entries. Example: key a was put with ten seconds to live. A
backup counts them by its own clock; when the deadline passes there, a stays. The primary finds a expired by its own
clock (in a read or a sweep) and replicates an ordinary REMOVE, say update 18; backups drop a when they apply update 18.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Protocol

import msgspec

from holdfast.core.model.ids import MILLISECOND


class Expiry(msgspec.Struct, gc=False):
    """When an entry ends. Numbers only, so the garbage collector does not track it: there may be millions."""

    ttl_ms: int
    max_idle_ms: int
    stored_ns: int
    accessed_ns: int
    noted_ns: int = 0
    """Its time in the heap of deadlines: not later than the deadline, except on a backup, which puts off an ended entry
    until the primary removes it.
    """

    def copy(self) -> Expiry:
        return copy(self)

    def deadline_ns(self) -> int:
        """When the entry ends, in this member's monotonic nanoseconds."""
        by_ttl = self.stored_ns + self.ttl_ms * MILLISECOND if self.ttl_ms else 0
        by_idle = self.accessed_ns + self.max_idle_ms * MILLISECOND if self.max_idle_ms else 0
        if by_ttl and by_idle:
            return min(by_ttl, by_idle)
        return by_ttl or by_idle

    def remaining_ttl_ms(self, now_ns: int) -> int:
        """The rest of the time to live, at least 1 ms; 0: it has none."""
        if not self.ttl_ms:
            return 0
        return max(1, self.ttl_ms - (now_ns - self.stored_ns) // MILLISECOND)


class Endings(Protocol):
    def set(self, key: bytes, ttl_ms: int, max_idle_ms: int, now_ns: int) -> None:
        """Set the ending of a present entry, counted from now."""

    def drop(self, key: bytes) -> None:
        """The entry has no ending any more, or was removed."""

    def clear(self) -> None: ...

    def use(self, keys: Iterable[bytes], now_ns: int) -> None: ...

    def ended(self, key: bytes, now_ns: int, touch: bool) -> bool:
        """Whether the entry has ended; if not, it counts as used now when `touch`."""

    def due(self, now_ns: int, limit: int) -> tuple[list[bytes], int]:
        """Examine up to `limit` entries. Returns the ended ones (earliest first, equal ones by key) for the caller to
        remove, and the number examined.
        """

    def tidy(self, now_ns: int, limit: int) -> None:
        """On a backup: forget endings of removed entries, looking past up to `limit` entries that have ended."""

    def all_used(self, now_ns: int) -> None: ...

    def start_from(self, base: Mapping[bytes, Expiry]) -> None:
        """Take over the endings of another copy, whose entries are here."""

    @property
    def first_ns(self) -> int | None:
        """No entry ends before it; it may be early. None: none ends."""
