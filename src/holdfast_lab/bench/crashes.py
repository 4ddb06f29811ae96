"""The longest pause that a client sees around a crash: `python -m holdfast_lab.bench.crashes [--rounds 5]`.

Three members with default settings hold one map. A `holdfast.aio` client runs 16 tasks that read and write in turns,
with a millisecond between two requests. One member is killed with SIGKILL (its sockets close), or stopped with SIGSTOP
(it falls silent). The figures are the longest wait of a request that ended after the crash, and the time until a
survivor installed the view without the crashed member. Each round has a new cluster; in every other one the master
crashes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from datetime import datetime
from statistics import median

import click

from holdfast.aio import Client
from holdfast.errors import Unknown
from holdfast_lab.bench import report
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

MEMBERS, KEYS, TASKS = 3, 2000, 16
REST_S, AFTER_S = 1.5, 2.0


@dataclass(slots=True)
class Round:
    longest_s: float = 0.0
    removed_s: float = 0.0
    unknown: int = 0
    """Writes without an answer: they were under way to the member that crashed."""


def _removed_at(survivor: ManagedMember, victim: ManagedMember) -> float:
    """When this member installed the view without the victim."""
    for line in survivor.log.read_text(encoding="utf-8").splitlines():
        if f"removed=['{victim.name}']" in line:
            return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp()  # noqa: DTZ007
    raise RuntimeError(f"{victim.name} was not removed within {AFTER_S} s")


async def _ask(client: Client, number: int, until: list[float], waits: list[tuple[float, float]]) -> int:
    """One task. Returns the number of its writes whose outcome is unknown. `until`: empty as long as it goes on."""
    entries, unknown = client.map("crashes"), 0
    while not until:
        began = time.monotonic()
        key = f"k{number % KEYS}"
        try:
            if number % 2:
                await entries.set(key, number)
            else:
                await entries.get(key)
        except Unknown:
            unknown += 1
        waits.append((began, time.monotonic()))
        number += 37
        await asyncio.sleep(0.001)
    return unknown


async def _crash(
    victim: ManagedMember, survivor: ManagedMember, addresses: list[str], kind: str, found: Round
) -> None:
    waits: list[tuple[float, float]] = []
    until: list[float] = []
    async with Client(addresses) as client:
        for number in range(KEYS):
            await client.map("crashes").set(f"k{number}", number)
        tasks = [asyncio.create_task(_ask(client, number, until, waits)) for number in range(TASKS)]
        await asyncio.sleep(REST_S)
        os.kill(victim.pid, signal.SIGKILL if kind == "killed" else signal.SIGSTOP)
        crashed, crashed_at = time.monotonic(), datetime.now()  # noqa: DTZ005  (logs have local times)
        await asyncio.sleep(AFTER_S)
        until.append(time.monotonic())
        found.unknown = sum(await asyncio.gather(*tasks))
    found.removed_s = _removed_at(survivor, victim) - crashed_at.timestamp()
    found.longest_s = max(ended - began for began, ended in waits if ended > crashed)


def crash(kind: str, *, master: bool) -> Round:
    """One round. `kind`: killed, or silent."""
    found = Round()
    with LocalCluster(MEMBERS, "") as cluster:
        cluster.wait_safe(60)
        victim, survivor = cluster.members[0 if master else 2], cluster.members[1]
        try:
            asyncio.run(_crash(victim, survivor, cluster.client_addresses(), kind, found))
        finally:
            if kind == "silent":
                os.kill(victim.pid, signal.SIGCONT)
    return found


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--kind", type=click.Choice(["killed", "silent"]), default="killed", show_default=True)
def main(rounds: int, kind: str) -> None:
    """Measure the longest pause around a crash."""
    load = os.getloadavg()[0]
    rows, longest = [], []
    for number in range(rounds):
        master = number % 2 == 0
        found = crash(kind, master=master)
        longest.append(found.longest_s)
        rows.append(
            [
                f"{kind}, {'the master' if master else 'another member'}",
                f"{found.longest_s * 1000:.0f} ms",
                f"{found.removed_s * 1000:.0f} ms",
                str(found.unknown),
            ]
        )
    click.echo(
        report.table(["member", "longest pause", "removed after", "writes with unknown outcome"], rows)
    )
    click.echo(f"* median of the longest pauses: {median(longest) * 1000:.0f} ms; {report.machine(load)}")


if __name__ == "__main__":
    main()
