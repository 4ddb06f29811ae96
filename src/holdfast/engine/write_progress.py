"""How far a journal has come: which groups and blocks are written, and which of them are durable."""

from __future__ import annotations

from holdfast.core.events import Durable


class WriteProgress:
    """The numbers from which the journal decides what is durable.

    A write hands bytes to the system, and only a sync makes them durable. Example: block 41 is durable. The member
    appends group 17 (not urgent), and the journal writes it as block 42 without a sync: nothing is reported. Then it
    appends group 18 (urgent), which becomes block 43; its sync covers block 42 as well, so one `Durable(18)` reports
    both groups. A group that is written while that sync is under way waits for the next one: it may not be on the disk
    when the sync returns, so `Durable` names the groups of the moment at which the sync was submitted.
    """

    __slots__ = ("admitted", "content_lsn", "durable_lsn", "durable_number", "start_lsn", "written_number")

    def __init__(self, durable_lsn: int, start_lsn: int) -> None:
        self.durable_lsn = durable_lsn
        """All blocks up to this one are durable."""
        self.start_lsn = start_lsn
        """The first block of the newest segment whose start is durable and can be read. A restart begins there, so
        neither that segment nor a later one may be removed."""
        self.written_number = 0
        """The newest group that was handed to the disk."""
        self.durable_number = 0
        """The newest group that is durable."""
        self.content_lsn = 0
        """The last block of this life that changes the content of a partition."""
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
