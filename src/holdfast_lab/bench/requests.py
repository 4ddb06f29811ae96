"""The processor time of one member for each request about single entries, and for each key of getAll and putAll.

    python -m holdfast_lab.bench.requests [--rounds 5] [--backups 1 | --zone 3]

Raw frames on one connection, one request in flight; the frames of a getAll or putAll, one for each partition, leave
together. All cases take turns in each round; the table has the medians, and how many times a `set` they are.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click

from holdfast_lab.bench import frames, report
from holdfast_lab.bench.frames import BEGIN, END, FINAL, data, frame, key_text, partition_of
from holdfast_lab.bench.run import ROOT
from holdfast_lab.bench.systems import System, holdfast, holdfast_zone

PARTITIONS = 271
KEYS = 2000
AT_ONCE = 100
"""Preparing requests that leave together."""
VALUE = data("v" * frames.VALUE_BYTES)
OTHER = data("w" * frames.VALUE_BYTES)
HEADER = struct.Struct("<iH")
FOREVER = -1


class Case(NamedTuple):
    name: str
    kind: int
    fixed: str
    """Codes of the fixed parameters behind the partition, for `struct`."""
    arguments: tuple[int, ...]
    parts: tuple[bytes, ...] = ()
    """Frames of data behind the key."""
    stored: bool = True


CASES = (
    Case("set", 0x010F00, "qq", (1, FOREVER), (VALUE,)),
    Case("get", 0x010200, "q", (1,)),
    Case("put", 0x010100, "qq", (1, FOREVER), (VALUE,)),
    Case("set with a time to live", 0x010F00, "qq", (1, 60_000), (VALUE,)),
    Case("containsKey", 0x010600, "q", (1,)),
    Case("remove", 0x010300, "q", (1,)),
    Case("delete", 0x010900, "q", (1,)),
    Case("putIfAbsent, absent", 0x010E00, "qq", (1, FOREVER), (VALUE,), stored=False),
    Case("putIfAbsent, present", 0x010E00, "qq", (1, FOREVER), (VALUE,)),
    Case("replace", 0x010400, "q", (1,), (VALUE,)),
    Case("replaceIfSame, same", 0x010500, "q", (1,), (VALUE, OTHER)),
    Case("replaceIfSame, other", 0x010500, "q", (1,), (OTHER, VALUE)),
    Case("removeIfSame, same", 0x010800, "q", (1,), (VALUE,)),
    Case("getEntryView", 0x011D00, "q", (1,)),
    Case("setTtl", 0x014300, "q", (60_000,)),
    Case("tryPut", 0x010C00, "qq", (1, 0), (VALUE,)),
    Case("putTransient", 0x010D00, "qq", (1, FOREVER), (VALUE,)),
    Case("evict", 0x011E00, "q", (1,)),
)
SET, DELETE = CASES[0], CASES[6]
GET_ALL, PUT_ALL = 0x012300, 0x012C00


def request(case: Case, number: int) -> bytes:
    key = data(key_text(number))
    fixed = struct.pack(
        f"<iqi{case.fixed}", case.kind, number, partition_of(key, PARTITIONS), *case.arguments
    )
    parts = [frame(part) for part in (key, *case.parts[:-1])] if case.parts else []
    return b"".join(
        [
            frame(fixed, frames.WHOLE_MESSAGE),
            frame(frames.MAP.encode()),
            *parts,
            frame(case.parts[-1] if case.parts else key, FINAL),
        ]
    )


def grouped(kind: int, numbers: list[int]) -> list[bytes]:
    """A getAll or putAll as clients send it: a message for each partition."""
    parts: dict[int, bytes] = {}
    for number in numbers:
        key = data(key_text(number))
        entry = frame(key) + (frame(VALUE) if kind == PUT_ALL else b"")
        partition = partition_of(key, PARTITIONS)
        parts[partition] = parts.get(partition, b"") + entry
    loads = b"\1" if kind == PUT_ALL else b""
    return [
        frame(struct.pack("<iqi", kind, 1, partition) + loads, frames.WHOLE_MESSAGE)
        + frame(frames.MAP.encode())
        + frame(b"", BEGIN)
        + entries
        + frame(b"", END | FINAL)
        for partition, entries in parts.items()
    ]


class Connection:
    def __init__(self, door: socket.socket) -> None:
        self._door = door
        self._data = bytearray()

    def ask(self, messages: list[bytes]) -> None:
        self._door.sendall(b"".join(messages))
        missing, at, first = len(messages), 0, True
        data = self._data
        while missing:
            while len(data) - at < HEADER.size or len(data) - at < HEADER.unpack_from(data, at)[0]:
                data += self._door.recv(1 << 16)
            length, flags = HEADER.unpack_from(data, at)
            if first and not struct.unpack_from("<i", data, at + 6)[0]:
                raise RuntimeError(f"the member rejected a request: {bytes(data[at : at + 400])!r}")
            at += length
            first = bool(flags & FINAL)
            missing -= first
        del data[:at]


def ask_many(connection: Connection, messages: list[bytes]) -> None:
    for at in range(0, len(messages), AT_ONCE):
        connection.ask(messages[at : at + AT_ONCE])


def cases(stored: list[int], absent: list[int]) -> Iterator[tuple[str, int, list[list[bytes]], bool]]:
    """Name, keys of each call, calls, and whether their keys are stored before."""
    for case in CASES:
        numbers = stored if case.stored else absent
        yield case.name, 1, [[request(case, number)] for number in numbers], case.stored
    for name, kind in (("getAll", GET_ALL), ("putAll", PUT_ALL)):
        for count in (10, 100):
            calls = [grouped(kind, stored[at : at + count]) for at in range(0, KEYS, count)]
            yield f"{name} of {count} keys, each key", count, calls * (count // 10), True


def clock_ns(pid: int) -> int:
    """Processor time of another process; its ticks in /proc are too coarse."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def measure(system: System, rounds: int) -> dict[str, list[float]]:
    """Microseconds for each request or key, one figure for each round. Only the first member is asked, and
    measured, for keys that it owns, or whose groups it leads.
    """
    found: dict[str, list[float]] = {}
    mine = [
        number
        for number in range(KEYS * 8)
        if system.owners[partition_of(data(key_text(number)), PARTITIONS)] == 0
    ]
    stored, absent = mine[:KEYS], mine[KEYS : 2 * KEYS]
    pid = system.pids[0]
    everything = list(cases(stored, absent))
    fill = [request(SET, number) for number in stored]
    clear = [request(DELETE, number) for number in absent]
    with system.connect(system.addresses[0]) as door:
        connection = Connection(door)
        for turn in range(rounds + 1):
            for name, count, calls, is_stored in everything:
                ask_many(connection, fill if is_stored else clear)
                begun_ns = clock_ns(pid)
                for call in calls:
                    connection.ask(call)
                if turn:
                    took_us = (clock_ns(pid) - begun_ns) / 1000 / count / len(calls)
                    found.setdefault(name, []).append(took_us)
    return found


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--backups", default=0, show_default=True, help="Backups of the map; a second member has them.")
@click.option(
    "--zone", type=click.IntRange(0), default=0, help="Members of a zone in which the map lives; 0: none."
)
@click.option("--write/--no-write", default=True, show_default=True, help="Whether the page is updated.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "docs" / "performance.md")
def main(rounds: int, backups: int, zone: int, write: bool, out: Path) -> None:
    """Measure the processor time of each request."""
    load = os.getloadavg()[0]
    if zone:
        running = holdfast_zone(zone, PARTITIONS, "zone", files=False)
    else:
        running = holdfast(1 + backups, backups, partitions=PARTITIONS)
    with running as system:
        found = measure(system, rounds)
    of_set = median(found[SET.name])
    of_map = f"a zone of {zone} members" if zone else f"{backups} backups"
    rows = [[name, f"{median(each):.1f}", f"{median(each) / of_set:.2f}"] for name, each in found.items()]
    text = "\n\n".join(
        [
            "## Processor time of each request",
            "Made by `python -m holdfast_lab.bench.requests`.",
            report.table(["request", "µs", "times a set"], rows),
            f"* {report.machine(load)}; {rounds} rounds of {KEYS:,} requests, {of_map}, one in flight.",
        ]
    )
    click.echo(text)
    if write and not zone:
        report.write_part(out, "bench requests", text, "python -m holdfast_lab.bench.requests")


if __name__ == "__main__":
    main()
