"""The audit log: one line of JSON per login, rejection and operator command, in a separate file.

A thread writes the lines, and the file is rotated (`line_file`). Excess lines are dropped and counted by
kind, and a line reports the count. So a flood of failed logins neither fills the disk nor hides a command of
an operator.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from holdfast.errors import ConfigError
from holdfast.runtime.logs.line_file import LineFile
from holdfast.server.audit_events import AuditEvent, AuditKind

LINES_MAX = {AuditKind.ORDER: 1000, AuditKind.LOGIN: 300}
LINES_OF_OTHERS = 100
"""Failed logins share one limit for all users, because clients choose the names."""
PERIOD_S = 10.0

log = logging.getLogger("holdfast")


class AuditLog:
    def __init__(
        self,
        path: Path,
        size_max: int,
        kept: int,
        member: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`size_max`: bytes per file. `kept`: older files to keep. `clock`: in seconds. Raises ConfigError
        when the file cannot be written.
        """
        self._member = member
        self._clock = clock
        self._began_s = clock()
        self._told: Counter[tuple[AuditKind, str]] = Counter()
        self.left_out: Counter[AuditKind] = Counter()

        def lost(error: OSError) -> None:
            log.error("the audit log cannot be written, lines of it are lost: %s: %s", path, error)

        try:
            self._file = LineFile(path, size_max=size_max, kept=kept, name="holdfast-audit", lost=lost)
        except OSError as error:
            raise ConfigError(f"security.audit_file: cannot write {path}: {error.strerror}") from None

    def write(self, event: AuditEvent) -> None:
        now_s = self._clock()
        if now_s - self._began_s >= PERIOD_S:
            self._end_period(now_s)
        kind = event.event
        one = kind, "" if kind is AuditKind.LOGIN_FAILED else event.user
        if self._told[one] >= LINES_MAX.get(kind, LINES_OF_OTHERS) or self._file.full:
            self.left_out[kind] += 1
            return
        self._told[one] += 1
        self._write_soon(msgspec.to_builtins(event.shortened()))

    def _end_period(self, now_s: float) -> None:
        for kind, count in sorted(self.left_out.items()):
            said: dict[str, object] = {
                "event": "records dropped",
                "what": kind.value,
                "count": count,
                "seconds": round(now_s - self._began_s),
            }
            self._write_soon(said)
        self._began_s = now_s
        self._told.clear()
        self.left_out.clear()

    def _write_soon(self, said: dict[str, object]) -> None:
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        # ASCII only: text of clients may contain characters that end a line for some reader, or control a
        # terminal.
        line = json.dumps({"time": when, "member": self._member, **said}, separators=(",", ":"))
        self._file.add(line.encode() + b"\n")

    def close(self) -> None:
        self._end_period(self._clock())
        self._file.close()
