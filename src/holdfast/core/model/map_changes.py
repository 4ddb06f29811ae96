"""Settings of maps that an operator has changed while the cluster runs (`holdfast map set`, `map reset`).

They are part of the view, and win over the members' configuration files.

- model/C-1: The number of copies changes in steps, each a view of its own. `Copies` has what each step may
  rely on: `backups` and `copies` are proven, and failover relies on them; primaries wait for `waits` sync
  backups; `holds` copies hold the map. A new order lowers what failover and writes rely on at once, and
  raises `holds`. When every member has proved that its replicas hold the map, writes wait for the new number
  of backups; when every member has proved it once more, failover relies on it, and copies that are not needed
  any more are dropped.

- model/C-2: A reset gives a map the settings of the configuration, if it is the same at all members.
  Lifetimes follow it at once. The number of copies goes there in the steps of model/C-1, and the map stays
  in the list until the last one.

Example: map `m` has 1 backup, and replica index 2 of partition 7 exists for another map. `map set m
backups=2` cannot count index 2 as a copy of `m` at once: it holds nothing of `m`. If failover relied on it, a
crash of the first two members would lose all entries of `m` in partition 7. If writes waited for it at once,
they would wait until it was filled.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from holdfast.config import MapSettings, Settings
from holdfast.config.describe import keys_of
from holdfast.config.schema import COPIES, DEFAULT_MAP
from holdfast.config.sharing import encoded_key
from holdfast.core.model.map_moves import MapMove, MovePhase

CHANGEABLE = frozenset(key.name for key in keys_of("maps", MapSettings) if key.in_use)
CHANGED_MAPS_MAX = 256
"""Every view contains them."""


class Copies(msgspec.Struct, frozen=True, array_like=True):
    """The number of copies of a map, and how far each use of them may rely on it (model/C-1)."""

    backups: int
    """Sync backups that failover relies on."""
    copies: int
    """Including the owner's and those of async backups."""
    waits: int
    holds: int
    """Copies that hold the map, and get its updates."""

    @classmethod
    def of(cls, chosen: MapSettings) -> Copies:
        return cls(chosen.backups, chosen.copies, chosen.backups, chosen.copies)

    def ordered(self, backups: int, copies: int) -> Copies:
        return Copies(
            min(self.backups, backups),
            min(self.copies, copies),
            min(self.waits, backups),
            max(self.holds, copies),
        )

    def advanced(self, backups: int, copies: int) -> Copies:
        """The copies after every member has proved the present step."""
        if self.waits < backups:
            return replace(self, waits=backups)
        return Copies(backups, copies, backups, copies)


class MapChange(msgspec.Struct, frozen=True, array_like=True):
    name: str
    values: dict[str, int]
    """Key of `MapSettings` -> value. It has both of `COPIES` or none."""
    copies: Copies | None = None
    """None: the number of copies was not changed."""
    zone: str | None = None
    """Empty: out of zones; None: where the configuration says."""
    move: MapMove | None = None
    resets: bool = False
    """Its settings are forgotten when its copies are those of the configuration (model/C-2)."""

    @property
    def done(self) -> bool:
        return self.copies is None or self.copies == self.target

    @property
    def target(self) -> Copies | None:
        if self.copies is None:
            return None
        backups = self.values["backups"]
        copies = 1 + backups + self.values["async_backups"]
        return Copies(backups, copies, backups, copies)

    @property
    def home(self) -> str | None:
        """A zone, or empty; None: where the configuration says."""
        return self.move.home if self.move is not None else self.zone

    @property
    def destination(self) -> str | None:
        """`home`, when the move has ended."""
        if self.move is None or self.move.phase is MovePhase.CANCELLING:
            return self.home
        return self.move.target

    def advanced(self) -> MapChange:
        target = self.target
        if self.copies is None or target is None:
            return self
        return replace(self, copies=self.copies.advanced(target.backups, target.copies))


class MapChanges(msgspec.Struct, frozen=True, array_like=True):
    version: int = 0
    changes: tuple[MapChange, ...] = ()

    def find(self, name: str) -> MapChange | None:
        return next((change for change in self.changes if change.name == name), None)

    def home(self, name: str) -> str | None:
        change = self.find(name)
        return change.home if change is not None else None

    @property
    def done(self) -> bool:
        return all(change.done for change in self.changes)

    def ordered(self, settings: Settings, name: str, values: Mapping[str, int]) -> MapChanges:
        """`settings`: without changes."""
        known = self.find(name)
        merged = {**(known.values if known is not None else {}), **values}
        copies = known.copies if known is not None else None
        zone, move = (known.zone, known.move) if known is not None else (None, None)
        if set(COPIES) & values.keys():
            wanted = target_of(settings, self, name)
            for key in COPIES:
                merged.setdefault(key, getattr(wanted, key))
            copies = self.copies_of(settings, name).ordered(
                merged["backups"], 1 + merged["backups"] + merged["async_backups"]
            )
        return self._with(MapChange(name, merged, copies, zone, move), self.version + 1)

    def reset(self, settings: Settings, name: str) -> MapChanges:
        """The changes after an order to reset this map (model/C-2). `settings`: without changes."""
        known = self.find(name)
        if known is None:
            return self
        if known.copies is not None:
            wanted = target_of(settings, self.without(name), name)
            copies = known.copies.ordered(wanted.backups, wanted.copies)
            values = {key: getattr(wanted, key) for key in COPIES}
            known = replace(known, values=values, copies=copies, resets=True)
        else:
            known = replace(known, values={}, resets=True)
        return self._with(known, self.version + 1).settled(settings)

    def settled(self, settings: Settings) -> MapChanges:
        """The changes without maps that are reset and whose copies are those without their entry."""
        found = self
        for change in self.changes:
            if not change.resets:
                continue
            without = found.without(change.name)
            if change.copies is None or change.copies == without.copies_of(settings, change.name):
                found = without
            elif change.target != Copies.of(target_of(settings, without, change.name)):
                # The map follows `default`, which was changed meanwhile.
                found = found.reset(settings, change.name)
        return found

    def without(self, name: str) -> MapChanges:
        """Without the changed settings of this map. Its place and its move stay."""
        known = self.find(name)
        if known is not None and (known.zone is not None or known.move is not None):
            return self._with(MapChange(name, {}, None, known.zone, known.move), self.version)
        return MapChanges(self.version, tuple(change for change in self.changes if change.name != name))

    def _with(self, new: MapChange, version: int) -> MapChanges:
        others = [change for change in self.changes if change.name != new.name]
        return MapChanges(version, tuple(sorted([*others, new], key=lambda change: change.name)))

    def moving(self, name: str, move: MapMove | None, zone: str | None = None) -> MapChanges:
        """`move`: None if it has ended, and the map lives in `zone`."""
        known = self.find(name) or MapChange(name, {})
        new = replace(known, move=move, zone=known.zone if move is not None else zone)
        return self._with(new, self.version + 1)

    @property
    def moves(self) -> dict[str, MapMove]:
        return {change.name: change.move for change in self.changes if change.move is not None}

    def advanced(self) -> MapChanges:
        """The changes after every member has proved the present steps."""
        return MapChanges(self.version, tuple(change.advanced() for change in self.changes))

    def copies_of(self, settings: Settings, name: str) -> Copies:
        for found in (name,) if name in settings.maps else (name, DEFAULT_MAP):
            change = self.find(found)
            if change is not None and change.copies is not None:
                return change.copies
        return Copies.of(settings.map(name))

    def hidden(self) -> set[str]:
        """Keys, as they are sent, whose configured values have no effect."""
        values = {f"maps.{change.name}.{key}" for change in self.changes for key in change.values}
        zones = {
            encoded_key(f"maps.{change.name}.raft_zone") for change in self.changes if change.home is not None
        }
        return values | zones


class MapOrder(msgspec.Struct, frozen=True):
    name: str
    values: Mapping[str, int] = {}
    to: str | None = None
    """The zone to move to, empty: out of zones; None: it does not move."""
    cancels: bool = False
    resets: bool = False
    """Its settings are to be those of the configuration."""

    def is_in(self, changes: MapChanges) -> bool:
        known = changes.find(self.name)
        if self.resets:
            return known is None or known.resets or not known.values
        if self.cancels:
            move = known.move if known is not None else None
            return move is None or move.phase is MovePhase.CANCELLING
        if self.to is not None:
            return known is not None and known.destination == self.to
        return known is not None and self.values.items() <= known.values.items()

    def applied(self, settings: Settings, changes: MapChanges) -> MapChanges:
        """`settings`: without changes."""
        return self._applied(settings, changes).settled(settings)

    def _applied(self, settings: Settings, changes: MapChanges) -> MapChanges:
        known = changes.find(self.name)
        if self.resets:
            return changes.reset(settings, self.name)
        if self.cancels and known is not None and known.move is not None:
            return changes.moving(self.name, replace(known.move, phase=MovePhase.CANCELLING))
        if self.to is not None:
            source = home_of(settings, changes, self.name)
            return changes.moving(self.name, MapMove(changes.version + 1, source, self.to))
        return changes.ordered(settings, self.name, self.values)


def target_of(settings: Settings, changes: MapChanges, name: str) -> MapSettings:
    """The settings of the map when all changes are complete."""
    chosen = settings.map(name)
    for found in (name,) if name in settings.maps else (DEFAULT_MAP, name):
        change = changes.find(found)
        if change is not None:
            chosen = replace(chosen, **change.values)
            if change.destination is not None:
                chosen = replace(chosen, raft_zone=change.destination)
    return chosen


def home_of(settings: Settings, changes: MapChanges, name: str) -> str:
    """A zone; empty: the partitions with a primary and backups."""
    change = changes.find(name)
    if change is not None and change.home is not None:
        return change.home
    return settings.map(name).raft_zone


def moved_maps(before: MapChanges, after: MapChanges) -> list[str]:
    names = sorted({change.name for change in (*before.changes, *after.changes)})
    return [name for name in names if before.home(name) != after.home(name)]


def targets(settings: Settings, changes: MapChanges) -> Settings:
    return replace(settings, maps={name: chosen for name, chosen, _ in _each(settings, changes)})


def maps_in_force(settings: Settings, changes: MapChanges) -> dict[str, MapSettings]:
    return {
        name: replace(
            chosen,
            backups=copies.waits,
            async_backups=copies.holds - 1 - copies.waits,
            raft_zone=home_of(settings, changes, name),
        )
        for name, chosen, copies in _each(settings, changes)
    }


def proven_maps(settings: Settings, changes: MapChanges) -> dict[str, MapSettings]:
    """Settings on which failover may rely."""
    return {
        name: replace(
            chosen,
            backups=copies.backups,
            async_backups=copies.copies - 1 - copies.backups,
            raft_zone=home_of(settings, changes, name),
        )
        for name, chosen, copies in _each(settings, changes)
    }


def _each(settings: Settings, changes: MapChanges) -> list[tuple[str, MapSettings, Copies]]:
    names = [*settings.maps, *(change.name for change in changes.changes if change.name not in settings.maps)]
    return [(name, target_of(settings, changes, name), changes.copies_of(settings, name)) for name in names]


def without_changed(shared: Mapping[str, str], changes: MapChanges) -> dict[str, str]:
    """Shared settings, as they are compared when a process joins. If it has no table for a changed map, it
    takes the other keys of that map from `default`.
    """
    found = dict(shared)
    usual = f"maps.{DEFAULT_MAP}."
    for change in changes.changes:
        own = f"maps.{change.name}."
        if change.name != DEFAULT_MAP and not any(key.startswith(own) for key in shared):
            found |= {
                own + key.removeprefix(usual): at for key, at in _with_defaults(shared, changes).items()
            }
    for key in changes.hidden():
        found.pop(key, None)
    return found


def _with_defaults(shared: Mapping[str, str], changes: MapChanges) -> dict[str, str]:
    usual = f"maps.{DEFAULT_MAP}."
    found = {key: at for key, at in shared.items() if key.startswith(usual)}
    changed = changes.find(DEFAULT_MAP)
    if changed is not None:
        found |= {usual + key: str(value) for key, value in changed.values.items() if usual + key in found}
    return found
