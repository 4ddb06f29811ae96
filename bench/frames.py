"""Requests encoded ahead, for both protocols: keys of 16 and values of 100 characters."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import mmh3

from bench.load import Shape

KEY_BYTES = 16
VALUE_BYTES = 100
MAP = "bench"
PARTITION_SEED = 0x01000193
STRING_TYPE = -11

MAP_SET, MAP_GET, AUTHENTICATE = 0x010F00, 0x010200, 0x000100
WHOLE_MESSAGE, FINAL, BEGIN, END = 0xC000, 0x2000, 0x1000, 0x0800
NULL = struct.pack("<iH", 6, 0x0400)


def key_text(number: int) -> str:
    """The `number`th key."""
    return f"key:{number:012d}"


def shuffled(count: int) -> list[int]:
    """The numbers of the keys in an order without pattern, the same in each run."""
    numbers = list(range(count))
    random.Random(271).shuffle(numbers)
    return numbers


# -- the Open Binary Client Protocol


def data(text: str) -> bytes:
    """A string as it is serialised: no partition hash, type, length, characters."""
    raw = text.encode()
    return struct.pack(">iii", 0, STRING_TYPE, len(raw)) + raw


def partition_of(key: bytes, partitions: int) -> int:
    """Where a serialised key lives."""
    return abs(mmh3.hash(key[8:], PARTITION_SEED)) % partitions


def frame(payload: bytes, flags: int = 0) -> bytes:
    """One frame of a message."""
    return struct.pack("<iH", len(payload) + 6, flags) + payload


def set_message(key: bytes, value: bytes, partition: int) -> bytes:
    """Map.set without a time to live."""
    head = struct.pack("<iqiqq", MAP_SET, 1, partition, 1, -1)
    return frame(head, WHOLE_MESSAGE) + frame(MAP.encode()) + frame(key) + frame(value, FINAL)


def get_message(key: bytes, partition: int) -> bytes:
    """Map.get."""
    head = struct.pack("<iqiq", MAP_GET, 1, partition, 1)
    return frame(head, WHOLE_MESSAGE) + frame(MAP.encode()) + frame(key, FINAL)


def sign_in_message(cluster: str) -> bytes:
    """Client.authentication without a user, as the Python client sends it."""
    head = struct.pack("<iqi", AUTHENTICATE, 1, -1) + b"\x00" + random.randbytes(16) + b"\x01"
    names = frame(cluster.encode()) + NULL + NULL + frame(b"PYH") + frame(b"5.7.0") + frame(b"bench")
    return b"CP2" + frame(head, WHOLE_MESSAGE) + names + frame(b"", BEGIN) + frame(b"", END | FINAL)


def answer_prefix(message_type: int, last_frame: bool) -> bytes:
    """Length, flags and type with which a good answer begins."""
    return struct.pack("<iHi", 19, WHOLE_MESSAGE | (FINAL if last_frame else 0), message_type | 1)


_KEY, _VALUE = data(key_text(0)), data("v" * VALUE_BYTES)
SET_SHAPE = Shape(len(set_message(_KEY, _VALUE, 0)), 19, answer_prefix(MAP_SET, last_frame=True))
GET_SHAPE = Shape(len(get_message(_KEY, 0)), 19 + 6 + len(_VALUE), answer_prefix(MAP_GET, last_frame=False))


def write_grid_frames(kind: str, numbers: list[int], owners: list[int], folder: Path) -> list[Path]:
    """A file of requests for each member: `owners[partition]` says which member (0, 1, ...) a request goes to."""
    pieces: list[list[bytes]] = [[] for _ in range(max(owners) + 1)]
    for number in numbers:
        key = data(key_text(number))
        partition = partition_of(key, len(owners))
        message = set_message(key, _VALUE, partition) if kind == "set" else get_message(key, partition)
        pieces[owners[partition]].append(message)
    return [_write(folder / f"grid-{kind}-{index}.bin", part) for index, part in enumerate(pieces)]


# -- RESP

REDIS_GET = Shape(len(b"*2\r\n$3\r\nGET\r\n$16\r\n\r\n") + KEY_BYTES, VALUE_BYTES + 8, b"$100\r\n")
REDIS_SET = Shape(len(b"*3\r\n$3\r\nSET\r\n$16\r\n\r\n$100\r\n\r\n") + KEY_BYTES + VALUE_BYTES, 5, b"+OK\r\n")
REDIS_WAIT = b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$4\r\n1000\r\n"
REDIS_SET_WAIT = Shape(REDIS_SET.request_bytes + len(REDIS_WAIT), 9, b"+OK\r\n:1\r\n")


def write_redis_frames(kind: str, numbers: list[int], folder: Path) -> Path:
    """A file of GET, SET, or SET with WAIT for one replica (`set+wait`)."""
    pieces: list[bytes] = []
    for number in numbers:
        key = key_text(number).encode()
        if kind == "get":
            pieces.append(b"*2\r\n$3\r\nGET\r\n$16\r\n%b\r\n" % key)
            continue
        pieces.append(b"*3\r\n$3\r\nSET\r\n$16\r\n%b\r\n$100\r\n%b\r\n" % (key, b"v" * VALUE_BYTES))
        if kind == "set+wait":
            pieces[-1] += REDIS_WAIT
    return _write(folder / f"redis-{kind}.bin", pieces)


def _write(path: Path, pieces: list[bytes]) -> Path:
    path.write_bytes(b"".join(pieces))
    return path
