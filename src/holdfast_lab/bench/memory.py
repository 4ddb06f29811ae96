"""The memory of an entry, in a dictionary and in a table, and the effect of churn: `python -m
holdfast_lab.bench.memory`.

Each figure is the resident memory, according to the kernel, of a separate process, which stores entries in 271
partitions of a map without backups, as a member does. Members at rest are real ones.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from holdfast.core.store.map_state import MapState
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.runtime.data_lane import data_lane
from holdfast_lab.bench import frames, report
from holdfast_lab.bench.run import ROOT
from holdfast_lab.processes.local_cluster import LocalCluster

PARTITIONS = 271
KINDS = {"dictionary": "python", "table": "auto"}
LIFE_MS = 24 * 3600 * 1000
CASES = {
    "10 characters": (10, 0),
    "100 characters": (100, 0),
    "1,000 characters": (1000, 0),
    "100, time to live": (100, LIFE_MS),
}
"""Characters of the value, and its time to live in ms."""
EMPTY_MAPS = 20
CHURNED = 10
"""Overwrites of each entry, and replacements of a tenth of all entries."""
QUICK = 100_000
SETTLE_S = 3.0


def resident_bytes(process: int | str = "self") -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def key_of(number: int) -> bytes:
    """16 characters, as clients send them."""
    return frames.data(frames.key_text(number))[4:]


class Filled:
    """A process with entries, and its memory growth."""

    def __init__(self, kind: str) -> None:
        made = data_lane("python" if kind == "dictionary" else "auto")
        if kind == "table" and made.kind == "python":
            raise SystemExit(f"there is no table: {made.why}")
        self.copies = [PartitionCopy(number, 0, entries=made.entries) for number in range(PARTITIONS)]
        self.states: list[MapState] = [copy.open("bench").state for copy in self.copies]
        key_of(0)
        self._before = resident_bytes()

    def store(self, number: int, size: int, ttl_ms: int = 0) -> None:
        value = bytes(bytearray(frames.data("v" * size)[4:]))
        self.states[number % PARTITIONS].store(key_of(number), value, ttl_ms, 0, 0, time.monotonic_ns())

    def drop(self, number: int) -> None:
        self.states[number % PARTITIONS].drop(key_of(number))

    def grown(self) -> int:
        return resident_bytes() - self._before


def cost(kind: str, size: int, ttl_ms: int, entries: int) -> dict[str, float]:
    """Bytes per entry, in total and by part."""
    filled = Filled(kind)
    for number in range(entries):
        filled.store(number, size, ttl_ms)
    whole = filled.grown() / entries
    key, value = key_of(0), frames.data("v" * size)[4:]
    stored = filled.states[0].entries
    share = len(stored)
    if isinstance(stored, dict):
        parts = {
            "key": sys.getsizeof(key),
            "value": sys.getsizeof(value),
            "index": sys.getsizeof(stored) / share,
        }
    else:
        slots = sum(slots for slots, _ in stored.shape()[0])  # type: ignore[attr-defined]
        parts = {"key": len(key), "value": len(value) + 8, "index": 8 * slots / share}
    return {"whole": whole, **parts, "else": whole - sum(parts.values())}


def empty(kind: str) -> dict[str, float]:
    """Bytes of an empty map in a partition."""
    filled = Filled(kind)
    for copy in filled.copies:
        for number in range(EMPTY_MAPS):
            copy.open(f"map-{number}")
    return {"whole": filled.grown() / EMPTY_MAPS / PARTITIONS}


def churn(kind: str, entries: int) -> dict[str, float]:
    """Resident bytes per byte of stored keys and values, in the order of the steps."""
    filled, draw = Filled(kind), random.Random(1)
    numbers = list(range(entries))

    def ratio() -> float:
        held = sum(
            sum(map(len, state.entries)) + sum(map(len, state.entries.values())) for state in filled.states
        )
        return filled.grown() / held

    def size() -> int:
        return draw.randrange(10, 1000)

    found: dict[str, float] = {}
    for number in numbers:
        filled.store(number, size())
    found["filled"] = ratio()
    for _ in range(CHURNED * entries):
        filled.store(draw.choice(numbers), size())
    found["overwritten"] = ratio()
    following = entries
    for _ in range(CHURNED * 10):
        for at in draw.sample(range(entries), entries // 10):
            filled.drop(numbers[at])
            numbers[at] = following
            filled.store(following, size())
            following += 1
    found["replaced"] = ratio()
    draw.shuffle(numbers)
    for number in numbers[entries // 10 :]:
        filled.drop(number)
    found["nine tenths removed"] = ratio()
    for number in numbers[entries // 10 :]:
        filled.store(number, size())
    found["filled again"] = ratio()
    return found


WORK: dict[str, Callable[..., dict[str, float]]] = {"cost": cost, "empty": empty, "churn": churn}


def apart(work: str, *arguments: object) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast_lab.bench.memory", "--one", json.dumps([work, *arguments])],
        stdout=subprocess.PIPE,
        check=True,
        cwd=ROOT,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def at_rest(lane: str) -> float:
    """Resident megabytes of a single member without entries."""
    with LocalCluster(1, f'[member]\nlane = "{lane}"\n') as cluster:
        time.sleep(SETTLE_S)
        return resident_bytes(cluster.members[0].process.pid) / 1e6


def costs(entries: int) -> str:
    rows = []
    for title, (size, ttl_ms) in CASES.items():
        for kind in KINDS:
            found = apart("cost", kind, size, ttl_ms, entries)
            rows.append([f"{title}, {kind}", *(f"{number:.0f}" for number in found.values())])
    return report.table(
        ["value, and what it is kept in", "bytes of an entry", "key", "value", "index", "else"], rows
    )


def churned(entries: int) -> str:
    found = {kind: apart("churn", kind, entries) for kind in KINDS}
    rows = [[kind, *(f"{number:.2f}" for number in told.values())] for kind, told in found.items()]
    return report.table(["resident bytes for each byte held", *next(iter(found.values()))], rows)


@click.command()
@click.option("--entries", default=1_000_000, show_default=True)
@click.option("--quick", is_flag=True, help=f"{QUICK:,} entries.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "docs" / "performance.md")
@click.option("--one", default="", hidden=True)
def main(entries: int, *, quick: bool, out: Path, one: str) -> None:
    """Measure the memory of entries."""
    if one:
        work, *arguments = json.loads(one)
        click.echo(json.dumps(WORK[work](*arguments)))
        return
    load = os.getloadavg()[0]
    entries = QUICK if quick else entries
    rest = ", ".join(f"{at_rest(lane):.0f} MB with a {kind}" for kind, lane in KINDS.items())
    none = ", ".join(f"{apart('empty', kind)['whole']:.0f} bytes with a {kind}" for kind in KINDS)
    text = "\n\n".join(
        [
            "## Memory of entries",
            "Made by `python -m holdfast_lab.bench.memory`.",
            costs(entries),
            churned(entries // 5),
            "\n".join(
                [
                    (
                        f"* {entries:,} entries, keys of 16 characters, {PARTITIONS} partitions; 8 bytes of each "
                        "key and value are type and length. Else: what allocators add, and times to live."
                    ),
                    (
                        f"* Churn: {entries // 5:,} entries with values of 10 to 1,000 characters; each is overwritten "
                        f"{CHURNED} times, then a tenth of them is replaced by others {CHURNED * 10} times."
                    ),
                    f"* A map without entries costs in each partition that it has been opened in: {none}.",
                    f"* A member alone at rest: {rest}.",
                    f"* {report.machine(load)}.",
                ]
            ),
        ]
    )
    click.echo(text)
    report.write_part(out, "bench memory", text, "python -m holdfast_lab.bench.memory")


if __name__ == "__main__":
    main()
