"""How many replicas move when a member joins or leaves, against the least possible: `python -m bench.moves`."""

from __future__ import annotations

import click

from holdfast.core.model.migration_step import ReplicaList
from holdfast.core.placement.layout import Candidate, arrange, minimum_moves, moves
from holdfast.core.placement.planner import plan

PARTITIONS = 271
LARGEST = 10


def step(rows: list[ReplicaList], first: int, last: int, backups: int) -> tuple[list[ReplicaList], int, int]:
    """Move to the members first..last: the rows after, the copies made and the least possible."""
    candidates = [Candidate(f"m{number:02d}") for number in range(first, last + 1)]
    target = arrange(rows, candidates, backups + 1)
    reached = [
        plan(partition, old, new).target
        for partition, (old, new) in enumerate(zip(rows, target, strict=True))
    ]
    if reached != target or arrange(reached, candidates, backups + 1) != reached:
        raise click.ClickException("a layout was not reached, or not final")
    return reached, moves(rows, target), minimum_moves(rows, candidates, backups + 1)


def story(backups: int) -> list[tuple[str, int, int]]:
    """Grow from one member to the largest cluster, then let the oldest leave one by one: name, copies, least."""
    rows, _, _ = step([()] * PARTITIONS, 1, 1, backups)
    table = []
    for last in range(2, LARGEST + 1):
        rows, made, least = step(rows, 1, last, backups)
        table.append((f"{last - 1} → {last}", made, least))
    for first in range(2, LARGEST + 1):
        rows, made, least = step(rows, first, LARGEST, backups)
        table.append((f"{LARGEST - first + 2} → {LARGEST - first + 1}", made, least))
    return table


@click.command()
def main() -> None:
    """Print the table of docs/placement.md."""
    click.echo("| members | 1 backup: copied | least | 2 backups: copied | least |")
    click.echo("|---|---|---|---|---|")
    for (name, one, least_one), (_, two, least_two) in zip(story(1), story(2), strict=True):
        click.echo(f"| {name} | {one} | {least_one} | {two} | {least_two} |")


if __name__ == "__main__":
    main()
