"""`holdfast plan`: what joins, drains, crashes and changed settings would do to a cluster, a table, or numbers."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from holdfast.cli.move_plan import Move, MovePlan, plan_of_live_move, plan_of_move_in_file
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.option_structs import into
from holdfast.cli.paths import LocalPath, check_folders
from holdfast.cli.spark import SparkSettings, optional_spark, show_progress, spark_job
from holdfast.cli.zone_plan import KnownZone, plan_of_new_zone, plan_of_zone
from holdfast.cli.zone_steps import Explained, are_zone_steps, explained_steps
from holdfast.errors import ConfigError
from holdfast.planning.amounts import Sizes, parse_rate, parse_sizes, parse_time
from holdfast.planning.forecast import Figures, Forecast, Hazards, Network, as_text, ask, foresee
from holdfast.planning.live_cluster import LiveCluster, live_sizes, look
from holdfast.planning.risk import Failures
from holdfast.planning.strategies import ARRANGE, STRATEGIES
from holdfast.planning.table_file import EXAMPLE, Tables, parse
from holdfast.planning.timeline import Label, PartitionPlan, as_data, timeline
from holdfast.planning.walk import BLOCK, Question, outlooks
from holdfast.planning.zone_forecast import ZoneFigures


@dataclass(frozen=True, slots=True)
class Subject:
    live: bool
    zone: str | None
    no_zone: bool
    move: str | None

    @property
    def of_zones(self) -> bool:
        return self.zone is not None or self.no_zone or self.move is not None


@dataclass(frozen=True, slots=True)
class Numbers:
    """A cluster by its numbers."""

    members: int | None
    groups: int
    partitions: int
    copies: int


@dataclass(frozen=True, slots=True)
class Model:
    """Assumptions of durations and risks."""

    size: str
    seed: int
    bandwidth: str
    parallel: int
    round_trip: str
    mtbf: str
    group_mtbf: str | None
    detect: str
    repair: str | None

    def network(self) -> Network:
        round_trip_s = parse_time(self.round_trip, "--round-trip")
        return Network(parse_rate(self.bandwidth), self.parallel, round_trip_s=round_trip_s)

    def hazards(self) -> Hazards:
        """Raises ConfigError."""
        group_s = parse_time(self.group_mtbf, "--group-mtbf") if self.group_mtbf else math.inf
        failures = Failures(parse_time(self.mtbf, "--mtbf"), group_s)
        if not failures.mtbf_s or not failures.group_mtbf_s:
            raise ConfigError("--mtbf and --group-mtbf must be more than 0")
        repair_s = parse_time(self.repair, "--repair") if self.repair else None
        return Hazards(failures, parse_time(self.detect, "--detect"), repair_s)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Other layouts and orders of steps."""

    strategies: tuple[str, ...]
    orders: bool
    block: int


@dataclass(frozen=True, slots=True)
class Output:
    summary: bool
    moves: Path | None
    to: Path | None


SUBJECT = into(
    "subject",
    Subject,
    click.option("--live", is_flag=True, help="Plan for the running cluster that -a names."),
    click.option(
        "--zone",
        metavar="NAME",
        help="Plan the replicas of this zone instead of the partitions with a primary.",
    ),
    click.option("--no-zone", is_flag=True, help="With --move: out of zones."),
    click.option(
        "--move",
        metavar="MAP",
        help="Plan a move of this map into --zone, or with --no-zone out of zones (holdfast map move).",
    ),
)
NUMBERS = into(
    "numbers",
    Numbers,
    click.option("--members", type=click.IntRange(1), metavar="N", help="Plan for a cluster of N members."),
    click.option(
        "--groups",
        type=click.IntRange(0),
        default=0,
        metavar="N",
        help="Zones or hosts over which these members are spread.",
    ),
    click.option("--partitions", type=click.IntRange(1), default=10_000, show_default=True, metavar="N"),
    click.option(
        "--copies",
        type=click.IntRange(1, 7),
        default=3,
        show_default=True,
        metavar="N",
        help="Copies of each partition, including the owner's.",
    ),
)
MODEL = into(
    "model",
    Model,
    click.option(
        "--size",
        default="64MiB",
        show_default=True,
        metavar="SIZE",
        help="Size of a partition: 64MiB, uniform:1MiB..20MiB, lognormal:10MiB,1.5, file:PATH, or, with --live, "
        "entries:128 (bytes per entry).",
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of all random choices."),
    click.option(
        "--bandwidth",
        default="1Gbit",
        show_default=True,
        metavar="RATE",
        help="Per second, member and direction: 1Gbit or 100MB.",
    ),
    click.option(
        "--parallel",
        type=click.IntRange(1),
        default=10,
        show_default=True,
        help="Value of partitions.parallel_migrations.",
    ),
    click.option(
        "--round-trip",
        default="1ms",
        show_default=True,
        metavar="TIME",
        help="Round-trip time between two members.",
    ),
    click.option(
        "--mtbf",
        default="90d",
        show_default=True,
        metavar="TIME",
        help="Mean time between crashes of a member.",
    ),
    click.option(
        "--group-mtbf", metavar="TIME", help="Mean time between crashes of a whole group.  [default: never]"
    ),
    click.option(
        "--detect",
        default="10s",
        show_default=True,
        metavar="TIME",
        help="Time from a crash until the cluster starts to restore copies.",
    ),
    click.option(
        "--repair",
        metavar="TIME",
        help="Time from a crash until all copies are restored.  [default: computed]",
    ),
)
COMPARISON = into(
    "comparison",
    Comparison,
    click.option(
        "--strategy",
        "strategies",
        multiple=True,
        type=click.Choice(STRATEGIES),
        help="Layouts to compare; may be repeated.  [default: arrange, or the placement of the cluster or file]",
    ),
    click.option("--orders", is_flag=True, help="Also compare other orders of the steps."),
    click.option(
        "--block",
        type=click.IntRange(1),
        default=BLOCK,
        show_default=True,
        metavar="N",
        help="With --members: number of partitions that are placed together.",
    ),
)
OUTPUT = into(
    "output",
    Output,
    click.option(
        "--summary",
        is_flag=True,
        help="Show figures of each step instead of the steps of each partition. Implied by --members and --spark.",
    ),
    click.option(
        "--moves",
        type=LocalPath(path_type=Path),
        metavar="FOLDER",
        help="With --spark: write every migration as Parquet into this new or empty folder.",
    ),
    click.option(
        "--to",
        type=LocalPath(path_type=Path),
        metavar="FOLDER",
        help="With --spark: write the figures as Parquet into this new or empty folder.",
    ),
)


@dataclass(frozen=True, slots=True)
class Input:
    """The one input model: a question, and how to call its members."""

    question: Question
    strategies: tuple[str, ...]
    label: Label = str
    heading: str = ""
    notes: tuple[str, ...] = ()


@operator_command()
@click.argument("file", required=False, type=LocalPath(path_type=Path, allow_dash=True))
@SUBJECT
@NUMBERS
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    metavar="STEPS",
    help="Steps of a scenario; may be repeated.  [default: now; with --members join:1]",
)
@MODEL
@COMPARISON
@OUTPUT
@optional_spark("Plan on Spark: for clusters of any size.")
def plan(
    call: Call,
    *,
    file: Path | None,
    subject: Subject,
    numbers: Numbers,
    scenarios: tuple[str, ...],
    model: Model,
    comparison: Comparison,
    output: Output,
    spark: SparkSettings | None,
) -> Iterator[PartitionPlan | Figures | ZoneFigures | Explained | MovePlan]:
    r"""Show what a scenario would do: every step of every partition, or the cost of each step. Moves nothing.

    Steps are separated by commas, or joined by + if they happen at once: now, join:N, join:NAME@GROUP,
    drain:N|NAME, crash:N|NAME, crash-zone[:N|NAME], rolling-restart[:N], backups:N, replicas:N, placement:NAME.

    FILE (default: standard input) is JSON: `current` rows of member names, owner first, with `target` rows, or
    `members` and `backups`; the output of `zone show NAME --json`; or events of a partition (docs/zones.md).

    \b
      {"current": [["A", "B"]], "members": ["A", "B", "C"], "backups": 1, "leaving": ["B"], "lite": ["C"]}

    \b
      holdfast plan --live --scenario join:1 --summary
      holdfast plan --live --zone orders --scenario drain:three,replicas:5
      holdfast plan --live --move orders --zone z
      holdfast plan --members 1000 --partitions 1000000 --scenario drain:20,join:20 --spark
    """
    live = subject.live
    if (file is not None) + live + (numbers.members is not None) > 1:
        raise ConfigError("FILE, --live and --members exclude each other: give one of them")
    if (output.moves or output.to) and not spark:
        raise ConfigError("--moves and --to need --spark")
    if subject.of_zones:
        if spark:
            raise ConfigError("--zone and --move are without --spark")
        yield from _of_zones(call, subject, file, scenarios, numbers, model, summary=output.summary)
        return
    content = _data_of(file) if not live and numbers.members is None else (b"", "")
    if are_zone_steps(content[0]):
        if spark or scenarios:
            raise ConfigError(f"{content[1]} has steps of a zone's partition: without --scenario and --spark")
        yield from explained_steps(*content)
        return
    check_folders(output.to, output.moves)
    network, hazards = model.network(), model.hazards()
    if live:
        given = _of_cluster(call, scenarios, model, comparison)
    elif numbers.members is not None:
        given = _of_numbers(numbers, scenarios, model, comparison)
    else:
        given = _of_tables(parse(*content), scenarios, model, comparison)
    for note in given.notes:
        click.echo(f"Note: {note}", err=True)
    if spark or output.summary or numbers.members is not None:
        if spark:
            found = _on_spark(spark, given, network, hazards, output, quiet=call.as_json)
        else:
            found = foresee(given.question, given.strategies, network, hazards)
        if call.as_json:
            yield from found.figures
        else:
            for line in (given.heading, *as_text(found, given.label)):
                click.echo(line)
        return
    if not call.as_json and given.heading:
        click.echo(given.heading)
    yield from _steps(given, as_json=call.as_json)


def _steps(given: Input, *, as_json: bool) -> Iterator[PartitionPlan]:
    """Show each partition as soon as it is planned."""
    several = sum(len(scenario.steps) for scenario in given.question.scenarios) > 1
    for number, step, found in outlooks(given.question, given.strategies[0]):
        if as_json:
            yield from map(as_data, found)
            continue
        if several:
            click.echo(f"{given.question.scenarios[number].text}: {step.text}\n")
        for block in timeline(found, given.label):
            click.echo(block)


# -- inputs


def _of_zones(
    call: Call,
    subject: Subject,
    file: Path | None,
    scenarios: tuple[str, ...],
    numbers: Numbers,
    model: Model,
    *,
    summary: bool,
) -> Iterator[ZoneFigures | MovePlan]:
    if subject.move is not None or subject.no_zone:
        yield _of_move(call, subject, file, scenarios, numbers, model)
    else:
        yield from _of_zone(call, subject, file, numbers, scenarios, summary=summary)


def _of_zone(
    call: Call,
    subject: Subject,
    file: Path | None,
    numbers: Numbers,
    scenarios: tuple[str, ...],
    *,
    summary: bool,
) -> Iterator[ZoneFigures]:
    zone = subject.zone
    assert zone is not None, "checked by the caller"
    if numbers.members is None:
        known = KnownZone.live(call, zone) if subject.live else KnownZone.of_file(*_data_of(file), zone)
        return plan_of_zone(call, known, scenarios, summary=summary)
    return plan_of_new_zone(
        call,
        zone,
        scenarios,
        members=numbers.members,
        groups=numbers.groups,
        partitions=numbers.partitions,
        replicas=numbers.copies,
        summary=summary,
    )


def _of_move(
    call: Call,
    subject: Subject,
    file: Path | None,
    scenarios: tuple[str, ...],
    numbers: Numbers,
    model: Model,
) -> MovePlan:
    if subject.move is None or (subject.zone is not None) is subject.no_zone:
        raise ConfigError("say which map moves, and where: --move MAP --zone ZONE, or --move MAP --no-zone")
    if scenarios or numbers.members is not None:
        raise ConfigError("--move is without --scenario and --members")
    move = Move(subject.move, subject.zone or "")
    if subject.live:
        return plan_of_live_move(call, move)
    sizes = parse_sizes(model.size, model.seed)
    return plan_of_move_in_file(*_data_of(file), move, numbers.copies, sizes)


def _of_numbers(numbers: Numbers, scenarios: tuple[str, ...], model: Model, comparison: Comparison) -> Input:
    assert numbers.members is not None, "checked by the caller"
    strategies = comparison.strategies or (ARRANGE,)
    question = ask(
        scenarios or ("join:1",),
        members=numbers.members,
        groups=numbers.groups,
        partitions=numbers.partitions,
        copies=numbers.copies,
        sizes=parse_sizes(model.size, model.seed),
        block=comparison.block,
        orders=comparison.orders,
    )
    return Input(question, strategies)


def _of_cluster(call: Call, scenarios: tuple[str, ...], model: Model, comparison: Comparison) -> Input:
    known = call.credentials.for_client()
    cluster = look(call.address, known)
    sizes = live_sizes(model.size, cluster, call.address, known, model.seed)
    question = cluster.question(scenarios or ("now",), sizes, orders=comparison.orders)
    return Input(
        question,
        comparison.strategies or (cluster.strategy,),
        cluster.label,
        f"cluster {cluster.status.cluster}, table version {cluster.status.table.version}; "
        f"assumed: {_assumed(cluster, question)}\n",
        tuple(cluster.warnings(question)),
    )


def _assumed(cluster: LiveCluster, question: Question) -> str:
    words: list[str] = []
    for scenario in question.scenarios:
        for step in scenario.steps:
            words += [f"{each.uuid} joins" for each in step.join]
            words += [f"{cluster.label(uuid)} is drained" for uuid in step.drain]
            words += [f"{cluster.label(uuid)} crashes" for uuid in step.crash]
            words += [f"{step.backups} backups"] if step.backups is not None else []
            words += [f"placement {step.placement}"] if step.placement else []
    return ", ".join(words) or "no change"


def _of_tables(tables: Tables, scenarios: tuple[str, ...], model: Model, comparison: Comparison) -> Input:
    notes = [
        f"{name} is in {count} row{'s' * (count != 1)} of current but not in members: taken as crashed"
        for name, count in tables.gone.items()
    ]
    sizes: Sizes = parse_sizes(model.size, model.seed)
    question = tables.question(scenarios or ("now",), sizes, orders=comparison.orders)
    return Input(question, comparison.strategies or (tables.strategy,), notes=tuple(notes))


def _data_of(file: Path | None) -> tuple[bytes, str]:
    """The content, and where it is from. Raises ConfigError."""
    if file is None or str(file) == "-":
        stream = sys.stdin
        if stream is None or (file is None and stream.isatty()):
            raise ConfigError(
                f"give --live, --members, a FILE, or pipe JSON such as {EXAMPLE} in; see holdfast plan --help"
            )
        return stream.buffer.read(), "standard input"
    try:
        return file.read_bytes(), str(file)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error


def _on_spark(
    spark: SparkSettings, given: Input, network: Network, hazards: Hazards, output: Output, *, quiet: bool
) -> Forecast:
    with spark_job(spark.master, spark.memory, "plan") as session:
        from holdfast.spark.pipeline.forecast_job import foresee_on_spark, frame, moves

        progress = show_progress(quiet=quiet)
        found = foresee_on_spark(session, given.question, given.strategies, network, hazards, progress)
        if output.moves is not None:
            planned = moves(session, given.question, given.strategies)
            planned.write.mode("append").parquet(str(output.moves))
        if output.to is not None:
            frame(session, found).write.mode("append").parquet(str(output.to))
        return found
