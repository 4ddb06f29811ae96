"""The cost of transactions: `python -m holdfast_lab.bench.transactions`. Writes a part of docs/performance.md; about
four minutes.

Transactions of 1, 2 and 6 entries compared with as many plain puts; the cost of a transactional map on the data
lane compared with another map, also with open transactions of other clients; and how long others wait when a
member dies with a thousand of them.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median
from typing import Self

import click

from holdfast import Member
from holdfast.client.connection import Connection, Credentials
from holdfast.client_core.routing import parse_addresses
from holdfast.config import load
from holdfast.core.model.operations import Op, Request, Value
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    OperateIn,
    TransactionFate,
    TransactionOrder,
)
from holdfast.errors import HoldfastError, RolledBack
from holdfast.wire import own
from holdfast.wire.values import to_stored
from holdfast_lab.bench import report, systems
from holdfast_lab.bench.run import FULL, QUICK, ROOT, Bench, Case
from holdfast_lab.processes.local_cluster import LocalCluster

ANSWER_S = 60.0
ENTRIES = 100_000
SIZES = (1, 2, 6)
IN_FLIGHT = (1, 32)
SUSPECT_MS = 2000
OPEN = 1000
WRITERS = 8
CONFIG = f"[cluster]\nheartbeat_ms = 200\nsuspect_after_ms = {SUSPECT_MS}\n[maps.default]\nbackups = 1\n"
CASES = [
    Case("set, one in flight", "set", 1),
    Case("set, 32 in flight", "set", 32),
    Case("get, 32 in flight", "get", 32),
]
METHOD = f"""
Three member processes with one backup, values of 100 characters, 100,000 keys. The client is a lite member in a process
of its own, so each operation goes to its partition's primary once. "One in flight": one after the other; "32": so many
tasks at a time. The puts outside of a transaction are sent together, as many as the transaction has entries.
Pessimistic ones lock each entry before they write it; optimistic ones read it first. Client and members share two
cores. The data lane: one member without backups on a core of its own, beside a map that takes no part; with open
transactions that hold two locks each, of other entries. A member that dies: one of the three is killed
(`suspect_after_ms` is {SUSPECT_MS}, but a connection that ends is noticed at once); puts of eight tasks of the lite
member go on, also to partitions of the dead one.
"""
Work = Callable[[Member, list[int]], Awaitable[object]]


async def plain(member: Member, keys: list[int]) -> None:
    entries = member.map("bench")
    await asyncio.gather(*(entries.put(key, VALUE) for key in keys))


async def pessimistic(member: Member, keys: list[int]) -> None:
    """Puts that lock."""
    async with member.transaction() as transaction:
        for key in keys:
            await transaction.map("bench").put(key, VALUE)


async def optimistic(member: Member, keys: list[int]) -> None:
    """Puts that read, and are validated at commit."""
    async with member.transaction("serializable") as transaction:
        for key in keys:
            await transaction.map("bench").put(key, VALUE)


VALUE = "x" * 100
WORKS: dict[str, Work] = {"puts": plain, "pessimistic": pessimistic, "optimistic": optimistic}


async def rate(
    member: Member, work: Work, size: int, tasks: int, seconds: float
) -> tuple[float, list[float]]:
    """Transactions per second, and the duration of each."""
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
    """A lite member that joins this cluster."""
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
    """A transactional map compared with another one, alternating."""
    kinds = [
        ("takes no part", "false", 0),
        ("takes part", "true", 0),
        (f"and {OPEN:,} are open", "true", OPEN),
    ]
    with ExitStack() as stack:
        running = []
        for name, value, count in kinds:
            os.environ["HOLDFAST_MAPS_DEFAULT_TRANSACTIONAL"] = value
            running.append(stack.enter_context(systems.holdfast(1, 0, "off", name)))
            host, port = running[-1].addresses[0]
            stack.enter_context(Held(f"{host}:{port}", count))
        del os.environ["HOLDFAST_MAPS_DEFAULT_TRANSACTIONAL"]
        results = bench.measure(CASES, running)
    rows = []
    for case in CASES:
        no, *others = (results[case.title, name] for name, _, _ in kinds)
        row = [case.title, f"{no.per_second:,.0f}"]
        for yes in others:
            ratios = [one / other for one, other in zip(yes.cpu_us, no.cpu_us, strict=True)]
            row += [
                f"{yes.per_second / no.per_second:.3f}",
                f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
            ]
        rows.append(row)
    return rows


class Held:
    """Transactions that a member runs for one connection, each with two locks, and that are never ended."""

    def __init__(self, address: str, count: int) -> None:
        self._connection = Connection(parse_addresses(address)[0], Credentials(), ANSWER_S)
        for number in range(count):
            transaction = self._ask(BeginTransaction())
            assert isinstance(transaction, bytes)
            for key in (f"held {number}", f"held too {number}"):
                self._ask(OperateIn(transaction, Request(Op.SET, "bench", [0], to_stored(key), to_stored(1))))

    def _ask(self, order: TransactionOrder) -> Value:
        number = self._connection.next_number()
        self._connection.post(own.OrderTransaction(number, order))
        self._connection.wait(number, ANSWER_S)
        answer = self._connection.collect(number, own.TransactionSays).answer
        assert answer.fate is TransactionFate.DONE, answer
        return answer.value

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


@dataclass
class Death:
    """Waits of others after a member was killed, in seconds."""

    detected: float
    """From the kill until the others removed it."""
    longest: float
    """The longest wait of any put."""
    beyond: float
    """The longest wait after the removal, of puts that waited for it."""
    freed: float
    """From the kill until the first locked entry could be written."""


async def death(cluster: LocalCluster, count: int) -> Death:
    """Kill a data member with `count` open transactions."""
    victim = cluster.alive[-1]
    waits: list[tuple[float, float]] = []
    async with client_of(cluster) as member:
        entries = member.map("bench")
        seen = len(member.status().members)
        with Held(victim.client_address, count):
            running = True

            async def others(number: int) -> None:
                while running:
                    number += WRITERS
                    begun_s = time.monotonic()
                    with suppress(HoldfastError):
                        await entries.put(number, VALUE)
                    waits.append((begun_s, time.monotonic()))
                    await asyncio.sleep(0.002)

            working = [asyncio.create_task(others(number)) for number in range(WRITERS)]
            await asyncio.sleep(1)
            killed_s = time.monotonic()
            cluster.kill(victim)
            while len(member.status().members) == seen:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            detected_s = time.monotonic()
            await entries.put("held 0", 2)
            freed_s = time.monotonic() - killed_s
            await asyncio.sleep(2)
            running = False
            await asyncio.gather(*working)
    return Death(
        detected_s - killed_s,
        max(end_s - begun_s for begun_s, end_s in waits),
        max(end_s - max(begun_s, detected_s) for begun_s, end_s in waits if end_s > detected_s),
        freed_s,
    )


def deaths(rounds: int) -> list[list[str]]:
    """Medians, as the moment of a death is random."""
    found: dict[int, list[Death]] = {0: [], OPEN: []}
    for _ in range(rounds):
        for count, told in found.items():
            with LocalCluster(3, CONFIG) as cluster:
                cluster.wait_safe(60)
                told.append(asyncio.run(death(cluster, count)))
    return [
        [f"{count:,}"]
        + [
            f"{1000 * median(each):,.0f} ({1000 * min(each):,.0f} to {1000 * max(each):,.0f})"
            for each in zip(*(astuple(one) for one in told), strict=True)
        ]
        for count, told in found.items()
    ]


@click.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter rounds; a first look, not a figure to quote.")
@click.option("--out", type=click.Path(path_type=Path), help="Page whose part is written.")
def main(quick: bool, out: Path | None) -> None:
    """Measure the cost of transactions."""
    load_average = os.getloadavg()[0]
    effort = QUICK if quick else FULL
    with LocalCluster(3, CONFIG) as cluster:
        cluster.wait_safe(60)
        rows = asyncio.run(rates(cluster, 1.0 if quick else 2.0, 1 if quick else 3))
    killed = deaths(1 if quick else 5)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        lane = lane_rows(Bench(Path(name), effort))
    command = "python -m holdfast_lab.bench.transactions" + (" --quick" if quick else "")
    head = ["transactions", "/s, one in flight", "p50 / p99 ms", "beside puts"]
    head += ["/s, 32 in flight", "p50 / p99 ms", "beside puts"]
    parts = [
        "## What transactions cost",
        f"Made by `{command}`.",
        report.table(head, rows),
        report.table(
            [
                "the data lane",
                "takes no part /s",
                "takes part",
                "processor time per operation",
                f"{OPEN:,} open beside",
                "processor time per operation",
            ],
            lane,
        ),
        report.table(
            [
                "open transactions of the member that dies",
                "detected after, ms",
                "longest wait of a put",
                "beyond the detection",
                "first lock free",
            ],
            killed,
        ),
        f"* {report.machine(load_average)}.",
    ]
    target = out or ROOT / ("out" if quick else "docs") / "performance.md"
    text = "\n\n".join(parts) + "\n" + METHOD
    click.echo(text)
    report.write_part(target, "bench transactions", text, "python -m holdfast_lab.bench.transactions")
    click.echo(f"Written to {target}")


if __name__ == "__main__":
    main()
