"""Queue of a member's work for zones, with the progress of each piece.

- zones/A-17: A piece of work has at most one step in progress; an answer to an older step has no effect.
- zones/A-19: A failed step is retried for ever, with growing delays; every ten failures the failure handler is called.
- zones/A-24: The number of metastore answers that may be outstanding is limited, and so is the number of this member's
  groups that change their peers (`leader_duties`): moving replicas leaves room for requests. Groups go before triggers.
- zones/A-31: Up to `WORKS_AT_ONCE` pieces of work of one kind share a read, and then one invoke with the guards of all.
  Work that is woken while all answers are outstanding gathers for the next read. If the guard of a shared invoke fails,
  each piece of work is read and written alone, so that one that always loses holds up no other.

Example for zones/A-31: a zone of 271 partitions gets another replica. The triggers read 16 partitions at a time, and
write their 16 `pending` with one revision, instead of 271. If partition 7 has changed since the read, the invoke
changes nothing, and each of the 16 is tried again with its own; only that of 7 may fail again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final

from holdfast.core.zones.zone_keys import (
    PLACES_KEY,
    TOPOLOGY_KEY,
    KeysRead,
    KeyWrite,
    part_keys,
    zone_key,
)
from holdfast.core.zones.zone_ports import ZoneGroups, ZoneStore, ZoneWorld

RETRY_MS: Final = 200
"""After the first failure; it doubles with each further one."""
RETRY_MOST_MS: Final = 10_000
ANSWER_MS: Final = 2_000
ANSWERS_AT_ONCE: Final = 2
WORKS_AT_ONCE: Final = 16
"""Pieces of work that share one answer."""
REPORT_AFTER: Final = 10
"""Consecutive failures until the failure handler is called."""
IDLE_MS: Final = 1 << 62
"""Work waits only to be woken."""


@unique
class WorkKind(StrEnum):
    DATA_NODES = "data nodes"
    TRIGGER = "trigger"
    GROUP = "group"
    DOUBT = "a replica in doubt"


ZoneWork = tuple[WorkKind, int, int]
"""Kind, zone and partition (-1: none)."""


@dataclass(slots=True)
class WorkStep:
    due_ms: int
    ticket: int | None = None
    """Other work may share the outstanding answer."""
    alone: bool = False
    """The guard of its last shared invoke failed."""
    then: str = ""
    """Purpose of the outstanding invoke."""
    attempts: int = 0
    why: str = ""


class WorkQueue:
    def __init__(self, store: ZoneStore, groups: ZoneGroups, world: ZoneWorld) -> None:
        self._store = store
        self._groups = groups
        self._world = world
        self.now = 0
        """In ms."""
        self.steps: dict[ZoneWork, WorkStep] = {}
        self.of_ticket: dict[int, list[ZoneWork]] = {}
        """Never empty."""
        self.woken: set[ZoneWork] = set()
        """To run before it is due; a subset of `steps`."""
        self._writes: list[tuple[ZoneWork, KeysRead, Sequence[KeyWrite]]] = []
        """Writes of work that shared a read, not sent yet."""

    def answered(self, ticket: int) -> list[tuple[ZoneWork, WorkStep]]:
        """The work that waited for this answer, with its steps; empty if the answer is outdated (zones/A-17)."""
        found = []
        for work in self.of_ticket.pop(ticket, ()):
            step = self.steps[work]
            assert step.ticket == ticket, "a step that is over has given its ticket back"
            step.ticket, step.due_ms = None, IDLE_MS
            found.append((work, step))
        return found

    def step(self, work: ZoneWork) -> WorkStep:
        return self.steps.setdefault(work, WorkStep(self.now))

    def wake(self, work: ZoneWork) -> None:
        self.step(work)
        self.woken.add(work)

    def forget(self, work: ZoneWork) -> None:
        self.woken.discard(work)
        step = self.steps.pop(work, None)
        if step is not None:
            self._give_back(work, step)

    def _give_back(self, work: ZoneWork, step: WorkStep) -> None:
        if step.ticket is None:
            return
        sharing = self.of_ticket[step.ticket]
        sharing.remove(work)
        if not sharing:
            del self.of_ticket[step.ticket]
        step.ticket = None

    def go(self) -> None:
        """Write what the last answer has led to, and start the next step of all woken work (zones/A-24)."""
        self._write()
        for work in sorted(self.woken):
            step = self.steps[work]
            if step.ticket is not None and step.due_ms <= self.now:
                self._give_back(work, step)
        batch: list[ZoneWork] = []
        for work in sorted(self.woken):
            if len(self.of_ticket) >= ANSWERS_AT_ONCE:
                return
            step = self.steps[work]
            if step.ticket is not None:
                continue
            if step.attempts and self.now < step.due_ms < IDLE_MS:
                self.woken.discard(work)  # After a failure, wait until it is due.
            elif self._is_idle(work):
                self.forget(work)
            elif not batch or self._shares(batch, work, step):
                batch.append(work)
            else:
                self._read(batch)
                batch = [work]
        if batch and len(self.of_ticket) < ANSWERS_AT_ONCE:
            self._read(batch)

    def _shares(self, batch: list[ZoneWork], work: ZoneWork, step: WorkStep) -> bool:
        """Whether this work may share a read with the batch (zones/A-31)."""
        alone = step.alone or self.steps[batch[0]].alone
        return not alone and work[0] is batch[0][0] and len(batch) < WORKS_AT_ONCE

    def _read(self, batch: list[ZoneWork]) -> None:
        self.woken.difference_update(batch)
        keys = dict.fromkeys(key for work in batch for key in _keys_of(work))
        self._await(batch, self._store.read(list(keys)))

    def _is_idle(self, work: ZoneWork) -> bool:
        """Whether this work is not, or no longer, the work of this member."""
        if work[0] in (WorkKind.DATA_NODES, WorkKind.TRIGGER):
            return not self._store.leads
        return work[0] is WorkKind.GROUP and self._groups.term(work[1:]) is None

    def _await(self, batch: list[ZoneWork], ticket: int) -> None:
        due_ms = self.now + ANSWER_MS + self._world.jitter(ANSWER_MS)
        for work in batch:
            step = self.steps[work]
            step.ticket, step.due_ms = ticket, due_ms
        self.of_ticket[ticket] = batch

    def write(
        self, work: ZoneWork, step: WorkStep, read: KeysRead, changes: Sequence[KeyWrite], then: str = ""
    ) -> None:
        """Queue a write, which `go` sends with the others of that read."""
        step.then = then
        self._writes.append((work, read, changes))

    def _write(self) -> None:
        writes, self._writes = self._writes, []
        if writes:
            read = writes[0][1].again()
            read.use_all(each for _, each, _ in writes)
            changes = [change for _, _, each in writes for change in each]
            self._await([work for work, _, _ in writes], self._store.invoke(read.guarded(changes)))

    def lost(self, works: Sequence[tuple[ZoneWork, WorkStep]]) -> None:
        """The guard failed: read again (zones/A-31)."""
        for work, step in works:
            step.alone = len(works) > 1
            self.wake(work)

    def failed(self, work: ZoneWork, why: str) -> None:
        """Retry later, and report work that fails again and again (zones/A-19)."""
        step = self.step(work)
        step.attempts += 1
        step.why = why
        wait = min(RETRY_MS << min(step.attempts - 1, 10), RETRY_MOST_MS)
        step.due_ms = self.now + wait + self._world.jitter(wait)
        if step.attempts % REPORT_AFTER == 0:
            self._world.failing((work[1], work[2]), step.attempts, why)

    @property
    def troubles(self) -> list[tuple[int, int, int, str]]:
        """Work that fails again and again: zone, partition (-1: all), attempts, reason."""
        return [
            (work[1], work[2], step.attempts, step.why)
            for work, step in sorted(self.steps.items())
            if step.attempts >= REPORT_AFTER
        ]

    def again_in(self, step: WorkStep, wait_ms: int) -> None:
        step.due_ms = self.now + wait_ms + self._world.jitter(wait_ms)

    @property
    def rests(self) -> bool:
        """Whether nothing is woken or outstanding, or due soon."""
        soon_ms = self.now + RETRY_MOST_MS
        return not (
            self.woken or self.of_ticket or any(step.due_ms <= soon_ms for step in self.steps.values())
        )

    def wake_due(self) -> None:
        # Most work is idle: sorting all of it ten times a second would dominate the cost.
        self.woken.update(work for work, step in self.steps.items() if step.due_ms <= self.now)


def _keys_of(work: ZoneWork) -> list[bytes]:
    kind, zone, partition = work
    keys = [TOPOLOGY_KEY]
    keys += [zone_key(zone, field) for field in ("descriptor", "history", "up", "down", "layout", "recovery")]
    return [*keys, PLACES_KEY] if kind is WorkKind.DATA_NODES else [*keys, *part_keys(zone, partition)]
