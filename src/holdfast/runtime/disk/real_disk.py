"""The real disk: a directory locked by this process, with one writer thread per line of deeds.

A deed is done when the operating system says that it is durable; `done` is called in the event loop, in order. After
any failure but a full disk, nothing more is written, in either line. A failed sync is final, even for lack of space:
when fdatasync fails, Linux marks the pages clean and reports the error once, so a second fdatasync would succeed
although the pages never reached the disk.

Compiled code writes and syncs blocks of the journal in a thread of its own (`write_thread`). All other groups of deeds
go to the threads of Python.

- runtime/W-1: Groups of one line are done in the order of `submit`, in whichever thread. Example: [Write, Sync],
  [Rename, Write], [Write, Sync]. Only a thread of Python renames. So the second group waits until the first is done,
  and the third is done by the thread of the second.
- runtime/W-2: A failure in one thread ends the work of all.

Names must be durable, too: after `rename` or `unlink` the directory itself is synced. Otherwise a power cut may bring
back the old name, with a journal that refers to the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import gc
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, assert_never

from holdfast.engine.ports import (
    Create,
    Deed,
    DeedsDone,
    DiskFailed,
    DiskFull,
    Put,
    Remove,
    Rename,
    Sync,
    Write,
)
from holdfast.errors import ConfigError
from holdfast.runtime.disk.slow_disk import DeedClock

LOCK = "lock"
TEMPORARY = ".new"
JOURNAL, CHECKPOINT = LINES = ("journal", "checkpoint")
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
CHUNK_BYTES = 1 << 30
"""One system call writes at most about 2 GiB."""

_Group = tuple[Sequence[Deed], DeedsDone]


class WriteThread(Protocol):
    """See `write_thread.pyx`."""

    failed: int

    def fileno(self) -> int: ...

    def submit(self, fd: int, data: bytes | None, offset: int, syncs: bool, /) -> None: ...

    def finished(self) -> list[tuple[int, bool, int]]: ...

    def fail(self, error: int, /) -> None: ...

    def close(self) -> None: ...


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Make many long-lived objects without the garbage collector."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if enabled:
            gc.enable()


def _at_once(deed: Callable[[], None]) -> None:
    deed()


class RealDisk:
    def __init__(
        self,
        directory: str | Path,
        loop: asyncio.AbstractEventLoop,
        guard: Callable[[Callable[[], None]], None] = _at_once,
        new_thread: Callable[[], WriteThread] | None = None,
    ) -> None:
        """`guard`: runs callbacks in the event loop and handles their errors. `new_thread`: starts the compiled
        thread for blocks of the journal; None: threads of Python do everything. Raises ConfigError when the
        directory cannot be used, or another process uses it.
        """
        self._directory = Path(directory).absolute()
        self._loop = loop
        self._guard = guard
        self._files: dict[str, int] = {}
        self._files_lock = threading.Lock()
        self._failed: DiskFailed | None = None
        self._closed = False
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise ConfigError(f"persistence.directory = {str(directory)!r} cannot be used: {error}") from None
        try:
            self._lock = self._take_lock()
        except BaseException:
            os.close(self._folder)
            raise
        for path in self._directory.iterdir():
            if path.name.endswith(TEMPORARY):
                path.unlink()
        self._queues: dict[str, queue.SimpleQueue[_Group | None]] = {
            line: queue.SimpleQueue() for line in LINES
        }
        self.clocks = {line: DeedClock() for line in LINES}
        self._threads = [
            threading.Thread(target=self._work, args=(line,), name=f"holdfast {line}", daemon=True)
            for line in LINES
        ]
        for thread in self._threads:
            thread.start()
        self._in_python = 0
        """Groups of the journal that a thread of Python has."""
        self._direct: deque[_Group] = deque()
        """Groups that the compiled thread has,"""
        self._behind: deque[_Group] = deque()
        """and groups of the journal that wait for these."""
        self._thread = new_thread() if new_thread is not None else None
        if self._thread is not None:
            loop.add_reader(self._thread.fileno(), self._on_finished)

    def _take_lock(self) -> int:
        where = f"persistence.directory = {str(self._directory)!r}"
        try:
            lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=self._folder)
        except OSError as error:
            raise ConfigError(f"{where} cannot be used: {error}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
                raise ConfigError(f"{where}: another process uses it") from None
            raise ConfigError(f"{where} cannot be locked: {error}") from None
        return lock

    # -- reading

    def names(self) -> list[str]:
        every = (path.name for path in self._directory.iterdir())
        return sorted(name for name in every if name != LOCK and not name.endswith(TEMPORARY))

    def size(self, name: str) -> int:
        return os.stat(name, dir_fd=self._folder).st_size

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        try:
            with os.fdopen(file, "rb", buffering=0) as stream:
                if offset:
                    stream.seek(offset)
                if size < 0:
                    return stream.readall()
                return stream.read(size) or b""
        except OSError as error:
            raise DiskFailed(f"{self._directory / name} cannot be read: {error}") from error

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # -- deeds

    def submit(self, deeds: Sequence[Deed], done: DeedsDone, *, line: str = "journal") -> None:
        if self._closed:
            raise DiskFailed(f"{self._directory} is closed")
        if line == JOURNAL and self._thread is not None:
            self._submit_block(self._thread, (deeds, done))
        else:
            self._queues[line].put((deeds, done))

    def _submit_block(self, thread: WriteThread, group: _Group) -> None:
        block = None if self._in_python or self._behind else self._block_of(group[0])
        if block is not None:
            if not self._direct:
                self.clocks[JOURNAL].begins(_told(group[0][-1]))
            self._direct.append(group)
            thread.submit(*block)
        elif self._direct or self._behind:
            # The compiled thread may have just finished its last group: those that wait for it come first.
            self._behind.append(group)
        else:
            self._give_to_python(group)

    def _give_to_python(self, group: _Group) -> None:
        self._in_python += 1
        self._queues[JOURNAL].put(group)

    def _block_of(self, deeds: Sequence[Deed]) -> tuple[int, bytes | None, int, bool] | None:
        """Arguments of `WriteThread.submit`; None if these deeds need another thread."""
        data: bytes | None = None
        offset, syncs = 0, False
        match deeds:
            case [Write(name, offset, data)]:
                pass
            case [Write(name, offset, data), Sync(synced)] if synced == name:
                syncs = True
            case [Sync(name)]:
                syncs = True
            case _:
                return None
        with self._files_lock:
            file = self._files.get(name)
        return None if file is None else (file, data, offset, syncs)

    def _on_finished(self) -> None:
        assert self._thread is not None, "a thread has finished something"
        for number, in_sync, took_ns in self._thread.finished():
            deeds, done = self._direct.popleft()
            clock = self.clocks[JOURNAL]
            clock.took(_told(deeds[-1]), took_ns / 1e9)
            if self._direct:
                clock.begins(_told(self._direct[0][0][-1]))
            self._tell(done, self._error_of(number, in_sync) if number else None)
            if self._closed:  # By this callback.
                return
        if not self._direct:
            while self._behind:
                self._give_to_python(self._behind.popleft())

    def _error_of(self, number: int, in_sync: bool) -> Exception:
        if number in NO_ROOM and not in_sync and not self._has_failed():
            return DiskFull(f"{self._directory}: {OSError(number, os.strerror(number))}")
        self._failed = self._failed or self._failure(number, "Sync" if in_sync else "Write")
        return self._failed

    def _failure(self, number: int, what: str) -> DiskFailed:
        return DiskFailed(f"{self._directory}: {what}: {OSError(number, os.strerror(number))}")

    def _has_failed(self) -> bool:
        """Whether nothing is written any more. A failure in one thread counts for all."""
        if self._failed is None and self._thread is not None and self._thread.failed:
            self._failed = self._failure(self._thread.failed, "journal")
        return self._failed is not None

    def after(self, delay_ns: int, deed: Callable[[], None]) -> None:
        if delay_ns:
            self._loop.call_later(delay_ns / 1e9, self._call, deed)
        else:
            self._loop.call_soon(self._call, deed)

    def close(self) -> None:
        """Finish submitted deeds; no callback is called any more."""
        if self._closed:
            return
        self._closed = True
        if self._thread is not None:
            with contextlib.suppress(RuntimeError):  # The loop may be closed.
                self._loop.remove_reader(self._thread.fileno())
            self._thread.close()
            self._direct.clear()
            while self._behind:
                self._give_to_python(self._behind.popleft())
        for each in self._queues.values():
            each.put(None)
        for thread in self._threads:
            thread.join()
        assert all(each.empty() for each in self._queues.values()), "everything that was submitted is done"
        for file in self._files.values():
            os.close(file)
        self._files.clear()
        os.close(self._lock)
        os.close(self._folder)

    def _call(self, deed: Callable[[], None]) -> None:
        if not self._closed:
            self._guard(deed)

    # -- in the writer threads

    def _work(self, line: str) -> None:
        groups, clock = self._queues[line], self.clocks[line]
        while (group := groups.get()) is not None:
            deeds, done = group
            error = self._carry_out(deeds, clock)
            try:
                self._loop.call_soon_threadsafe(self._tell_of, line, done, error)
            except RuntimeError:
                # The loop ended before the disk was closed; nothing waits any more.
                pass

    def _tell_of(self, line: str, done: DeedsDone, error: Exception | None) -> None:
        if line == JOURNAL and self._thread is not None:
            self._in_python -= 1
        self._tell(done, error)

    def _tell(self, done: DeedsDone, error: Exception | None) -> None:
        self._call(lambda: done(error))

    def _carry_out(self, deeds: Sequence[Deed], clock: DeedClock) -> Exception | None:
        for deed in deeds:
            if self._has_failed():
                return self._failed
            clock.begins(_told(deed))
            try:
                self._do(deed)
            except OSError as error:
                # A sync that fails for lack of space has lost earlier writes, so it does not count as a full
                # disk.
                if error.errno in NO_ROOM and not isinstance(deed, Sync):
                    return DiskFull(f"{self._directory}: {error}")
                return self._fail(f"{self._directory}: {type(deed).__name__}: {error}", error.errno)
            except Exception as error:  # noqa: BLE001  (whatever it is, what is on the disk is not known)
                return self._fail(
                    f"{self._directory}: {type(deed).__name__}: {type(error).__name__}: {error}"
                )
            finally:
                clock.ends()
        return None

    def _fail(self, why: str, number: int | None = None) -> DiskFailed:
        failed = self._failed = DiskFailed(why)
        if self._thread is not None:
            self._thread.fail(number or errno.EIO)
        return failed

    def _do(self, deed: Deed) -> None:
        match deed:
            case Write(name, offset, data):
                self._write(self._file(name), data, offset)
            case Sync(name):
                os.fdatasync(self._file(name))
            case Create(name, size):
                self._create(name, size)
            case Put(make):
                self._put(*make())
            case Remove(name):
                self._close_file(name)
                try:
                    os.unlink(name, dir_fd=self._folder)
                except FileNotFoundError:
                    return
                os.fsync(self._folder)
            case Rename(name, to):
                self._rename(name, to)
            case _:
                assert_never(deed)

    def _file(self, name: str) -> int:
        with self._files_lock:
            file = self._files.get(name)
            if file is None:
                file = os.open(name, os.O_RDWR | os.O_CLOEXEC, dir_fd=self._folder)
                self._files[name] = file
        return file

    def _close_file(self, name: str) -> None:
        with self._files_lock:
            file = self._files.pop(name, None)
        if file is not None:
            os.close(file)

    @staticmethod
    def _write(file: int, data: bytes, offset: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(file, view[:CHUNK_BYTES], offset)
            view, offset = view[written:], offset + written

    def _create(self, name: str, size: int) -> None:
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._folder)
        try:
            if size:
                os.posix_fallocate(file, 0, size)
            os.fsync(file)
        except OSError:
            os.unlink(name, dir_fd=self._folder)
            raise
        finally:
            os.close(file)
        os.fsync(self._folder)

    def _put(self, name: str, data: bytes) -> None:
        temporary = name + TEMPORARY
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        file = os.open(temporary, flags, 0o600, dir_fd=self._folder)
        try:
            self._write(file, data, 0)
            os.fsync(file)
        except OSError:
            os.unlink(temporary, dir_fd=self._folder)
            raise
        finally:
            os.close(file)
        self._close_file(name)
        os.rename(temporary, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        os.fsync(self._folder)

    def _rename(self, name: str, to: str) -> None:
        self._close_file(name)
        try:
            os.rename(name, to, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except FileNotFoundError:
            os.stat(to, dir_fd=self._folder)
        os.fsync(self._folder)


def _told(deed: Deed) -> str:
    kind = type(deed).__name__.lower()
    return "writing a whole file" if isinstance(deed, Put) else f"{kind} of {deed.name}"
