"""Who is told of migrations, and when: the services of a member, of which its record store is one (H5; source 001,
"User Interaction").

A service is told `before` a change of what this member holds of a partition, and then exactly once `commit` or
`rollback`. Each tells the endpoint at which the member stands, and its replica index before and after, -1 for none:

- core/W-1: The source of a migration, if it is the primary, is told before it supplies; the destination before it
  takes the first chunk. Both are told the outcome when a committed row is newer than the one the migration began at:
  the row is the decision. Both roll back when there is nothing to decide: the destination refuses the supply, or the
  source calls it off; the destination also when it is not whole yet and the source is gone.
- core/W-2: A former backup owner takes no part in the copying. It is told before and commit together when it learns
  of the row; so is a member whose index a row changes without any migration (a promotion, a replica taken out of a
  row).
- core/W-3: A member that was removed though alive is told to roll back what was under way. Whether it was committed
  after all, it learns when it is back; it is then told of that anew, before and commit together.
- core/W-4: A service drops data then and only then: at commit, as a source whose new index is none or beyond the
  service's backups; at rollback, as a destination whose current index is none or beyond them.
- core/W-5: The first assignment, and a partition that is begun anew after it was declared lost, begin empty, and
  nobody is told: there is nothing to hand over. (What was held of a lost one is dropped, as a source whose new index is
  none.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Protocol, runtime_checkable

import msgspec

from holdfast.config import BACKUPS_MAX, ServiceSettings, Settings
from holdfast.core.model.ids import MemberId
from holdfast.core.model.migration import NONE
from holdfast.core.model.object_names import part_name
from holdfast.core.model.partition_table import Assignment
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import service_replica
from holdfast.core.store.service_state import ServiceState, Share, WrittenState
from holdfast.core.store.state import HostedState
from holdfast.errors import ConfigError, InvariantBroken

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@unique
class Endpoint(StrEnum):
    """At which end of a migration a member stands."""

    SOURCE = "SOURCE"
    DESTINATION = "DESTINATION"


@dataclass(frozen=True, slots=True)
class MigrationEvent:
    """What changes, or may change, in what this member holds of a partition."""

    partition: int
    endpoint: Endpoint
    current: int
    """The replica index of this member now: 0 is the primary, -1 that it holds none."""
    new: int
    """Its replica index if the migration is committed, -1 if it will hold none."""


class MigrationAware(Protocol):
    """What is told of migrations. None of these may raise; they are called in the middle of a step of the member."""

    def before(self, event: MigrationEvent) -> None:
        """What this member holds of the partition is about to change."""

    def commit(self, event: MigrationEvent) -> None:
        """It has changed."""

    def rollback(self, event: MigrationEvent) -> None:
        """It has not."""


class Service(MigrationAware, Protocol):
    """Something that has a share in every partition, beside the maps: see docs/services.md.

    Every member of a cluster runs the same services: a member with others, or with other `backups`, is not admitted.
    """

    name: str
    """Letters, digits, and _ . - in between; at most 64."""
    backups: int
    """How many backups hold a share and are waited for, 0 to 6.

    Two more say something when they are there: `async_backups`, how many further ones follow without being waited for,
    and `journal`, "off", "sync" or "lazy", as with maps. The replica indices up to `backups + async_backups` hold one.
    """

    def open(self, partition: int) -> Share:
        """A new, empty share. There may be two of a partition for a while: one that serves, one that is filled."""


@runtime_checkable
class Stateful(Protocol):
    """A service of Holdfast's own, that has no shares but a state of another kind: `open` is not asked then."""

    def state(self, partition: int) -> HostedState:
        """A new, empty state."""


class Hosted:
    """A service on one member: tells it, and drops its shares when core/W-4 says so."""

    def __init__(self, service: Service, held: dict[int, PartitionCopy]) -> None:
        self.service = service
        self.name = part_name(service.name)
        self._held = held

    def keeps(self, index: int) -> bool:
        """Whether a replica with this index holds a share."""
        return 0 <= index <= self.service.backups + getattr(self.service, "async_backups", 0)

    def open(self, partition: int) -> HostedState:
        """What it holds of a partition, new and empty: its share, or a state of its own making."""
        if isinstance(self.service, Stateful):
            return self.service.state(partition)
        return ServiceState(self.service.open(partition))

    def before(self, event: MigrationEvent) -> None:
        self.service.before(event)

    def commit(self, event: MigrationEvent) -> None:
        self.service.commit(event)
        if event.endpoint is Endpoint.SOURCE and not self.keeps(event.new):
            self._drop(event.partition)

    def rollback(self, event: MigrationEvent) -> None:
        self.service.rollback(event)
        if event.endpoint is Endpoint.DESTINATION and not self.keeps(event.current):
            self._drop(event.partition)

    def _drop(self, partition: int) -> None:
        copy = self._held.get(partition)
        if copy is not None:
            copy.services.pop(self.name, None)


class HostedServices:
    """Every service of a member, and the migrations of which they have been told, but not how they ended."""

    def __init__(
        self,
        me: MemberId,
        held: dict[int, PartitionCopy],
        records: MigrationAware,
        services: Sequence[Service] = (),
    ) -> None:
        """`records` is the record store: the maps of this member."""
        self._me = me
        self._held = held
        self.hosted = [Hosted(service, held) for service in services]
        self._aware: list[MigrationAware] = [records, *self.hosted]
        self.pending: dict[int, MigrationEvent] = {}
        """By partition: a member is at one end of at most one migration of a partition."""

    # -- shares

    def furnish(self, copy: PartitionCopy, index: int) -> None:
        """Give a copy at this index an empty share of each service of which it should hold one and does not."""
        for hosted in self.hosted:
            if hosted.keeps(index) and hosted.name not in copy.services:
                copy.services[hosted.name] = service_replica(hosted.name, hosted.open(copy.partition))

    def revive(self, copy: PartitionCopy) -> None:
        """Open the shares that were found in files; those of services that this member does not run are nobody's."""
        assert copy.partition not in self._held, "what is found in files comes before any row"
        written, copy.services = copy.services, {}
        for hosted in self.hosted:
            held = written.get(hosted.name)
            if held is None:
                continue
            if isinstance(held.state, WrittenState):
                state = hosted.open(copy.partition)
                held.state.open_as(state)
                held.state = state
            copy.services[hosted.name] = held
        assert copy.services.keys() <= written.keys(), "nothing is revived that was not written down"

    # -- what is told

    def begin(self, event: MigrationEvent) -> None:
        """A migration in which this member is source or destination begins here (core/W-1)."""
        if event.partition in self.pending:
            raise InvariantBroken(f"{event}, but {self.pending[event.partition]} has not ended")
        self.pending[event.partition] = event
        for aware in self._aware:
            aware.before(event)
        assert self.pending.get(event.partition) is event, "its end is told later (core/W-1)"

    def give_up(self, partition: int) -> None:
        """The migration that began here has ended before there was anything to decide."""
        event = self.pending.pop(partition, None)
        if event is not None:
            self._rollback(event)

    def removed(self) -> None:
        """This member was removed from the cluster, though alive (core/W-3)."""
        for partition in sorted(self.pending):
            self.give_up(partition)
        assert not self.pending, "what was under way is rolled back (core/W-3)"

    def assignment_changed(
        self, partition: int, old: Assignment, new: Assignment, arrived: PartitionCopy | None
    ) -> None:
        """A committed row: end what was under way, and tell what else it changes (core/W-1, core/W-2).

        `arrived` is content that has come whole; it takes the place of what is held when the row says so.
        """
        at, index = old.index_of(self._me), new.index_of(self._me)
        if arrived is not None and arrived.epoch < new.epoch:
            arrived = None
        event = self.pending.pop(partition, None)
        if event is not None:
            if _has_come_true(event, index, whole=arrived is not None):
                at = event.new
                self._commit(event, arrived)
            else:
                self._rollback(event)
            arrived = None
        assert partition not in self.pending, "a row ends what was under way (core/W-1)"
        if at >= 0 and new.epoch > old.epoch:
            self._at_once(MigrationEvent(partition, Endpoint.SOURCE, at, NONE))
            at = NONE
        if at == index:
            return
        if index == NONE or 0 <= at < index:
            self._at_once(MigrationEvent(partition, Endpoint.SOURCE, at, index))
        elif at >= 0 or arrived is not None:
            self._at_once(MigrationEvent(partition, Endpoint.DESTINATION, at, index), arrived)

    def _at_once(self, event: MigrationEvent, arrived: PartitionCopy | None = None) -> None:
        assert event.current != event.new, "something changes in what is held (core/W-2)"
        for aware in self._aware:
            aware.before(event)
        self._commit(event, arrived)

    def _commit(self, event: MigrationEvent, arrived: PartitionCopy | None) -> None:
        assert event.partition not in self.pending, "each is told once how it has ended"
        if event.endpoint is Endpoint.DESTINATION and arrived is not None:
            self._held[event.partition] = arrived
        for aware in self._aware:
            aware.commit(event)

    def _rollback(self, event: MigrationEvent) -> None:
        assert event.partition not in self.pending, "each is told once how it has ended"
        for aware in self._aware:
            aware.rollback(event)


def _has_come_true(event: MigrationEvent, index: int, *, whole: bool) -> bool:
    """Whether a row with this index for the member says that the migration was committed.

    The row may also be a later one: a member that was sent the content, and now is anything but what it was before,
    holds the newest that it can.
    """
    if event.endpoint is Endpoint.SOURCE:
        return index == event.new
    return whole and index >= 0 and index != event.current


# -- settings


def with_services(settings: Settings, services: Sequence[Service]) -> Settings:
    """The settings of a member with these services: what they want is one of those that all members share.

    Raises ConfigError when a service has no proper name, the name of another one, or an impossible number of backups.
    """
    found: dict[str, ServiceSettings] = {}
    for service in services:
        name = service.name
        if not NAME.fullmatch(name):
            raise ConfigError(f"a service cannot be called {name!r}: use 1 to 64 letters, digits, and _ . -")
        if name in found:
            raise ConfigError(f"two services are called {name!r}: each needs a name of its own")
        chosen = ServiceSettings(
            backups=service.backups,
            async_backups=getattr(service, "async_backups", 0),
            journal=getattr(service, "journal", "off"),
        )
        if not (chosen.backups >= 0 and chosen.async_backups >= 0 and chosen.copies - 1 <= BACKUPS_MAX):
            if chosen.async_backups:
                wanted = f"backups + async_backups is {chosen.copies - 1}"
            else:
                wanted = f"backups is {chosen.backups}"
            raise ConfigError(f"service {name}: {wanted}; use 0 to {BACKUPS_MAX}")
        if chosen.journal not in ("off", "sync", "lazy"):
            raise ConfigError(f"service {name}: journal is {chosen.journal!r}; use 'off', 'sync' or 'lazy'")
        if chosen.journal != "off" and not settings.persistence.directory and not settings.member.lite:
            raise ConfigError(
                f"persistence.directory must be set, because service {name} has journal = {chosen.journal!r}"
            )
        found[name] = chosen
    return msgspec.structs.replace(settings, services=found)
