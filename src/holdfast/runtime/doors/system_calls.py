"""System calls of `poll_cy` in plain Python; the build replaces this import by `system_calls.pxd`, the same in C.

Errors are returned as negative numbers.
"""

from __future__ import annotations

import os
from typing import Any

READY_BYTES = 12
PIECES_MOST = 64


def receive(fd: int, room: bytearray, start: int, end: int) -> int:
    """Returns the number of bytes, 0 at the end of the stream."""
    try:
        with memoryview(room) as view, view[start:end] as part:
            return os.readv(fd, [part])
    except OSError as error:
        return -(error.errno or 1)


def taken(room: bytearray, size: int) -> bytes:
    with memoryview(room) as view, view[:size] as part:
        return bytes(part)


def new_value(size: int, beginning: bytes) -> bytearray:
    """A buffer for a value with this beginning. Raises MemoryError."""
    del size  # Not reserved: the client may never send the rest.
    return bytearray(beginning)


def receive_value(fd: int, room: bytearray, start: int, end: int) -> int:
    if len(room) < end:
        room.extend(bytes(end - len(room)))
    return receive(fd, room, start, end)


def whole_value(room: bytearray) -> bytes:
    return bytes(room)


def send(fd: int, data: bytes | bytearray, start: int, end: int) -> int:
    try:
        with memoryview(data) as view, view[start:end] as part:
            return os.write(fd, part)
    except OSError as error:
        return -(error.errno or 1)


def send_pieces(fd: int, pieces: list[bytes | bytearray], start: int) -> int:
    """Send pieces without the first `start` bytes of the first; returns how many bytes were accepted."""
    views = [memoryview(piece) for piece in pieces[:PIECES_MOST]]
    views[0] = views[0][start:]
    try:
        return os.writev(fd, views)
    except OSError as error:
        return -(error.errno or 1)
    finally:
        for view in views:
            view.release()


def wait(descriptors: Any, room: Any, most: int) -> int:
    room[:] = descriptors.poll(0, most)
    return len(room)


def ready_fd(room: Any, number: int) -> int:
    return int(room[number][0])


def ready_kinds(room: Any, number: int) -> int:
    return int(room[number][1])
