"""Moved replicas when a member joins or leaves, relative to the minimum: `python -m holdfast_lab.bench.moves`.

With `--placements`: balance and moves of both placements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import mean

import click

from holdfast.core.model.migration import ReplicaList
from holdfast.core.placement.affinity import layout_of
from holdfast.core.placement.layout import Candidate, Layout, arrange, minimum_moves, moves
from holdfast.core.placement.planner import plan

PARTITIONS = 271
LARGEST = 10


def step(rows: list[ReplicaList], first: int, last: int, backups: int) -> tuple[list[ReplicaList], int, int]:
    """Move to the members first..last: the new rows, the copies made, and the minimum."""
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
    """Grow from one member to the largest cluster, then remove the oldest one by one: name, copies, minimum."""
    rows, _, _ = step([()] * PARTITIONS, 1, 1, backups)
    table = []
    for last in range(2, LARGEST + 1):
        rows, made, least = step(rows, 1, last, backups)
        table.append((f"{last - 1} → {last}", made, least))
    for first in range(2, LARGEST + 1):
        rows, made, least = step(rows, first, LARGEST, backups)
        table.append((f"{LARGEST - first + 2} → {LARGEST - first + 1}", made, least))
    return table


SMALLEST = 3
CLUSTERS = 200
"""Rendezvous placement depends on the members' names: number of clusters with different names."""


def loads(rows: Sequence[ReplicaList], members: int, slots: int) -> tuple[int, int]:
    """The smallest and the largest number of replicas of a member in the first `slots` slots."""
    counts = Counter(member for row in rows for member in row[:slots])
    return min(counts.values()) if len(counts) == members else 0, max(counts.values())


def grown(layout: Layout, cluster: int, backups: int) -> list[tuple[int, ...]]:
    """From three members to ten, removing one after each step: the loads, and the moves of the join and the leave."""
    named = [Candidate(f"m{number:02d}", "", f"{cluster}-{number}") for number in range(1, LARGEST + 1)]
    rows = layout([()] * PARTITIONS, named[: SMALLEST - 1], backups + 1)
    table = []
    for count in range(SMALLEST, LARGEST + 1):
        before, rows = rows, layout(rows, named[:count], backups + 1)
        left = layout(rows, named[1:count], backups + 1)
        owned, held = loads(rows, count, 1), loads(rows, count, backups + 1)
        table.append((*owned, *held, moves(before, rows), moves(rows, left)))
    return table


def compare(backups: int) -> None:
    pairs = [
        f"{what}: {how}" for what in ("owned", "held", "joins", "leaves") for how in ("even", "rendezvous")
    ]
    click.echo(f"| members | {' | '.join(pairs)} |\n|{'---|' * 9}")
    even = grown(arrange, 0, backups)
    ranked = [grown(layout_of("rendezvous")(range(PARTITIONS)), each, backups) for each in range(CLUSTERS)]
    for number, row in enumerate(even):
        some = [round(mean(told[number][column] for told in ranked)) for column in range(len(row))]
        cells = [
            f"{row[0]} to {row[1]}",
            f"{some[0]} to {some[1]}",
            f"{row[2]} to {row[3]}",
            f"{some[2]} to {some[3]}",
        ]
        cells += [str(value) for pair in zip(row[4:], some[4:], strict=True) for value in pair]
        click.echo(f"| {SMALLEST + number} | {' | '.join(cells)} |")


@click.command()
@click.option("--placements", is_flag=True, help="Compare the placements instead.")
def main(*, placements: bool) -> None:
    if placements:
        compare(1)
        return
    click.echo("| members | 1 backup: copied | least | 2 backups: copied | least |")
    click.echo("|---|---|---|---|---|")
    for (name, one, least_one), (_, two, least_two) in zip(story(1), story(2), strict=True):
        click.echo(f"| {name} | {one} | {least_one} | {two} | {least_two} |")


if __name__ == "__main__":
    main()
