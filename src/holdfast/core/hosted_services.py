"""Hosted services of a member and their migration callbacks (H5; source 001, "User Interaction").

A service gets `before` when this member's replica of a partition is about to change, and then exactly once `commit` or
`rollback`. Each has this member's endpoint of the migration, and its replica index before and after; -1: none. Example:
partition 7 moves from 1 to 4. Member 1 gets `before(SOURCE, 0 -> -1)`, 4 gets `before(DESTINATION, -1 -> 0)`; both get
`commit` when the new assignment is committed, or `rollback` if it is not.

- core/W-1: The source of a migration, if it is the primary, is called before it supplies; the destination before it
  accepts the first chunk. Both get the outcome with the next committed assignment. Both roll back earlier if nothing
  can be decided any more: the destination rejects the supply, is incomplete without its source, or the source cancels
  the supply.
- core/W-2: A former backup takes no part in the copying. It gets `before` and `commit` together; so does a member whose
  index changes without a migration (a promotion, a removed replica).
- core/W-3: A member that was removed though alive rolls back what was in progress. If it was committed after all, the
  member gets `before` and `commit` together when it returns.
- core/W-4: A service drops data in exactly two cases: at commit, as a source whose new index is none or beyond the
  service's backups; at rollback, as a destination whose current index is none or beyond them.
- core/W-5: The first assignment, and a lost partition that starts again, begin empty and without callbacks: there is
  nothing to hand over. (A former copy of a lost partition is dropped, as a source whose new index is none.)
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
    SOURCE = "SOURCE"
    DESTINATION = "DESTINATION"


@dataclass(frozen=True, slots=True)
class MigrationEvent:
    partition: int
    endpoint: Endpoint
    current: int
    """0 is the primary, -1 no replica."""
    new: int
    """After a commit; -1: no replica."""


class MigrationAware(Protocol):
    """Callbacks for migrations. They must not raise: they run in the middle of a step of the member."""

    def before(self, event: MigrationEvent) -> None: ...

    def commit(self, event: MigrationEvent) -> None: ...

    def rollback(self, event: MigrationEvent) -> None: ...


class Service(MigrationAware, Protocol):
    """An application object with a share in every partition: see docs/services.md.

    All members run the same services: a member with others, or with other `backups`, is not admitted.
    """

    name: str
    """1 to 64 letters, digits, and _ . - in between."""
    backups: int
    """They hold a share and are waited for; 0 to 6.

    Two more attributes are optional: `async_backups`, further backups that are not waited for, and `journal`: "off",
    "sync" or "lazy", as with maps. Replica indexes up to `backups + async_backups` hold a share.
    """

    def open(self, partition: int) -> Share:
        """New and empty. A partition may have two for a while: one that serves, and one that is being filled."""


@runtime_checkable
class Stateful(Protocol):
    """A built-in service with a state of another kind instead of shares: `open` is not called."""

    def state(self, partition: int) -> HostedState: ...


class Hosted:
    """A service on one member; drops its shares as core/W-4 says."""

    def __init__(self, service: Service, held: dict[int, PartitionCopy]) -> None:
        self.service = service
        self.name = part_name(service.name)
        self._held = held

    def keeps(self, index: int) -> bool:
        return 0 <= index <= self.service.backups + getattr(self.service, "async_backups", 0)

    def open(self, partition: int) -> HostedState:
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
    def __init__(
        self,
        me: MemberId,
        held: dict[int, PartitionCopy],
        records: MigrationAware,
        services: Sequence[Service] = (),
    ) -> None:
        self._me = me
        self._held = held
        self.hosted = [Hosted(service, held) for service in services]
        self._aware: list[MigrationAware] = [records, *self.hosted]
        self.pending: dict[int, MigrationEvent] = {}
        """At most one migration per partition has this member as source or destination."""

    # -- shares

    def furnish(self, copy: PartitionCopy, index: int) -> None:
        """Add empty shares of the services that a copy at this index should hold and lacks."""
        for hosted in self.hosted:
            if hosted.keeps(index) and hosted.name not in copy.services:
                copy.services[hosted.name] = service_replica(hosted.name, hosted.open(copy.partition))

    def revive(self, copy: PartitionCopy) -> None:
        """Open the shares that were found in files; those of services that are not run here are dropped."""
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

    # -- callbacks

    def begin(self, event: MigrationEvent) -> None:
        """This member is source or destination (core/W-1)."""
        if event.partition in self.pending:
            raise InvariantBroken(f"{event}, but {self.pending[event.partition]} has not ended")
        self.pending[event.partition] = event
        for aware in self._aware:
            aware.before(event)
        assert self.pending.get(event.partition) is event, "its outcome follows later (core/W-1)"

    def give_up(self, partition: int) -> None:
        """Roll back: the outcome cannot be decided."""
        event = self.pending.pop(partition, None)
        if event is not None:
            self._rollback(event)

    def removed(self) -> None:
        """See core/W-3."""
        for partition in sorted(self.pending):
            self.give_up(partition)
        assert not self.pending, "what was under way is rolled back (core/W-3)"

    def assignment_changed(
        self, partition: int, old: Assignment, new: Assignment, arrived: PartitionCopy | None
    ) -> None:
        """End the migration in progress, and report other changes (core/W-1, core/W-2).

        `arrived` is a complete staging replica, which replaces the present copy if the assignment says so.
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
        assert event.partition not in self.pending, "each outcome is reported once"
        if event.endpoint is Endpoint.DESTINATION and arrived is not None:
            self._held[event.partition] = arrived
        for aware in self._aware:
            aware.commit(event)

    def _rollback(self, event: MigrationEvent) -> None:
        assert event.partition not in self.pending, "each outcome is reported once"
        for aware in self._aware:
            aware.rollback(event)


def _has_come_true(event: MigrationEvent, index: int, *, whole: bool) -> bool:
    """Whether an assignment with this index for the member means that the migration was committed.

    It may be a later assignment: a member with the complete content, and with another index than before, has the
    newest copy that it can have.
    """
    if event.endpoint is Endpoint.SOURCE:
        return index == event.new
    return whole and index >= 0 and index != event.current


# -- settings


def with_services(settings: Settings, services: Sequence[Service]) -> Settings:
    """All members have to share them.

    Raises ConfigError when a service has an invalid or duplicate name, or an invalid number of backups.
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
