"""What has changed lately? The last updates of a map's share, kept in memory for replicas that have missed just these.

Primaries and backups keep them as they apply them, each copy its own; so whoever becomes primary can tell.

- store/H-1: A tail is one stretch of updates without a gap; what does not follow begins a new one.
- store/H-2: It holds about as many bytes as it may: what is oldest goes first, an eighth at a time.

What was added together is one piece: a list of records, or columns (`Puts`), out of which records are made for whoever
asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from holdfast.core.model.records import Puts, Record

TOGETHER = 32
"""Fewer stores than these are put behind those before them, in lists of the tail's own; more are kept as they came."""
RECORD_OVERHEAD = 160
"""What a record costs besides the bytes of its key and values, at about."""


def size_of(record: Record) -> int:
    """Bytes that a record costs, at about."""
    size = RECORD_OVERHEAD + len(record.key) + len(record.value)
    return size if record.old is None else size + len(record.old)


UpdatesTogether = list[Record] | Puts


def _count(piece: UpdatesTogether) -> int:
    return len(piece.keys) if isinstance(piece, Puts) else len(piece)


def _records(piece: UpdatesTogether) -> list[Record]:
    return piece.records() if isinstance(piece, Puts) else piece


def _sizes(piece: UpdatesTogether) -> Iterable[int]:
    if isinstance(piece, Puts):
        return [
            RECORD_OVERHEAD + len(key) + len(value)
            for key, value in zip(piece.keys, piece.values, strict=True)
        ]
    return map(size_of, piece)


def _size(piece: UpdatesTogether) -> int:
    if isinstance(piece, Puts):
        return RECORD_OVERHEAD * len(piece.keys) + sum(map(len, piece.keys)) + sum(map(len, piece.values))
    return sum(map(size_of, piece))


def _rest(piece: UpdatesTogether, gone: int) -> UpdatesTogether:
    """The piece without its first records."""
    if isinstance(piece, Puts):
        return Puts(piece.map, piece.start + gone, piece.keys[gone:], piece.values[gone:])
    return piece[gone:]


class Tail:
    """The last updates of one map in one partition on one member, with their terms."""

    __slots__ = ("_bytes", "_limit", "_open", "_pieces", "_terms", "end", "start")

    def __init__(self, limit: int) -> None:
        """`limit`: bytes, keys and values and what they cost besides."""
        self._limit = limit
        self._bytes = 0
        self._pieces: deque[UpdatesTogether] = deque()
        """Each begins where the one before ends."""
        self._open: Puts | None = None
        """The last piece, while it is this tail's own and has room for more."""
        self._terms: list[tuple[int, int]] = []
        """Term, and after which number its updates begin; ascending."""
        self.start = 0
        """The updates after this number are here…"""
        self.end = 0
        """…up to this one."""

    def add_puts(self, term: int, puts: Puts) -> None:
        """These updates of this term were applied."""
        start, keys = puts.start, puts.keys
        terms = self._terms
        if start != self.end:
            self._begin_anew(start)
        if not terms or terms[-1][0] != term:
            terms.append((term, start))
        count = len(keys)
        assert count, "a piece says something"
        self.end = start + count
        piece = self._open
        if count == 1:
            key, value = keys[0], puts.values[0]
            self._bytes += RECORD_OVERHEAD + len(key) + len(value)
            if piece is not None:
                piece.keys.append(key)
                piece.values.append(value)
        else:
            self._bytes += RECORD_OVERHEAD * count + sum(map(len, keys)) + sum(map(len, puts.values))
            if piece is not None:
                piece.keys.extend(keys)
                piece.values.extend(puts.values)
        if piece is not None:
            if len(piece.keys) >= TOGETHER:
                self._open = None
        elif count < TOGETHER:
            piece = self._open = Puts(puts.map, start, keys.copy(), puts.values.copy())
            self._pieces.append(piece)
        else:
            self._pieces.append(puts)
        if self._bytes > self._limit:
            self._shrink()

    def add(self, term: int, records: list[Record]) -> None:
        """These records of this term were applied, in the order of the counter. The list stays as it is."""
        first = records[0].counter
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
        self._pieces.append(records)
        self._open = None
        self._bytes += sum(map(size_of, records))
        self.end = last
        assert self._terms[-1][1] < self.end, "each term has updates"
        if self._bytes > self._limit:
            self._shrink()

    def precede(self, earlier: list[tuple[int, Record]]) -> None:
        """These updates, with their terms, were before those that are here; as many of the last ones as fit are kept.

        Nothing happens when they do not end where the tail begins.
        """
        if not earlier:
            return
        if not self._pieces:
            self._begin_anew(earlier[-1][1].counter)
        size = self._bytes
        terms: list[tuple[int, int]] = []
        kept: list[Record] = []
        for term, record in reversed(earlier):
            size += size_of(record)
            if size > self._limit or record.counter != self.start:
                break
            kept.append(record)
            self._bytes = size
            self.start = record.counter - 1
            if terms and terms[-1][0] == term:
                terms[-1] = (term, self.start)
            else:
                terms.append((term, self.start))
        if kept:
            self._pieces.appendleft(kept[::-1])
        if terms and self._terms and terms[0][0] == self._terms[0][0]:
            self._terms[0] = (self._terms[0][0], terms[0][1])
            del terms[0]
        self._terms[:0] = terms[::-1]
        assert self.end - self.start == self.count, "a tail has no gap (store/H-1)"
        assert bool(self._terms) is bool(self._pieces), "each update is of a term"

    def _begin_anew(self, start: int) -> None:
        self._pieces.clear()
        self._open = None
        self._terms.clear()
        self._bytes = 0
        self.start = self.end = start

    def _shrink(self) -> None:
        pieces, wanted = self._pieces, self._limit - self._limit // 8
        if len(pieces) == 1:
            self._open = None
        while self._bytes > wanted and pieces:
            piece = pieces.popleft()
            size, count = _size(piece), _count(piece)
            if self._bytes - size < wanted and count > 1:
                # Only its first records have to go.
                gone = freed = 0
                for one in _sizes(piece):
                    if self._bytes - freed <= wanted:
                        break
                    freed += one
                    gone += 1
                if gone < count:
                    pieces.appendleft(_rest(piece, gone))
                size, count = freed, gone
            self._bytes -= size
            self.start += count
            if len(pieces) <= 1:
                self._open = None
        while len(self._terms) > 1 and self._terms[1][1] <= self.start:
            del self._terms[0]
        assert self._bytes >= 0, "nothing goes twice"
        assert self._terms, "each update is of a term"

    def covers(self, after: int) -> bool:
        """Whether every update after this number is here."""
        return self.start <= after <= self.end

    def since(self, after: int) -> list[tuple[int, Record]]:
        """The updates after this number, with their terms. It must be covered."""
        return list(self._walk(after, self.end))

    def some(self, after: int, upto: int, bytes_max: int) -> list[tuple[int, Record]]:
        """The first of those, up to this number or until they are as large as that; at least one."""
        found: list[tuple[int, Record]] = []
        size = 0
        for one in self._walk(
            after, max(after, min(upto, self.end, after + bytes_max // RECORD_OVERHEAD + 1))
        ):
            size += size_of(one[1])
            if found and size > bytes_max:
                break
            found.append(one)
        return found

    def _walk(self, after: int, upto: int) -> Iterator[tuple[int, Record]]:
        """The updates after this number up to that one. The way to them is from the end that is nearer."""
        assert self.covers(after), (self.start, after, self.end)
        ends = [start for _, start in self._terms[1:]] + [self.end]
        at = 0
        for start, piece in self._pieces_between(after, upto):
            first = max(0, after - start)
            for record in islice(_records(piece), first, upto - start):
                while record.counter > ends[at]:
                    at += 1
                yield self._terms[at][0], record

    def _pieces_between(self, after: int, upto: int) -> Iterable[tuple[int, UpdatesTogether]]:
        """Pieces with updates after one number, up to the other one, and after which number each begins."""
        if upto <= after:
            return
        if after - self.start <= self.end - upto:
            start = self.start
            for piece in self._pieces:
                if start >= upto:
                    return
                end = start + _count(piece)
                if end > after:
                    yield start, piece
                start = end
            return
        end, found = self.end, list[tuple[int, UpdatesTogether]]()
        for piece in reversed(self._pieces):
            start = end - _count(piece)
            if start < upto:
                found.append((start, piece))
            if start <= after:
                break
            end = start
        yield from reversed(found)

    def copy(self) -> Tail:
        """Another one with the same content."""
        self._open = None
        other = Tail(self._limit)
        other._pieces, other._bytes, other._terms = self._pieces.copy(), self._bytes, self._terms.copy()
        other.start, other.end = self.start, self.end
        return other

    @property
    def size(self) -> int:
        """Bytes that are held."""
        return self._bytes

    @property
    def count(self) -> int:
        """Updates that are held, counted."""
        return sum(map(_count, self._pieces))
