"""`holdfast zone`: creates, alters, drops and shows zones and their partitions."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from holdfast.cli.addresses import address_option
from holdfast.cli.answers import json_option
from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.paths import LocalPath
from holdfast.client.agreed_client import order_zone
from holdfast.client.routing import parse_addresses
from holdfast.core.model.zone_questions import (
    NEVER,
    AlterZone,
    AssignmentsTold,
    CreateZone,
    DropZone,
    ListZones,
    RenameZone,
    ResetZone,
    SettingValue,
    ShowZone,
    ZoneAnswer,
    ZoneOrder,
    ZonePartitionTold,
    zone_summary,
)
from holdfast.core.zones.assignments import Assignments, PartitionKeys
from holdfast.core.zones.descriptors import Adjustment, PlacementKind
from holdfast.core.zones.explain import ExplainStep, NotAStep, explain
from holdfast.core.zones.transitions import Consistency, Result
from holdfast.errors import ConfigError

EXAMPLE = '{"op": "update_pending", "before": {"stable": {"peers": ["A"]}}, "event": {...}}'


@click.group()
def zone() -> None:
    r"""Create, alter, show and drop zones, through any member. Needs a metastore (metastore.voters).

    \b
      holdfast zone create orders --replicas 3      maps.NAME.raft_zone = "orders" puts a map into it
      holdfast zone list
      holdfast zone show orders
      holdfast zone alter orders --replicas 5
      holdfast zone drop orders
    """


yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def _words(kind: type[StrEnum]) -> click.Choice[str]:
    return click.Choice([one.value for one in kind])


_ALTERABLE = (
    click.option("--replicas", type=int, help="Of each partition.  [1]"),
    click.option("--quorum", type=int, help="Voters that must be available.  [1 of 1, 2 of up to 4, else 3]"),
    click.option("--filter", help="Members that may hold replicas, as group=a|b, host=c. Empty: all."),
    click.option(
        "--scale-up-s", metavar="SECONDS", help="Delay before new members receive replicas, or never.  [0]"
    ),
    click.option(
        "--scale-down-s",
        metavar="SECONDS",
        help="Delay before replicas of lost members are replaced, or never.  [never]",
    ),
    click.option(
        "--consistency",
        type=_words(Consistency),
        help="strong: wait for a lost majority; ha: continue without it.",
    ),
    click.option(
        "--reset-after-s",
        metavar="SECONDS",
        help="With ha: delay before a partition continues without its majority.  [0]",
    ),
    click.option(
        "--adjustment",
        type=_words(Adjustment),
        help="Whether a running move is finished (replace) or cancelled when the target changes.  [replace]",
    ),
    click.option(
        "--placement",
        type=_words(PlacementKind),
        help="Placement of replicas.  [rendezvous]",
    ),
)


def _settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_ALTERABLE):
        command = option(command)
    return command


def _settings(given: dict[str, Any]) -> list[tuple[str, SettingValue]]:
    """The given settings. Raises UsageError for invalid seconds."""
    found: list[tuple[str, SettingValue]] = []
    for name, value in given.items():
        if value is None:
            continue
        if name.endswith("_s") and value != NEVER:
            if not str(value).isdecimal():
                raise click.UsageError(f"--{name.replace('_', '-')} is {value}, not seconds or {NEVER}")
            found.append((name, int(value)))
        else:
            found.append((name, value))
    return found


def _order(address: str, known: Credentials, wanted: ZoneOrder) -> ZoneAnswer:
    return order_zone(parse_addresses(address), known.for_client(), wanted)


def _carry_out(address: str, known: Credentials, wanted: ZoneOrder, *, as_json: bool) -> None:
    answer = _order(address, known, wanted)
    if as_json:
        click.echo(json.dumps({"done": answer.done, "warnings": answer.warnings}))
        return
    click.echo(answer.done)
    for warning in answer.warnings:
        click.echo(f"Warning: {warning}", err=True)


@zone.command(short_help="Create a zone.")
@click.argument("name")
@click.option(
    "--partitions",
    type=int,
    help="Cannot be changed later.  [default: as many as the cluster, which maps need]",
)
@_settings_options
@json_option
@address_option
@credentials
def create(name: str, *, as_json: bool, address: str, credentials: Credentials, **given: Any) -> None:
    r"""Create the zone NAME. Its partitions are placed on the present members at once.

    \b
      holdfast zone create orders --replicas 3
      holdfast zone create cache --replicas 3 --consistency ha --scale-down-s 60
    """
    _carry_out(address, credentials, CreateZone(name, _settings(given)), as_json=as_json)


@zone.command(short_help="Change settings of a zone.")
@click.argument("name")
@_settings_options
@json_option
@address_option
@credentials
def alter(name: str, *, as_json: bool, address: str, credentials: Credentials, **given: Any) -> None:
    """Change settings of the zone NAME. Replicas move while the zone is in use. The number of partitions and the
    consistency cannot be changed.
    """
    settings = _settings(given)
    if not settings:
        raise click.UsageError("say what to alter: see --help")
    _carry_out(address, credentials, AlterZone(name, settings), as_json=as_json)


@zone.command(short_help="Rename a zone.")
@click.argument("name")
@click.argument("wanted", metavar="NEW_NAME")
@json_option
@address_option
@credentials
def rename(name: str, wanted: str, *, as_json: bool, address: str, credentials: Credentials) -> None:
    """Rename the zone NAME to NEW_NAME. Maps refer to their zone by name (maps.NAME.raft_zone): a map that still uses
    the old name has no zone.
    """
    _carry_out(address, credentials, RenameZone(name, wanted), as_json=as_json)


@zone.command(short_help="Drop a zone and all its data.")
@click.argument("name")
@yes_option
@json_option
@address_option
@credentials
def drop(name: str, *, yes: bool, as_json: bool, address: str, credentials: Credentials) -> None:
    """Drop the zone NAME. All entries of its maps are gone."""
    if not yes:
        click.confirm(f"Drop zone {name}, with all entries of the maps in it?", abort=True, err=True)
    _carry_out(address, credentials, DropZone(name), as_json=as_json)


@zone.command(short_help="Continue without a lost majority. Its last writes are lost.")
@click.argument("name")
@click.option(
    "--partition", "partitions", type=int, multiple=True, help="Only this partition; may be repeated."
)
@yes_option
@json_option
@address_option
@credentials
def reset(
    name: str,
    *,
    partitions: tuple[int, ...],
    yes: bool,
    as_json: bool,
    address: str,
    credentials: Credentials,
) -> None:
    """Let partitions of the zone NAME that have lost their majority for good continue with the remaining replicas.

    Partitions with a majority are not changed. Acknowledged writes that only the lost members had are lost.
    """
    if not yes:
        question = f"Discard data of zone {name} that only lost members have? Acknowledged writes may be lost"
        click.confirm(question, abort=True, err=True)
    _carry_out(address, credentials, ResetZone(name, list(partitions)), as_json=as_json)


@zone.command("list", short_help="List zones.")
@json_option
@address_option
@credentials
def list_command(*, as_json: bool, address: str, credentials: Credentials) -> None:
    """List all zones with their settings, and how many of their partitions lack a leader or a replica, or move."""
    answer = _order(address, credentials, ListZones())
    if as_json:
        click.echo(json.dumps([zone_summary(one) for one in answer.zones]))
        return
    table = Table(box=None, pad_edge=False)
    for title in (
        "zone",
        "partitions",
        "replicas",
        "quorum",
        "consistency",
        "no leader",
        "moving",
        "under-replicated",
        "filter",
    ):
        table.add_column(title, no_wrap=True)
    for one in answer.zones:
        settings = (one.settings[key] for key in ("partitions", "replicas", "quorum", "consistency"))
        counts = (one.leaderless, one.moving, one.lacking)
        table.add_row(one.name, *map(str, (*settings, *counts)), str(one.settings["filter"]))
    _print(table)


@zone.command(short_help="Show the leader, replicas and moves of each partition of a zone.")
@click.argument("name")
@json_option
@address_option
@credentials
def show(name: str, *, as_json: bool, address: str, credentials: Credentials) -> None:
    """Show the settings of the zone NAME, and for each partition its leader, its current replicas (stable), those
    that it is changing to (pending) and those after that (planned), the last index of the leader's log, and how many
    entries each follower lacks.
    """
    answer = _order(address, credentials, ShowZone(name))
    [told] = answer.zones
    if as_json:
        partitions = [msgspec.to_builtins(one) for one in answer.partitions]
        plain = {**zone_summary(told), "members": answer.members, "partitions": partitions}
        click.echo(json.dumps(plain))
        return
    click.echo(
        f"zone {told.name}: "
        + ", ".join(f"{key} {value}" for key, value in told.settings.items() if value != "")
    )
    table = Table(box=None, pad_edge=False)
    for title in (
        "partition",
        "leader",
        "stable",
        "pending",
        "planned",
        "index",
        "lag",
        "replicas that are not well",
    ):
        table.add_column(title)
    for one in answer.partitions:
        table.add_row(*_row(one, answer.members))
    _print(table)


def _row(one: ZonePartitionTold, members: dict[str, str]) -> list[str]:
    def called(node: str) -> str:
        return members.get(node, node[:8])

    def held(who: AssignmentsTold | None) -> str:
        return "" if who is None else _shown(who, called)

    index = next((str(replica.index) for replica in one.replicas if replica.node == one.leader), "")
    unwell = [f"{called(each.node)} {each.state.lower()}" for each in one.replicas if each.state != "HEALTHY"]
    answered = {replica.node for replica in one.replicas}
    expected = [] if one.stable is None else [*one.stable.peers, *one.stable.learners]
    unwell += [f"{called(node)} silent" for node in expected if node not in answered]
    return [
        str(one.partition),
        "nobody" if one.leader is None else called(one.leader),
        held(one.stable),
        ", then ".join(map(held, one.pending)),
        held(one.planned),
        index,
        " ".join(
            f"{called(replica.node)} {replica.lag}" for replica in one.replicas if replica.node != one.leader
        )
        if index
        else "",
        ", ".join(unwell),
    ]


def _print(table: Table) -> None:
    Console(width=None if sys.stdout.isatty() else 160).print(table, highlight=False)


@zone.command(
    "explain", short_help="Show the effect of an event on the assignments of a partition, without a cluster."
)
@click.argument("file", type=LocalPath(exists=True, dir_okay=False, allow_dash=True))
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in the order of the steps.")
def explain_command(file: str, as_json: bool) -> None:
    r"""Show the effect of an event on the assignments of a partition. Contacts no cluster.

    FILE (-: standard input) has one step, or a list of steps that are applied one after the other:

    \b
    {"op": "update_pending",
     "before": {"stable": {"peers": ["A", "B"]}},
     "event": {"calculated": {"peers": ["A", "C"]}, "known_stable": {"peers": ["A", "B"]}, "event_ts": 7}}

    `op` is update_pending, conf_applied, reduce_changed or reset. A later step may omit `before`: it then starts from
    the result of the previous step.
    """
    with click.open_file(file, "rb") as opened:
        given, single = _read(opened.read(), file)
    try:
        told = list(explain(given))
    except NotAStep as error:
        raise ConfigError(f"{file}: {error}") from error
    if as_json:
        answers = [{"result": result.value, "after": msgspec.to_builtins(after)} for result, after in told]
        json.dump(answers[0] if single else answers, sys.stdout, indent=2)
        click.echo()
        return
    for number, (step, (result, after)) in enumerate(zip(given, told, strict=True)):
        _tell(number, step, result, after)


def _read(data: bytes, name: str) -> tuple[list[ExplainStep], bool]:
    """The steps of a file, and whether it has a single one. Raises ConfigError."""
    try:
        found = msgspec.json.decode(data, type=list[ExplainStep] | ExplainStep)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{name}: {error}; a step looks like {EXAMPLE}") from error
    return ([found], True) if isinstance(found, ExplainStep) else (found, False)


def _tell(number: int, step: ExplainStep, result: Result, after: PartitionKeys) -> None:
    click.echo(f"{number}: {step.op}: {result.value}")
    rows: list[tuple[str, Assignments | None]] = [("stable", after.stable)]
    rows += [("pending" if not at else "", one) for at, one in enumerate(after.pending)]
    rows += [
        ("planned", after.planned),
        ("to take out", after.switch_reduce),
        ("to put back", after.switch_append),
    ]
    for name, assignments in rows:
        if assignments is not None:
            click.echo(f"   {name:<12} {_shown(assignments)}")
    if after.trigger is not None:
        click.echo(f"   {'trigger':<12} {after.trigger}")
    for at, link in enumerate(after.chain):
        click.echo(
            f"   {'' if at else 'chain':<12} {_shown(link.assignments)} (term {link.term}, index {link.index})"
        )


def _shown(assignments: Assignments | AssignmentsTold, called: Callable[[str], str] = str) -> str:
    words = sorted(map(called, assignments.peers))
    words += sorted(f"{called(node)} (learner)" for node in assignments.learners)
    words += ["by force"] if assignments.force else []
    words += ["after a reset"] if assignments.from_reset else []
    return " ".join(words) or "nobody"
