"""Tracks which groups and blocks of a journal are written, and which of them are durable."""

from __future__ import annotations

from holdfast.core.events import Durable


class WriteProgress:
    """A write hands bytes to the system; only a sync makes them durable. Example: block 41 is durable. The
    member appends group 17 (not urgent), written as block 42 without a sync: nothing is reported. It appends
    group 18 (urgent), written as block 43; its sync covers block 42 too, so one `Durable(18)` reports both
    groups. A group written during that sync waits for the next one, because it may not be on the disk when
    the sync returns: `Durable` names the groups of the moment at which the sync was submitted.
    """

    __slots__ = ("admitted", "content_lsn", "durable_lsn", "durable_number", "start_lsn", "written_number")

    def __init__(self, durable_lsn: int, start_lsn: int) -> None:
        self.durable_lsn = durable_lsn
        self.start_lsn = start_lsn
        """First block of the newest segment whose start is durable and readable. A restart begins there, so
        this segment and later ones may not be removed.
        """
        self.written_number = 0
        self.durable_number = 0
        self.content_lsn = 0
        """The last block of this life that changes content of a partition."""
        self.admitted = False
        """Whether it is durable that a cluster has admitted this life: before that `Durable` names no block."""

    def synced(self, lsn: int, number: int) -> Durable | None:
        """Blocks up to `lsn` and groups up to `number` are durable. Returns the event for the member, if any."""
        event = None
        if number > self.durable_number:
            event = Durable(number, self.content_lsn if self.admitted else 0)
        self.durable_lsn = max(self.durable_lsn, lsn)
        self.durable_number = max(self.durable_number, number)
        return event
