"""Planning times and their growth: `python -m holdfast_lab.bench.planning`, for docs/plan.md.

In processor seconds, so that other load of the machine hardly matters: nothing here waits.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from holdfast.core.model.migration import ReplicaList
from holdfast.core.placement.dryrun import forecast
from holdfast.core.placement.layout import Candidate, arrange

SIZES = [(271, 7, 20), (1_000, 3, 100), (10_000, 3, 100), (100_000, 3, 100), (10_000, 3, 3), (10_000, 3, 10)]
COMMAND = [sys.executable, "-c", "from holdfast.cli.main import main; main()", "plan"]


def planned(rows: list[ReplicaList], present: list[str], slots: int) -> tuple[float, int]:
    """Seconds, and the number of migrations."""
    began = time.process_time()
    outlooks = forecast(rows, set(present), [Candidate(name) for name in present], slots)
    migrations = sum(len(outlook.plan.migrations) for outlook in outlooks)
    return time.process_time() - began, migrations


def command(rows: list[ReplicaList], present: list[str], slots: int) -> float:
    """Seconds for the whole command: start, JSON input, every partition with all its states as output."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        file.write_text(json.dumps({"current": rows, "members": present, "backups": slots - 1}))
        before = children()
        subprocess.run([*COMMAND, "--json", str(file)], check=True, stdout=subprocess.DEVNULL)
        return children() - before


def children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def line(partitions: int, slots: int, members: int) -> str:
    names = [f"m{number:04d}" for number in range(members)]
    began = time.process_time()
    rows = arrange([(None,) * slots] * partitions, [Candidate(name) for name in names], slots)
    first = time.process_time() - began
    cells = [f"{first:.2f} s"]
    for present in ([*names, "new"], names[1:]):
        took, migrations = planned(rows, present, slots)
        cells.append(f"{took:.2f} s, {migrations:,}")
    cells.append(f"{command(rows, [*names, 'new'], slots):.2f} s")
    return f"| {partitions:,} x {slots} x {members} | {' | '.join(cells)} |"


@click.command()
def main() -> None:
    """Print the table of docs/plan.md."""
    titles = (
        "partitions x slots x members",
        "first rows",
        "a member joins, migrations",
        "one crashes, migrations",
    )
    click.echo(f"| {' | '.join(titles)} | `holdfast plan --json` of the join |")
    click.echo("|---|---|---|---|---|")
    for size in SIZES:
        click.echo(line(*size))


if __name__ == "__main__":
    main()
