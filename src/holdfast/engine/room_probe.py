"""Is there room on the disk again? Asked after a checkpoint found none, until there is."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.model.ids import SECOND
from holdfast.engine.ports import Create, Deed, Disk, DiskFull, Remove

PROBE = "room.probe"
"""A file that is made to see whether there is room, and removed at once."""
RETRY_NS = SECOND
"""How often a full disk is tried again."""


class RoomProbe:
    """Tries to make a file of `size` bytes, again and again, until that can be done; `found` is called then."""

    def __init__(
        self, disk: Disk, size: int, found: Callable[[], None], failed: Callable[[Exception], None]
    ) -> None:
        self._disk = disk
        self._size = size
        self._found = found
        self._failed = failed
        self._ended = False
        self._busy = False
        """Whether it is trying, or will in a while."""

    def end(self) -> None:
        """Look no more."""
        self._ended = True

    def look_later(self) -> None:
        """Try in a while."""
        if not self._busy:
            self._busy = True
            self._disk.after(RETRY_NS, self._look)

    def look(self) -> None:
        """Try now, unless it is trying already."""
        if not self._busy:
            self._busy = True
            self._look()

    def _look(self) -> None:
        if self._ended:
            return
        assert self._size > 0, "room for something is looked for"
        deeds: list[Deed] = [Remove(PROBE), Create(PROBE, self._size), Remove(PROBE)]
        self._disk.submit(deeds, self._done, line="checkpoint")

    def _done(self, error: Exception | None) -> None:
        self._busy = False
        if error is None:
            self._found()
        elif isinstance(error, DiskFull):
            self.look_later()
        else:
            self._failed(error)
