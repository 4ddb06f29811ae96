"""Which settings can be changed while a member runs, and what does it: `holdfast config set`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from holdfast.config import LimitSettings, Settings
from holdfast.config.loading import changed
from holdfast.engine.driver import Driver
from holdfast.runtime.logs.limited_lines import quoted
from holdfast.runtime.memory import Gauge, limit_of
from holdfast.runtime.open_files import room_for_sockets

log = logging.getLogger("holdfast")


class Limited(Protocol):
    """What lets others in: the door for clients, and the network of members."""

    def allow(self, limits: LimitSettings) -> None:
        """Go on with other limits. Who is here stays."""


class Changeable(Protocol):
    """A member whose settings can be changed."""

    settings: Settings
    gauge: Gauge
    driver: Driver

    def guard(self, step: Callable[[], None]) -> None:
        """Take a step; an error in it stops the member."""


class LiveSettings:
    """The settings of one member while it runs."""

    def __init__(self, member: Changeable) -> None:
        self._member = member
        self.limited: tuple[Limited, ...] = ()
        """Who has to hear of limits."""
        self.changed: dict[str, str] = {}
        """What was changed since the start, as it was given last."""

    def change(self, given: Mapping[str, str]) -> None:
        """Change all of these. Raises ConfigError, and changes nothing then."""
        self._member.settings = changed(self._member.settings, given)
        for dotted in given:
            APPLIERS[dotted](self)
        self.changed |= given
        log.info("settings changed: %s", " ".join(f"{key}={quoted(value)}" for key, value in given.items()))

    def allow(self) -> None:
        """Let the limits of connections count, and of what waits for clients."""
        room_for_sockets(self._member.settings)
        for one in self.limited:
            one.allow(self._member.settings.limits)

    def allow_memory(self) -> None:
        """Let the limit of memory count. How often it is measured stays as it was."""
        self._member.gauge.limit = limit_of(self._member.settings.limits.memory_bytes)

    def bound_flight(self) -> None:
        """Let the bytes count that may be on their way to members that are filled."""
        max_in_flight_bytes = self._member.settings.partitions.max_in_flight_bytes
        self._member.guard(lambda: self._member.driver.bound_flight(max_in_flight_bytes))

    def set_log_level(self) -> None:
        """Let the level of the log count."""
        log.setLevel(self._member.settings.log.level.upper())


APPLIERS: dict[str, Callable[[LiveSettings], None]] = {
    **dict.fromkeys(
        (
            "limits.connections",
            "limits.connections_per_address",
            "limits.operator_connections",
            "limits.member_connections",
            "limits.idle_timeout_ms",
            "limits.total_output_buffer_bytes",
        ),
        LiveSettings.allow,
    ),
    "limits.memory_bytes": LiveSettings.allow_memory,
    "partitions.max_in_flight_bytes": LiveSettings.bound_flight,
    "log.level": LiveSettings.set_log_level,
}
"""By key: what lets a new value count. The schema marks these keys as live (`config.schema.LIVE`), and no others."""
