"""The move of one map in one partition, as the leader of the source carries it out.

- map_moves/T-1: The last fill is read from a copy that holds the pause, and that this transfer has observed since its
  first fill. So a leader that was deposed without knowing cannot complete a move with an old state.
- map_moves/T-2: A fill is repeated until it is answered, and only then the next one is sent.
- map_moves/T-3: A pause or last fill counts only in the round of the switch in which it was sent. Example: the last
  fill of round 1 is answered when the switch was given up, and the source serves the map again. In round 2 the target
  would lack the writes since then.

The keys are listed once, at the beginning, and sent with the values that they have by then. Keys that change meanwhile
are noted (`absorb`) and sent later. Example: keys a, b, c; a was sent, then a and c change. The noted keys are a and c:
c is left out of the list, and both are sent with their newest values after b.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.core.model.ids import SECOND
from holdfast.core.model.map_moves import (
    COUNTERS,
    LINEAGE_MAX,
    AskFill,
    FillMap,
    MapMove,
    MarkKind,
    MoveAnswer,
    MoveMark,
    MovePhase,
    MoveStep,
    PauseMap,
    ResumeMap,
    StreamSwitch,
)
from holdfast.core.store.entry_mapping import Entries
from holdfast.core.store.map_state import MapState
from holdfast.core.store.move_marks import mark_in, stream_lineage
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica

FILL_KEYS, FILL_BYTES = 200, 64 << 10
"""Limits of a fill. Requests of clients wait for one that is being applied."""
CLOSE_KEYS = 20
"""With at most so many changed keys left, the partition can be switched."""
DELAY_NS = 5 * SECOND
"""Time in which changes are gathered for a fill when all keys have been sent: a fill costs as much as a write."""


class Times(NamedTuple):
    now_ns: int
    """The time by which the entries of the source expire."""
    clock_ns: int
    """This member's clock."""
    wall_ms: int
    """This member's calendar."""


@unique
class Stage(IntEnum):
    ASKING = 0
    """It asks the target what it knows."""
    COPYING = 1
    CLOSE = 2
    """All keys have been sent, and few have changed since."""
    PAUSED = 3
    """The source holds the pause of the present round."""
    FILLED = 4
    """The target has everything that the paused source has."""


class PartitionTransfer:
    """Implements `store.state.Observer`."""

    def __init__(self, name: str, partition: int, *, streamed: bool = False) -> None:
        """`streamed`: the map has a change stream."""
        self.name = name
        self.partition = partition
        self.streamed = streamed
        self.stage = Stage.ASKING
        self.problem = ""
        """Why the move cannot continue; empty: it can."""
        self.sent = 0
        """Entries in fills, for the operator."""
        self._round = 0
        """Round of the switch in which the source was paused."""
        self._held: MapReplica | None = None
        self._state: MapState | None = None
        self._attempt = self._place = 0
        self._keys: list[bytes] = []
        """Keys that are still to be sent, last one first."""
        self._changed: dict[bytes, None] = {}
        self._fill: FillMap | None = None
        self._sent_ns = 0
        self._above = 0

    # -- observer of the source

    def absorb(self, touched: dict[bytes, bytes | None], entries: Entries) -> None:
        self._changed.update(dict.fromkeys(touched))

    def complete(self, entries: Entries) -> bool:
        self._changed.update(dict.fromkeys(entries))
        return True

    # -- what to do next

    def next_step(self, move: MapMove, copy: PartitionCopy, times: Times) -> MoveStep | None:
        """The next step; None: nothing now. `copy`: that of the source, which this member leads."""
        if self.stage_in(move) is not self.stage:
            self.stage = Stage.CLOSE if self._attempt else Stage.ASKING
        mark = mark_in(copy.maps, self.name)
        paused = mark is not None and mark.kind is MarkKind.PAUSED and mark.number == move.number
        if paused and move.phase is MovePhase.COPYING:
            return ResumeMap(move.number, max(1, move.round))
        if self.stage is not Stage.ASKING and self._attempt and not self._is_observed(copy):
            self.restart()
        if self._fill is not None:
            return self._fill
        if self.stage is Stage.ASKING:
            return AskFill(move.number)
        return self._next_of(move, mark if paused else None, copy, times)

    def stage_in(self, move: MapMove) -> Stage:
        """The stage in the present round of the switch (map_moves/T-3)."""
        present = move.phase is MovePhase.SWITCHING and move.round == self._round
        return self.stage if present else min(self.stage, Stage.CLOSE)

    def _next_of(
        self, move: MapMove, pause: MoveMark | None, copy: PartitionCopy, times: Times
    ) -> MoveStep | None:
        if self.stage is Stage.PAUSED and (pause is None or pause.round != move.round):
            # Another member leads and has applied it: ask again a little later.
            self.stage = Stage.CLOSE
            return None
        if self.stage is Stage.FILLED:
            return None
        if self.stage is Stage.PAUSED:
            return self._next_fill(move, times, copy)
        changed = self._fold()
        if self.stage is Stage.CLOSE:
            if move.phase is MovePhase.SWITCHING:
                return PauseMap(move.number, move.round)
            if not changed or (changed <= CLOSE_KEYS and times.clock_ns - self._sent_ns < DELAY_NS):
                return None
        elif not self._keys and changed <= CLOSE_KEYS:
            self.stage = Stage.CLOSE
            return None
        return self._next_fill(move, times)

    def _switch(self, copy: PartitionCopy) -> StreamSwitch:
        """The switch of the change stream, while the source is paused (model/M-4)."""
        end = self._held.counter if self._held is not None else 0
        return StreamSwitch(end, stream_lineage(copy.maps, self.name)[-LINEAGE_MAX:])

    def _is_observed(self, copy: PartitionCopy) -> bool:
        """Whether the copy has the state that this transfer observes (map_moves/T-1)."""
        held = copy.maps.get(self.name)
        return held is self._held and (held is None or held.state is self._state)

    def _fold(self) -> int:
        """How many keys have changed and are still to be sent."""
        if self._state is not None:
            self._state.fold()
        return len(self._changed)

    def _next_fill(self, move: MapMove, times: Times, paused: PartitionCopy | None = None) -> FillMap:
        """The next fill. `paused`: the copy of the source; this may be the last fill."""
        self._fold()
        fill = FillMap(
            move.number, self._attempt, self._place, [], [], time_ms=times.wall_ms, above=self._above
        )
        size = 0
        while size < FILL_BYTES and len(fill.keys) < FILL_KEYS and (key := self._next_key()) is not None:
            size += self._add(fill, key, times.now_ns)
        if paused is not None and not self._keys and not self._changed:
            switch = self._switch(paused) if self.streamed else None
            fill = replace(fill, round=move.round, switch=switch, requests=paused.requests_of(self.name))
        if not any(fill.ttls_ms):
            fill.ttls_ms.clear()
        if not any(fill.max_idles_ms):
            fill.max_idles_ms.clear()
        if not any(fill.key_hashes):
            fill.key_hashes.clear()
        self._fill, self._sent_ns = fill, times.clock_ns
        return fill

    def _next_key(self) -> bytes | None:
        while self._keys:
            key = self._keys.pop()
            if key not in self._changed:
                return key
        return self._changed.popitem()[0] if self._changed else None

    def _add(self, fill: FillMap, key: bytes, now_ns: int) -> int:
        state = self._state
        value = state.entries.get(key) if state is not None else None
        ttl_ms = max_idle_ms = 0
        if state is not None and value is not None and (expiry := state.expiries.get(key)) is not None:
            if expiry.deadline_ns() <= now_ns and self.streamed:
                # It ends in the target, so that its removal is a change that readers get.
                ttl_ms = 1
            elif expiry.deadline_ns() <= now_ns:
                value = None
            else:
                ttl_ms, max_idle_ms = expiry.remaining_ttl_ms(now_ns), expiry.max_idle_ms
        fill.keys.append(key)
        fill.values.append(value)
        fill.ttls_ms.append(ttl_ms)
        fill.max_idles_ms.append(max_idle_ms)
        fill.key_hashes.append(state.hash_word(key) if state is not None else 0)
        return len(key) + len(value or b"")

    # -- answers

    def on_answer(self, step: MoveStep, answer: MoveAnswer, move: MapMove, copy: PartitionCopy) -> None:
        if isinstance(step, AskFill) and self.stage is Stage.ASKING:
            self._on_known(answer.mark, move, copy)
        elif isinstance(step, FillMap):
            self._on_filled(step, answer, move)
        elif isinstance(step, PauseMap) and self.stage is Stage.CLOSE and not answer.refused:
            self.stage, self._round = Stage.PAUSED, step.round

    def _on_known(self, mark: MoveMark | None, move: MapMove, copy: PartitionCopy) -> None:
        mine = mark if mark is not None and mark.number == move.number else None
        switches = move.phase is MovePhase.SWITCHING
        if switches and mine is not None and mine.kind is MarkKind.FILLED and mine.round == move.round:
            # An earlier leader has sent the last fill of this round.
            self.stage, self._round = Stage.FILLED, move.round
            return
        self._attempt, self._place = (mine.attempt if mine is not None else 0) + 1, 0
        self._held = copy.maps.get(self.name)
        self._state = self._held.state if self._held is not None else None
        self._changed = {}
        counter = self._held.updates.hwm if self._held is not None else copy.forgotten_to
        self._above = counter + COUNTERS
        if self._state is not None:
            self._state.observe(self)
            self._keys = list(self._state.entries)[::-1]
        self.stage = Stage.COPYING

    def _on_filled(self, step: FillMap, answer: MoveAnswer, move: MapMove) -> None:
        if step is not self._fill:
            return
        self._fill = None
        if answer.refused:
            self.restart()
            return
        self._place += 1
        self.sent += len(step.keys)
        if step.round == move.round and self.stage_in(move) is Stage.PAUSED:
            self.stage = Stage.FILLED

    def restart(self) -> None:
        self.end()
        self.stage, self._attempt = Stage.ASKING, 0

    def end(self) -> None:
        state, self._state, self._held = self._state, None, None
        self._keys, self._changed, self._fill = [], {}, None
        if state is not None and self in state.observers:
            state.unobserve(self)

    @property
    def left(self) -> int:
        """Entries that are still to be sent."""
        return len(self._keys) + len(self._changed)
