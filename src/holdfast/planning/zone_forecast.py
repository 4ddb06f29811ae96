"""Forecasts what a scenario does to the replicas of a zone, with the placement that the metastore uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from holdfast.core.placement.layout import Candidate
from holdfast.core.zones.assignments import Assignments
from holdfast.core.zones.descriptors import (
    ClusterTopology,
    DataMember,
    PlacementKind,
    ZoneRefused,
    ZoneSettings,
    checked,
)
from holdfast.core.zones.rendezvous import EvenLayout, even_layout, placed
from holdfast.core.zones.transitions import Consistency
from holdfast.errors import ConfigError
from holdfast.planning.scenarios import Scenario, Step


class ZoneMove(msgspec.Struct, frozen=True):
    """A partition whose replicas change."""

    partition: int
    voters: list[str]
    learners: list[str]
    new_voters: list[str]
    new_learners: list[str]


class ZoneFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a step of a scenario on a zone."""

    zone: str
    scenario: str
    step: int
    text: str
    members: Annotated[int, Meta(description="members that may hold its replicas after the step")]
    replicas: Annotated[int, Meta(description="wanted for each partition")]
    copied: Annotated[int, Meta(description="replicas that are made on members that had none")]
    removed: Annotated[int, Meta(description="replicas that members give up, without those that crashed")]
    roles: Annotated[int, Meta(description="replicas that become voters or learners")]
    under_replicated: Annotated[
        int, Meta(description="partitions with fewer replicas than wanted afterwards")
    ]
    no_majority: Annotated[
        list[int], Meta(description="partitions that have lost the majority of their voters")
    ]
    lost: Annotated[list[int], Meta(description="partitions that have no replica left")]
    loads: Annotated[dict[str, int], Meta(description="replicas by member afterwards")]
    moves: list[ZoneMove]


class PresentZone(msgspec.Struct, frozen=True):
    """A zone, and the members that may hold its replicas. Their filter has been applied."""

    settings: ZoneSettings
    members: tuple[Candidate, ...]
    rows: tuple[Assignments, ...] = ()
    """By partition; empty: the zone is placed on the members first."""
    others: frozenset[str] = frozenset()
    """Further members that are present, such as leaving ones."""

    def rows_now(self) -> tuple[list[Assignments], EvenLayout | None]:
        """The replicas of each partition, and the even layout, if the zone has that. Raises ConfigError."""
        if self.rows:
            rows = list(self.rows)
            if self.settings.placement is not PlacementKind.EVEN:
                return rows, None
            kept = tuple((*row.peers, *row.learners) for row in rows)
            nodes = tuple(sorted(each.uuid for each in self.members))
            return rows, EvenLayout(nodes, self.settings.replicas, kept)
        return _placed(self.settings, self.members, None)


def _placed(
    settings: ZoneSettings, members: Sequence[Candidate], layout: EvenLayout | None
) -> tuple[list[Assignments], EvenLayout | None]:
    if not members:
        raise ConfigError(f"no member is left that may hold replicas of zone {settings.name}")
    topology = ClusterTopology(members=tuple(DataMember(each.uuid, each.group) for each in members))
    nodes = settings.taken(topology)
    if settings.placement is PlacementKind.RENDEZVOUS:
        layout = None
    elif layout is None or not layout.fits(nodes, settings):
        layout = even_layout(layout, topology, nodes, settings)
    return [placed(nodes, each, settings, layout) for each in range(settings.partitions)], layout


def foresee_zone(zone: PresentZone, scenario: Scenario) -> Iterator[ZoneFigures]:
    """Figures of each step, after all timers of the zone. Raises ConfigError."""
    settings, members = zone.settings, list(zone.members)
    rows, layout = zone.rows_now()
    others = zone.others
    for number, step in enumerate(scenario.steps):
        if step.backups is not None:
            raise ConfigError("backups:N is for maps outside of zones: give replicas:N for a zone")
        gone = {*step.drain, *step.crash}
        others -= gone
        alive = others | {each.uuid for each in members} - set(step.crash)
        members = [each for each in members if each.uuid not in gone] + list(step.join)
        settings = _changed(settings, step)
        wanted, layout = _placed(settings, members, layout)
        after = [_reached(*each, alive, settings) for each in zip(rows, wanted, strict=True)]
        labels = {"zone": settings.name, "scenario": scenario.text, "step": number, "text": step.text}
        yield _figures(labels, settings, members, alive, rows, after)
        rows = after


def _changed(settings: ZoneSettings, step: Step) -> ZoneSettings:
    if step.replicas is not None:
        settings = replace(settings, replicas=step.replicas, quorum=None)
    if step.placement is not None:
        settings = replace(settings, placement=PlacementKind(step.placement))
    try:
        checked(settings)
    except ZoneRefused as error:
        raise ConfigError(str(error)) from error
    return settings


def _reached(
    before: Assignments, wanted: Assignments, alive: frozenset[str], settings: ZoneSettings
) -> Assignments:
    """The replicas after a step. Without a majority of its voters no partition can change them, unless it is reset."""
    resets = settings.consistency is Consistency.HIGH_AVAILABILITY and before.nodes & alive
    return before if _lacks_majority(before, alive) and not resets else wanted


def _lacks_majority(row: Assignments, alive: frozenset[str]) -> bool:
    return 2 * len(alive.intersection(row.peers)) <= len(row.peers)


def _figures(
    labels: dict[str, object],
    settings: ZoneSettings,
    members: Sequence[Candidate],
    alive: frozenset[str],
    before: Sequence[Assignments],
    after: Sequence[Assignments],
) -> ZoneFigures:
    here = {each.uuid for each in members}
    loads = Counter({each.uuid: 0 for each in members})
    figures = Counter[str]()
    moves = []
    for partition, (old, new) in enumerate(zip(before, after, strict=True)):
        held, holds = set(old.nodes), set(new.nodes)
        loads.update(holds & here)
        figures["copied"] += len(holds - held)
        figures["removed"] += len((held - holds) & alive)
        figures["roles"] += sum((node in old.peers) != (node in new.peers) for node in held & holds)
        figures["under_replicated"] += len(holds & here) < settings.replicas
        if not old.same_nodes(new):
            sets = (old.peers, old.learners, new.peers, new.learners)
            moves.append(ZoneMove(partition, *map(list, sets)))
    return msgspec.convert(
        {
            **labels,
            "members": len(members),
            "replicas": settings.replicas,
            **{name: figures[name] for name in ("copied", "removed", "roles", "under_replicated")},
            "no_majority": [each for each, row in enumerate(before) if _lacks_majority(row, alive)],
            "lost": [each for each, row in enumerate(before) if not row.nodes & alive],
            "loads": dict(loads),
            "moves": moves,
        },
        ZoneFigures,
    )
