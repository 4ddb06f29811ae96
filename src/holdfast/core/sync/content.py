"""What a partition holds, or a replica of it has missed, cut into chunks, while writes to it go on.

Of each map goes what was chosen (`migration.choice`): updates that were missed, then the entries of some key ranges or
of all. Keys are listed once; what has come since travels as records, and what has gone is left out. A service's share
is asked for its pieces once, when its turn comes; they tell of that moment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import accumulate, repeat
from operator import add
from typing import Any

from holdfast.core.messages import FillEntries, FillPlan, FillRecords, FillShare
from holdfast.core.model.records import Record
from holdfast.core.model.sync_request import Base, How
from holdfast.core.store.digest import range_of
from holdfast.core.store.replica import MapReplica, Replica, ServiceReplica
from holdfast.core.sync.choice import Choice

ENTRY_OVERHEAD = 8
"""What an entry or a piece costs in a chunk besides its bytes, at about."""
RECORD_BYTES = 24
"""What a record costs in a chunk besides its key and value, at about."""
LOOK_MIN, LOOK_MAX = 16, 4096
"""Entries that are measured at a time: about as many as fit."""


Numbered = list[tuple[int, Record]]
"""Updates in the order of the counter, with their terms."""


class ContentPart:
    """What is sent of one map."""

    __slots__ = ("earlier", "held", "how", "missed", "ranges")

    def __init__(
        self,
        held: Replica[Any],
        how: How = How.FULL,
        ranges: tuple[int, ...] = (),
        missed: Numbered | None = None,
        earlier: Numbered | None = None,
    ) -> None:
        """`missed`: updates, with their terms; `ranges`: the key ranges that are sent whole, when it is not the map;
        `earlier`: updates before those, for the receiver to tell change streams of.
        """
        self.held = held
        self.how = how
        self.ranges = ranges
        self.missed = missed or []
        self.earlier = earlier or []


def earlier_updates(held: MapReplica, choice: Choice | None, base: Base | None) -> Numbered:
    """What the tail of a map with a change stream tells of the updates that the receiver does not get as records."""
    tail = held.tail
    if not held.changes or tail is None or tail.end != held.counter:
        return []
    if choice is None or choice.how is How.FULL or base is None:
        return tail.since(tail.start)
    if 0 <= base.remembered <= tail.start:
        return []
    return [one for one in tail.since(tail.start) if one[1].counter <= choice.after]


class Chunk:
    """Some of the content, and how many bytes it counts for."""

    __slots__ = ("earlier", "maps", "plans", "records", "shares", "size", "sizes")

    def __init__(self) -> None:
        self.maps: list[FillEntries] = []
        self.shares: list[FillShare] = []
        self.plans: list[FillPlan] = []
        self.records: list[FillRecords] = []
        self.earlier: list[FillRecords] = []
        self.size = 0
        self.sizes = {How.HISTORY: 0, How.RANGES: 0, How.FULL: 0}
        """The same by what they are part of."""

    def count(self, how: How, size: int) -> None:
        """It has grown by so many bytes of this kind."""
        self.size += size
        self.sizes[how] += size


class Listed:
    """The keys of one map that are sent, and how many of them have been taken."""

    __slots__ = ("held", "how", "keys", "taken")

    def __init__(self, part: ContentPart) -> None:
        self.held = part.held
        self.how = part.how
        if part.how is How.RANGES:
            ranges = frozenset(part.ranges)
            self.keys = [key for key in part.held.state.entries if range_of(key) in ranges]
        else:
            self.keys = list(part.held.state.entries)
        self.taken = 0

    def look(self, count: int) -> tuple[list[bytes], list[bytes]]:
        """The next keys and their values; none when all have been taken."""
        entries = self.held.state.entries
        while keys := self.keys[self.taken : self.taken + count]:
            try:
                return keys, list(map(entries.__getitem__, keys))
            except KeyError:
                # Some, or all, have been removed since.
                self.keys[self.taken : self.taken + count] = [key for key in keys if key in entries]
        return [], []


class Opened:
    """The pieces of one share, of which one is known, and the update counter that they tell of."""

    __slots__ = ("counter", "lineage", "name", "next", "pieces")

    def __init__(self, held: ServiceReplica) -> None:
        self.name = held.name
        self.counter = held.counter
        self.lineage = held.proven_lineage()
        self.pieces: Iterator[bytes] = iter(held.state.share.supply())
        self.next = next(self.pieces, None)


class Content:
    """What is still to be supplied of one partition."""

    __slots__ = ("_earlier", "_look", "_maps", "_missed", "_opened", "_plans", "_services")

    def __init__(self, parts: list[ContentPart], services: list[ServiceReplica]) -> None:
        whole = (How.RANGES, How.FULL)
        self._maps = deque(Listed(part) for part in parts if part.how in whole and part.held.state.entries)
        self._missed = deque((part.held.name, deque(part.missed)) for part in parts if part.missed)
        self._earlier = deque((part.held.name, deque(part.earlier)) for part in parts if part.earlier)
        self._plans = [
            FillPlan(part.held.name, part.how, part.held.counter, list(part.ranges))
            for part in parts
            if part.held.counter
        ]
        """For the first chunk: at which update counter the content of each map is taken (sync/S-6)."""
        self._services = deque(services)
        self._opened: Opened | None = None
        self._look = LOOK_MIN

    def chunk(self, limit: int, now_ns: int) -> Chunk | None:
        """The next chunk, of at most `limit` bytes or one entry, record or piece; None when all have been sent."""
        chunk = Chunk()
        chunk.plans, self._plans = self._plans, []
        room = True
        while room and self._missed:
            room = _add_records(chunk, chunk.records, self._missed, limit)
        while room and self._earlier:
            room = _add_records(chunk, chunk.earlier, self._earlier, limit)
        while room and self._maps:
            room = self._add_entries(chunk, limit, now_ns)
        while room and (self._services or self._opened is not None):
            room = self._add_pieces(chunk, limit)
        filled = chunk.plans or chunk.records or chunk.earlier or chunk.maps or chunk.shares
        return chunk if filled else None

    def _add_entries(self, chunk: Chunk, limit: int, now_ns: int) -> bool:
        """Add what fits of the first map that is left; answers whether there is room for more."""
        listed = self._maps[0]
        part = FillEntries(listed.held.name, listed.held.counter)
        room = True
        while room:
            keys, values = listed.look(self._look)
            if not keys:
                self._maps.popleft()
                break
            left = limit - chunk.size
            size = sum(map(len, keys)) + sum(map(len, values)) + ENTRY_OVERHEAD * len(keys)
            average = size / len(keys)
            if size > left:
                room = False
                size = _cut(keys, values, left, at_least=0 if chunk.size else 1)
            part.keys.extend(keys)
            part.values.extend(values)
            chunk.count(listed.how, size)
            listed.taken += len(keys)
            # A chunk that is nearly full may go.
            room = room and limit - chunk.size > limit // 8
            left = limit - chunk.size if room else limit
            self._look = max(LOOK_MIN, min(LOOK_MAX, int(left / average)))
        if part.keys:
            _add_columns(part, listed.held, now_ns)
            chunk.maps.append(part)
        return room

    def _add_pieces(self, chunk: Chunk, limit: int) -> bool:
        """Add what fits of the share that is being taken, or of the next; answers whether there is room for more."""
        opened = self._opened
        if opened is None:
            opened = self._opened = Opened(self._services.popleft())
        pieces: list[bytes] = []
        while opened.next is not None:
            size = len(opened.next) + ENTRY_OVERHEAD
            if chunk.size and chunk.size + size > limit:
                if pieces:
                    chunk.shares.append(FillShare(opened.name, opened.counter, pieces, False))
                return False
            pieces.append(opened.next)
            chunk.count(How.FULL, size)
            opened.next = next(opened.pieces, None)
        chunk.shares.append(FillShare(opened.name, opened.counter, pieces, True, opened.lineage))
        self._opened = None
        return True


def _add_records(
    chunk: Chunk, parts: list[FillRecords], left: deque[tuple[str, deque[tuple[int, Record]]]], limit: int
) -> bool:
    """Add what fits of the first map's updates that are left; answers whether there is room for more."""
    name, records = left[0]
    part = FillRecords(name, [], [])
    room = True
    while records:
        term, record = records[0]
        size = len(record.key) + len(record.value) + len(record.old or b"") + RECORD_BYTES
        if chunk.size and chunk.size + size > limit:
            room = False
            break
        records.popleft()
        part.records.append(record)
        if part.runs and part.runs[-1][0] == term:
            part.runs[-1] = (term, part.runs[-1][1] + 1)
        else:
            part.runs.append((term, 1))
        chunk.count(How.HISTORY, size)
    if part.records:
        parts.append(part)
    if not records:
        left.popleft()
    return room


def _cut(keys: list[bytes], values: list[bytes], left: int, *, at_least: int) -> int:
    """Keep the first entries, as many as fit into `left` bytes; answers what they count for."""
    lengths = map(add, map(len, keys), map(len, values))
    sizes = list(accumulate(map(add, lengths, repeat(ENTRY_OVERHEAD))))
    fit = max(at_least, bisect_right(sizes, left))
    del keys[fit:], values[fit:]
    return sizes[fit - 1] if fit else 0


def _add_columns(part: FillEntries, held: MapReplica, now_ns: int) -> None:
    """Expiry and key hashes, if any of the entries has one."""
    if held.state.expiries:
        expiries = [held.state.expiries.get(key) for key in part.keys]
        if any(expiries):
            part.ttls_ms.extend(one.remaining_ttl_ms(now_ns) if one else 0 for one in expiries)
            part.max_idles_ms.extend(one.max_idle_ms if one else 0 for one in expiries)
    if held.state.hashes:
        hashes = [held.state.hashes.get(key, 0) for key in part.keys]
        if any(hashes):
            part.key_hashes.extend(hashes)
