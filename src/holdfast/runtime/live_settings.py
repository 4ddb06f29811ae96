"""Settings that can change while a member runs (`holdfast config set`), and how each takes effect."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from holdfast.config import LimitSettings, Settings
from holdfast.config.loading import changed
from holdfast.core.events import FlightBounded
from holdfast.engine.driver import Driver
from holdfast.runtime.logs.limited_lines import quoted
from holdfast.runtime.memory import Gauge, limit_of
from holdfast.runtime.open_files import room_for_sockets

log = logging.getLogger("holdfast")


class Limited(Protocol):
    def set_limits(self, limits: LimitSettings) -> None:
        """Open connections stay."""


class Changeable(Protocol):
    settings: Settings
    driver: Driver

    @property
    def gauge(self) -> Gauge: ...

    def guard(self, step: Callable[[], None]) -> None:
        """An error in the step stops the member."""


class LiveSettings:
    def __init__(self, member: Changeable) -> None:
        self._member = member
        self.limited: tuple[Limited, ...] = ()
        self.changed: dict[str, str] = {}

    def change(self, given: Mapping[str, str]) -> None:
        """Change all of these settings, or raise ConfigError and change none."""
        self._member.settings = changed(self._member.settings, given)
        for dotted in given:
            APPLIERS[dotted](self)
        self.changed |= given
        log.info("settings changed: %s", " ".join(f"{key}={quoted(value)}" for key, value in given.items()))

    def allow(self) -> None:
        room_for_sockets(self._member.settings)
        for one in self.limited:
            one.set_limits(self._member.settings.limits)

    def allow_memory(self) -> None:
        """The interval of measuring stays."""
        self._member.gauge.limit = limit_of(self._member.settings.limits.memory_bytes)

    def bound_flight(self) -> None:
        max_in_flight_bytes = self._member.settings.partitions.max_in_flight_bytes
        self._member.guard(lambda: self._member.driver.handle(FlightBounded(max_in_flight_bytes)))

    def set_log_level(self) -> None:
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
"""The schema marks exactly these as live (`config.schema.LIVE`)."""
