"""The pieces of work that a member does for zones, and how far each is.

Each is read → transition → one guarded invoke; a race that was lost is read again.

- zones/A-17: Of one piece of work one step is under way at a time; an answer to a step that is over has no effect.
- zones/A-19: What fails is repeated, ever more slowly, for ever; after ten times somebody is told.
- zones/A-24: Only so many answers of the metastore are waited for at a time, and only so many of the groups that this
  member leads change their peers (`leader_duties`): what moves leaves room for requests. Groups go before triggers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final

from holdfast.core.metastore.invoke import Branch
from holdfast.core.zones.zone_keys import TOPOLOGY_KEY, part_keys, zone_key
from holdfast.core.zones.zone_ports import ZoneGroups, ZoneStore, ZoneWorld

RETRY_MS: Final = 200
"""After the first failure; twice that after each further one."""
RETRY_MOST_MS: Final = 10_000
ANSWER_MS: Final = 2_000
"""So long an answer of the metastore, or of a member, is waited for."""
ANSWERS_AT_ONCE: Final = 16
"""So many answers of the metastore are waited for at a time."""
TOLD_AFTER: Final = 10
"""Failures in a row."""
RESTS_MS: Final = 1 << 62
"""When work is due that waits for no time, but to be woken."""


@unique
class WorkKind(StrEnum):
    """Pieces of work."""

    DATA_NODES = "data nodes"
    TRIGGER = "trigger"
    GROUP = "group"
    DOUBT = "a replica in doubt"


ZoneWork = tuple[WorkKind, int, int]
"""Its kind, the zone, and the partition (-1: none)."""


@dataclass(slots=True)
class WorkStep:
    """How far a piece of work is."""

    due_ms: int
    ticket: int | None = None
    """Of the answer that is waited for."""
    then: str = ""
    """What the invoke that is under way was for."""
    attempts: int = 0
    why: str = ""
    """Why the last one has failed."""


class WorkQueue:
    """The work of one member, and the answers that it waits for."""

    def __init__(self, store: ZoneStore, groups: ZoneGroups, world: ZoneWorld) -> None:
        self._store = store
        self._groups = groups
        self._world = world
        self.now = 0
        """In ms: each event that is handed to the controller sets it."""
        self.steps: dict[ZoneWork, WorkStep] = {}
        self.of_ticket: dict[int, ZoneWork] = {}
        """Whose answers are waited for."""
        self.woken: set[ZoneWork] = set()
        """What has something to do, before its time. All of it is in `steps`."""

    def answered(self, ticket: int) -> tuple[ZoneWork, WorkStep] | None:
        """The step that has waited for this answer, and waits no more; None: none does (zones/A-17)."""
        work = self.of_ticket.pop(ticket, None)
        if work is None:
            return None
        step = self.steps[work]
        assert step.ticket == ticket, "a step that is over has given its ticket back"
        step.ticket, step.due_ms = None, RESTS_MS
        return work, step

    def step(self, work: ZoneWork) -> WorkStep:
        """How far this piece of work is; it is new when it was not there."""
        return self.steps.setdefault(work, WorkStep(self.now))

    def wake(self, work: ZoneWork) -> None:
        """It has something to do, before its time."""
        self.step(work)
        self.woken.add(work)

    def forget(self, work: ZoneWork) -> None:
        """Nothing of it is left to do."""
        self.woken.discard(work)
        step = self.steps.pop(work, None)
        if step is not None and step.ticket is not None:
            self.of_ticket.pop(step.ticket, None)

    def go(self) -> None:
        """Begin the next step of whatever needs one (zones/A-24)."""
        for work in sorted(self.woken):
            step = self.steps[work]
            asking = step.ticket is not None
            if asking and step.due_ms > self.now:
                continue
            if step.attempts and self.now < step.due_ms < RESTS_MS:
                self.woken.discard(work)  # It has failed, and is repeated in time.
                continue
            if self._is_idle(work):
                self.forget(work)
                continue
            if not asking and len(self.of_ticket) >= ANSWERS_AT_ONCE:
                continue  # Not `break`: further on may be one whose answer is late, and is asked for again.
            self.woken.discard(work)
            self._await(work, step, self._store.read(_keys_of(work)))

    def _is_idle(self, work: ZoneWork) -> bool:
        """Whether this is not, or is no more, this member's work."""
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
        """Let the metastore carry this out, for the step."""
        step.then = then
        self._await(work, step, self._store.invoke(branch))

    def failed(self, work: ZoneWork, why: str) -> None:
        """It has failed, and is repeated later (zones/A-19)."""
        step = self.step(work)
        step.attempts += 1
        step.why = why
        wait = min(RETRY_MS << min(step.attempts - 1, 10), RETRY_MOST_MS)
        step.due_ms = self.now + wait + self._world.jitter(wait)
        if step.attempts % TOLD_AFTER == 0:
            self._world.failing((work[1], work[2]), step.attempts, why)

    @property
    def troubles(self) -> list[tuple[int, int, int, str]]:
        """What fails so often that the failure handler was told: zone, partition (-1: all), attempts, why."""
        return [
            (work[1], work[2], step.attempts, step.why)
            for work, step in sorted(self.steps.items())
            if step.attempts >= TOLD_AFTER
        ]

    def again_in(self, step: WorkStep, wait_ms: int) -> None:
        """Look at it again after about this time."""
        step.due_ms = self.now + wait_ms + self._world.jitter(wait_ms)

    def wake_due(self) -> None:
        """Wake the work whose time has come."""
        # Most of what was done once rests: to sort all of it ten times a second would be what it costs.
        self.woken.update(work for work, step in self.steps.items() if step.due_ms <= self.now)


def _keys_of(work: ZoneWork) -> list[bytes]:
    """What has to be read for a piece of work."""
    kind, zone, partition = work
    keys = [TOPOLOGY_KEY]
    keys += [zone_key(zone, field) for field in ("descriptor", "history", "up", "down", "layout", "recovery")]
    return keys if kind is WorkKind.DATA_NODES else [*keys, *part_keys(zone, partition)]
