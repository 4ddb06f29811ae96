"""Reads missed records from the journal: those of one map in one partition, newest first.

A record counts only if it belongs to the history of this member's present copy. Example: as primary in term 3
this member wrote records 10 to 12, lost its primacy before they were replicated, and was refilled by a
checkpoint with the lineage "term 4 begins after 9". The lineage excludes records 10 to 12 of term 3 in older
blocks. A failed read is no error: the requester then gets a full copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from holdfast.core.effects import ReadHistory
from holdfast.core.events import HistoryRead
from holdfast.core.model.journal_entries import Began, Dropped, Entry, Wrote, WrotePuts
from holdfast.core.model.records import Record
from holdfast.core.store.tail import size_of
from holdfast.engine.checkpoints import Checkpoints
from holdfast.engine.ports import Disk, DiskFailed
from holdfast.engine.segments import BlockContent, Segment, Segments
from holdfast.errors import JournalBroken
from holdfast.wire.journal_blocks import read_block
from holdfast.wire.journal_reader import JournalReader

SLICE_BYTES = 1 << 20


class Search:
    def __init__(self, asked: ReadHistory, cut_lsn: int, lineage: list[tuple[int, int]] | None) -> None:
        """`cut_lsn`, `lineage`: of the newest checkpoint; records up to that block must agree with the
        lineage.
        """
        self.asked = asked
        self.wanted = asked.upto
        self.found: deque[tuple[int, Record]] = deque()
        self._bytes = 0
        self.over = self.wanted <= asked.after
        self._cut_lsn = cut_lsn
        self._lineage = lineage
        self._term = 0

    def look(self, lsn: int, entries: list[Entry]) -> bool:
        """Search a block, older than those before; returns whether the search has ended."""
        partition, name = self.asked.partition, self.asked.map
        for entry in reversed(entries):
            if isinstance(entry, Wrote | WrotePuts):
                if entry.partition == partition:
                    for record in reversed(entry.records):
                        if record.map == name and not self.over:
                            self._look_at(lsn, entry.term, record)
            elif isinstance(entry, Began | Dropped) and entry.partition == partition:
                self.over = self.over or isinstance(entry, Began) or entry.map in {"", name}
            if self.over:
                break
        return self.over

    def _look_at(self, lsn: int, term: int, record: Record) -> None:
        if record.counter > self.wanted:
            return
        if record.counter < self.wanted or not self._belongs(lsn, term, record.counter):
            self.over = True
            return
        self._term = term
        self.found.append((term, record))
        if self.asked.bytes_max:
            self._bytes += size_of(record)
            while self._bytes > self.asked.bytes_max and len(self.found) > 1:
                self._bytes -= size_of(self.found.popleft()[1])
        self.wanted -= 1
        self.over = self.wanted <= self.asked.after

    def _belongs(self, lsn: int, term: int, counter: int) -> bool:
        if self._term and term > self._term:
            return False
        if lsn > self._cut_lsn or self._lineage is None:
            return True
        return next((of for of, start in reversed(self._lineage) if start < counter), 0) == term

    def answer(self) -> HistoryRead:
        if self.wanted <= self.asked.after:
            return HistoryRead(self.asked.ticket, [*reversed(self.found)])
        return HistoryRead(self.asked.ticket, None, self.wanted if self.found else -1)


class JournalHistory:
    def __init__(
        self,
        disk: Disk,
        store: str,
        segments: Segments,
        checkpoints: Checkpoints,
        answer: Callable[[HistoryRead], None],
        doubt: Callable[[str], None],
        rest: Callable[[], None],
    ) -> None:
        """`answer` gets each result, in its own turn. `doubt` gets a text when something is unreadable.
        `rest` is called after each result, before the next search, when segments may be removed.
        """
        self._disk = disk
        self._store = store
        self._segments = segments
        self._checkpoints = checkpoints
        self._answer = answer
        self._doubt = doubt
        self._rest = rest
        self._waiting: deque[tuple[int, ReadHistory]] = deque()
        self._patient: deque[tuple[int, ReadHistory]] = deque()
        self._turn_comes = False
        self._steps: Iterator[None] | None = None
        self._written_lsn = 0

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._patient) or self.searching

    @property
    def searching(self) -> bool:
        """Whether a search is running; segments must not be removed during it."""
        return self._steps is not None

    def ask(self, asked: ReadHistory, lsn: int) -> None:
        (self._patient if asked.patient else self._waiting).append((lsn, asked))
        self._turn()

    def written(self, lsn: int) -> None:
        self._written_lsn = lsn
        if self.busy and not self.searching:
            self._turn()

    def _turn(self) -> None:
        if not self._turn_comes:
            self._turn_comes = True
            self._disk.after(0, self._go_on)

    def _go_on(self) -> None:
        self._turn_comes = False
        steps = self._steps
        if steps is None:
            asked = self._next()
            if asked is None:
                return
            steps = self._steps = self._search(asked)
        try:
            next(steps)
        except StopIteration:
            self._steps = None
            self._rest()
            if not self.busy:
                return
        self._turn()

    def _next(self) -> ReadHistory | None:
        for waiting in (self._waiting, self._patient):
            if waiting and waiting[0][0] <= self._written_lsn:
                return waiting.popleft()[1]
        return None

    def _search(self, asked: ReadHistory) -> Iterator[None]:
        kept = self._checkpoints.kept.get(asked.partition)
        lineage = kept.lineages.get(asked.map) if kept is not None else None
        search = Search(asked, kept.cut_lsn if kept is not None else -1, lineage)
        try:
            yield from self._walk(search)
        except (DiskFailed, JournalBroken, FileNotFoundError) as error:
            self._doubt(f"reading history: {error}")
        self._answer(search.answer())

    def _walk(self, search: Search) -> Iterator[None]:
        slice_bytes = 0
        for position in range(len(self._segments.all) - 1, -1, -1):
            segment = self._segments.all[position]
            if search.over:
                return
            if not segment.indexed:
                yield from self._index(segment, self._segments.end_of(position))
            for number in reversed(segment.index.get(search.asked.partition, ())):
                if segment.first_lsn + number > self._written_lsn:
                    continue
                offset, size = segment.place(number)
                data = self._disk.read(segment.name, offset, size)
                block = read_block(data, segment.seed, segment.name, offset)
                if search.look(block.lsn, block.entries):
                    return
                slice_bytes += size
                if slice_bytes >= SLICE_BYTES:
                    slice_bytes = 0
                    yield

    def _index(self, segment: Segment, end_lsn: int) -> Iterator[None]:
        fresh = Segment(segment.name, segment.first_lsn, segment.seed, segment.size, segment.wall_ms)
        slice_bytes = 0
        for block in JournalReader([segment.name], self._disk.read, self._store):
            if block.lsn >= end_lsn:
                break
            if block.lsn != fresh.next_lsn:
                raise JournalBroken(f"{segment.name}: block {fresh.next_lsn} cannot be read")
            fresh.add(block.offset, block.size, BlockContent(block.entries).partitions)
            slice_bytes += block.size
            if slice_bytes >= SLICE_BYTES:
                slice_bytes = 0
                yield
        if fresh.next_lsn != end_lsn:
            raise JournalBroken(f"{segment.name}: block {fresh.next_lsn} cannot be read")
        segment.offsets, segment.index, segment.used = fresh.offsets, fresh.index, fresh.used
        segment.indexed = True
