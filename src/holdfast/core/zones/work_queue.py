"""Queue of a member's work for zones, with the progress of each piece.

Each step reads keys, applies a transition and writes it with one guarded invoke; if the guard fails, it reads again.

- zones/A-17: A piece of work has at most one step in progress; an answer to an older step has no effect.
- zones/A-19: A failed step is retried for ever, with growing delays; every ten failures the failure handler is called.
- zones/A-24: The number of metastore answers that may be outstanding is limited, and so is the number of this member's
  groups that change their peers (`leader_duties`): moving replicas leaves room for requests. Groups go before
  triggers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final

from holdfast.core.metastore.invoke import Branch
from holdfast.core.zones.zone_keys import PLACES_KEY, TOPOLOGY_KEY, part_keys, zone_key
from holdfast.core.zones.zone_ports import ZoneGroups, ZoneStore, ZoneWorld

RETRY_MS: Final = 200
"""After the first failure; it doubles with each further one."""
RETRY_MOST_MS: Final = 10_000
ANSWER_MS: Final = 2_000
"""Timeout for an answer of the metastore or of a member."""
ANSWERS_AT_ONCE: Final = 16
"""Outstanding answers of the metastore."""
REPORT_AFTER: Final = 10
"""Consecutive failures until the failure handler is called."""
IDLE_MS: Final = 1 << 62
"""Due time of work that waits only to be woken."""


@unique
class WorkKind(StrEnum):
    DATA_NODES = "data nodes"
    TRIGGER = "trigger"
    GROUP = "group"
    DOUBT = "a replica in doubt"


ZoneWork = tuple[WorkKind, int, int]
"""Kind, zone, and partition (-1: none)."""


@dataclass(slots=True)
class WorkStep:
    due_ms: int
    ticket: int | None = None
    """The outstanding answer."""
    then: str = ""
    """Purpose of the outstanding invoke."""
    attempts: int = 0
    why: str = ""
    """Reason of the last failure."""


class WorkQueue:
    def __init__(self, store: ZoneStore, groups: ZoneGroups, world: ZoneWorld) -> None:
        self._store = store
        self._groups = groups
        self._world = world
        self.now = 0
        """In ms; set by each event that reaches the controller."""
        self.steps: dict[ZoneWork, WorkStep] = {}
        self.of_ticket: dict[int, ZoneWork] = {}
        """Work by outstanding ticket."""
        self.woken: set[ZoneWork] = set()
        """Work to run before it is due; a subset of `steps`."""

    def answered(self, ticket: int) -> tuple[ZoneWork, WorkStep] | None:
        """The step that waited for this answer; None: it is outdated (zones/A-17)."""
        work = self.of_ticket.pop(ticket, None)
        if work is None:
            return None
        step = self.steps[work]
        assert step.ticket == ticket, "a step that is over has given its ticket back"
        step.ticket, step.due_ms = None, IDLE_MS
        return work, step

    def step(self, work: ZoneWork) -> WorkStep:
        return self.steps.setdefault(work, WorkStep(self.now))

    def wake(self, work: ZoneWork) -> None:
        self.step(work)
        self.woken.add(work)

    def forget(self, work: ZoneWork) -> None:
        self.woken.discard(work)
        step = self.steps.pop(work, None)
        if step is not None and step.ticket is not None:
            self.of_ticket.pop(step.ticket, None)

    def go(self) -> None:
        """Start the next step of all woken work (zones/A-24)."""
        for work in sorted(self.woken):
            step = self.steps[work]
            is_waiting = step.ticket is not None
            if is_waiting and step.due_ms > self.now:
                continue
            if step.attempts and self.now < step.due_ms < IDLE_MS:
                self.woken.discard(work)  # It has failed; wait until it is due.
                continue
            if self._is_idle(work):
                self.forget(work)
                continue
            if not is_waiting and len(self.of_ticket) >= ANSWERS_AT_ONCE:
                continue  # Not `break`: a later piece may be waiting for an overdue answer, and may ask again.
            self.woken.discard(work)
            self._await(work, step, self._store.read(_keys_of(work)))

    def _is_idle(self, work: ZoneWork) -> bool:
        """Whether this member does not have this work, or no longer."""
        if work[0] in (WorkKind.DATA_NODES, WorkKind.TRIGGER):
            return not self._store.leads
        return work[0] is WorkKind.GROUP and self._groups.term(work[1:]) is None

    def _await(self, work: ZoneWork, step: WorkStep, ticket: int) -> None:
        if step.ticket is not None:
            self.of_ticket.pop(step.ticket, None)
        step.ticket = ticket
        step.due_ms = self.now + ANSWER_MS + self._world.jitter(ANSWER_MS)
        self.of_ticket[ticket] = work

    def invoke(self, work: ZoneWork, step: WorkStep, branch: Branch, then: str = "") -> None:
        step.then = then
        self._await(work, step, self._store.invoke(branch))

    def failed(self, work: ZoneWork, why: str) -> None:
        """Retry a failed step later (zones/A-19)."""
        step = self.step(work)
        step.attempts += 1
        step.why = why
        wait = min(RETRY_MS << min(step.attempts - 1, 10), RETRY_MOST_MS)
        step.due_ms = self.now + wait + self._world.jitter(wait)
        if step.attempts % REPORT_AFTER == 0:
            self._world.failing((work[1], work[2]), step.attempts, why)

    @property
    def troubles(self) -> list[tuple[int, int, int, str]]:
        """Repeatedly failing work: zone, partition (-1: all), attempts, reason."""
        return [
            (work[1], work[2], step.attempts, step.why)
            for work, step in sorted(self.steps.items())
            if step.attempts >= REPORT_AFTER
        ]

    def again_in(self, step: WorkStep, wait_ms: int) -> None:
        step.due_ms = self.now + wait_ms + self._world.jitter(wait_ms)

    def wake_due(self) -> None:
        # Most work is idle: sorting all of it ten times a second would dominate the cost.
        self.woken.update(work for work, step in self.steps.items() if step.due_ms <= self.now)


def _keys_of(work: ZoneWork) -> list[bytes]:
    kind, zone, partition = work
    keys = [TOPOLOGY_KEY]
    keys += [zone_key(zone, field) for field in ("descriptor", "history", "up", "down", "layout", "recovery")]
    return [*keys, PLACES_KEY] if kind is WorkKind.DATA_NODES else [*keys, *part_keys(zone, partition)]
