"""Checkpoints of all partitions: which files exist, which blocks came after them, and which partition is due
next.

Example: partition 7 has a checkpoint of block 40, and blocks 45 and 52 changed it since. Then `clean_lsn` is
40 and `dirty` names block 45: a restart loads the checkpoint and replays from 45 on. A segment that begins
with block 60 records `Checkpointed(7, 44, file)`; from then on blocks up to 44 are not needed for partition
7.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.model.journal_entries import (
    Began,
    Checkpointed,
    Dropped,
    Entry,
    GroupWrote,
    Snapshot,
    Wrote,
    WrotePuts,
)
from holdfast.engine.segments import BlockContent

_LIVES = frozenset({Began, Dropped})
"""A copy begins or ends with them: their order among the others counts."""
KEPT = 2
"""Per partition: the newest, and the previous one while the journal goes back that far."""


@dataclass(slots=True)
class RunningCheckpoint:
    ticket: int
    snapshot: Snapshot
    lsn: int = -1
    """It contains every record up to this block; -1: not decided yet."""
    dirty: tuple[int, int] | None = None
    """The first later block that changed the partition, and the journal's size in bytes before it."""
    began: bool = False


@dataclass(slots=True)
class PartitionFiles:
    files: list[tuple[int, str]] = field(default_factory=list)
    dirty: tuple[int, int] | None = None
    """The first block with changes that the newest checkpoint lacks, and the journal's size before it."""
    clean_lsn: int = 0
    """A restart needs no block up to this one: it is in the newest checkpoint, or void."""
    dropped: int = 0
    """The block that dropped the partition, if nothing followed; 0: it is held."""
    began: tuple[int, int] | None = None
    """The last block that began the partition again, until it is durable."""
    cut_lsn: int = -1
    lineages: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """By map: terms of the records up to `cut_lsn`, each with the counter after which it begins."""


class Checkpoints:
    def __init__(self, checkpoint_bytes: int) -> None:
        self._bytes = checkpoint_bytes
        self.kept: dict[int, PartitionFiles] = {}
        self.under_way: list[RunningCheckpoint] = []
        self._asked: int | None = None
        self._unanswered: set[int] = set()
        self._ending: set[int] = set()
        self._last_at = 0
        self._look_at = 0
        self._eager: set[int] = set()
        """Partitions that need a checkpoint soon, because their files or journal are damaged."""

    # -- the journal

    def wrote(self, lsn: int, at: int, content: BlockContent) -> None:
        """A new block has this content. `at`: bytes of the journal before it."""
        if _LIVES.isdisjoint(content.kinds):
            # Nearly always, and then nearly all partitions have changed before.
            kept_of, under_way = self.kept, self.under_way
            for partition in content.partitions:
                kept = kept_of.get(partition)
                if kept is None or kept.dirty is None or kept.dropped or under_way:
                    self._touched(partition, lsn, at)
            return
        for entry in content.entries:
            if isinstance(entry, Wrote | WrotePuts | GroupWrote):
                self._touched(entry.partition, lsn, at)
            elif isinstance(entry, Began | Dropped):
                kept = self._touched(entry.partition, lsn, at)
                if lsn <= kept.clean_lsn:
                    continue
                if isinstance(entry, Began):
                    kept.began = (lsn, at)
                    self._ending.add(entry.partition)
                elif not entry.map:
                    kept.dropped = lsn
                    self._ending.add(entry.partition)

    def _touched(self, partition: int, lsn: int, at: int) -> PartitionFiles:
        kept = self.kept.get(partition)
        if kept is None:
            kept = self.kept[partition] = PartitionFiles(clean_lsn=lsn - 1)
        if lsn <= kept.clean_lsn:
            return kept
        if kept.dirty is None:
            kept.dirty = (lsn, at)
        kept.dropped = 0
        assert kept.dirty[0] > kept.clean_lsn, "what a checkpoint holds is not missing from it"
        for cut in self.under_way:
            if cut.snapshot.partition == partition and 0 <= cut.lsn < lsn and cut.dirty is None:
                cut.dirty = (lsn, at)
        return kept

    def found(self, files: list[tuple[int, str]], clean_lsn: int, snapshot: Snapshot) -> None:
        kept = self.kept[snapshot.partition] = PartitionFiles(files, clean_lsn=clean_lsn, cut_lsn=files[0][0])
        kept.lineages = {each.name: [*each.lineage] for each in snapshot.maps}

    def table(self, lsn: int) -> list[Entry]:
        """The checkpoint table at the start of a segment that begins with this block. When it is durable,
        older segments may be removed.

        Partitions without a checkpoint are listed too, because the next block on is needed. So are dropped
        ones: everything before is void except a checkpoint in progress, which may be the only local copy of a
        partition just refilled from another member.
        """
        table: list[Entry] = []
        for partition, kept in sorted(self.kept.items()):
            file = kept.files[0][1] if kept.files and not kept.dropped else ""
            table.append(Checkpointed(partition, self._clean(partition, kept, lsn), file))
        return table

    def _clean(self, partition: int, kept: PartitionFiles, lsn: int) -> int:
        clean = kept.dirty[0] - 1 if kept.dirty and not kept.dropped else lsn - 1
        if kept.files and not kept.dropped:
            return clean
        cuts = [cut.lsn - 1 for cut in self.under_way if cut.snapshot.partition == partition]
        return min([clean, *(before for before in cuts if before + 1 >= kept.dropped)])

    def begun(self, lsn: int) -> None:
        for partition, kept in self.kept.items():
            kept.clean_lsn = self._clean(partition, kept, lsn)
            if kept.dropped:
                kept.dirty = None
            assert kept.dirty is None or kept.dirty[0] > kept.clean_lsn, "what is not written out is needed"

    def needed_lsn(self, end: int) -> int:
        """The first block that a restart needs; `end` if it needs none before that."""
        needed = [kept.clean_lsn + 1 for kept in self.kept.values()]
        needed += [cut.lsn + 1 for cut in self.under_way if cut.lsn >= 0]
        return min([end, *needed])

    # -- checkpoints

    def begin(self, ticket: int, snapshot: Snapshot) -> RunningCheckpoint:
        assert all(cut.ticket != ticket for cut in self.under_way), "a ticket names one checkpoint"
        cut = RunningCheckpoint(ticket, snapshot)
        self.under_way.append(cut)
        if self._asked == snapshot.partition:
            self._asked = None
        self._unanswered.discard(snapshot.partition)
        self._eager.discard(snapshot.partition)
        return cut

    def place(self, cut: RunningCheckpoint, lsn: int) -> None:
        """The checkpoint contains exactly the blocks up to this one, the latest."""
        assert cut.lsn < 0 and cut in self.under_way, "it is placed once, before it is done"
        cut.lsn = lsn
        kept = self.kept.setdefault(cut.snapshot.partition, PartitionFiles())
        kept.cut_lsn = lsn
        kept.lineages = {each.name: list(each.lineage) for each in cut.snapshot.maps}

    def clashes(self, partition: int, lsn: int) -> bool:
        """Whether another checkpoint of this partition was taken at the same block; their file names would be
        equal.
        """
        kept = self.kept.get(partition)
        return kept is not None and kept.cut_lsn == lsn

    def done(self, cut: RunningCheckpoint, file: str) -> Checkpointed:
        """The checkpoint is durable in this file. Returns the entry for the journal."""
        assert cut.lsn >= 0, "it belongs after a block"
        self.under_way.remove(cut)
        kept = self.kept.setdefault(cut.snapshot.partition, PartitionFiles())
        kept.files.append((cut.lsn, file))
        kept.files.sort(reverse=True)
        if kept.files[0][1] == file:
            kept.dirty, kept.clean_lsn = cut.dirty, cut.lsn
            if kept.dropped <= cut.lsn:
                kept.dropped = 0
            assert kept.dirty is None or kept.dirty[0] > kept.clean_lsn, (
                "what it holds is not missing from it"
            )
            if kept.began and kept.began[0] <= cut.lsn:
                kept.began = None
            if kept.dropped or kept.began:
                self._ending.add(cut.snapshot.partition)
        return Checkpointed(cut.snapshot.partition, cut.lsn, file)

    def failed(self, cut: RunningCheckpoint) -> None:
        self.under_way.remove(cut)

    def superfluous(self, first_lsn: int) -> list[str]:
        """Remove and return files that no restart uses if the journal goes back to this block."""
        gone: list[str] = []
        for kept in self.kept.values():
            while len(kept.files) > 1 and (len(kept.files) > KEPT or kept.files[-1][0] + 1 < first_lsn):
                gone.append(kept.files.pop()[1])
            assert len(kept.files) <= KEPT, "no more are kept than a restart may want"
        return gone

    def settle(self, durable_lsn: int) -> list[tuple[int, int, list[str]]]:
        """Blocks up to this one are durable. Returns dropped partitions, each with the block that dropped it
        and the removable files.
        """
        gone: list[tuple[int, int, list[str]]] = []
        for partition in sorted(self._ending):
            kept = self.kept.get(partition)
            if kept is None:
                self._ending.discard(partition)
                continue
            if kept.began is not None and kept.began[0] <= durable_lsn:
                if kept.dirty is None or kept.dirty[0] < kept.began[0]:
                    kept.dirty = kept.began
                kept.began = None
            busy = any(cut.snapshot.partition == partition for cut in self.under_way)
            if 0 < kept.dropped <= durable_lsn and not busy:
                gone.append((partition, kept.dropped, [name for _, name in kept.files]))
            if kept.began is None and (not kept.dropped or (gone and gone[-1][0] == partition)):
                self._ending.discard(partition)
        return gone

    def forget(self, partition: int, dropped: int, files: list[str]) -> None:
        kept = self.kept.get(partition)
        if kept is None:
            return
        kept.files = [each for each in kept.files if each[1] not in files]
        if kept.dropped == dropped and not kept.files:
            del self.kept[partition]

    # -- which partition is next

    def want_all(self) -> None:
        self._eager = set(self.kept)
        for kept in self.kept.values():
            # The unreadable part may have changed it, so it must not count as complete before its checkpoint.
            kept.dirty = (kept.clean_lsn + 1, 0)

    def unanswered(self, partition: int) -> None:
        if self._asked == partition:
            self._unanswered.add(partition)
            self._eager.discard(partition)
            self._asked = None

    def wanted(self, at: int) -> int | None:
        """The partition to checkpoint now, if any: the one with the oldest changes. `at`: bytes of the
        journal so far.

        From half of `checkpoint_bytes` on, requests are spread evenly over the written bytes, so that they do
        not all become due at once.
        """
        if self.under_way or self._asked is not None or (at < self._look_at and not self._eager):
            return None
        due = {p: kept.dirty[1] for p, kept in self.kept.items() if kept.dirty and not kept.dropped}
        self._eager.intersection_update(due)
        if self._eager:
            self._asked = min(self._eager)
            assert self.kept[self._asked].dirty, "only what has changed is written out again"
            return self._asked
        rest = {p: since for p, since in due.items() if p not in self._unanswered}
        if not rest:
            self._unanswered.clear()
            self._look_at = at + max(1, self._bytes // 16)
            return None
        partition = min(rest, key=lambda p: (rest[p], p))
        age = at - rest[partition]
        spacing = self._bytes // len(due)
        if age < self._bytes // 2:
            self._look_at = rest[partition] + self._bytes // 2
        elif age < self._bytes and at - self._last_at < spacing:
            self._look_at = self._last_at + spacing
        else:
            self._asked = partition
            self._last_at = self._look_at = at
        return self._asked
