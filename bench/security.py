"""What security costs on the data lane: a member with users and rules beside one without, in turns.

    python -m bench.security [--lives 6] [--rounds 6] [--seconds 0.5]

One member each, on the servers' core: two that are open, and one with users, whose clients have a rule for the map, or
may only read it. Two processes of the same program differ by more than what is looked for, by where their memory
happens to lie; so the members are started anew some times, and the second open one shows what is left of that. Told
are the medians of the rate and of the processor time of a request, and the median of its ratios to the first open
member of the same round. The data lane is measured alone first, in this process: reads of a map as the lane finds it
when everything is permitted, and when reads alone are.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import click

from bench import frames, systems
from bench.lane import OPERATIONS, Primary, buffers_of
from bench.load import Target, generate, generator_command
from bench.run import shape_of
from bench.systems import System
from holdfast.runtime.data_lane import data_lane
from holdfast.server.hazelcast.entries_cy import Served

BATCH = 100_000
CASES = (("get", 1), ("get", 32), ("set", 1), ("set", 32))
WRITER, READER = ("writer", "the password of the writer"), ("reader", "the password of the reader")
USERS = f"""
[users.writer]
passwords = ["{WRITER[1]}"]
roles = ["writer"]
[users.reader]
passwords = ["{READER[1]}"]
roles = ["reader"]
[roles.writer]
rules = ["map other read", "map {frames.MAP} read put remove", "cluster * status"]
[roles.reader]
rules = ["map {frames.MAP[:1]}* read", "cluster * status"]
"""
OPEN, AGAIN, PERMITTED, READING = (
    "without users",
    "another without users",
    "permitted by a rule",
    "reads alone permitted",
)

Found = dict[tuple[str, str, int], list[tuple[float, float]]]
"""Requests in a second, and microseconds of processor time for each, of every round of who, what and how many."""


@contextmanager
def running() -> Iterator[dict[str, System]]:
    """The members that are compared; the last is the one before it, with another client."""
    with ExitStack() as stack:
        off = stack.enter_context(systems.holdfast(1, 0, name=OPEN))
        again = stack.enter_context(systems.holdfast(1, 0, name=AGAIN))
        on = stack.enter_context(systems.holdfast(1, 0, name=PERMITTED, more=USERS, user=WRITER))
        reading = System(READING, on.pids, on.addresses, on.owners, user=READER)
        yield {OPEN: off, AGAIN: again, PERMITTED: on, READING: reading}


def measure(folder: Path, rounds: int, seconds: float, found: Found) -> None:
    """Adds what one life of the members shows: the rounds are told in the same order for all of them."""
    command, numbers = generator_command(folder / "build"), frames.shuffled(BATCH)
    with running() as compared:
        for system in list(compared.values())[:3]:
            _play(system, command, numbers, folder, "set", 1, count=BATCH)
        for turn in range(-1, rounds):
            for kind, depth in CASES:
                names = list(compared) if kind == "get" else [OPEN, AGAIN, PERMITTED]
                # Who comes first alternates: the machine has moods that last longer than a turn.
                for name in names if turn % 2 else reversed(names):
                    told = _play(compared[name], command, numbers, folder, kind, depth, seconds=seconds)
                    if turn >= 0:
                        found.setdefault((name, kind, depth), []).append(told)


def _play(
    system: System,
    command: tuple[str, ...],
    numbers: list[int],
    folder: Path,
    kind: str,
    depth: int,
    *,
    seconds: float = 0.0,
    count: int = 0,
) -> tuple[float, float]:
    files = system.write_frames(kind, numbers, folder)
    cpu = system.cpu_seconds()
    with system.targets(files) as targets:
        chosen: list[Target] = targets
        sample = generate(command, chosen, shape_of(kind, system), depth=depth, seconds=seconds, count=count)
    return sample.per_second, (system.cpu_seconds() - cpu) / sample.requests * 1e6


def _measure_lane(rounds: int) -> None:
    """Nanoseconds of an operation in `serve_entries`: the least of all rounds, in turns."""
    forms: tuple[Served, ...] = (frames.MAP, (frames.MAP,))
    for way in (data_lane("python"), data_lane()):
        primary = Primary(way, backups=0)
        primary.run(buffers_of("set", 32))
        for depth in (1, 32):
            buffers = buffers_of("get", depth)
            told = [[primary.run(buffers, form) / OPERATIONS for form in forms] for _ in range(rounds)]
            every, reads = (min(column) for column in zip(*told, strict=True))
            title = f"the {way.kind} lane, get, {depth} in a buffer"
            click.echo(
                f"{title:48} {every:8.1f} ns  reads alone {reads:8.1f} ns  {100 * (reads / every - 1):+6.1f} %"
            )


@click.command()
@click.option("--lives", default=6, show_default=True, help="How often the members are started.")
@click.option("--rounds", default=6, show_default=True, help="Of each life.")
@click.option("--seconds", default=0.5, show_default=True, help="Of each round of each case.")
def main(lives: int, rounds: int, seconds: float) -> None:
    """Measure what permissions cost."""
    load = os.getloadavg()[0]
    _measure_lane(lives * rounds)
    found: Found = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        for _ in range(lives):
            measure(Path(name), rounds, seconds, found)
    click.echo(
        f"load of the machine before: {load:.1f}; medians of {lives} lives, {rounds} rounds of {seconds:g} s, in turns"
    )
    for kind, depth in CASES:
        base = [cpu for _, cpu in found[OPEN, kind, depth]]
        for name in (OPEN, AGAIN, PERMITTED, READING):
            told = found.get((name, kind, depth))
            if told is not None:
                more = median(cpu / other for (_, cpu), other in zip(told, base, strict=True)) - 1
                cpu, rate = median(cpu for _, cpu in told), median(rate for rate, _ in told)
                title = f"{kind}, {depth} in flight, {name}"
                click.echo(f"{title:48} {rate:10,.0f} /s {cpu:8.2f} us  {100 * more:+6.1f} %")


if __name__ == "__main__":
    main()
