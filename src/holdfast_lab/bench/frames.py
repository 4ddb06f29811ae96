"""Pre-encoded requests for both protocols: keys of 16 characters, and values of 100 by default."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import mmh3

from holdfast_lab.bench.load import Shape

KEY_BYTES = 16
VALUE_BYTES = 100
MAP = "bench"
PARTITION_SEED = 0x01000193
STRING_TYPE = -11

MAP_SET, MAP_GET, AUTHENTICATE = 0x010F00, 0x010200, 0x000100
WHOLE_MESSAGE, FINAL, BEGIN, END = 0xC000, 0x2000, 0x1000, 0x0800
NULL = struct.pack("<iH", 6, 0x0400)


def key_text(number: int) -> str:
    return f"key:{number:012d}"


def shuffled(count: int) -> list[int]:
    """Numbers of the keys in a random order that is the same in each run."""
    numbers = list(range(count))
    random.Random(271).shuffle(numbers)
    return numbers


# -- the Open Binary Client Protocol


def data(text: str) -> bytes:
    """A serialised string: no partition hash, type, length, characters."""
    raw = text.encode()
    return struct.pack(">iii", 0, STRING_TYPE, len(raw)) + raw


def partition_of(key: bytes, partitions: int) -> int:
    return abs(mmh3.hash(key[8:], PARTITION_SEED)) % partitions


def frame(payload: bytes, flags: int = 0) -> bytes:
    return struct.pack("<iH", len(payload) + 6, flags) + payload


def set_message(key: bytes, value: bytes, partition: int) -> bytes:
    """Without a time to live."""
    head = struct.pack("<iqiqq", MAP_SET, 1, partition, 1, -1)
    return frame(head, WHOLE_MESSAGE) + frame(MAP.encode()) + frame(key) + frame(value, FINAL)


def get_message(key: bytes, partition: int) -> bytes:
    head = struct.pack("<iqiq", MAP_GET, 1, partition, 1)
    return frame(head, WHOLE_MESSAGE) + frame(MAP.encode()) + frame(key, FINAL)


def sign_in_message(cluster: str, user: tuple[str, str] | None = None) -> bytes:
    """Client.authentication as the Python client sends it, with or without user name and password."""
    head = struct.pack("<iqi", AUTHENTICATE, 1, -1) + b"\x00" + random.randbytes(16) + b"\x01"
    credentials = b"".join(frame(part.encode()) for part in user) if user else NULL + NULL
    names = frame(cluster.encode()) + credentials + frame(b"PYH") + frame(b"5.7.0") + frame(b"bench")
    return b"CP2" + frame(head, WHOLE_MESSAGE) + names + frame(b"", BEGIN) + frame(b"", END | FINAL)


def answer_prefix(message_type: int, last_frame: bool) -> bytes:
    """The first bytes of a successful response: length, flags and type."""
    return struct.pack("<iHi", 19, WHOLE_MESSAGE | (FINAL if last_frame else 0), message_type | 1)


_KEY = data(key_text(0))


def grid_shape(kind: str, value_bytes: int = VALUE_BYTES) -> Shape:
    value = data("v" * value_bytes)
    if kind == "set":
        return Shape(len(set_message(_KEY, value, 0)), 19, answer_prefix(MAP_SET, last_frame=True))
    return Shape(len(get_message(_KEY, 0)), 19 + 6 + len(value), answer_prefix(MAP_GET, last_frame=False))


def write_grid_frames(
    kind: str, numbers: list[int], owners: list[int], folder: Path, value_bytes: int = VALUE_BYTES
) -> list[Path]:
    """A file of requests per member: `owners[partition]` is the index (0, 1, ...) of the member for a request."""
    pieces: list[list[bytes]] = [[] for _ in range(max(owners) + 1)]
    value = data("v" * value_bytes)
    for number in numbers:
        key = data(key_text(number))
        partition = partition_of(key, len(owners))
        message = set_message(key, value, partition) if kind == "set" else get_message(key, partition)
        pieces[owners[partition]].append(message)
    return [_write(folder / f"grid-{kind}-{index}.bin", part) for index, part in enumerate(pieces)]


# -- RESP

REDIS_WAIT = b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$4\r\n1000\r\n"


def redis_shape(kind: str, value_bytes: int = VALUE_BYTES) -> Shape:
    request = redis_message(kind, 0, value_bytes)
    if kind == "get":
        head = b"$%d\r\n" % value_bytes
        return Shape(len(request), len(head) + value_bytes + 2, head)
    answer = b"+OK\r\n:1\r\n" if kind == "set+wait" else b"+OK\r\n"
    return Shape(len(request), len(answer), answer)


def redis_message(kind: str, number: int, value_bytes: int) -> bytes:
    key = key_text(number).encode()
    if kind == "get":
        return b"*2\r\n$3\r\nGET\r\n$16\r\n%b\r\n" % key
    stored = b"*3\r\n$3\r\nSET\r\n$16\r\n%b\r\n$%d\r\n%b\r\n" % (key, value_bytes, b"v" * value_bytes)
    return stored + REDIS_WAIT if kind == "set+wait" else stored


def write_redis_frames(kind: str, numbers: list[int], folder: Path, value_bytes: int = VALUE_BYTES) -> Path:
    """`set+wait`: SET with WAIT for one replica."""
    return _write(
        folder / f"redis-{kind}.bin", [redis_message(kind, number, value_bytes) for number in numbers]
    )


def _write(path: Path, pieces: list[bytes]) -> Path:
    path.write_bytes(b"".join(pieces))
    return path
