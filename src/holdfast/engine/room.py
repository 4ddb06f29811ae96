"""Is there room on the disk again? Asked after a checkpoint found none, until there is."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.machine import SECOND
from holdfast.engine.doors import Create, Disk, DiskFull, Remove

PROBE = "room.probe"
"""A file that is made to see whether there is room, and removed at once."""
RETRY_NS = SECOND
"""How often a full disk is tried again."""


class Probe:
    """Tries to make a file of `size` bytes, again and again, until it can be made and `enough` says so too."""

    def __init__(
        self, disk: Disk, size: int, enough: Callable[[], bool], failed: Callable[[Exception], None]
    ) -> None:
        self._disk = disk
        self._size = size
        self._enough = enough
        self._failed = failed

    def look(self) -> None:
        """Try once, and later again if there is no room."""
        deeds = [Remove(PROBE), Create(PROBE, self._size), Remove(PROBE)]
        self._disk.submit(deeds, self._done, line="checkpoint")

    def _done(self, error: Exception | None) -> None:
        if error is not None and not isinstance(error, DiskFull):
            self._failed(error)
        elif error is not None or not self._enough():
            self._disk.after(RETRY_NS, self.look)
