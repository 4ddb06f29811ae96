"""The time that a member needs to serve the data in its files: `python -m holdfast_lab.bench.recovery`. A part of
docs/performance.md.

One member is filled, killed and restarted: most entries are in its checkpoints, the rest in its journal. In the
same run redis-server loads the same entries from its RDB file and from its append-only file. All files have
just been written, so both systems read them from the page cache.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import click

from holdfast.errors import HoldfastError
from holdfast_lab.bench import bulk, report, systems
from holdfast_lab.bench.run import ROOT
from holdfast_lab.bench.systems import process_cpu_seconds
from holdfast_lab.processes.local_cluster import HOST, LocalCluster, ManagedMember, free_ports

PATIENCE_S = 900.0
LOOK_S = 0.02
MEGABYTE = 1_000_000
CHECKED = 2_000
EAGER, NEVER = 65_536, 1 << 40
"""Settings of `persistence.checkpoint_bytes`: as often as possible, and never."""
STILL_S = 3.0
"""After this time without a new checkpoint, all checkpoints are complete."""
HEAD = [
    "from the start of the process until it serves",
    "seconds",
    "MB/s",
    "CPU seconds",
    "rounds",
    "Holdfast is",
]
METHOD = """
The MB are those of keys and values. A member serves when every one of its partitions does, Redis when it answers PING.
Both start from nothing: Holdfast's seconds contain the start of Python. "Holdfast is" compares MB/s (aim: at least
0.5). The RDB file is that of SAVE, the append-only file holds a SET for each entry. The files have just been written:
they come from the memory of the operating system.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    entries: int = 1_000_000
    value_bytes: int = 1024
    journal_share: float = 0.1
    rounds: int = 3

    @property
    def size(self) -> int:
        return self.entries * (bulk.KEY_BYTES + self.value_bytes)

    @property
    def first(self) -> int:
        return self.entries - round(self.entries * self.journal_share)


USUAL = Plan()


@dataclass(frozen=True, slots=True)
class Start:
    seconds: float
    cpu_seconds: float
    """Processor time of the process until it is ready."""


# -- Holdfast


def _config(checkpoint_bytes: int) -> str:
    return f'[persistence]\ncheckpoint_bytes = {checkpoint_bytes}\n[maps.default]\nbackups = 0\njournal = "lazy"\n'


@contextmanager
def filled(plan: Plan, folder: Path) -> Iterator[LocalCluster]:
    """A killed member: the first entries are in its checkpoints, the others only in its journal."""
    with LocalCluster(1, _config(EAGER), data_dir=folder, ready_timeout=PATIENCE_S) as cluster:
        addresses = [cluster.members[0].client_address]
        bulk.fill_holdfast(addresses, bulk.same(range(plan.first)), plan.value_bytes)
        wait_still(cluster.directory(cluster.members[0]))
        cluster.config = _config(NEVER)
        cluster.restart(cluster.kill_all())
        wait_serving(cluster, cluster.members[-1])
        bulk.fill_holdfast(addresses, bulk.same(range(plan.first, plan.entries)), plan.value_bytes)
        # Lazily journalled data is written within milliseconds, and survives a kill in the page cache.
        time.sleep(1)
        cluster.kill_all()
        yield cluster


def wait_still(directory: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    seen: set[str] = set()
    since_s = time.monotonic()
    while time.monotonic() < deadline:
        names = {file.name for file in directory.glob("*.parquet")}
        if names != seen:
            seen, since_s = names, time.monotonic()
        elif names and time.monotonic() - since_s > STILL_S:
            return
        time.sleep(LOOK_S * 10)
    raise click.ClickException("checkpoints go on being made, or none is")


def wait_serving(cluster: LocalCluster, member: ManagedMember) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if not member.alive:
            raise click.ClickException(f"the member has ended:\n{member.log_tail()}")
        try:
            status = cluster.status(member)
        except (HoldfastError, OSError):
            pass
        else:
            if status.partitions.serving == status.partitions.count:
                return status.entries.primary
        time.sleep(LOOK_S)
    raise click.ClickException(f"the member does not serve:\n{member.log_tail()}")


def start_holdfast(plan: Plan, cluster: LocalCluster) -> Start:
    begun_s = time.monotonic()
    [member] = cluster.restart(cluster.members[-1:], wait=False)
    held = wait_serving(cluster, member)
    start = Start(time.monotonic() - begun_s, process_cpu_seconds(member.pid))
    looked_at = {number: number for number in range(0, plan.entries, max(1, plan.entries // CHECKED))}
    wrong = bulk.missing([member.client_address], looked_at, plan.value_bytes)
    cluster.kill_all()
    if held != plan.entries or wrong:
        raise click.ClickException(
            f"{held} of {plan.entries} entries are back; {wrong} of {len(looked_at)} are wrong"
        )
    return start


def sizes(directory: Path) -> tuple[int, int]:
    """Bytes of the newest checkpoint of each partition, and of the journal segments."""
    newest: dict[str, Path] = {}
    for file in sorted(directory.glob("p*.parquet")):
        newest[file.name.partition("-")[0]] = file
    journal = sum(file.stat().st_size for file in directory.glob("j*.seg"))
    return sum(file.stat().st_size for file in newest.values()), journal


# -- Redis


@contextmanager
def redis(folder: Path, *, append: bool) -> Iterator[tuple[int, int, float]]:
    """A redis-server with the files in this folder, ready: its port, its pid, and its start time."""
    program = systems.redis_program()
    assert program is not None, "ask redis_program() first"
    [port] = free_ports(1)
    command = [program, "--port", str(port), "--bind", HOST, "--dir", str(folder), "--save", ""]
    command += ["--appendonly", "yes" if append else "no", "--appendfsync", "everysec"]
    command += ["--auto-aof-rewrite-percentage", "0"]
    begun_s = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        wait_pong(port)
        yield port, process.pid, begun_s
    finally:
        process.kill()
        process.wait()


def wait_pong(port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(OSError):
            if ask(port, b"PING\r\n") == b"+PONG":
                return
        time.sleep(LOOK_S)
    raise click.ClickException("redis-server does not get ready")


def ask(port: int, question: bytes) -> bytes:
    with socket.create_connection((HOST, port), timeout=PATIENCE_S) as door:
        door.sendall(question)
        answer = b""
        while not answer.endswith(b"\r\n") and (piece := door.recv(1024)):
            answer += piece
        return answer.partition(b"\r\n")[0]


def fill_redis(plan: Plan, folder: Path) -> None:
    with redis(folder, append=True) as (port, _, _):
        bulk.fill_redis(port, bulk.same(range(plan.entries)), plan.value_bytes)
        if ask(port, b"SAVE\r\n") != b"+OK":
            raise click.ClickException("redis-server cannot save")
        # Redis writes the append-only file at the end of each turn, and syncs the rest each second.
        time.sleep(2)


def start_redis(plan: Plan, folder: Path, *, append: bool) -> Start:
    with redis(folder, append=append) as (port, pid, begun_s):
        start = Start(time.monotonic() - begun_s, process_cpu_seconds(pid))
        if ask(port, b"DBSIZE\r\n") != b":%d" % plan.entries:
            raise click.ClickException("redis-server has not loaded all entries")
    return start


# -- the run


def rows_of(plan: Plan, starts: dict[str, list[Start]]) -> list[list[str]]:
    """A row for each kind of start, under `HEAD`; the first is Holdfast's."""
    ours = median(start.seconds for start in next(iter(starts.values())))
    rows = []
    for number, (name, found) in enumerate(starts.items()):
        seconds = median(start.seconds for start in found)
        cpu = median(start.cpu_seconds for start in found)
        each = ", ".join(f"{start.seconds:.1f}" for start in found)
        share = f"{seconds / ours:.2f} of it" if number else ""
        rows.append(
            [name, f"{seconds:.1f}", f"{plan.size / seconds / MEGABYTE:,.0f}", f"{cpu:.1f}", each, share]
        )
    return rows


@click.command()
@click.option("--entries", default=USUAL.entries, show_default=True, help="Entries that come back.")
@click.option("--value-bytes", default=USUAL.value_bytes, show_default=True, help="Size of each value.")
@click.option(
    "--journal-share", default=USUAL.journal_share, show_default=True, help="Share that is only journalled."
)
@click.option("--rounds", default=USUAL.rounds, show_default=True, help="How often; the medians are told.")
@click.option("--directory", type=click.Path(path_type=Path), help="Where the files go.")
@click.option("--out", type=click.Path(path_type=Path), help="Page whose part is written.")
def main(
    entries: int,
    value_bytes: int,
    journal_share: float,
    rounds: int,
    directory: Path | None,
    out: Path | None,
) -> None:
    """Measure restart times, compared with Redis."""
    load = os.getloadavg()[0]
    plan = Plan(entries, value_bytes, journal_share, rounds)
    name = "Holdfast: checkpoints and journal"
    starts: dict[str, list[Start]] = {name: []}
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-recovery-", dir=directory))
        )
        cluster = stack.enter_context(filled(plan, folder / "holdfast"))
        written = sizes(cluster.directory(cluster.members[0]))
        files = {"Redis: RDB": False, "Redis: append-only file": True} if systems.redis_program() else {}
        if files:
            (folder / "redis").mkdir()
            fill_redis(plan, folder / "redis")
        for turn in range(rounds):
            starts[name].append(start_holdfast(plan, cluster))
            for title, append in files.items():
                starts.setdefault(title, []).append(start_redis(plan, folder / "redis", append=append))
            click.echo(f"round {turn + 1}: {[found[-1] for found in starts.values()]}", err=True)
    checkpoints, journal = (size / MEGABYTE for size in written)
    text = (
        f"## Recovery\n\nMade by `{report.command('holdfast_lab.bench.recovery', asdict(plan), asdict(USUAL))}`.\n\n"
        f"{report.table(HEAD, rows_of(plan, starts))}\n\n"
        f"* {plan.entries:,} entries with values of {plan.value_bytes} bytes: {plan.first:,} of them in checkpoints "
        f"({checkpoints:,.0f} MB), all others in the journal only ({journal:,.0f} MB with what it keeps as history "
        f"and has reserved).\n* {report.machine(load)}.\n{METHOD}"
    )
    click.echo(text)
    target = out or ROOT / "docs" / "performance.md"
    report.write_part(target, "bench recovery", text, "python -m holdfast_lab.bench.recovery")
    click.echo(f"Written to {target}")


if __name__ == "__main__":
    main()
