"""A probe for space on a full disk, repeated until it succeeds."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.model.ids import SECOND
from holdfast.engine.ports import Create, Deed, Disk, DiskFull, Remove

PROBE = "room.probe"
"""Created as a test and removed at once."""
RETRY_NS = SECOND


class RoomProbe:
    def __init__(
        self, disk: Disk, size: int, found: Callable[[], None], failed: Callable[[Exception], None]
    ) -> None:
        self._disk = disk
        self._size = size
        self._found = found
        self._failed = failed
        self._ended = False
        self._busy = False

    def end(self) -> None:
        self._ended = True

    def look_later(self) -> None:
        if not self._busy:
            self._busy = True
            self._disk.after(RETRY_NS, self._look)

    def look(self) -> None:
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
