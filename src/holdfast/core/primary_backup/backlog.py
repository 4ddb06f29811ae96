"""How much does a primary keep for backups that have not answered, and when is it too much? (H8)

Records stay until every backup holds them, however long that takes. So that a slow or unreachable backup cannot fill
the memory of its primary:

- primary_backup/K-1: Above `limits.backlog_bytes` nothing more is read from client connections, until half of it is
  gone.
- primary_backup/K-2: When that does not help (the backups do not answer in time, or twice as much is kept), writes are
  refused, and connections are read again. A cut-off primary so keeps a bounded amount, and still answers.
- primary_backup/K-3: An async backup for which more than `limits.async_backlog_bytes` are kept is waited for like a
  sync one, but what only it has not acknowledged in time counts as done.
"""

from __future__ import annotations

from holdfast.config import LimitSettings
from holdfast.core.machine import Outbox
from holdfast.core.model.notices import BacklogChanged

RECORD_BYTES = 200
"""What a record takes here besides its key and value, at about."""


class Backlog:
    """Bytes of records that wait for backups."""

    __slots__ = ("_async_bytes", "_late", "_out", "bytes", "crowded", "most", "refusing", "slow")

    def __init__(self, limits: LimitSettings, out: Outbox | None = None) -> None:
        """`out`: where `BacklogChanged` tells of another `crowded` or `refusing`."""
        self._out = out or Outbox()
        self.most = limits.bounded(limits.backlog_bytes)
        self._async_bytes = limits.bounded(limits.async_backlog_bytes)
        self.bytes = 0
        """The lane counts, and says so when it is more than `most`, or less than before while it is crowded."""
        self.crowded = False
        """Whether nothing more should be read from clients (primary_backup/K-1)."""
        self.refusing = False
        """Whether writes are refused (primary_backup/K-2)."""
        self.slow: set[str] = set()
        """The async backups that are waited for (primary_backup/K-3)."""
        self._late: dict[str, int] = {}

    def grown(self) -> None:
        """More than `most` bytes are kept."""
        assert self.bytes > self.most, "it is too much (primary_backup/K-1)"
        if not self.crowded:
            self.crowded = True
            self._out.tell(BacklogChanged())
        assert self.crowded, "writes are refused only where nothing more is read (primary_backup/K-2)"
        if self.bytes > 2 * self.most:
            self.refuse()

    def eased(self) -> None:
        """While it is crowded: fewer bytes are kept than before."""
        assert self.bytes >= 0, "no more is taken away than was kept"
        assert self.crowded, "what was not too much need not ease"
        if self.bytes <= self.most // 2:
            self.crowded = self.refusing = False
            self._out.tell(BacklogChanged())

    def refuse(self) -> None:
        """Waiting does not help: refuse what would be kept too, if there is too much already."""
        if self.crowded and not self.refusing:
            self.refusing = True
            self._out.tell(BacklogChanged())

    def late(self, member: str, size: int) -> None:
        """So many bytes more (or less) are kept for this async backup."""
        kept = self._late.get(member, 0) + size
        assert kept >= 0, "no more is taken away than was kept"
        if kept:
            self._late[member] = kept
        else:
            self._late.pop(member, None)
        if kept > self._async_bytes:
            self.slow.add(member)
        elif kept <= self._async_bytes // 2:
            self.slow.discard(member)
        assert member in self._late or member not in self.slow, "nothing is kept for nobody who is slow"
