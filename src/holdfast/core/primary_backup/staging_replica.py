"""A staging replica: a copy that is being filled from chunks and live records, in any order, until it is complete.

- primary_backup/F-1: The copy that the receiver had before is the *base*. A map whose base is a prefix of what the
  source holds starts as a copy of it and takes the missed updates and the live ones in the order of the counter, each
  once; a record that leaves a gap waits. So removed entries stay removed.
- primary_backup/F-2: In a map or in key ranges that are sent in full, each entry is the newest that was sent of it. The
  source states the counter at which the content begins: updates up to it are in the content, or obsolete.
- primary_backup/F-3: The copy is complete when the last chunk has arrived, every map has reached the counter that this
  chunk states, and no update is missing below.
- primary_backup/F-5: A state that is sent in opaque pieces (not `State.keyed`) is of one moment. If it is sent in full,
  the pieces contain all earlier updates. For key ranges, updates up to that moment are applied in order, then the
  pieces. Later updates wait for the last piece.
- primary_backup/F-4: Until the source has stated what it sends of a map, live records of it wait.

Example: the base holds updates 1..17 of map m; the source holds 1..20 and sends the records 18..20. Live records 21 and
22 arrive first and wait. When 20 is applied, 21 and 22 follow. The last chunk states "m ends at 20": the map has
reached it without gaps, so the phase goes FILLING -> WRITING (journal) -> HELD, which acknowledges the last chunk. When
the assignment is committed the staging replica becomes this member's copy (OVER). Until then it takes every live
record, and writers wait for it (primary_backup/P-1), so it has no gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum, unique
from typing import Any, Final

from holdfast.core.messages import Fill, FillEntries, FillPlan, FillRecords, FillShare
from holdfast.core.model.ids import MemberId
from holdfast.core.model.lifecycle import Lifecycle
from holdfast.core.model.records import Change, Record, after_wait
from holdfast.core.model.sync_request import Base, Demand, How
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.store.chunk import Receiver
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica, Replica
from holdfast.errors import InvariantBroken


class FilledReplica:
    """A replica of a map or service that is being filled (primary_backup/F-1): it orders content and updates; their
    effect is left to the state.
    """

    __slots__ = (
        "_awaits",
        "_begins",
        "_earlier",
        "_early",
        "_frozen",
        "_in_order",
        "_moment",
        "_receiver",
        "_tail_bytes",
        "held",
        "how",
    )

    def __init__(self, held: Replica[Any], tail_bytes: int) -> None:
        self.held = held
        self.how: How | None = None
        """None: not known yet."""
        self._receiver: Receiver = held.state.receiver()
        self._tail_bytes = tail_bytes
        self._early: dict[int, tuple[int, Record, int]] = {}
        """Records that wait, by counter, with their terms and times of arrival."""
        self._earlier: list[tuple[int, Record]] = []
        """Updates in the content; kept for change streams only."""
        self._in_order = False
        """Apply updates in the order of the counter, not as they come."""
        self._begins = 0
        """The counter of the content, or up to which updates are sent."""
        self._frozen = False
        """The replica holds the base as it was when it was compared."""
        self._awaits = False
        """Content of one moment is still to come (primary_backup/F-5)."""
        self._moment: tuple[int, list[tuple[int, int]]] | None = None
        """Counter and lineage of that moment; None: the last piece has not come."""

    def freeze(self, base: Replica[Any]) -> None:
        """Start from the base as it is now, because it continues to follow its primary and may pass the moment of the
        content. Repeated calls do nothing.
        """
        if self.how is None and not self._frozen:
            assert not self.held.counter, "a replica without a plan is empty"
            assert base is not self.held, "the base is another replica"
            self.held.start_from(base)
            self._frozen = True

    def _thaw(self) -> None:
        """Drop the frozen base, because the whole state will come."""
        held = self.held
        assert self._frozen, "only a frozen base is dropped"
        held.state.begin_ranges(frozenset(range(len(held.state.range_digests()))))
        held.updates, held.lineage, held.tail = UpdateCounter(), [], None
        self._frozen = False
        assert not held.counter, "a full fill begins empty"

    def begin(self, plan: FillPlan, base: Replica[Any] | None, now_ns: int) -> None:
        self.how, self._begins = plan.how, plan.counter
        keyed, whole = self.held.state.keyed, plan.how is How.FULL
        self._in_order = not whole or not keyed
        self._awaits = not keyed and plan.how in (How.RANGES, How.FULL)
        if whole:
            if self._frozen:
                self._thaw()
            self._receiver.begin(plan.counter, None)
            self.held.updates = UpdateCounter(plan.counter if keyed else 0)
        elif base is None:
            raise InvariantBroken(f"{plan.map} is to be filled from a base that is not held")
        else:
            if not self._frozen:
                self.held.start_from(base)
            ranges = frozenset(plan.ranges) if plan.how is How.RANGES else frozenset()
            self._receiver.begin(plan.counter if ranges else 0, ranges)
        early, self._early = self._early, {}
        for _, (term, record, came_ns) in sorted(early.items()):
            self.take(after_wait(record, now_ns - came_ns), term, now_ns)

    # -- content

    def pour(self, part: FillEntries | FillShare, now_ns: int) -> None:
        self._receiver.pour(part, now_ns)
        if self._awaits and isinstance(part, FillShare) and part.whole:
            self._moment = (part.counter, list(part.lineage))
            self._go_on(now_ns)

    def _land(self, counter: int, lineage: list[tuple[int, int]]) -> None:
        self._awaits = False
        if self.how is How.FULL:
            self.held.updates = UpdateCounter(counter)
            self.held.lineage = lineage
        assert self.held.counter == counter, "earlier updates are in the content"
        self._receiver.land()

    # -- records

    def take(self, record: Record, term: int, now_ns: int) -> None:
        held, counter = self.held, record.counter
        if record.change is Change.BEGIN and self.how is not None and held.is_before(term, record):
            self._begin_again(record)
        if self.how is None:
            self._early[counter] = (term, record, now_ns)
        elif not self._in_order:
            if counter > self._begins and not held.updates.holds(counter):
                self._do(record, term, now_ns)
        elif counter > held.counter:
            self._early[counter] = (term, record, now_ns)
            self._go_on(now_ns)

    def _begin_again(self, record: Record) -> None:
        """Start again with a map that the primary forgot and begins again here: earlier updates are not missing."""
        self.held.begin_again(record)
        self.how, self._begins = How.FULL, record.counter - 1
        self._in_order = False
        self._early = {counter: one for counter, one in self._early.items() if counter >= record.counter}

    def _go_on(self, now_ns: int) -> None:
        held = self.held
        while True:
            if self._awaits:
                reached = held.counter if self.how is How.RANGES else None
                if self._moment is not None and reached in (None, self._moment[0]):
                    self._land(*self._moment)
                elif reached is None or reached >= (self._moment[0] if self._moment else self._begins):
                    return
            turn = self._early.pop(held.counter + 1, None)
            if turn is None:
                break
            term, record, came_ns = turn
            self._do(after_wait(record, now_ns - came_ns), term, now_ns)
        for counter in [counter for counter in self._early if counter <= held.counter]:
            del self._early[counter]

    def _do(self, record: Record, term: int, now_ns: int) -> None:
        held = self.held
        held.enter(term)
        self._receiver.take(record, now_ns)
        held.updates.update(record.counter - 1)
        held.keep(term, [record], held.changes or self._tail_bytes)

    def take_earlier(self, record: Record, term: int) -> None:
        """Keep an update that the content includes, for change streams."""
        if self.held.changes:
            self._earlier.append((term, record))

    # -- the end

    def stands_at(self, part: FillEntries) -> None:
        self.held.lineage = list(part.lineage)
        earlier, self._earlier = self._earlier, []
        self.held.keep_earlier(earlier)

    def reached(self, counter: int) -> bool:
        """Whether every update up to this number is held, without gaps (primary_backup/F-3)."""
        held = self.held
        whole = held.updates.sequential and not self._early and not self._awaits
        return whole and held.counter >= (max(counter, self._begins) if self._in_order else counter)


@unique
class StagingPhase(StrEnum):
    FILLING = "filling"
    """See primary_backup/F-3."""
    WRITING = "writing"
    """Parts that must survive a power failure are being written."""
    NO_ROOM = "no room"
    """The disk had no room for it."""
    HELD = "held"
    """Complete, and durable where it must be."""
    OVER = "over"
    """It is this member's copy, or was dropped."""


@unique
class StagingStep(StrEnum):
    WHOLE = "nothing is missing any more"
    WRITTEN = "the disk has it"
    FULL = "the disk has no room"
    AGAIN = "a moment later"
    TAKEN = "it becomes the copy of its partition"
    DROPPED = "an assignment, its source or a newer supply ends it"


_P, _S = StagingPhase, StagingStep
STAGING: Final[Lifecycle[StagingPhase, StagingStep]] = Lifecycle(
    "a staging replica",
    _P.FILLING,
    {
        (_P.FILLING, _S.WHOLE): _P.WRITING,
        (_P.WRITING, _S.WRITTEN): _P.HELD,
        (_P.WRITING, _S.FULL): _P.NO_ROOM,
        (_P.NO_ROOM, _S.AGAIN): _P.WRITING,
        (_P.HELD, _S.TAKEN): _P.OVER,
        **{(phase, _S.DROPPED): _P.OVER for phase in _P if phase is not _P.OVER},
    },
)


class StagingReplica:
    __slots__ = (
        "_base",
        "_ends",
        "_filled",
        "_last",
        "_open",
        "_planned",
        "_tail_bytes",
        "base_epoch",
        "copy",
        "joining",
        "phase",
        "sequence",
        "source",
        "ticket",
        "version",
    )

    def __init__(
        self,
        source: MemberId,
        fill: Fill,
        copy: PartitionCopy,
        open_map: Callable[[PartitionCopy, str], MapReplica],
        base: PartitionCopy | None = None,
        tail_bytes: int = 0,
    ) -> None:
        """`base` may change meanwhile, as it follows its primary."""
        self._open = open_map
        self._tail_bytes = tail_bytes
        self.source = source
        self.ticket = fill.ticket
        self.version = fill.version
        self.joining = fill.joining
        self.copy = copy
        self.sequence = -1
        self.phase = STAGING.begins
        self.base_epoch = base.epoch if base is not None else copy.epoch
        usable = base is not None and base.epoch == copy.epoch
        self._base = {held.name: held for held in base} if base is not None and usable else {}
        self._planned = False
        self._last = False
        self._ends: dict[str, int] = {}
        """Counters that the maps of the last chunk have to reach."""
        self._filled = {held.name: FilledReplica(held, tail_bytes) for held in copy}
        """By name; a map is added when it is first mentioned."""

    def step(self, step: StagingStep) -> None:
        """Raises InvariantBroken if this step leads nowhere."""
        self.phase = STAGING.after(self.phase, step)

    @property
    def complete(self) -> bool:
        return self.phase in (StagingPhase.WRITING, StagingPhase.NO_ROOM, StagingPhase.HELD)

    @property
    def durable(self) -> bool:
        return self.phase is StagingPhase.HELD

    def demand(self, *, compare: bool) -> Demand:
        """The request to the source, with what the base holds. `compare`: with fresh digests of the key ranges."""
        maps = []
        for name, held in self._base.items():
            highest = held.updates.hwm
            lineage = [(term, start) for term, start in held.lineage if start < highest]
            digests = list(held.state.range_digests()) if compare else []
            if len(digests) > 1 and not held.state.keyed and name in self._filled:
                self._filled[name].freeze(held)
            remembered = held.remembered_from if held.changes else -1
            maps.append(Base(name, lineage, held.counter, highest, digests, remembered))
        return Demand(self.base_epoch, maps)

    def _of(self, name: str) -> FilledReplica:
        found = self._filled.get(name)
        if found is None:
            held = self._open(self.copy, name)
            found = self._filled[name] = FilledReplica(held, self._tail_bytes)
            if self._planned:
                # The map was created after the plan was made.
                found.how = How.FULL
        return found

    def pour(self, fill: Fill, now_ns: int) -> None:
        if fill.sequence == 1:
            self._plan(fill.plans, now_ns)
        for part in fill.maps:
            if part.keys or part.sizes:
                self._of(part.map).pour(part, now_ns)
        for missed in fill.records:
            filled = self._of(missed.map)
            for term, record in _with_terms(missed):
                filled.take(record, term, now_ns)
        for missed in fill.earlier:
            told = self._of(missed.map)
            for term, record in _with_terms(missed):
                told.take_earlier(record, term)
        for share in fill.shares:
            self._filled[share.service].pour(share, now_ns)
        if fill.last:
            self._end(fill)
        self.look()

    def _plan(self, plans: list[FillPlan], now_ns: int) -> None:
        self._planned = True
        for plan in plans:
            self._of(plan.map).begin(plan, self._base.get(plan.map), now_ns)
        planned = {plan.map for plan in plans}
        for name, filled in self._filled.items():
            if name not in planned:
                filled.begin(FillPlan(name, How.FULL, 0), None, now_ns)
        self._base = {}

    def _end(self, fill: Fill) -> None:
        self._last = True
        self.copy.requests.merge(fill.requests)
        for part in fill.maps:
            self._of(part.map).stands_at(part)
            self._ends[part.map] = part.counter

    def take(self, record: Record, term: int, now_ns: int) -> None:
        self.copy.requests.note(record.request)
        if record.change is not Change.CALL or record.map in self._filled:
            self._of(record.map).take(record, term, now_ns)

    def look(self) -> bool:
        whole = self._last and all(
            filled.reached(self._ends.get(name, 0)) for name, filled in self._filled.items()
        )
        if whole and self.phase is StagingPhase.FILLING:
            self.step(StagingStep.WHOLE)
        return self.complete


def _with_terms(part: FillRecords) -> Iterator[tuple[int, Record]]:
    at = 0
    for term, count in part.runs:
        for record in part.records[at : at + count]:
            yield term, record
        at += count
