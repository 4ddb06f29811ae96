"""Measures Holdfast and, where they are installed, Redis and Hazelcast with the same generator in interleaved rounds.

python -m holdfast_lab.bench            # about four minutes; writes docs/performance.md
python -m holdfast_lab.bench --quick    # under a minute; writes out/performance.md
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import click

from holdfast_lab.bench import frames, report, systems
from holdfast_lab.bench.load import Sample, Shape, core_seconds, cores, generate, generator_command
from holdfast_lab.bench.systems import System

ROOT = Path(__file__).parents[3]
BATCH = 96_000
"""Number of frames that are encoded at once; a multiple of every depth."""


@dataclass(frozen=True, slots=True)
class Case:
    title: str
    kind: str
    depth: int


SINGLE = [
    Case("get, one in flight", "get", 1),
    Case("set, one in flight", "set", 1),
    Case("get, 32 in flight", "get", 32),
    Case("set, 32 in flight", "set", 32),
]
REPLICATED = [
    Case("set with a sync backup, one in flight", "set", 1),
    Case("set with a sync backup, 32 in flight", "set", 32),
]


@dataclass(frozen=True, slots=True)
class Effort:
    """Duration, and so precision, of the measurement."""

    rounds: int
    seconds: float
    entries: int


FULL = Effort(rounds=5, seconds=2.0, entries=1_000_000)
QUICK = Effort(rounds=3, seconds=0.7, entries=200_000)


@dataclass(slots=True)
class Measured:
    samples: list[Sample] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    """Processor time of the servers per operation, in microseconds."""
    others: list[float] = field(default_factory=list)
    """The share of the servers' core that other processes used."""

    @property
    def per_second(self) -> float:
        return median(sample.per_second for sample in self.samples)

    @property
    def p50_us(self) -> float:
        return median(sample.p50_us for sample in self.samples)

    @property
    def p99_us(self) -> float:
        return median(sample.p99_us for sample in self.samples)

    @property
    def cpu_us_per_operation(self) -> float:
        return median(self.cpu_us)

    @property
    def others_share(self) -> float:
        return median(self.others)

    @property
    def generator_busy(self) -> float:
        return median(sample.generator_busy for sample in self.samples)


Results = dict[tuple[str, str], Measured]
"""By title of the case and name of the system."""


class Bench:
    def __init__(self, folder: Path, effort: Effort, connections: int = systems.CONNECTIONS) -> None:
        self.folder = folder
        self.connections = connections
        self.effort = effort
        self.command = generator_command(folder / "build")
        self.numbers = frames.shuffled(BATCH)

    def measure(self, cases: list[Case], running: list[System]) -> Results:
        """Measure all cases on all systems, round by round, so that a slow moment of the machine affects all."""
        files = {
            (case.kind, system.name): system.write_frames(_kind(case, system), self.numbers, self.folder)
            for case in cases
            for system in running
        }
        results: Results = {(case.title, system.name): Measured() for case in cases for system in running}
        for system in running:
            self.fill(system)
        for turn in range(-1, self.effort.rounds):  # turn -1 warms up and is not counted
            for case in cases:
                for system in running:
                    _progress(f"{case.title}: {system.name}, round {turn + 1} of {self.effort.rounds}")
                    shape = shape_of(_kind(case, system), system)
                    cpu, core, begun = system.cpu_seconds(), core_seconds(cores().server), time.monotonic()
                    with system.targets(files[case.kind, system.name], self.connections) as targets:
                        seconds = self.effort.seconds if turn >= 0 else system.warm_up_s
                        sample = generate(self.command, targets, shape, depth=case.depth, seconds=seconds)
                    if turn >= 0:
                        found = results[case.title, system.name]
                        found.samples.append(sample)
                        used = system.cpu_seconds() - cpu
                        others = core_seconds(cores().server) - core - used
                        found.cpu_us.append(used / sample.requests * 1e6)
                        found.others.append(max(0.0, others / (time.monotonic() - begun)))
        return results

    def bytes_per_entry(self, system: System) -> float:
        """Averaged over many."""
        before = system.resident_bytes()
        shape = shape_of("set", system)
        for start in range(0, self.effort.entries, BATCH):
            numbers = list(range(start, min(start + BATCH, self.effort.entries)))
            _progress(f"memory: {system.name}, {start + len(numbers):,} entries")
            self._store(system, numbers, shape)
        return (system.resident_bytes() - before) / self.effort.entries

    def fill(self, system: System, depth: int = 1) -> None:
        """`depth`: requests in flight on each connection."""
        self._store(system, self.numbers, shape_of("set", system), depth)

    def _store(self, system: System, numbers: list[int], shape: Shape, depth: int = 1) -> None:
        files = system.write_frames("set", numbers, self.folder)
        for index, file in enumerate(files):
            count = file.stat().st_size // shape.request_bytes
            with system.targets(files) as targets:
                generate(self.command, [targets[index]], shape, depth=depth, count=count)


def _kind(case: Case, system: System) -> str:
    """Redis waits for its replica only by a separate command."""
    return "set+wait" if system.waits and case.kind == "set" else case.kind


def shape_of(kind: str, system: System) -> Shape:
    return frames.redis_shape(kind) if system.is_redis else frames.grid_shape(kind)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)


@contextmanager
def _systems(members: int, backups: int) -> Iterator[list[System]]:
    with ExitStack() as stack:
        running = [stack.enter_context(systems.holdfast(members, backups))]
        if systems.redis_program():
            running.append(stack.enter_context(systems.redis(replicas=backups)))
        if members == 1 and not systems.hazelcast_problem():
            running.append(stack.enter_context(systems.hazelcast()))
        yield running


def redis_benchmark(system: System) -> dict[tuple[str, int], float]:
    """Rates by Redis's own tool, by kind and depth: a check of the generator. Empty if it is not installed."""
    found: dict[tuple[str, int], float] = {}
    for depth, count in ((1, 200_000), (32, 2_000_000)):
        command = [
            "redis-benchmark",
            "-p",
            str(system.addresses[0][1]),
            "-c",
            "50",
            "-n",
            str(count),
            "-d",
            "100",
        ]
        command += ["-t", "get,set", "-r", "100000", "-P", str(depth), "--csv"]
        try:
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return {}
        for line in told.splitlines():
            kind, _, rest = line.replace('"', "").partition(",")
            if kind.lower() in ("get", "set"):
                found[kind.lower(), depth] = float(rest.split(",")[0])
    return found


@click.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter rounds; a first look, not a figure to quote.")
@click.option(
    "--connections",
    type=click.IntRange(1, systems.MOST_CONNECTIONS),
    default=systems.CONNECTIONS,
    show_default=True,
    help="Connections of the generator; another number writes out/performance.md.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Where the report goes (Markdown).")
def main(quick: bool, connections: int, out: Path | None) -> None:
    """Measure Holdfast, Redis and Hazelcast on this machine."""
    effort = QUICK if quick else FULL
    usual = not quick and connections == systems.CONNECTIONS
    target = out or ROOT / ("docs" if usual else "out") / "performance.md"
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        bench = Bench(Path(name), effort, connections)
        memory: dict[str, float] = {}
        with _systems(members=1, backups=0) as running:
            for system in running[:2]:  # the heap of Java has the configured size
                memory[system.name] = bench.bytes_per_entry(system)
        with _systems(members=1, backups=0) as running:
            results = bench.measure(SINGLE, running)
            check = redis_benchmark(running[1]) if systems.redis_program() else {}
        with _systems(members=2, backups=1) as running:
            results |= bench.measure(REPLICATED, running)
    _progress("")
    page = report.Page(
        titles=[case.title for case in SINGLE + REPLICATED],
        results=results,
        memory=memory,
        check=check,
        entries=effort.entries,
        rounds=effort.rounds,
        seconds=effort.seconds,
        connections=connections,
        command="python -m holdfast_lab.bench"
        + (" --quick" if quick else "")
        + ("" if connections == systems.CONNECTIONS else f" --connections {connections}"),
    )
    page.show()
    page.write(target)
    click.echo(f"Written to {target}")
