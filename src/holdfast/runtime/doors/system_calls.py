"""The system calls of `poll_cy`, in plain Python. `system_calls.pxd` has the same for C, which the build puts in the
place of this module's import.

An error is its number, negative.
"""

from __future__ import annotations

import os
from typing import Any

READY_BYTES = 12
"""What one event takes in the room that `wait` is given."""
PIECES_MOST = 64
"""How many pieces are sent in one call."""


def receive(fd: int, room: bytearray, start: int, end: int) -> int:
    """Read what has come into this part of the room: how much it was; 0: nothing more will come."""
    try:
        with memoryview(room) as view, view[start:end] as part:
            return os.readv(fd, [part])
    except OSError as error:
        return -(error.errno or 1)


def taken(room: bytearray, size: int) -> bytes:
    """The first bytes of the room."""
    with memoryview(room) as view, view[:size] as part:
        return bytes(part)


def new_value(size: int, beginning: bytes) -> bytearray:
    """Room for a value that begins like this. Raises MemoryError."""
    del size  # zeros would be memory that nothing has come for: it grows
    return bytearray(beginning)


def receive_value(fd: int, room: bytearray, start: int, end: int) -> int:
    """`receive` for such a room."""
    if len(room) < end:
        room.extend(bytes(end - len(room)))
    return receive(fd, room, start, end)


def whole_value(room: bytearray) -> bytes:
    """The value, when the room is full. The room is not to be used any more."""
    return bytes(room)


def send(fd: int, data: bytes | bytearray, start: int, end: int) -> int:
    """Send this part of the data, or the beginning of it: how much it was."""
    try:
        with memoryview(data) as view, view[start:end] as part:
            return os.write(fd, part)
    except OSError as error:
        return -(error.errno or 1)


def send_pieces(fd: int, pieces: list[bytes | bytearray], start: int) -> int:
    """Send these, or the beginning of them, without the first bytes of the first: how much it was."""
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
    """What is ready now, up to so many: put into the room; how many these are."""
    room[:] = descriptors.poll(0, most)
    return len(room)


def ready_fd(room: Any, number: int) -> int:
    """The descriptor of one of these."""
    return int(room[number][0])


def ready_kinds(room: Any, number: int) -> int:
    """And the kinds of event, as bits."""
    return int(room[number][1])
