"""Settings of maps in force on a member: its configuration, overridden by the changes of the view
(model/C-1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from holdfast.config import MapSettings, Settings
from holdfast.config.schema import COPIES, DEFAULT_MAP
from holdfast.core.membership.desired_state import ORDER_NS
from holdfast.core.model.map_changes import (
    MapChange,
    MapChanges,
    MapOrder,
    maps_in_force,
    proven_maps,
    targets,
)
from holdfast.core.model.map_moves import MovePhase, MoveStep, is_due
from holdfast.core.model.member_status import MapSetting
from holdfast.core.outbox import Outbox

OUTSIDE = "no zone"


@dataclass(slots=True)
class OperatorOrder:
    order: MapOrder
    ticket: int
    repeated_ns: int = 0
    taken: bool = False
    refusal: str = ""


class MoveProgress(Protocol):
    def wanted(self, changes: MapChanges) -> MapChanges:
        """As master: these changes, with the next phase of a move that can continue (map_moves/V-2)."""

    def described(self, name: str) -> str:
        """How far the move is, as text."""

    @property
    def leftovers(self) -> dict[str, int]: ...


class MapsInForce:
    """Machines of a member hold `settings` or `proven` and look maps up in them, so only their `maps` change."""

    def __init__(self, configured: Settings) -> None:
        self.configured = configured
        self.changes = MapChanges()
        self.settings = replace(configured, maps=dict(configured.maps))
        self.proven = replace(configured, maps=dict(configured.maps))
        """For failover and the table of a stopped cluster."""

        self.moves: MoveProgress
        self.order: OperatorOrder | None = None

    def attach(self, moves: MoveProgress) -> None:
        self.moves = moves

    def holds(self, name: str, index: int) -> bool:
        """Whether a replica with this index holds the map or service."""
        return 0 <= index < self.settings.object(name).copies

    def proves(self, name: str, index: int) -> bool:
        """Whether failover relies on it: not while it is filled because the map gets more copies (model/C-1)."""
        return 0 <= index < self.proven.object(name).copies

    def order_of(self, order: MapOrder, now_ns: int) -> OperatorOrder | None:
        """The last order if it is this one; None: it is another one, or is not repeated any more."""
        mine = self.order
        if mine is None or mine.order != order:
            return None
        return mine if now_ns - mine.repeated_ns <= ORDER_NS else None

    def home(self, name: str) -> str:
        """A zone, or empty for the partitions with a primary."""
        return self.settings.map(name).raft_zone

    def is_due(self, name: str, step: MoveStep) -> bool:
        return is_due(self.changes.moves.get(name), step)

    def is_leaving(self, name: str) -> bool:
        move = self.changes.moves.get(name)
        return move is not None and move.phase is MovePhase.SWITCHING

    def refusal_of(self, order: MapOrder, now_ns: int) -> str:
        """Why the order was refused; empty: it was not."""
        mine = self.order_of(order, now_ns)
        return mine.refusal if mine is not None else ""

    def change(self, changes: MapChanges, out: Outbox, *, first: bool) -> None:
        """`first`: this member has just joined, and its configuration may contradict them."""
        before, self.changes = self.changes, changes
        for held, maps in (
            (self.settings.maps, maps_in_force(self.configured, changes)),
            (self.proven.maps, proven_maps(self.configured, changes)),
        ):
            held.clear()
            held.update(maps)
        for change in changes.changes:
            if first:
                self._warn(change.name, change.values, out)
            elif before.find(change.name) != change:
                self._note(before.find(change.name), change, out)
        for change in before.changes:
            left = changes.find(change.name)
            if change.values and (left is None or not left.values):
                out.note("settings of a map reset", map=change.name)

    def _note(self, before: MapChange | None, change: MapChange, out: Outbox) -> None:
        move = change.move or (before.move if before is not None else None)
        if move is not None and (before is None or before.move != change.move):
            phase = move.phase.name.lower() if change.move is not None else "ended"
            places = {"source": move.source or OUTSIDE, "target": move.target or OUTSIDE}
            out.note("map moves", map=change.name, phase=phase, **places, why=move.why)
        if before is None or (before.values, before.copies) != (change.values, change.copies):
            values = " ".join(f"{key}={value}" for key, value in sorted(change.values.items()))
            if values:
                out.note("settings of a map changed", map=change.name, values=values, finished=change.done)

    def listed(self) -> list[MapSetting]:
        """The settings by map, as they will be when all changes are complete."""
        wanted = targets(self.configured, self.changes)
        names = sorted({DEFAULT_MAP, *wanted.maps}, key=lambda name: (name != DEFAULT_MAP, name))
        rows: list[MapSetting] = []
        for name in names:
            change, chosen = self.changes.find(name), wanted.map(name)
            rows += [
                MapSetting(
                    name,
                    key,
                    getattr(chosen, key),
                    self._source(name, key),
                    change is None or _is_finished(change, key),
                )
                for key in MapSettings.__struct_fields__
            ]
        return rows

    def _source(self, name: str, key: str) -> str:
        change = self.changes.find(name)
        if change is not None and key in change.values:
            return "map set"
        if change is not None and key == "raft_zone" and change.destination is not None:
            return "map move"
        if f"maps.{name}.{key}" in self.configured.given:
            return "configuration"
        if name == DEFAULT_MAP:
            return "built-in"
        changed = self.changes.find(DEFAULT_MAP) if name not in self.configured.maps else None
        given = f"maps.{DEFAULT_MAP}.{key}" in self.configured.given
        return DEFAULT_MAP if given or (changed is not None and key in changed.values) else "built-in"

    def _warn(self, name: str, values: dict[str, int], out: Outbox) -> None:
        configured = self.configured.map(name)
        for key, value in values.items():
            mine = getattr(configured, key)
            if f"maps.{name}.{key}" in self.configured.given and mine != value:
                out.note(
                    "a setting of the configuration has no effect: holdfast map set changed it in the cluster",
                    level="warning",
                    key=f"maps.{name}.{key}",
                    configured=mine,
                    in_force=value,
                )


def _is_finished(change: MapChange, key: str) -> bool:
    """Whether this setting of the map is in force as it was ordered."""
    if key in COPIES:
        return change.done
    return key != "raft_zone" or change.move is None
