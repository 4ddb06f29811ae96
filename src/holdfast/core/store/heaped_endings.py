"""The reference for endings: objects beside a dictionary, and a heap of deadlines.

A key stands in the heap under a moment that is not later than its deadline. Using an entry does not touch the heap; the
key is put off when that moment comes. Keys of removed entries stay until then; so entries that have only an idle time
that never passes (maps with `lru`) are not in the heap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush, heapreplace

from holdfast.config.schema import ENDLESS_IDLE_MS
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.store.expiry import Expiry

AGAIN_NS = 1000 * MILLISECOND


class HeapedEndings:
    __slots__ = ("deadlines", "expiries")

    def __init__(self) -> None:
        self.expiries: dict[bytes, Expiry] = {}
        self.deadlines: list[tuple[int, bytes]] = []

    def set(self, key: bytes, ttl_ms: int, max_idle_ms: int, now_ns: int) -> None:
        expiry = Expiry(ttl_ms, max_idle_ms, now_ns, now_ns)
        before = self.expiries.get(key)
        self.expiries[key] = expiry
        deadline = expiry.deadline_ns()
        if before is not None and before.noted_ns <= deadline:
            # Its key is in the heap already, early enough.
            expiry.noted_ns = before.noted_ns
        else:
            expiry.noted_ns = deadline
            if not _is_endless(expiry):
                heappush(self.deadlines, (deadline, key))

    def drop(self, key: bytes) -> None:
        self.expiries.pop(key, None)

    def clear(self) -> None:
        self.expiries.clear()
        self.deadlines.clear()

    def use(self, keys: Iterable[bytes], now_ns: int) -> None:
        for key in keys:
            expiry = self.expiries.get(key)
            if expiry is not None:
                expiry.accessed_ns = now_ns

    def ended(self, key: bytes, now_ns: int, touch: bool) -> bool:
        expiry = self.expiries.get(key)
        if expiry is None:
            return False
        if expiry.deadline_ns() <= now_ns:
            return True
        if touch:
            expiry.accessed_ns = now_ns
        return False

    def due(self, now_ns: int, limit: int) -> tuple[list[bytes], int]:
        ended: list[bytes] = []
        deadlines = self.deadlines
        looked = 0
        while looked < limit and deadlines and deadlines[0][0] <= now_ns:
            looked += 1
            if self._is_over():
                _, key = heappop(deadlines)
                # An entry that was removed and stored again at one time is in the heap twice.
                if ended[-1:] != [key]:
                    ended.append(key)
        return ended, looked

    def tidy(self, now_ns: int, limit: int) -> None:
        """An ended entry stays until the primary removes it, and is put off in the heap: on the primary it may be in
        use all the time, and it must not hide the entries behind it.
        """
        deadlines = self.deadlines
        while limit and deadlines and deadlines[0][0] <= now_ns:
            if self._is_over():
                limit -= 1
                _, key = deadlines[0]
                self.expiries[key].noted_ns = now_ns + AGAIN_NS
                heapreplace(deadlines, (now_ns + AGAIN_NS, key))

    def _is_over(self) -> bool:
        """Whether the first key of the heap has ended. If not, drop it (the entry is gone) or put it off."""
        noted, key = self.deadlines[0]
        expiry = self.expiries.get(key)
        if expiry is None or expiry.noted_ns != noted:
            heappop(self.deadlines)
            return False
        deadline = expiry.deadline_ns()
        if deadline > noted:
            expiry.noted_ns = deadline
            if _is_endless(expiry):
                heappop(self.deadlines)
            else:
                heapreplace(self.deadlines, (deadline, key))
            return False
        return True

    def all_used(self, now_ns: int) -> None:
        for key, expiry in self.expiries.items():
            expiry.accessed_ns = now_ns
            if not _is_endless(expiry) and expiry.noted_ns > (deadline := expiry.deadline_ns()):
                expiry.noted_ns = deadline
                heappush(self.deadlines, (deadline, key))

    def start_from(self, base: Mapping[bytes, Expiry]) -> None:
        for key, expiry in base.items():
            mine = self.expiries[key] = expiry.copy()
            mine.noted_ns = mine.deadline_ns()
            if not _is_endless(mine):
                self.deadlines.append((mine.noted_ns, key))
        self.deadlines.sort()

    @property
    def first_ns(self) -> int | None:
        return self.deadlines[0][0] if self.deadlines else None


def _is_endless(expiry: Expiry) -> bool:
    return expiry.max_idle_ms == ENDLESS_IDLE_MS and not expiry.ttl_ms
