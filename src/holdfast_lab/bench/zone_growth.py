"""The cost of a zone of many small partitions: `python -m holdfast_lab.bench.zone_growth`.

Three members hold a zone of 271 nearly empty partitions with one replica each; then it gets three replicas. The figures
are the seconds and the processor time of that, the revisions of the metastore for each partition that moved, and each
member's share of a core at rest: without a zone, with all replicas, and while one member is away and no other takes
its place.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from hazelcast import HazelcastClient

from holdfast.actions.change_zone import AlterZone, CreateZone
from holdfast.actions.operator_action import OperatorAction
from holdfast.actions.show_zones import ListZones, ShowZone
from holdfast.client.connection import Credentials
from holdfast.client.operator import act_at_any
from holdfast.client_core.routing import parse_addresses
from holdfast.core.model.member_status import ZoneStatus
from holdfast.core.model.zone_answers import NEVER
from holdfast_lab.bench import report
from holdfast_lab.bench.run import ROOT
from holdfast_lab.bench.systems import process_cpu_seconds
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

ZONE, MAP = "z", "orders"
MEMBERS, PARTITIONS = 3, 271
READY_S = 300.0
LOOK_S = 0.1
SETTLE_S = 10.0
"""Groups fall asleep in this time."""
ENTRIES = 10 * PARTITIONS

CONFIG = f"""
[partitions]
count = {PARTITIONS}
[metastore]
voters = 3
[maps.{MAP}]
raft_zone = "{ZONE}"
"""
METHOD = """
Members share both cores. A share is the processor time of a member's process in the interval, divided by the interval.
"""


@dataclass(frozen=True, slots=True)
class Growth:
    seconds: float
    cpu_s: float
    """Processor time of all members."""
    revisions: int
    """Revisions of the metastore."""


class Measurement:
    def __init__(self, cluster: LocalCluster, idle_s: float) -> None:
        self._cluster = cluster
        self._idle_s = idle_s
        self.shares: list[tuple[str, list[float]]] = []

    def create_and_fill(self) -> None:
        self._order(CreateZone(ZONE, partitions=PARTITIONS, replicas=1, scale_down_s=NEVER))
        self._wait(lambda zone: not zone.leaderless)
        client = HazelcastClient(
            cluster_members=self._cluster.client_addresses(), cluster_name=self._cluster.status().cluster
        )
        try:
            entries = {f"key:{number:08d}": bytearray(100) for number in range(ENTRIES)}
            client.get_map(MAP).put_all(entries).result()
        finally:
            client.shutdown()

    def grow(self) -> Growth:
        before_s, revision, begun_s = self._cpu_s(), self._revision(), time.monotonic()
        self._order(AlterZone(ZONE, replicas=MEMBERS))
        self._wait(lambda zone: not (zone.leaderless or zone.moving) and self._is_grown())
        took_s = time.monotonic() - begun_s
        return Growth(took_s, self._cpu_s() - before_s, self._revision() - revision)

    def rest(self, what: str) -> None:
        """Record the shares of all members while nothing happens."""
        time.sleep(SETTLE_S)
        members = self._cluster.alive
        before = [process_cpu_seconds(member.pid) for member in members]
        time.sleep(self._idle_s)
        after = [process_cpu_seconds(member.pid) for member in members]
        shares = [(end - begin) / self._idle_s for begin, end in zip(before, after, strict=True)]
        self.shares.append((what, shares))
        click.echo(f"{what}: {', '.join(f'{share:.2%}' for share in shares)}", err=True)

    def lose(self, member: ManagedMember) -> None:
        """Kill the member, and wait until all groups have leaders again."""
        self._cluster.kill(member)
        self._wait(lambda zone: not zone.leaderless and zone.under_replicated == PARTITIONS)

    def _is_grown(self) -> bool:
        shown = self._order(ShowZone(ZONE)).partitions
        return all(part.stable is not None and len(part.stable.peers) == MEMBERS for part in shown)

    def _order(self, wanted: OperatorAction) -> Any:
        addresses = parse_addresses(",".join(self._cluster.client_addresses()))
        return act_at_any(addresses, Credentials(), wanted).value

    def _wait(self, done: Callable[[ZoneStatus], bool]) -> None:
        deadline_s = time.monotonic() + READY_S
        while not ((zones := self._order(ListZones()).zones) and done(zones[0])):
            if time.monotonic() > deadline_s:
                raise click.ClickException(f"not done after {READY_S:.0f} s: {zones}")
            time.sleep(LOOK_S)

    def _cpu_s(self) -> float:
        return sum(process_cpu_seconds(member.pid) for member in self._cluster.alive)

    def _revision(self) -> int:
        metastore = self._cluster.status().metastore
        assert metastore is not None, "the cluster has one"
        return metastore.revision


@click.command()
@click.option("--seconds", default=30.0, show_default=True, help="Length of each interval at rest.")
@click.option("--files", is_flag=True, help="Members keep synced files.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=ROOT / "docs" / "performance.md", show_default=True
)
def main(seconds: float, *, files: bool, out: Path) -> None:
    """Measure a zone that grows from one replica to three, and what it costs at rest."""
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")) if files else None
        cluster = stack.enter_context(LocalCluster(MEMBERS, CONFIG, data_dir=folder))
        cluster.wait_safe(60)
        measured = Measurement(cluster, seconds)
        measured.rest("no zone")
        measured.create_and_fill()
        growth = measured.grow()
        click.echo(f"{growth}", err=True)
        measured.rest("all members")
        measured.lose(cluster.members[-1])
        measured.rest("one member away")
    head = ["share of a core", *(f"member {number}" for number in range(1, MEMBERS + 1))]
    rows = [[what, *(f"{share:.2%}" for share in shares)] for what, shares in measured.shares]
    rows[-1] += ["away"] * (len(head) - len(rows[-1]))
    text = "\n\n".join(
        [
            "## A zone of many small partitions",
            "Made by `python -m holdfast_lab.bench.zone_growth`.",
            report.table(
                [
                    "from 1 to 3 replicas",
                    "seconds",
                    "processor time of all members, s",
                    "revisions per partition",
                ],
                [
                    [
                        f"{PARTITIONS} partitions",
                        f"{growth.seconds:.1f}",
                        f"{growth.cpu_s:.1f}",
                        f"{growth.revisions / PARTITIONS:.1f}",
                    ]
                ],
            ),
            report.table(head, rows),
            f"* {report.machine(load)}; at rest over {seconds:g} s.",
            METHOD,
        ]
    )
    click.echo(text)
    report.write_part(out, "bench zone growth", text, "python -m holdfast_lab.bench.zone_growth")


if __name__ == "__main__":
    main()
