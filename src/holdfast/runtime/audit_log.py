"""The audit log: a line of JSON for each login, refusal and order of an operator, in a file of its own.

It is written in a thread, so that a slow disk holds up nobody. What comes too fast is left out and counted, kind by
kind: a line says how much, so nobody fills the disk, or hides what he does, by doing much of something else. When the
file is large enough it is renamed and begun anew; when somebody else has renamed it, it is begun anew, too.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

import msgspec

from holdfast.errors import ConfigError
from holdfast.server.audit_events import AuditEvent, AuditKind

LINES_MAX = {AuditKind.ORDER: 1000, AuditKind.LOGIN: 300}
"""Of one kind and user in one period,"""
LINES_OF_OTHERS = 100
"""and of every other kind. Of failed logins all users are one: their names are whatever somebody says."""
PERIOD_S = 10.0
WAITING_MAX = 10_000
"""Lines that may wait for the disk; more are left out."""
OLDER = 2
"""Files that are kept besides the one that is written."""

log = logging.getLogger("holdfast")


class AuditLog:
    """Of one member."""

    def __init__(
        self, path: Path, size_max: int, member: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`size_max`: bytes of a file. `member`: what this member is called. `clock`: in seconds. Raises ConfigError
        when the file cannot be written.
        """
        self._path = path
        self._size_max = size_max
        self._member = member
        self._clock = clock
        self._began_s = clock()
        self._told: Counter[tuple[AuditKind, str]] = Counter()
        self.left_out: Counter[AuditKind] = Counter()
        """In this period."""
        self._gathering = Lock()
        self._lines: list[bytes] = []
        self._writes = False
        self._broken = False
        """Whether the last write has failed, which was told in the log."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-audit")
        try:
            os.close(self._open())
        except OSError as error:
            raise ConfigError(f"security.audit_file: cannot write {path}: {error.strerror}") from None

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def tell(self, event: AuditEvent) -> None:
        """Write it down soon."""
        now_s = self._clock()
        if now_s - self._began_s >= PERIOD_S:
            self._end_period(now_s)
        kind = event.event
        one = kind, "" if kind is AuditKind.LOGIN_FAILED else event.user
        if self._told[one] >= LINES_MAX.get(kind, LINES_OF_OTHERS) or len(self._lines) >= WAITING_MAX:
            self.left_out[kind] += 1
            return
        self._told[one] += 1
        self._write_soon(msgspec.to_builtins(event.shortened()))

    def _end_period(self, now_s: float) -> None:
        for kind, count in sorted(self.left_out.items()):
            said: dict[str, object] = {
                "event": "left out",
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
        # ASCII alone: what clients say holds no character that some reader takes for the end of a line, or a terminal
        # for an order.
        line = (
            json.dumps({"time": when, "member": self._member, **said}, separators=(",", ":")).encode() + b"\n"
        )
        with self._gathering:
            self._lines.append(line)
            begun, self._writes = self._writes, True
        if not begun:
            self._thread.submit(self._write)

    def _write(self) -> None:
        """In the thread: write what has gathered."""
        with self._gathering:
            lines, self._lines, self._writes = self._lines, [], False
        try:
            # Of what could not be written whole a beginning may be there.
            self._append(b"\n" * self._broken + b"".join(lines))
            self._broken = False
        except OSError as error:
            if not self._broken:
                log.error("the audit log cannot be written, lines of it are lost: %s: %s", self._path, error)
            self._broken = True

    def _append(self, content: bytes) -> None:
        file = self._open()
        try:
            if os.fstat(file).st_size + len(content) > self._size_max and os.fstat(file).st_size:
                os.close(file)
                self._rotate()
                file = self._open()
            view = memoryview(content)
            while view:
                view = view[os.write(file, view) :]
        finally:
            os.close(file)

    def _rotate(self) -> None:
        for number in range(OLDER, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number - 1}") if number > 1 else self._path
            if older.exists():
                older.replace(self._path.with_name(f"{self._path.name}.{number}"))

    def close(self) -> None:
        """Write what has gathered, and no more."""
        self._end_period(self._clock())
        self._thread.shutdown(wait=True)
