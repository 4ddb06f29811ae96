"""`holdfast zone`: creates, alters, drops and shows zones and their partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import click
import msgspec

from holdfast.actions.show_zones import ListZones, ShowZone
from holdfast.cli.action_commands import action_command, add_actions
from holdfast.cli.answers import Answer
from holdfast.cli.operator_command import Call
from holdfast.cli.rendering import Shown, table_of
from holdfast.cli.zone_steps import shown_assignments
from holdfast.core.model.member_status import ZoneStatus
from holdfast.core.model.result_columns import column
from holdfast.core.model.zone_answers import AssignmentsTold, ZoneDetails, ZonePartitionTold

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
        return "" if replicas is None else shown_assignments(replicas, called)

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
