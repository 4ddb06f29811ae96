"""Migrations that the master has requested and that have not ended: the state of each, and how many each member takes
part in, which limits further ones.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum, unique
from typing import Final

from holdfast.core.model.ids import MemberId
from holdfast.core.model.lifecycle import Lifecycle
from holdfast.core.model.migration import Migration


@unique
class MigrationPhase(StrEnum):
    REQUESTED = "requested"
    COMMITTING = "committing"
    """The destination holds everything, and the assignment is proposed."""
    COMMITTED = "committed"
    OFFERED = "offered on"
    """The primary or the destination is gone: the proposed assignment is committed or taken back like any other."""
    FAILED = "failed"


@unique
class MigrationStep(StrEnum):
    READY = "its primary says that the destination holds everything"
    REFUSED = "its primary refuses it"
    COMMITTED = "a newer assignment of its partition is committed"
    LOST = "a member that it needs is gone, or nothing may move any more"
    TAKEN_BACK = "its assignment is taken back, because a member that it names is gone"


_P, _S = MigrationPhase, MigrationStep
RUNNING: Final[Lifecycle[MigrationPhase, MigrationStep]] = Lifecycle(
    "a running migration",
    _P.REQUESTED,
    {
        (_P.REQUESTED, _S.READY): _P.COMMITTING,
        (_P.REQUESTED, _S.REFUSED): _P.FAILED,
        (_P.REQUESTED, _S.COMMITTED): _P.FAILED,
        (_P.REQUESTED, _S.LOST): _P.FAILED,
        (_P.REQUESTED, _S.TAKEN_BACK): _P.FAILED,
        (_P.COMMITTING, _S.COMMITTED): _P.COMMITTED,
        (_P.COMMITTING, _S.LOST): _P.OFFERED,
        (_P.COMMITTING, _S.TAKEN_BACK): _P.FAILED,
        (_P.OFFERED, _S.TAKEN_BACK): _P.FAILED,
    },
)


class Running:
    __slots__ = ("began_ns", "migration", "owner", "phase", "version")

    def __init__(self, migration: Migration, version: int, owner: MemberId, began_ns: int) -> None:
        self.migration = migration
        self.version = version
        self.owner = owner
        self.began_ns = began_ns
        self.phase = RUNNING.begins

    @property
    def committing(self) -> bool:
        return self.phase is MigrationPhase.COMMITTING

    def step(self, step: MigrationStep) -> None:
        self.phase = RUNNING.after(self.phase, step)


class RunningMigrations:
    """Requested migrations that have not ended, at most one per partition."""

    def __init__(self) -> None:
        self.all: dict[int, Running] = {}
        self.load: Counter[MemberId] = Counter()
        """The number of migrations in which each member is the primary or the destination."""

    def begin(self, running: Running) -> None:
        assert running.migration.partition not in self.all, "one of a partition after the other"
        self.all[running.migration.partition] = running
        self.load[running.owner] += 1
        self.load[MemberId(running.migration.destination)] += 1
        assert running.owner != running.migration.destination, "no member supplies itself"
        assert sum(self.load.values()) == 2 * len(self.all), "each has two ends"

    def forget(self, partition: int) -> Running | None:
        """Remove the migration of a partition, and return it if there was one."""
        running = self.all.pop(partition, None)
        if running is not None:
            self.load[running.owner] -= 1
            self.load[MemberId(running.migration.destination)] -= 1
            assert min(self.load[running.owner], self.load[MemberId(running.migration.destination)]) >= 0
            assert sum(self.load.values()) == 2 * len(self.all), "each has two ends"
        return running

    def clear(self) -> None:
        self.all.clear()
        self.load.clear()

    def moves(self, member: MemberId) -> bool:
        """Whether this member is the primary, the destination or the source of a migration; the source gives up its
        replica.
        """
        return any(
            member in (running.owner, running.migration.source, running.migration.destination)
            for running in self.all.values()
        )
