"""`holdfast zone`: creates, alters, drops and shows zones and their partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any

import click
import msgspec

from holdfast.cli.answers import Answer
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.paths import LocalPath
from holdfast.cli.rendering import Shown, table_of
from holdfast.cli.unit_types import Seconds
from holdfast.client.agreed_client import order_zone
from holdfast.core.model.member_status import SettingValue, ZoneStatus
from holdfast.core.model.result_columns import column
from holdfast.core.model.zone_questions import (
    NEVER,
    AlterZone,
    AssignmentsTold,
    CreateZone,
    DropZone,
    ListZones,
    RenameZone,
    ResetZone,
    ShowZone,
    ZoneAnswer,
    ZoneOrder,
    ZonePartitionTold,
)
from holdfast.core.zones.assignments import Assignments, PartitionKeys
from holdfast.core.zones.descriptors import Adjustment, PlacementKind
from holdfast.core.zones.explain import ExplainStep, NotAStep, explain
from holdfast.core.zones.transitions import Consistency, Result
from holdfast.errors import ConfigError

EXAMPLE = '{"op": "update_pending", "before": {"stable": {"peers": ["A"]}}, "event": {...}}'
NAMES_PER_NODE = 8
"""Characters of a node whose name is unknown."""


@click.group()
def zone() -> None:
    r"""Create, alter, show and drop zones, through any member. First start a metastore: `holdfast metastore start`.

    \b
      holdfast zone create orders --replicas 3      maps.NAME.raft_zone = "orders" puts a map into it
      holdfast zone show orders
    """


class OrderDone(Answer):
    """The change that was made, and warnings about its consequences."""

    done: str
    warnings: list[str]

    def view(self) -> Iterable[Shown]:
        yield self.done

    def notes(self) -> Iterable[str]:
        return [f"Warning: {warning}" for warning in self.warnings]


class ZoneRow(msgspec.Struct, frozen=True):
    """A line of the list for people."""

    name: Annotated[str, column("zone")]
    partitions: Annotated[int, column("partitions", "count")]
    replicas: Annotated[int, column("replicas", "count")]
    quorum: Annotated[int, column("quorum", "count")]
    consistency: Annotated[str, column("consistency")]
    leaderless: Annotated[int, column("no leader", "count")]
    moving: Annotated[int, column("moving", "count")]
    under_replicated: Annotated[int, column("under-replicated", "count")]
    filter: Annotated[str, column("filter")]


class Zones(Answer):
    """All zones."""

    zones: list[ZoneStatus]

    def view(self) -> Iterable[Shown]:
        rows = [{**one.settings, **msgspec.structs.asdict(one)} for one in self.zones]
        yield table_of(msgspec.convert(rows, list[ZoneRow]), ZoneRow)


class PartitionRow(msgspec.Struct, frozen=True):
    """A partition of a zone, for people."""

    partition: Annotated[int, column("partition", right=True)]
    leader: Annotated[str, column("leader")]
    stable: Annotated[str, column("stable", fold=True)]
    pending: Annotated[str, column("pending", fold=True)]
    planned: Annotated[str, column("planned", fold=True)]
    index: Annotated[str, column("index", right=True)]
    lag: Annotated[str, column("lag", fold=True)]
    unwell: Annotated[str, column("replicas that are not well", fold=True)]


class ZoneShown(Answer):
    """A zone, partition by partition."""

    zone: ZoneStatus
    members: dict[str, str]
    partitions: list[ZonePartitionTold]

    def view(self) -> Iterable[Shown]:
        settings = ", ".join(f"{key} {value}" for key, value in self.zone.settings.items() if value != "")
        yield f"zone {self.zone.name}: {settings}"
        yield table_of([_row(one, self.members) for one in self.partitions], PartitionRow)


def _words(kind: type[StrEnum]) -> click.Choice[str]:
    return click.Choice([one.value for one in kind])


class _DelayOrNever(Seconds):
    """A time in whole seconds, or `never`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Seconds, or `never`. Fails for parts of a second."""
        if value == NEVER:
            return value
        seconds = super().convert(value, param, ctx)
        if not seconds.is_integer():
            self.fail(f"{value} is no whole number of seconds", param, ctx)
        return int(seconds)


DELAY = _DelayOrNever(most=2**31)
_ALTERABLE = (
    click.option("--replicas", type=int, metavar="N", help="Of each partition.  [1]"),
    click.option(
        "--quorum",
        type=int,
        metavar="N",
        help="Voters that must be available.  [1 of 1, 2 of up to 4, else 3]",
    ),
    click.option(
        "--filter",
        metavar="FILTER",
        help="Members that may hold replicas, as group=a|b, host=c. Empty: all.",
    ),
    click.option(
        "--scale-up-s",
        type=DELAY,
        metavar="TIME|never",
        help="Delay before new members receive replicas, or never.  [0]",
    ),
    click.option(
        "--scale-down-s",
        type=DELAY,
        metavar="TIME|never",
        help="Delay before replicas of lost members are replaced, or never.  [5min]",
    ),
    click.option(
        "--consistency",
        type=_words(Consistency),
        help="strong: wait for a lost majority; ha: continue without it.",
    ),
    click.option(
        "--reset-after-s",
        type=DELAY,
        metavar="TIME|never",
        help="With ha: delay before a partition continues without its majority.  [0]",
    ),
    click.option(
        "--adjustment",
        type=_words(Adjustment),
        help="Whether a running move is finished (replace) or cancelled when the target changes.  [replace]",
    ),
    click.option("--placement", type=_words(PlacementKind), help="Placement of replicas.  [rendezvous]"),
)


def _settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_ALTERABLE):
        command = option(command)
    return command


def _settings(given: Mapping[str, Any]) -> list[tuple[str, SettingValue]]:
    return [(name, value) for name, value in given.items() if value is not None]


def _order(call: Call, wanted: ZoneOrder) -> ZoneAnswer:
    return order_zone(call.addresses, call.credentials.for_client(), wanted)


def _carry_out(call: Call, wanted: ZoneOrder) -> OrderDone:
    answer = _order(call, wanted)
    return OrderDone(done=answer.done, warnings=answer.warnings)


@operator_command(zone, short_help="Create a zone.")
@click.argument("name")
@click.option(
    "--partitions",
    type=int,
    metavar="N",
    help="At most as many as the cluster. Cannot be changed later.  [default: as many as the cluster]",
)
@_settings_options
def create(call: Call, name: str, **given: Any) -> OrderDone:
    r"""Create the zone NAME. Its partitions are placed on the present members at once.

    \b
      holdfast zone create orders --replicas 3
      holdfast zone create cache --replicas 3 --consistency ha --scale-down-s 1min
    """
    return _carry_out(call, CreateZone(name, _settings(given)))


@operator_command(zone, short_help="Change settings of a zone.")
@click.argument("name")
@_settings_options
def alter(call: Call, name: str, **given: Any) -> OrderDone:
    r"""Change settings of the zone NAME. Replicas move while the zone is in use. The number of partitions and the
    consistency cannot be changed.

    \b
      holdfast zone alter orders --replicas 5
    """
    settings = _settings(given)
    if not settings:
        raise click.UsageError("say what to alter: see --help")
    return _carry_out(call, AlterZone(name, settings))


@operator_command(zone, short_help="Rename a zone.")
@click.argument("name")
@click.argument("wanted", metavar="NEW_NAME")
def rename(call: Call, name: str, wanted: str) -> OrderDone:
    r"""Rename the zone NAME to NEW_NAME. Maps refer to their zone by name (maps.NAME.raft_zone): a map that still uses
    the old name has no zone.

    \b
      holdfast zone rename orders sales
    """
    return _carry_out(call, RenameZone(name, wanted))


@operator_command(zone, confirms=True, short_help="Drop a zone and all its data.")
@click.argument("name")
def drop(call: Call, name: str) -> OrderDone:
    r"""Drop the zone NAME. All entries of its maps are gone.

    \b
      holdfast zone drop orders
    """
    call.confirm(f"Drop zone {name}, with all entries of the maps in it?")
    return _carry_out(call, DropZone(name))


@operator_command(
    zone, confirms=True, short_help="Continue without a lost majority. Its last writes are lost."
)
@click.argument("name")
@click.option(
    "--partition",
    "partitions",
    type=int,
    multiple=True,
    metavar="N",
    help="Only this partition; may be repeated.",
)
def reset(call: Call, name: str, *, partitions: tuple[int, ...]) -> OrderDone:
    r"""Let partitions of the zone NAME that have lost their majority for good continue with the remaining replicas.

    Partitions with a majority are not changed. Acknowledged writes that only the lost members had are lost.

    \b
      holdfast zone reset orders --partition 17
    """
    call.confirm(f"Discard data of zone {name} that only lost members have? Acknowledged writes may be lost")
    return _carry_out(call, ResetZone(name, list(partitions)))


@operator_command(zone, "list", short_help="List zones.")
def list_command(call: Call) -> Zones:
    r"""List all zones with their settings, and how many of their partitions lack a leader or a replica, or move.

    \b
      holdfast zone list
    """
    return Zones(zones=_order(call, ListZones()).zones)


@operator_command(zone, short_help="Show the leader, replicas and moves of each partition of a zone.")
@click.argument("name")
def show(call: Call, name: str) -> ZoneShown:
    r"""Show the settings of the zone NAME, and for each partition its leader, its current replicas (stable), those
    that it is changing to (pending) and those after that (planned), the last index of the leader's log, and how many
    entries each follower lacks.

    \b
      holdfast zone show orders
    """
    answer = _order(call, ShowZone(name))
    return ZoneShown(zone=answer.zones[0], members=answer.members, partitions=answer.partitions)


def _row(one: ZonePartitionTold, members: dict[str, str]) -> PartitionRow:
    def called(node: str) -> str:
        return members.get(node, node[:NAMES_PER_NODE])

    def held(replicas: AssignmentsTold | None) -> str:
        return "" if replicas is None else _shown(replicas, called)

    index = next((str(replica.index) for replica in one.replicas if replica.node == one.leader), "")
    followers = [replica for replica in one.replicas if replica.node != one.leader]
    unwell = [f"{called(each.node)} {each.state.lower()}" for each in one.replicas if each.state != "HEALTHY"]
    answered = {replica.node for replica in one.replicas}
    expected = [] if one.stable is None else [*one.stable.peers, *one.stable.learners]
    unwell += [f"{called(node)} silent" for node in expected if node not in answered]
    return PartitionRow(
        one.partition,
        "none" if one.leader is None else called(one.leader),
        held(one.stable),
        ", then ".join(map(held, one.pending)),
        held(one.planned),
        index,
        " ".join(f"{called(replica.node)} {replica.lag}" for replica in followers) if index else "",
        ", ".join(unwell),
    )


class Explained(Answer):
    """The result of a step, and the assignments after it."""

    result: Result
    after: PartitionKeys
    number: int
    op: str

    def view(self) -> Iterable[Shown]:
        after = self.after
        yield f"{self.number}: {self.op}: {self.result.value}"
        rows: list[tuple[str, Assignments | None]] = [("stable", after.stable)]
        rows += [("pending" if not at else "", one) for at, one in enumerate(after.pending)]
        rows += [
            ("planned", after.planned),
            ("to take out", after.switch_reduce),
            ("to put back", after.switch_append),
        ]
        for name, assignments in rows:
            if assignments is not None:
                yield f"   {name:<12} {_shown(assignments)}"
        if after.trigger is not None:
            yield f"   {'trigger':<12} {after.trigger}"
        for at, link in enumerate(after.chain):
            name = "" if at else "chain"
            yield f"   {name:<12} {_shown(link.assignments)} (term {link.term}, index {link.index})"


@operator_command(
    zone,
    "explain",
    connects=False,
    short_help="Show the effect of an event on the assignments of a partition, without a cluster.",
)
@click.argument("file", type=LocalPath(exists=True, dir_okay=False, allow_dash=True))
def explain_command(_: Call, file: str) -> Iterator[Explained]:
    r"""Show the effect of an event on the assignments of a partition. Contacts no cluster.

    FILE (-: standard input) has one step, or a list of steps that are applied one after the other. `op` is
    update_pending, conf_applied, reduce_changed or reset. A later step may omit `before`: it then starts from the
    result of the previous step. docs/zones.md explains the keys.

    \b
      echo '{"op": "conf_applied", "before": {"stable": {"peers": ["A"]}},
             "event": {"applied": {"peers": ["A"]}}}' | holdfast zone explain -
    """
    with click.open_file(file, "rb") as opened:
        given = _read(opened.read(), file)
    try:
        found = list(explain(given))
    except NotAStep as error:
        raise ConfigError(f"{file}: {error}") from error
    for number, (step, (result, after)) in enumerate(zip(given, found, strict=True)):
        yield Explained(result=result, after=after, number=number, op=step.op)


def _read(data: bytes, name: str) -> list[ExplainStep]:
    """The steps of a file. Raises ConfigError."""
    try:
        found = msgspec.json.decode(data, type=list[ExplainStep] | ExplainStep)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{name}: {error}; a step looks like {EXAMPLE}") from error
    return [found] if isinstance(found, ExplainStep) else found


def _shown(assignments: Assignments | AssignmentsTold, called: Callable[[str], str] = str) -> str:
    words = sorted(map(called, assignments.peers))
    words += sorted(f"{called(node)} (learner)" for node in assignments.learners)
    words += ["by force"] if assignments.force else []
    words += ["after a reset"] if assignments.from_reset else []
    return " ".join(words) or "none"
