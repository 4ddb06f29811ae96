"""The cost of a map's features: `python -m holdfast_lab.bench.features`, about five minutes. Writes into
docs/performance.md.

A single member with a plain map; then with a change stream, an entry listener, a client's near cache, a
journal; two members with a sync backup; and both backup and journal. For comparison Redis: alone, with an
append-only file, with a replica and WAIT 1, and with both; and on request Hazelcast: alone, with a listener, and with a
near cache. All in one run, alternating.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from holdfast_lab.bench import frames, report, systems
from holdfast_lab.bench.journal import remarks
from holdfast_lab.bench.run import FULL, QUICK, ROOT, Bench, Case, Effort, Results
from holdfast_lab.bench.systems import System

CASES = [Case("set, one in flight", "set", 1), Case("set, 32 in flight", "set", 32)]
HEAD = [
    "a map",
    "set /s, one in flight",
    "of bare",
    "set /s, 32 in flight",
    "of bare",
    "CPU per op, one / 32",
]
CHANGES_BYTES = 1 << 16
"""Size of each partition's change stream."""
METHOD = """
Keys of 16 and values of 100 characters over 50 connections, by the generator of `make bench`; medians of the rounds, in
which all systems take turns. All servers of a system share one core; the generator has the other, and so has the client
that listens or keeps a near cache. "CPU per op" is the processor time of all servers of the system. "of bare" is the
rate beside that of the same system's first row. Journals are `lazy`: acknowledged writes of the last
`persistence.sync_interval_ms` may be lost when power fails at all members, as with Redis's `appendfsync everysec`.
"""


@dataclass(frozen=True, slots=True)
class Use:
    """A map with the features that are enabled."""

    name: str
    journal: str = "off"
    backups: int = 0
    changes: bool = False
    client: str = ""
    """A client in addition to the generator: `listens`, or `remembers` in a near cache."""

    @contextmanager
    def running(self) -> Iterator[System]:
        """Members with such a map."""
        more = f"[maps.{frames.MAP}]\nchanges_bytes = {CHANGES_BYTES}\n" if self.changes else ""
        with ExitStack() as stack:
            system = stack.enter_context(
                systems.holdfast(1 + self.backups, self.backups, self.journal, self.name, more=more)
            )
            if self.client:
                stack.enter_context(_client(self.client, system))
            yield system


@dataclass(frozen=True, slots=True)
class BesideHazelcast:
    """A member of Hazelcast whose map has a feature."""

    name: str
    client: str = ""

    @contextmanager
    def running(self) -> Iterator[System]:
        with systems.hazelcast(heap="1g", name=self.name) as system, ExitStack() as stack:
            if self.client:
                stack.enter_context(_client(self.client, system))
            yield system


@dataclass(frozen=True, slots=True)
class Beside:
    """A Redis with guarantees comparable to those of one of the maps."""

    name: str
    append: str = "no"
    replicas: int = 0

    @contextmanager
    def running(self) -> Iterator[System]:
        with systems.redis(self.replicas, self.append, self.name) as system:
            yield system


USES = [
    Use("bare, one member"),
    Use("with a change stream", changes=True),
    Use("with an entry listener, no values", client="listens"),
    Use("with a client's near cache", client="remembers"),
    Use("with a journal", journal="lazy"),
    Use("with one sync backup", backups=1),
    Use("with one sync backup and a journal", journal="lazy", backups=1),
]
BESIDE = [
    Beside("Redis"),
    Beside("Redis, append-only file every second", append="everysec"),
    Beside("Redis, one replica and WAIT 1", replicas=1),
    Beside("Redis, one replica, WAIT 1 and the file", append="everysec", replicas=1),
]
BESIDE_HAZELCAST = [
    BesideHazelcast("Hazelcast"),
    BesideHazelcast("Hazelcast, an entry listener, no values", client="listens"),
    BesideHazelcast("Hazelcast, a client's near cache", client="remembers"),
]

CLIENT = """
import sys
from hazelcast import HazelcastClient

kind, address, cluster_name, name = sys.argv[1:]
near = {name: {"eviction_max_size": 10_000}} if kind == "remembers" else {}
client = HazelcastClient(cluster_name=cluster_name, cluster_members=[address], near_caches=near)
entries = client.get_map(name).blocking()
if kind == "listens":
    entries.add_entry_listener(include_value=False, added_func=lambda event: None, updated_func=lambda event: None)
entries.get("none")
print("ready", flush=True)
sys.stdin.read()
client.shutdown()
"""
"""The official Python client, on both systems."""


@contextmanager
def _client(kind: str, system: System) -> Iterator[None]:
    """A client on the generator's core, until the block ends."""
    host, port = system.addresses[0]
    command = [sys.executable, "-c", CLIENT, kind, f"{host}:{port}", systems.CLUSTER_NAME, frames.MAP]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", "the client could not connect"
        yield
        process.communicate("")


def rows(names: list[str], results: Results) -> list[list[str]]:
    """A row per system, under `HEAD`; the first of `names` is the reference."""
    bare = {case.title: results[case.title, names[0]].per_second for case in CASES}
    found: list[list[str]] = []
    for name in names:
        measured = [results[case.title, name] for case in CASES]
        row = [name]
        for case, one in zip(CASES, measured, strict=True):
            row += [f"{one.per_second:,.0f}", f"{one.per_second / bare[case.title]:.2f}"]
        found.append([*row, " / ".join(f"{one.cpu_us_per_operation:.1f}" for one in measured) + " us"])
    return found


def measure(effort: Effort, uses: list[Use], beside: list[Beside | BesideHazelcast]) -> Results:
    with ExitStack() as stack:
        bench = Bench(
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-"))), effort
        )
        return bench.measure(CASES, [stack.enter_context(one.running()) for one in [*uses, *beside]])


@click.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter rounds; a first look, not a figure to quote.")
@click.option(
    "--hazelcast",
    "with_hazelcast",
    is_flag=True,
    help="Measure Hazelcast, too. Its idle members disturb the others: look at processor times alone.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Page whose part is written.")
def main(quick: bool, with_hazelcast: bool, out: Path | None) -> None:
    """Measure the cost of backups, journals, change streams, listeners and near caches for a set."""
    load, effort = os.getloadavg()[0], QUICK if quick else FULL
    redis = BESIDE if systems.redis_program() else []
    if with_hazelcast and (problem := systems.hazelcast_problem()):
        raise click.ClickException(problem)
    hazelcast = BESIDE_HAZELCAST if with_hazelcast else []
    results = measure(effort, USES, [*redis, *hazelcast])
    parts = [
        "## What the features of a map cost",
        "Made by `python -m holdfast_lab.bench.features" + (" --quick`." if quick else "`."),
        report.table(HEAD, rows([use.name for use in USES], results)),
    ]
    groups = [names for names in ([one.name for one in redis], [one.name for one in hazelcast]) if names]
    parts += [report.table(["beside it", *HEAD[1:]], rows(names, results)) for names in groups]
    told = [f"{report.machine(load)}; {effort.rounds} rounds of {effort.seconds:g} s.", *remarks(results)]
    text = "\n\n".join([*parts, "\n".join(f"* {one}" for one in told)]) + "\n" + METHOD
    click.echo(text)
    target = out or ROOT / ("out" if quick else "docs") / "performance.md"
    report.write_part(target, "bench features", text, "python -m holdfast_lab.bench.features")
    click.echo(f"Written to {target}")


if __name__ == "__main__":
    main()
