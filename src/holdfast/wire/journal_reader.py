"""Reader of a whole journal: its blocks in order, its end, and its damage (`wire.journal_blocks`).

- wire/R-1: Only blocks that continue the one before are joined to it. After damage a new run begins, and the damage is
  reported.
- wire/R-2: A segment that begins with the link and lsn that were reached continues there, whatever is left in the
  segment before: that was cut. So a writer that finds a torn tail leaves it, and begins a new segment.
- wire/R-3: Reading ends for any bytes, in time and memory proportional to their size, with all damage reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.wire.journal_blocks import (
    HEAD_BYTES,
    HEADER_BYTES,
    ORIGIN,
    Block,
    End,
    Head,
    decode,
    head_at,
    is_sound,
    read_header,
    seed_of,
    segment_lsn,
    segment_name,
    segments,
)

_ZEROS = bytes(65536)

Load = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that were durable and cannot be read."""

    segment: str
    offset: int
    lsn: int
    next_lsn: int
    """The next readable block: equal to `lsn` if no block is lost; 0 if none is readable."""
    why: str

    @property
    def lost(self) -> bool:
        return self.lsn != self.next_lsn

    def __str__(self) -> str:
        if not self.lost:
            what = "no block is lost"
        elif self.next_lsn:
            what = f"blocks {self.lsn} to {self.next_lsn - 1} are lost"
        else:
            what = f"blocks from {self.lsn} on are lost"
        return f"{self.segment}, offset {self.offset}: {self.why}; {what}"


@dataclass(frozen=True, slots=True)
class Torn:
    """The end of the journal was not durable yet when the member stopped; it is cut here."""

    segment: str
    offset: int
    lsn: int

    def __str__(self) -> str:
        return f"{self.segment}, offset {self.offset}: cut before block {self.lsn}, which was never durable"


@dataclass(slots=True)
class SegmentRead:
    name: str
    first_lsn: int
    last_lsn: int = 0
    blocks: int = 0
    wall_ms: int = 0
    used: int = 0
    size: int = 0
    seed: bytes = b""
    leans: bool = False
    """Whether its header is damaged, so that it is readable only together with the segments before it."""


class _Segment:
    __slots__ = ("data", "first_lsn", "header", "name", "raw", "seed", "why")

    def __init__(self, name: str, raw: bytes, store: str | None) -> None:
        self.name = name
        self.first_lsn = segment_lsn(name) or 0
        self.raw = raw
        self.data = memoryview(raw)
        self.header = read_header(self.data)
        self.why = "the header of the segment is damaged"
        if self.header is not None and self.header.first_lsn != self.first_lsn:
            self.why = f"this is segment {segment_name(self.header.first_lsn)} under another name"
            self.header = None
        elif self.header is not None and store not in {None, self.header.store}:
            self.why = f"this is a segment of another store, {self.header.store}"
            self.header = None
        self.seed = b""
        """b"" if unknown: then its blocks cannot be recognised."""
        if self.header is not None:
            self.seed = seed_of(self.header.store, self.first_lsn, self.header.previous)

    def blank_from(self, offset: int) -> bool:
        """Whether only zeros follow from here on."""
        raw = self.raw
        for start in range(offset, len(raw), len(_ZEROS)):
            piece = raw[start : start + len(_ZEROS)]
            if piece != _ZEROS and piece != _ZEROS[: len(piece)]:
                return False
        return True

    def find(self, offset: int) -> Iterator[Head]:
        """The valid blocks from here on, at any offset. Takes time proportional to the bytes."""
        if not self.seed:
            return
        raw, mark = self.raw, self.seed[:4]
        while (offset := raw.find(mark, offset)) >= 0:
            head = head_at(self.data, offset, self.seed)
            if head is None:
                offset += 1
                continue
            if is_sound(self.data, head):
                yield head
            # Trust the length even if the entries are damaged: the bytes between are entries, and no block.
            offset = min(head.end, len(raw))


class JournalReader:
    """Reads a journal: iterate once for the blocks, then read `end`, `damage` and `torn`.

    Damage is in `damage` before the block after it is returned. Raises JournalBroken for valid bytes of another
    version.
    """

    def __init__(self, names: Sequence[str], load: Load, store: str | None = None) -> None:
        """`names`: of all segments, in any order; others are ignored. `store`: their owner; None: that of the
        first valid header.
        """
        self.store = store
        self.damage: list[Damage] = []
        self.torn: Torn | None = None
        self.void: list[str] = []
        """Segments without any block of this journal, to be removed before a writer continues."""
        self.segments: list[SegmentRead] = []
        self.end = End(1, ORIGIN)
        self._names = segments(names)
        self._load = load
        self._ahead: tuple[int, _Segment] | None = None
        """A segment that was loaded before its turn."""
        self._proof = -1
        """The last block that the bytes after the first problem prove durable; -1: not determined yet."""
        self._lsn = 0
        """lsn of the next block; 0: any."""
        self._checksum = ORIGIN
        self._gap: tuple[str, int, str] | None = None
        """Damage without a known end: where it begins, and why."""
        self._beyond = 1
        """Unreadable blocks have lower lsns than this."""
        self._place = ("", 0)
        self._half = ""
        """The last segment without even a header."""
        self._clean: _Segment | None = None
        """The segment that was read last, if only zeros follow its last block."""

    def __iter__(self) -> Iterator[Block]:
        for index, name in enumerate(self._names):
            segment = self._segment(index)
            read = SegmentRead(name, segment.first_lsn, size=len(segment.raw))
            self.segments.append(read)
            if self._enter(index, segment):
                read.seed = segment.seed
                read.wall_ms = segment.header.wall_ms if segment.header else 0
                read.leans = segment.header is None
                for head in self._walk(index, segment):
                    read.last_lsn = head.lsn
                    read.blocks += 1
                    read.used = head.end
                    entries = decode(segment.data, head, name)
                    yield Block(head.lsn, entries, name, head.offset, head.end - head.offset)
            if self.torn is not None:
                self.void += self._names[index + 1 :]
                if not read.blocks and name not in self.void:
                    self.void.append(name)
                break
        self._finish()

    def _segment(self, index: int) -> _Segment:
        if self._ahead is not None and self._ahead[0] == index:
            return self._ahead[1]
        name = self._names[index]
        segment = _Segment(name, self._load(name), self.store)
        if self.store is None and segment.header is not None:
            self.store = segment.header.store
        return segment

    # -- from one segment to the next

    def _continues(self, segment: _Segment) -> bool:
        """Whether this segment begins exactly where the blocks before it end."""
        header = segment.header
        return (
            header is not None
            and self._gap is None
            and header.first_lsn == self._lsn
            and header.previous == self._checksum
        )

    def _enter(self, index: int, segment: _Segment) -> bool:
        header = segment.header
        if header is None:
            return self._enter_without_header(segment)
        self._clean = None
        if self._lsn and not self._continues(segment):
            if header.first_lsn < self._lsn:
                # It was cut, and not removed in time: its blocks were written again.
                self.void.append(segment.name)
                return False
            if self._gap is None and not self._proved(index, segment, HEADER_BYTES):
                self._tear(*self._place)
                return False
            if header.first_lsn == self._lsn and self._gap is None:
                self._unreadable(segment, "this segment does not continue the one before it")
                return False
            if self._gap is None:
                self._gap = (*self._place, "the rest of the segment, or a segment after it, is missing")
            self._close_gap(header.first_lsn)
        self._lsn, self._checksum = header.first_lsn, header.previous
        self._place = (segment.name, HEADER_BYTES)
        self._half = ""
        return True

    def _enter_without_header(self, segment: _Segment) -> bool:
        if segment.blank_from(HEADER_BYTES):
            # Allocated and never used, or interrupted before its first use: the first block is written after
            # the header.
            if not segment.blank_from(0):
                self._half = segment.name
            self.void.append(segment.name)
            return False
        if not self._lsn and segment.first_lsn == 1:
            self._lsn = 1
        if self._gap is None and self.store is not None and self._lsn == segment.first_lsn:
            segment.seed = seed_of(self.store, self._lsn, self._checksum)
            head = head_at(segment.data, HEADER_BYTES, segment.seed)
            if head is not None and self._follows(head):
                self.damage.append(Damage(segment.name, 0, self._lsn, self._lsn, segment.why))
                self._place = (segment.name, HEADER_BYTES)
                self._clean, self._half = None, ""
                return True
        self._unreadable(segment, segment.why)
        return False

    def _unreadable(self, segment: _Segment, why: str) -> None:
        """The segment has unknown content, which was durable: its header was, before its blocks."""
        self._clean = None
        self._beyond = max(self._beyond, segment.first_lsn + len(segment.raw) // HEAD_BYTES + 1)
        if not self._lsn:
            self._lsn = segment.first_lsn
        if self._gap is None:
            self._gap = (segment.name, 0, why)

    def _close_gap(self, next_lsn: int) -> None:
        assert self._gap is not None
        self.damage.append(Damage(self._gap[0], self._gap[1], self._lsn, next_lsn, self._gap[2]))
        self._gap = None

    def _tear(self, segment: str, offset: int) -> None:
        self.torn = Torn(segment, offset, self._lsn)

    # -- within a segment

    def _walk(self, index: int, segment: _Segment) -> Iterator[Head]:
        offset = HEADER_BYTES
        while True:
            head = head_at(segment.data, offset, segment.seed)
            if head is not None and self._follows(head) and is_sound(segment.data, head):
                offset = head.end
                self._lsn, self._checksum = head.lsn + 1, head.link
                self._place = (segment.name, offset)
                yield head
                continue
            if segment.blank_from(offset):
                self._clean = segment if segment.header is not None else None
                return
            after = self._after(index)
            if after is not None and self._continues(after):
                return  # the rest of this segment was cut
            if not self._proved(index, segment, offset):
                self._tear(segment.name, offset)
                return
            limit = after.first_lsn if after is not None else 0
            found = next((found for found in segment.find(offset) if self._fits(found, limit)), None)
            self._gap = (segment.name, offset, "this is not the block that was written here")
            if found is None:
                return
            self._close_gap(found.lsn)
            self._lsn, self._checksum, offset = found.lsn, found.previous, found.offset

    def _follows(self, head: Head) -> bool:
        return head.lsn == self._lsn and head.previous == self._checksum

    def _fits(self, head: Head, limit: int) -> bool:
        """Whether reading may continue with this block after damage. `limit`: the first lsn of the next
        segment, or 0.
        """
        return self._follows(head) or (head.lsn > self._lsn and (not limit or head.lsn < limit))

    def _after(self, index: int) -> _Segment | None:
        if index + 1 == len(self._names):
            return None
        if self._ahead is None or self._ahead[0] != index + 1:
            self._ahead = (index + 1, self._segment(index + 1))
        return self._ahead[1]

    def _proved(self, index: int, segment: _Segment, offset: int) -> bool:
        """Whether anything after this place proves that the next block was durable (wire/B-3)."""
        if self._proof < 0:
            self._proof = 0
            while True:
                if segment.header is not None:
                    self._proof = max(self._proof, segment.header.synced)
                elif not segment.seed and not segment.blank_from(HEADER_BYTES):
                    self._proof = max(self._proof, segment.first_lsn - 1)
                for head in segment.find(offset):
                    self._proof = max(self._proof, head.synced)
                index += 1
                if index == len(self._names):
                    break
                segment, offset = self._segment(index), HEADER_BYTES
        return self._proof >= self._lsn

    # -- the end

    def _finish(self) -> None:
        if self._gap is not None:
            self._clean = None
            self._close_gap(0)
            self._lsn = max(self._lsn, self._proof + 1, self._beyond)
        if not self._lsn:
            self._lsn = max([1, *(segment_lsn(name) or 1 for name in self._names)])
        if self._half and self.torn is None:
            self._tear(self._half, 0)
        clean = self._clean if self.torn is None else None
        self.end = End(
            self._lsn,
            self._checksum,
            *self._place,
            first_lsn=clean.first_lsn if clean else 0,
            seed=clean.seed if clean else b"",
        )
