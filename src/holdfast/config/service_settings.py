"""Settings of services."""

from __future__ import annotations

from typing import Literal

from holdfast.config.sections import Section


class ServiceSettings(Section, frozen=True, kw_only=True):
    """Declared by a service; not part of a configuration, because every member runs the same services."""

    backups: int = 1
    """Backups that hold an update before it is acknowledged."""
    async_backups: int = 0
    """Further backups that a write does not wait for."""
    journal: Literal["off", "sync", "lazy"] = "off"
    """As with maps."""

    @property
    def copies(self) -> int:
        """Number of members that hold a share: the owner and all backups."""
        return 1 + self.backups + self.async_backups

    @property
    def changes_bytes(self) -> int:
        """A service has no change stream."""
        return 0

    @property
    def evicts(self) -> bool:
        return False

    @property
    def reads(self) -> Literal["primary", "confirmed"]:
        """Only the primary answers questions."""
        return "primary"
