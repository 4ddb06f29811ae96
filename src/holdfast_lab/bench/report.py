"""The figures of a run, as a table on the terminal and as a page of the documentation."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from holdfast.config import load as load_settings
from holdfast.runtime.data_lane import data_lane
from holdfast.runtime.doors.polled_door import sockets_way
from holdfast_lab.bench import systems
from holdfast_lab.bench.load import cores

if TYPE_CHECKING:
    from holdfast_lab.bench.run import Measured, Results

PART = "bench"
"""The part of the page that `make bench` writes; other benchmarks write other parts."""
REQUIRED = {
    "get, one in flight": 0.5,
    "set, one in flight": 0.5,
    "get, 32 in flight": 0.25,
    "set, 32 in flight": 0.25,
}
"""Minimum rates of plain Python relative to Redis."""

LIMITED = 0.97
"""From this share of its own core, the generator may limit a rate."""
DISTURBED = 0.05
"""From this share of the servers' core used by other processes, the page warns."""

BESIDE_HAZELCAST = [
    "measure",
    "Holdfast /s",
    "Hazelcast /s",
    "ratio",
    "Hazelcast p50 / p99",
    "CPU per op",
    "ratio",
]
HEAD = ["measure", "Holdfast /s", "Redis /s", "ratio", "Holdfast p50 / p99", "Redis p50 / p99", "CPU per op"]

PREFACE = """# Performance

What one member does per second beside Redis on the same machine, measured in one run by one load generator.

"""

METHOD = """
How it is measured. The generator (`src/holdfast_lab/bench/generator.c`) sends requests that were encoded ahead over
{connections} open connections, counts responses, and checks their beginning; it treats both systems alike,
in the Open Binary Client Protocol to one and in RESP to the other. Keys have 16 and values 100 characters. "One in
flight" means one request at a time on each connection; "32 in flight" means that 32 are sent in one piece and the
next 32 when all are answered, and the times are those of the whole piece. All servers of a system share one core, the
generator has another. The systems take turns in each round and the figures are medians of the rounds. "With a sync
backup" is two members with one backup each, answered when the backup holds the write, beside a Redis with one replica
where every SET is followed by WAIT 1 and counted when both are answered. Redis runs without persistence. Hazelcast
runs with the defaults of its release and no backup, in a heap of 4 GB, and is warmed up for five seconds before each
case. "CPU per op" is the processor time of all servers of the system for each operation (Holdfast / the other one).
Memory is the growth of the resident set divided by the entries stored.
"""


@dataclass(frozen=True, slots=True)
class Page:
    titles: list[str]
    results: Results
    memory: dict[str, float]
    check: dict[tuple[str, int], float]
    entries: int
    rounds: int
    seconds: float
    connections: int
    command: str

    def rows(self) -> list[list[str]]:
        found = [self._row(title) for title in self.titles]
        holdfast, redis = self.memory["Holdfast"], self.memory.get("Redis")
        ratio = f"{holdfast / redis:.2f}" if redis else "-"
        found.append(
            [
                "bytes of memory per entry",
                f"{holdfast:.0f}",
                f"{redis:.0f}" if redis else "-",
                ratio,
                "",
                "",
                "",
            ]
        )
        return found

    def beside_hazelcast(self) -> list[list[str]]:
        """The same relative to Hazelcast, under `BESIDE_HAZELCAST`; empty if it was not measured."""
        found = []
        for title in self.titles:
            ours, theirs = self.results[title, "Holdfast"], self.results.get((title, "Hazelcast"))
            if theirs is None:
                continue
            own_us, other_us = ours.cpu_us_per_operation, theirs.cpu_us_per_operation
            found.append(
                [
                    title,
                    f"{ours.per_second:,.0f}",
                    f"{theirs.per_second:,.0f}",
                    f"{ours.per_second / theirs.per_second:.1f}",
                    times(theirs),
                    f"{own_us:.1f} us / {other_us:.1f} us",
                    f"{own_us / other_us:.2f}",
                ]
            )
        return found

    def _row(self, title: str) -> list[str]:
        ours = self.results[title, "Holdfast"]
        theirs = self.results.get((title, "Redis"))
        required = REQUIRED.get(title)
        ratio = "-"
        if theirs:
            share = ours.per_second / theirs.per_second
            ratio = f"{share:.2f}" + (f" (needs {required:.2f})" if required and share < required else "")
        return [
            title,
            f"{ours.per_second:,.0f}",
            f"{theirs.per_second:,.0f}" if theirs else "-",
            ratio,
            times(ours),
            times(theirs) if theirs else "-",
            f"{ours.cpu_us_per_operation:.1f} us"
            + (f" / {theirs.cpu_us_per_operation:.1f} us" if theirs else ""),
        ]

    def remarks(self) -> list[str]:
        redis = (
            f"Redis {systems.redis_version()}" if "Redis" in self.memory else "Redis is not installed here"
        )
        redis += f", {hazelcast()}"
        machine = f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}"
        effort = f"{self.rounds} rounds of {self.seconds:g} s; memory with {self.entries:,} entries"
        where = f"servers on core {cores().server}, generator on core {cores().generator}"
        today = datetime.now(UTC).date().isoformat()
        python = f"Python {platform.python_version()}, data lane: {lane()}, sockets: {sockets()}"
        found = [f"{machine}, {python}, {redis}; {where}; {effort}; {today}."]
        limit = [
            f"{title} on {name} ({measured.generator_busy:.0%} of its core)"
            for (title, name), measured in self.results.items()
            if measured.generator_busy > LIMITED
        ]
        if limit:
            found.append("The generator itself was the limit for: " + "; ".join(limit) + ".")
        else:
            busiest = max(measured.generator_busy for measured in self.results.values())
            found.append(f"The generator was never the limit: at most {busiest:.0%} of its core was used.")
        disturbed = [
            f"{title} on {name} ({share:.0%})"
            for (title, name), measured in self.results.items()
            if (share := measured.others_share) > DISTURBED
        ]
        if disturbed:
            found.append(
                "**Other processes took a part of the servers' core meanwhile**, so these rates are too low; "
                "the processor times per operation still compare. It was so for: "
                + "; ".join(disturbed)
                + "."
            )
        if self.check:
            told = ", ".join(
                f"{kind} {'one' if depth == 1 else depth} in flight {rate:,.0f}/s"
                for (kind, depth), rate in sorted(
                    self.check.items(), key=lambda item: (item[0][1], item[0][0])
                )
            )
            found.append(f"Cross-check: `redis-benchmark` on its own says {told} for the same Redis.")
        return found

    def show(self) -> None:
        table = Table(*HEAD, title="Holdfast beside Redis", title_justify="left")
        for column in table.columns[1:]:
            column.justify = "right"
        for row in self.rows():
            table.add_row(*row)
        console = Console(width=None if Console().is_terminal else 150)
        console.print(table)
        if beside := self.beside_hazelcast():
            second = Table(*BESIDE_HAZELCAST, title="Holdfast beside Hazelcast", title_justify="left")
            for row in beside:
                second.add_row(*row)
            console.print(second)
        for remark in self.remarks():
            console.print(remark, highlight=False, markup=False)

    def write(self, target: Path) -> None:
        """The rest of an existing page stays."""
        remarks = "\n".join(f"* {remark}" for remark in self.remarks())
        text = (
            f"Made by `{self.command}` (`make bench`).\n\n"
            + table(HEAD, self.rows())
            + (f"\n\n{table(BESIDE_HAZELCAST, beside)}" if (beside := self.beside_hazelcast()) else "")
            + f"\n\n{remarks}\n{METHOD.format(connections=self.connections)}"
        )
        write_part(target, PART, text, "make bench")


def write_part(target: Path, part: str, text: str, command: str) -> None:
    """Write `text` between the marks of this part, or to the end of the page; the rest stays."""
    begin = f"<!-- {part}: begin (written by `{command}`) -->"
    end = f"<!-- {part}: end -->"
    target.parent.mkdir(parents=True, exist_ok=True)
    page = target.read_text(encoding="utf-8") if target.exists() else PREFACE
    # The command may have changed: match only the name of the part.
    before, mark, rest = page.partition(f"<!-- {part}: begin")
    after = rest.partition(end)[2] if mark else "\n"
    if not mark:
        before = before.rstrip("\n") + "\n\n"
    target.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", encoding="utf-8")


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown: the first column to the left, figures to the right."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def command(module: str, given: Mapping[str, object], usual: Mapping[str, object]) -> str:
    """The command that reproduces the figures, with the non-default options."""
    options = [
        f" --{name.replace('_', '-')} {value}" for name, value in given.items() if value != usual[name]
    ]
    return f"python -m {module}" + "".join(options)


def hazelcast() -> str:
    """Its version, or why it was not measured."""
    return systems.hazelcast_problem() or f"Hazelcast {systems.HAZELCAST}"


def lane() -> str:
    return data_lane(load_settings(None, os.environ).member.lane).kind


def sockets() -> str:
    chosen = load_settings(None, os.environ).member
    return sockets_way(chosen.sockets, chosen.lane).kind


def machine(load: float) -> str:
    """Machine, software and time of the run. `load`: of the machine before the run."""
    found = [f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}"]
    found.append(f"Python {platform.python_version()}, data lane: {lane()}, sockets: {sockets()}")
    if systems.redis_program():
        found.append(f"Redis {systems.redis_version()}")
    today = datetime.now(UTC).date().isoformat()
    return ", ".join(found) + f"; load before the run {load:.1f}; {today}"


def times(found: Measured) -> str:
    """p50 / p99 with one unit."""
    if found.p99_us < 10_000:
        return f"{found.p50_us:.0f} / {found.p99_us:.0f} us"
    return f"{found.p50_us / 1000:.1f} / {found.p99_us / 1000:.1f} ms"
