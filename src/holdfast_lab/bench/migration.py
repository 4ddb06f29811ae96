"""The speed of migrations between member processes on loopback: `python -m holdfast_lab.bench.migration`.

Full partitions: one member is filled, a second one joins, and the first one leaves, so that every entry moves
once. In the same round a plain socket carries as many bytes from one process to another. Empty partitions: a
third member joins two members without entries.

Times are taken from the master's log, from the plan to the end of the last migration.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import re
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from statistics import median, quantiles

import click

from holdfast_lab.bench.bulk import KEY_BYTES, fill_holdfast, same
from holdfast_lab.bench.paced import Answered, Paced
from holdfast_lab.bench.systems import process_cpu_seconds
from holdfast_lab.processes.local_cluster import HOST, LocalCluster

WRITE_BYTES = 256 * 1024
REST_S = 10.0
"""How long a paced client runs before the first migration."""
ENOUGH = 100
LINE = re.compile(r"^(\S+ \S+) \w+ rebalance (planned|finished) (.*)$", re.MULTILINE)
MEGABYTE = 1_000_000

RECEIVER = """
import socket, sys
total = int(sys.argv[1])
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
door, _ = server.accept()
held = memoryview(bytearray(total))
at = 0
while at < total:
    at += door.recv_into(held[at : at + (1 << 20)])
door.sendall(b"!")
"""
"""The receiver of the plain copy: it responds when everything is in its memory."""


@dataclass(frozen=True, slots=True)
class Moved:
    migrations: int
    failed: int
    seconds: float
    cpu_seconds: float = 0.0
    """Processor time of all members during the change, if measured."""
    begun_s: float = 0.0

    @property
    def per_second(self) -> float:
        return self.migrations / self.seconds


def moved(cluster: LocalCluster, before: dict[str, int]) -> Moved:
    """Data of the masters' logs since `before` (their lengths, by name), from the first plan to the last end.

    A replaced plan counts for its completed migrations.
    """
    logs = [member.log.read_text()[before.get(member.name, 0) :] for member in cluster.members]
    found = [match for log in logs for match in LINE.finditer(log)]
    ends = [dict(field.split("=") for field in match[3].split()) for match in found if match[2] == "finished"]
    if not ends:
        raise click.ClickException("no log tells of a rebalance that has ended")
    times = [dt.datetime.fromisoformat(match[1]) for match in found]
    migrations, failed = (sum(int(end[key]) for end in ends) for key in ("completed", "failed"))
    return Moved(
        migrations, failed, (max(times) - min(times)).total_seconds(), begun_s=min(times).timestamp()
    )


def socket_copy(total: int) -> tuple[float, float]:
    """Over loopback: seconds, and processor seconds."""
    command = [sys.executable, "-c", RECEIVER, str(total)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        port = int(receiver.stdout.readline())
        piece = memoryview(os.urandom(WRITE_BYTES))
        with socket.create_connection((HOST, port)) as door:
            begun, used = time.monotonic(), time.process_time() + _cpu_of_ended()
            for at in range(0, total, WRITE_BYTES):
                door.sendall(piece[: total - at])
            door.recv(1)
            seconds = time.monotonic() - begun
        receiver.wait()
    return seconds, time.process_time() + _cpu_of_ended() - used


@dataclass(frozen=True, slots=True)
class Felt:
    """In milliseconds."""

    rest_p99: float
    moving_p99: float
    longest: float
    """During migrations."""


def felt(answered: list[Answered], run: Moved) -> Felt:
    """Latencies of operations due before the first plan, and until the last end."""
    ends_s = run.begun_s + run.seconds
    rest = [late for due, late in answered if due < run.begun_s - REST_S / 5]
    moving = [late for due, late in answered if run.begun_s <= due <= ends_s]
    if len(rest) < ENOUGH or len(moving) < ENOUGH:
        raise click.ClickException(f"{len(rest)} operations at rest and {len(moving)} while entries moved")
    return Felt(quantiles(rest, n=100)[98], quantiles(moving, n=100)[98], max(moving))


def felt_by_a_client(entries: int, value_bytes: int, config: str, rate: float) -> tuple[Moved, Felt]:
    """The same as `full_partitions`, with a client that sends `rate` requests a second."""
    with LocalCluster(1, config=f"{config}\n[maps.default]\nbackups = 0\n") as cluster:
        first = cluster.members[0]
        fill_holdfast([first.client_address], same(range(entries)), value_bytes)
        with Paced(rate, [first.client_address]) as paced:
            time.sleep(REST_S)
            cluster.start_member()
            cluster.drain(first, timeout=600)
            time.sleep(1)
            run = moved(cluster, {})
            return run, felt(paced.end(), run)


def full_partitions(entries: int, value_bytes: int, config: str) -> Moved:
    with LocalCluster(1, config=f"{config}\n[maps.default]\nbackups = 0\n") as cluster:
        first = cluster.members[0]
        fill_holdfast([first.client_address], same(range(entries)), value_bytes)
        used = process_cpu_seconds(first.pid) + _cpu_of_ended()
        second = cluster.start_member()
        cluster.drain(first, timeout=600)
        used = process_cpu_seconds(second.pid) + _cpu_of_ended() - used
        status = cluster.status(second)
        held = status.entries.primary
        if held != entries:
            raise click.ClickException(f"{entries} entries were stored, {held} have arrived")
        return dataclasses.replace(moved(cluster, {}), cpu_seconds=used)


def _cpu_of_ended() -> float:
    times = os.times()
    return times.children_user + times.children_system


def empty_partitions(partitions: int, config: str) -> Moved:
    """A third member joins two, with one backup each, without entries."""
    told = f"[partitions]\ncount = {partitions}\n{config}\n[maps.default]\nbackups = 1\n"
    with LocalCluster(2, config=told) as cluster:
        cluster.wait_settled(120)
        before = {member.name: len(member.log.read_text()) for member in cluster.members}
        cluster.start_member()
        cluster.wait_settled(300)
        return moved(cluster, before)


@click.command()
@click.option("--entries", default=1_000_000, show_default=True, help="Entries that move.")
@click.option("--value-bytes", default=1024, show_default=True, help="Size of each value.")
@click.option("--rounds", default=3, show_default=True, help="How often; the medians are told.")
@click.option("--partitions", default=5000, show_default=True, help="Empty partitions of which some move.")
@click.option("--parallel", default=[10, 100], multiple=True, show_default=True, help="Migrations at a time.")
@click.option("--paced", default=0.0, help="Also with a client that asks so many times a second.")
@click.option("--set", "others", multiple=True, help="More lines for the section [partitions].")
def main(
    entries: int,
    value_bytes: int,
    rounds: int,
    partitions: int,
    parallel: list[int],
    paced: float,
    others: list[str],
) -> None:
    """Measure migrations, and print a table for docs/performance.md."""
    size = entries * (KEY_BYTES + value_bytes)
    config = "\n".join(others)
    speeds: list[tuple[float, float]] = []
    costs: list[tuple[float, float]] = []
    for turn in range(rounds if entries else 0):
        seconds, cpu_seconds = socket_copy(size)
        full = full_partitions(entries, value_bytes, f"[partitions]\n{config}")
        speeds.append((size / full.seconds / MEGABYTE, size / seconds / MEGABYTE))
        costs.append((full.cpu_seconds, cpu_seconds))
        click.echo(f"round {turn + 1}: {full}, plain socket {seconds:.2f} s", err=True)
    feelings: list[Felt] = []
    for turn in range(rounds if paced and entries else 0):
        run, feeling = felt_by_a_client(entries, value_bytes, f"[partitions]\n{config}", paced)
        feelings.append(feeling)
        click.echo(f"round {turn + 1}: {feeling}, {run}", err=True)
    empty: dict[int, list[Moved]] = {}
    for turn in range(rounds if partitions else 0):
        for at_once in parallel:
            found = empty_partitions(partitions, f"parallel_migrations = {at_once}\n{config}")
            empty.setdefault(at_once, []).append(found)
            click.echo(f"round {turn + 1}: {at_once} at a time, {found.per_second:.0f} /s, {found}", err=True)
    click.echo("| measure | median | rounds |")
    click.echo("|---|---:|---|")
    if speeds:
        _row("migration, MB/s", [migration for migration, _ in speeds], "{:.0f}")
        _row("plain socket, MB/s", [plain for _, plain in speeds], "{:.0f}")
        _row("migration / plain socket", [migration / plain for migration, plain in speeds], "{:.2f}")
        _row("processor seconds, migration", [migration for migration, _ in costs], "{:.2f}")
        _row("processor seconds, plain socket", [plain for _, plain in costs], "{:.2f}")
    if feelings:
        _row("paced client: p99 at rest, ms", [one.rest_p99 for one in feelings], "{:.1f}")
        _row("paced client: p99 while entries move, ms", [one.moving_p99 for one in feelings], "{:.1f}")
        _row("the one / the other", [one.moving_p99 / one.rest_p99 for one in feelings], "{:.1f}")
        _row("longest answer while entries move, ms", [one.longest for one in feelings], "{:.0f}")
    for at_once, runs in empty.items():
        _row(f"empty partitions /s, {at_once} at a time", [run.per_second for run in runs], "{:.0f}")


def _row(title: str, figures: list[float], form: str) -> None:
    each = ", ".join(form.format(figure) for figure in figures)
    click.echo(f"| {title} | {form.format(median(figures))} | {each} |")


if __name__ == "__main__":
    main()
