"""`holdfast zone`: creates, alters, drops and shows zones and their partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import click
import msgspec

from holdfast.actions.show_zones import ListZones, ShowZone
from holdfast.cli.action_commands import action_command, add_actions
from holdfast.cli.answers import Answer
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.paths import LocalPath
from holdfast.cli.rendering import Shown, table_of
from holdfast.core.model.member_status import ZoneStatus
from holdfast.core.model.result_columns import column
from holdfast.core.model.zone_answers import AssignmentsTold, ZoneDetails, ZonePartitionTold
from holdfast.core.zones.assignments import Assignments, PartitionKeys
from holdfast.core.zones.explain import ExplainStep, NotAStep, explain
from holdfast.core.zones.transitions import Result
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


@action_command(ListZones, zone)
def list_command(call: Call, query: ListZones) -> Zones:
    return Zones(zones=call.ask(query).zones)


@action_command(ShowZone, zone)
def show(call: Call, query: ShowZone) -> ZoneShown:
    found: ZoneDetails = call.ask(query)
    return ZoneShown(zone=found.zone, members=found.members, partitions=found.partitions)


add_actions(zone, "zone")


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
