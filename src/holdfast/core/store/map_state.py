"""What a map holds of a partition: entries, their expiry, and digests of them.

A primary takes out what has ended. Backups never expire an entry by themselves: they wait for the primary's record, so
that all copies hold the same.

Entries that neither expire nor are counted cost a dictionary slot and two bytes objects, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace

from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.records import Change, Record
from holdfast.core.store.digest import RangeDigests, entry_digest, whole
from holdfast.core.store.state import Observer

AGAIN_NS = 1000 * MILLISECOND
TIDIED = 100
"""Entries that seem to have ended, of one map, at which a backup looks at a time."""
FOLD_AT = 256
"""So many keys may have changed since observers were told; each keeps its former value alive."""


class Expiry:
    """When an entry ends. Only entries with a time to live or a maximum idle time have one."""

    __slots__ = ("accessed_ns", "max_idle_ms", "noted_ns", "stored_ns", "ttl_ms")

    def __init__(self, ttl_ms: int, max_idle_ms: int, now_ns: int) -> None:
        self.ttl_ms = ttl_ms
        self.max_idle_ms = max_idle_ms
        self.stored_ns = now_ns
        self.accessed_ns = now_ns
        self.noted_ns = 0
        """The time under which the key is in the heap of deadlines: not later than its deadline, but on a backup,
        which waits for its primary's word, up to AGAIN_NS after it was looked at.
        """

    def copy(self) -> Expiry:
        """Another one of the same entry, in another copy."""
        other = Expiry(self.ttl_ms, self.max_idle_ms, self.stored_ns)
        other.accessed_ns, other.noted_ns = self.accessed_ns, self.noted_ns
        return other

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


class MapState:
    """The entries of one map in one partition, on one member."""

    __slots__ = ("_digests", "deadlines", "entries", "expiries", "hashes", "name", "observers", "touched")

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: dict[bytes, bytes] = {}
        self.expiries: dict[bytes, Expiry] = {}
        self.hashes: dict[bytes, int] = {}
        """Partition-hash words of the few keys that carry one."""
        self.deadlines: list[tuple[int, bytes]] = []
        self._digests: RangeDigests | None = None
        """One of the observers, while digests are kept."""
        self.touched: dict[bytes, bytes | None] | None = None
        """While somebody observes: the keys that have changed since observers were told, with the value that each had
        then. None: nobody does."""
        self.observers: tuple[Observer, ...] = ()
        """Who is told of changes."""

    # -- what both primary and backup do

    def store(
        self, key: bytes, value: bytes, ttl_ms: int, max_idle_ms: int, key_hash: int, now_ns: int
    ) -> None:
        """Put the entry in place, with its expiry counted from now."""
        touched = self.touched
        if touched is not None and key not in touched:
            touched[key] = self.entries.get(key)
        self.entries[key] = value
        if ttl_ms or max_idle_ms:
            self.schedule(key, ttl_ms, max_idle_ms, now_ns)
        elif self.expiries:
            self.expiries.pop(key, None)
        if key_hash:
            self.hashes[key] = key_hash

    def schedule(self, key: bytes, ttl_ms: int, max_idle_ms: int, now_ns: int) -> None:
        """Give the entry a new expiry, or none when both are 0."""
        if not ttl_ms and not max_idle_ms:
            self.expiries.pop(key, None)
            return
        expiry = Expiry(ttl_ms, max_idle_ms, now_ns)
        before = self.expiries.get(key)
        self.expiries[key] = expiry
        deadline = expiry.deadline_ns()
        if before is not None and before.noted_ns <= deadline:
            # Its key is in the heap already, and is looked at early enough.
            expiry.noted_ns = before.noted_ns
        else:
            expiry.noted_ns = deadline
            heappush(self.deadlines, (deadline, key))

    def drop(self, key: bytes) -> bytes | None:
        """Take the entry out; answers its value."""
        value = self.entries.pop(key, None)
        touched = self.touched
        if touched is not None and key not in touched:
            touched[key] = value
        if self.expiries:
            self.expiries.pop(key, None)
        if self.hashes:
            self.hashes.pop(key, None)
        return value

    def wipe(self) -> None:
        """Take every entry out."""
        self.fold()
        self.observers = tuple(one for one in self.observers if one.complete(self.entries))
        self.touched = {} if self.observers else None
        self.entries.clear()
        self.expiries.clear()
        self.hashes.clear()
        self.deadlines.clear()

    def apply(self, record: Record, now_ns: int) -> bytes | None:
        """Do as a primary's record says."""
        change = record.change
        if change is Change.SET:
            self.store(record.key, record.value, record.ttl_ms, record.max_idle_ms, record.key_hash, now_ns)
        elif change is Change.REMOVE:
            self.drop(record.key)
        elif change is Change.EXPIRY:
            if record.key in self.entries:
                self.schedule(record.key, record.ttl_ms, record.max_idle_ms, now_ns)
        elif change is Change.CLEAR:
            self.wipe()
        else:
            assert change is Change.PIN, change
        return None

    def former(self, key: bytes) -> bytes | None:
        """What the entry is, before it changes; None: it is not there."""
        return self.entries.get(key)

    def hash_word(self, key: bytes) -> int:
        """The partition-hash word that the key carries; 0: none."""
        return self.hashes.get(key, 0)

    def use(self, keys: Sequence[bytes], now_ns: int) -> None:
        """These entries count as used now."""
        for key in keys:
            expiry = self.expiries.get(key)
            if expiry is not None:
                expiry.accessed_ns = now_ns

    # -- expiry, on the primary

    def expired(self, key: bytes, now_ns: int, *, touch: bool = True) -> bool:
        """Whether the entry has ended; a living one counts as used now when `touch`."""
        expiry = self.expiries.get(key)
        if expiry is None:
            return False
        if expiry.deadline_ns() <= now_ns:
            return True
        if touch:
            expiry.accessed_ns = now_ns
        return False

    def due(self, now_ns: int, limit: int) -> list[bytes]:
        """Up to `limit` keys whose time is over; they stay until the caller removes them."""
        ended: list[bytes] = []
        while len(ended) < limit and self._has_ended(now_ns):
            ended.append(heappop(self.deadlines)[1])
        return ended

    def tidy(self, now_ns: int) -> None:
        """What a backup does instead: forget deadlines of entries that are gone, some at a time.

        One that seems to have ended stays until the primary says that it is removed, and is looked at again later: it
        may be in use there all the time, and must not hide those behind it.
        """
        for _ in range(TIDIED):
            if not self._has_ended(now_ns):
                break
            _, key = self.deadlines[0]
            self.expiries[key].noted_ns = now_ns + AGAIN_NS
            heapreplace(self.deadlines, (now_ns + AGAIN_NS, key))

    def _has_ended(self, now_ns: int) -> bool:
        """Forget deadlines of entries that are gone or have a later one now; answers whether the next one has ended."""
        deadlines = self.deadlines
        while deadlines and deadlines[0][0] <= now_ns:
            noted, key = deadlines[0]
            expiry = self.expiries.get(key)
            if expiry is None or expiry.noted_ns != noted:
                heappop(deadlines)
            elif (deadline := expiry.deadline_ns()) > now_ns:
                expiry.noted_ns = deadline
                heapreplace(deadlines, (deadline, key))
            else:
                return True
        return False

    # -- whole states

    def start_from(self, base: MapState) -> None:
        """Hold what `base` holds; both go their own ways from now on."""
        self.entries = base.entries.copy()
        self.expiries = {key: expiry.copy() for key, expiry in base.expiries.items()}
        self.hashes = base.hashes.copy()
        self.deadlines = base.deadlines.copy()

    # -- who observes

    def observe(self, observer: Observer) -> None:
        """Tell it of every change from now on."""
        self.fold()
        if self.touched is None:
            self.touched = {}
        self.observers = (*self.observers, observer)

    def unobserve(self, observer: Observer) -> None:
        """Tell it of nothing more."""
        self.observers = tuple(one for one in self.observers if one is not observer)
        if not self.observers:
            self.touched = None

    def fold(self) -> None:
        """Tell observers, if there are any, what has changed since they were told last."""
        touched = self.touched
        if not touched:
            return
        self.touched = {}
        for observer in self.observers:
            observer.absorb(touched, self.entries)

    def settle(self) -> None:
        """Tell observers when much has changed."""
        if self.touched is not None and len(self.touched) >= FOLD_AT:
            self.fold()

    # -- comparing

    def digests(self) -> list[int]:
        """The digests of the 64 key ranges. From the first time on they are kept, at some cost for each change."""
        self.fold()
        if self._digests is None:
            self._digests = RangeDigests()
            self._digests.sums = RangeDigests.digests(self.entries)
            self.observe(self._digests)
        return self._digests.sums

    def compared(self) -> int:
        """A 64-bit sum over all entries, which is kept up to date."""
        return whole(self.digests())

    def not_compared(self) -> None:
        """Keep no digests, until they are asked for."""
        if self._digests is not None:
            self.unobserve(self._digests)
            self._digests = None

    def damaged(self, *, adopt: bool) -> list[int]:
        """Key ranges whose content is not what the updates have made of it; `adopt`: count it as it is from now on.

        Walks through all entries. Only where digests are kept.
        """
        if self._digests is None:
            return []
        told, found = self.digests(), RangeDigests.digests(self.entries)
        differing = [at for at, (one, other) in enumerate(zip(told, found, strict=True)) if one != other]
        if adopt:
            self._digests.sums = found
        return differing

    def digest(self) -> int:
        """A 64-bit sum over all entries, counted anew, the same for equal content whatever the order."""
        return whole(map(entry_digest, self.entries.keys(), self.entries.values()))
