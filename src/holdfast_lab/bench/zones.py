"""Maps in a zone compared with a map with two sync backups, and with etcd: `python -m
holdfast_lab.bench.zones`. Writes a part of docs/performance.md, or of out/performance.md with `--quick` or `--files`;
about five minutes.

Three members with 25 partitions: a map in a zone with three replicas, with and without files, and, on other
members, a map with two sync backups, with each setting of the journal. etcd (Debian's `etcd-server`) also runs
as three processes. All alternate.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Protocol

import click

from holdfast_lab.bench import report, systems
from holdfast_lab.bench.load import HERE, Sample, core_seconds, cores, generate
from holdfast_lab.bench.run import BATCH, FULL, QUICK, ROOT, Bench, Case, Effort, Measured, Results, shape_of
from holdfast_lab.bench.systems import CONNECTIONS, System, process_cpu_seconds
from holdfast_lab.processes.local_cluster import HOST, free_ports

MEMBERS = 3
PARTITIONS = 25
CASES = [
    Case("set, one in flight", "set", 1),
    Case("set, 32 in flight", "set", 32),
    Case("get, one in flight", "get", 1),
    Case("get, 32 in flight", "get", 32),
]
KINDS = (("zone", False, ("off",)), ("zone with files", True, ("lazy", "sync")))
"""Zones, whether their members keep files, and the journals of the maps that they are compared with. A group
has no lazy journal: with files, its acknowledged writes are durable.
"""
READY_S = 30.0
FILL_DEPTH = 32
"""With one request in flight, 200,000 writes to a zone with synced files take minutes."""
HEAD = ["system", *(f"{case.title}, /s" for case in CASES), "p50 / p99, one in flight", "CPU per op"]
METHOD = """
Keys of 16 and values of 100 characters over 50 connections; all servers of a system share one core, who loads them has
the other. Clients of Holdfast go to the owner of each partition, who leads its group. Reads of the zone are
linearizable, and so are etcd's. Members with files sync what a group promises before they answer, like the journal
`sync`, and like etcd; all are on the same disk. etcd is loaded by its own Go client (`bench/etcd`), 50 of them spread
over its members, with one or 32 goroutines each; that client costs more than the generator, so it may itself be the
limit. The times are of whole pieces for Holdfast, of single requests for etcd. CPU per op is that of all servers, for
set with 32 in flight.
"""


class Running(Protocol):
    name: str

    def fill(self) -> None: ...

    def sample(self, case: Case, seconds: float) -> Sample:
        """Load it for `seconds`."""

    def cpu_seconds(self) -> float:
        """Processor time of its servers so far."""


@dataclass(slots=True)
class Grid:
    bench: Bench
    system: System
    frames: dict[str, list[Path]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.system.name

    def fill(self) -> None:
        self.bench.fill(self.system, FILL_DEPTH)
        for kind in ("set", "get"):
            self.frames[kind] = self.system.write_frames(kind, self.bench.numbers, self.bench.folder)

    def sample(self, case: Case, seconds: float) -> Sample:
        with self.system.targets(self.frames[case.kind]) as targets:
            shape = shape_of(case.kind, self.system)
            return generate(self.bench.command, targets, shape, depth=case.depth, seconds=seconds)

    def cpu_seconds(self) -> float:
        return self.system.cpu_seconds()


@dataclass(slots=True)
class Etcd:
    """Three processes of etcd, and the program that loads them."""

    name: str
    command: list[str]
    pids: list[int]

    def fill(self) -> None:
        self._load("set", 1, 0.0)

    def sample(self, case: Case, seconds: float) -> Sample:
        return self._load(case.kind, case.depth, seconds)

    def cpu_seconds(self) -> float:
        return sum(process_cpu_seconds(pid) for pid in self.pids)

    def _load(self, kind: str, depth: int, seconds: float) -> Sample:
        arguments = [*self.command, kind, str(CONNECTIONS), str(depth), str(seconds), str(BATCH)]
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {cores().generator})
        try:
            done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        finally:
            os.sched_setaffinity(0, before)
        if done.returncode:
            raise RuntimeError(f"the load of etcd failed: {done.stderr.strip()}")
        return Sample(**json.loads(done.stdout))


def etcd_problem() -> str:
    """Why etcd cannot be measured here; empty if it can."""
    missing = [program for program in ("etcd", "go") if shutil.which(program) is None]
    return f"{' and '.join(missing)} not found: etcd is not measured" if missing else ""


@contextmanager
def etcd(folder: Path) -> Iterator[Etcd]:
    """Three members of etcd on the servers' core."""
    program = folder / "etcd-load"
    subprocess.run(["go", "build", "-o", program, "."], cwd=HERE / "etcd", check=True)
    ports = free_ports(2 * MEMBERS)
    clients = [f"http://{HOST}:{port}" for port in ports[:MEMBERS]]
    peers = [f"http://{HOST}:{port}" for port in ports[MEMBERS:]]
    everyone = ",".join(f"e{number}={peer}" for number, peer in enumerate(peers))
    with ExitStack() as stack:
        pids = []
        for number, (client, peer) in enumerate(zip(clients, peers, strict=True)):
            command = ["etcd", "--name", f"e{number}", "--data-dir", str(folder / f"etcd-{number}")]
            command += ["--listen-client-urls", client, "--advertise-client-urls", client]
            command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
            command += ["--initial-cluster", everyone, "--initial-cluster-state", "new"]
            with systems.server_core(), (folder / f"etcd-{number}.log").open("wb") as log:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            stack.callback(systems.end, process)
            pids.append(process.pid)
        found = Etcd("etcd", [str(program), ",".join(clients)], pids)
        deadline_s = time.monotonic() + READY_S
        while True:
            try:
                found.sample(CASES[0], 0.2)
                break
            except RuntimeError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.5)
        yield found


def measure(running: list[Running], effort: Effort) -> Results:
    results: Results = {(case.title, each.name): Measured() for case in CASES for each in running}
    for each in running:
        click.echo(f"fill: {each.name}", err=True)
        each.fill()
    for turn in range(-1, effort.rounds):  # turn -1 warms up and is not counted
        click.echo(f"round {turn + 1} of {effort.rounds}", err=True)
        for case in CASES:
            for each in running:
                cpu, core, begun = each.cpu_seconds(), core_seconds(cores().server), time.monotonic()
                sample = each.sample(case, effort.seconds if turn >= 0 else 0.3)
                if turn < 0:
                    continue
                used = each.cpu_seconds() - cpu
                others = core_seconds(cores().server) - core - used
                found = results[case.title, each.name]
                found.samples.append(sample)
                found.cpu_us.append(used / sample.requests * 1e6)
                found.others.append(max(0.0, others / (time.monotonic() - begun)))
    return results


def rows(names: list[str], results: Results) -> list[list[str]]:
    found = []
    for name in names:
        rates = [f"{results[case.title, name].per_second:,.0f}" for case in CASES]
        one, many = results[CASES[0].title, name], results[CASES[1].title, name]
        found.append([name, *rates, report.times(one), f"{many.cpu_us_per_operation:.1f} us"])
    return found


def ratios(pairs: list[tuple[str, str]], results: Results) -> list[list[str]]:
    """The ratio of two systems: the median of the rounds' ratios."""
    found = []
    for ours, theirs in pairs:
        row = [f"{ours} / {theirs}"]
        for case in CASES:
            mine, others = results[case.title, ours].samples, results[case.title, theirs].samples
            row.append(
                f"{median(a.per_second / b.per_second for a, b in zip(mine, others, strict=True)):.2f}"
            )
        found.append(row)
    return found


@click.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter rounds; a first look, not a figure to quote.")
@click.option(
    "--files",
    type=click.Choice(["both", "with", "without"]),
    default="both",
    show_default=True,
    help="Zones whose members keep files, and the maps that they are compared with, or the others.",
)
@click.option("--etcd/--no-etcd", "beside", default=True, help="Beside etcd, where it and Go are found.")
@click.option("--out", type=click.Path(path_type=Path), help="Page whose part is written.")
def main(quick: bool, files: str, beside: bool, out: Path | None) -> None:
    """Measure maps in a zone, compared with maps with two sync backups and with etcd."""
    load, effort = os.getloadavg()[0], QUICK if quick else FULL
    problem = etcd_problem() if beside else "etcd was left out"
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name, ExitStack() as stack:
        bench = Bench(Path(name), effort)
        running: list[Running] = []
        pairs = []
        backups = MEMBERS - 1
        kinds = [kind for kind in KINDS if files == "both" or kind[1] is (files == "with")]
        for zone, kept, journals in kinds:
            members = systems.holdfast_zone(MEMBERS, PARTITIONS, zone, files=kept)
            running.append(Grid(bench, stack.enter_context(members)))
            for journal in journals:
                plain = f"two sync backups, journal {journal}"
                pairs.append((zone, plain))
                copies = systems.holdfast(MEMBERS, backups, journal, plain, PARTITIONS)
                running.append(Grid(bench, stack.enter_context(copies)))
        if not problem:
            running.append(stack.enter_context(etcd(Path(name))))
            pairs += [(zone, "etcd") for zone, _, _ in kinds]
        results = measure(running, effort)
    remarks = [f"{report.machine(load)}; {effort.rounds} rounds of {effort.seconds:g} s."]
    remarks += [problem] if problem else []
    shares = sorted(one.others_share for one in results.values())
    if shares[-1] > report.DISTURBED:
        remarks.append(
            f"Other processes took {shares[0]:.0%} to {shares[-1]:.0%} of the servers' core meanwhile."
        )
    limited = [
        f"{title} on {each}" for (title, each), one in results.items() if one.generator_busy > report.LIMITED
    ]
    if limited:
        remarks.append(f"Who loads was itself the limit for: {'; '.join(limited)}.")
    text = "\n\n".join(
        [
            "## Maps in a zone",
            f"Made by `python -m holdfast_lab.bench.zones{' --quick' if quick else ''}`.",
            report.table(HEAD, rows([each.name for each in running], results)),
            report.table(["ratio", *(case.title for case in CASES)], ratios(pairs, results)),
            "\n".join(f"* {told}" for told in remarks),
        ]
    )
    text += "\n" + METHOD
    click.echo(text)
    target = out or ROOT / ("out" if quick or files != "both" else "docs") / "performance.md"
    report.write_part(target, "bench zones", text, "python -m holdfast_lab.bench.zones")
    click.echo(f"Written to {target}")


if __name__ == "__main__":
    main()
