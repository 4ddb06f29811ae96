"""What one asyncio program can ask of one member: `python -m bench.aio`.

`holdfast.aio` and the official asyncio client in turns, each from this process, with the same number of tasks that each
wait for one answer before they ask again. The order of the two changes from round to round.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import click
import hazelcast.asyncio
import uvloop

from holdfast.aio import Client
from holdfast.demo.local_cluster import LocalCluster

KEYS = 1000
VALUE = "x" * 100
WARM_S = 0.3


async def rate(ask: Callable[[int], Awaitable[Any]], tasks: int, seconds: float) -> float:
    """Answers per second."""
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
    """Print the rates of each round, and their medians."""
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
    for name, found in sorted(rates.items()):
        each = " ".join(f"{one / 1000:.1f}" for one in found)
        print(f"{name:20} median {statistics.median(found) / 1000:6.1f} k/s   ({each})")
    for what in ("get", "set"):
        pairs_found = zip(rates[f"{what}, holdfast.aio"], rates[f"{what}, official"], strict=True)
        print(
            f"{what}: {statistics.median(a / b for a, b in pairs_found):.1f} times as many (median of the rounds)"
        )


@click.command()
@click.option("--tasks", default=100, show_default=True, help="Tasks that ask at the same time.")
@click.option("--seconds", default=2.0, show_default=True, help="Of each measurement.")
@click.option("--rounds", default=5, show_default=True)
def main(tasks: int, seconds: float, rounds: int) -> None:
    """Measure both clients against one member."""
    print(f"load average before: {os.getloadavg()[0]:.1f}")
    with LocalCluster(1) as cluster:
        cluster.wait_safe(60)
        uvloop.run(measure(cluster.client_addresses(), tasks, seconds, rounds))


if __name__ == "__main__":
    main()
