"""The disk as a journal uses it: operations that wait for room, the reserved segment, and the end after a
failure.

- engine/W-3: The next segment is reserved when the previous one begins. While that fails, `DiskRoom` reports
  a full disk; running operations still fit. Journal that is only history is removed first.
- engine/W-6: A failed write or sync is never retried: the member stops (rule 10).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.core.events import DiskRoom, Event
from holdfast.engine.ports import Create, Deed, Disk, DiskFull, Remove
from holdfast.engine.restore import SPARE
from holdfast.engine.room_probe import RETRY_NS, RoomProbe
from holdfast.errors import JournalBroken


def _no_events(event: Event) -> None:
    raise AssertionError(f"the journal was not connected before {event}")


def _no_failures(error: JournalBroken) -> None:
    raise error


class JournalDisk:
    def __init__(
        self,
        files: Disk,
        segment_bytes: int,
        free_space: Callable[[], bool],
        on_reserved: Callable[[], None],
    ) -> None:
        """`free_space` removes journal that no restart needs, and returns whether there was any.
        `on_reserved` is called when the next segment is reserved.
        """
        self.files = files
        self.on_event: Callable[[Event], None] = _no_events
        self.on_failure: Callable[[JournalBroken], None] = _no_failures
        self.broken = False
        self.closed = False
        self.full = False
        self.spare_bytes = 0
        self.reserving = False
        self.rolling = False
        """Whether the reserved segment is becoming the current one, not durably yet."""
        self._least_bytes = 0
        self._segment_bytes = segment_bytes
        self._free_space = free_space
        self._on_reserved = on_reserved
        self._probe = RoomProbe(files, segment_bytes, self._on_room, self._fail)

    @property
    def is_over(self) -> bool:
        return self.broken or self.closed

    def close(self) -> None:
        """Results of running operations have no effect any more."""
        self.closed = True
        self._probe.end()

    def notify(self, event: Event) -> None:
        if not self.broken and not self.closed:
            self.on_event(event)

    # -- deeds

    def submit(self, deeds: list[Deed], done: Callable[[], None]) -> None:
        """Run these in the line of the journal. Retried later when there is no room."""
        if not self.broken:
            self.files.submit(deeds, partial(self.on_done, deeds, done))

    def on_done(self, deeds: list[Deed], done: Callable[[], None], error: Exception | None) -> None:
        if self.broken or self.closed:
            return
        if isinstance(error, DiskFull):
            self.report_full()
            self.files.after(RETRY_NS, partial(self._submit_again, deeds, done))
        elif error is not None:
            self._fail(error)
        else:
            self._probe_room()
            done()

    def _submit_again(self, deeds: list[Deed], done: Callable[[], None]) -> None:
        if not self.closed:
            self.submit(deeds, done)

    def submit_aside(self, deeds: list[Deed], done: Callable[[Exception | None], None] | None = None) -> None:
        """Run these in the line of checkpoints. Without `done` any error ends the journal."""
        self.files.submit(deeds, done or self.check, line="checkpoint")

    def check(self, error: Exception | None) -> None:
        if error is not None:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self.broken and not self.closed:
            self.broken = True
            self._probe.end()
            self.on_failure(JournalBroken(f"{error}"))

    # -- the reserved segment

    def reserve(self) -> None:
        """Reserve the next segment. Deferred until the last one is durable under its own name, because the
        reserved one has a fixed name.
        """
        if self.reserving or self.spare_bytes or self.rolling or self.is_over:
            return
        self.reserving = True
        size = max(self._segment_bytes, self._least_bytes)

        def done(error: Exception | None) -> None:
            self.reserving = False
            if isinstance(error, DiskFull):
                self._on_full()
            elif error is not None:
                self._fail(error)
            else:
                self.spare_bytes = size
                self._probe_room()
                self._on_reserved()

        self.submit_aside([Remove(SPARE), Create(SPARE, size)], done)

    def reserve_larger(self, size: int) -> None:
        self._least_bytes, self.spare_bytes = size, 0
        self.reserve()

    def take_spare(self) -> None:
        self.spare_bytes = self._least_bytes = 0
        self.rolling = True

    def rolled(self) -> None:
        self.rolling = False
        self.reserve()

    # -- room

    def _on_full(self) -> None:
        if self._free_space():
            self.reserve()
            return
        self.report_full()
        self.files.after(RETRY_NS, self.reserve)

    def checkpoint_full(self) -> None:
        """A checkpoint found no room: report a full disk until a segment or a probe finds some."""
        if not self._free_space():
            self.report_full()
            self._probe.look_later()

    def report_full(self) -> None:
        if not self.full:
            self.full = True
            self.notify(DiskRoom(full=True))

    def _probe_room(self) -> None:
        """An operation has found room. The reserved segment may have taken the last of it, and the report
        would soon flip again. So room is reported when a probe finds space for one more segment.
        """
        if self.full and self.spare_bytes:
            self._probe.look()

    def _on_room(self) -> None:
        if self.full and self.spare_bytes and not self.is_over:
            self.full = False
            self.notify(DiskRoom(full=False))
