"""The cost of a journal: `python -m holdfast_lab.bench.journal`. Writes a part of docs/performance.md; about five
minutes.

Two Holdfast members with one sync backup and each of the three settings of `maps.*.journal`, compared with
Redis and each of its append-only modes: alone, and with a replica and WAIT 1 after every SET. All in one run,
alternating.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click

from holdfast_lab.bench import report, systems
from holdfast_lab.bench.run import FULL, QUICK, ROOT, Bench, Case, Results
from holdfast_lab.bench.systems import System

CASES = [Case("set, one in flight", "set", 1), Case("set, 32 in flight", "set", 32)]
HEAD = ["system", "set /s, one in flight", "p50 / p99", "set /s, 32 in flight", "p50 / p99", "CPU per op"]
METHOD = """
Keys of 16 and values of 100 characters over 50 connections, by the generator of `make bench`; medians of the rounds, in
which all systems take turns. All servers of a system share one core, the generator has the other. Holdfast runs as two
members with one backup, so each write is answered when two processes have it (`sync`: when both have synced it to their
journals; they write to the same disk). Redis alone answers when one process has it. With a replica, every SET is
followed by WAIT 1 and counted when both are answered; `appendfsync always` then syncs on both, but WAIT does not wait
for the replica's disk. In ratios, the journal `off` stands beside `appendonly no`, `lazy` beside `everysec`, `sync`
beside `always`. CPU per op is for 32 in flight, of all servers of the system. Memory is the growth of the resident set
of one process without backups, divided by the entries, which were stored one in flight.
With a journal it contains the library that writes checkpoints, loaded for the first one, and its buffers: about 120 MB
whatever the number of entries. Without those a journalled entry takes 13 bytes more than another one.
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """A measured system. `level`: durability of an acknowledged write; systems of one level are compared."""

    name: str
    level: str
    redis: bool = False
    replicas: int = 0

    @contextmanager
    def running(self, *, alone: bool = False) -> Iterator[System]:
        """`alone`: one process without copies."""
        if self.redis:
            with systems.redis(0 if alone else self.replicas, APPEND[self.level], self.name) as system:
                yield system
        else:
            copies = 0 if alone else 1
            with systems.holdfast(1 + copies, copies, self.level, self.name) as system:
                yield system


APPEND = {"off": "no", "lazy": "everysec", "sync": "always"}
HOLDFAST = [Kind(f"Holdfast, journal {level}", level) for level in APPEND]
REDIS = [Kind(f"Redis, appendonly {append}", level, redis=True) for level, append in APPEND.items()]
REPLICA = [
    Kind(f"Redis + WAIT 1, appendonly {append}", level, redis=True, replicas=1)
    for level, append in APPEND.items()
]


def rates(bench: Bench, kinds: list[Kind]) -> Results:
    with ExitStack() as stack:
        return bench.measure(CASES, [stack.enter_context(kind.running()) for kind in kinds])


def memory(bench: Bench, kinds: list[Kind]) -> dict[str, float]:
    found: dict[str, float] = {}
    for kind in kinds:
        with kind.running(alone=True) as system:
            found[kind.name] = bench.bytes_per_entry(system)
    return found


def rate_rows(kinds: list[Kind], results: Results) -> list[list[str]]:
    """A row for each kind, under `HEAD`."""
    rows: list[list[str]] = []
    for kind in kinds:
        one, many = (results[case.title, kind.name] for case in CASES)
        rows.append(
            [
                kind.name,
                f"{one.per_second:,.0f}",
                report.times(one),
                f"{many.per_second:,.0f}",
                report.times(many),
            ]
        )
        rows[-1].append(f"{many.cpu_us_per_operation:.1f} us")
    return rows


def ratio_rows(kinds: list[Kind], results: Results) -> list[list[str]]:
    """Holdfast relative to systems of equal durability: one row per other kind, and one for the cost of the journal."""
    ours = {kind.level: kind for kind in kinds if not kind.redis}

    def share(kind: Kind, other: Kind) -> list[str]:
        return [
            f"{results[case.title, kind.name].per_second / results[case.title, other.name].per_second:.2f}"
            for case in CASES
        ]

    rows = [
        [f"{ours[kind.level].name} / {kind.name}", *share(ours[kind.level], kind)]
        for kind in kinds
        if kind.redis
    ]
    rows += [
        [f"{kind.name} / {ours['off'].name}", *share(kind, ours["off"])]
        for level, kind in ours.items()
        if level != "off"
    ]
    return rows


def remarks(results: Results) -> list[str]:
    found = []
    limited = [
        f"{title} on {name} ({one.generator_busy:.0%})"
        for (title, name), one in results.items()
        if one.generator_busy > report.LIMITED
    ]
    if limited:
        found.append(f"The generator itself was the limit for: {'; '.join(limited)}.")
    shares = sorted(one.others_share for one in results.values())
    if shares[-1] > report.DISTURBED:
        found.append(
            f"**Other processes took a part of the servers' core meanwhile**: {shares[0]:.0%} to {shares[-1]:.0%}, in "
            f"the median {median(shares):.0%}. So the rates are too low; ratios and processor times say more."
        )
    return found


@click.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter rounds; a first look, not a figure to quote.")
@click.option("--out", type=click.Path(path_type=Path), help="Page whose part is written.")
def main(quick: bool, out: Path | None) -> None:
    """Measure the cost of a journal, compared with Redis."""
    load = os.getloadavg()[0]
    effort = QUICK if quick else FULL
    kinds = HOLDFAST + (REDIS + REPLICA if systems.redis_program() else [])
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        bench = Bench(Path(name), effort)
        results = rates(bench, kinds)
        # The memory of a store does not depend on the sync mode, and without sync it fills sooner.
        held = memory(bench, [kind for kind in kinds if not kind.replicas and kind.level != "sync"])
    command = "python -m holdfast_lab.bench.journal" + (" --quick" if quick else "")
    parts = [
        "## What a journal costs",
        f"Made by `{command}`.",
        report.table(HEAD, rate_rows(kinds, results)),
        report.table(["ratio of set /s", "one in flight", "32 in flight"], ratio_rows(kinds, results)),
        report.table(
            ["bytes of memory per entry", "bytes"], [[kind, f"{size:.0f}"] for kind, size in held.items()]
        ),
    ]
    effort_told = f"{effort.rounds} rounds of {effort.seconds:g} s; memory with {effort.entries:,} entries"
    parts.append(
        "\n".join(f"* {told}" for told in [f"{report.machine(load)}; {effort_told}.", *remarks(results)])
    )
    target = out or ROOT / ("out" if quick else "docs") / "performance.md"
    text = "\n\n".join(parts) + "\n" + METHOD
    click.echo(text)
    report.write_part(target, "bench journal", text, "python -m holdfast_lab.bench.journal")
    click.echo(f"Written to {target}")


if __name__ == "__main__":
    main()
