"""The cost of idle Raft groups: `python -m holdfast_lab.bench.idle_groups`.

Three members hold a zone of a thousand partitions with three replicas each, without requests. The report has
each member's processor time as a share of one core, compared with members without zones.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from holdfast.actions.change_zone import CreateZone
from holdfast.actions.show_zones import ListZones
from holdfast.client.connection import Credentials
from holdfast.client.operator import act_at_any
from holdfast.client_core.routing import parse_addresses
from holdfast_lab.bench import report
from holdfast_lab.bench.run import ROOT
from holdfast_lab.bench.systems import process_cpu_seconds
from holdfast_lab.processes.local_cluster import LocalCluster

MEMBERS = 3
READY_S = 120.0


def shares(cluster: LocalCluster, seconds: float) -> list[float]:
    before = [process_cpu_seconds(member.pid) for member in cluster.members]
    time.sleep(seconds)
    after = [process_cpu_seconds(member.pid) for member in cluster.members]
    return [(end - begin) / seconds for begin, end in zip(before, after, strict=True)]


def led(cluster: LocalCluster, groups: int) -> float:
    """Returns the seconds until each group of a new zone has a leader."""
    addresses = parse_addresses(",".join(cluster.client_addresses()))
    begun_s = time.monotonic()
    act_at_any(addresses, Credentials(), CreateZone("z", partitions=groups, replicas=MEMBERS))
    while True:
        told = act_at_any(addresses, Credentials(), ListZones()).value.zones
        if told and not told[0].leaderless and not told[0].moving:
            return time.monotonic() - begun_s
        if time.monotonic() > begun_s + READY_S:
            raise click.ClickException(f"{told[0].leaderless} groups have no leader after {READY_S:.0f} s")
        time.sleep(0.2)


@click.command()
@click.option("--groups", default=1000, show_default=True, help="Groups, with a replica on each member.")
@click.option("--seconds", default=30.0, show_default=True, help="How long they are looked at.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "docs" / "performance.md")
def main(groups: int, seconds: float, out: Path) -> None:
    """Measure the cost of idle groups."""
    load = os.getloadavg()[0]
    with LocalCluster(MEMBERS, "[metastore]\nvoters = 3\n") as cluster:
        cluster.wait_safe(60)
        time.sleep(5)
        without = shares(cluster, seconds)
        took_s = led(cluster, groups)
        time.sleep(10)  # Groups go to sleep.
        found = shares(cluster, seconds)
    rows = [
        ["no zone", *(f"{share:.2%}" for share in without)],
        [f"{groups:,} groups", *(f"{share:.2%}" for share in found)],
    ]
    text = "\n\n".join(
        [
            "## What idle groups cost",
            "Made by `python -m holdfast_lab.bench.idle_groups`.",
            report.table(
                ["share of a core", *(f"member {number}" for number in range(1, MEMBERS + 1))], rows
            ),
            f"* {report.machine(load)}; over {seconds:g} s; all groups had leaders {took_s:.1f} s after the order.",
        ]
    )
    click.echo(text)
    report.write_part(out, "bench idle groups", text, "python -m holdfast_lab.bench.idle_groups")


if __name__ == "__main__":
    main()
