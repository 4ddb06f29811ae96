"""The journal of one member: writes what its core appends, over the port `Disk`.

- engine/W-1: One write runs at a time, and is one block; groups that arrive during it wait.
- engine/W-2: `Durable` is sent after the sync, for everything written before it. Groups that are not urgent
  are written soon, and synced with the next urgent group or after `sync_interval_ms`.
- engine/W-5: A checkpoint is of the moment between two appends. It is written when the blocks before it are
  durable.
- engine/W-7: The member gets all events in separate turns of the disk, never within its own step.
- engine/W-8: After a restart, the segment read last is copied to a new file before anything follows it. After
  a failed sync a system may show content that is not on the disk, and report success for the next sync.

Parts: `JournalDisk` (room and failures), `BlockWriter` (blocks and segments), `WriteProgress` (durability),
`CheckpointWriter`, `Retention` (removal), `JournalHistory` (reads), `StoreIdentity`. `Journal` decides when
to write and to sync.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.config.schema import PersistenceSettings
from holdfast.core.effects import Append, Checkpoint, ReadHistory
from holdfast.core.events import Event
from holdfast.core.journal.recovery import Recovered, Recovery
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.journal_entries import Checkpointed
from holdfast.core.model.levels import OF_THIS_BUILD, FeatureLevels
from holdfast.engine.block_writer import BlockWriter
from holdfast.engine.checkpoint_writer import CheckpointWriter
from holdfast.engine.intake import Intake, WriteGroup
from holdfast.engine.journal_disk import JournalDisk
from holdfast.engine.journal_history import JournalHistory
from holdfast.engine.ports import Deed, Disk, DiskFull, Put, Remove, Sync
from holdfast.engine.restore import Found, IdentityFile, Restoring, restore
from holdfast.engine.retention import Retention
from holdfast.engine.segments import changes_content
from holdfast.engine.store_identity import StoreIdentity
from holdfast.engine.write_progress import WriteProgress
from holdfast.errors import JournalBroken

GATHER_NS = 2 * MILLISECOND
SEAL_NS = 200 * MILLISECOND
"""Idle time after which a seal proves the last block durable."""


class Journal:
    """Implements `ports.Writer`. Call `connect` before the first turn of the disk."""

    def __init__(self, disk: Disk, settings: PersistenceSettings, found: Found) -> None:
        self.ready = False
        """Whether the token of this life is durable: the member must not act under it before."""
        self.doubts: list[str] = []
        self._when_ready: list[Callable[[], None]] = []
        self._settings = settings
        self._segments = found.segments
        self._checkpoints = found.checkpoints
        self._disk = JournalDisk(
            disk, settings.segment_bytes, lambda: self._retention.prune(history=False), self._on_reserved
        )
        self._progress = WriteProgress(found.lsn - 1, found.start_lsn)
        self._identity = StoreIdentity(found.identity, self._disk, self._progress)
        self._blocks = BlockWriter(found, self._disk, self._identity)
        self._retention = Retention(
            settings,
            self._disk,
            self._segments,
            self._checkpoints,
            self._progress,
            lambda: self._histories.searching,
        )
        self._histories = JournalHistory(
            disk,
            found.identity.store,
            self._segments,
            self._checkpoints,
            self._disk.notify,
            self._doubt,
            self._retention.on_search_done,
        )
        self._checkpoint_writer = CheckpointWriter(
            self._disk, self._checkpoints, found.identity.store, self._on_checkpoint, self._go_on
        )
        self._intake = Intake(self._checkpoints, lambda: self._blocks.last_lsn)
        self._pending = self._intake.pending
        self._busy = True
        self._turn_comes = False
        self._ripe = False
        self._gathering = False
        self._sync_due = False
        self._sync_timer = False
        self._seal_timer = False
        self._sealed = True
        self._begin(found)

    def _begin(self, found: Found) -> None:
        first: list[Deed] = [self._identity.put(), *(Remove(name) for name in found.void)]
        if found.tail is None:
            synced: list[Deed] = [Sync(found.last)] if found.last else []
            self._disk.submit(synced + first, self._opened)
        else:
            self._secure(found.last, found.tail, first)
        self._disk.reserve()
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
        """Read the files and begin to write.

        `name`: the member that the files must belong to. `uuid`: this process. `new_id` makes a UUID for a
        new store. `now_ns`, `wall_ms`: the same moment in monotonic and wall time. `recovering` makes copies
        of the content. `levels`: supported feature levels. Raises ConfigError for another member's files,
        JournalBroken for files that cannot be trusted.
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

    # -- the member's side

    def connect(self, on_event: Callable[[Event], None], on_failure: Callable[[JournalBroken], None]) -> None:
        """`on_event` (`Driver.handle`) gets events for the member. `on_failure` is called once, when nothing
        can be written any more: the member must stop.
        """
        self._disk.on_event = on_event
        self._disk.on_failure = on_failure

    @property
    def identity(self) -> IdentityFile:
        return self._identity.value

    def carry_out(self, effect: Append | Checkpoint | ReadHistory) -> None:
        if self._disk.is_over:
            return
        self._intake.take(effect)
        if not (isinstance(effect, Append) and self._is_awaited(effect)):
            self._turn()

    def _is_awaited(self, append: Append) -> bool:
        """Whether a turn that comes anyway takes it along: at the end of a write, or of a wait for more."""
        if self._checkpoints.under_way:
            return False
        return self._busy or (self._gathering and not append.urgent)

    def admitted(self, cluster_id: str, *, behind: bool) -> None:
        """This cluster has admitted this life of the store: later writes are durable only after that.
        `behind`: it found that the files lack what they once held.
        """
        self._identity.admit(cluster_id, behind=behind)

    def forgive(self) -> None:
        self._identity.forgive()

    def when_ready(self, act: Callable[[], None]) -> None:
        """Call this when the member may act; never before this call returns."""
        if self.ready:
            self._disk.files.after(0, act)
        else:
            self._when_ready.append(act)

    def close(self) -> None:
        """Write and prove durable what is left, and release the disk. The member gets no further events."""
        disk = self._disk
        if disk.closed:
            return
        disk.close()
        if not disk.broken:
            while self._pending and self._write_groups(sync=True):
                pass
            if not self._sealed and (deeds := self._blocks.seal()):
                disk.files.submit(deeds, lambda error: None)
        disk.files.close()

    @property
    def leftovers(self) -> dict[str, int]:
        return {
            "groups": len(self._pending),
            "checkpoints": len(self._checkpoints.under_way),
            "history": int(self._histories.busy),
            "early": self._intake.early,
        }

    def figures(self) -> dict[str, object]:
        """Figures of the files for the status. Bytes include reserved space in segments."""
        return {
            "store": self.identity.store,
            "opened": self._identity.incarnation,
            "segments": len(self._segments.all),
            "journal_bytes": sum(segment.size for segment in self._segments.all) + self._disk.spare_bytes,
            "checkpoints": sum(len(kept.files) for kept in self._checkpoints.kept.values()),
            "checkpoints_written": self._checkpoint_writer.count,
            "last_checkpoint_ms": self._checkpoint_writer.last_ms,
            "full": self._disk.full,
            "problems": list(self.doubts),
        }

    # -- turns

    def _turn(self) -> None:
        if not self._turn_comes:
            self._turn_comes = True
            self._disk.files.after(0, self._take_turn)

    def _take_turn(self) -> None:
        self._turn_comes = False
        self._go_on()

    def _go_on(self) -> None:
        if self._disk.is_over or not self.ready:
            return
        self._begin_checkpoints()
        for question in self._intake.take_questions():
            self._histories.ask(question, self._blocks.last_lsn)
        if self._busy:
            return
        if self._pending:
            urgent = self._sync_due or any(group.urgent for group in self._pending)
            if urgent or self._ripe or any(group.questions for group in self._pending):
                if self._write_groups(sync=urgent):
                    return
            elif not self._gathering:
                self._gathering = True
                self._disk.files.after(GATHER_NS, self._gathered)
        if self._sync_due:
            self._sync()
        elif not self._sealed and not self._pending and not self._seal_timer:
            self._seal_timer = True
            seen = self._blocks.last_lsn
            self._disk.files.after(SEAL_NS, lambda: self._seal(seen))
        self._checkpoint_writer.ask(self._blocks.at)

    def _gathered(self) -> None:
        assert self._gathering, "it is gathered once"
        self._gathering = False
        self._ripe = True
        self._go_on()

    def _seal(self, seen: int) -> None:
        self._seal_timer = False
        if self._blocks.last_lsn == seen and not self._pending and self._progress.durable_lsn == seen:
            self._pending.append(WriteGroup(0, [], urgent=True))
        self._go_on()

    def _sync(self) -> None:
        self._sync_due = False
        lsn, number = self._blocks.last_lsn, self._progress.written_number
        segment = self._blocks.segment
        if segment is None or lsn <= self._progress.durable_lsn:
            return
        self._busy = True
        self._disk.submit([Sync(segment.name)], lambda: self._written(lsn, number, synced=True))

    def _sync_later(self) -> None:
        if not self._sync_timer:
            self._sync_timer = True
            self._disk.files.after(self._settings.sync_interval_ms * MILLISECOND, self._sync_now)

    def _sync_now(self) -> None:
        self._sync_timer = False
        self._sync_due = self._progress.durable_lsn < self._blocks.last_lsn
        self._go_on()

    # -- writing

    def _write_groups(self, *, sync: bool) -> bool:
        """Write the waiting groups as one block; False when there is no room.

        A group with a checkpoint ends the block, because no later entry may stand in it (engine/W-5). Groups
        that do not fit together are halved until they do: of groups 7 to 10 with 2 MB and segments of 1 MB, 7
        and 8 are written first.
        """
        groups: list[WriteGroup] = []
        while self._pending:
            groups.append(self._pending.popleft())
            if groups[-1].cuts:
                break
        while True:
            entries = [entry for group in groups for entry in group.entries]
            deeds = self._blocks.write(entries)
            if deeds is not None:
                break
            if len(groups) == 1 or not self._disk.spare_bytes:
                self._pending.extendleft(reversed(groups))
                if self._disk.spare_bytes:
                    # One group alone is larger than a segment: reserve one that holds it.
                    self._disk.reserve_larger(self._blocks.missing_bytes)
                return False
            half = len(groups) // 2
            self._pending.extendleft(reversed(groups[half:]))
            del groups[half:]
        progress, lsn = self._progress, self._blocks.last_lsn
        for cut in groups[-1].cuts:
            self._checkpoints.place(cut, lsn)
        for group in groups:
            for question in group.questions:
                self._histories.ask(question, lsn)
        if changes_content(entries):
            progress.content_lsn = lsn
        assert lsn > progress.durable_lsn, "what is written now is not durable yet"
        self._sealed = not entries
        self._ripe = self._sync_due = False
        number = max(progress.written_number, *(group.number for group in groups))
        progress.written_number = number
        segment = self._blocks.segment
        assert segment is not None
        # The start of a segment must be durable before anything older is removed.
        sync = sync or self._disk.rolling
        if sync:
            deeds.append(Sync(segment.name))
        self._busy = True
        self._disk.submit(deeds, lambda: self._written(lsn, number, synced=sync))
        return True

    def _written(self, lsn: int, number: int, *, synced: bool) -> None:
        progress = self._progress
        assert self._busy and lsn >= progress.durable_lsn, "one group is written after the other"
        self._busy = False
        assert self._blocks.segment is not None
        progress.start_lsn = self._blocks.segment.first_lsn
        self._disk.rolled()
        event = None
        if synced:
            # Before `_go_on` writes more, which this sync does not cover.
            event = progress.synced(lsn, number)
            self._blocks.durable(lsn)
        else:
            self._sync_later()
        self._go_on()
        self._histories.written(lsn)
        self._retention.remove_dropped()
        if event is not None:
            self._disk.notify(event)

    def _on_reserved(self) -> None:
        self._retention.prune()
        self._go_on()

    # -- checkpoints

    def _begin_checkpoints(self) -> None:
        for cut in self._checkpoints.under_way:
            if not cut.began and cut.lsn >= 0:
                if cut.lsn <= self._progress.durable_lsn:
                    self._checkpoint_writer.begin(cut)
                else:
                    self._sync_due = True
            elif cut.lsn < 0:
                self._ripe = True

    def _on_checkpoint(self, entry: Checkpointed) -> None:
        self._pending.append(WriteGroup(0, [entry], urgent=False))
        self._retention.prune()
        self._go_on()

    def _doubt(self, why: str) -> None:
        """A part of the journal is unreadable: checkpoint everything before a restart needs that part."""
        self.doubts.append(why)
        self._checkpoints.want_all()
        self._turn()

    # -- the start

    def _secure(self, name: str, tail: bytes, first: list[Deed]) -> None:
        """Copy the segment read last to a new file (engine/W-8), then do the operations in `first`."""
        disk = self._disk

        def done(error: Exception | None) -> None:
            if isinstance(error, DiskFull):
                # A member without room must start all the same: it serves reads, and room may be made.
                disk.submit([Sync(name), *first], self._opened)
                return
            for segment in self._segments.all:
                if segment.name == name:
                    segment.size = len(tail)
            disk.on_done([], partial(disk.submit, first, self._opened), error)

        disk.files.submit([Put(lambda: (name, tail))], done)

    def _opened(self) -> None:
        self._busy = False
        self.ready = True
        waiting, self._when_ready = self._when_ready, []
        # An empty block proves what was read, so that what was cut off cannot come back.
        self._pending.appendleft(WriteGroup(0, [], urgent=True))
        self._retention.remove_dropped()
        self._go_on()
        for act in waiting:
            act()
