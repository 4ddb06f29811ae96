"""Journals as a writer leaves them, and a judge of what a reader makes of them after an accident."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from holdfast.core.model.journal_entries import (
    Began,
    Checkpointed,
    Dropped,
    Entry,
    Meta,
    Seen,
    TableAssignments,
    Wrote,
    WrotePuts,
)
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record, as_puts
from holdfast.core.model.views import ClusterState, View
from holdfast.wire.journal_blocks import HEAD_BYTES, Block, Chain
from holdfast.wire.journal_reader import JournalReader

STORE = "5f0c2b7e-2f2b-4df3-9c43-0d1d4f6b8a11"


@dataclass
class Written:
    """A journal that is written, and where each block is."""

    store: str = STORE
    files: dict[str, bytearray] = field(default_factory=dict)
    entries: dict[int, list[Entry]] = field(default_factory=dict)
    places: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    """By lsn: segment, offset, end."""
    synced: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chain = Chain(self.store)

    def begin(self) -> None:
        header = self.chain.begin(1_700_000_000_000)
        assert self.chain.segment not in self.files
        self.files[self.chain.segment] = bytearray(header)

    def block(self, *entries: Entry, sync: bool = True) -> int:
        file, lsn = self.files[self.chain.segment], self.chain.lsn
        self.synced[lsn] = self.chain.synced
        data = self.chain.block(entries)
        self.places[lsn] = (self.chain.segment, len(file), len(file) + len(data))
        self.entries[lsn] = list(entries)
        file += data
        if sync:
            self.chain.durable(lsn)
        return lsn

    def fill(self, zeros: int) -> None:
        """What was reserved and not used yet."""
        self.files[self.chain.segment] += bytes(zeros)

    @property
    def last(self) -> int:
        return self.chain.lsn - 1

    @property
    def bytes(self) -> dict[str, bytes]:
        return {name: bytes(data) for name, data in self.files.items()}


def some_entry(dice: random.Random) -> Entry:
    partition = dice.randrange(271)
    match dice.randrange(12):
        case 0:
            return TableAssignments([(partition, Assignment(dice.randrange(99), ("a", None, "b"), 1))])
        case 1:
            return Seen(View(dice.randrange(9), "c", [], [], ClusterState.ACTIVE))
        case 2:
            return Began(partition, 2)
        case 3:
            return Dropped(partition, "m")
        case 4:
            return Checkpointed(partition, dice.randrange(1 << 40), "p.parquet")
        case 5:
            return Meta(STORE, 7, "c")
        case _:
            key = dice.randbytes(8)
            records = [
                Record("m", number, Change.SET, key, dice.randbytes(dice.randrange(1, 300)))
                for number in range(dice.randrange(1, 4))
            ]
            puts = as_puts(records)
            if puts is not None and dice.randrange(2):
                return WrotePuts(partition, 3, puts)
            return Wrote(partition, 3, records)


def some_journal(seed: int, size: int = 16_384, segments: int = 3, *, zeros: int = 700) -> Written:
    """A journal of about this size, sealed, each block durable before the next is written."""
    dice = random.Random(seed)
    written = Written()
    for number in range(segments):
        written.begin()
        room = (size - zeros - HEAD_BYTES) * (number + 1) // segments
        written.block(some_entry(dice))
        while sum(map(len, written.files.values())) < room - 400:
            written.block(*(some_entry(dice) for _ in range(dice.randrange(1, 4))))
    written.block()
    if zeros:
        written.fill(max(zeros, size - sum(map(len, written.files.values()))))
    return written


def read(files: dict[str, bytes], store: str | None = STORE) -> tuple[JournalReader, list[Block]]:
    reading = JournalReader(list(files), files.__getitem__, store)
    return reading, list(reading)


def judge(
    written: Written, files: dict[str, bytes], durable: set[int], *, store: str | None = STORE
) -> JournalReader:
    """Read these bytes, and compare with what was written. durable: the blocks that must not be lost unseen.

    Never an invented record; never a durable one missing without damage that names it; never out of order.
    """
    reading, blocks = read(files, store)
    before = 0
    for block in blocks:
        assert block.lsn > before, "out of order"
        before = block.lsn
        assert written.entries.get(block.lsn) == block.entries, f"block {block.lsn} was never written"
        assert files[block.segment][block.offset : block.offset + block.size], "no such place"
    missing = durable - {block.lsn for block in blocks}
    for damage in reading.damage:
        missing -= {
            lsn for lsn in missing if damage.lsn <= lsn and (lsn < damage.next_lsn or not damage.next_lsn)
        }
    assert not missing, (
        f"blocks {sorted(missing)} are lost, and nobody says so: {reading.damage}, {reading.torn}"
    )
    assert reading.end.lsn > before
    if reading.torn is not None:
        assert reading.torn.lsn == reading.end.lsn
    return reading


def goes_on(reading: JournalReader, files: dict[str, bytes], store: str = STORE) -> None:
    """A writer that goes on after this finds everything again that was read, and what it adds."""
    _, before = read(files, store)
    damage = list(reading.damage)
    kept = {name: data for name, data in files.items() if name not in reading.void}
    chain = Chain(store, reading.end.lsn, reading.end.checksum)
    header = chain.begin(5)
    assert chain.segment not in kept
    added: Entry = Began(1, 1)
    kept[chain.segment] = header + chain.block([added]) + chain.block() + bytes(100)
    again, blocks = read(kept, store)
    assert [(block.lsn, block.entries) for block in blocks] == [
        *((block.lsn, block.entries) for block in before),
        (reading.end.lsn, [added]),
        (reading.end.lsn + 1, []),
    ]
    assert again.torn is None
    assert [(each.lsn, each.segment, each.offset) for each in again.damage] == [
        (each.lsn, each.segment, each.offset) for each in damage
    ]
