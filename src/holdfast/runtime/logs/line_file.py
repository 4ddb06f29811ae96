"""A file that gets lines from a thread, so that a slow or full disk delays nothing else.

A large file is renamed to `.1`, `.1` to `.2` and so on; then, or after another program has renamed it
(`logrotate`), a new file is begun. Lines that cannot be written are lost; the first such error is reported.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

WAITING_MAX = 10_000
"""Lines that may wait for the disk; further ones are dropped."""


class LineFile:
    def __init__(
        self, path: Path, *, size_max: int, kept: int, name: str, lost: Callable[[OSError], None]
    ) -> None:
        """`size_max`: bytes per file. `kept`: older files to keep. `name`: of the thread. `lost`: called in
        that thread when lines begin to be lost. Raises OSError when the file cannot be written.
        """
        self._path = path
        self._size_max = size_max
        self._kept = kept
        self._lost = lost
        self._gathering = Lock()
        self._lines: list[bytes] = []
        self._writes = self._closed = False
        self._broken = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        os.close(self._open())

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @property
    def full(self) -> bool:
        return len(self._lines) >= WAITING_MAX

    def add(self, line: bytes) -> bool:
        """Write the line, which ends with a newline, soon. Returns False if it is dropped. Thread-safe."""
        with self._gathering:
            if self._closed or self.full:
                return False
            self._lines.append(line)
            begun, self._writes = self._writes, True
            if not begun:
                self._thread.submit(self._write)
        return True

    def _write(self) -> None:
        with self._gathering:
            lines, self._lines, self._writes = self._lines, [], False
        try:
            # After a failure a part of the last line may be in the file, so begin on a new line.
            self._append(b"\n" * self._broken + b"".join(lines))
            self._broken = False
        except OSError as error:
            if not self._broken:
                self._lost(error)
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
        if not self._kept:
            self._path.unlink(missing_ok=True)
        for number in range(self._kept, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number - 1}") if number > 1 else self._path
            if older.exists():
                older.replace(self._path.with_name(f"{self._path.name}.{number}"))

    def close(self) -> None:
        with self._gathering:
            self._closed = True
        self._thread.shutdown(wait=True)
