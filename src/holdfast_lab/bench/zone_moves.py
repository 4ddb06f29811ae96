"""The growth of a zone under load: `python -m holdfast_lab.bench.zone_moves`.

A zone of 25 partitions with three replicas on three members holds a gigabyte; then two members join, and
replicas move to them, while a client reads and writes at a fixed rate. The figures are the time from the first
new member to the last move, the bytes sent by members in that time, and the client's latencies. Then the zone's
filter is altered three times while replicas move (scenario 56): only the last target is to be joined.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from hazelcast import HazelcastClient

from holdfast.actions.change_zone import AlterZone, CreateZone
from holdfast.actions.show_zones import ShowZone
from holdfast.client.connection import Credentials
from holdfast.client.operator import act_at_any
from holdfast.client_core.routing import parse_addresses
from holdfast.core.model.zone_answers import ZoneDetails
from holdfast_lab.bench import frames, report
from holdfast_lab.bench.bulk import value_of
from holdfast_lab.bench.run import ROOT
from holdfast_lab.processes.latency import Log
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember
from holdfast_lab.processes.paced import PacedProcess

ZONE = "z"
FILLED = frames.MAP
PACED = "paced"
PARTITIONS = 25
MEGABYTE = 1_000_000
AT_ONCE = 256
"""Entries per call."""
SAFE_S = 600.0
APART_S = 1.0
"""Time between two changes of the filter."""


CONFIG = f"""
[partitions]
count = {PARTITIONS}
[metastore]
voters = 3
[maps.{FILLED}]
raft_zone = "{ZONE}"
[maps.{PACED}]
raft_zone = "{ZONE}"
"""
METHOD = """
Members and client share both cores. Sent is what all members write to sockets meanwhile, to each other and to the
client; each of them has three replicas of the data. A new replica is sent the whole state of its partition. Waits are
counted from when an operation was due.
"""


@dataclass(frozen=True, slots=True)
class Change:
    what: str
    begun_s: float
    end_s: float
    sent_bytes: int
    """Bytes that all members wrote to sockets during the change, also to clients."""


class Placed(LocalCluster):
    """Members with an attribute of their own, for filters."""

    def environment(self, name: str) -> dict[str, str]:
        return {"HOLDFAST_MEMBER_ATTRIBUTES": f"place={name}"}


def written_bytes(member: ManagedMember) -> int:
    """Bytes that a process has written so far to sockets and files; members keep no files here."""
    for line in Path(f"/proc/{member.pid}/io").read_text().splitlines():
        name, _, value = line.partition(": ")
        if name == "wchar":
            return int(value)
    raise click.ClickException("the system does not say what a process has written")


class Growing:
    def __init__(self, cluster: LocalCluster, entries: int, value_bytes: int) -> None:
        self.cluster = cluster
        self.entries = entries
        self.value_bytes = value_bytes
        self.changes: list[Change] = []

    def order(self, wanted: CreateZone | AlterZone) -> None:
        addresses = parse_addresses(",".join(member.client_address for member in self.cluster.alive))
        act_at_any(addresses, Credentials(), wanted)

    def alter(self, **settings: Any) -> None:
        self.order(AlterZone(ZONE, **settings))

    def fill(self) -> None:
        client = HazelcastClient(
            cluster_members=self.cluster.client_addresses(), cluster_name=self.cluster.status().cluster
        )
        try:
            stored = client.get_map(FILLED)
            waiting = []
            for begin in range(0, self.entries, AT_ONCE):
                numbers = range(begin, min(begin + AT_ONCE, self.entries))
                waiting.append(
                    stored.put_all(
                        {
                            f"key:{number:012d}": bytearray(value_of(number, self.value_bytes))
                            for number in numbers
                        }
                    )
                )
                if len(waiting) > 8:
                    waiting.pop(0).result()
            for each in waiting:
                each.result()
            if stored.size().result() != self.entries:
                raise click.ClickException(f"{stored.size().result()} entries are there, not {self.entries}")
        finally:
            client.shutdown()

    def until_held_by(self, names: set[str], doing: str) -> None:
        """Wait until exactly these members hold all partitions and nothing moves, in two successive statuses."""
        deadline_s, looks = time.monotonic() + SAFE_S, 0
        while looks < 2:
            time.sleep(0.2)
            why = self._unsettled_reason(names)
            if time.monotonic() > deadline_s:
                raise click.ClickException(f"{doing}: not done after {SAFE_S:.0f} s: {why}")
            looks = 0 if why else looks + 1

    def _unsettled_reason(self, names: set[str]) -> str:
        address = self.cluster.alive[0].client_address
        told: ZoneDetails = act_at_any(parse_addresses(address), Credentials(), ShowZone(ZONE)).value
        moving = sum(part.leader is None or bool(part.pending or part.planned) for part in told.partitions)
        holders = {
            told.members.get(node, node)
            for part in told.partitions
            for node in (part.stable.peers if part.stable else [])
        }
        if moving or holders != names:
            return f"{moving} partitions move or have no leader, and {', '.join(sorted(holders))} hold them"
        return ""

    @contextmanager
    def measured(self, doing: str) -> Iterator[None]:
        """Record the actions of this block as one change."""
        before = {member.name: written_bytes(member) for member in self.cluster.alive}
        begun_s = time.monotonic()
        yield
        end_s = time.monotonic()
        sent = sum(written_bytes(member) - before.get(member.name, 0) for member in self.cluster.alive)
        self.changes.append(Change(doing, begun_s, end_s, sent))
        click.echo(f"{doing}: {end_s - begun_s:.1f} s, {sent / MEGABYTE:,.0f} MB sent", err=True)

    def grow(self) -> None:
        with self.measured("3 members become 5"):
            self.cluster.start_members(2)
            self.until_held_by({member.name for member in self.cluster.members}, "growing")

    def moved(self, doing: str, targets: list[set[str]], *, waits: bool) -> None:
        """Move the replicas to each target in turn; `waits`: after the move to the previous one has finished."""
        with self.measured(doing):
            for target in targets:
                self.alter(filter=f"place={'|'.join(sorted(target))}")
                if waits:
                    self.until_held_by(target, doing)
                else:
                    time.sleep(APART_S)
            self.until_held_by(targets[-1], doing)


def table_of(changes: list[Change], log: Log) -> str:
    """A row for each change, and one for the time between them."""
    rows = []
    for change in changes:
        took = [one for one in log if change.begun_s <= one.due_s < change.end_s]
        waits = sorted(one.took_s for one in took)
        rows.append(
            [
                change.what,
                f"{change.end_s - change.begun_s:.1f}",
                f"{change.sent_bytes / MEGABYTE:,.0f}",
                f"{change.sent_bytes / MEGABYTE / (change.end_s - change.begun_s):.0f}",
                f"{1000 * waits[len(waits) // 2]:.1f} / {1000 * waits[int(0.99 * (len(waits) - 1))]:.0f}",
                f"{1000 * waits[-1]:,.0f}",
                f"{sum(not one.done for one in took)}",
            ]
        )
    head = ["what", "seconds", "MB sent", "MB/s", "p50 / p99, ms", "longest wait, ms", "errors"]
    return report.table(head, rows)


@click.command()
@click.option("--entries", default=250_000, show_default=True, help="Entries in the zone.")
@click.option("--value-bytes", default=4_000, show_default=True, help="Size of each value.")
@click.option("--rate", default=200.0, show_default=True, help="Operations a second of the client.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=ROOT / "docs" / "performance.md", show_default=True
)
def main(entries: int, value_bytes: int, rate: float, out: Path) -> None:
    """Measure how a zone moves under load."""
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        cluster = stack.enter_context(Placed(3, CONFIG, log_dir=folder))
        cluster.wait_safe(60)
        growing = Growing(cluster, entries, value_bytes)
        growing.order(CreateZone(ZONE, replicas=3))
        cluster.wait_safe(60)
        growing.fill()
        ledger = folder / "ledger.json"
        client = stack.enter_context(
            PacedProcess(cluster.client_addresses(), {PACED: ledger}, folder, folder / "client.log", rate, 1)
        )
        client.wait_started()
        with growing.measured("nothing moves"):
            time.sleep(10)
        growing.grow()
        one, two, three, four, five = [member.name for member in cluster.members]
        here = {one, two, three}
        targets = [{one, two, four}, {one, two, five}, {one, three, five}]
        growing.moved("5 members become 3", [here], waits=True)
        growing.moved("three targets, one after the other", targets, waits=True)
        growing.moved("back to the first three", [here], waits=True)
        growing.moved(f"three targets, {APART_S:g} s apart", targets, waits=False)
        last = client.finish()
        if last.wrong_reads:
            raise click.ClickException(f"{last.wrong_reads} reads were wrong")
        told = table_of(growing.changes, Log.load(client.operations))
    size = entries * (value_bytes + len("key:") + 12) / MEGABYTE
    effort = (
        f"{PARTITIONS} partitions of three replicas with {size:,.0f} MB; {rate:g} operations a second; "
        f"{last.acknowledged:,} writes acknowledged, {last.read:,} reads"
    )
    program = "python -m holdfast_lab.bench.zone_moves"
    facts = f"* {report.machine(load)}; {effort}, none wrong."
    write_section(out, "bench zone moves", "How a zone moves", program, [told, facts, METHOD])


def write_section(out: Path, name: str, heading: str, program: str, content: list[str]) -> None:
    """Print the section of a report that this program makes, and write it to its place in a page."""
    text = "\n\n".join([f"## {heading}", f"Made by `{program}`.", *content])
    click.echo(text)
    report.write_part(out, name, text, program)


if __name__ == "__main__":
    main()
