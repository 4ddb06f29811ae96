"""What transactions cost: `python -m bench.transactions`. Writes a part of docs/performance.md; about four minutes.

Transactions of 1, 2 and 6 entries beside as many puts outside of any; what a map that takes part costs the data lane
beside one that does not; and how long others wait when a member dies with a thousand open transactions.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import click

from bench import report, systems
from bench.run import FULL, QUICK, ROOT, Bench, Case
from holdfast import Member
from holdfast.config import load
from holdfast.demo.local_cluster import LocalCluster
from holdfast.errors import HoldfastError, RolledBack

ENTRIES = 100_000
SIZES = (1, 2, 6)
IN_FLIGHT = (1, 32)
SUSPECT_MS = 2000
OPEN = 1000
CONFIG = f"[cluster]\nheartbeat_ms = 200\nsuspect_after_ms = {SUSPECT_MS}\n[maps.default]\nbackups = 1\n"
CASES = [
    Case("set, one in flight", "set", 1),
    Case("set, 32 in flight", "set", 32),
    Case("get, 32 in flight", "get", 32),
]
METHOD = """
Three member processes with one backup, values of 100 characters, 100,000 keys. The client is a lite member in a process
of its own, so each operation goes to its partition's primary once. "One in flight": one after the other; "32": so many
tasks at a time. The puts outside of a transaction are sent together, as many as the transaction has entries.
Pessimistic ones lock each entry before they write it; optimistic ones read it first. Client and members share two
cores.
"""
Work = Callable[[Member, list[int]], Awaitable[object]]


async def plain(member: Member, keys: list[int]) -> None:
    """Puts outside of any transaction."""
    entries = member.map("bench")
    await asyncio.gather(*(entries.put(key, VALUE) for key in keys))


async def pessimistic(member: Member, keys: list[int]) -> None:
    """Puts that lock."""
    async with member.transaction() as transaction:
        for key in keys:
            await transaction.map("bench").put(key, VALUE)


async def optimistic(member: Member, keys: list[int]) -> None:
    """Puts that read, and are compared at the end."""
    async with member.transaction("serializable") as transaction:
        for key in keys:
            await transaction.map("bench").put(key, VALUE)


VALUE = "x" * 100
WORKS: dict[str, Work] = {"puts": plain, "pessimistic": pessimistic, "optimistic": optimistic}


async def rate(
    member: Member, work: Work, size: int, tasks: int, seconds: float
) -> tuple[float, list[float]]:
    """How often a second, and how long each took."""
    took: list[float] = []
    until_s = time.monotonic() + seconds

    async def one(number: int) -> None:
        draw = random.Random(number)
        while (begun_s := time.monotonic()) < until_s:
            try:
                await work(member, draw.sample(range(ENTRIES), size))
            except RolledBack:
                continue
            took.append(time.monotonic() - begun_s)

    begun_s = time.monotonic()
    await asyncio.gather(*(one(number) for number in range(tasks)))
    return len(took) / (time.monotonic() - begun_s), took


def client_of(cluster: LocalCluster) -> Member:
    """A lite member that joins these."""
    overrides = {
        "cluster.seeds": [member.member_address for member in cluster.alive],
        "cluster.heartbeat_ms": 200,
        "cluster.suspect_after_ms": SUSPECT_MS,
        "member.lite": True,
        "member.client_port": 0,
        "member.member_port": 0,
    }
    return Member(load(None, {}, overrides))


async def rates(cluster: LocalCluster, seconds: float, rounds: int) -> list[list[str]]:
    """A row for each kind and size."""
    found: dict[tuple[str, int, int], list[tuple[float, list[float]]]] = {}
    async with client_of(cluster) as member:
        for _ in range(rounds):
            for size in SIZES:
                for tasks in IN_FLIGHT:
                    for name, work in WORKS.items():
                        told = await rate(member, work, size, tasks, seconds)
                        found.setdefault((name, size, tasks), []).append(told)
    rows = []
    for size in SIZES:
        for name in WORKS:
            row = [f"{name}, {size} {'entry' if size == 1 else 'entries'}"]
            for tasks in IN_FLIGHT:
                rounds_of = found[name, size, tasks]
                times = sorted(each for _, took in rounds_of for each in took)
                beside = [
                    one / other
                    for (one, _), (other, _) in zip(rounds_of, found["puts", size, tasks], strict=True)
                ]
                row += [
                    f"{median(per_s for per_s, _ in rounds_of):,.0f}",
                    f"{1000 * times[len(times) // 2]:.2f} / {1000 * times[len(times) * 99 // 100]:.2f}",
                    f"{median(beside):.2f}",
                ]
            rows.append(row)
    return rows


def lane_rows(bench: Bench) -> list[list[str]]:
    """A map that takes part beside one that does not, in turns."""
    names = {"true": "takes part", "false": "takes no part"}
    with ExitStack() as stack:
        running = []
        for value, name in names.items():
            os.environ["HOLDFAST_MAPS_DEFAULT_TRANSACTIONAL"] = value
            running.append(stack.enter_context(systems.holdfast(1, 0, "off", name)))
        del os.environ["HOLDFAST_MAPS_DEFAULT_TRANSACTIONAL"]
        results = bench.measure(CASES, running)
    rows = []
    for case in CASES:
        yes, no = (results[case.title, name] for name in names.values())
        ratios = [one / other for one, other in zip(yes.cpu_us, no.cpu_us, strict=True)]
        rows.append(
            [
                case.title,
                f"{yes.per_second:,.0f}",
                f"{no.per_second:,.0f}",
                f"{yes.per_second / no.per_second:.3f}",
                f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
            ]
        )
    return rows


async def death(cluster: LocalCluster) -> tuple[float, float]:
    """Kill a member with a thousand open transactions: the longest wait of others, and until a lock is free again, both
    in seconds.
    """
    victim = cluster.alive[-1]
    waits: list[tuple[float, float]] = []
    async with client_of(cluster) as member, client_of(cluster) as doomed:
        entries = member.map("bench")
        held = [doomed.transaction() for _ in range(OPEN)]
        for number, transaction in enumerate(held):
            await transaction.__aenter__()
            await transaction.map("bench").set(f"held {number}", 1)
            await transaction.map("bench").set(f"held too {number}", 1)
        survivors = {each.uuid for each in cluster.alive if each is not victim}
        running = True

        async def others() -> None:
            number = 0
            while running:
                number += 1
                begun_s = time.monotonic()
                try:
                    await entries.put(number, VALUE)
                except HoldfastError:
                    continue
                waits.append((begun_s, time.monotonic() - begun_s))
                await asyncio.sleep(0.002)

        working = asyncio.create_task(others())
        await asyncio.sleep(1)
        killed_s = time.monotonic()
        await doomed.crash()
        assert survivors, "somebody goes on"
        await entries.put("held 0", 2)
        freed_s = time.monotonic() - killed_s
        await asyncio.sleep(2)
        running = False
        await working
    return max(wait for _, wait in waits), freed_s


@click.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter rounds; a first look, not a figure to quote.")
@click.option("--out", type=click.Path(path_type=Path), help="Page whose part is written.")
def main(quick: bool, out: Path | None) -> None:
    """Measure what transactions cost."""
    load_average = os.getloadavg()[0]
    effort = QUICK if quick else FULL
    with LocalCluster(3, CONFIG) as cluster:
        cluster.wait_safe(60)
        rows = asyncio.run(rates(cluster, 1.0 if quick else 2.0, 1 if quick else 3))
    with LocalCluster(3, CONFIG) as cluster:
        cluster.wait_safe(60)
        longest_s, freed_s = asyncio.run(death(cluster))
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        lane = lane_rows(Bench(Path(name), effort))
    command = "python -m bench.transactions" + (" --quick" if quick else "")
    head = ["transactions", "/s, one in flight", "p50 / p99 ms", "beside puts"]
    head += ["/s, 32 in flight", "p50 / p99 ms", "beside puts"]
    told = f"* A member that ran {OPEN:,} transactions with {2 * OPEN:,} locks was stopped at once. Puts of another "
    told += "one "
    told += f"waited {1000 * longest_s:.0f} ms at most. The first locked entry could be written {freed_s:.1f} s after "
    told += f"the stop (`cluster.suspect_after_ms` is {SUSPECT_MS} ms)."
    parts = [
        "## What transactions cost",
        f"Made by `{command}`.",
        report.table(head, rows),
        report.table(
            ["the data lane", "takes part /s", "takes no part /s", "ratio", "CPU per op, ratio"], lane
        ),
        "\n".join(
            [
                f"* {report.machine(load_average)}.",
                told,
            ]
        ),
    ]
    target = out or ROOT / ("out" if quick else "docs") / "performance.md"
    text = "\n\n".join(parts) + "\n" + METHOD
    click.echo(text)
    report.write_part(target, "bench transactions", text, "python -m bench.transactions")
    click.echo(f"Written to {target}")


if __name__ == "__main__":
    main()
