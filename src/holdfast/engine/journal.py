"""The journal of one member: carries out what its core wants to be written down, over the door `Disk`.

- engine/W-1: One write is under way at a time; what comes meanwhile is the next group. A group is one block.
- engine/W-2: `Durable` is told after the sync, for everything that was written before it. What is not urgent is written
  soon, and synced with the next urgent group or after `sync_interval_ms`.
- engine/W-3: The next segment is reserved when the one before it begins. While that cannot be done there is no room,
  says `DiskRoom`, and what is under way still fits. Journal that is kept as history only makes room first.
- engine/W-4: Each segment begins with what a restart must know if all segments before it are gone: whose it is, the
  newest rows and view, and for each partition the checkpoint and the block from which on it is needed.
- engine/W-5: A checkpoint is of the moment between two appends. It is written out when the blocks before it are
  durable.
- engine/W-6: A write or sync that fails is never tried again: the member stops (rule 10).
- engine/W-7: The member is told everything in turns of the disk's own, never while it acts.
- engine/W-9: Nothing is written at a feature level before the identity file says so; and a segment has nothing of a
  level whose format is not its own: with the view that raises the level another one begins.
- engine/W-8: The blocks that a restart has read last are written into a new file before anything follows them. After a
  sync that failed a system may show what is not on the disk, and call a second sync a success.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from holdfast.config.schema import PersistenceSettings
from holdfast.core.effects import Append, Checkpoint, ReadHistory
from holdfast.core.events import CheckpointDone, CheckpointWanted, DiskRoom, Durable, Event
from holdfast.core.journal.recovery import Recovered, Recovery
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.journal_entries import Checkpointed, Entry, level_of
from holdfast.core.model.levels import OF_THIS_BUILD, FeatureLevels, segment_format
from holdfast.core.model.views import FilesProof
from holdfast.engine.checkpoints import RunningCheckpoint
from holdfast.engine.intake import Intake, WriteGroup
from holdfast.engine.journal_history import JournalHistory
from holdfast.engine.ports import Create, Deed, Disk, DiskFull, Put, Remove, Rename, Sync, Write
from holdfast.engine.preamble import Preamble
from holdfast.engine.restore import IDENTITY, SPARE, Found, Restoring, restore
from holdfast.engine.room_probe import RETRY_NS, RoomProbe
from holdfast.engine.segments import Segment, partitions_of
from holdfast.errors import JournalBroken
from holdfast.wire.checkpoint import encode_checkpoint
from holdfast.wire.journal_blocks import HEADER_BYTES, SEAL_BYTES, Chain

GATHER_NS = 2 * MILLISECOND
"""What is not urgent waits so long for more."""
SEAL_NS = 200 * MILLISECOND
"""After so long without anything to write the last block is proved durable by a seal."""
ANSWER_NS = SECOND
"""A member that was asked for a checkpoint and has not begun it by then does not have that partition."""


def _nobody(event: Event) -> None:
    raise AssertionError(f"nobody is told of {event}")


def _unheard(error: JournalBroken) -> None:
    raise error


class Journal:
    """Implements `doors.Writer`. Set `tell` and `failed` before the first turn of the disk."""

    def __init__(self, disk: Disk, settings: PersistenceSettings, found: Found) -> None:
        """Only by `open`."""
        self.tell: Callable[[Event], None] = _nobody
        """Takes what the member should hear: `Driver.handle`."""
        self.failed: Callable[[JournalBroken], None] = _unheard
        """Called once, when nothing can be written any more: the member must stop."""
        self.identity = found.identity
        self.ready = False
        """Whether the token of this life is durable: before that the member must not act under it."""
        self._incarnation = found.identity.incarnation + 1
        self._admitted = False
        """Whether it is durable that a cluster has admitted this life."""
        self._content_lsn = 0
        """The last block of this life that tells of a partition."""
        self._when_ready: list[Callable[[], None]] = []
        self._disk = disk
        self._settings = settings
        self._chain = Chain(found.identity.store, found.lsn, found.checksum)
        self._segments = found.segments
        self._checkpoints = found.checkpoints
        self._preamble = Preamble(found.rows, found.view, found.stores)
        self._histories = JournalHistory(
            disk,
            found.identity.store,
            self._segments,
            self._checkpoints,
            self._say,
            self._doubt,
            self._rested,
        )
        self._current: Segment | None = None
        self._format = 0
        """Of the present segment."""
        self._spare_bytes = 0
        """Of the reserved segment; 0: there is none."""
        self._probe = RoomProbe(disk, settings.segment_bytes, self._room_found, self._break)
        self._reserving = False
        self._least_bytes = 0
        """The next segment must not be smaller."""
        self._wanted_bytes = 0
        """What a segment would have needed that could not be begun."""
        self._rolling = False
        """Whether a segment is being begun: the one before it is still to be synced."""
        self._start_lsn = found.start_lsn
        """Of the newest segment whose start is durable and can be read: a restart begins there, so it must not go, nor
        anything after it."""
        self._full = False
        self._intake = Intake(self._checkpoints, lambda: self._chain.lsn - 1)
        self._pending = self._intake.pending
        self._written_number = 0
        self._durable_number = 0
        self._durable_lsn = found.lsn - 1
        self._at = found.journal_bytes
        """Bytes of all blocks so far."""
        self._busy = True
        """Whether deeds of the line "journal" are under way."""
        self._turn_comes = False
        self._ripe = False
        """Whether what is not urgent has waited long enough to be written."""
        self._gathering = False
        self._sync_due = False
        self._sync_timer = False
        self._seal_timer = False
        self._sealed = True
        """Whether nothing is after the last seal."""
        self._broken = False
        self._closed = False
        self.doubts: list[str] = []
        """What could not be read since the start, in words."""
        self._checkpointed = (0, 0)
        """How many checkpoints were written since the start, and when the last of them, in wall ms."""
        first: list[Deed] = [self._put_identity(), *(Remove(name) for name in found.void)]
        if found.tail is None:
            synced: list[Deed] = [Sync(found.last)] if found.last else []
            self._submit(synced + first, self._opened)
        else:
            self._secure(found.last, found.tail, first)
        self._reserve()
        self._histories.written(found.lsn - 1)

    @staticmethod
    def open(
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
    ) -> tuple[Journal, Recovered]:
        """Read what is there, and begin to write.

        name: of the member whose files these must be. uuid: of the one that opens them now. new_id: makes a UUID as
        text, for a new store.
        now_ns: the member's monotonic time; wall_ms: the same moment by its calendar, as its core will be told.
        recovering: what makes copies of what is read. levels: the feature levels that the member can do.
        Raises ConfigError when these are not this member's files, JournalBroken when they cannot be believed.
        """
        found, recovered = restore(
            disk,
            settings,
            name=name,
            uuid=uuid,
            new_id=new_id,
            now_ns=now_ns,
            wall_ms=wall_ms,
            recovering=recovering,
            levels=levels,
        )
        return Journal(disk, settings, found), recovered

    # -- what the member wants

    def carry_out(self, effect: Append | Checkpoint | ReadHistory) -> None:
        """Begin to do this."""
        if self._broken or self._closed:
            return
        self._intake.take(effect)
        self._turn()

    def admitted(self, cluster_id: str, *, behind: bool) -> None:
        """This cluster has admitted this life of the store: what is written later is durable only after that.

        behind: it has found that the files lack what they once held.
        """
        if cluster_id == self.identity.cluster_id and self.identity.incarnation == self._incarnation:
            return
        proof = self.identity.proof
        self.identity = msgspec.structs.replace(
            self.identity,
            incarnation=self._incarnation,
            cluster_id=cluster_id,
            proof=FilesProof(before=proof.token or proof.before),
            behind=self.identity.behind or behind,
        )

        def durable() -> None:
            self._admitted = True

        self._submit([self._put_identity()], durable)

    def forgive(self) -> None:
        """The cluster has made up for whatever was lost here: the next restart need not speak of it any more."""
        if not self.identity.whole or self.identity.behind:
            self.identity = msgspec.structs.replace(self.identity, whole=True, behind=False)
            self._submit([self._put_identity()], lambda: None)

    def when_ready(self, told: Callable[[], None]) -> None:
        """Call this when the member may act; never before this call returns."""
        if self.ready:
            self._disk.after(0, told)
        else:
            self._when_ready.append(told)

    def close(self) -> None:
        """Write what is left, prove it durable, and let go of the disk. Nobody is told anything any more."""
        if self._closed:
            return
        self._closed = True
        self._probe.end()
        if not self._broken:
            while self._pending and self._write_groups(sync=True):
                pass
            segment = self._current
            if not self._sealed and segment is not None and self._room(segment) >= 0:
                self._chain.durable(self._chain.lsn - 1)
                data = self._chain.block()
                deeds: list[Deed] = [Sync(segment.name), Write(segment.name, segment.used, data)]
                self._disk.submit([*deeds, Sync(segment.name)], lambda error: None)
        self._disk.close()

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        return {
            "groups": len(self._pending),
            "checkpoints": len(self._checkpoints.under_way),
            "history": int(self._histories.busy),
            "early": self._intake.early,
        }

    def figures(self) -> dict[str, object]:
        """For people: the files as they are now. Bytes are those of the segments, with what is reserved in them."""
        count, last_ms = self._checkpointed
        return {
            "store": self.identity.store,
            "opened": self._incarnation,
            "segments": len(self._segments.all),
            "journal_bytes": sum(segment.size for segment in self._segments.all) + self._spare_bytes,
            "checkpoints": sum(len(kept.files) for kept in self._checkpoints.kept.values()),
            "checkpoints_written": count,
            "last_checkpoint_ms": last_ms,
            "full": self._full,
            "problems": list(self.doubts),
        }

    # -- turns

    def _turn(self) -> None:
        """Look soon at what there is to do."""
        if not self._turn_comes:
            self._turn_comes = True
            self._disk.after(0, self._take_turn)

    def _take_turn(self) -> None:
        self._turn_comes = False
        self._go_on()

    def _go_on(self) -> None:
        if self._broken or self._closed or not self.ready:
            return
        self._begin_checkpoints()
        for question in self._intake.take_questions():
            self._histories.ask(question, self._chain.lsn - 1)
        if self._busy:
            return
        if self._pending:
            urgent = self._sync_due or any(group.urgent for group in self._pending)
            if urgent or self._ripe or any(group.questions for group in self._pending):
                if self._write_groups(sync=urgent):
                    return
            elif not self._gathering:
                self._gathering = True
                self._disk.after(GATHER_NS, self._gathered)
        if self._sync_due:
            self._sync()
        elif not self._sealed and not self._pending and not self._seal_timer:
            self._seal_timer = True
            seen = self._chain.lsn
            self._disk.after(SEAL_NS, lambda: self._seal(seen))
        self._want_checkpoint()

    def _gathered(self) -> None:
        assert self._gathering, "it is gathered once"
        self._gathering = False
        self._ripe = True
        self._go_on()

    def _seal(self, seen: int) -> None:
        self._seal_timer = False
        if self._chain.lsn == seen and not self._pending and self._durable_lsn == seen - 1:
            self._pending.append(WriteGroup(0, [], urgent=True))
        self._go_on()

    def _sync(self) -> None:
        """Make durable what is written."""
        self._sync_due = False
        lsn, number = self._chain.lsn - 1, self._written_number
        if self._current is None or lsn <= self._durable_lsn:
            return
        self._busy = True
        self._submit([Sync(self._current.name)], lambda: self._written(lsn, number, synced=True))

    def _sync_later(self) -> None:
        if not self._sync_timer:
            self._sync_timer = True
            self._disk.after(self._settings.sync_interval_ms * MILLISECOND, self._sync_now)

    def _sync_now(self) -> None:
        self._sync_timer = False
        self._sync_due = self._durable_lsn < self._chain.lsn - 1
        self._go_on()

    # -- writing

    def _write_groups(self, *, sync: bool) -> bool:
        """Write the groups that wait, as one block; False when there is no room for it now."""
        groups: list[WriteGroup] = []
        while self._pending:
            groups.append(self._pending.popleft())
            if groups[-1].cuts:
                break
        while True:
            entries = [entry for group in groups for entry in group.entries]
            made = self._block(entries)
            if made is not None:
                break
            if len(groups) == 1 or not self._spare_bytes:
                self._pending.extendleft(reversed(groups))
                if self._spare_bytes:
                    # One group alone is larger than a segment: reserve one that holds it.
                    self._least_bytes, self._spare_bytes = self._wanted_bytes, 0
                    self._reserve()
                return False
            # They do not fit into any segment together.
            half = len(groups) // 2
            self._pending.extendleft(reversed(groups[half:]))
            del groups[half:]
        deeds = made
        lsn = self._chain.lsn - 1
        self._checkpoints.wrote(lsn, self._at, entries)
        self._preamble.note(entries)
        for cut in groups[-1].cuts:
            self._checkpoints.place(cut, lsn)
        for group in groups:
            for question in group.questions:
                self._histories.ask(question, lsn)
        if partitions_of(entries):
            self._content_lsn = lsn
        assert lsn > self._durable_lsn, "what is written now is not durable yet"
        self._sealed = not entries
        self._ripe = self._sync_due = False
        number = max(self._written_number, *(group.number for group in groups))
        self._written_number = number
        assert self._current is not None
        # What a segment says at its start must be durable before anything older goes.
        sync = sync or self._rolling
        if sync:
            deeds.append(Sync(self._current.name))
        self._busy = True
        self._submit(deeds, lambda: self._written(lsn, number, synced=sync))
        return True

    def _block(self, entries: list[Entry]) -> list[Deed] | None:
        """The deeds that write a block with these entries; None when there is no room for it."""
        chain, segment = self._chain, self._current
        before = chain.place
        level = max(self.identity.level, level_of(entries))
        begun = segment is not None and segment_format(level) == self._format
        if segment is not None and begun:
            data = chain.block(entries)
            if len(data) <= self._room(segment):
                deed = Write(segment.name, segment.used, data)
                self._made(segment, data, entries)
                return [*self._rise(level), deed]
            chain.place = before
        if not self._spare_bytes:
            return None
        # The old segment is synced before anything is written to the new one.
        chain.durable(chain.lsn - 1)
        wall_ms = self._disk.wall_ms()
        header = chain.begin(wall_ms, level)
        start = [*self._preamble.entries(self.identity), *self._checkpoints.table(self._chain.lsn)]
        first, data = chain.block(start), chain.block(entries)
        size = len(header) + len(first) + len(data) + SEAL_BYTES
        if size > self._spare_bytes:
            chain.place = before
            self._wanted_bytes = size
            return None
        assert segment is None or chain.first_lsn == segment.next_lsn, "segments follow each other"
        self._checkpoints.begun(chain.first_lsn)
        fresh = Segment(chain.segment, chain.first_lsn, chain.seed, self._spare_bytes, wall_ms)
        deeds: list[Deed] = [Sync(segment.name)] if segment is not None else []
        deeds += self._rise(level)
        self._format = segment_format(level)
        self._rolling = True
        deeds += [Rename(SPARE, fresh.name), Write(fresh.name, 0, header), Sync(fresh.name)]
        deeds.append(Write(fresh.name, HEADER_BYTES, first + data))
        self._segments.all.append(fresh)
        self._current = fresh
        self._spare_bytes = self._least_bytes = 0
        self._made(fresh, first, start)
        self._made(fresh, data, entries)
        return deeds

    def _rise(self, level: int) -> list[Deed]:
        """Say in the identity file that what follows may be of this feature level (engine/W-9)."""
        if level <= self.identity.level:
            return []
        self.identity = msgspec.structs.replace(self.identity, level=level)
        return [self._put_identity()]

    def _made(self, segment: Segment, data: bytes, entries: list[Entry]) -> None:
        segment.add(segment.used, len(data), partitions_of(entries))
        self._at += len(data)
        assert segment.used <= segment.size, "a block ends where its segment does, or before"

    @staticmethod
    def _room(segment: Segment) -> int:
        """For a block, so that a seal fits after it."""
        return segment.size - segment.used - SEAL_BYTES

    def _written(self, lsn: int, number: int, *, synced: bool) -> None:
        """The blocks up to this one are written."""
        assert self._busy and lsn >= self._durable_lsn, "one group is written after the other"
        self._busy = self._rolling = False
        assert self._current is not None
        self._start_lsn = self._current.first_lsn
        self._reserve()
        told = synced and number > self._durable_number
        # What is written from here on is not durable yet.
        reached = self._content_lsn if self._admitted else 0
        if synced:
            self._durable_lsn = max(self._durable_lsn, lsn)
            self._durable_number = max(self._durable_number, number)
            self._chain.durable(lsn)
        else:
            self._sync_later()
        self._go_on()
        self._histories.written(lsn)
        self._forget_dropped()
        if told:
            self._say(Durable(number, reached))

    # -- segments

    def _reserve(self) -> None:
        """Reserve the next segment."""
        if self._reserving or self._spare_bytes or self._broken or self._closed:
            return
        if self._rolling:
            return  # The one before has not got its own name yet. When it has, the next one is reserved.
        self._reserving = True
        size = max(self._settings.segment_bytes, self._least_bytes)

        def done(error: Exception | None) -> None:
            self._reserving = False
            if isinstance(error, DiskFull):
                self._no_room()
            elif error is not None:
                self._break(error)
            else:
                self._spare_bytes = size
                self._room_again()
                self._prune()
                self._go_on()

        self._disk.submit([Remove(SPARE), Create(SPARE, size)], done, line="checkpoint")

    def _no_room(self) -> None:
        """The next segment cannot be reserved. Journal that no restart needs makes room; else wait."""
        if self._prune(history=False):
            self._reserve()
            return
        self._tell_full()
        self._disk.after(RETRY_NS, self._reserve)

    def _tell_full(self) -> None:
        if not self._full:
            self._full = True
            self._say(DiskRoom(full=True))

    def _room_again(self) -> None:
        """Something has found room. With room for this one file alone the disk is full again at once, and so on at each
        segment that goes: the member counts on room only when a further segment would find some.
        """
        if self._full and self._spare_bytes:
            self._probe.look()

    def _room_found(self) -> None:
        if self._full and self._spare_bytes and not self._broken and not self._closed:
            self._full = False
            self._say(DiskRoom(full=False))

    def _prune(self, *, history: bool = True) -> bool:
        """Remove segments that nobody needs, and checkpoints that these made useless; answers whether any."""
        if self._histories.searching or self._closed or self._rolling:
            return False
        gone = self._segments.take_oldest(
            min(self._start_lsn, self._checkpoints.needed_lsn(self._durable_lsn + 1)),
            history_bytes=self._settings.history_bytes if history else -1,
            history_age_ms=self._settings.history_age_s * 1000,
            now_ms=self._disk.wall_ms(),
        )
        names = [segment.name for segment in gone]
        if self._segments.all:
            names += self._checkpoints.superfluous(self._segments.all[0].first_lsn)
        if names:
            self._disk.submit([Remove(name) for name in names], self._watch, line="checkpoint")
        return bool(gone)

    # -- checkpoints

    def _begin_checkpoints(self) -> None:
        for cut in self._checkpoints.under_way:
            if not cut.began and cut.lsn >= 0:
                if cut.lsn <= self._durable_lsn:
                    self._begin_checkpoint(cut)
                else:
                    self._sync_due = True
            elif cut.lsn < 0:
                self._ripe = True

    def _begin_checkpoint(self, cut: RunningCheckpoint) -> None:
        cut.began = True
        made: list[str] = []

        def make() -> tuple[str, bytes]:
            name, data = encode_checkpoint(cut.snapshot, cut.lsn, self.identity.store)
            made.append(name)
            return name, data

        def done(error: Exception | None) -> None:
            if isinstance(error, DiskFull):
                self._checkpoints.failed(cut)
                if not self._prune(history=False):
                    # Told until the next segment, or a checkpoint, finds room.
                    self._tell_full()
                    self._probe.look_later()
                self._say(CheckpointDone(cut.ticket, well=False))
            elif error is not None:
                self._break(error)
            else:
                self._checkpoint_done(cut, made[0])

        self._disk.submit([Put(make)], done, line="checkpoint")

    def _checkpoint_done(self, cut: RunningCheckpoint, file: str) -> None:
        said: Checkpointed = self._checkpoints.done(cut, file)
        self._checkpointed = (self._checkpointed[0] + 1, self._disk.wall_ms())
        if not self._broken and not self._closed:
            self._pending.append(WriteGroup(0, [said], urgent=False))
            self._prune()
            self._go_on()
            self._say(CheckpointDone(cut.ticket))

    def _want_checkpoint(self) -> None:
        partition = self._checkpoints.wanted(self._at)
        if partition is not None:

            def unanswered() -> None:
                self._checkpoints.unanswered(partition)
                self._go_on()

            self._disk.after(ANSWER_NS, unanswered)
            self._disk.after(0, lambda: self._say(CheckpointWanted((partition,))))

    def _forget_dropped(self) -> None:
        """Remove the checkpoints of partitions that are held no more."""
        for each in self._checkpoints.settle(self._durable_lsn):
            files = each[2]

            def gone(error: Exception | None, mine: tuple[int, int, list[str]] = each) -> None:
                self._watch(error)
                self._checkpoints.forget(*mine)

            self._disk.submit([Remove(name) for name in files], gone, line="checkpoint")

    # -- history

    def _rested(self) -> None:
        """No search is under way just now: what had to wait for that may go."""
        if not self._broken:
            self._prune(history=self._reserving or self._spare_bytes > 0)

    def _doubt(self, why: str) -> None:
        """Something of the journal cannot be read: before a restart needs it, everything should be written anew."""
        self.doubts.append(why)
        self._checkpoints.want_all()
        self._turn()

    # -- deeds

    def _say(self, event: Event) -> None:
        """Tell the member, as long as it is to be told anything."""
        if not self._broken and not self._closed:
            self.tell(event)

    def _put_identity(self) -> Put:
        data = msgspec.json.encode(self.identity)
        return Put(lambda: (IDENTITY, data))

    def _secure(self, name: str, tail: bytes, first: list[Deed]) -> None:
        """Write the segment that was read last anew (engine/W-8), and then do what is to be done first."""

        def done(error: Exception | None) -> None:
            if isinstance(error, DiskFull):
                # Who has no room must start all the same: reads are served, and room may be made.
                self._submit([Sync(name), *first], self._opened)
                return
            for segment in self._segments.all:
                if segment.name == name:
                    segment.size = len(tail)
            self._over([], partial(self._submit, first, self._opened), error)

        self._disk.submit([Put(lambda: (name, tail))], done)

    def _opened(self) -> None:
        self._busy = False
        self.ready = True
        told, self._when_ready = self._when_ready, []
        # What was read is proved, and what was cut cannot come back.
        self._pending.appendleft(WriteGroup(0, [], urgent=True))
        self._forget_dropped()
        self._go_on()
        for each in told:
            each()

    def _submit(self, deeds: list[Deed], done: Callable[[], None]) -> None:
        """Have these done, in the line of the journal; when there is no room, again after a while."""
        if not self._broken:
            self._disk.submit(deeds, partial(self._over, deeds, done))

    def _over(self, deeds: list[Deed], done: Callable[[], None], error: Exception | None) -> None:
        """What was submitted is over, one way or the other (engine/W-6)."""
        if self._broken or self._closed:
            return
        if isinstance(error, DiskFull):
            self._tell_full()
            self._disk.after(RETRY_NS, partial(self._submit_again, deeds, done))
        elif error is not None:
            self._break(error)
        else:
            self._room_again()
            done()

    def _submit_again(self, deeds: list[Deed], done: Callable[[], None]) -> None:
        if not self._closed:
            self._submit(deeds, done)

    def _watch(self, error: Exception | None) -> None:
        if error is not None:
            self._break(error)

    def _break(self, error: Exception) -> None:
        if not self._broken and not self._closed:
            self._broken = True
            self._probe.end()
            self.failed(JournalBroken(f"{error}"))
