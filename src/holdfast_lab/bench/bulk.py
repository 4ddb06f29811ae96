"""Bulk writes of the same entries into Holdfast and Redis: keys of 16 bytes, values that differ between neighbours."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable, Iterator
from itertools import islice

from holdfast.client.blocking import Client
from holdfast_lab.processes.local_cluster import HOST

KEY_BYTES = 16
MAP = "bench"
AT_ONCE = 8_000
"""Entries per request."""
POOL = random.Random(271).randbytes(1 << 22)
"""Values are pieces of this pool, which is incompressible, so all bytes are written and read."""


def key_of(number: int) -> bytes:
    return b"%0*d" % (KEY_BYTES, number)


def value_of(number: int, size: int) -> bytes:
    """Values differ for numbers that differ by less than a million."""
    at = number * 7919 % (len(POOL) - size)
    return POOL[at : at + size]


def fill_holdfast(addresses: list[str], entries: Iterable[tuple[int, int]], size: int) -> int:
    """Store entries, given as (number of the key, number of the value); returns how many."""
    count = 0
    with Client(addresses, timeout_s=120) as client:
        for part in _parts(entries):
            keys = [key_of(key) for key, _ in part]
            client.put_columns(MAP, keys, [value_of(value, size) for _, value in part])
            count += len(part)
    return count


def fill_redis(port: int, entries: Iterable[tuple[int, int]], size: int) -> int:
    """The same for Redis."""
    count = 0
    with socket.create_connection((HOST, port)) as door:
        for part in _parts(entries):
            pieces = [
                b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"
                % (KEY_BYTES, key_of(key), size, value_of(value, size))
                for key, value in part
            ]
            door.sendall(b"".join(pieces))
            wanted = b"+OK\r\n" * len(part)
            answer = bytearray()
            while len(answer) < len(wanted):
                answer += door.recv(1 << 16)
            if answer != wanted:
                raise RuntimeError(f"redis-server answered {bytes(answer[:100])!r} to SET")
            count += len(part)
    return count


def same(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    return ((number, number) for number in numbers)


def missing(addresses: list[str], entries: dict[int, int], size: int) -> int:
    """The number of these entries (key number: value number) that a cluster lacks or holds with another value."""
    with Client(addresses, timeout_s=120) as client:
        return sum(client.get(MAP, key_of(key)) != value_of(value, size) for key, value in entries.items())


def _parts(entries: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    left = iter(entries)
    while part := list(islice(left, AT_ONCE)):
        yield part
