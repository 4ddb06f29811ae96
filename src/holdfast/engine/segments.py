"""The segments of the journal: places of their blocks, an index by partition, and which segments can be removed."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from holdfast.core.model.journal_entries import Began, Dropped, Entry, GroupWrote, Wrote, WrotePuts
from holdfast.wire.journal_blocks import HEADER_BYTES

# mypy does not narrow an entry by `type(entry) in _OF_A_PARTITION`.
_OF_A_PARTITION = frozenset({Wrote, WrotePuts, Began, Dropped, GroupWrote})


class BlockContent:
    """The kinds of a block's entries and the partitions that they change, found in one pass: with a lazy journal many
    blocks have an entry for each partition.
    """

    __slots__ = ("entries", "kinds", "partitions")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.kinds: set[type] = set(map(type, entries))
        of_entries = (
            [entry.partition for entry in entries]  # type: ignore[union-attr]
            if self.kinds <= _OF_A_PARTITION
            else [entry.partition for entry in entries if type(entry) in _OF_A_PARTITION]  # type: ignore[union-attr]
        )
        self.partitions = list(dict.fromkeys(of_entries))
        """Each once, in order."""


def changes_content(entries: Iterable[Entry]) -> bool:
    return not _OF_A_PARTITION.isdisjoint(map(type, entries))


class Segment:
    __slots__ = (
        "first_lsn",
        "index",
        "indexed",
        "leans",
        "name",
        "offsets",
        "seed",
        "size",
        "used",
        "wall_ms",
    )

    def __init__(self, name: str, first_lsn: int, seed: bytes, size: int, wall_ms: int) -> None:
        self.name = name
        self.first_lsn = first_lsn
        self.seed = seed
        self.size = size
        self.wall_ms = wall_ms
        self.used = HEADER_BYTES
        self.offsets = array("Q")
        self.index: dict[int, array[int]] = {}
        """By partition, the ascending numbers of the blocks that change it, counted from 0."""
        self.indexed = True
        """Whether `offsets` and `index` are filled. Segments that a restart did not read are indexed on
        demand.
        """
        self.leans = False
        """Whether its header is damaged, so that a restart needs the segment before it to read this one."""

    @property
    def next_lsn(self) -> int:
        return self.first_lsn + len(self.offsets)

    def add(self, offset: int, size: int, partitions: Iterable[int]) -> None:
        """Add a block that changes these partitions, each named once."""
        assert offset >= self.used and size > 0, "blocks follow each other"
        number = len(self.offsets)
        self.offsets.append(offset)
        self.used = offset + size
        index = self.index
        for partition in partitions:
            blocks = index.get(partition)
            if blocks is None:
                index[partition] = array("I", [number])
            else:
                assert blocks[-1] < number, "the blocks of a partition ascend"
                blocks.append(number)

    def place(self, number: int) -> tuple[int, int]:
        offset = self.offsets[number]
        end = self.offsets[number + 1] if number + 1 < len(self.offsets) else self.used
        return offset, end - offset


class Segments:
    """All segments, oldest first; only the last one is written to."""

    def __init__(self) -> None:
        self.all: list[Segment] = []

    def end_of(self, position: int) -> int:
        if position + 1 < len(self.all):
            return self.all[position + 1].first_lsn
        return self.all[position].next_lsn

    def spare(self, needed_lsn: int) -> int:
        """The number of oldest segments without any block from `needed_lsn` on; never the last one."""
        count = 0
        while count + 1 < len(self.all) and self.all[count + 1].first_lsn <= needed_lsn:
            count += 1
        while count and self.all[count].leans:
            count -= 1
        return count

    def take_oldest(
        self, needed_lsn: int, *, history_bytes: int, history_age_ms: int, now_ms: int
    ) -> list[Segment]:
        spare = self.spare(needed_lsn)
        kept = sum(segment.size for segment in self.all[:spare])
        gone = 0
        while gone < spare:
            # The last write to a segment came before the next segment began.
            age_ms = now_ms - self.all[gone + 1].wall_ms
            if kept <= history_bytes and age_ms <= history_age_ms:
                break
            kept -= self.all[gone].size
            gone += 1
        assert 0 <= gone <= spare, "what a restart needs stays"
        taken, self.all = self.all[:gone], self.all[gone:]
        assert self.all or not taken, "the segment that is written to stays"
        return taken
