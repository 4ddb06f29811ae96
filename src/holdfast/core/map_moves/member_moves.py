"""The moves of maps on one member: what it does as leader of partitions, and what it reports to the master.

- map_moves/V-1: A mark of a move that has ended is removed by the leader of its partition, in both engines: with the
  entries, unless the map is served there. A mark of a later version of the view is left alone.
- map_moves/V-2: The master begins the next phase when the members have reported, of this move and round, every
  partition: close to complete, then filled, then cleaned. Before the source forgets anything, every member has
  installed the view that names the new home, so no member looks for the map in the source. Reports are repeated, so a
  new master gets them too.
- map_moves/V-3: Copying leaves time to clients: a member copies at most `PARALLEL` partitions at a time, and each rests
  after a fill for as long as the fill took. Nothing rests while the map is paused.
- map_moves/V-5: When the home of a map changes, each member lets the near caches of its clients drop the map, as a new
  primary does: sequences of two engines cannot be compared.
- map_moves/V-4: The last fill of a map with a change stream waits until all updates of the paused primary are safe
  (streams/G-1). Otherwise the switch could name an update that only this primary has, and readers would wait for it.

Example for the second part of map_moves/V-2: member 3 has not installed the view with `MOVED`, and becomes primary of
partition 7, whose copy of the map has been emptied already. It would answer a get with "absent", though the map has the
entry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

import msgspec

from holdfast.core.map_moves.move_master import MoveMaster
from holdfast.core.map_moves.partition_transfer import PartitionTransfer, Stage, Times
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import MapMoveReport
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.levels import FORGETS_LEFT_OVER
from holdfast.core.model.map_changes import MapChanges, moved_maps
from holdfast.core.model.map_moves import (
    NOT_DUE,
    EndMove,
    FillMap,
    MapMove,
    MoveAnswer,
    MovePhase,
    MoveStep,
    PauseMap,
    ResumeMap,
    decode_move_answer,
    encode_move,
)
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.timer_name import TimerName
from holdfast.core.outbox import Outbox
from holdfast.core.routing.pending import Asker, Within
from holdfast.core.store.move_marks import mark_in, marks_in
from holdfast.core.store.partition_copy import PartitionCopy

LOOK_NS = 100 * MILLISECOND
PAUSED_LOOK_NS = 20 * MILLISECOND
"""While a map is paused, because requests wait."""
REPORT_NS = 100 * MILLISECOND
DELAY_NS = 50 * MILLISECOND
"""Pause of a partition after a step that was not done."""
PARALLEL = 2
"""Partitions whose entries are copied at a time (map_moves/V-3)."""
REST_MAX_NS = 2000 * MILLISECOND
SWEEPS = 10
"""Sweeps of the member from one look for marks that are left over to the next."""
ENDINGS = 32
"""Marks that are removed at a time."""
_COPYING = (MovePhase.COPYING, MovePhase.SWITCHING)


class LedCopy(Protocol):
    @property
    def copy(self) -> PartitionCopy: ...

    @property
    def now_ns(self) -> int:
        """The time by which its entries expire."""


class EngineCopies(Protocol):
    """The copies on this member, by engine: a zone, or empty for the partitions with a primary."""

    def led_in(self, engine: str, partition: int) -> LedCopy | None:
        """The copy that this member serves as primary or leader, whatever maps are closed in it."""

    def led_everywhere(self) -> Iterator[tuple[str, PartitionCopy]]:
        """All of these, with their engines."""


class Streams(Protocol):
    """The change streams of maps."""

    def streams(self, name: str) -> bool: ...

    def is_settled(self, name: str, copy: PartitionCopy) -> bool:
        """Whether all updates of the map in this copy with a primary, which this member is, are safe."""


class Submits(Protocol):
    def submit(self, request: Request, asker: Asker) -> None:
        """Carry out a request wherever it is served."""


class NearCaches(Protocol):
    def invalidate(self, name: str) -> None:
        """Let the near caches of clients of this member drop the whole map."""


class Views(Protocol):
    def consider(self) -> None:
        """Propose a next view if one is wanted."""


class Homes(Protocol):
    def home(self, name: str) -> str:
        """The engine that serves this map, by the view."""


@dataclass(slots=True)
class _UnderWay:
    name: str
    partition: int
    step: MoveStep
    engine: str
    sent_ns: int


class MemberMoves:
    def __init__(
        self,
        out: Outbox,
        membership: MembershipStatus,
        partitions: int,
        submits: Submits,
        homes: Homes,
        near_caches: NearCaches,
        views: Views,
    ) -> None:
        self._out = out
        self._membership = membership
        self._partitions = partitions
        self._near_caches = near_caches
        self._views = views
        self._copies: EngineCopies
        self._streams: Streams
        self._master = MoveMaster(out, membership, partitions)
        self._submits = submits
        self._homes = homes
        self._transfers: dict[tuple[str, int], PartitionTransfer] = {}
        self._tickets = 0
        self._under_way: dict[int, _UnderWay] = {}
        self._busy: set[tuple[str, int, str]] = set()
        """Map, partition and engine of the steps under way."""
        self._delayed: dict[tuple[str, int, str], int] = {}
        """The same of steps that were not done, and of fills that rest, and until when they wait."""
        self._resting: list[tuple[int, str, int]] = []
        """A heap: when a rest ends, map and partition (map_moves/V-3)."""
        self._looked_ns = 0
        self._outcomes: deque[tuple[int, Outcome]] = deque()
        self._waits: dict[str, str] = {}
        """By map: why the last step that was not done was not."""
        self._reported_ns = 0
        self._reported: dict[str, MapMoveReport] = {}
        self._due_ns = 0
        self._sweeps = 0

    def attach(self, copies: EngineCopies, streams: Streams) -> None:
        self._copies = copies
        self._streams = streams

    def wanted(self, changes: MapChanges) -> MapChanges:
        """On the master: these changes, with the next phase of a move that can continue."""
        return self._master.wanted(changes)

    def on_report(self, sender: MemberId, message: MapMoveReport) -> None:
        self._master.on_report(sender, message)
        self._views.consider()

    @property
    def _moves(self) -> Mapping[str, MapMove]:
        view = self._membership.view
        return view.maps.moves if view is not None and self._membership.admitted else {}

    # -- occasions

    def on_view(self, notice: ViewInstalled) -> None:
        self._master.on_view(notice)
        moves = self._moves
        for (name, partition), transfer in list(self._transfers.items()):
            move = moves.get(name)
            if move is None or move.phase not in _COPYING:
                transfer.end()
                del self._transfers[name, partition]
        old = notice.old.maps if notice.old is not None else None
        if old is not None and notice.new is not None:
            for name in moved_maps(old, notice.new.maps):
                self._near_caches.invalidate(name)
        if moves and (notice.new is None or notice.new.maps != old):
            self._reported_ns = 0
            self._delayed.clear()
            self._resting.clear()
            self._looked_ns = 0
            self._wake(1)
        elif moves:
            self._wake(LOOK_NS)

    def on_timer(self) -> None:
        self._due_ns = 0
        self._end_rests()
        if self._out.now_ns - self._looked_ns >= self._look_ns:
            self._look()
        self._set_timer()

    def sweep(self) -> None:
        """Look from time to time for marks that are left over, if a map was ever moved."""
        self._sweeps = (self._sweeps + 1) % SWEEPS
        view = self._membership.view
        if not self._sweeps and view is not None and any(one.home is not None for one in view.maps.changes):
            self._end_marks()

    def answered(self, ticket: int, outcome: Outcome) -> None:
        self._outcomes.append((ticket, outcome))

    def deliver(self) -> None:
        """End of a step: handle answers, and send what follows."""
        if not self._outcomes:
            return
        moves = self._moves
        staged = False
        for _ in range(len(self._outcomes)):
            ticket, outcome = self._outcomes.popleft()
            done = self._under_way.pop(ticket)
            self._busy.discard((done.name, done.partition, done.engine))
            staged = self._on_outcome(done, outcome) or staged
            move, transfer = moves.get(done.name), self._transfers.get((done.name, done.partition))
            if move is not None and transfer is not None:
                self._advance(move, transfer)
        if staged:
            self._report(moves)
        self._set_timer()

    @property
    def _look_ns(self) -> int:
        switching = any(move.phase is MovePhase.SWITCHING for move in self._moves.values())
        return PAUSED_LOOK_NS if switching else LOOK_NS

    def _set_timer(self) -> None:
        if self._outcomes:
            self._wake(1)
        if self._resting:
            self._wake(max(1, self._resting[0][0] - self._out.now_ns))
        if self._moves:
            self._wake(max(1, self._looked_ns + self._look_ns - self._out.now_ns))

    def _wake(self, after_ns: int) -> None:
        due_ns = self._out.now_ns + after_ns
        if not self._due_ns or due_ns < self._due_ns:
            self._due_ns = due_ns
            self._out.timer(TimerName.MOVES, after_ns)

    # -- looking

    def _end_rests(self) -> None:
        """Send the next fills of partitions that have rested (map_moves/V-3)."""
        while self._resting and self._resting[0][0] <= self._out.now_ns:
            _, name, partition = heappop(self._resting)
            move, transfer = self._moves.get(name), self._transfers.get((name, partition))
            if move is not None and transfer is not None:
                self._advance(move, transfer)

    def _look(self) -> None:
        self._looked_ns = self._out.now_ns
        moves = self._moves
        for name, move in moves.items():
            if move.phase in _COPYING:
                self._copy(name, move)
        self._end_marks()
        self._report(moves)

    def _copy(self, name: str, move: MapMove) -> None:
        copying = sum(1 for transfer in self._transfers.values() if transfer.stage is Stage.COPYING)
        for partition in range(self._partitions):
            led = self._copies.led_in(move.source, partition)
            transfer = self._transfers.get((name, partition))
            if led is None:
                if transfer is not None:
                    transfer.end()
                    del self._transfers[name, partition]
                continue
            if transfer is None:
                transfer = PartitionTransfer(name, partition, streamed=self._streams.streams(name))
                self._transfers[name, partition] = transfer
            begins = transfer.stage is Stage.ASKING
            if begins and copying >= PARALLEL:
                continue
            if self._advance(move, transfer):
                copying += begins

    def _advance(self, move: MapMove, transfer: PartitionTransfer) -> bool:
        """Send the next step of a transfer; returns whether there was one."""
        name, partition = transfer.name, transfer.partition
        if move.phase not in _COPYING:
            return False
        if self._is_held_up((name, partition, move.source), (name, partition, move.target)):
            return False
        led = self._copies.led_in(move.source, partition)
        if led is None or not self._may_send(move, transfer, led.copy):
            return False
        times = Times(led.now_ns, self._out.now_ns, self._out.wall_ms())
        stage = transfer.stage
        step = transfer.next_step(move, led.copy, times)
        if stage is Stage.COPYING and transfer.stage is Stage.CLOSE:
            # Another partition can be copied now.
            self._looked_ns = 0
        if step is not None:
            source = isinstance(step, PauseMap | ResumeMap)
            self._send(name, partition, step, move.source if source else move.target)
        return step is not None

    def _may_send(self, move: MapMove, transfer: PartitionTransfer, copy: PartitionCopy) -> bool:
        """map_moves/V-4."""
        if move.source or not transfer.streamed or transfer.stage is not Stage.PAUSED:
            return True
        return self._streams.is_settled(transfer.name, copy)

    def _is_held_up(self, *places: tuple[str, int, str]) -> bool:
        """Whether a step is under way there, or was not done a moment ago."""
        return any(place in self._busy or self._delayed.get(place, 0) > self._out.now_ns for place in places)

    def _send(self, name: str, partition: int, step: MoveStep, engine: str) -> None:
        self._tickets += 1
        self._under_way[self._tickets] = _UnderWay(name, partition, step, engine, self._out.now_ns)
        self._busy.add((name, partition, engine))
        op = Op.FILL if isinstance(step, FillMap) else Op.MOVE
        if isinstance(step, FillMap) and not step.place and self._out.does(FORGETS_LEFT_OVER):
            step = msgspec.structs.replace(step, forgets=True)
        request = Request(op, name, [partition], value=encode_move(step), expected=engine.encode())
        self._submits.submit(request, Within(self, self._tickets))

    def _on_outcome(self, done: _UnderWay, outcome: Outcome) -> bool:
        """Returns whether the master may want to know of it."""
        place = (done.name, done.partition, done.engine)
        answer = _answer_in(outcome)
        transfer, move = self._transfers.get((done.name, done.partition)), self._moves.get(done.name)
        if answer is None or answer.refused:
            why = answer.refused if answer is not None else outcome.detail
            self._waits[done.name] = why
            self._delayed[place] = self._out.now_ns + DELAY_NS
            failed = answer is None and outcome.status is Status.FAILED and outcome.detail != NOT_DUE.detail
            if failed and transfer is not None:
                transfer.problem = why
        else:
            self._delayed.pop(place, None)
            if isinstance(done.step, FillMap) and move is not None and move.phase is MovePhase.COPYING:
                self._rest(done)
        if answer is None or transfer is None or move is None or move.number != done.step.number:
            return isinstance(done.step, EndMove) or transfer is not None
        led, stage = self._copies.led_in(move.source, done.partition), transfer.stage
        if led is not None:
            transfer.on_answer(done.step, answer, move, led.copy)
        if transfer.stage is stage and not isinstance(done.step, FillMap):
            # It was done elsewhere, and has changed nothing here: do not ask again at once.
            self._delayed[place] = self._out.now_ns + DELAY_NS
        return transfer.stage is not stage

    def _rest(self, fill: _UnderWay) -> None:
        """map_moves/V-3."""
        until_ns = self._out.now_ns + min(self._out.now_ns - fill.sent_ns, REST_MAX_NS)
        self._delayed[fill.name, fill.partition, fill.engine] = until_ns
        heappush(self._resting, (until_ns, fill.name, fill.partition))

    # -- ending

    def _end_marks(self) -> None:
        """map_moves/V-1."""
        view = self._membership.view
        if view is None or not self._membership.admitted:
            return
        for engine, copy in self._copies.led_everywhere():
            for name, mark in marks_in(copy.maps).items():
                move = view.maps.moves.get(name)
                present = move is not None and move.number == mark.number
                lasts = move is not None and present and move.phase not in _ENDING
                place = (name, copy.partition, engine)
                if lasts or mark.number > view.maps.version or self._is_held_up(place):
                    continue
                if len(self._busy) >= ENDINGS:
                    return
                keep = self._homes.home(name) == engine
                self._send(name, copy.partition, EndMove(mark.number, keep), engine)

    # -- reporting

    def _report(self, moves: Mapping[str, MapMove]) -> None:
        """Send the master what it does not know yet, and everything again from time to time."""
        view, master = self._membership.view, self._membership.master
        if view is None or master is None:
            return
        again = self._out.now_ns - self._reported_ns >= REPORT_NS
        for name, move in moves.items():
            report = self._report_of(name, move, view.number)
            if again or self._reported.get(name) != report:
                self._reported[name] = report
                self._out.send(master, report)
        if again:
            self._reported_ns = self._out.now_ns
        for name in self._reported.keys() - moves.keys():
            del self._reported[name]
            self._waits.pop(name, None)

    def _report_of(self, name: str, move: MapMove, view: int) -> MapMoveReport:
        source: list[int] = []
        target: list[int] = []
        problem = ""
        if move.phase in _COPYING:
            wanted = Stage.CLOSE if move.phase is MovePhase.COPYING else Stage.FILLED
            mine = [one for (of, _), one in self._transfers.items() if of == name]
            source = sorted(one.partition for one in mine if one.stage_in(move) >= wanted)
            problem = next((one.problem for one in mine if one.problem), "")
        elif move.phase in _ENDING:
            source, target = self._cleaned(name, move.source), self._cleaned(name, move.target)
        return MapMoveReport(view, name, move.number, move.phase, move.round, source, target, problem)

    def _cleaned(self, name: str, engine: str) -> list[int]:
        """Partitions of the engine that this member leads, and that have no mark of the map."""
        return [
            partition
            for partition in range(self._partitions)
            if (led := self._copies.led_in(engine, partition)) is not None
            and mark_in(led.copy.maps, name) is None
        ]

    # -- for the operator

    def described(self, name: str) -> str:
        """How far the move of a map is, as text."""
        move = self._moves.get(name)
        if move is None:
            return "the map is not being moved"
        if move.phase not in _COPYING:
            return _PHASES[move.phase].format(name)
        mine = [one for (of, _), one in self._transfers.items() if of == name]
        close = sum(1 for one in mine if one.stage >= Stage.CLOSE)
        left = sum(one.left for one in mine)
        waits = f"; last hindrance: {self._waits[name]}" if name in self._waits else ""
        return (
            f"{name} is being copied: {close} of {len(mine)} partitions of this member are complete, {left} entries "
            f"left{waits}"
        )

    @property
    def leftovers(self) -> dict[str, int]:
        return {"partitions of maps that move": len(self._transfers), "steps of moves": len(self._under_way)}


_PHASES = {
    MovePhase.MOVED: "{} is at its new place; not every member has confirmed that yet",
    MovePhase.CLEANING: "{} is at its new place; the copies at the old one are being removed",
    MovePhase.CANCELLING: "{} stays where it is; the copies at the other place are being removed",
}
_ENDING = (MovePhase.CLEANING, MovePhase.CANCELLING)


def _answer_in(outcome: Outcome) -> MoveAnswer | None:
    """The answer to a step; None: it was not done, or its outcome is unknown."""
    if outcome.status is not Status.OK or not isinstance(outcome.value, bytes):
        return None
    try:
        return decode_move_answer(outcome.value)
    except msgspec.MsgspecError:
        return None
