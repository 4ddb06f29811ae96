"""`holdfast whatif`: estimates what would happen to a cluster, on Spark."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.addresses import live_option
from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.paths import LocalPath
from holdfast.cli.plan_live import Cluster, look
from holdfast.cli.spark import show_progress, spark_job, spark_options
from holdfast.client.blocking import Client
from holdfast.client.replica_questions import ask_digests
from holdfast.core.placement.layout import Candidate
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.spark.foresight.amounts import Sizes

ENTRY_BYTES = 128
"""Assumed size of an entry of a running cluster, key and value, by default."""


def check_folders(*folders: Path | None) -> None:
    """Raises ConfigError unless each given output folder is new or empty and none is within another one, so
    that nothing that exists is ever replaced.
    """
    given = [folder for folder in folders if folder is not None]
    for place, folder in enumerate(given):
        try:
            # For a new folder look at its nearest parent: it must be a folder, and may have contents.
            there = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
            inside = next((each for each in sorted(there.iterdir()) if there == folder), None)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be used: {error.strerror}") from error
        if inside is not None:
            raise ConfigError(f"{folder} is not empty ({inside.name}): give a folder that is")
        here = folder.resolve()
        for other in given[:place]:
            if here.is_relative_to(other.resolve()) or other.resolve().is_relative_to(here):
                raise ConfigError(f"{folder} and {other} are the same or nested: use separate folders")


@click.command
@click.option("--members", type=click.IntRange(1), default=100, show_default=True, metavar="N")
@click.option(
    "--groups",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Zones or hosts over which the members are spread.",
)
@click.option("--partitions", type=click.IntRange(1), default=10_000, show_default=True, metavar="N")
@click.option(
    "--copies",
    type=click.IntRange(1, 7),
    default=3,
    show_default=True,
    metavar="N",
    help="Copies of each partition, including the owner's.",
)
@live_option("Start from the members and the table of a running cluster, through the member that -a names.")
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    default=("join:1",),
    show_default=True,
    metavar="STEPS",
    help="Steps of a scenario; may be repeated.",
)
@click.option(
    "--size",
    default="64MiB",
    show_default=True,
    metavar="SIZE",
    help="Size of a partition: 64MiB, uniform:1MiB..20MiB, lognormal:10MiB,1.5, file:PATH, or, with --live, "
    "entries:128 (bytes per entry).",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of all random choices.")
@click.option(
    "--bandwidth",
    default="1Gbit",
    show_default=True,
    metavar="RATE",
    help="Per second, member and direction: 1Gbit or 100MB.",
)
@click.option(
    "--parallel",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Value of partitions.parallel_migrations.",
)
@click.option(
    "--round-trip",
    default="1ms",
    show_default=True,
    metavar="TIME",
    help="Round-trip time between two members.",
)
@click.option(
    "--mtbf",
    default="90d",
    show_default=True,
    metavar="TIME",
    help="Mean time between crashes of a member.",
)
@click.option(
    "--group-mtbf", metavar="TIME", help="Mean time between crashes of a whole group.  [default: never]"
)
@click.option(
    "--detect",
    default="10s",
    show_default=True,
    metavar="TIME",
    help="Time from a crash until the cluster starts to restore copies.",
)
@click.option(
    "--repair", metavar="TIME", help="Time from a crash until all copies are restored.  [default: computed]"
)
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    type=click.Choice(["arrange", "modulo", "rendezvous"]),
    help="Layouts to compare; may be repeated.  [default: arrange, or with --live the placement of the cluster]",
)
@click.option("--orders", is_flag=True, help="Also compare other orders of the steps.")
@click.option(
    "--block",
    type=click.IntRange(1),
    default=20_000,
    show_default=True,
    metavar="N",
    help="Number of partitions that are placed together.",
)
@click.option(
    "--moves",
    type=LocalPath(path_type=Path),
    metavar="FOLDER",
    help="Write every migration as Parquet into this new or empty folder.",
)
@click.option(
    "--to",
    type=LocalPath(path_type=Path),
    metavar="FOLDER",
    help="Write the figures as Parquet into this new or empty folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON per step, for scripts.")
@spark_options
@credentials
def whatif(
    *,
    members: int,
    groups: int,
    partitions: int,
    copies: int,
    address: str | None,
    scenarios: tuple[str, ...],
    size: str,
    seed: int,
    bandwidth: str,
    parallel: int,
    round_trip: str,
    mtbf: str,
    group_mtbf: str | None,
    detect: str,
    repair: str | None,
    strategies: tuple[str, ...],
    orders: bool,
    block: int,
    moves: Path | None,
    to: Path | None,
    as_json: bool,
    master: str,
    memory: str,
    credentials: Credentials,
) -> None:
    """Estimate how much data would move, how long it would take, and the risk of loss. Moves nothing.

    A scenario is a list of steps, separated by commas; steps joined by + happen at once. Steps are join:N, drain:N or
    drain:NAME, crash:N or crash:NAME, crash-zone[:N or :NAME], and rolling-restart[:N].

    \b
    holdfast whatif --members 1000 --groups 10 --partitions 1000000 --scenario join:100 --scenario crash-zone
    holdfast whatif --scenario "crash:1,join:1" --strategy arrange --strategy modulo --orders
    holdfast whatif --live -a 10.0.0.7:5701 --scenario drain:one --size entries:200
    """  # noqa: D301  (the backslash is for click: what follows is not to be folded)
    from holdfast.spark.foresight.amounts import parse_rate, parse_sizes, parse_time
    from holdfast.spark.foresight.risk import Failures
    from holdfast.spark.foresight.whatif import Hazards, Network, ask, what_if
    from holdfast.spark.foresight.whatif import moves as all_moves

    check_folders(to, moves)
    network = Network(parse_rate(bandwidth), parallel, round_trip_s=parse_time(round_trip, "--round-trip"))
    failures = Failures(
        parse_time(mtbf, "--mtbf"), parse_time(group_mtbf, "--group-mtbf") if group_mtbf else math.inf
    )
    hazards = Hazards(
        failures, parse_time(detect, "--detect"), parse_time(repair, "--repair") if repair else None
    )
    if not failures.mtbf_s or not failures.group_mtbf_s:
        raise ConfigError("--mtbf and --group-mtbf must be more than 0")
    table: dict[str, Any] = {"members": members, "groups": groups, "partitions": partitions, "copies": copies}
    if address is not None:
        cluster = look(address, credentials)
        for note in cluster.notes:
            click.echo(f"Note: {note}", err=True)
        if cluster.status.get("baseline"):
            click.echo(
                "Note: the cluster has a baseline, and whose members join or crash counts as in it, or taken out of it",
                err=True,
            )
        table = from_live(cluster)
        strategies = strategies or layouts_of(cluster)
        if cluster.placement == "rendezvous" and any("join" in each for each in scenarios):
            click.echo(
                "Note: which partitions a member gets depends on its name: new ones count as called join-1, ...",
                err=True,
            )
        scenarios = tuple(named(each, cluster) for each in scenarios)
        sizes = live_sizes(size, cluster, address, credentials, seed)
    else:
        sizes = parse_sizes(size, seed)
    strategies = strategies or ("arrange",)
    table |= {"sizes": sizes, "strategies": strategies, "orders": orders, "block": block}
    question = ask(scenarios, **table)  # report mistakes before Spark starts
    with spark_job(master, memory, "what if") as spark:
        result = what_if(
            spark,
            scenarios,
            **table,
            network=network,
            hazards=hazards,
            progress=show_progress(quiet=as_json),
        )
        if moves is not None:
            all_moves(spark, question, strategies).write.mode("append").parquet(str(moves))
        if to is not None:
            result.frame(spark).write.mode("append").parquet(str(to))
    if as_json:
        for each in result.as_data():
            click.echo(json.dumps(each))
    else:
        click.echo(str(result))


def from_live(cluster: Cluster) -> dict[str, Any]:
    """The table of a running cluster for `what_if`, with UUIDs of members."""
    holding = [
        Candidate(each["uuid"], each["group"], each.get("consistent_id", ""))
        for each in cluster.members
        if not each["lite"] and not each["leaving"] and not each.get("outside")
    ]
    holding = cluster.grouped(holding)
    names = {each.uuid for each in holding}
    return {
        "members": holding,
        "rows": cluster.rows,
        "copies": cluster.status["partitions"]["replicas"],
        "others": [each["uuid"] for each in cluster.members if each["uuid"] not in names],
        "holders": cluster.status["partitions"]["holders"],
        "accept": cluster.status["partitions"]["lost"] == "accept",
    }


def layouts_of(cluster: Cluster) -> tuple[str, ...]:
    return ("rendezvous",) if cluster.placement == "rendezvous" else ("arrange",)


def named(scenario: str, cluster: Cluster) -> str:

    def one(step: str) -> str:
        kind, _, rest = step.strip().partition(":")
        known = kind in ("drain", "crash") and not rest.isdecimal()
        return f"{kind}:{cluster.find(rest)}" if known else step.strip()

    return ",".join("+".join(one(each) for each in part.split("+")) for part in scenario.split(","))


def live_sizes(size: str, cluster: Cluster, address: str, credentials: Credentials, seed: int) -> Sizes:
    """With `entries:BYTES` sizes from the owners' present number of entries; otherwise as given."""
    from holdfast.spark.foresight.amounts import measured, parse_bytes, parse_sizes

    kind, _, rest = size.partition(":")
    if kind != "entries":
        return parse_sizes(size, seed)
    each = parse_bytes(rest) if rest else ENTRY_BYTES
    wanted: dict[str, list[int]] = {}
    for partition, row in enumerate(cluster.rows):
        if row and row[0] is not None:
            wanted.setdefault(row[0], []).append(partition)
    with Client(
        address,
        username=credentials.username,
        password=credentials.password,
        token=credentials.token,
        tls=credentials.tls,
    ) as client:
        held, silent = ask_digests(client, wanted)
    for uuid in sorted(silent):
        click.echo(f"Note: {cluster.label(uuid)} does not answer: its partitions count as empty", err=True)
    sizes = [0] * len(cluster.rows)
    for (_, partition), digest in held.items():
        sizes[partition] = each * sum(told.entries for told in digest.maps)
    return measured(sizes)
