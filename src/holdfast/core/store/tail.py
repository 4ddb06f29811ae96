"""The tail: the last updates of a map or service, in memory, for replicas that have missed only these.

Example: a backup was away and stands at 17. Its primary stands at 20 and its tail covers 12..20, so it sends updates
18, 19 and 20 instead of all entries. If the tail began at 18, update 18 would be missing: the primary compares key
ranges or sends everything (`state_transfer`).

- store/H-1: A tail is one stretch of updates without a gap; an update that does not follow begins a new stretch.
- store/H-2: A tail keeps about `limit` bytes. The oldest updates go first, an eighth at a time; packed puts go in whole
  pieces, so up to a quarter.

Records that were added together are one piece. Packed puts (`Puts`) are kept as they came until they are a sixteenth of
the limit, and are then joined into one piece: so each is copied once, and nearly always whole pieces are dropped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import accumulate

from holdfast.core.model.records import NOTE_BYTES, PAIR_BYTES, Changes, Puts, Record

RUNS = 16
"""Part of the limit at which packed puts are joined."""
RECORD_OVERHEAD = 160
"""Approximate, without keys and values."""


def size_of(record: Record) -> int:
    size = RECORD_OVERHEAD + len(record.key) + len(record.value)
    return size if record.old is None else size + len(record.old)


UpdatesTogether = list[Record] | Puts


def _count(piece: UpdatesTogether) -> int:
    return piece.count if isinstance(piece, Puts) else len(piece)


def _size(piece: UpdatesTogether) -> int:
    if isinstance(piece, Puts):
        notes = len(piece.notes) if isinstance(piece, Changes) else 0
        return len(piece.sizes) + len(piece.data) + notes
    return sum(map(size_of, piece))


def _shorten(piece: UpdatesTogether, size: int) -> tuple[UpdatesTogether, int, int]:
    """The first updates that are at least `size` bytes. Returns the rest, and how many updates and bytes went."""
    if isinstance(piece, Puts):
        head = PAIR_BYTES + (NOTE_BYTES if isinstance(piece, Changes) else 0)
        sizes = list(accumulate(length + head for length in piece.lengths()))
        gone = bisect_left(sizes, size) + 1
        return piece.cut(gone, piece.count), gone, sizes[gone - 1]
    sizes = list(accumulate(map(size_of, piece)))
    gone = bisect_left(sizes, size) + 1
    return piece[gone:], gone, sizes[gone - 1]


class Tail:
    __slots__ = (
        "_map",
        "_pieces",
        "end",
        "limit",
        "run_bytes",
        "run_data",
        "run_most",
        "run_notes",
        "run_sizes",
        "size",
        "start",
        "terms",
    )

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._pieces: deque[UpdatesTogether] = deque()
        self._map = ""
        self.run_sizes: list[bytes] = []
        """Packed puts that follow `_pieces`."""
        self.run_data: list[bytes] = []
        self.run_notes: list[bytes] = []
        """Notes, if these are updates of a change stream (`Changes`)."""
        self.run_bytes = 0
        """Size of the run. Compiled code appends to them: `packed_puts_cy`."""
        self.run_most = limit // RUNS
        self.terms: list[tuple[int, int]] = []
        """With the number after which its updates begin; ascending."""
        self.start = 0
        """The tail has the updates after `start` up to `end`."""
        self.end = 0

    def add_puts(self, term: int, puts: Puts) -> None:
        start, sizes, data = puts.start, puts.sizes, puts.data
        notes = puts.notes if isinstance(puts, Changes) else b""
        assert sizes, "packed puts are not empty"
        if start != self.end:
            self._begin_anew(start)
        if bool(notes) != bool(self.run_notes):
            self._join()
        terms = self.terms
        if not terms or terms[-1][0] != term:
            terms.append((term, start))
        self._map = puts.map
        self.run_sizes.append(sizes)
        self.run_data.append(data)
        if notes:
            self.run_notes.append(notes)
        size = len(sizes) + len(data) + len(notes)
        self.end = start + len(sizes) // PAIR_BYTES
        self.size += size
        self.run_bytes += size
        if self.run_bytes > self.run_most or self.size > self.limit:
            self.settle()

    def settle(self) -> None:
        """Join packed puts and drop old updates, where there are too many."""
        if self.run_bytes > self.run_most:
            self._join()
        if self.size > self.limit:
            self._shrink()

    def _join(self) -> None:
        if not self.run_sizes:
            return
        sizes, data, notes = b"".join(self.run_sizes), b"".join(self.run_data), b"".join(self.run_notes)
        start = self.end - len(sizes) // PAIR_BYTES
        self._pieces.append(
            Changes(self._map, start, sizes, data, notes) if notes else Puts(self._map, start, sizes, data)
        )
        self._clear_run()

    def _clear_run(self) -> None:
        self.run_sizes.clear()
        self.run_data.clear()
        self.run_notes.clear()
        self.run_bytes = 0

    def add(self, term: int, records: list[Record]) -> None:
        """Add records of this term, applied in the order of the counter. The list must not change later."""
        self._join()
        first = records[0].counter
        last = records[-1].counter
        if first != self.end + 1 or last - first + 1 != len(records):
            self._begin_anew(first - 1)
            if last - first + 1 != len(records):
                # They have gaps, so nothing can be sent of them.
                self._begin_anew(0)
                return
        terms = self.terms
        if not terms or terms[-1][0] != term:
            terms.append((term, first - 1))
        self._pieces.append(records)
        self.size += sum(map(size_of, records))
        self.end = last
        assert self.terms[-1][1] < self.end, "each term has updates"
        if self.size > self.limit:
            self._shrink()

    def precede(self, earlier: list[tuple[int, Record]]) -> None:
        """Put as many of these earlier updates (with their terms) in front of the tail as fit, latest first.

        Does nothing unless they end where the tail begins.
        """
        if not earlier:
            return
        self._join()
        if not self._pieces:
            self._begin_anew(earlier[-1][1].counter)
        size = self.size
        terms: list[tuple[int, int]] = []
        kept: list[Record] = []
        for term, record in reversed(earlier):
            size += size_of(record)
            if size > self.limit or record.counter != self.start:
                break
            kept.append(record)
            self.size = size
            self.start = record.counter - 1
            if terms and terms[-1][0] == term:
                terms[-1] = (term, self.start)
            else:
                terms.append((term, self.start))
        if kept:
            self._pieces.appendleft(kept[::-1])
        if terms and self.terms and terms[0][0] == self.terms[0][0]:
            self.terms[0] = (self.terms[0][0], terms[0][1])
            del terms[0]
        self.terms[:0] = terms[::-1]
        assert self.end - self.start == self.count, "a tail has no gap (store/H-1)"
        assert bool(self.terms) is bool(self._pieces), "each update is of a term"

    def _begin_anew(self, start: int) -> None:
        self._pieces.clear()
        self._clear_run()
        self.terms.clear()
        self.size = 0
        self.start = self.end = start

    def _shrink(self) -> None:
        # Packed puts that are not joined yet are a sixteenth of the limit at most, so the pieces are enough.
        pieces, wanted = self._pieces, self.limit - self.limit // 8
        while self.size > wanted:
            piece = pieces[0]
            gone, freed = _count(piece), _size(piece)
            small = isinstance(piece, Puts) and freed <= 2 * self.run_most
            if small or self.size - freed >= wanted:
                pieces.popleft()
            else:
                pieces[0], gone, freed = _shorten(piece, self.size - wanted)
                if not _count(pieces[0]):
                    pieces.popleft()
            self.size -= freed
            self.start += gone
        while len(self.terms) > 1 and self.terms[1][1] <= self.start:
            del self.terms[0]
        assert self.size >= 0, "dropped updates were counted"
        assert self.terms, "each update is of a term"

    def covers(self, after: int) -> bool:
        return self.start <= after <= self.end

    def since(self, after: int) -> list[tuple[int, Record]]:
        return list(self._walk(after, self.end))

    def some(self, after: int, upto: int, bytes_max: int) -> list[tuple[int, Record]]:
        """Up to `upto` or about `bytes_max` bytes of updates; at least one."""
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
        """Updates after `after` up to `upto`, found from the nearer end."""
        assert self.covers(after), (self.start, after, self.end)
        ends = [start for _, start in self.terms[1:]] + [self.end]
        at = 0
        for start, piece in self._pieces_between(after, upto):
            first = max(0, after - start)
            records = (
                piece.cut(first, upto - start).records()
                if isinstance(piece, Puts)
                else piece[first : upto - start]
            )
            for record in records:
                while record.counter > ends[at]:
                    at += 1
                yield self.terms[at][0], record

    def _pieces_between(self, after: int, upto: int) -> Iterable[tuple[int, UpdatesTogether]]:
        """The pieces, with the number after which each begins."""
        if upto <= after:
            return
        self._join()
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
        self._join()
        other = Tail(self.limit)
        other._pieces.extend(self._pieces)
        other.size, other.terms = self.size, self.terms.copy()
        other.start, other.end = self.start, self.end
        return other

    @property
    def count(self) -> int:
        self._join()
        return sum(map(_count, self._pieces))
