"""Recovery of a directory at a start: checks the owner, rebuilds the copies, and finds the end of the journal.

Where reading starts: the newest segment with a readable first block has a table of checkpoints (engine/W-4). Example:
segment 900 says "partition 1: checkpoint c1, complete up to 850; partition 2: c2, up to 890". The restart loads c1
and c2, and reads blocks from 851 on. Older segments are history, and are read only on demand (`journal_history`).

Checkpoints: of each partition the newest undamaged file is the base. If it is not the newest of all, records that only
the newest had are missing, so the copy is uncertain (journal/R-4).

How an old copy of a directory is fenced: `identity.json` counts lives (`incarnation`), and has a token for each. The
first start after a cluster has admitted a life begins the next one, and writes its token before the member may act.
Example: a directory is copied in life 5 and put back after life 7. It offers life 6, with the token of life 5 as the
one before; the cluster has seen life 7 and rejects it (`core.membership.known_files`). Files of the right life must
also reach as far as their journal was known to be durable (`FilesProof.reached`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from holdfast.config.schema import PersistenceSettings
from holdfast.core.journal.recovery import Recovered, Recovery
from holdfast.core.model.ids import MemberId
from holdfast.core.model.journal_entries import Checkpointed, Entry, Snapshot
from holdfast.core.model.levels import LOWEST, OF_THIS_BUILD, FeatureLevels
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import FilesProof, View
from holdfast.engine.checkpoints import KEPT, Checkpoints, PartitionFiles
from holdfast.engine.ports import Disk, DiskFailed
from holdfast.engine.segments import BlockContent, Segment, Segments
from holdfast.errors import ConfigError, CounterBroken, JournalBroken, NewerFiles
from holdfast.wire.checkpoint import parse_name, read_checkpoint
from holdfast.wire.journal_blocks import (
    HEAD_BYTES,
    HEADER_BYTES,
    Header,
    head_at,
    read_block,
    read_header,
    seed_of,
    segment_lsn,
    segment_name,
    segments,
)
from holdfast.wire.journal_reader import JournalReader

IDENTITY = "identity.json"
FORMAT = 1
SPARE = "next.seg"
PIECE_BYTES = 512
"""Unit in which unreadable parts of a disk are skipped."""
UNREADABLE = b"\xff"


class IdentityFile(msgspec.Struct, frozen=True):
    format: int
    store: str
    incarnation: int
    """The latest life of these files that a cluster has admitted, as far as the files know."""
    member: str
    cluster_id: str = ""
    whole: bool = True
    """False while something lost was not restored by the cluster."""
    proof: FilesProof = FilesProof()
    """Proof of the next life, made when it first began; without a token it has not begun."""
    behind: bool = False
    """Whether a cluster found that the files lack what they once held, and has not restored it yet."""
    level: int = LOWEST


class Restoring(Protocol):
    def base(self, snapshot: Snapshot, lsn: int, file: str) -> None: ...

    def missing(self, partition: int, lsn: int, why: str) -> None: ...

    def void(self, partition: int, lsn: int) -> None: ...

    def block(self, lsn: int, entries: Sequence[Entry]) -> None: ...

    def lost(self, until: int, why: str) -> None: ...

    def finish(self, recovered: Recovered) -> None: ...


@dataclass(slots=True)
class Found:
    """The point from which the writer of the journal continues."""

    identity: IdentityFile
    lsn: int
    checksum: bytes
    last: str
    tail: bytes | None
    """Its bytes up to the last block, to be copied to a new file first (engine/W-8); None: partly unreadable."""
    start_lsn: int
    """First block of the newest segment with a readable start, which is kept until the next segment has begun."""
    void: list[str]
    segments: Segments
    checkpoints: Checkpoints
    rows: dict[int, Assignment]
    view: View | None
    stores: dict[MemberId, str]
    journal_bytes: int


def identity_of(
    disk: Disk, name: str, new_id: Callable[[], str], levels: FeatureLevels = OF_THIS_BUILD
) -> IdentityFile:
    """The identity in a directory, or a new one. `levels`: supported feature levels. Raises ConfigError for
    files of another member, format or level, JournalBroken if it is unreadable.
    """
    names = disk.names()
    if IDENTITY not in names:
        ours = [each for each in names if segments([each]) or parse_name(each)]
        if ours:
            raise ConfigError(
                f"persistence.directory has {ours[0]}, but no {IDENTITY}: cannot tell which member wrote these files"
            )
        return IdentityFile(FORMAT, new_id(), 0, name)
    try:
        data = disk.read(IDENTITY)
        version = msgspec.json.decode(data, type=dict[str, object]).get("format")
        if version != FORMAT:
            raise ConfigError(
                f"persistence.directory is of format {version!r}; this Holdfast knows format {FORMAT}: start the "
                "version that wrote it; nothing was changed"
            )
        found = msgspec.json.decode(data, type=IdentityFile)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, DiskFailed) as error:
        raise JournalBroken(f"{IDENTITY} in persistence.directory cannot be read: {error}") from error
    if not levels.can(found.level):
        raise ConfigError(
            f"persistence.directory was written at feature level {found.level}, and this Holdfast can do {levels}: "
            "start the version that wrote it, or one that can do this level; nothing was changed"
        )
    if found.member and name and found.member != name:
        raise ConfigError(
            f"persistence.directory belongs to the member {found.member!r}, and this one is {name!r} (member.name)"
        )
    return found


@dataclass(slots=True)
class _Base:
    snapshot: Snapshot
    lsn: int
    files: list[tuple[int, str]]


@dataclass(slots=True)
class _Opening:
    disk: Disk
    identity: IdentityFile
    recovered: Recovered
    recovery: Restoring
    checkpoints: Checkpoints
    segments: Segments = field(default_factory=Segments)
    void: list[str] = field(default_factory=list)
    table: dict[int, tuple[int, str]] = field(default_factory=dict)
    """By partition: the last block that it does not need, and its checkpoint."""
    newest_lsn: int = 0
    journal_bytes: int = 0
    files: frozenset[str] = frozenset()
    doubtful: bool = False
    torn: bool = False

    # -- reading

    def load(self, name: str) -> bytes:
        """The bytes of a file; unreadable parts are replaced by bytes that are never a block."""
        try:
            return self.disk.read(name)
        except DiskFailed:
            pieces = []
            for offset in range(0, self.disk.size(name), PIECE_BYTES):
                try:
                    pieces.append(self.disk.read(name, offset, PIECE_BYTES))
                except DiskFailed:
                    pieces.append(UNREADABLE * min(PIECE_BYTES, self.disk.size(name) - offset))
            return b"".join(pieces)

    def _start_of(self, name: str) -> list[Checkpointed] | None:
        try:
            data = self.disk.read(name, 0, HEADER_BYTES + HEAD_BYTES)
            header = read_header(data)
            if header is None or header.store != self.identity.store:
                return None
            seed = seed_of(header.store, header.first_lsn, header.previous)
            head = head_at(memoryview(data), HEADER_BYTES, seed)
            if head is None:
                return None
            block = self.disk.read(name, HEADER_BYTES, head.end - HEADER_BYTES)
            entries = read_block(block, seed, name, HEADER_BYTES).entries
        except NewerFiles:
            raise
        except (DiskFailed, JournalBroken):
            return None
        return [entry for entry in entries if isinstance(entry, Checkpointed)]

    # -- checkpoints

    def read_table(self, names: list[str]) -> int:
        for name in reversed(names):
            said = self._start_of(name)
            if said is not None:
                self.table = {entry.partition: (entry.lsn, entry.file) for entry in said}
                return segment_lsn(name) or 1
        return 1

    def read_checkpoints(self, names: list[str]) -> None:
        self.files = frozenset(names)
        by_partition: dict[int, list[tuple[int, str]]] = {}
        for name in names:
            said = parse_name(name)
            if said is not None:
                by_partition.setdefault(said.partition, []).append((said.lsn, name))
        for partition in sorted(by_partition):
            files = sorted(by_partition[partition], reverse=True)
            self.newest_lsn = max(self.newest_lsn, files[0][0])
            lsn, file = self.table.get(partition, (0, ""))
            if partition in self.table and not file:
                # The partition was dropped by then.
                self.void += [name for of, name in files if of <= lsn]
                files = [each for each in files if each[0] > lsn]
            if not files:
                del by_partition[partition]
                continue
            base = self._base(files)
            if base is None:
                self.recovery.missing(partition, files[0][0], "its checkpoint is damaged")
                self.checkpoints.kept[partition] = PartitionFiles(files[:1], dirty=(1, 0))
                continue
            if base.lsn != files[0][0]:
                self.recovery.missing(partition, files[0][0], "its newest checkpoint is damaged")
            clean_lsn = max(base.lsn, lsn) if base.files[0][1] == file else base.lsn
            self.recovery.base(base.snapshot, clean_lsn, base.files[0][1])
            self.checkpoints.found(base.files, clean_lsn, base.snapshot)
        for partition, (lsn, file) in sorted(self.table.items()):
            if partition not in by_partition:
                self.checkpoints.kept[partition] = PartitionFiles(dirty=(lsn + 1, 0), clean_lsn=lsn)
                if not file:
                    self.recovery.void(partition, lsn)
                else:
                    self.recovery.missing(partition, lsn, "its checkpoint is missing")

    def _base(self, files: list[tuple[int, str]]) -> _Base | None:
        for position, (lsn, name) in enumerate(files):
            try:
                _, snapshot = read_checkpoint(name, self.disk.read(name), self.identity.store)
            except NewerFiles:
                raise
            except (JournalBroken, DiskFailed, CounterBroken) as error:
                self.recovered.damage.append(f"{error}")
                self.doubtful = True
                continue
            self.void += [name for _, name in files[position + KEPT :]]
            return _Base(snapshot, lsn, files[position : position + KEPT])
        return None

    # -- the journal

    def replay(self, names: list[str], said_lsn: int) -> tuple[int, bytes, str]:
        """Replay the needed blocks. Returns the next lsn, the link of the last block, and the last segment.
        `said_lsn`: the checkpoint table covers the blocks before this one.
        """
        start = min([said_lsn, *self._needed()])
        firsts = [segment_lsn(name) or 0 for name in names]
        old = max(0, sum(1 for first in firsts if first <= start) - 1)
        while old and self._header(names[old]) is None:
            # Its header is damaged: it can be read only with the segment before it.
            old -= 1
        for name, first in zip(names[:old], firsts[:old], strict=True):
            self._history(name, first)
        reading = JournalReader(names[old:], self.load, self.identity.store)
        told = 0
        for block in reading:
            while told < len(reading.damage):
                self._damaged(reading.damage[told].lost, block.lsn, str(reading.damage[told]))
                told += 1
            segment = self._segment(reading, block.segment)
            while segment.next_lsn < block.lsn:
                segment.offsets.append(block.offset)
            content = BlockContent(block.entries)
            segment.add(block.offset, block.size, content.partitions)
            self.journal_bytes += block.size
            self.checkpoints.wrote(block.lsn, self.journal_bytes, content)
            self.recovery.block(block.lsn, block.entries)
            self._look_for_files(block.entries)
        next_lsn = reading.end.lsn
        for damage in reading.damage[told:]:
            self._damaged(damage.lost, next_lsn, str(damage))
        if reading.torn is not None:
            self.recovered.damage.append(str(reading.torn))
            self.torn = True
        if self.newest_lsn >= next_lsn:
            why = (
                f"the journal ends before block {next_lsn}, and a checkpoint knows of block {self.newest_lsn}"
            )
            next_lsn = self.newest_lsn + 1
            self._damaged(True, next_lsn + (not names), why)
        # A segment without any block has the name that the writer will use next.
        void = [*reading.void, *(name for name in names if name == segment_name(next_lsn))]
        self.void += void
        known_names = {segment.name for segment in self.segments.all} | set(void)
        for read in reading.segments:
            if read.name not in known_names:
                # Nothing in it can be read; it is removed later like the others.
                self.segments.all.append(
                    Segment(read.name, read.first_lsn, read.seed, read.size, read.wall_ms)
                )
        self.segments.all.sort(key=lambda segment: segment.first_lsn)
        last = reading.end.segment if reading.end.segment not in void else ""
        return next_lsn, reading.end.checksum, last

    def tail(self, name: str) -> bytes | None:
        """The bytes of this segment up to its last block; None if it does not exist or cannot be read."""
        segment = next((each for each in self.segments.all if each.name == name), None)
        if segment is None:
            return None
        try:
            return self.disk.read(name, 0, segment.used)
        except DiskFailed:
            return None

    def _look_for_files(self, entries: list[Entry]) -> None:
        for entry in entries:
            if isinstance(entry, Checkpointed) and entry.file and entry.file not in self.files:
                said = parse_name(entry.file)
                kept = self.checkpoints.kept.get(entry.partition)
                base_lsn = kept.files[0][0] if kept is not None and kept.files else 0
                if said is not None and said.lsn > base_lsn:
                    self.recovery.missing(entry.partition, said.lsn, "its newest checkpoint is missing")

    def _needed(self) -> list[int]:
        return [
            kept.dirty[0] if kept.dirty else kept.clean_lsn + 1 for kept in self.checkpoints.kept.values()
        ]

    def _history(self, name: str, first_lsn: int) -> None:
        header = self._header(name)
        seed, wall_ms = b"", 0
        if header is not None:
            seed, wall_ms = seed_of(header.store, first_lsn, header.previous), header.wall_ms
        segment = Segment(name, first_lsn, seed, self.disk.size(name), wall_ms)
        segment.indexed = False
        self.segments.all.append(segment)

    def _header(self, name: str) -> Header | None:
        try:
            header = read_header(self.disk.read(name, 0, HEADER_BYTES))
        except DiskFailed:
            return None
        return header if header is not None and header.store == self.identity.store else None

    def _segment(self, reading: JournalReader, name: str) -> Segment:
        if not self.segments.all or self.segments.all[-1].name != name:
            read = reading.segments[-1]
            fresh = Segment(name, read.first_lsn, read.seed, read.size, read.wall_ms)
            fresh.leans = read.leans
            self.segments.all.append(fresh)
        return self.segments.all[-1]

    def _damaged(self, lost: bool, until: int, why: str) -> None:
        self.recovered.damage.append(why)
        self.doubtful = True
        if lost:
            self.recovery.lost(until, why)


def restore(
    disk: Disk,
    settings: PersistenceSettings,
    *,
    name: str,
    uuid: str,
    new_id: Callable[[], str],
    now_ns: int,
    wall_ms: int,
    recovering: Callable[[int, int], Restoring] = Recovery,
    levels: FeatureLevels = OF_THIS_BUILD,
) -> tuple[Found, Recovered]:
    """Read a directory without changing it. Raises as `Journal.open` does."""
    identity = identity_of(disk, name, new_id, levels)
    recovered = Recovered(identity.store, identity.incarnation + 1, identity.cluster_id)
    recovery = recovering(now_ns, wall_ms)
    opening = _Opening(disk, identity, recovered, recovery, Checkpoints(settings.checkpoint_bytes))
    names = disk.names()
    journal = segments(names)
    said_lsn = opening.read_table(journal)
    opening.read_checkpoints(names)
    lsn, checksum, last = opening.replay(journal, said_lsn)
    opening.recovery.finish(recovered)
    baseless = any(partition not in recovered.copies for partition in recovered.uncertain)
    recovered.whole = recovered.whole and not baseless and identity.whole
    proof = identity.proof
    if not proof.token:
        # Until a cluster admits this life, later starts reuse the proof: a rejected start must not make files
        # newer.
        cut = opening.doubtful or opening.torn
        proof = FilesProof(uuid, proof.before, lsn - 1, cut)
    recovered.proof, recovered.behind = proof, identity.behind
    identity = msgspec.structs.replace(identity, whole=recovered.whole, proof=proof)
    if opening.doubtful:
        opening.checkpoints.want_all()
    found = Found(
        identity,
        lsn,
        checksum,
        last,
        opening.tail(last),
        said_lsn,
        list(dict.fromkeys(opening.void)),
        opening.segments,
        opening.checkpoints,
        dict(recovered.rows),
        recovered.view,
        recovered.stores,
        opening.journal_bytes,
    )
    return found, recovered
