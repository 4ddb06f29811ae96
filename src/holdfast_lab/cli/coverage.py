"""A table of the marks that a campaign of simulated clusters has hit and missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.columns import Columns
from rich.console import Console
from rich.table import Table

from holdfast_lab.sim.marks import (
    ANSWERS,
    DISK_FAULTS,
    FAULTS,
    FEATURES,
    MARK,
    MARKS,
    NEVER,
    PHASES,
    RULES_ASKED,
)

GROUPS: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("feature", FEATURES),
    ("fault", FAULTS | DISK_FAULTS),
    ("phase", PHASES),
    ("answer", ANSWERS),
    ("rule before a decision", RULES_ASKED),
)


def show(figures: Sequence[Mapping[str, int | float]], console: Console) -> None:
    """Print for each mark its number of hits, and in how many runs it was hit."""
    tables = []
    for title, names in GROUPS:
        if not names:
            continue
        table = Table(title, "times", "seeds", show_edge=False)
        for name in names:
            hits = [int(each.get(MARK + name, 0)) for each in figures]
            seen = sum(1 for hit in hits if hit)
            style = None if seen or name in NEVER else "bold red"
            table.add_row(
                name.removeprefix(f"{title.split()[0]} "), f"{sum(hits):,}", f"{seen:,}", style=style
            )
        tables.append(table)
    console.print(Columns(tables))
    console.print("cannot occur: " + "; ".join(f"{name}: {why}" for name, why in NEVER.items()))


def line(figures: Sequence[Mapping[str, int | float]]) -> str:
    seen = sum(1 for name in MARKS if any(each.get(MARK + name) for each in figures))
    return f"{seen} of {len(MARKS) - len(NEVER)} marks were hit"
