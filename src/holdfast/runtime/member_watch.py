"""Monitoring of one member: logs its notes and alarms, and measures stalls, slow disks and slow operations."""

from __future__ import annotations

import asyncio
import logging
import time

from holdfast.actions.operator_action import ActionDone, OperatorAction
from holdfast.config import Settings
from holdfast.core.effects import Note
from holdfast.core.member_view import MemberView
from holdfast.core.model.ids import MemberId
from holdfast.core.model.member_status import SlowOperationsStatus, Stalls
from holdfast.observe.alarms import Alarms
from holdfast.runtime.disk.real_disk import RealDisk
from holdfast.runtime.disk.slow_disk import DiskWatch
from holdfast.runtime.doors.connection_log import ConnectionLog
from holdfast.runtime.logs.limited_lines import LimitedLines, quoted
from holdfast.runtime.logs.process_log import FIELDS
from holdfast.runtime.logs.slow_operations import SlowOperations
from holdfast.runtime.logs.traces import Traces
from holdfast.runtime.stalls import StallGauge
from holdfast.server.audit_events import AuditEvent

log = logging.getLogger("holdfast")

NOTED_MAX = 2000
"""Characters of a note's field in the log; peers and clients influence many of them."""
LISTED_MAX = 1000
KNOCKS = frozenset({"unexpected message", "packet dropped", "join refused", "read failed"})
"""Notes that unauthenticated peers can cause at will; rate-limited."""
LOOK_S = 0.2


class MemberWatch:
    def __init__(self, settings: Settings, connection_log: ConnectionLog) -> None:
        self._settings = settings.log
        self._all = settings
        self._traces: Traces | None = None
        self._stopped_ns = 0
        self._connection_log = connection_log
        self._lines = LimitedLines()
        self._loop: asyncio.AbstractEventLoop
        self._alarms: Alarms
        self._disk: DiskWatch | None = None
        self._stalls: StallGauge | None = None
        self._slow: SlowOperations | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def open_traces(self, member: str) -> None:
        """Make spans from now on, if configured. Raises NotInstalled."""
        if self._all.traces.endpoint:
            self._traces = Traces(self._all, member, self._lines)

    def audited(self, event: AuditEvent) -> None:
        if self._traces is not None:
            self._traces.audited(event)

    def action(self, action: OperatorAction, done: ActionDone) -> ActionDone:
        return self._traces.action(action, done) if self._traces is not None else done

    def note(self, note: Note) -> None:
        if self._traces is not None:
            self._traces.note(note)
        said = {name: _said(value) for name, value in note.fields.items()}
        fields = " ".join(f"{name}={quoted(value, NOTED_MAX)}" for name, value in note.fields.items())
        level = logging.getLevelNamesMapping()[note.level.upper()]
        if note.kind in KNOCKS:
            self._connection_log.report(note.kind, f"{note.kind} %s", fields, level=level)
        else:
            log.log(level, "%s %s", note.kind, fields, extra={FIELDS: {"event": note.kind, **said}})

    def begin(self, loop: asyncio.AbstractEventLoop, picture: MemberView, disk: RealDisk | None) -> None:
        self._loop = loop
        self._alarms = Alarms(picture)
        settings = self._settings
        if disk is not None and settings.slow_disk_ms:
            self._disk = DiskWatch(list(disk.clocks.values()), settings.slow_disk_ms / 1000)
        if settings.slow_operation_ms:

            def names() -> dict[MemberId, str]:
                return {info.uuid: info.name for info in picture.members()}

            self._slow = SlowOperations(
                settings.slow_operation_ms,
                picture.open_since,
                names,
                self._lines,
                on_ended=self._traces.slow if self._traces is not None else lambda told: None,
            )
            self._look_at_operations(self._slow)
        if self._traces is not None:
            self._traces.started(picture)
        self._stalls = StallGauge(loop, stalled=self._stalled)
        self._look()

    @property
    def stall_s(self) -> float:
        return self._stalls.recent_s if self._stalls is not None else 0.0

    def _look(self) -> None:
        self._timers["look"] = self._loop.call_later(LOOK_S, self._look)
        for note in self._alarms.look():
            self.note(note)
        if self._traces is not None:
            self._traces.look()
        if self._disk is not None:
            for line in self._disk.look():
                self._lines.write("slow disk", "%s", line, extra={FIELDS: {"event": "slow disk"}})

    def _look_at_operations(self, slow: SlowOperations) -> None:
        self._timers["operations"] = self._loop.call_later(slow.look_s, self._look_at_operations, slow)
        slow.look()

    def _stalled(self, late_s: float) -> None:
        if self._slow is not None:
            self._slow.stalled(late_s)
        if self._settings.stall_ms and 1000 * late_s >= self._settings.stall_ms:
            self._lines.write(
                "stalls",
                "the event loop of this member was blocked for %.0f ms: one long task, or lack of processor time",
                1000 * late_s,
                extra={FIELDS: {"event": "stall", "ms": round(1000 * late_s)}},
            )

    def stalls(self) -> Stalls | None:
        return self._stalls.status() if self._stalls is not None else None

    def slow_operations(self) -> SlowOperationsStatus | None:
        return self._slow.status() if self._slow is not None else None

    def stop(self) -> None:
        self._stopped_ns = time.time_ns()
        for timer in self._timers.values():
            timer.cancel()
        if self._stalls is not None:
            self._stalls.stop()

    async def close_traces(self, why: str) -> None:
        if self._traces is not None:
            await self._traces.stop(why, self._stopped_ns or time.time_ns())


def _said(value: object) -> object:
    """A field in JSON: numbers unchanged, the rest as bounded text."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, list | tuple):
        return [_said(each) for each in value[:LISTED_MAX]]
    return quoted(value, NOTED_MAX)
