"""The gain of a second member on a machine with two cores, with a model for more: `python -m
holdfast_lab.bench.members`.

One member on a core, two on the same core, and two on a core each, alternating, with the generator of `bench`.
It has a core of its own except in the last case.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import click

from holdfast_lab.bench import frames, report, systems
from holdfast_lab.bench.load import cores, generate, generator_command
from holdfast_lab.bench.run import BATCH, ROOT, shape_of
from holdfast_lab.bench.systems import System

PART = "members"
CASES = [(kind, depth) for depth in (1, 32) for kind in ("get", "set")]
MODELLED = (1, 2, 4, 8, 16)


@dataclass(slots=True)
class Found:
    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)


Results = dict[tuple[str, str, int], Found]
"""By the system's name, kind and depth."""


def spread(system: System) -> None:
    for pid, core in zip(system.pids, (cores().server, cores().generator), strict=True):
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {core})


@contextmanager
def running(backups: int) -> Iterator[list[System]]:
    with ExitStack() as stack:
        one = stack.enter_context(systems.holdfast(1, 0, name="one member"))
        two = stack.enter_context(systems.holdfast(2, backups, name="two on one core"))
        apart = stack.enter_context(systems.holdfast(2, backups, name="two on two cores"))
        spread(apart)
        yield [one, two, apart]


def measure(folder: Path, rounds: int, seconds: float, backups: int) -> Results:
    command, numbers = generator_command(folder / "build"), frames.shuffled(BATCH)
    results: Results = {}
    with running(backups) as compared:
        for turn in range(-1, rounds):
            for kind, depth in CASES:
                for system in compared:
                    files = system.write_frames(kind, numbers, folder)
                    if turn < 0 and kind == "get":
                        store(system, command, numbers, folder)
                    cpu = system.cpu_seconds()
                    with system.targets(files) as targets:
                        lasting = seconds if turn >= 0 else 0.3
                        sample = generate(
                            command, targets, shape_of(kind, system), depth=depth, seconds=lasting
                        )
                    if turn >= 0:
                        found = results.setdefault((system.name, kind, depth), Found())
                        found.rates.append(sample.per_second)
                        found.cpu_us.append((system.cpu_seconds() - cpu) / sample.requests * 1e6)
    return results


def store(system: System, command: tuple[str, ...], numbers: list[int], folder: Path) -> None:
    shape = shape_of("set", system)
    files = system.write_frames("set", numbers, folder)
    for index, file in enumerate(files):
        with system.targets(files) as targets:
            count = file.stat().st_size // shape.request_bytes
            generate(command, [targets[index]], shape, depth=1, count=count)


def measured(results: Results) -> str:
    names = list(dict.fromkeys(name for name, _, _ in results))
    head = ["", *(f"{name} /s" for name in names), *(f"{name}: processor time" for name in names)]
    rows = []
    for kind, depth in CASES:
        found = [results[name, kind, depth] for name in names]
        rows.append(
            [f"{kind}, {'one' if depth == 1 else depth} in flight"]
            + [f"{median(one.rates):,.0f}" for one in found]
            + [f"{median(one.cpu_us):.1f} us" for one in found]
        )
    return report.table(head, rows)


def modelled(results: Results) -> str:
    """The rate of so many members on as many cores, if the processor is the only limit."""
    rows = []
    for kind, depth in CASES:
        alone = median(results["one member", kind, depth].cpu_us)
        shared = median(results["two on one core", kind, depth].cpu_us)
        rates = [count * 1e6 / (alone if count == 1 else shared) for count in MODELLED]
        rows.append(
            [f"{kind}, {'one' if depth == 1 else depth} in flight"] + [f"{rate:,.0f}" for rate in rates]
        )
    return report.table(["members = cores", *map(str, MODELLED)], rows)


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--seconds", default=1.0, show_default=True, help="Of each round of each case.")
@click.option("--backups", default=0, show_default=True, help="Sync backups where there are two members.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "docs" / "performance.md")
def main(rounds: int, seconds: float, backups: int, out: Path) -> None:
    """Measure one member and two, on one core and on two."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        results = measure(Path(name), rounds, seconds, backups)
    given = {"rounds": rounds, "seconds": seconds, "backups": backups}
    command = report.command("holdfast_lab.bench.members", given, {"rounds": 5, "seconds": 1.0, "backups": 0})
    text = f"""## More members than one

Made by `{command}`.

{measured(results)}

* {report.machine(load)}; medians of {rounds} rounds of {seconds:g} s, {backups} backups.

50 connections, shared out among the members; each request goes to its owner. With two members on two cores the
generator has no core of its own, and takes its share from both. So the processor time of an operation says more: it is
that of all members together, and a second member costs hardly anything where the figures are alike. From it comes a
model: as many members as cores, clients enough on other machines, requests spread evenly (271 partitions do that within
a few percent), and a network that is no limit. Operations a second:

{modelled(results)}
"""
    report.write_part(out, PART, text, "python -m holdfast_lab.bench.members")
    click.echo(text)


if __name__ == "__main__":
    main()
