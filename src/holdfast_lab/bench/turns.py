"""The longest time that a message of each kind blocks a member: `python -m holdfast_lab.bench.turns`.

One member process. A client sends a message with as many small parts as possible, once for each kind and port, and
another client sends trivial requests. The figure is the processor time of the member's event loop between two responses
to the second client: an upper bound of the longest turn, as several turns may lie between two responses.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import click

from holdfast.wire import own
from holdfast_lab.bench import report
from holdfast_lab.bench.run import ROOT
from holdfast_lab.fuzz.crowds import CLIENT_CROWDS, HTTP_CROWDS, OWN_CROWDS, Make, TurnMeter
from holdfast_lab.fuzz.hostile import Facts, login
from holdfast_lab.processes.local_cluster import LocalCluster

SIZE = 15_900_000
QUIET_S = 0.5
"""A message is finished when the member has responded and then uses almost no processor time for so long."""
IDLE_SHARE = 0.03
SILENT_S = 1.0
MOST_S = 240.0
AIM_MS = 20.0
DOORS: Mapping[str, Mapping[str, Make]] = {
    "Hazelcast": CLIENT_CROWDS,
    "own": OWN_CROWDS,
    "HTTP, no login": HTTP_CROWDS,
}


def processor_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def said(address: str, first: bytes, body: bytes) -> socket.socket:
    """Send these bytes; the member may close the connection before all are sent."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=MOST_S)
    with suppress(OSError):
        if first:
            connection.sendall(first)
            connection.recv(1 << 16)
        connection.sendall(body)
        while connection.recv(1 << 20):
            # The response has begun: the rest follows soon.
            connection.settimeout(SILENT_S)
    return connection


def quiet(pid: int) -> None:
    ends_s = time.monotonic() + MOST_S
    while time.monotonic() < ends_s:
        before_s = processor_s(pid)
        time.sleep(QUIET_S)
        if processor_s(pid) - before_s < QUIET_S * IDLE_SHARE:
            return


def measured(only: str, size: int) -> Iterator[tuple[str, str, int, float, float]]:
    """Port, message, its bytes, the longest turn in ms, and the total processor time in s."""
    with LocalCluster(1) as cluster:
        (member,) = cluster.members
        firsts = {
            "Hazelcast": b"CP2" + login(Facts(cluster.status(member).cluster, 0, ())),
            "own": own.PREAMBLE + own.frame(own.Hello(1, own.VERSION)),
            "HTTP, no login": b"",
        }
        http = cluster.status(member).http
        host, _, port = member.client_address.rpartition(":")
        meter = TurnMeter(member.pid, (host, int(port)))
        for door, messages in DOORS.items():
            for name, make in messages.items():
                if only not in f"{door} {name}":
                    continue
                body = make(size)
                quiet(member.pid)
                meter.take_ms()
                before_s = processor_s(member.pid)
                address = http if door.startswith("HTTP") else member.client_address
                with said(address, firsts[door], body):
                    quiet(member.pid)
                yield door, name, len(body), meter.take_ms(), processor_s(member.pid) - before_s
                assert meter.alive, "the other client was answered all the time"
        meter.close()


@click.command()
@click.option("--only", default="", help="Only messages with this in their name.")
@click.option("--size", default=SIZE, show_default=True, help="Bytes of a message.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "docs" / "performance.md")
@click.option("--dry", is_flag=True, help="Write nothing.")
def main(only: str, *, size: int, out: Path, dry: bool) -> None:
    """Measure how long messages with many parts block a member."""
    load = os.getloadavg()[0]
    rows = []
    for door, name, length, longest_ms, whole_s in measured(only, size):
        click.echo(f"{door}: {name}: {longest_ms:.1f} ms of {whole_s:.1f} s")
        rows.append([door, name, f"{length / 1e6:.1f}", f"{longest_ms:.1f}", f"{whole_s:.1f}"])
    longest = max(rows, key=lambda row: float(row[3]))
    text = "\n\n".join(
        [
            "## The longest turn",
            "Made by `python -m holdfast_lab.bench.turns`.",
            report.table(["door", "message", "MB", "longest turn, ms", "processor time, s"], rows),
            f"* {report.machine(load)}. The longest: {longest[1]} ({longest[0]}), {longest[3]} ms. Aim: {AIM_MS:g} ms.",
        ]
    )
    click.echo(text)
    if not dry:
        report.write_part(out, "bench turns", text, "python -m holdfast_lab.bench.turns")


if __name__ == "__main__":
    main()
