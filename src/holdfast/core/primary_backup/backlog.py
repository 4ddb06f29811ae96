"""Limits on the bytes that a primary keeps for backups that have not acknowledged (H8).

Records stay until every backup holds them. A slow backup must not fill the memory of its primary:

- primary_backup/K-1: Above `limits.backlog_bytes` nothing more is read from client connections, until half of it is
  gone. Operators are served: they may have to evict the backup that is behind.
- primary_backup/K-2: When that does not help (backups exceed their timeout, or twice as much is kept), writes are
  rejected and connections are read again.
- primary_backup/K-3: An async backup for which more than `limits.async_backlog_bytes` are kept is waited for like a
  sync one, but what only it has not acknowledged in time counts as done.
"""

from __future__ import annotations

from holdfast.config import LimitSettings
from holdfast.core.model.notices import BacklogChanged
from holdfast.core.outbox import Outbox

RECORD_BYTES = 200
"""Approximate, without key and value."""


class Backlog:
    __slots__ = ("_async_bytes", "_late", "_out", "bytes", "crowded", "most", "refusing", "slow")

    def __init__(self, limits: LimitSettings, out: Outbox | None = None) -> None:
        """`out` is notified of changes (`BacklogChanged`)."""
        self._out = out or Outbox()
        self.most = limits.bounded(limits.backlog_bytes)
        self._async_bytes = limits.bounded(limits.async_backlog_bytes)
        self.bytes = 0
        """Updated by `PendingAcks`, which calls `grown` and `eased`."""
        self.crowded = False
        """Reading from clients should stop (primary_backup/K-1)."""
        self.refusing = False
        """Writes are rejected (primary_backup/K-2)."""
        self.slow: set[str] = set()
        """Writers wait for these async backups (primary_backup/K-3)."""
        self._late: dict[str, int] = {}

    def grown(self) -> None:
        assert self.bytes > self.most, "the backlog is above its limit (primary_backup/K-1)"
        if not self.crowded:
            self.crowded = True
            self._out.notify(BacklogChanged())
        assert self.crowded, "writes are rejected only when clients are not read (primary_backup/K-2)"
        if self.bytes > 2 * self.most:
            self.refuse()

    def eased(self) -> None:
        assert self.bytes >= 0, "only counted bytes are released"
        assert self.crowded, "only a crowded backlog can ease"
        if self.bytes <= self.most // 2:
            self.crowded = self.refusing = False
            self._out.notify(BacklogChanged())

    def refuse(self) -> None:
        """Reject writes if the backlog is crowded, because waiting does not help."""
        if self.crowded and not self.refusing:
            self.refusing = True
            self._out.notify(BacklogChanged())

    def late(self, member: str, size: int) -> None:
        """Count bytes that this async backup has not acknowledged. `size` may be negative."""
        kept = self._late.get(member, 0) + size
        assert kept >= 0, "only counted bytes are released"
        if kept:
            self._late[member] = kept
        else:
            self._late.pop(member, None)
        if kept > self._async_bytes:
            self.slow.add(member)
        elif kept <= self._async_bytes // 2:
            self.slow.discard(member)
        assert member in self._late or member not in self.slow, "a slow backup has a backlog"
