"""Rates of a queue, a counter, a topic and a lock, beside Hazelcast and Redis with WAIT 1:
`python -m holdfast_lab.bench.structures`. About six minutes; writes a part of docs/performance.md.

    python -m holdfast_lab.bench.structures --rounds 1 --seconds 1 --no-write   # a trial

Raw frames on 50 connections, one request in flight on each, to one object of each kind; two members with one sync
backup. The systems take turns in each round, so ratios are of the same round.
"""

from __future__ import annotations

import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple
from uuid import UUID

import click
from hazelcast import HazelcastClient

from holdfast.core.model.collections import partition_of_name
from holdfast_lab.bench import java_load, report, systems
from holdfast_lab.bench.frames import FINAL, WHOLE_MESSAGE, data, frame
from holdfast_lab.bench.load import Sample, Shape, Target, generate, generator_command
from holdfast_lab.bench.run import ROOT
from holdfast_lab.bench.systems import System, holdfast

CONNECTIONS = 50
VALUE = "v" * 100
NAME = "bench"
FOREVER = -1
REQUESTS = 64
"""In each file; they are repeated."""
PREFILLED = 500_000
"""Items of Redis's list before it is measured: its length is a part of the answer, which must not become longer."""
MODULE = "holdfast_lab.bench.structures"


class Requests(NamedTuple):
    each: list[bytes]
    """Requests of one connection, all of one length."""
    prefix: bytes
    """The first bytes of each answer."""


class Place(NamedTuple):
    partition: int
    """The partition of the name, or of the key that is locked."""
    connection: int
    member: bytes = b""
    """UUID of the member as the protocol has it."""


class Case(NamedTuple):
    name: str
    grid: Callable[[Place], Requests]
    redis: Callable[[int], Requests]
    takes: bool = False
    """Each request takes an item that must be there before."""


def message(kind: int, partition: int, fixed: bytes, *parts: bytes) -> bytes:
    frames = [frame(struct.pack("<iqi", kind, 1, partition) + fixed, WHOLE_MESSAGE), *parts[:-1]]
    return b"".join(frames) + parts[-1]


def named(last: bool = False) -> bytes:
    return frame(NAME.encode(), FINAL if last else 0)


def empty_answer(kind: int) -> bytes:
    return struct.pack("<iHi", 19, WHOLE_MESSAGE | FINAL, kind + 1)


def offers(at: Place) -> Requests:
    fixed = struct.pack("<q", 0)
    one = message(0x030100, at.partition, fixed, named(), frame(data(VALUE), FINAL))
    return Requests([one] * REQUESTS, struct.pack("<iHi", 20, WHOLE_MESSAGE | FINAL, 0x030101))


def polls(at: Place) -> Requests:
    one = message(0x030500, at.partition, struct.pack("<q", 0), named(last=True))
    return Requests([one] * REQUESTS, struct.pack("<iHi", 19, WHOLE_MESSAGE, 0x030501))


def increments(at: Place) -> Requests:
    fixed = struct.pack("<q?", 1, False) + at.member
    one = message(0x1D0200, at.partition, fixed, named(), frame(b"", FINAL))
    return Requests([one] * REQUESTS, struct.pack("<iHi", 31, WHOLE_MESSAGE, 0x1D0201))


def publications(at: Place) -> Requests:
    one = message(0x040100, at.partition, b"", named(), frame(data(VALUE), FINAL))
    return Requests([one] * REQUESTS, empty_answer(0x040100))


def locks(at: Place) -> Requests:
    """Each connection locks and unlocks its own key. Readers ignore the eight bytes that make requests equally long."""
    key = frame(data(f"{at.connection:08}"), FINAL)
    each: list[bytes] = []
    for number in range(REQUESTS // 2):
        fixed = struct.pack("<qqq", at.connection, FOREVER, 2 * number)
        each.append(message(0x011000, at.partition, fixed, named(), key))
        fixed = struct.pack("<qqq", at.connection, 2 * number + 1, 0)
        each.append(message(0x011300, at.partition, fixed, named(), key))
    return Requests(each, empty_answer(0x011000)[:6])


def resp(*words: str) -> bytes:
    return f"*{len(words)}\r\n".encode() + b"".join(f"${len(word)}\r\n{word}\r\n".encode() for word in words)


WAIT = resp("WAIT", "1", "1000")


def commands(request: bytes, prefix: bytes) -> Callable[[int], Requests]:
    return lambda connection: Requests([request] * REQUESTS, prefix)


def redis_locks(connection: int) -> Requests:
    name = f"{connection:08}"
    release = resp("EVAL", "redis.call('DEL',KEYS[1]) return {ok='OK'}", "1", name)
    token = "t" * (len(release) - len(resp("SET", name, "", "NX", "PX", "30000")) - 1)
    acquire = resp("SET", name, token, "NX", "PX", "30000")
    assert len(acquire) == len(release), (len(acquire), len(release))
    return Requests([acquire + WAIT, release + WAIT] * (REQUESTS // 2), b"+OK\r\n:1\r\n")


CASES = (
    Case("queue, offer", offers, commands(resp("LPUSH", NAME, VALUE) + WAIT, b":")),
    Case("queue, poll", polls, commands(resp("RPOP", NAME) + WAIT, b"$100\r\n"), takes=True),
    Case("counter, add", increments, commands(resp("INCR", "n") + WAIT, b":1")),
    Case("topic, publish", publications, commands(resp("PUBLISH", NAME, VALUE), b":0\r\n")),
    Case("lock and unlock, each", locks, redis_locks),
)


class Loaded:
    """One system, with the connections and files of each case."""

    def __init__(self, system: System, folder: Path, members: list[bytes]) -> None:
        self.system = system
        self._folder = folder / system.name.replace(" ", "-")
        self._folder.mkdir()
        self._members = members
        self._runs = 0
        """The end of a run leaves keys locked: each run has others."""
        self._command = generator_command(ROOT / "out" / "bench")

    def run(self, case: Case, seconds: float, count: int = 0) -> Sample:
        self._runs += 1
        with ExitStack() as stack:
            targets, shape = [], Shape(0, 0, b"")
            answer_bytes = self._answer_bytes(case)
            for connection in range(CONNECTIONS):
                at, requests = self._requests(case, connection)
                file = self._folder / f"{connection}.bin"
                file.write_bytes(b"".join(requests.each))
                targets.append(
                    Target(file, [stack.enter_context(self.system.connect(self.system.addresses[at]))])
                )
                shape = Shape(len(requests.each[0]), answer_bytes, requests.prefix)
            return generate(self._command, targets, shape, depth=1, seconds=seconds, count=count)

    def _answer_bytes(self, case: Case) -> int:
        """Hazelcast's answers about a counter have a version for each member that has changed it."""
        at, requests = self._requests(case, CONNECTIONS)
        with self.system.connect(self.system.addresses[at]) as door:
            door.settimeout(5)
            door.sendall(requests.each[0])
            answer = bytearray(door.recv(1 << 16))
            door.settimeout(0.2)
            with suppress(TimeoutError):
                while piece := door.recv(1 << 16):
                    answer += piece
            if case.grid is locks:
                door.settimeout(5)
                door.sendall(requests.each[1])
                door.recv(1 << 16)
        if not answer.startswith(requests.prefix):
            raise RuntimeError(f"{self.system.name}, {case.name}: {bytes(answer[:400])!r}")
        return len(answer)

    def _requests(self, case: Case, connection: int) -> tuple[int, Requests]:
        connection += 100 * self._runs
        if self.system.is_redis:
            return 0, case.redis(connection)
        owners = self.system.owners
        partition = partition_of_name(NAME, len(owners))
        if case.grid is locks:
            key = data(f"{connection:08}")
            partition = systems.frames.partition_of(key, len(owners))
        at = owners[partition]
        return at, case.grid(Place(partition, connection, self._members[at]))

    def prepare(self) -> None:
        """Bring answers to their final length: Redis's length of a list, and Hazelcast's versions of both members."""
        if self.system.is_redis:
            fill = f"for i=1,{PREFILLED} do redis.call('LPUSH','{NAME}','{VALUE}') end redis.call('SET','n',1000000000)"
            systems.ask_redis(self.system.addresses[0][1], resp("EVAL", fill, "0"), b"$-1\r\n")
            return
        for address, member in zip(self.system.addresses, self._members, strict=True):
            with self.system.connect(address) as door:
                door.sendall(increments(Place(0, 0, member)).each[0])
                door.recv(1 << 16)
        time.sleep(3)


def uuids(system: System) -> list[bytes]:
    """UUIDs of the members as the protocol has them, in the order of their addresses."""
    client = HazelcastClient(cluster_members=[f"{host}:{port}" for host, port in system.addresses])
    try:
        by_port = {member.address.port: member.uuid for member in client.cluster_service.get_members()}
    finally:
        client.shutdown()
    return [raw(by_port[port]) for _, port in system.addresses]


def raw(uuid: UUID) -> bytes:
    return b"\0" + uuid.bytes[7::-1] + uuid.bytes[:7:-1]


@contextmanager
def running() -> Iterator[list[Loaded]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        started = [stack.enter_context(holdfast(2, 1))]
        if systems.redis_program() is not None:
            started.append(stack.enter_context(systems.redis(replicas=1, name="Redis, WAIT 1")))
        jar = java_load.hazelcast_jar()
        started.append(stack.enter_context(systems.hazelcast(heap="1g", members=2, backups=1, jar=jar)))
        loads = [Loaded(each, folder, [] if each.is_redis else uuids(each)) for each in started]
        for load in loads:
            load.prepare()
        yield loads


def measure(loads: list[Loaded], rounds: int, seconds: float) -> dict[tuple[str, str], list[Sample]]:
    found: dict[tuple[str, str], list[Sample]] = {}
    for load in loads:
        for case in CASES:
            if not case.takes:
                load.run(case, load.system.warm_up_s)
    for turn in range(rounds):
        for case in CASES:
            for load in loads:
                key = (case.name, load.system.name)
                offered = found.get((CASES[0].name, load.system.name))
                if case.takes:
                    assert offered is not None
                    # A take of each item that was offered before, and of none that was not.
                    count = int(offered[turn].requests * 0.9)
                    sample = load.run(case, 0, count)
                else:
                    sample = load.run(case, seconds)
                found.setdefault(key, []).append(sample)
    return found


def table(found: dict[tuple[str, str], list[Sample]], names: list[str]) -> str:
    ours, *others = names
    head = ["operation", f"{ours}, /s", "p50 / p99 µs"]
    for other in others:
        head += [f"{other}, /s", f"{ours} / {other}"]
    rows = []
    for case in CASES:
        mine = found[case.name, ours]
        p50, p99 = (median(getattr(each, name) for each in mine) for name in ("p50_us", "p99_us"))
        row = [case.name, f"{median(each.per_second for each in mine):,.0f}", f"{p50:,.0f} / {p99:,.0f}"]
        for other in others:
            theirs = found[case.name, other]
            ratios = [one.per_second / two.per_second for one, two in zip(mine, theirs, strict=True)]
            row += [
                f"{median(each.per_second for each in theirs):,.0f}",
                f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            ]
        rows.append(row)
    return report.table(head, rows)


METHOD = """
Two members with one sync backup, in memory, on one core, and the generator on another; 50 connections with one request
in flight on each, to one object of each kind (each connection locks its own key). Values have 100 characters. Redis has
one replica, and WAIT 1 follows each command except PUBLISH: LPUSH, RPOP, INCR, PUBLISH, SET NX PX and a script that
deletes. Hazelcast's counters are replicated later, and Holdfast's before the answer. Ratios are of the same round; in
brackets the lowest and the highest one.
"""


@click.command()
@click.option("--rounds", default=3, show_default=True)
@click.option("--seconds", default=3.0, show_default=True, help="Of each load.")
@click.option("--write/--no-write", default=True, show_default=True, help="Whether the page is updated.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "docs" / "performance.md")
def main(rounds: int, seconds: float, write: bool, out: Path) -> None:
    """Measure structures beside Hazelcast and Redis."""
    load_average = os.getloadavg()[0]
    with running() as loads:
        found = measure(loads, rounds, seconds)
        names = [load.system.name for load in loads]
    command = f"python -m {MODULE}"
    text = "\n\n".join(
        [
            "## Structures beside Hazelcast and Redis",
            f"Made by `{command}`.",
            table(found, names),
            f"* {report.machine(load_average)}; {rounds} rounds of {seconds:g} s.",
            METHOD.strip(),
        ]
    )
    click.echo(text)
    if write:
        report.write_part(out, "bench structures", text, command)


if __name__ == "__main__":
    main()
