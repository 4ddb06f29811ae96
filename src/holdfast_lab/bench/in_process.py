"""The longest event loop pause of calls with many entries in a program with a member: `python -m
holdfast_lab.bench.in_process`.

A watch runs in each turn of the loop and records this thread's processor time between two turns: the work of
the call, the member and Python's collector in one turn, without any other load of the machine. First with a
single member, which stores everything itself, then with two other members as separate processes.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click

from holdfast import Map, Member
from holdfast_lab.bench import report
from holdfast_lab.bench.run import ROOT
from holdfast_lab.processes.local_cluster import LocalCluster

AIM_MS = 20


class Watch:
    """In milliseconds of processor time."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._on = True
        self._last_ns = time.thread_time_ns()
        self._look()

    def _look(self) -> None:
        now_ns = time.thread_time_ns()
        self.longest_ms = max(self.longest_ms, (now_ns - self._last_ns) / 1e6)
        self._last_ns = now_ns
        if self._on:
            asyncio.get_running_loop().call_soon(self._look)

    async def stop(self) -> None:
        """Look once more, so that the last turn of the call counts."""
        await asyncio.sleep(0)
        self._on = False


def calls(on: Map[str, Any], entries: dict[str, Any]) -> dict[str, Callable[[], Awaitable[Any]]]:
    """In order: the last two leave no entries."""

    async def iterate() -> None:
        async for _ in on.entries():
            pass

    return {
        "put_all": lambda: on.put_all(entries),
        "get_all": lambda: on.get_all(entries),
        "keys": on.keys,
        "values": on.values,
        "entries": on.entries,
        "async for … in entries()": iterate,
        "size": on.size,
        "remove_all of a fifth": lambda: on.remove_all(list(entries)[::5]),
        "clear": on.clear,
    }


async def measured(seeds: list[str], count: int, rounds: int) -> dict[str, tuple[float, float]]:
    """For each call, the longest turn of all rounds in milliseconds, and its shortest total time in seconds."""
    entries = {f"key-{number:08d}": {"number": number, "text": "x" * 60} for number in range(count)}
    found: dict[str, tuple[float, float]] = {}
    async with Member(seeds=seeds, member_port=0, client_port=0) as member:
        await member.wait_safe()
        for _ in range(rounds):
            for name, call in calls(member.map("bench"), entries).items():
                gc.collect()
                begun_s = time.perf_counter()
                watch = Watch()
                kept = await call()
                await watch.stop()
                took_s = time.perf_counter() - begun_s
                longest_ms, shortest_s = found.get(name, (0.0, took_s))
                del kept  # The program's handling of the results is not measured.
                found[name] = max(longest_ms, watch.longest_ms), min(shortest_s, took_s)
    return found


@click.command()
@click.option(
    "--entries", default=50_000, show_default=True, help="Keys of 12 characters, dictionaries of 90 bytes."
)
@click.option("--rounds", default=3, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "docs" / "performance.md")
def main(entries: int, rounds: int, out: Path) -> None:
    """Measure the longest turn of the event loop during calls with many entries."""
    load = os.getloadavg()[0]
    alone = asyncio.run(measured([], entries, rounds))
    with LocalCluster(2) as cluster:
        among = asyncio.run(measured([cluster.members[0].member_address], entries, rounds))
    rows = [
        [
            name,
            f"{alone[name][0]:.1f}",
            f"{alone[name][1]:.2f}",
            f"{among[name][0]:.1f}",
            f"{among[name][1]:.2f}",
        ]
        for name in alone
    ]
    head = [
        f"{entries:,} entries",
        "alone: longest turn, ms",
        "all, s",
        "with two others: longest turn, ms",
        "all, s",
    ]
    text = "\n\n".join(
        [
            "## In process",
            "Made by `python -m holdfast_lab.bench.in_process`.",
            report.table(head, rows),
            f"* {report.machine(load)}; of {rounds} rounds the longest turns and the shortest times. Aim: {AIM_MS} ms.",
        ]
    )
    click.echo(text)
    report.write_part(out, "bench in process", text, "python -m holdfast_lab.bench.in_process")
    if max(longest_ms for found in (alone, among) for longest_ms, _ in found.values()) > AIM_MS:
        raise SystemExit(f"some turn took more than {AIM_MS} ms")


if __name__ == "__main__":
    main()
