"""Settings of maps in force on a member: its configuration, overridden by the changes of the view
(model/C-1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from holdfast.config import MapSettings, Settings
from holdfast.config.schema import COPIES, DEFAULT_MAP
from holdfast.core.membership.desired_state import ORDER_NS
from holdfast.core.model.map_changes import MapChanges, maps_in_force, proven_maps, targets
from holdfast.core.model.member_status import MapSetting
from holdfast.core.outbox import Outbox


@dataclass(slots=True)
class OperatorOrder:
    """The last order of this member's operator."""

    name: str
    values: dict[str, int]
    ticket: int
    repeated_ns: int = 0
    taken: bool = False
    """Whether it has been carried out."""
    refusal: str = ""


class MapsInForce:
    """Machines of a member hold `settings` or `proven` and look maps up in them, so only their `maps` change."""

    def __init__(self, configured: Settings) -> None:
        self.configured = configured
        self.changes = MapChanges()
        self.settings = replace(configured, maps=dict(configured.maps))
        """For requests and replicas."""
        self.proven = replace(configured, maps=dict(configured.maps))
        """For failover and the table of a stopped cluster: the proved copies."""

        self.order: OperatorOrder | None = None

    def holds(self, name: str, index: int) -> bool:
        """Whether a replica with this index holds the map or service."""
        return 0 <= index < self.settings.object(name).copies

    def proves(self, name: str, index: int) -> bool:
        """Whether failover relies on it: not while it is filled because the map gets more copies (model/C-1)."""
        return 0 <= index < self.proven.object(name).copies

    def order_of(self, name: str, values: Mapping[str, int], now_ns: int) -> OperatorOrder | None:
        """The last order of this member's operator, if it has these values and is still repeated."""
        order = self.order
        if order is None or (order.name, order.values) != (name, values):
            return None
        return order if now_ns - order.repeated_ns <= ORDER_NS else None

    def refusal_of(self, name: str, values: Mapping[str, int], now_ns: int) -> str:
        """The reason why this order was refused; empty: it was not."""
        order = self.order_of(name, values, now_ns)
        return order.refusal if order is not None else ""

    def change(self, changes: MapChanges, out: Outbox, *, first: bool) -> None:
        """Apply these changes. `first`: this member has just joined, and its configuration may contradict
        them.
        """
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
                values = " ".join(f"{key}={value}" for key, value in sorted(change.values.items()))
                out.note("settings of a map changed", map=change.name, values=values, finished=change.done)

    def listed(self) -> list[MapSetting]:
        """The settings of each map by name, as they will be when all changes are complete."""
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
                    change is None or change.done or key not in COPIES,
                )
                for key in MapSettings.__struct_fields__
            ]
        return rows

    def _source(self, name: str, key: str) -> str:
        change = self.changes.find(name)
        if change is not None and key in change.values:
            return "map set"
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
