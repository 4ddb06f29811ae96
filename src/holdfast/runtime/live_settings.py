"""Which settings can be changed while a member runs, and what does it: `holdfast config set`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from holdfast.config import Settings

log = logging.getLogger("holdfast")


class Changeable(Protocol):
    """A member whose settings have just been changed."""

    settings: Settings

    def allow(self) -> None:
        """Go on with the limits of connections, and of what waits for clients, that the settings have now."""

    def allow_memory(self) -> None:
        """Go on with the limit of memory that the settings have now."""


def _set_log_level(member: Changeable) -> None:
    section: Any = getattr(member.settings, "log", None)
    if section is not None:
        log.setLevel(section.level.upper())


APPLIERS: dict[str, Callable[[Changeable], None]] = {
    **dict.fromkeys(
        (
            "limits.connections",
            "limits.connections_per_address",
            "limits.operator_connections",
            "limits.member_connections",
            "limits.silent_ms",
            "limits.all_unread_bytes",
        ),
        lambda member: member.allow(),
    ),
    "limits.memory_bytes": lambda member: member.allow_memory(),
    "log.level": _set_log_level,
}
"""By key: what lets a new value count. The schema marks these keys as live (`config.schema.LIVE`), and no others."""
