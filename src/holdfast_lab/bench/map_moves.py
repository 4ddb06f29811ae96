"""The move of a used map between engines: `python -m holdfast_lab.bench.map_moves`.

A map outside zones is filled, and moves into a zone and out again, while a client reads and writes it at a fixed rate.
The figures are the time of each move, the bytes sent by members in that time, and the client's latencies.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import click

from holdfast.actions.change_zone import CreateZone
from holdfast.actions.move_map import MoveMap
from holdfast.client.connection import Credentials
from holdfast.client.operator import act_at_any
from holdfast.client_core.routing import parse_addresses
from holdfast_lab.bench import frames, report
from holdfast_lab.bench.run import ROOT
from holdfast_lab.bench.zone_moves import MEGABYTE, ZONE, Growing, Placed, table_of, write_section
from holdfast_lab.processes.latency import Log
from holdfast_lab.processes.local_cluster import LocalCluster
from holdfast_lab.processes.paced import PacedProcess

MAP = frames.MAP
REST_S = 10
CONFIG = """
[metastore]
voters = 3
[maps.{map}]
backups = 1
journal = "{journal}"
"""
METHOD = """
Members and client share both cores. Outside zones the map has one sync backup, in the zone three replicas of each of
271 partitions. Waits are counted from when an operation was due. Sent is what members write to sockets and to files.
"""


def move(cluster: LocalCluster, zone: str) -> None:
    """Empty: out of zones."""
    addresses = parse_addresses(",".join(member.client_address for member in cluster.alive))
    act_at_any(addresses, Credentials(), MoveMap(MAP, zone, no_zone=not zone), timeout_s=1800)


@click.command()
@click.option("--entries", default=250_000, show_default=True, help="Entries of the map.")
@click.option("--value-bytes", default=4_000, show_default=True, help="Size of each value.")
@click.option("--rate", default=500.0, show_default=True, help="Operations a second of the client.")
@click.option("--files", is_flag=True, help="Members keep files: every write is synced.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=ROOT / "docs" / "performance.md", show_default=True
)
def main(entries: int, value_bytes: int, rate: float, files: bool, out: Path) -> None:
    """Measure how a used map moves between engines."""
    load = os.getloadavg()[0]
    config = CONFIG.format(map=MAP, journal="sync" if files else "off")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        stored = {"data_dir": folder / "data"} if files else {}
        cluster = stack.enter_context(Placed(3, config, log_dir=folder, **stored))
        cluster.wait_safe(60)
        growing = Growing(cluster, entries, value_bytes)
        growing.order(CreateZone(ZONE, replicas=3))
        cluster.wait_safe(60)
        growing.fill()
        ledger = folder / "ledger.json"
        client = stack.enter_context(
            PacedProcess(cluster.client_addresses(), {MAP: ledger}, folder, folder / "client.log", rate, 1)
        )
        client.wait_started()
        with growing.measured("outside zones"):
            time.sleep(REST_S)
        with growing.measured("move into the zone"):
            move(cluster, ZONE)
        with growing.measured("in the zone"):
            time.sleep(REST_S)
        with growing.measured("move out of the zone"):
            move(cluster, "")
        with growing.measured("outside zones again"):
            time.sleep(REST_S)
        last = client.finish()
        if last.wrong_reads:
            raise click.ClickException(f"{last.wrong_reads} reads were wrong")
        told = table_of(growing.changes, Log.load(client.operations))
    size = entries * (value_bytes + len("key:") + 12) / MEGABYTE
    effort = (
        f"{size:,.0f} MB, {'synced files' if files else 'no files'}; {rate:g} operations a second; "
        f"{last.acknowledged:,} writes acknowledged, {last.read:,} reads"
    )
    program = "python -m holdfast_lab.bench.map_moves"
    facts = f"* {report.machine(load)}; {effort}, none wrong."
    write_section(out, "bench map moves", "How a map moves between engines", program, [told, facts, METHOD])


if __name__ == "__main__":
    main()
