"""Opens a directory: whose files are these, what did the member hold, and where does its journal go on?

The newest segment whose start can be read says from which block on each partition needs the journal. What is older is
history: it is looked at when somebody asks for it.
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
from holdfast.engine.segments import Segment, Segments, partitions_of
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
"""The segment that is reserved, and not begun."""
PIECE_BYTES = 512
"""Where a disk cannot be read, so much is given up at a time."""
UNREADABLE = b"\xff"


class IdentityFile(msgspec.Struct, frozen=True):
    """Whose files are in a directory; kept as JSON."""

    format: int
    store: str
    incarnation: int
    """The newest life of these files that a cluster has admitted, as far as they know."""
    member: str
    cluster_id: str = ""
    whole: bool = True
    """Whether nothing was lost that the cluster has not made up for."""
    proof: FilesProof = FilesProof()
    """Of the life after it, as it was when that first began; without a token it has not yet."""
    behind: bool = False
    """Whether a cluster has found that they lack what they once held, and not made up for it."""
    level: int = LOWEST
    """The highest feature level that anything in these files was written at."""


class Restoring(Protocol):
    """A `Recovery`, or whatever stands in its place."""

    def base(self, snapshot: Snapshot, lsn: int, file: str) -> None:
        """See `Recovery`, here and below."""

    def missing(self, partition: int, lsn: int, why: str) -> None: ...

    def void(self, partition: int, lsn: int) -> None: ...

    def block(self, lsn: int, entries: Sequence[Entry]) -> None: ...

    def lost(self, until: int, why: str) -> None: ...

    def finish(self, recovered: Recovered) -> None: ...


@dataclass(slots=True)
class Found:
    """What is handed over to the writer."""

    identity: IdentityFile
    lsn: int
    """Of the next block."""
    checksum: bytes
    """The link of the last block."""
    last: str
    """The segment that was written last; empty: there is none."""
    tail: bytes | None
    """What it holds up to its last block, to be written anew before anything else (engine/W-8); None: the disk cannot
    read all of it."""
    start_lsn: int
    """The first block of the newest segment whose start can be read: it stays until another one has begun."""
    void: list[str]
    """Files that are to be removed first."""
    segments: Segments
    checkpoints: Checkpoints
    rows: dict[int, Assignment]
    view: View | None
    stores: dict[MemberId, str]
    journal_bytes: int


def identity_of(
    disk: Disk, name: str, new_id: Callable[[], str], levels: FeatureLevels = OF_THIS_BUILD
) -> IdentityFile:
    """Whose files these are. `levels`: what the member can do."""
    names = disk.names()
    if IDENTITY not in names:
        ours = [each for each in names if segments([each]) or parse_name(each)]
        if ours:
            raise ConfigError(
                f"persistence.directory has {ours[0]}, but no {IDENTITY}: nobody can say whose files these are"
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
    """A checkpoint that was read, and the others of its partition."""

    snapshot: Snapshot
    lsn: int
    files: list[tuple[int, str]]


@dataclass(slots=True)
class _Opening:
    """What is known while a directory is opened."""

    disk: Disk
    identity: IdentityFile
    recovered: Recovered
    recovery: Restoring
    checkpoints: Checkpoints
    segments: Segments = field(default_factory=Segments)
    void: list[str] = field(default_factory=list)
    table: dict[int, tuple[int, str]] = field(default_factory=dict)
    """By partition: from which block on it needs the journal (less one), beside this checkpoint."""
    newest_lsn: int = 0
    """The newest block that a checkpoint knows of."""
    journal_bytes: int = 0
    files: frozenset[str] = frozenset()
    """The names of all files."""
    doubtful: bool = False
    """Whether something was damaged."""
    torn: bool = False
    """Whether the end of the journal was cut."""

    # -- reading

    def load(self, name: str) -> bytes:
        """The bytes of a file; what the disk cannot read is replaced by what is no block."""
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
        """What the first block of a segment says of the checkpoints; None when it cannot be read."""
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
        """Find the newest start of a segment that can be read. Answers the first block that it does not speak of."""
        for name in reversed(names):
            said = self._start_of(name)
            if said is not None:
                self.table = {entry.partition: (entry.lsn, entry.file) for entry in said}
                return segment_lsn(name) or 1
        return 1

    def read_checkpoints(self, names: list[str]) -> None:
        """Read the newest checkpoint of each partition that is whole."""
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
                # It was held no more at that time.
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
        """Read the blocks that are needed. Answers the next lsn, the link of the last block, and the last segment.

        said_lsn: what is needed of the blocks before this one is known.
        """
        start = min([said_lsn, *self._needed()])
        firsts = [segment_lsn(name) or 0 for name in names]
        old = max(0, sum(1 for first in firsts if first <= start) - 1)
        while old and self._header(names[old]) is None:
            # It can be read only by what the segment before it says of its beginning.
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
            segment.add(block.offset, block.size, partitions_of(block.entries))
            self.journal_bytes += block.size
            self.checkpoints.wrote(block.lsn, self.journal_bytes, block.entries)
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
        # One that was begun and has no block yet stands where the writer begins.
        void = [*reading.void, *(name for name in names if name == segment_name(next_lsn))]
        self.void += void
        known_names = {segment.name for segment in self.segments.all} | set(void)
        for read in reading.segments:
            if read.name not in known_names:
                # Nothing of it can be read, but it goes like the others, when it is not needed any more.
                self.segments.all.append(
                    Segment(read.name, read.first_lsn, read.seed, read.size, read.wall_ms)
                )
        self.segments.all.sort(key=lambda segment: segment.first_lsn)
        last = reading.end.segment if reading.end.segment not in void else ""
        return next_lsn, reading.end.checksum, last

    def tail(self, name: str) -> bytes | None:
        """What this segment holds up to its last block; None: the disk cannot read all of it, or there is none."""
        segment = next((each for each in self.segments.all if each.name == name), None)
        if segment is None:
            return None
        try:
            return self.disk.read(name, 0, segment.used)
        except DiskFailed:
            return None

    def _look_for_files(self, entries: list[Entry]) -> None:
        """A checkpoint that was there once must be there, or a newer one."""
        for entry in entries:
            if isinstance(entry, Checkpointed) and entry.file and entry.file not in self.files:
                said = parse_name(entry.file)
                kept = self.checkpoints.kept.get(entry.partition)
                base_lsn = kept.files[0][0] if kept is not None and kept.files else 0
                if said is not None and said.lsn > base_lsn:
                    self.recovery.missing(entry.partition, said.lsn, "its newest checkpoint is missing")

    def _needed(self) -> list[int]:
        """The first block that each partition needs, if it needs any."""
        return [
            kept.dirty[0] if kept.dirty else kept.clean_lsn + 1 for kept in self.checkpoints.kept.values()
        ]

    def _history(self, name: str, first_lsn: int) -> None:
        """A segment that no restart needs."""
        header = self._header(name)
        seed, wall_ms = b"", 0
        if header is not None:
            seed, wall_ms = seed_of(header.store, first_lsn, header.previous), header.wall_ms
        segment = Segment(name, first_lsn, seed, self.disk.size(name), wall_ms)
        segment.indexed = False
        self.segments.all.append(segment)

    def _header(self, name: str) -> Header | None:
        """The header of a segment of this store; None when it is damaged."""
        try:
            header = read_header(self.disk.read(name, 0, HEADER_BYTES))
        except DiskFailed:
            return None
        return header if header is not None and header.store == self.identity.store else None

    def _segment(self, reading: JournalReader, name: str) -> Segment:
        """The segment of the block that is being read."""
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
    """Read a directory. Raises ConfigError and JournalBroken as `Journal.open` says; changes nothing on the disk."""
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
        # Later starts find the same, until a cluster has admitted this life: a refusal makes these files no newer.
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
