"""The cost of a returning member: `python -m holdfast_lab.bench.rejoin`. A part of docs/performance.md.

Three members with one backup hold a million entries. One of them is killed, a part of the entries changes during its
absence, and it is restarted: with its files, and with an empty directory. In one case `partitions.rebalance_delay_ms`
is longer than the absence, so its replicas stay reserved; in the other the others have recreated all copies in between.
The figures are the bytes that primaries send for this, and the seconds from the start of its process until every
partition has all its copies.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click

from holdfast_lab.bench import bulk, report
from holdfast_lab.bench.run import ROOT
from holdfast_lab.processes.local_cluster import LocalCluster, Status

SETTLE_S = 900.0
KINDS = {"history": "history_bytes", "ranges": "ranges_bytes", "full": "full_bytes"}
"""Ways in which a primary fills a copy: the name here, and its counter in the status."""
MEGABYTE = 1_000_000
CHECKED = 1_000
"""Approximate number of changed entries, and of all entries, that are read back at the end."""
AIM = 0.03
HEAD = ["one member of three comes back", "with its files", "with an empty directory", "share"]
METHOD = """
Bytes are those of chunks that all members have sent for migrations and repairs since the start of the process until the
cluster is settled. "Share" is files against empty directory (aim for the bytes: at most 3 %). Seconds count from the
start of the process; they contain its start and the reading of its own files. The cluster is looked at every 0.2 s.
With the delay, the partitions that lost their backup have none until the member is back. Without it the two others have
taken all copies, and some go back to the member that has returned. On loopback bytes cost next to nothing, and all
members share the machine: so the seconds say how long files are read, not what a network would save.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    entries: int = 1_000_000
    value_bytes: int = 1024
    away_s: float = 60.0
    changed: float = 0.01
    journal: str = "sync"

    def config(self, *, delay: bool) -> str:
        """The members' configuration. `delay`: whether the absent member's replicas stay reserved."""
        delay_ms = int(1000 * (self.away_s + SETTLE_S)) if delay else 0
        return (
            f"[partitions]\nrebalance_delay_ms = {delay_ms}\n"
            f'[maps.default]\nbackups = 1\njournal = "{self.journal}"\n'
        )


USUAL = Plan()


@dataclass(slots=True)
class Back:
    bytes_sent: int = 0
    seconds: float = 0.0
    by_kind: dict[str, int] = field(default_factory=dict)
    """Separately counted: history, key ranges, full."""


@dataclass(frozen=True, slots=True)
class Sent:
    total: int
    by_kind: dict[str, int]

    def since(self, earlier: Sent) -> Sent:
        return Sent(
            self.total - earlier.total,
            {kind: count - earlier.by_kind.get(kind, 0) for kind, count in self.by_kind.items()},
        )


def sent(statuses: list[Status]) -> Sent:
    by_kind = {
        kind: sum(getattr(status.replicas, counter) for status in statuses) for kind, counter in KINDS.items()
    }
    return Sent(sum(status.migrations.sent_bytes for status in statuses), by_kind)


def come_back(plan: Plan, *, delay: bool, files: bool, folder: Path) -> Back:
    """Measure the return after one absence, in a new cluster."""
    dice = random.Random(plan.entries)
    with LocalCluster(3, plan.config(delay=delay), data_dir=folder, ready_timeout=SETTLE_S) as cluster:
        cluster.wait_settled(60)
        bulk.fill_holdfast(cluster.client_addresses(), bulk.same(range(plan.entries)), plan.value_bytes)
        victim = cluster.members[-1]
        cluster.kill(victim)
        gone_s = time.monotonic()
        changed = dice.sample(range(plan.entries), round(plan.changed * plan.entries))
        bulk.fill_holdfast(
            cluster.client_addresses(), ((key, key + plan.entries) for key in changed), plan.value_bytes
        )
        if not delay:
            cluster.wait_settled(SETTLE_S)
        time.sleep(max(0.0, gone_s + plan.away_s - time.monotonic()))
        if not files:
            shutil.rmtree(cluster.directory(victim))
        before = sent([cluster.status(member) for member in cluster.alive])
        begun_s = time.monotonic()
        cluster.restart([victim])
        cluster.wait_settled(SETTLE_S)
        seconds = cluster.seen_s - begun_s
        cost = sent([cluster.status(member) for member in cluster.alive]).since(before)
        new = set(changed)
        looked_at = [*changed[:CHECKED], *range(0, plan.entries, max(1, plan.entries // CHECKED))]
        wanted = {key: key + plan.entries if key in new else key for key in looked_at}
        if wrong := bulk.missing(cluster.client_addresses(), wanted, plan.value_bytes):
            raise click.ClickException(f"{wrong} of {len(wanted)} entries are not as they should be")
        return Back(cost.total, seconds, cost.by_kind)


def rows_of(title: str, files: Back, empty: Back) -> list[list[str]]:
    share = files.bytes_sent / empty.bytes_sent if empty.bytes_sent else 0.0
    late = "" if share <= AIM else f" (aim: {AIM:.0%})"
    return [
        [f"{title}: MB sent", _megabytes(files), _megabytes(empty), f"{share:.1%}{late}"],
        [
            f"{title}: seconds until whole",
            f"{files.seconds:.1f}",
            f"{empty.seconds:.1f}",
            f"{files.seconds / empty.seconds:.0%}" if empty.seconds else "-",
        ],
    ]


def _megabytes(back: Back) -> str:
    parts = [f"{kind} {count / MEGABYTE:,.1f}" for kind, count in back.by_kind.items() if count]
    return f"{back.bytes_sent / MEGABYTE:,.1f}" + (f" ({', '.join(parts)})" if parts else "")


@contextmanager
def _folder(where: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="holdfast-rejoin-", dir=where) as name:
        yield Path(name)


@click.command()
@click.option("--entries", default=USUAL.entries, show_default=True, help="Entries of the map.")
@click.option("--value-bytes", default=USUAL.value_bytes, show_default=True, help="Size of each value.")
@click.option(
    "--away-s", "away", default=USUAL.away_s, show_default=True, help="Seconds for which the member is away."
)
@click.option(
    "--changed", default=USUAL.changed, show_default=True, help="Share of the entries written meanwhile."
)
@click.option("--journal", default=USUAL.journal, show_default=True, type=click.Choice(["sync", "lazy"]))
@click.option("--delay", type=click.Choice(["both", "with", "without"]), default="both", show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), help="Where the members' files go.")
@click.option("--out", type=click.Path(path_type=Path), help="Page whose part is written.")
def main(
    entries: int,
    value_bytes: int,
    away: float,
    changed: float,
    journal: str,
    delay: str,
    directory: Path | None,
    out: Path | None,
) -> None:
    """Measure the cost of a returning member."""
    load = os.getloadavg()[0]
    plan = Plan(entries, value_bytes, away, changed, journal)
    rows: list[list[str]] = []
    for kept in (True, False):
        if delay not in ("both", "with" if kept else "without"):
            continue
        found: dict[bool, Back] = {}
        for files in (True, False):
            with _folder(directory) as folder:
                found[files] = come_back(plan, delay=kept, files=files, folder=folder)
            click.echo(f"delay {kept}, files {files}: {found[files]}", err=True)
        rows += rows_of("its place was kept" if kept else "it was replaced", found[True], found[False])
    usual = asdict(USUAL) | {"delay": "both"}
    command = report.command("holdfast_lab.bench.rejoin", asdict(plan) | {"delay": delay}, usual)
    what = f"{entries:,} entries of {value_bytes} bytes, {away:g} s away, {changed:.1%} changed, journal {journal}"
    text = (
        f"## The return of a member\n\nMade by `{command}`.\n\n{report.table(HEAD, rows)}\n\n"
        f"* {what}.\n* {report.machine(load)}.\n{METHOD}"
    )
    click.echo(text)
    target = out or ROOT / "docs" / "performance.md"
    report.write_part(target, "bench rejoin", text, "python -m holdfast_lab.bench.rejoin")
    click.echo(f"Written to {target}")


if __name__ == "__main__":
    main()
