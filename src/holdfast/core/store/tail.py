"""What has changed lately? The last updates of a map's share, kept in memory for replicas that have missed just these.

Primaries and backups keep them as they apply them, each copy its own; so whoever becomes primary can tell.

- store/H-1: A tail is one stretch of updates without a gap; what does not follow begins a new one.
- store/H-2: It holds about as many bytes as it may: what is oldest goes first, an eighth at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.core.model.records import Record

RECORD_OVERHEAD = 160
"""What a record costs besides the bytes of its key and values, at about."""


def size_of(record: Record) -> int:
    """Bytes that a record costs, at about."""
    size = RECORD_OVERHEAD + len(record.key) + len(record.value)
    return size if record.old is None else size + len(record.old)


class Tail:
    """The last updates of one map in one partition on one member, with their terms."""

    __slots__ = ("_bytes", "_limit", "_records", "_terms", "end", "start")

    def __init__(self, limit: int) -> None:
        """`limit`: bytes, keys and values and what they cost besides."""
        self._limit = limit
        self._bytes = 0
        self._records: deque[Record] = deque()
        self._terms: list[tuple[int, int]] = []
        """Term, and after which number its updates begin; ascending."""
        self.start = 0
        """The updates after this number are here…"""
        self.end = 0
        """…up to this one."""

    def add(self, term: int, records: list[Record]) -> None:
        """These records of this term were applied, in the order of the counter."""
        record = records[0]
        first = record.counter
        if len(records) == 1 and first == self.end + 1 and self._terms and self._terms[-1][0] == term:
            # What is most usual, in the cheapest way.
            self._records.append(record)
            self.end = first
            self._bytes += RECORD_OVERHEAD + len(record.key) + len(record.value)
            if record.old is not None:
                self._bytes += len(record.old)
            if self._bytes > self._limit:
                self._shrink()
            return
        last = records[-1].counter
        if first != self.end + 1 or last - first + 1 != len(records):
            self._begin_anew(first - 1)
            if last - first + 1 != len(records):
                # They do not follow each other: nothing can be told of them.
                self._begin_anew(0)
                return
        terms = self._terms
        if not terms or terms[-1][0] != term:
            terms.append((term, first - 1))
        size = RECORD_OVERHEAD * len(records)
        for record in records:
            size += len(record.key) + len(record.value)
        if record.time_ms:
            size += sum(len(record.old or b"") for record in records)
        self._records.extend(records)
        self._bytes += size
        self.end = last
        assert self.end - self.start == len(self._records), "a tail has no gap (store/H-1)"
        assert self._terms[-1][1] < self.end, "each term has updates"
        if self._bytes > self._limit:
            self._shrink()

    def precede(self, earlier: list[tuple[int, Record]]) -> None:
        """These updates, with their terms, were before those that are here; as many of the last ones as fit are kept.

        Nothing happens when they do not end where the tail begins.
        """
        if not earlier:
            return
        if not self._records:
            self._begin_anew(earlier[-1][1].counter)
        size = self._bytes
        terms: list[tuple[int, int]] = []
        for term, record in reversed(earlier):
            size += size_of(record)
            if size > self._limit or record.counter != self.start:
                break
            self._records.appendleft(record)
            self._bytes = size
            self.start = record.counter - 1
            if terms and terms[-1][0] == term:
                terms[-1] = (term, self.start)
            else:
                terms.append((term, self.start))
        if terms and self._terms and terms[0][0] == self._terms[0][0]:
            self._terms[0] = (self._terms[0][0], terms[0][1])
            del terms[0]
        self._terms[:0] = terms[::-1]
        assert self.end - self.start == len(self._records), "a tail has no gap (store/H-1)"
        assert bool(self._terms) is bool(self._records), "each update is of a term"

    def _begin_anew(self, start: int) -> None:
        self._records.clear()
        self._terms.clear()
        self._bytes = 0
        self.start = self.end = start

    def _shrink(self) -> None:
        records, size, wanted = self._records, self._bytes, self._limit - self._limit // 8
        start = self.start
        while size > wanted and records:
            gone = records.popleft()
            size -= size_of(gone)
            start = gone.counter
        self._bytes, self.start = size, start
        while len(self._terms) > 1 and self._terms[1][1] <= self.start:
            del self._terms[0]
        assert self.end - self.start == len(records), "a tail has no gap (store/H-1)"
        assert self._terms, "each update is of a term"

    def covers(self, after: int) -> bool:
        """Whether every update after this number is here."""
        return self.start <= after <= self.end

    def since(self, after: int) -> list[tuple[int, Record]]:
        """The updates after this number, with their terms. It must be covered."""
        return list(self._walk(after))

    def some(self, after: int, upto: int, bytes_max: int) -> list[tuple[int, Record]]:
        """The first of those, up to this number or until they are as large as that; at least one."""
        found: list[tuple[int, Record]] = []
        size = 0
        for one in self._walk(after, min(upto - after, bytes_max // RECORD_OVERHEAD + 1)):
            size += size_of(one[1])
            if found and size > bytes_max:
                break
            found.append(one)
        return found

    def _walk(self, after: int, most: int | None = None) -> Iterator[tuple[int, Record]]:
        """The updates after this number, at most so many. The way to them is from the end that is nearer."""
        assert self.covers(after), (self.start, after, self.end)
        records, count = self._records, len(self._records)
        first = after - self.start
        last = count if most is None else max(first, min(count, first + most))
        if first <= count - last:
            chosen: Iterable[Record] = islice(records, first, last)
        else:
            chosen = reversed(list(islice(reversed(records), count - last, count - first)))
        ends = [start for _, start in self._terms[1:]] + [self.end]
        at = 0
        for record in chosen:
            while record.counter > ends[at]:
                at += 1
            yield self._terms[at][0], record

    def copy(self) -> Tail:
        """Another one with the same content."""
        other = Tail(self._limit)
        other._records, other._bytes, other._terms = self._records.copy(), self._bytes, self._terms.copy()
        other.start, other.end = self.start, self.end
        return other

    @property
    def size(self) -> int:
        """Bytes that are held."""
        return self._bytes
