"""`holdfast plan --zone`: the effect of a scenario on the replicas of a zone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec

from holdfast.actions.show_zones import ListZones, ShowZone
from holdfast.cli.operator_command import Call
from holdfast.cli.rendering import print_shown
from holdfast.core.model.member_status import ZoneStatus
from holdfast.core.model.zone_answers import NEVER, ZoneDetails, ZoneList
from holdfast.core.placement.layout import Candidate
from holdfast.core.zones import descriptors
from holdfast.core.zones.assignments import Assignments
from holdfast.core.zones.descriptors import PARTITIONS_MOST, ZoneSettings
from holdfast.errors import ConfigError
from holdfast.planning.scenarios import parse, synthetic
from holdfast.planning.zone_forecast import PresentZone, ZoneFigures, foresee_zone

SHOWN = 10
"""Partitions that are named in a line."""


class KnownZone:
    """A zone as `holdfast zone show` describes it."""

    def __init__(self, details: ZoneDetails, groups: Mapping[str, str] = MappingProxyType({})) -> None:
        """`groups`: the failure group of each member, by name."""
        self._details = details
        self._groups = groups

    @classmethod
    def live(cls, call: Call, name: str) -> KnownZone:
        """A zone of a running cluster, which is only read."""
        zones: ZoneList = call.ask(ListZones())
        if name not in (known := [one.name for one in zones.zones]):
            raise ConfigError(f"there is no zone {name}; zones are: {', '.join(known) or 'none'}")
        details: ZoneDetails = call.ask(ShowZone(name))
        return cls(details, {row.name: row.group for row in call.status().members})

    @classmethod
    def of_file(cls, data: bytes, origin: str, name: str) -> KnownZone:
        """From the output of `holdfast zone show NAME --json`. Raises ConfigError."""
        try:
            details = msgspec.json.decode(data, type=ZoneDetails)
            settings = settings_of(details.zone)
        except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
            raise ConfigError(
                f"{origin}: {wrong}; it must be from holdfast zone show {name} --json"
            ) from wrong
        if settings.name != name:
            raise ConfigError(f"{origin} has the zone {settings.name}, not {name}")
        if [one.partition for one in details.partitions] != list(range(settings.partitions)):
            raise ConfigError(f"{origin}: a zone with {settings.partitions} partitions has each of them once")
        return cls(details)

    @property
    def zone(self) -> PresentZone:
        details = self._details
        names = set(details.zone.eligible_members)
        holders = {node for node, name in details.members.items() if name in names}
        members = [Candidate(node, self._groups.get(details.members[node], "")) for node in sorted(holders)]
        rows = tuple(
            Assignments()
            if one.stable is None
            else Assignments(tuple(one.stable.peers), tuple(one.stable.learners))
            for one in details.partitions
        )
        others = frozenset(details.members.keys() - holders)
        return PresentZone(settings_of(details.zone), tuple(members), rows, others)

    def label(self, node: str) -> str:
        return self._details.members.get(node, node)

    def scenario(self, text: str) -> str:
        """A scenario with nodes instead of names of members."""
        nodes = {name: node for node, name in self._details.members.items()}

        def one(step: str) -> str:
            kind, colon, rest = step.strip().partition(":")
            return f"{kind}{colon}{nodes.get(rest, rest) if kind in ('drain', 'crash') else rest}"

        return ",".join("+".join(map(one, part.split("+"))) for part in text.split(","))


def settings_of(status: ZoneStatus) -> ZoneSettings:
    """The settings that a status has, without the filter: its `eligible_members` have passed that."""
    given = {
        key: descriptors.NEVER if value == NEVER else value
        for key, value in status.settings.items()
        if key != "filter"
    }
    found = msgspec.convert({"name": status.name, **given}, ZoneSettings)
    usual = descriptors.usual_quorum(found.replicas)
    return msgspec.structs.replace(found, quorum=None if found.quorum == usual else found.quorum)


def plan_of_zone(
    call: Call, known: KnownZone, scenarios: Sequence[str], *, summary: bool
) -> Iterator[ZoneFigures]:
    """Plan a zone that there is. Prints the figures, or yields them for JSON. `summary`: no partitions."""
    given = [known.scenario(text) for text in scenarios or ("now",)]
    return _planned(call, known.zone, given, known.label, summary=summary)


def plan_of_new_zone(
    call: Call,
    name: str,
    scenarios: Sequence[str],
    *,
    members: int,
    groups: int,
    partitions: int,
    replicas: int,
    summary: bool,
) -> Iterator[ZoneFigures]:
    """Plan a zone that is created on so many members, likewise."""
    if partitions > PARTITIONS_MOST:
        raise ConfigError(f"a zone has at most {PARTITIONS_MOST} partitions: give --partitions")
    settings = ZoneSettings(name, partitions, replicas)
    zone = PresentZone(settings, synthetic(members, groups))
    return _planned(call, zone, scenarios or ("join:1",), str, summary=summary)


def _planned(
    call: Call,
    zone: PresentZone,
    scenarios: Sequence[str],
    label: Callable[[str], str],
    *,
    summary: bool,
) -> Iterator[ZoneFigures]:
    for text in scenarios:
        for figures in foresee_zone(zone, parse(text, zone.members, zone.others)):
            if call.as_json:
                yield figures
            else:
                print_shown(zone_lines(figures, label, summary=summary))


def zone_lines(figures: ZoneFigures, label: Callable[[str], str], *, summary: bool) -> Iterator[str]:
    """The figures of a step for people."""
    yield (
        f"zone {figures.zone}, {figures.text}: {figures.members} members, {figures.replicas} replicas of each partition"
    )
    yield (
        f"  {figures.copied} replicas copied and {figures.removed} removed in {len(figures.moves)} partitions; "
        f"{figures.roles} become voters or learners; {figures.under_replicated} partitions have fewer replicas than "
        "wanted"
    )
    for what, partitions in (("without a majority", figures.no_majority), ("lost", figures.lost)):
        if partitions:
            named = ", ".join(map(str, partitions[:SHOWN])) + (", …" if len(partitions) > SHOWN else "")
            yield f"  {len(partitions)} partitions {what}: {named}"
    yield "  replicas afterwards: " + ", ".join(
        f"{label(node)} {count}" for node, count in figures.loads.items()
    )
    for move in () if summary else figures.moves:
        before, after = (
            " ".join(
                [*sorted(map(label, voters)), *(f"{one} (learner)" for one in sorted(map(label, learners)))]
            )
            for voters, learners in (
                (move.voters, move.learners),
                (move.new_voters, move.new_learners),
            )
        )
        yield f"  partition {move.partition}: {before or 'none'} -> {after or 'none'}"
