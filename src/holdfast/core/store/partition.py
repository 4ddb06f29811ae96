"""One member's copy of one partition: for each map a dictionary of entries, their expiry, and the update counter;
for each service its share.

A primary changes entries through the operations here; each change returns the *record* that its backups apply
with `apply`, in the order of the counter. Backups never expire an entry by themselves: they wait for the
primary's record, so that all copies hold the same.

Entries that neither expire nor are counted cost a dictionary slot and two bytes objects, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush, heapreplace
from itertools import chain
from typing import Protocol

import mmh3

from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.records import Change, JournalMode, Record
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.store.digest import RangeDigests, entry_digest, whole
from holdfast.core.store.request_ids import KEPT, Remembered
from holdfast.core.store.tail import Tail

AGAIN_NS = 1000 * MILLISECOND
TIDIED = 100
"""Entries that seem to have ended, of one map, at which a backup looks at a time."""
FOLD_AT = 256
"""So many keys may have changed since digests and cuts were brought up to date; each keeps its former value alive."""


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


class Observer(Protocol):
    """Who has to know what a map's share of a partition held before a change. Neither may raise."""

    def absorb(self, touched: dict[bytes, bytes | None]) -> None:
        """These keys have changed since it was told last, from what is given; None: the key was not there."""

    def complete(self, entries: dict[bytes, bytes]) -> None:
        """All entries, which are these, are about to go; changes until now have been absorbed."""


class MapPartition:
    """The entries of one map in one partition, on one member."""

    __slots__ = (
        "_digests",
        "changes",
        "deadlines",
        "entries",
        "expiries",
        "hashes",
        "journal",
        "lineage",
        "name",
        "observers",
        "recorded",
        "sync",
        "tail",
        "targets",
        "touched",
        "updates",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: dict[bytes, bytes] = {}
        self.expiries: dict[bytes, Expiry] = {}
        self.hashes: dict[bytes, int] = {}
        """Partition-hash words of the few keys that carry one."""
        self.deadlines: list[tuple[int, bytes]] = []
        self.updates = UpdateCounter()
        """Which updates this copy holds. Gaps are only in a copy that is being filled, or was read from a disk."""
        self.lineage: list[tuple[int, int]] = []
        """Which history they are of: from the counter start + 1 on, those of the primary of this term; ascending."""
        self.journal: JournalMode = "off"
        """Whether this map's updates are written down on this member before they count as held."""
        self.changes = 0
        """Bytes of the last updates that are kept for change streams; 0: the map has none."""
        self.recorded = False
        """On a primary: whether its updates are wanted by a backup, also one that is missing, or by the journal."""
        self.targets: tuple[str, ...] = ()
        """On a primary: the members that each record of this map goes to."""
        self.sync: frozenset[str] = frozenset()
        """On a primary: those of them that must have it before the caller is answered."""
        self.tail: Tail | None = None
        """The last updates, if they are kept."""
        self._digests: RangeDigests | None = None
        self.touched: dict[bytes, bytes | None] | None = None
        """While digests are kept or somebody observes: the keys that have changed since they were brought up to date,
        with the value that each had then. None: neither."""
        self.observers: tuple[Observer, ...] = ()
        """Who is told of changes."""

    @property
    def counter(self) -> int:
        """The low watermark of the updates."""
        return self.updates.lwm

    @property
    def term(self) -> int:
        """The term of the last update; 0 before the first."""
        proven = self.proven_lineage()
        return proven[-1][0] if proven else 0

    def proven_lineage(self) -> list[tuple[int, int]]:
        """The lineage up to the low watermark: without terms of which nothing is held yet."""
        return [(term, start) for term, start in self.lineage if start < self.updates.lwm]

    def enter(self, term: int) -> None:
        """What comes now is of this term. A term without any update leaves no trace."""
        lineage = self.lineage
        if lineage and lineage[-1][0] >= term:
            return
        reached = self.updates.highest_applied
        while lineage and lineage[-1][1] >= reached:
            lineage.pop()
        lineage.append((term, reached))

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
        """Take every entry out; the update counter stays."""
        for observer in self.observers:
            observer.absorb(self.touched or {})
            observer.complete(self.entries)
        self.observers = ()
        self.entries.clear()
        self.expiries.clear()
        self.hashes.clear()
        self.deadlines.clear()
        if self._digests is not None:
            self._digests, self.touched = RangeDigests(), {}
        else:
            self.touched = None

    def apply(self, record: Record, now_ns: int) -> None:
        """Do as a primary's record says, and note that its update is held."""
        self.change(record, now_ns)
        self.updates.update(record.counter - 1)

    def change(self, record: Record, now_ns: int) -> None:
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

    def keep(self, term: int, records: list[Record], limit: int) -> None:
        """Remember these updates, which were applied in the order of the counter, in a tail of so many bytes."""
        if limit:
            if self.tail is None:
                self.tail = Tail(limit)
            self.tail.add(term, records)

    def keep_earlier(self, earlier: list[tuple[int, Record]]) -> None:
        """Remember these updates, too, with their terms: those of them that were before all that is in the tail."""
        if self.changes and earlier:
            if self.tail is None:
                self.tail = Tail(self.changes)
            end = self.tail.start if self.tail.size else self.counter
            before = {record.counter: (term, record) for term, record in earlier if record.counter <= end}
            self.tail.precede([one for _, one in sorted(before.items())])

    @property
    def remembered_from(self) -> int:
        """Every update after this number is in the tail; the counter itself when nothing is."""
        tail = self.tail
        return tail.start if tail is not None and tail.end == self.counter else self.counter

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

    # -- whole copies

    def start_from(self, base: MapPartition) -> None:
        """Hold what `base` holds, on the way to something newer; both go their own ways from now on."""
        self.entries = base.entries.copy()
        self.expiries = {key: expiry.copy() for key, expiry in base.expiries.items()}
        self.hashes = base.hashes.copy()
        self.deadlines = base.deadlines.copy()
        self.updates = UpdateCounter(base.counter)
        self.lineage = base.proven_lineage()
        if base.tail is not None and base.tail.end == base.counter:
            self.tail = base.tail.copy()

    def digests(self) -> list[int]:
        """The digests of the 64 key ranges. From the first time on they are kept, at some cost for each change."""
        self.fold()
        if self.touched is None or self._digests is None:
            self._digests = RangeDigests()
            self._digests.sums = RangeDigests.digests(self.entries)
            self.touched = {}
        return self._digests.sums

    def fold(self) -> None:
        """Bring digests and observers up to date, if there are any."""
        touched = self.touched
        if not touched:
            return
        self.touched = {}
        if self._digests is not None:
            self._digests.follow(touched, self.entries)
        for observer in self.observers:
            observer.absorb(touched)

    def no_digests(self) -> None:
        """Keep no digests, until they are asked for."""
        self._digests = None
        if not self.observers:
            self.touched = None

    def observe(self, observer: Observer) -> None:
        """Tell it of every change from now on."""
        self.fold()
        if self.touched is None:
            self.touched = {}
        self.observers = (*self.observers, observer)

    def unobserve(self, observer: Observer) -> None:
        """Tell it of nothing more."""
        self.observers = tuple(one for one in self.observers if one is not observer)
        if not self.observers and self._digests is None:
            self.touched = None

    def damaged(self, *, adopt: bool) -> list[int]:
        """Key ranges whose content is not what the updates have made of it; `adopt`: count it as it is from now on.

        Walks through all entries. Only where digests are kept.
        """
        if self.touched is None or self._digests is None:
            return []
        told, found = self.digests(), RangeDigests.digests(self.entries)
        differing = [at for at, (one, other) in enumerate(zip(told, found, strict=True)) if one != other]
        if adopt:
            self._digests.sums = found
        return differing

    def digest(self) -> int:
        """A 64-bit sum over all entries, the same for equal content whatever the order."""
        return whole(map(entry_digest, self.entries.keys(), self.entries.values()))


class Share(Protocol):
    """What a service holds of one partition on one member: a state that only updates change.

    The same updates in the same order must lead to the same state and the same answers on every member, so an update
    may use nothing but itself and the state: no clock, no random number, no order of a set. None of these may raise.
    """

    def apply(self, update: bytes) -> bytes:
        """Change the state; called once for each update, in one order, on the primary and on every backup.

        What it answers goes to the caller; on a backup it is dropped. An update that cannot be done is answered so.
        """

    def ask(self, question: bytes) -> bytes:
        """Answer something without changing the state; called on the primary."""

    def supply(self) -> Iterable[bytes]:
        """The state, as pieces that a new share is made of with `receive`, in this order.

        What is answered is walked through later, between updates: gather first what they would change, and yield
        then. The first piece is asked for at once. Equal states give equal pieces, so that copies can be compared.
        """

    def receive(self, piece: bytes) -> None:
        """Take the next piece; the share was new before the first."""


class ServicePartition(MapPartition):
    """A service's share of one partition, with the same update counter, backups and fence as a map's."""

    __slots__ = ("share",)

    def __init__(self, name: str, share: Share) -> None:
        super().__init__(name)
        self.share = share

    def change(self, record: Record, now_ns: int) -> None:
        """Do as a primary's record says."""
        self.share.apply(record.value)

    def keep(self, term: int, records: list[Record], limit: int) -> None:
        """Shares are always sent whole: nothing is remembered."""

    def digest(self) -> int:
        """64 bits over the pieces of the share, the same for equal content."""
        pieces = [len(piece).to_bytes(4, "big") + piece for piece in self.share.supply()]
        return int(mmh3.hash64(b"".join(pieces), signed=False)[0]) if pieces else 0


class PartitionCopy:
    """Everything one member holds of one partition."""

    __slots__ = ("epoch", "maps", "partition", "requests", "services", "term")

    def __init__(self, partition: int, epoch: int, request_ids: int = KEPT) -> None:
        """`request_ids`: how many of the last requests it remembers."""
        self.partition = partition
        self.epoch = epoch
        """Which history the content belongs to: a partition that was declared lost and began anew has a higher one."""
        self.term = 0
        """On a primary: the version of the row with which it took office."""
        self.maps: dict[str, MapPartition] = {}
        self.services: dict[str, ServicePartition] = {}
        """Apart from the maps, so that no client's map can have the name of a service."""
        self.requests = Remembered(request_ids)

    def find(self, record: Record) -> MapPartition | None:
        """What the record is of: a map's share of this partition or a service's, if it is held."""
        held = self.services if record.change is Change.CALL else self.maps
        return held.get(record.map)

    def open(self, name: str) -> MapPartition:
        """The map's share of this partition, made empty on first touch."""
        found = self.maps.get(name)
        if found is None:
            found = self.maps[name] = MapPartition(name)
        return found

    def counters(self) -> list[tuple[str, int, int]]:
        """Low watermark and its term, of each map and service that was ever written here, sorted by name."""
        return sorted((held.name, held.counter, held.term) for held in self if held.counter)

    def used(self, now_ns: int) -> None:
        """This copy is the primary's from now on: whoever has been idle counts as used, and what has ended is found."""
        for held in self.maps.values():
            for key, expiry in held.expiries.items():
                expiry.accessed_ns = now_ns
                if expiry.noted_ns > (deadline := expiry.deadline_ns()):
                    expiry.noted_ns = deadline
                    heappush(held.deadlines, (deadline, key))

    def entry_count(self) -> int:
        """Entries of all maps together."""
        return sum(len(held.entries) for held in self.maps.values())

    def __iter__(self) -> Iterator[MapPartition]:
        """Every map's share of this partition, then every service's."""
        return chain(self.maps.values(), self.services.values())
