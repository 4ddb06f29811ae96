"""Makes the blocks of a journal and begins segments: entries in, disk operations out.

- engine/W-4: Each segment begins with all that a restart needs if earlier segments are gone: the owner, the
  newest assignments and view, and for each partition its checkpoint and the first block that it still needs.
- engine/W-9: Nothing is written at a feature level before the identity file has that level. A segment has
  nothing of a level with another format: the view that raises the level begins a new segment.
"""

from __future__ import annotations

from holdfast.core.model.journal_entries import Entry, Seen, level_of
from holdfast.core.model.levels import segment_format
from holdfast.engine.checkpoints import Checkpoints
from holdfast.engine.journal_disk import JournalDisk
from holdfast.engine.ports import Deed, Rename, Sync, Write
from holdfast.engine.preamble import Preamble
from holdfast.engine.restore import SPARE, Found
from holdfast.engine.segments import BlockContent, Segment, Segments
from holdfast.engine.store_identity import StoreIdentity
from holdfast.wire.journal_blocks import HEADER_BYTES, SEAL_BYTES, Chain


class BlockWriter:
    __slots__ = (
        "_chain",
        "_checkpoints",
        "_disk",
        "_format",
        "_identity",
        "_preamble",
        "_segments",
        "at",
        "missing_bytes",
        "segment",
    )

    def __init__(self, found: Found, disk: JournalDisk, identity: StoreIdentity) -> None:
        self._disk = disk
        self._identity = identity
        self._segments: Segments = found.segments
        self._checkpoints: Checkpoints = found.checkpoints
        self._chain = Chain(found.identity.store, found.lsn, found.checksum)
        self._preamble = Preamble(found.rows, found.view, found.stores)
        self._format = 0
        self.segment: Segment | None = None
        self.at = found.journal_bytes
        self.missing_bytes = 0
        """Size of the segment that `write` needed when it found no room."""

    @property
    def last_lsn(self) -> int:
        return self._chain.lsn - 1

    def durable(self, lsn: int) -> None:
        self._chain.durable(lsn)

    def write(self, entries: list[Entry]) -> list[Deed] | None:
        """Make one block. Returns the operations that write it, or None when no segment has room."""
        content = BlockContent(entries)
        deeds = self._block(content)
        if deeds is not None:
            self._checkpoints.wrote(self.last_lsn, self.at, content)
            self._preamble.note(content)
        return deeds

    def seal(self) -> list[Deed]:
        segment = self.segment
        if segment is None or self._room(segment) < 0:
            return []
        self._chain.durable(self.last_lsn)
        data = self._chain.block()
        return [Sync(segment.name), Write(segment.name, segment.used, data), Sync(segment.name)]

    def _block(self, content: BlockContent) -> list[Deed] | None:
        chain, segment, entries = self._chain, self.segment, content.entries
        before = chain.place
        level = self._identity.value.level
        if Seen in content.kinds:
            level = max(level, level_of(entries))
        if segment is not None and segment_format(level) == self._format:
            data = chain.block(entries)
            if len(data) <= self._room(segment):
                deed = Write(segment.name, segment.used, data)
                self._add(segment, data, content)
                return [*self._identity.rise(level), deed]
            chain.place = before
        if not self._disk.spare_bytes:
            return None
        # The header of the new segment says that the old one is durable to its end, and a restart believes
        # it. So sync the old segment before anything is written to the new one.
        chain.durable(self.last_lsn)
        wall_ms = self._disk.files.wall_ms()
        header = chain.begin(wall_ms, level)
        start = [*self._preamble.entries(self._identity.value), *self._checkpoints.table(chain.lsn)]
        first, data = chain.block(start), chain.block(entries)
        size = len(header) + len(first) + len(data) + SEAL_BYTES
        if size > self._disk.spare_bytes:
            chain.place = before
            self.missing_bytes = size
            return None
        assert segment is None or chain.first_lsn == segment.next_lsn, "segments follow each other"
        self._checkpoints.begun(chain.first_lsn)
        fresh = Segment(chain.segment, chain.first_lsn, chain.seed, self._disk.spare_bytes, wall_ms)
        deeds: list[Deed] = [Sync(segment.name)] if segment is not None else []
        deeds += self._identity.rise(level)
        deeds += [Rename(SPARE, fresh.name), Write(fresh.name, 0, header), Sync(fresh.name)]
        deeds.append(Write(fresh.name, HEADER_BYTES, first + data))
        self._format = segment_format(level)
        self._disk.take_spare()
        self._segments.all.append(fresh)
        self.segment = fresh
        self._add(fresh, first, BlockContent(start))
        self._add(fresh, data, content)
        return deeds

    def _add(self, segment: Segment, data: bytes, content: BlockContent) -> None:
        segment.add(segment.used, len(data), content.partitions)
        self.at += len(data)
        assert segment.used <= segment.size, "a block ends where its segment does, or before"

    @staticmethod
    def _room(segment: Segment) -> int:
        return segment.size - segment.used - SEAL_BYTES
