"""Writes checkpoints to the disk, and requests due ones from the member."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.events import CheckpointDone, CheckpointWanted
from holdfast.core.model.ids import SECOND
from holdfast.core.model.journal_entries import Checkpointed
from holdfast.engine.checkpoints import Checkpoints, RunningCheckpoint
from holdfast.engine.journal_disk import JournalDisk
from holdfast.engine.ports import DiskFull, Put
from holdfast.wire.checkpoint import encode_checkpoint

ANSWER_NS = SECOND
"""A member that has not begun a requested checkpoint by then does not hold that partition."""


class CheckpointWriter:
    __slots__ = ("_checkpoints", "_disk", "_go_on", "_on_written", "_store", "count", "last_ms")

    def __init__(
        self,
        disk: JournalDisk,
        checkpoints: Checkpoints,
        store: str,
        on_written: Callable[[Checkpointed], None],
        go_on: Callable[[], None],
    ) -> None:
        """`on_written` takes the journal entry of a durable checkpoint. `go_on` is called when another one
        may be due.
        """
        self._disk = disk
        self._checkpoints = checkpoints
        self._store = store
        self._on_written = on_written
        self._go_on = go_on
        self.count = 0
        self.last_ms = 0

    def begin(self, checkpoint: RunningCheckpoint) -> None:
        """The blocks before it must be durable: a checkpoint may not contain more than the journal."""
        checkpoint.began = True
        made: list[str] = []

        def make() -> tuple[str, bytes]:
            name, data = encode_checkpoint(checkpoint.snapshot, checkpoint.lsn, self._store)
            made.append(name)
            return name, data

        def done(error: Exception | None) -> None:
            if isinstance(error, DiskFull):
                self._checkpoints.failed(checkpoint)
                self._disk.checkpoint_full()
                self._disk.notify(CheckpointDone(checkpoint.ticket, well=False))
            elif error is not None:
                self._disk.check(error)
            else:
                self._done(checkpoint, made[0])

        self._disk.submit_aside([Put(make)], done)

    def _done(self, checkpoint: RunningCheckpoint, file: str) -> None:
        entry = self._checkpoints.done(checkpoint, file)
        self.count += 1
        self.last_ms = self._disk.files.wall_ms()
        if not self._disk.is_over:
            self._on_written(entry)
            self._disk.notify(CheckpointDone(checkpoint.ticket))

    def ask(self, at: int) -> None:
        partition = self._checkpoints.wanted(at)
        if partition is not None:

            def unanswered() -> None:
                self._checkpoints.unanswered(partition)
                self._go_on()

            self._disk.files.after(ANSWER_NS, unanswered)
            self._disk.files.after(0, lambda: self._disk.notify(CheckpointWanted((partition,))))
