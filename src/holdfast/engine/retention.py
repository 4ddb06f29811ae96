"""Removes journal files that are no longer needed: segments, older checkpoints, dropped partitions."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.config.schema import PersistenceSettings
from holdfast.engine.checkpoints import Checkpoints
from holdfast.engine.journal_disk import JournalDisk
from holdfast.engine.ports import Remove
from holdfast.engine.segments import Segments
from holdfast.engine.write_progress import WriteProgress


class Retention:
    """A segment is removed when no restart needs it: it is before the newest durable start of a segment, and
    for each partition before the first block that its newest checkpoint needs. Example: segments begin with
    blocks 1, 100 and 200; the checkpoint of partition 0 is of block 250, that of partition 1 of block 120.
    Block 121 is needed, so only the first segment may go; it stays as history while
    `persistence.history_bytes` has room for it.
    """

    __slots__ = ("_checkpoints", "_disk", "_is_searching", "_progress", "_segments", "_settings")

    def __init__(
        self,
        settings: PersistenceSettings,
        disk: JournalDisk,
        segments: Segments,
        checkpoints: Checkpoints,
        progress: WriteProgress,
        is_searching: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._disk = disk
        self._segments = segments
        self._checkpoints = checkpoints
        self._progress = progress
        self._is_searching = is_searching

    def prune(self, *, history: bool = True) -> bool:
        """Remove segments, and checkpoints that only those made useful; returns whether any segment was
        removed. `history`: keep history as the settings want.
        """
        disk = self._disk
        if self._is_searching() or disk.closed or disk.rolling:
            return False
        progress, settings = self._progress, self._settings
        gone = self._segments.take_oldest(
            min(progress.start_lsn, self._checkpoints.needed_lsn(progress.durable_lsn + 1)),
            history_bytes=settings.history_bytes if history else -1,
            history_age_ms=settings.history_age_s * 1000,
            now_ms=disk.files.wall_ms(),
        )
        names = [segment.name for segment in gone]
        if self._segments.all:
            names += self._checkpoints.superfluous(self._segments.all[0].first_lsn)
        if names:
            disk.submit_aside([Remove(name) for name in names])
        return bool(gone)

    def on_search_done(self) -> None:
        if not self._disk.broken:
            self.prune(history=self._disk.reserving or self._disk.spare_bytes > 0)

    def remove_dropped(self) -> None:
        for each in self._checkpoints.settle(self._progress.durable_lsn):
            files = each[2]

            def removed(error: Exception | None, dropped: tuple[int, int, list[str]] = each) -> None:
                self._disk.check(error)
                self._checkpoints.forget(*dropped)

            self._disk.submit_aside([Remove(name) for name in files], removed)
