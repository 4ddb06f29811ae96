"""Content of a partition, or what a replica has missed of it, cut into chunks while writes continue.

For each map and service: missed updates, then the content of some key ranges or all of them (`store.chunk`), as
`state_transfer.delta_or_full` chose. Later updates are sent as records.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from holdfast.core.messages import FillPlan, FillRecords
from holdfast.core.model.records import Record, after_wait
from holdfast.core.model.sync_request import Base, How
from holdfast.core.state_transfer.delta_or_full import Choice
from holdfast.core.store.chunk import LOOK_MIN, Chunk, Portion
from holdfast.core.store.replica import AnyReplica, Replica

RECORD_BYTES = 24
"""Approximate overhead in a chunk."""


Updates = list[tuple[int, Record]]


class ContentPart:
    __slots__ = ("earlier", "held", "how", "missed", "ranges")

    def __init__(
        self,
        held: Replica[Any],
        how: How = How.FULL,
        ranges: tuple[int, ...] = (),
        missed: Updates | None = None,
        earlier: Updates | None = None,
    ) -> None:
        """`ranges`: key ranges to send whole, unless all are; `earlier`: updates before `missed`, only for change
        streams.
        """
        self.held = held
        self.how = how
        self.ranges = ranges
        self.missed = missed or []
        self.earlier = earlier or []

    def portion(self) -> Portion | None:
        ranges = None if self.how is How.FULL else frozenset(self.ranges)
        portion: Portion | None = self.held.state.portion(self.held, ranges)
        return portion


def earlier_updates(held: AnyReplica, choice: Choice | None, base: Base | None) -> Updates:
    """Updates in the tail of a map with a change stream that the receiver does not get as missed ones."""
    tail = held.tail
    if not held.changes or tail is None or tail.end != held.counter:
        return []
    if choice is None or choice.how is How.FULL or base is None:
        return tail.since(tail.start)
    if 0 <= base.remembered <= tail.start:
        return []
    return [one for one in tail.since(tail.start) if one[1].counter <= choice.after]


class Content:
    __slots__ = ("_chosen_ns", "_earlier", "_look", "_missed", "_plans", "_portions")

    def __init__(self, parts: list[ContentPart], now_ns: int) -> None:
        self._chosen_ns = now_ns
        """When the missed updates were chosen, with the rest of their times to live."""
        found = [part.portion() for part in parts if part.how in (How.RANGES, How.FULL)]
        self._portions = deque(portion for portion in found if portion is not None)
        self._missed = deque((part.held.name, deque(part.missed)) for part in parts if part.missed)
        self._earlier = deque((part.held.name, deque(part.earlier)) for part in parts if part.earlier)
        self._plans = [
            FillPlan(part.held.name, part.how, part.held.counter, list(part.ranges))
            for part in parts
            if part.held.counter and (part.how is not How.FULL or part.held.state.keyed)
        ]
        """For the first chunk: the update counter of the content of each map (state_transfer/S-6)."""
        self._look = LOOK_MIN

    def chunk(self, limit: int, now_ns: int, *, packs: bool = True) -> Chunk | None:
        """The next chunk: at most `limit` bytes, or one entry, record or piece; None: all are sent."""
        chunk = Chunk(self._look, packs=packs)
        chunk.plans, self._plans = self._plans, []
        room = True
        while room and self._missed:
            room = _add_records(chunk, chunk.records, self._missed, limit, now_ns - self._chosen_ns)
        while room and self._earlier:
            room = _add_records(chunk, chunk.earlier, self._earlier, limit, 0)
        while room and self._portions:
            room = self._portions[0].add_to(chunk, limit, now_ns)
            if room:
                self._portions.popleft()
        self._look = chunk.look
        filled = chunk.plans or chunk.records or chunk.earlier or chunk.maps or chunk.shares
        return chunk if filled else None


def _add_records(
    chunk: Chunk,
    parts: list[FillRecords],
    left: deque[tuple[str, deque[tuple[int, Record]]]],
    limit: int,
    waited_ns: int,
) -> bool:
    """Add updates of the first map, until the chunk is full. Returns whether there is room for more. They have waited
    for `waited_ns`, because a receiver acknowledges one chunk after the other.
    """
    name, records = left[0]
    part = FillRecords(name, [], [])
    room = True
    while records:
        term, record = records[0]
        size = len(record.key) + len(record.value) + len(record.old or b"") + RECORD_BYTES
        if chunk.size and chunk.size + size > limit:
            room = False
            break
        records.popleft()
        part.records.append(after_wait(record, waited_ns))
        if part.runs and part.runs[-1][0] == term:
            part.runs[-1] = (term, part.runs[-1][1] + 1)
        else:
            part.runs.append((term, 1))
        chunk.count(How.HISTORY, size)
    if part.records:
        parts.append(part)
    if not records:
        left.popleft()
    return room
