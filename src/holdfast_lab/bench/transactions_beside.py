"""Transactions of Holdfast beside those of Hazelcast and Ignite, through official Java clients:
`python -m holdfast_lab.bench.transactions_beside`. Writes a part of docs/performance.md; about 13 minutes.

    python -m holdfast_lab.bench.transactions_beside --quick                       # a trial of a minute, into out/
    python -m holdfast_lab.bench.transactions_beside --systems holdfast,hazelcast  # without Ignite
    python -m holdfast_lab.bench.transactions_beside --shared --dry                # on all cores; prints only

All systems run at the same time, and each load goes to one after the other. After each load the entries are compared
with the transactions that were committed. Needs Java 17 and Maven, which fetches both systems.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click

from holdfast_lab.bench import java_load, report, systems
from holdfast_lab.bench.java_load import JavaLoad, LoadSample
from holdfast_lab.bench.run import ROOT

PUTS = "puts"
KINDS = {
    "Holdfast": (PUTS, "two-phase"),
    "Hazelcast": (PUTS, "one-phase", "two-phase"),
    "Ignite": (PUTS, "pessimistic", "optimistic"),
}
"""Kinds of transactions. To Holdfast, the one-phase and two-phase ones of Hazelcast's client are the same."""
OURS = ("Holdfast", "two-phase")
ORDERS = ("ascending", "any")
HOT_KEYS = 2
HOT_THREADS = 64
CLIENT_THREADS = 128
"""Threads of each member for requests of clients that wait for a lock. By default Hazelcast has 20 for each
core and Ignite 8. If all of them waited for a lock, the client that holds it could not commit.
"""
PART = "bench transactions beside"
MODULE = "holdfast_lab.bench.transactions_beside"


@dataclass(frozen=True, slots=True)
class Effort:
    rounds: int
    seconds: float
    hot_seconds: float
    hot_timeout_ms: int
    warm_up_s: float
    """For each kind, before the first round."""
    threads: tuple[int, ...]
    keys: tuple[int, ...]


FULL = Effort(3, 2.0, 4.0, 2000, 6.0, (1, 8, 64), (1, 2, 6))
QUICK = Effort(1, 0.5, 1.0, 1000, 1.0, (8,), (2,))


@dataclass(frozen=True, slots=True)
class Apart:
    """A load whose transactions have no entry in common. Ordered as the tables are."""

    keys: int
    threads: int
    system: str
    kind: str


@dataclass(frozen=True, slots=True)
class Hot:
    """A load whose transactions share ten entries."""

    order: str
    system: str
    kind: str


Samples = dict[Apart | Hot, list[LoadSample]]


def measure(loads: list[JavaLoad], effort: Effort) -> Samples:
    """The samples of each load, one from each round; the systems take turns."""
    found: Samples = {}
    for load in loads:
        for kind in KINDS[load.system.name]:
            progress(f"warm-up: {load.system.name}, {kind}")
            load.run("apart", effort.warm_up_s, kind=kind, threads=8, keys=2)
    for turn in range(effort.rounds):
        for threads in effort.threads:
            for keys in effort.keys:
                for load in loads:
                    for kind in KINDS[load.system.name]:
                        case = Apart(keys, threads, load.system.name, kind)
                        progress(f"round {turn + 1} of {effort.rounds}: {case}")
                        sample = load.run("apart", effort.seconds, kind=kind, threads=threads, keys=keys)
                        found.setdefault(case, []).append(sample)
        for order in ORDERS:
            for load in loads:
                for kind in KINDS[load.system.name][1:]:
                    case = Hot(order, load.system.name, kind)
                    progress(f"round {turn + 1} of {effort.rounds}: {case}")
                    sample = load.run(
                        "hot",
                        effort.hot_seconds,
                        kind=kind,
                        threads=HOT_THREADS,
                        keys=HOT_KEYS,
                        order=order,
                        timeout_ms=effort.hot_timeout_ms,
                    )
                    found.setdefault(case, []).append(sample)
    progress("")
    return found


def progress(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)


def times(samples: list[LoadSample]) -> str:
    p50, p99 = (median(getattr(each, name) for each in samples) for name in ("p50_ms", "p99_ms"))
    return f"{p50:.1f} / {p99:.1f}"


def rate_rows(found: Samples, keys: int, threads: tuple[int, ...]) -> list[list[str]]:
    """A row for each system and kind; the processor time also as a multiple of that of the system's puts."""
    rows = []
    for system, kinds in KINDS.items():
        for kind in kinds:
            row = [f"{system}, {kind}"]
            for count in threads:
                samples = found.get(Apart(keys, count, system, kind))
                if samples is None:
                    break
                puts = found[Apart(keys, count, system, PUTS)]
                times_puts = median(one.cpu_us / put.cpu_us for one, put in zip(samples, puts, strict=True))
                row += [
                    f"{median(each.per_second for each in samples):,.0f}",
                    times(samples),
                    f"{median(each.cpu_us for each in samples):,.0f} ({times_puts:.1f})",
                ]
            else:
                rows.append(row)
    return rows


def ratio_rows(found: Samples, effort: Effort) -> tuple[list[str], list[list[str]]]:
    """The rate of Holdfast divided by that of each other kind, from loads of the same round. Returns the head, too."""
    others = [
        (system, kind)
        for system, kinds in KINDS.items()
        for kind in kinds[1:]
        if system != OURS[0] and any((case.system, case.kind) == (system, kind) for case in found)
    ]
    rows = []
    for keys in effort.keys:
        for threads in effort.threads:
            ours = found[Apart(keys, threads, *OURS)]
            row = [
                f"{keys} {'key' if keys == 1 else 'keys'}, {threads} {'thread' if threads == 1 else 'threads'}"
            ]
            row.append(f"{median(each.per_second for each in ours):,.0f}")
            row += [ratio(ours, found[Apart(keys, threads, *other)]) for other in others]
            rows.append(row)
    for order in ORDERS:
        ours = found[Hot(order, *OURS)]
        row = [f"conflicts, {order} order", f"{median(each.per_second for each in ours):,.0f}"]
        rows.append(row + [ratio(ours, found[Hot(order, *other)]) for other in others])
    return ["Holdfast", "/s", *(f"/ {system}, {kind}" for system, kind in others)], rows


def ratio(ours: list[LoadSample], theirs: list[LoadSample]) -> str:
    """Median, and the lowest and highest of the rounds."""
    found = [
        one.per_second / other.per_second for one, other in zip(ours, theirs, strict=True) if other.per_second
    ]
    if not found:
        return "-"
    return f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def hot_rows(found: Samples) -> list[list[str]]:
    rows = []
    for order in ORDERS:
        for system, kinds in KINDS.items():
            for kind in kinds[1:]:
                if not (samples := found.get(Hot(order, system, kind))):
                    continue
                committed = sum(each.committed for each in samples)
                rolled_back = sum(each.rolled_back for each in samples)
                rows.append(
                    [
                        f"{order} order: {system}, {kind}",
                        f"{median(each.per_second for each in samples):,.0f}",
                        f"{100 * rolled_back / max(committed + rolled_back, 1):.1f} %",
                        times(samples),
                        f"{median(each.cpu_us for each in samples):,.0f}",
                    ]
                )
    return rows


def remarks(found: Samples) -> list[str]:
    """Results of the checks in each system."""
    rows = []
    for system in dict.fromkeys(case.system for case in found):
        mine = [(case, each) for case, samples in found.items() if case.system == system for each in samples]
        committed, unknown, checked, wrong = (
            sum(getattr(each, name) for _, each in mine)
            for name in ("committed", "unknown", "checked", "wrong")
        )
        text = f"{system}: {committed:,} transactions and groups of puts were committed, "
        text += f"{unknown:,} of unknown outcome; "
        text += f"{checked:,} entries were read afterwards"
        text += f", **{wrong:,} of them were wrong**" if wrong else ", all as they should be"
        busy = max(each.client_busy for _, each in mine)
        rows.append(f"{text}. The client used at most {busy:.0%} of a core.")
        rows += [f"Wrong in {case}: {'; '.join(each.examples)}" for case, each in mine if each.wrong]
        aside = sum(each.rolled_back for case, each in mine if isinstance(case, Apart))
        if aside:
            rows.append(
                f"{system} rolled back {aside:,} transactions that had no entry in common with others."
            )
    return rows


def errors(found: Samples) -> Iterator[str]:
    """The errors of rolled back and unknown transactions, for the terminal."""
    for case, samples in found.items():
        counts: dict[str, int] = {}
        for each in samples:
            for text, count in each.errors.items():
                counts[text] = counts.get(text, 0) + count
        for text, count in counts.items():
            yield f"{case}: {count:,} x {text}"


METHOD = f"""
Two members of each system with one sync backup, in memory. The systems take turns in each round, and figures are
medians of the rounds. One Java program (`src/holdfast_lab/bench/java`) loads all of them: Holdfast and Hazelcast
through Hazelcast's client, Ignite (a transactional cache, `FULL_SYNC`) through its thin client. Its threads share one
client, and each runs one transaction after the other. A transaction sets its entries one after the other; "puts" are as
many `set` or `put` calls without a transaction, also one after the other. Keys have 16 and values 100 characters. There
are 16,384 entries, and no two threads use the same one.

`one-phase` and `two-phase` are the types of Hazelcast's client (Holdfast treats them alike); `pessimistic` is Ignite's
repeatable read, `optimistic` its serializable. "µs" is the processor time of both members for each committed
transaction; in brackets, how many times that of the system's own puts it is.

Conflicts: {HOT_THREADS} threads; each transaction reads {HOT_KEYS} of ten entries for update, and adds 1 to each. In
ascending order of the keys no deadlock can arise; in any order they do. A transaction has {{timeout_s:g}} s, and is
retried until it is committed. "Rolled back" is the share of all attempts; times are those from the first attempt to the
commit.

All settings are the defaults of the releases, with one exception: Hazelcast and Ignite have {CLIENT_THREADS} threads
for requests of clients, so that transactions that wait for a lock do not keep its holder from committing.

Java 17 and Maven are needed; Maven fetches Hazelcast and Ignite. `--quick --dry` is a trial of about a minute,
`--shared` lets all processes use all cores, and `--systems holdfast,hazelcast` leaves Ignite out.
"""


def page(found: Samples, effort: Effort, command: str, where: str, load_average: float) -> str:
    head = ["transactions"]
    for count in effort.threads:
        threads = "1 thread" if count == 1 else f"{count} threads"
        head += [f"/s, {threads}", "p50 / p99 ms", "µs (times puts)"]
    parts = ["## Transactions beside Hazelcast and Ignite", f"Made by `{command}`."]
    for keys in effort.keys:
        parts.append(f"{keys} {'entry' if keys == 1 else 'entries'} in each transaction:")
        parts.append(report.table(head, rate_rows(found, keys, effort.threads)))
    parts.append(f"Conflicts ({HOT_THREADS} threads, ten entries):")
    hot_head = ["transactions", "/s", "rolled back", "p50 / p99 ms", "µs"]
    parts.append(report.table(hot_head, hot_rows(found)))
    parts.append(
        "Transactions of Holdfast per second, divided by those of the others (lowest and highest round):"
    )
    parts.append(report.table(*ratio_rows(found, effort)))
    versions = ", ".join(f"{name} {version}" for name, version in java_load.versions().items())
    told = [
        f"{versions}; {report.machine(load_average)}; {where}; {effort.rounds} rounds of {effort.seconds:g} s."
    ]
    parts.append("\n".join(f"* {each}" for each in told + remarks(found)))
    return "\n\n".join(parts) + "\n" + METHOD.format(timeout_s=effort.hot_timeout_ms / 1000)


@contextmanager
def running(
    chosen: list[str], folder: Path, *, shared: bool = False, quick: bool = False
) -> Iterator[list[JavaLoad]]:
    """The clients of these systems. `shared`: members and clients use all cores. `quick`: Java starts sooner, and
    compiles less.
    """
    everywhere = os.sched_getaffinity(0)
    # Java chooses threads and garbage collector by the number of cores at its start.
    options = [f"-XX:ActiveProcessorCount={len(everywhere)}"] if shared else []
    options += ["-XX:TieredStopAtLevel=1"] if quick else []
    hazelcast_options = [*options, f"-Dhazelcast.clientengine.blocking.thread.count={CLIENT_THREADS}"]
    with ExitStack() as stack:
        started = []
        for name in chosen:
            if name == "Holdfast":
                system = systems.holdfast(2, 1)
            elif name == "Hazelcast":
                jar = java_load.hazelcast_jar()
                system = systems.hazelcast(
                    heap="1g", members=2, backups=1, jar=jar, java_options=hazelcast_options
                )
            else:
                system = java_load.ignite(2, CLIENT_THREADS, java_options=options)
            started.append(stack.enter_context(system))
        loads = [
            stack.enter_context(java_load.java_load(system, folder, java_options=options))
            for system in started
        ]
        if shared:
            for load in loads:
                for pid in load.pids:
                    allow(pid, everywhere)
        yield loads


def allow(pid: int, cores: set[int]) -> None:
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cores)


def systems_of(_context: object, _parameter: object, given: str) -> list[str]:
    known = {name.lower(): name for name in KINDS}
    chosen = [name.strip().lower() for name in given.split(",")]
    if unknown := [name for name in chosen if name not in known]:
        raise click.BadParameter(f"no system is called {unknown[0]!r}: {', '.join(known)}")
    if "holdfast" not in chosen:
        raise click.BadParameter("holdfast is compared with the others: name it, too")
    return [known[name] for name in known if name in chosen]


@click.command(
    epilog="Example: python -m holdfast_lab.bench.transactions_beside --quick --systems holdfast,hazelcast"
)
@click.option(
    "--quick", is_flag=True, help="One short round of 2 entries; a first look, not a figure to quote."
)
@click.option(
    "--systems",
    "chosen",
    default=",".join(KINDS).lower(),
    show_default=True,
    callback=systems_of,
    help="Measure these.",
)
@click.option("--shared", is_flag=True, help="Members and clients use all cores, instead of one core each.")
@click.option("--out", type=click.Path(path_type=Path), help="Page whose part is written.")
@click.option("--dry", is_flag=True, help="Write nothing.")
def main(quick: bool, chosen: list[str], shared: bool, out: Path | None, dry: bool) -> None:
    """Measure transactions of Holdfast, Hazelcast and Ignite through official Java clients."""
    if problem := java_load.build_problem():
        raise click.ClickException(problem)
    # The end of a context ends the processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    load_average, begun_s = os.getloadavg()[0], time.monotonic()
    effort = QUICK if quick else FULL
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name,
        running(chosen, Path(name), shared=shared, quick=quick) as loads,
    ):
        found = measure(loads, effort)
    where = "all processes on all cores" if shared else "members on one core, the client on another"
    options = " --quick" * quick + " --shared" * shared
    if len(chosen) < len(KINDS):
        options += f" --systems {','.join(chosen).lower()}"
    text = page(found, effort, f"python -m {MODULE}{options}", where, load_average)
    click.echo(text)
    for error in errors(found):
        click.echo(error, err=True)
    click.echo(f"{time.monotonic() - begun_s:.0f} s", err=True)
    if not dry:
        target = out or ROOT / ("out" if quick else "docs") / "performance.md"
        report.write_part(target, PART, text, f"python -m {MODULE}")
        click.echo(f"Written to {target}")
    if any(each.wrong for case, samples in found.items() if case.system == OURS[0] for each in samples):
        raise click.ClickException("Holdfast has entries that are not what was committed")


if __name__ == "__main__":
    main()
