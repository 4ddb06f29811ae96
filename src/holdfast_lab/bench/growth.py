"""Rates as functions of value size, connections and entries: `python -m holdfast_lab.bench.growth`.

One member of each system on the servers' core, the generator of `bench` on the other. At each point of a curve
all systems alternate, so that a slow moment affects all. Tables are written to docs/performance.md, with a
picture.
"""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import click

from holdfast_lab.bench import frames, report, systems
from holdfast_lab.bench.load import Sample, Shape, generate, generator_command
from holdfast_lab.bench.run import ROOT
from holdfast_lab.bench.systems import CONNECTIONS, System

PART = "growth"
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
CONNECTION_COUNTS = (10, 50, 200, 900, 3_000, 10_000)
ENTRIES = (10_000, 100_000, 1_000_000, 10_000_000)
FRAME_BYTES = 64_000_000
"""Maximum size of the requests of one file."""
FRAMES_MOST = 96_000
FILL_AT_ONCE = 500_000
KINDS = ("get", "set")

METHOD = """
One member or server of each system on one core, no backup, no files; the generator on another core. Where the table
says nothing else there are 50 connections with one request in flight on each, values of 100 characters, and 96,000
entries. The systems take turns; the figures are operations a second, medians of {rounds} rounds of {seconds:g} s,
and in brackets the lowest and the highest. Of more entries 96,000 are asked for, drawn from all of them.
"""


@dataclass(slots=True)
class Point:
    samples: dict[str, list[Sample]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def rates(self, kind: str) -> list[float]:
        return [sample.per_second for sample in self.samples[kind]]

    def told(self, kind: str) -> str:
        """Median, minimum and maximum of the rounds."""
        rates = self.rates(kind)
        return f"{median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"

    def p99_us(self, kind: str) -> float:
        return median(sample.p99_us for sample in self.samples[kind])


Curve = dict[int, dict[str, Point]]
"""By abscissa, then by system."""


@dataclass(frozen=True, slots=True)
class Growth:
    folder: Path
    rounds: int
    seconds: float

    def play(
        self,
        running: list[System],
        *,
        value_bytes: int = frames.VALUE_BYTES,
        connections: int = CONNECTIONS,
        entries: int = FRAMES_MOST,
    ) -> dict[str, Point]:
        """Measure one point of a curve: store the entries, then read and write, alternating."""
        count = max(64, min(FRAMES_MOST, FRAME_BYTES // value_bytes, entries))
        step = max(1, entries // count)
        numbers = [number * step for number in frames.shuffled(count)]
        command = generator_command(self.folder / "build")
        points = {system.name: Point() for system in running}
        for system in running:
            file = system.write_frames("set", numbers, self.folder, value_bytes)
            with system.targets(file) as targets:
                generate(command, targets, shape(system, "set", value_bytes), depth=1, count=count)
        for turn in range(-1, self.rounds):
            for kind in KINDS:
                for system in running:
                    file = system.write_frames(kind, numbers, self.folder, value_bytes)
                    seconds = self.seconds if turn >= 0 else system.warm_up_s
                    with system.targets(file, connections) as targets:
                        wanted = shape(system, kind, value_bytes)
                        sample = generate(command, targets, wanted, depth=1, seconds=seconds)
                    if turn >= 0:
                        points[system.name].samples[kind].append(sample)
        return points

    def fill(self, running: list[System], first: int, last: int) -> None:
        command = generator_command(self.folder / "build")
        for start in range(first, last, FILL_AT_ONCE):
            numbers = list(range(start, min(start + FILL_AT_ONCE, last)))
            for system in running:
                file = system.write_frames("set", numbers, self.folder)
                with system.targets(file) as targets:
                    # Each connection sends 50 at a time, and could skip the last ones of a file: hence one by one.
                    generate(command, targets, shape(system, "set"), depth=1, count=len(numbers))


def shape(system: System, kind: str, value_bytes: int = frames.VALUE_BYTES) -> Shape:
    made = frames.redis_shape if system.is_redis else frames.grid_shape
    return made(kind, value_bytes)


@contextmanager
def all_systems() -> Iterator[list[System]]:
    with ExitStack() as stack:
        running = [stack.enter_context(systems.holdfast(1, 0))]
        if systems.redis_program():
            running.append(stack.enter_context(systems.redis()))
        if not systems.hazelcast_problem():
            running.append(stack.enter_context(systems.hazelcast("8g")))
        yield running


def curves(growth: Growth, entries: tuple[int, ...]) -> dict[str, Curve]:
    found: dict[str, Curve] = {"value": {}, "connections": {}, "entries": {}}
    with all_systems() as running:
        for size in SIZES:
            click.echo(f"values of {size:,} bytes")
            found["value"][size] = growth.play(running, value_bytes=size)
    with all_systems() as running:
        for count in CONNECTION_COUNTS:
            click.echo(f"{count:,} connections")
            found["connections"][count] = growth.play(running, connections=count)
    with all_systems() as running:
        before = 0
        for count in entries:
            click.echo(f"{count:,} entries")
            growth.fill(running, before, count)
            before = count
            found["entries"][count] = growth.play(running, entries=count)
    return found


TITLES = {"value": "bytes of a value", "connections": "connections", "entries": "entries"}
LINES = {"Holdfast": "-o", "Redis": "--s", "Hazelcast": ":^"}


def tables(found: dict[str, Curve]) -> str:
    parts = []
    for what, curve in found.items():
        names = list(next(iter(curve.values())))
        head = [TITLES[what]] + [f"{name}: {kind}" for kind in KINDS for name in names]
        head += [f"{name}: p99 of {kind}, us" for kind in KINDS for name in names]
        rows = [
            [f"{at:,}"]
            + [points[name].told(kind) for kind in KINDS for name in names]
            + [f"{points[name].p99_us(kind):,.0f}" for kind in KINDS for name in names]
            for at, points in curve.items()
        ]
        parts.append(f"**{TITLES[what].capitalize()}.**\n\n" + report.table(head, rows))
    return "\n\n".join(parts)


def draw(found: dict[str, Curve], target: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "holdfast"
    figure, places = plt.subplots(len(KINDS), len(found), figsize=(12, 6.5), sharey="col")
    for column, (what, curve) in enumerate(found.items()):
        for row, kind in enumerate(KINDS):
            place = places[row][column]
            for name in next(iter(curve.values())):
                rates = [median(points[name].rates(kind)) for points in curve.values()]
                place.plot(list(curve), rates, LINES[name], label=name)
            place.set_xscale("log")
            place.set_yscale("log")
            place.set_xlabel(TITLES[what])
            place.set_ylabel(f"{kind} /s")
            place.grid(visible=True, which="both", alpha=0.2)
    places[0][0].legend()
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})


@click.command()
@click.option("--rounds", default=3, show_default=True)
@click.option("--seconds", default=1.0, show_default=True, help="Of each round of each case.")
@click.option("--quick", is_flag=True, help="At most 1,000,000 entries, one short round; nothing to quote.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "docs" / "performance.md")
def main(rounds: int, seconds: float, quick: bool, out: Path) -> None:
    """Measure the growth of rates with values, connections and entries."""
    if quick:
        rounds, seconds, out = 1, 0.3, ROOT / "out" / "performance.md"
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        found = curves(Growth(Path(name), rounds, seconds), ENTRIES[:-1] if quick else ENTRIES)
    out.parent.mkdir(parents=True, exist_ok=True)
    draw(found, out.parent / "growth.svg")
    text = f"""## How rates grow

Made by `python -m holdfast_lab.bench.growth`.

![Rates by size of values, connections and entries](growth.svg)

{tables(found)}

* {report.machine(load)}; {report.hazelcast()}.
{METHOD.format(rounds=rounds, seconds=seconds)}"""
    report.write_part(out, PART, text, "python -m holdfast_lab.bench.growth")
    click.echo(f"Written to {out}")


if __name__ == "__main__":
    main()
