"""Which checkpoints are there, what has been written since, and which partition should have a new one."""

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

KEPT = 2
"""Checkpoints of a partition: the newest, and the one before it, as long as the journal goes back to it."""


@dataclass(slots=True)
class RunningCheckpoint:
    """A checkpoint that is under way: what the content is, and where it belongs in the journal."""

    ticket: int
    snapshot: Snapshot
    lsn: int = -1
    """Every record of the blocks up to this one is in it; -1: the block is not made yet."""
    dirty: tuple[int, int] | None = None
    """The first block after it that tells of the partition, and how long the journal was then."""
    began: bool = False


@dataclass(slots=True)
class PartitionFiles:
    """What there is of one partition."""

    files: list[tuple[int, str]] = field(default_factory=list)
    """lsn and name of its checkpoints, newest first."""
    dirty: tuple[int, int] | None = None
    """The first block that tells of the partition and is not in the newest of them; how long the journal was then."""
    clean_lsn: int = 0
    """Everything up to this block is in the newest of them, or void, as a restart will see it."""
    dropped: int = 0
    """The block that says that it is held no more, if nothing has come since; 0: it is held."""
    began: tuple[int, int] | None = None
    """The last block that says that it begins anew, which is not known to be durable yet."""
    cut_lsn: int = -1
    """Of the newest checkpoint that was ever asked for."""
    lineages: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Whose records the blocks up to `cut_lsn` should hold, by map."""


class Checkpoints:
    """The checkpoints of all partitions of one member."""

    def __init__(self, checkpoint_bytes: int) -> None:
        self._bytes = checkpoint_bytes
        self.kept: dict[int, PartitionFiles] = {}
        self.under_way: list[RunningCheckpoint] = []
        self._asked: int | None = None
        """The partition whose checkpoint the member was asked for last."""
        self._unanswered: set[int] = set()
        self._ending: set[int] = set()
        """Partitions of which something was said to begin anew, or to be held no more."""
        self._last_at = 0
        self._look_at = 0
        self._eager: set[int] = set()
        """Partitions that should have a new one soon, because something is wrong with what is there."""

    # -- what the journal says

    def wrote(self, lsn: int, at: int, entries: list[Entry]) -> None:
        """A block with these entries is made. at: bytes of the journal before it."""
        for entry in entries:
            kind = type(entry)
            if kind is Wrote or kind is WrotePuts or kind is GroupWrote:
                kept = self.kept.get(entry.partition)  # type: ignore[union-attr]
                if kept is None or kept.dirty is None or kept.dropped or self.under_way:
                    self._touched(entry.partition, lsn, at)  # type: ignore[union-attr]
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
        """The checkpoints of a partition that were there when the member started, newest first; it holds this."""
        kept = self.kept[snapshot.partition] = PartitionFiles(files, clean_lsn=clean_lsn, cut_lsn=files[0][0])
        kept.lineages = {each.name: [*each.lineage] for each in snapshot.maps}

    def table(self, lsn: int) -> list[Entry]:
        """What a segment that begins with this block says at its start: up to where each checkpoint holds everything.
        Nothing older is needed when that is durable.

        A partition without a checkpoint is named too: its journal is needed from the block after its lsn on. So is one
        that is held no more: whatever there is of it is void; but not the checkpoint that is being written of it just
        now, which may be all that there is of a copy that has come from another member.
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
        """The segment whose table this is begins indeed, with this block."""
        for partition, kept in self.kept.items():
            kept.clean_lsn = self._clean(partition, kept, lsn)
            if kept.dropped:
                kept.dirty = None
            assert kept.dirty is None or kept.dirty[0] > kept.clean_lsn, "what is not written out is needed"

    def needed_lsn(self, end: int) -> int:
        """The first block that a restart needs; `end` when it needs none before that one."""
        needed = [kept.clean_lsn + 1 for kept in self.kept.values()]
        needed += [cut.lsn + 1 for cut in self.under_way if cut.lsn >= 0]
        return min([end, *needed])

    # -- checkpoints

    def begin(self, ticket: int, snapshot: Snapshot) -> RunningCheckpoint:
        """The member wants this content to be kept."""
        assert all(cut.ticket != ticket for cut in self.under_way), "a ticket names one checkpoint"
        cut = RunningCheckpoint(ticket, snapshot)
        self.under_way.append(cut)
        if self._asked == snapshot.partition:
            self._asked = None
        self._unanswered.discard(snapshot.partition)
        self._eager.discard(snapshot.partition)
        return cut

    def place(self, cut: RunningCheckpoint, lsn: int) -> None:
        """It belongs after this block, which was made just now; no block has been made since."""
        assert cut.lsn < 0 and cut in self.under_way, "it is placed once, before it is done"
        cut.lsn = lsn
        kept = self.kept.setdefault(cut.snapshot.partition, PartitionFiles())
        kept.cut_lsn = lsn
        kept.lineages = {each.name: list(each.lineage) for each in cut.snapshot.maps}

    def clashes(self, partition: int, lsn: int) -> bool:
        """Whether a checkpoint of this partition was taken after the same block: names could not tell the two apart."""
        kept = self.kept.get(partition)
        return kept is not None and kept.cut_lsn == lsn

    def done(self, cut: RunningCheckpoint, file: str) -> Checkpointed:
        """It is durable under this name. Answers what the journal should say."""
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
        """There was no room for it."""
        self.under_way.remove(cut)

    def superfluous(self, first_lsn: int) -> list[str]:
        """Take out the files that no restart would use, with a journal that goes back to this block."""
        gone: list[str] = []
        for kept in self.kept.values():
            while len(kept.files) > 1 and (len(kept.files) > KEPT or kept.files[-1][0] + 1 < first_lsn):
                gone.append(kept.files.pop()[1])
            assert len(kept.files) <= KEPT, "no more are kept than a restart may want"
        return gone

    def settle(self, durable_lsn: int) -> list[tuple[int, int, list[str]]]:
        """What is said up to this block is durable. Answers the partitions that are held no more: with the block that
        says so, and their files, which may be removed.
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
        """The files of a dropped partition are gone."""
        kept = self.kept.get(partition)
        if kept is None:
            return
        kept.files = [each for each in kept.files if each[1] not in files]
        if kept.dropped == dropped and not kept.files:
            del self.kept[partition]

    # -- which partition is next

    def want_all(self) -> None:
        """Something of the journal cannot be read: every partition should have a new checkpoint."""
        self._eager = set(self.kept)
        for kept in self.kept.values():
            # Its news may be in what cannot be read: it must not count as complete before that.
            kept.dirty = (kept.clean_lsn + 1, 0)

    def unanswered(self, partition: int) -> None:
        """The member was asked for a checkpoint of this partition a while ago; perhaps it has not given any."""
        if self._asked == partition:
            self._unanswered.add(partition)
            self._eager.discard(partition)
            self._asked = None

    def wanted(self, at: int) -> int | None:
        """The partition that should have a new checkpoint now, if any. at: bytes of the journal so far.

        One at a time, the one with the oldest news first. So that they do not all come due at once, the first are asked
        for early: from half of `checkpoint_bytes` on, evenly.
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
