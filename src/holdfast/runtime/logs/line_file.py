"""Lines that are appended to a file in a thread of its own: a disk that is slow or full holds up nobody.

When the file is large enough it is renamed to `.1`, that one to `.2`, and so on, and it is begun anew; when somebody
else has renamed it (`logrotate`), it is begun anew, too. What cannot be written is lost, which is told once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

WAITING_MAX = 10_000
"""Lines that may wait for the disk; more are left out."""


class LineFile:
    """A file to which one process appends lines."""

    def __init__(
        self, path: Path, *, size_max: int, kept: int, name: str, lost: Callable[[OSError], None]
    ) -> None:
        """`size_max`: bytes of one file. `kept`: how many older files stay besides. `name`: of the thread. `lost`: is
        told in that thread when lines begin to be lost. Raises OSError when the file cannot be written.
        """
        self._path = path
        self._size_max = size_max
        self._kept = kept
        self._lost = lost
        self._gathering = Lock()
        self._lines: list[bytes] = []
        self._writes = self._closed = False
        self._broken = False
        """Whether the last write has failed."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        os.close(self._open())

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @property
    def full(self) -> bool:
        """Whether so many lines wait for the disk that another one would be left out."""
        return len(self._lines) >= WAITING_MAX

    def add(self, line: bytes) -> bool:
        """Write the line, which ends with its newline, soon. Answers whether it will be tried. In any thread."""
        with self._gathering:
            if self._closed or self.full:
                return False
            self._lines.append(line)
            begun, self._writes = self._writes, True
            if not begun:
                self._thread.submit(self._write)
        return True

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
        """Write what has gathered, and no more."""
        with self._gathering:
            self._closed = True
        self._thread.shutdown(wait=True)
