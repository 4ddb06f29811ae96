"""The part of `holdfast plan` for moves of maps between replication engines (`holdfast map move`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from holdfast.actions.check_move import CheckMove, MoveCheck
from holdfast.actions.count_maps import CountMaps
from holdfast.actions.operator_action import OperatorQuery
from holdfast.actions.show_zones import ShowZone
from holdfast.cli.answers import Answer
from holdfast.cli.exit_statuses import DONE, FAILED
from holdfast.cli.operator_command import ANSWER_S, Call
from holdfast.cli.rendering import Shown
from holdfast.client.operator import ask
from holdfast.core.model.ids import Address
from holdfast.core.model.member_status import MapFigure, MemberCount, MemberStatus
from holdfast.core.model.zone_answers import ZoneDetails
from holdfast.errors import ConfigError, HoldfastError
from holdfast.planning.amounts import Sizes, bytes_text
from holdfast.planning.live_cluster import LiveCluster, look
from holdfast.planning.move_forecast import MoveFigures, Place, foresee_move

EXAMPLE = '{"current": [["A", "B"]], "zone": (holdfast zone show NAME --json)}'


@dataclass(frozen=True, slots=True)
class Move:
    map: str
    zone: str
    """The target; empty: out of zones."""


class MoveRejection(msgspec.Struct, frozen=True):
    member: str
    reason: str


class MovePlan(Answer):
    """The effect of a move of a map."""

    map: str
    source: Annotated[str, Meta(description="the zone in which the map lives; empty: in none")]
    target: Annotated[str, Meta(description="the zone to which it moves; empty: out of zones")]
    rejections: Annotated[list[MoveRejection], Meta(description="members that would reject the move now")]
    figures: Annotated[
        MoveFigures | None,
        Meta(description="null: not known, because the target or a partition has no members"),
    ]
    missing: Annotated[str, Meta(description="why there are no figures")] = ""

    def view(self) -> Iterable[Shown]:
        ways = [
            f"zone {zone}" if zone else "the partitions with a primary" for zone in (self.source, self.target)
        ]
        yield f"map {self.map}: from {ways[0]} to {ways[1]}"
        if self.figures is not None:
            yield from _lines(self.figures)
        elif self.missing:
            yield f"  no figures: {self.missing}"
        for one in self.rejections:
            yield f"  rejected by {one.member}: {one.reason}"

    @property
    def exit_status(self) -> int:
        return FAILED if self.rejections or self.figures is None else DONE


def _lines(found: MoveFigures) -> Iterable[str]:
    sums = [sum(getattr(load, what) for load in found.loads) for what in ("before", "during", "after")]
    yield (
        f"  {found.partitions} partitions, {found.entries:,} entries, {bytes_text(found.bytes)}: "
        f"{found.replicas_before} replicas before, {found.replicas_after} after"
    )
    yield (
        f"  {bytes_text(found.copied_bytes)} copied, {bytes_text(found.local_bytes)} of them within a member, and "
        f"{bytes_text(found.replicated_bytes)} from the new leaders to the other replicas"
    )
    before, during, after = map(bytes_text, sums)
    yield f"  {before} in all members now, {during} during the move, {after} afterwards"
    for load in found.loads:
        before, during, after = map(bytes_text, (load.before, load.during, load.after))
        yield f"  {load.member}: {before} now, {during} during the move, {after} afterwards"
    for flow in found.flows:
        way = f"{flow.source} -> {flow.target}" if flow.source != flow.target else f"within {flow.source}"
        yield f"  {way}: {flow.partitions} partitions, {bytes_text(flow.bytes)}"


# -- of a running cluster, which is only read


def plan_of_live_move(call: Call, move: Move) -> MovePlan:
    cluster = look(call.address, call.credentials.for_client())
    status = cluster.status
    checks, rejections = _checked(call, status, move)
    source = checks[0].home if checks else status.zone_maps.get(move.map, "")
    try:
        figures, missing = _live_figures(call, cluster, move, source), ""
    except (ConfigError, HoldfastError) as error:
        figures, missing = None, str(error)
    return MovePlan(
        map=move.map, source=source, target=move.zone, rejections=rejections, figures=figures, missing=missing
    )


def _checked(call: Call, status: MemberStatus, move: Move) -> tuple[list[MoveCheck], list[MoveRejection]]:
    """The answers of all members, and those that reject the move, or do not answer."""
    checks, rejections = [], []
    for member in status.members:
        try:
            found: MoveCheck = _ask(call, member.door, CheckMove(move.map, move.zone))
        except HoldfastError as error:
            rejections.append(MoveRejection(member.name, f"it cannot be asked: {error}"))
            continue
        checks.append(found)
        if found.rejection:
            rejections.append(MoveRejection(member.name, found.rejection))
    return checks, rejections


def _ask(call: Call, address: Address, query: OperatorQuery) -> Any:
    return ask(address, call.credentials.for_client(), query, timeout_s=ANSWER_S)


def _live_figures(call: Call, cluster: LiveCluster, move: Move, source: str) -> MoveFigures:
    """Raises HoldfastError."""
    places = [_live_place(call, cluster, zone) for zone in (source, move.zone)]
    counts = _counted(call, cluster, move.map)
    led = [row[0] if row else "" for row in places[0].rows]
    sizes = [counts[leader].bytes // led.count(leader) if leader in counts else 0 for leader in led]
    return foresee_move(places[0], places[1], sizes, sum(one.entries for one in counts.values()))


def _live_place(call: Call, cluster: LiveCluster, zone: str) -> Place:
    if zone:
        return place_of_zone(call.ask(ShowZone(zone)), len(cluster.rows))
    rows = [tuple(cluster.label(uuid) for uuid in row if uuid is not None) for row in cluster.rows]
    return Place("", tuple(rows))


def _counted(call: Call, cluster: LiveCluster, name: str) -> Mapping[str, MapFigure]:
    """By member: the map in the partitions that it leads."""
    found = {}
    for member in cluster.members:
        count: MemberCount = _ask(call, member.door, CountMaps())
        if (figure := count.maps.get(name)) is not None:
            found[cluster.label(member.uuid)] = figure
    return found


# -- of a file


class _MoveFile(msgspec.Struct):
    zone: ZoneDetails
    current: list[list[str | None]] = []
    """Rows of the partitions with a primary; empty: spread evenly over the members of the zone."""
    entries: int = 0


def plan_of_move_in_file(data: bytes, origin: str, move: Move, copies: int, sizes: Sizes) -> MovePlan:
    """The zone of the file is the target of the move, or, if that is out of zones, its source. `copies`: of each
    partition with a primary, if the file has no rows. Raises ConfigError.
    """
    given = _read(data, origin)
    zone = given.zone.zone.name
    if move.zone not in ("", zone):
        raise ConfigError(f"{origin} has the zone {zone}, not {move.zone}")
    partitions = len(given.current) or len(given.zone.partitions)
    rows = [tuple(name for name in row if name is not None) for row in given.current]
    names = sorted(given.zone.zone.eligible_members)
    if not rows and not names:
        raise ConfigError(
            f"{origin}: zone {zone} has no members: give the rows of the partitions as `current`"
        )
    rows = rows or [_spread(names, partition, copies) for partition in range(partitions)]
    places = Place("", tuple(rows)), place_of_zone(given.zone, partitions)
    source, target = places if move.zone else places[::-1]
    return MovePlan(
        map=move.map,
        source=source.zone,
        target=target.zone,
        rejections=[],
        figures=foresee_move(source, target, [sizes.of(each) for each in range(partitions)], given.entries),
    )


def _read(data: bytes, origin: str) -> _MoveFile:
    """An object with `zone`, or the output of `holdfast zone show NAME --json` itself. Raises ConfigError."""
    try:
        found = msgspec.json.decode(data)
        whole = isinstance(found, dict) and "partitions" not in found
        return msgspec.convert(found if whole else {"zone": found}, _MoveFile)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as wrong:
        raise ConfigError(
            f"{origin}: {wrong}; it must be from holdfast zone show NAME --json, or {EXAMPLE}"
        ) from wrong


def _spread(names: Sequence[str], partition: int, copies: int) -> tuple[str, ...]:
    return tuple(names[(partition + at) % len(names)] for at in range(min(copies, len(names))))


def place_of_zone(details: ZoneDetails, count: int) -> Place:
    """`count`: partitions of the cluster. Raises ConfigError for a zone with more partitions."""
    name, held = details.zone.name, [_holders(details, each) for each in range(len(details.partitions))]
    if not 0 < len(held) <= count:
        raise ConfigError(
            f"zone {name} has {len(held)} partitions, and the cluster {count}: no map can live in it"
        )
    return Place(name, tuple(held[partition % len(held)] for partition in range(count)))


def _holders(details: ZoneDetails, number: int) -> tuple[str, ...]:
    """The members with a replica of a partition of the zone, the leader first."""
    partition = details.partitions[number]
    stable = partition.stable
    nodes = [*stable.peers, *stable.learners] if stable is not None else []
    nodes.sort(key=lambda node: node != partition.leader)
    return tuple(details.members.get(node, node) for node in nodes)
