"""`python -m holdfast_lab matrix`: the crash matrix of migrations, a sweep of it, or one case with its story."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from holdfast.cli.processes import spread
from holdfast.errors import ConfigError
from holdfast_lab.sim.ablations.rules import RULES

if TYPE_CHECKING:
    from holdfast_lab.sim.matrix.play import Case
    from holdfast_lab.sim.matrix.sweep import Tally

SHOWN_CASES = 40


def swept(case: Case, *, kinds: tuple[str, ...], sample: int, without: frozenset[str]) -> tuple[str, Tally]:
    """Sweep one part in any process. It imports the simulator here, so that other commands do not."""
    from holdfast_lab.sim.matrix.sweep import sweep

    return case.form, sweep(case, kinds, sample=sample, without=without)


@click.command
@click.option("--case", "key", metavar="KEY", help="Run only this case, and print its story.")
@click.option("--pairs", is_flag=True, help="Inject two faults per case. Takes hours; see --sample.")
@click.option("--sample", default=1, type=click.IntRange(1), help="Run one of N cases.")
@click.option(
    "--seeds", default=1, show_default=True, type=click.IntRange(1), help="Number of shuffles of each stage."
)
@click.option("--form", "forms", multiple=True, metavar="FORM", help="Only this kind of migration.")
@click.option(
    "--kinds", default="main", show_default=True, metavar="LIST", help="Kinds of faults; all: every one."
)
@click.option("--workers", default=0, type=click.IntRange(0), help="Number of processes; 0: one per core.")
@click.option(
    "--without",
    multiple=True,
    metavar="RULE",
    help="Turn a rule off. See python -m holdfast_lab simulate --rules.",
)
@click.option("--quiet", is_flag=True, help="Print no story with --case, and no progress bar.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one line of JSON per failed case, and one with totals."
)
def matrix(
    *,
    key: str | None,
    pairs: bool,
    sample: int,
    seeds: int,
    forms: tuple[str, ...],
    kinds: str,
    workers: int,
    without: tuple[str, ...],
    quiet: bool,
    as_json: bool,
) -> None:
    r"""Run every kind of migration with every fault at every packet, and check each case.

    The key of a case has the kind of migration, the role of the master, a seed, and the faults:
    move-owner/neither/0/crash:source@17. The same key gives the same run. The exit status is 1 if a case failed.

    \b
      python -m holdfast_lab matrix --pairs --sample 10
    """
    from holdfast_lab.sim.matrix.sweep import pair_starts, stages

    if unknown := sorted(set(without) - RULES.keys()):
        raise ConfigError(f"--without = {unknown[0]!r} is not allowed: the rules are {', '.join(RULES)}")
    chosen, rules = _chosen(kinds), frozenset(without)
    _check_forms(forms)
    console = Console(highlight=False, soft_wrap=True)
    if key is not None:
        sys.exit(_replay(key, rules, console, quiet=quiet))
    cases: Iterable[Case] = pair_starts(seeds, forms, chosen) if pairs else stages(seeds, forms)
    total = None if pairs else len(stages(seeds, forms))
    work = partial(swept, kinds=chosen, sample=sample, without=rules)
    sys.exit(
        _sweep(cases, work, total, workers or os.cpu_count() or 1, console, quiet=quiet, as_json=as_json)
    )


def _chosen(text: str) -> tuple[str, ...]:
    from holdfast_lab.sim.matrix.fault_keys import KINDS
    from holdfast_lab.sim.matrix.sweep import MAIN_KINDS

    if text in ("main", "all"):
        return MAIN_KINDS if text == "main" else tuple(KINDS)
    chosen = tuple(text.split(","))
    if unknown := [kind for kind in chosen if kind not in KINDS]:
        told = "\n".join(f"  {kind:16} {meaning}" for kind, meaning in KINDS.items())
        raise ConfigError(f"--kinds = {unknown[0]!r} is not allowed: write main, all, or some of\n{told}")
    return chosen


def _check_forms(forms: tuple[str, ...]) -> None:
    from holdfast_lab.sim.matrix.forms import FORMS

    if unknown := [form for form in forms if form not in FORMS]:
        raise ConfigError(f"--form = {unknown[0]!r} is not allowed: the forms are {', '.join(FORMS)}")


def _replay(key: str, without: frozenset[str], console: Console, *, quiet: bool) -> int:
    from holdfast_lab.sim.matrix.play import case_of, play

    try:
        case = case_of(key)
    except ValueError as error:
        raise ConfigError(f"--case: {error}") from None
    verdict = play(case, without=without, story=None if quiet else click.echo)
    for name, value in verdict.figures.items():
        click.echo(f"  {name:24} {value:>12,}")
    click.echo(f"  {'boundaries':24} {len(verdict.boundaries):>12,}")
    click.echo(f"  {'trace hash':24} {verdict.trace_hash}")
    for problem in verdict.problems:
        console.print(f"  {problem}", markup=False)
    said = "good" if verdict.ok else "FAILED"
    if not verdict.asked:
        said += "; not every fault happened: beyond what is promised, or after the end"
    console.print(f"{key}: {said}", style="green" if verdict.ok else "red", markup=False)
    return 0 if verdict.ok else 1


def _sweep(
    cases: Iterable[Case],
    work: partial[tuple[str, Tally]],
    total: int | None,
    workers: int,
    console: Console,
    *,
    quiet: bool,
    as_json: bool,
) -> int:
    began = time.monotonic()
    tallies: dict[str, Tally] = {}
    with _progress(disabled=quiet or as_json) as progress:
        task = progress.add_task("0 failed", total=total)
        for form, tally in spread(cases, work, workers):
            if form in tallies:
                tallies[form].join(tally)
            else:
                tallies[form] = tally
            for verdict in tally.failed:
                if as_json:
                    click.echo(json.dumps({"key": verdict.key, "problems": verdict.problems}))
                else:
                    progress.console.print(f"{verdict.key}: {verdict.problems[0]}", style="red", markup=False)
            played = sum(each.cases for each in tallies.values())
            failed = sum(len(each.failed) for each in tallies.values())
            progress.update(task, advance=1, description=f"{played:,} cases, {failed} failed")
    return _tell(tallies, time.monotonic() - began, console, as_json=as_json)


def _progress(*, disabled: bool) -> Progress:
    """On standard error: a redirected report stays clean."""
    return Progress(
        TextColumn("matrix"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True, soft_wrap=True, highlight=False),
        disable=disabled or not sys.stderr.isatty(),
        transient=True,
    )


def _tell(tallies: dict[str, Tally], seconds: float, console: Console, *, as_json: bool) -> int:
    sums: Counter[str] = Counter()
    table = Table("form", "boundaries", "cases", "not asked", "failed")
    bad = []
    for form, tally in sorted(tallies.items()):
        bad += tally.failed
        figures = {"boundaries": tally.boundaries, "cases": tally.cases, "not asked": tally.not_asked}
        sums.update(figures)
        table.add_row(form, *(f"{value:,}" for value in figures.values()), f"{len(tally.failed):,}")
    if as_json:
        click.echo(json.dumps({**sums, "failed": len(bad), "seconds": round(seconds, 1)}))
        return 1 if bad else 0
    table.add_section()
    table.add_row("all", *(f"{value:,}" for value in sums.values()), f"{len(bad):,}")
    console.print(table)
    for verdict in bad[:SHOWN_CASES]:
        console.print(
            f"replay it: python -m holdfast_lab matrix --case '{verdict.key}'", style="red", markup=False
        )
    console.print(
        f"{sums['cases']:,} cases in {seconds:,.1f} s: {len(bad)} failed",
        style="bold red" if bad else "bold green",
    )
    return 1 if bad else 0
