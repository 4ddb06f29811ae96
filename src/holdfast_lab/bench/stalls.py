"""The longest stalls of a member with millions of entries: `python -m holdfast_lab.bench.stalls`.

One member process is filled, once with plain entries and once with entries that have a time to live, and then
serves gets and sets as fast as one client can send them. The report has the maxima of the member's own stall
gauge by phase.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import click

from holdfast.client.blocking import Client
from holdfast_lab.bench import report
from holdfast_lab.bench.run import ROOT
from holdfast_lab.processes.local_cluster import LocalCluster

MAP = "stalls"
BATCH = 5_000
VALUE = b"v" * 100
LIFE_MS = 24 * 3600 * 1000
QUICK = 500_000
CONFIG = "[limits]\nmemory_bytes = 12_000_000_000\n"


@dataclass(frozen=True, slots=True)
class Stalls:
    """The longest stall of each phase of a run, in milliseconds, and the number of operations."""

    fill_ms: float
    fill_s: float
    load_ms: float
    operations: int
    idle_ms: float
    collections: int


def filled(client: Client, entries: int, ttl_ms: int) -> float:
    """Returns the seconds."""
    begun_s = time.monotonic()
    for first in range(0, entries, BATCH):
        keys = [b"%016d" % number for number in range(first, min(first + BATCH, entries))]
        client.put_columns(MAP, keys, [VALUE] * len(keys), ttl_ms=ttl_ms)
    return time.monotonic() - begun_s


def loaded(client: Client, entries: int, seconds: float, ttl_ms: int) -> int:
    """Returns the number of operations."""
    ends_s = time.monotonic() + seconds
    made = 0
    while time.monotonic() < ends_s:
        for number in range(made, made + 200):
            key = b"%016d" % (number * 7919 % entries)
            client.set(MAP, key, VALUE, ttl_ms=ttl_ms)
            client.get(MAP, key)
        keys = [b"%016d" % (number * 104_729 % entries) for number in range(made, made + 200)]
        client.put_columns(MAP, keys, [VALUE] * len(keys), ttl_ms=ttl_ms)
        made += 600
    return made


def measured(entries: int, seconds: float, ttl_ms: int) -> Stalls:
    with LocalCluster(1, CONFIG) as cluster:
        (member,) = cluster.members
        with Client(member.client_address, timeout_s=60) as client:

            def longest_ms(key: str = "longest_in_last_minute_ms") -> float:
                return float(getattr(client.status().stalls, key))

            fill_s = filled(client, entries, ttl_ms)
            fill_ms = longest_ms("longest_ms")
            # So that the last minute is under load.
            time.sleep(61)
            idle_ms = longest_ms()
            operations = loaded(client, entries, seconds, ttl_ms)
            load_ms = longest_ms()
        collections = member.log.read_text().count("the collector went through")
    return Stalls(fill_ms, fill_s, load_ms, operations, idle_ms, collections)


@click.command()
@click.option("--entries", default=5_000_000, show_default=True, help="Keys of 16 bytes, values of 100.")
@click.option("--quick", is_flag=True, help=f"{QUICK:,} entries.")
@click.option("--seconds", default=30.0, show_default=True, help="How long the load is, at most 55.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "docs" / "performance.md")
def main(entries: int, *, quick: bool, seconds: float, out: Path) -> None:
    """Measure the longest stalls of a large member's event loop."""
    load = os.getloadavg()[0]
    entries = QUICK if quick else entries
    rows = []
    for title, ttl_ms in (("plain", 0), ("with a time to live", LIFE_MS)):
        found = measured(entries, min(seconds, 55.0), ttl_ms)
        rows.append(
            [
                title,
                f"{found.fill_ms:.0f}",
                f"{entries / found.fill_s:,.0f}",
                f"{found.idle_ms:.0f}",
                f"{found.load_ms:.0f}",
                f"{found.operations / min(seconds, 55.0):,.0f}",
                str(found.collections),
            ]
        )
    text = "\n\n".join(
        [
            "## Stalls",
            "Made by `python -m holdfast_lab.bench.stalls`.",
            report.table(
                [
                    f"{entries:,} entries",
                    "longest stall, filling, ms",
                    "entries /s",
                    "at rest, ms",
                    "under load, ms",
                    "operations /s",
                    "long collections",
                ],
                rows,
            ),
            f"* {report.machine(load)}; {seconds:g} s of load. The aim is 20 ms under load.",
        ]
    )
    click.echo(text)
    report.write_part(out, "bench stalls", text, "python -m holdfast_lab.bench.stalls")


if __name__ == "__main__":
    main()
