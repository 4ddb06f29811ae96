"""The cost of requests through a member that does not own their keys, beside requests to the owners.

    python -m holdfast_lab.bench.forwarding [--rounds 3] [--seconds 1.5] [--backups 0] [--hazelcast]

Two members. "one door": all connections go to the first member, so half of the keys are its own and half are the
other's. "foreign": through the first member to keys of the second alone. "direct": keys of the member that is asked.
"smart routing": half of the connections go to each member, with its own keys. `--hazelcast` measures two members of
Hazelcast in the same rounds, by one door and by smart routing.
Each connection keeps a sliding window of requests in flight: as many new ones leave as responses have come.
"""

from __future__ import annotations

import os
import select
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from statistics import median

import click

from holdfast_lab.bench import frames, report, systems
from holdfast_lab.bench.frames import data, key_text, partition_of
from holdfast_lab.bench.load import cores
from holdfast_lab.bench.requests import CASES, PARTITIONS, Case, Connection, ask_many, clock_ns, request
from holdfast_lab.bench.systems import System

KEYS = 20_000
SET, GET = CASES[0], CASES[1]
SHAPES = ((1, 1), (50, 1), (4, 32))
"""Connections, and requests in flight on each."""
WAYS = ("direct", "foreign", "one door", "smart routing")
WAYS_BESIDE = ("one door", "smart routing")
"""Those in which Hazelcast is measured."""
PIECE = 1 << 18


@dataclass(frozen=True, slots=True)
class Sample:
    per_second: float
    cpu_us: float
    """Processor time of all members for each request."""


class Requests:
    """Encoded requests of one length, sent round and round."""

    def __init__(self, case: Case, numbers: list[int]) -> None:
        encoded = [request(case, number) for number in numbers]
        self.size = len(encoded[0])
        assert all(len(each) == self.size for each in encoded), "requests of one kind have one length"
        self._count = len(encoded)
        self._data = memoryview(b"".join(encoded))
        self._next = 0

    def take(self, count: int) -> memoryview:
        if self._next + count > self._count:
            self._next = 0
        begin, self._next = self._next, self._next + count
        return self._data[begin * self.size : self._next * self.size]


def answer_bytes(case: Case) -> int:
    return frames.grid_shape("get" if case is GET else "set").answer_bytes


def slide(
    system: System, targets: list[tuple[int, Requests]], window: int, size: int, seconds: float
) -> Sample:
    """`targets`: member and requests of each connection. `size`: bytes of a response."""
    with ExitStack() as stack:
        poll = stack.enter_context(select.epoll())
        open_connections = {}
        for member, requests in targets:
            connection = stack.enter_context(system.connect(system.addresses[member]))
            connection.setblocking(True)
            poll.register(connection.fileno(), select.EPOLLIN)
            open_connections[connection.fileno()] = [connection, requests, 0]
        cpu_ns = sum(map(clock_ns, system.pids))
        begun = time.monotonic()
        for connection, requests, _ in open_connections.values():
            connection.sendall(requests.take(window))
        answered = 0
        while time.monotonic() - begun < seconds:
            for fd, _ in poll.poll(5):
                each = open_connections[fd]
                connection, requests, left = each
                got = connection.recv(PIECE)
                if not got:
                    raise RuntimeError("the member closed a connection")
                count, each[2] = divmod(left + len(got), size)
                if count:
                    answered += count
                    connection.sendall(requests.take(count))
        took = time.monotonic() - begun
        used_us = (sum(map(clock_ns, system.pids)) - cpu_ns) / 1000
    return Sample(answered / took, used_us / answered)


def fill(system: System) -> list[list[int]]:
    """Store all keys at their owners. Returns the keys of each member."""
    owned: list[list[int]] = [[], []]
    for number in range(KEYS):
        owned[system.owners[partition_of(data(key_text(number)), PARTITIONS)]].append(number)
    # An absent value has a shorter response, which would be miscounted.
    for member, numbers_there in enumerate(owned):
        with system.connect(system.addresses[member]) as door:
            ask_many(Connection(door), [request(SET, number) for number in numbers_there])
    return owned


def targets_of(way: str, case: Case, connections: int, owned: list[list[int]]) -> list[tuple[int, Requests]]:
    """Member and requests of each connection."""
    if way == "smart routing":
        # One connection cannot be in two halves: it goes to the first member.
        members = [number % 2 for number in range(connections)]
        return [(member, Requests(case, owned[member])) for member in members]
    numbers = {"direct": owned[0], "foreign": owned[1], "one door": list(range(KEYS))}[way]
    return [(0, Requests(case, numbers)) for _ in range(connections)]


def measure(
    running: list[System], rounds: int, seconds: float
) -> dict[tuple[str, str, str, str], list[Sample]]:
    """The samples for each request, shape, system and way; the systems take turns."""
    owned = [fill(system) for system in running]
    found: dict[tuple[str, str, str, str], list[Sample]] = {}
    for turn in range(rounds + 1):
        for case, (connections, window) in product((SET, GET), SHAPES):
            for system, keys in zip(running, owned, strict=True):
                for way in WAYS if system is running[0] else WAYS_BESIDE:
                    targets = targets_of(way, case, connections, keys)
                    warm_up_s = 0 if turn else system.warm_up_s
                    sample = slide(system, targets, window, answer_bytes(case), seconds + warm_up_s)
                    if turn:
                        shape = f"{connections} of {window}"
                        found.setdefault((case.name, shape, system.name, way), []).append(sample)
    return found


@click.command()
@click.option("--rounds", default=3, show_default=True)
@click.option("--seconds", default=1.5, show_default=True)
@click.option("--backups", default=0, show_default=True)
@click.option("--hazelcast", "beside", is_flag=True, help="Measure Hazelcast in the same rounds.")
def main(rounds: int, seconds: float, backups: int, beside: bool) -> None:
    """Measure requests through one member, and direct ones."""
    load = os.getloadavg()[0]
    if beside and (problem := systems.hazelcast_problem()):
        raise click.ClickException(problem)
    os.sched_setaffinity(0, {cores().generator})
    with ExitStack() as stack:
        running = [stack.enter_context(systems.holdfast(2, backups, partitions=PARTITIONS))]
        if beside:
            running.append(stack.enter_context(systems.hazelcast(heap="2g", members=2, backups=backups)))
        found = measure(running, rounds, seconds)
    rows = []
    for (name, shape, system, way), samples in found.items():
        rate = median(each.per_second for each in samples)
        cpu = median(each.cpu_us for each in samples)
        smart = found[name, shape, system, "smart routing"]
        of_cpu = cpu / median(each.cpu_us for each in smart)
        of_rate = rate / median(each.per_second for each in smart)
        rows.append(
            [name, shape, system, way, f"{rate / 1000:.1f}", f"{of_rate:.2f}", f"{cpu:.1f}", f"{of_cpu:.1f}"]
        )
    head = [
        "request",
        "connections, each with requests in flight",
        "system",
        "way",
        "k/s",
        "of smart routing",
        "µs, both members",
        "times smart routing",
    ]
    click.echo(report.table(head, rows))
    click.echo(f"* {report.machine(load)}; {rounds} rounds of {seconds} s, {backups} backups.")


if __name__ == "__main__":
    main()
