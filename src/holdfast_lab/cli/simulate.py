"""`python -m holdfast_lab simulate`: one seed with its story, a campaign, or a search for runs that show broken
rules.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from holdfast.cli.paths import LocalPath
from holdfast.cli.processes import spread
from holdfast.errors import ConfigError
from holdfast_lab.sim.ablations.rules import DIRECTED, DURABLE, RULES, TRANSACTIONAL, ZONED

if TYPE_CHECKING:
    from holdfast_lab.sim.run import Verdict
    from holdfast_lab.sim.shape import Journalling

JOURNALS = ("off", "sync", "lazy", "mixed")
DEFAULT_JOURNAL: Journalling = "mixed"
"""Default of a campaign, and of replays of its seeds: disk and network faults occur together."""
ENOUGH_SEEDS = 200
"""Fewest seeds of a campaign that must hit every mark; a shorter one may have no occasion."""
FAULT = "fault_"
"""Prefix of fault figures, before their kind."""
MARK = "mark_"
"""Prefix of mark figures, before their name (`holdfast_lab.sim.marks`)."""
SHOWN_PROBLEMS = 5
SHOWN_SEEDS = 20
STARTS = 5
"""Number of seeds from which `--alarm` starts to search."""
RUNS_MAX = 50
"""The median search must find a lie within so many runs."""


class Terms(NamedTuple):
    without: frozenset[str] = frozenset()
    journal: Journalling = DEFAULT_JOURNAL
    power_cuts: bool = False
    memory: bool = False
    lies: frozenset[str] = frozenset()
    zones: bool = False
    transactions: bool = False
    compiled: bool = False

    def flags(self) -> str:
        rules = "".join(f" --without {rule}" for rule in sorted(self.without))
        rules += "".join(f" --lie {lie}" for lie in sorted(self.lies))
        memory = (" --memory" if self.memory else "") + (" --zones" if self.zones else "")
        memory += " --transactions" if self.transactions else ""
        memory += " --compiled" if self.compiled else ""
        return rules + (" --power-cuts" if self.power_cuts else f" --journal {self.journal}") + memory


def parse_seeds(text: str) -> range:
    """`500` means 0 to 499; `100..199` includes both ends."""
    first, dots, last = text.partition("..")
    try:
        seeds = range(int(first), int(last) + 1) if dots else range(int(first))
    except ValueError:
        raise ConfigError(f"--seeds = {text!r} is not allowed: give a count, or FIRST..LAST") from None
    if not seeds or seeds[0] < 0:
        raise ConfigError(f"--seeds = {text!r} names no seed: give a count, or FIRST..LAST")
    return seeds


def campaign(seeds: range, terms: Terms, workers: int) -> Generator[Verdict, None, None]:
    """The verdict of every seed as it arrives. A run that raises counts as failed."""
    yield from spread(seeds, partial(judged, terms=terms), workers)


def simulate_seed(
    seed: int,
    terms: Terms,
    *,
    story: Callable[[str], None] | None = None,
    record: Callable[[bytes], object] | None = None,
) -> Verdict:
    """Run one seed. It imports the simulator here, so that other commands do not."""
    from holdfast.runtime.data_lane import data_lane
    from holdfast.server.hazelcast.frame_serving import PLAIN_WAYS
    from holdfast_lab.sim.run import simulate

    return simulate(
        seed,
        without=terms.without,
        lies=terms.lies,
        story=story,
        journal=terms.journal,
        power_cuts=terms.power_cuts,
        memory=terms.memory,
        zones=terms.zones,
        transactions=terms.transactions,
        record=record,
        ways=data_lane().ways if terms.compiled else PLAIN_WAYS,
    )


def judged(seed: int, terms: Terms) -> Verdict:
    """Run one seed; an exception of the member's or the simulator's code becomes a failed verdict."""
    from holdfast_lab.sim.run import Verdict

    began = time.process_time()
    try:
        verdict = simulate_seed(seed, terms)
        verdict.figures["cpu_s"] = round(time.process_time() - began, 3)
        return verdict
    except Exception as error:  # noqa: BLE001 - whatever goes wrong belongs to this seed
        return Verdict(seed, False, [f"{type(error).__name__}: {error}"], "", {})


@click.command
@click.option("--seed", type=click.IntRange(0), help="Run only this seed, and print its story.")
@click.option("--seeds", default="500", show_default=True, metavar="N|A..B", help="Seeds of the campaign.")
@click.option("--workers", default=0, type=click.IntRange(0), help="Number of processes; 0: one per core.")
@click.option("--without", multiple=True, metavar="RULE", help="Turn a rule off. See --rules.")
@click.option("--lie", "lies", multiple=True, metavar="LIE", help="Let members lie. See --rules.")
@click.option(
    "--alarm",
    is_flag=True,
    help="Measure how soon the checks notice each broken rule and each lie, or those that are named.",
)
@click.option(
    "--journal",
    type=click.Choice(JOURNALS),
    help="Journal mode of the maps; mixed (default): each seed draws one of the others.",
)
@click.option(
    "--power-cuts",
    is_flag=True,
    help="Cut the power of all members at once, at least twice per seed; journal sync.",
)
@click.option("--memory", is_flag=True, help="Let members run short of memory from time to time.")
@click.option("--zones", is_flag=True, help="Add a metastore, and put one map into a zone.")
@click.option("--transactions", is_flag=True, help="Add applications that run transactions over all maps.")
@click.option(
    "--compiled",
    is_flag=True,
    help="Use compiled code, as in production. A seed gives the same run only with the same PYTHONHASHSEED.",
)
@click.option(
    "--coverage",
    is_flag=True,
    help="Show what the campaign exercised, and fail if something was missed, even in a short campaign.",
)
@click.option("--rules", is_flag=True, help="List the rules and the lies.")
@click.option(
    "--record",
    type=LocalPath(dir_okay=False, writable=True, path_type=Path),
    help="With --seed: record the run for `python -m holdfast_lab replay`.",
)
@click.option("--quiet", is_flag=True, help="Print no story with --seed, and no progress bar.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON per verdict.")
def simulate(
    *,
    seed: int | None,
    seeds: str,
    workers: int,
    without: tuple[str, ...],
    lies: tuple[str, ...],
    alarm: bool,
    journal: Journalling | None,
    power_cuts: bool,
    memory: bool,
    zones: bool,
    transactions: bool,
    compiled: bool,
    coverage: bool,
    rules: bool,
    record: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    r"""Simulate whole clusters with faults, and check that nothing is lost, leaks or hangs.

    The same seed gives the same run and the same trace hash. A campaign ends with the number of migrations that
    finished between the first and the last fault, and the share of client writes that was checked. A campaign of at
    least 200 seeds also counts how often each feature, fault, response and rule occurred, and fails if one never did.
    --alarm turns off each safety rule, and injects each lie, until a run fails. The exit status is 1 if a run failed
    or something never occurred; with --alarm, if a broken rule went unnoticed or a lie took over 50 runs in the median.

    \b
      python -m holdfast_lab simulate --seeds 0..199 --journal mixed
    """
    console = Console(highlight=False, soft_wrap=True)
    if unknown := sorted(set(without) - RULES.keys()):
        raise ConfigError(f"--without = {unknown[0]!r} is not allowed: the rules are {', '.join(RULES)}")
    from holdfast_lab.sim.lies import LIES

    if unknown := sorted(set(lies) - LIES.keys()):
        raise ConfigError(f"--lie = {unknown[0]!r} is not allowed: the lies are {', '.join(LIES)}")
    if rules:
        for name, meaning in [*RULES.items(), *((name, lie.meaning) for name, lie in LIES.items())]:
            click.echo(f"{name:24} {meaning}")
        return
    if power_cuts and journal not in (None, "sync"):
        raise ConfigError(
            f"--power-cuts is not allowed with --journal {journal}: only 'sync' survives them whole"
        )
    if record is not None and seed is None:
        raise ConfigError("--record is for one --seed")
    if compiled:
        _see_what_is_compiled(recorded=record is not None)
    workers = workers or os.cpu_count() or 1
    terms = Terms(
        frozenset(without),
        journal or ("sync" if power_cuts else DEFAULT_JOURNAL),
        power_cuts,
        memory,
        frozenset(lies),
        zones,
        transactions,
        compiled,
    )
    if alarm:
        sys.exit(_alarm(parse_seeds(seeds), terms, workers, console))
    if seed is not None:
        with record.open("wb") if record is not None else nullcontext() as file:
            write = file.write if file is not None else None
            sys.exit(_one_seed(seed, terms, console, write, quiet=quiet, as_json=as_json))
    chosen = parse_seeds(seeds)
    whole = coverage or (len(chosen) >= ENOUGH_SEEDS and not terms.without)
    sys.exit(_campaign(chosen, terms, workers, console, quiet=quiet, as_json=as_json, coverage=whole))


def _see_what_is_compiled(*, recorded: bool) -> None:
    """Raises ConfigError if members cannot use compiled code."""
    from holdfast.runtime.data_lane import data_lane

    if recorded:
        raise ConfigError("--record is not allowed with --compiled: a record is replayed in plain Python")
    if (lane := data_lane()).kind == "python":
        raise ConfigError(f"--compiled is not possible: {lane.why}")


def _one_seed(
    seed: int,
    terms: Terms,
    console: Console,
    record: Callable[[bytes], object] | None,
    *,
    quiet: bool,
    as_json: bool,
) -> int:
    verdict = simulate_seed(seed, terms, story=None if quiet or as_json else click.echo, record=record)
    if as_json:
        click.echo(_line(verdict))
        return 0 if verdict.ok else 1
    for name, value in verdict.figures.items():
        if name.startswith(MARK):
            continue
        click.echo(f"  {name:24} {value:>12,}")
    click.echo(f"  {'trace hash':24} {verdict.trace_hash}")
    _show_problems([] if verdict.ok else [verdict], terms, console)
    console.print(
        f"seed {seed}: good" if verdict.ok else f"seed {seed}: FAILED", style="green" if verdict.ok else "red"
    )
    return 0 if verdict.ok else 1


def _campaign(
    seeds: range,
    terms: Terms,
    workers: int,
    console: Console,
    *,
    quiet: bool,
    as_json: bool,
    coverage: bool,
) -> int:
    began = time.monotonic()
    verdicts: list[Verdict] = []
    with _progress(disabled=quiet or as_json) as progress:
        task = progress.add_task("0 failed", total=len(seeds))
        for verdict in campaign(seeds, terms, workers):
            verdicts.append(verdict)
            if as_json:
                click.echo(_line(verdict))
            elif not verdict.ok:
                progress.console.print(f"seed {verdict.seed}: {_first(verdict)}", style="red", markup=False)
            failed = sum(1 for each in verdicts if not each.ok)
            progress.update(task, advance=1, description=f"{failed} failed")
    verdicts.sort(key=lambda verdict: verdict.seed)
    bad = [verdict for verdict in verdicts if not verdict.ok]
    if not as_json:
        _show_problems(bad[:SHOWN_SEEDS], terms, console)
        _show_figures(verdicts, time.monotonic() - began, console)
    idle = _show_coverage(verdicts, terms, console, whole=coverage, quiet=as_json)
    return 1 if bad or (coverage and idle) else 0


def _show_coverage(
    verdicts: list[Verdict], terms: Terms, console: Console, *, whole: bool, quiet: bool
) -> list[str]:
    """Print the coverage; returns the marks that were never hit though they could be."""
    from holdfast_lab.cli import coverage
    from holdfast_lab.sim.marks import missing

    figures = [verdict.figures for verdict in verdicts]
    total: Counter[str] = Counter()
    for each in figures:
        total.update(each)
    idle = missing(
        total,
        disks=terms.journal != "off",
        cuts_only=terms.power_cuts,
        zones=terms.zones,
        transactions=terms.transactions,
    )
    if quiet:
        return idle
    if not whole:
        console.print(coverage.line(figures))
        return idle
    coverage.show(figures, console)
    if idle:
        console.print(f"never came up: {', '.join(idle)}", style="bold red", markup=False)
    return idle


def _alarm(seeds: range, terms: Terms, workers: int, console: Console) -> int:
    from holdfast_lab.sim.lies import LIES

    everything = not (terms.without or terms.lies)
    chosen = RULES.keys() - DIRECTED if everything else terms.without
    missed = 0
    hunts = [
        (
            rule,
            terms._replace(
                without=frozenset({rule}),
                lies=frozenset(),
                zones=terms.zones or rule in ZONED,
                transactions=terms.transactions or rule in TRANSACTIONAL,
            ),
            rule in DURABLE,
        )
        for rule in RULES
        if rule in chosen
    ]
    hunts += [
        (
            name,
            terms._replace(without=frozenset(), lies=frozenset({name}), zones=terms.zones or lie.zones),
            lie.power_cuts,
        )
        for name, lie in LIES.items()
        if everything or name in terms.lies
    ]
    for name, broken, dark in hunts:
        # Only a power cut shows data missing on the disk.
        terms = broken._replace(journal="sync", power_cuts=True) if dark else broken
        found = list(_hunts(seeds, terms, workers))
        runs = [math.inf if hunt is None else hunt.seed - start + 1 for start, hunt in found]
        first = next((hunt for _, hunt in found if hunt is not None), None)
        late = name in LIES and statistics.median(runs) > RUNS_MAX
        missed += first is None or late
        if first is None:
            console.print(f"{name:24} NOT FOUND in {len(seeds)} runs", style="red")
        else:
            told = ", ".join("none" if count == math.inf else f"{count:g}" for count in runs)
            what = f"found by seed {first.seed}, after runs: {told}: {_first(first)}"
            console.print(f"{name:24} {what}", style="red" if late else None, markup=False)
    total = f"{len(hunts) - missed} of {len(hunts)} broken rules and lies found"
    console.print(total, style="red" if missed else "green")
    return 1 if missed else 0


def _hunts(seeds: range, terms: Terms, workers: int) -> Generator[tuple[int, Verdict | None], None, None]:
    """For each of `STARTS` first seeds: that seed and its first failed run."""
    count = min(STARTS, len(seeds))
    for number in range(count):
        mine = seeds[number * len(seeds) // count : (number + 1) * len(seeds) // count]
        verdicts = campaign(mine, terms, workers)
        yield mine[0], next((verdict for verdict in verdicts if not verdict.ok), None)
        verdicts.close()


def _progress(*, disabled: bool) -> Progress:
    """On standard error: a redirected report stays clean."""
    return Progress(
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True, soft_wrap=True, highlight=False),
        disable=disabled or not sys.stderr.isatty(),
        transient=True,
    )


def _show_problems(bad: list[Verdict], terms: Terms, console: Console) -> None:
    for verdict in bad:
        replay = f"python -m holdfast_lab simulate --seed {verdict.seed}{terms.flags()}"
        console.print(f"seed {verdict.seed} failed; replay it: {replay}", style="red")
        for problem in verdict.problems[:SHOWN_PROBLEMS]:
            console.print(f"  {problem}", markup=False)


def _show_figures(verdicts: list[Verdict], seconds: float, console: Console) -> None:
    total: Counter[str] = Counter()
    for verdict in verdicts:
        total.update({name: value for name, value in verdict.figures.items() if not name.startswith(MARK)})
    table = Table(show_header=False)
    faults = sorted(name for name in total if name.startswith(FAULT))
    for name in [name for name in total if name not in faults] + faults:
        value = total[name]
        table.add_row(name.replace("_", " "), f"{value:,.0f}" if isinstance(value, float) else f"{value:,}")
    # One hash over all runs: equal for two campaigns exactly if each of their runs is equal.
    whole = hashlib.sha256("".join(verdict.trace_hash for verdict in verdicts).encode()).hexdigest()
    table.add_row("hash of all traces", whole[:32])
    table.add_row("seconds", f"{seconds:,.1f}")
    console.print(table)
    bad = sum(1 for verdict in verdicts if not verdict.ok)
    seeds = f"{len(verdicts)} seeds, {verdicts[0].seed} to {verdicts[-1].seed}"
    migrations = total["migrations_under_faults"]
    judged = f"{total['writes_judged']:,} of {total['writes_acknowledged']:,} acknowledged writes judged"
    pace = f"{len(verdicts) / max(total['cpu_s'], 0.001):.2f} seeds a second and core"
    simulated = f"{total['simulated_s'] / 3600:,.1f} h simulated, {pace}"
    console.print(
        f"{seeds}, {migrations:,} migrations under faults, {judged}, {simulated}: {bad} failed",
        style="bold red" if bad else "bold green",
    )


def _first(verdict: Verdict) -> str:
    return verdict.problems[0] if verdict.problems else "failed without a reason"


def _line(verdict: Verdict) -> str:
    return json.dumps(
        {
            "seed": verdict.seed,
            "ok": verdict.ok,
            "problems": verdict.problems,
            "trace_hash": verdict.trace_hash,
            "figures": verdict.figures,
        }
    )
