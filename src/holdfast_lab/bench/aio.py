"""The rate of one client program against one member: `python -m holdfast_lab.bench.aio`.

`holdfast.aio` and the official clients alternate in this process: the asyncio clients with equal numbers of
tasks, the blocking ones with equal numbers of threads; each task or thread waits for a response before its next
request. The order of the two changes in each round. Bulk calls with arrays and dictionaries follow.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import click
import hazelcast
import hazelcast.asyncio
import pyarrow as pa
import uvloop

from holdfast.aio import BlockingClient, Client
from holdfast_lab.processes.local_cluster import LocalCluster

KEYS = 1000
VALUE = "x" * 100
WARM_S = 0.3
MANY = 20_000


async def rate(ask: Callable[[int], Awaitable[Any]], tasks: int, seconds: float) -> float:
    done = 0
    end = time.monotonic() + WARM_S

    async def work(at: int) -> None:
        nonlocal done
        while time.monotonic() < end:
            at = (at + 7) % KEYS
            await ask(at)
            done += 1

    await asyncio.gather(*map(work, range(tasks)))
    done, begun = 0, time.monotonic()
    end = begun + seconds
    await asyncio.gather(*map(work, range(tasks)))
    return done / (time.monotonic() - begun)


async def measure(addresses: list[str], tasks: int, seconds: float, rounds: int) -> None:
    official = await hazelcast.asyncio.HazelcastClient.create_and_start(cluster_members=addresses)
    rates: dict[str, list[float]] = {}
    async with Client(addresses) as client:
        ours, theirs = client.map("bench"), await official.get_map("bench")
        await ours.put_all((key, VALUE) for key in range(KEYS))
        for turn in range(rounds):
            pairs: list[tuple[str, Callable[[int], Awaitable[Any]]]] = [
                ("get, holdfast.aio", ours.get),
                ("get, official", theirs.get),
                ("set, holdfast.aio", lambda key: ours.set(key, VALUE)),
                ("set, official", lambda key: theirs.set(key, VALUE)),
            ]
            for name, ask in pairs[:: -1 if turn % 2 else 1]:
                rates.setdefault(name, []).append(await rate(ask, tasks, seconds))
    await official.shutdown()
    report(rates, ["get", "set"])


async def measure_transactions(addresses: list[str], tasks: int, seconds: float, rounds: int) -> None:
    """Two sets of other keys in one transaction, beside the same two sets alone."""
    rates: dict[str, list[float]] = {}
    async with Client(addresses) as client:
        ours = client.map("bench")

        async def together(key: int) -> None:
            async with client.transaction() as transaction:
                bench = transaction.map("bench")
                first, second = sorted((key, (key * 31 + 11) % KEYS))  # one order of locks
                await bench.set(first, VALUE)
                await bench.set(second, VALUE)

        async def alone(key: int) -> None:
            await ours.set(key, VALUE)
            await ours.set((key * 31 + 11) % KEYS, VALUE)

        for turn in range(rounds):
            pairs = [("two sets in a transaction", together), ("two sets", alone)]
            for name, ask in pairs[:: -1 if turn % 2 else 1]:
                rates.setdefault(name, []).append(await rate(ask, tasks, seconds))
    for name, found in rates.items():
        print(f"{name:32} median {statistics.median(found) / 1000:6.2f} k/s")


def report(rates: dict[str, list[float]], whats: list[str]) -> None:
    for name, found in sorted(rates.items()):
        each = " ".join(f"{one / 1000:.1f}" for one in found)
        print(f"{name:32} median {statistics.median(found) / 1000:6.1f} k/s   ({each})")
    for what in whats:
        pairs_found = zip(rates[f"{what}, holdfast.aio"], rates[f"{what}, official"], strict=True)
        print(
            f"{what}: {statistics.median(a / b for a, b in pairs_found):.1f} times as many (median of the rounds)"
        )


def threaded_rate(ask: Callable[[int], Any], threads: int, seconds: float) -> float:
    """Responses per second of `threads` threads."""
    done = [0] * threads
    end = time.monotonic() + seconds

    def work(thread: int) -> None:
        at = thread
        while time.monotonic() < end:
            at = (at + 7) % KEYS
            ask(at)
            done[thread] += 1

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    begun = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(done) / (time.monotonic() - begun)


def measure_threads(addresses: list[str], seconds: float, rounds: int) -> None:
    """The same for the blocking clients, with one and eight threads, and for bulk calls."""
    rates: dict[str, list[float]] = {}
    for threads in (1, 8):
        official = hazelcast.HazelcastClient(cluster_members=addresses)
        with BlockingClient(addresses) as client:
            ours, theirs = client.map("bench"), official.get_map("bench").blocking()
            pairs = [
                (f"get by {threads}, holdfast.aio", ours.get),
                (f"get by {threads}, official", theirs.get),
            ]
            for turn in range(rounds):
                for name, ask in pairs[:: -1 if turn % 2 else 1]:
                    threaded_rate(ask, threads, WARM_S)
                    rates.setdefault(name, []).append(threaded_rate(ask, threads, seconds))
        official.shutdown()
    official = hazelcast.HazelcastClient(cluster_members=addresses)
    with BlockingClient(addresses) as client:
        ours, theirs = client.map("bench"), official.get_map("bench").blocking()
        keys = list(range(MANY))
        arrow = pa.array(keys)
        ours.put_many(arrow, pa.array([VALUE] * MANY))
        for name, many in [
            ("get many, holdfast.aio", lambda: ours.get_many(arrow)),
            ("get many, official", lambda: theirs.get_all(keys)),
        ]:
            for _ in range(3):
                begun = time.monotonic()
                many()
                rates.setdefault(name, []).append(MANY / (time.monotonic() - begun))
    official.shutdown()
    report(rates, ["get by 1", "get by 8", "get many"])


@click.command()
@click.option("--tasks", default=100, show_default=True, help="Tasks that ask at the same time.")
@click.option("--seconds", default=2.0, show_default=True, help="Of each measurement.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--transactions", is_flag=True, help="Measure transactions of two sets on two members instead.")
def main(tasks: int, seconds: float, rounds: int, *, transactions: bool) -> None:
    """Measure the clients against one member."""
    print(f"load average before: {os.getloadavg()[0]:.1f}")
    if transactions:
        with LocalCluster(2) as cluster:
            cluster.wait_safe(60)
            uvloop.run(measure_transactions(cluster.client_addresses(), tasks, seconds, rounds))
        return
    with LocalCluster(1) as cluster:
        cluster.wait_safe(60)
        uvloop.run(measure(cluster.client_addresses(), tasks, seconds, rounds))
        measure_threads(cluster.client_addresses(), seconds, rounds)


if __name__ == "__main__":
    main()
