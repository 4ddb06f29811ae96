"""What a partition holds, cut into chunks, while writes to it go on.

Each map's keys are listed once; what has come since travels as records, and what has gone is left out. A service's
share is asked for its pieces once, when its turn comes; they tell of that moment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import accumulate, repeat
from operator import add

from holdfast.core.messages import FillEntries, FillShare
from holdfast.core.store.partition import MapPartition, ServicePartition

ENTRY_OVERHEAD = 8
"""What an entry or a piece costs in a chunk besides its bytes, at about."""
LOOK_MIN, LOOK_MAX = 16, 4096
"""Entries that are measured at a time: about as many as fit."""


class Chunk:
    """Some of the content, and how many bytes it counts for."""

    __slots__ = ("maps", "shares", "size")

    def __init__(self) -> None:
        self.maps: list[FillEntries] = []
        self.shares: list[FillShare] = []
        self.size = 0


class Listed:
    """The keys of one map, and how many of them have been taken."""

    __slots__ = ("held", "keys", "taken")

    def __init__(self, held: MapPartition) -> None:
        self.held = held
        self.keys = list(held.entries)
        self.taken = 0

    def look(self, count: int) -> tuple[list[bytes], list[bytes]]:
        """The next keys and their values; none when all have been taken."""
        entries = self.held.entries
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

    def __init__(self, held: ServicePartition) -> None:
        self.name = held.name
        self.counter = held.counter
        self.lineage = held.proven_lineage()
        self.pieces: Iterator[bytes] = iter(held.share.supply())
        self.next = next(self.pieces, None)


class Content:
    """What is still to be supplied of the shares of one partition."""

    __slots__ = ("_begins", "_look", "_maps", "_opened", "_services")

    def __init__(self, maps: list[MapPartition], services: list[ServicePartition]) -> None:
        self._maps = deque(Listed(held) for held in maps if held.entries)
        self._begins = [FillEntries(held.name, held.counter) for held in maps if held.counter]
        """For the first chunk: at which update counter the content of each map is taken (S-6)."""
        self._services = deque(services)
        self._opened: Opened | None = None
        self._look = LOOK_MIN

    def chunk(self, limit: int, now_ns: int) -> Chunk | None:
        """The next chunk, of at most `limit` bytes or one entry or piece; None when all have been sent."""
        chunk = Chunk()
        chunk.maps, self._begins = self._begins, []
        room = True
        while room and self._maps:
            room = self._add_entries(chunk, limit, now_ns)
        while room and (self._services or self._opened is not None):
            room = self._add_pieces(chunk, limit)
        return chunk if chunk.maps or chunk.shares else None

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
            chunk.size += size
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
            chunk.size += size
            opened.next = next(opened.pieces, None)
        chunk.shares.append(FillShare(opened.name, opened.counter, pieces, True, opened.lineage))
        self._opened = None
        return True


def _cut(keys: list[bytes], values: list[bytes], left: int, *, at_least: int) -> int:
    """Keep the first entries, as many as fit into `left` bytes; answers what they count for."""
    lengths = map(add, map(len, keys), map(len, values))
    sizes = list(accumulate(map(add, lengths, repeat(ENTRY_OVERHEAD))))
    fit = max(at_least, bisect_right(sizes, left))
    del keys[fit:], values[fit:]
    return sizes[fit - 1] if fit else 0


def _add_columns(part: FillEntries, held: MapPartition, now_ns: int) -> None:
    """Expiry and key hashes, if any of the entries has one."""
    if held.expiries:
        expiries = [held.expiries.get(key) for key in part.keys]
        if any(expiries):
            part.ttls_ms.extend(one.remaining_ttl_ms(now_ns) if one else 0 for one in expiries)
            part.max_idles_ms.extend(one.max_idle_ms if one else 0 for one in expiries)
    if held.hashes:
        hashes = [held.hashes.get(key, 0) for key in part.keys]
        if any(hashes):
            part.key_hashes.extend(hashes)
