"""Clears a map with a change stream or with locked entries, or a collection with listeners: it takes time for each
entry.

- primary_backup/L-1: A map is cleared in slices, one in a step. Remaining keys that are written in between are removed
  too; new keys stay.
- primary_backup/L-2: While the backlog is crowded (`backlog`) nothing is removed. After the call timeout the rest is
  left.
- primary_backup/L-3: Partitions that are left (served elsewhere now, writes rejected, timeout) are reported as missed:
  the caller can have them cleared where they are served.
- primary_backup/L-4: The caller is answered when the removals of every slice are acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.core.collections.changed_collections import ChangedCollections
from holdfast.core.collections.collection_steps import keys_to_clear
from holdfast.core.model.decisions import Update
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import EventKind, Op, Outcome, Request, Status
from holdfast.core.model.records import Change
from holdfast.core.model.timer_name import TimerName
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.backlog import RECORD_BYTES
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.replication_engine import ShareDone
from holdfast.core.store.move_marks import is_closed
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica

SLICE_BYTES = 1 << 20
"""Approximate bytes of the removals: milliseconds of work."""
PAUSE_NS = 1 * MILLISECOND
"""Pause between two slices, for other work."""
EASE_NS = 20 * MILLISECOND
"""Interval of checks of a crowded backlog."""


@dataclass(slots=True, eq=False)
class _Clearing:
    request: Request
    done: ShareDone
    deadline_ns: int
    left: deque[int]
    unserved: list[int]
    of: MapReplica | None = None
    """The map in the first partition of `left`; None: not begun."""
    keys: list[bytes] = field(default_factory=list)
    """Keys still to be removed there."""
    count: int = 0
    missed: list[int] = field(default_factory=list)
    waits: int = 0
    over: bool = False


class Clearings:
    def __init__(
        self,
        out: Outbox,
        lane: Lane,
        timeout_ns: int,
        refused: Callable[[Request], Outcome | None],
        changed: ChangedCollections,
    ) -> None:
        self._out = out
        self._lane = lane
        self._timeout_ns = timeout_ns
        self._refused = refused
        self._changed = changed
        self._timer = False
        self._running: deque[_Clearing] = deque()

    def begin(self, request: Request, done: ShareDone) -> None:
        """Clear the map in the partitions that are served here; the first slice may run at once."""
        deadline_ns = self._out.now_ns + self._timeout_ns
        unserved = [one for one in request.partitions if self._lane.leading[one] is None]
        self._running.append(_Clearing(request, done, deadline_ns, deque(request.partitions), unserved))
        if not self._timer:
            self._go_on()

    def on_timer(self) -> None:
        self._timer = False
        if self._running:
            self._go_on()

    def _wake(self, after_ns: int) -> None:
        assert not self._timer, "one slice at a time (primary_backup/L-1)"
        assert self._running, "a clearing waits for its next slice"
        self._timer = True
        self._out.timer(TimerName.CLEAR, after_ns)

    def _go_on(self) -> None:
        clearing = self._running[0]
        if self._out.now_ns >= clearing.deadline_ns or self._refused(clearing.request) is not None:
            clearing.missed += clearing.left
            clearing.left.clear()
        elif self._lane.backlog.crowded:
            self._wake(EASE_NS)
            return
        else:
            self._slice(clearing)
        assert self._running[0] is clearing, "the clearing is still at the head of the queue"
        self._running.popleft()
        if clearing.left:
            self._running.append(clearing)
        clearing.waits += 1
        self._lane.close_batch(lambda known: self._held(clearing, known))
        if self._running and not self._timer:
            self._wake(PAUSE_NS)

    def _slice(self, clearing: _Clearing) -> None:
        size = 0
        while clearing.left and size < SLICE_BYTES:
            partition = clearing.left[0]
            copy = self._lane.leading[partition]
            held = copy.maps.get(clearing.request.map) if copy is not None else None
            locked = copy is not None and copy.locks.guards(clearing.request.map)
            closed = copy is not None and is_closed(copy.maps, clearing.request.map)
            if copy is None or locked or closed or (clearing.of is not None and held is not clearing.of):
                clearing.missed.append(partition)
                clearing.keys.clear()
            elif held is not None:
                if clearing.of is None:
                    clearing.of, clearing.keys = held, keys_to_clear(held.state)
                size += self._remove(clearing, copy, held, SLICE_BYTES - size)

            if not clearing.keys:
                if copy is not None:
                    # The answer says that nothing is left there, so that has to be confirmed, too (primary_backup/P-7).
                    self._lane.rest_on(copy, clearing.request.map)
                clearing.left.popleft()
                clearing.of = None

    def _remove(self, clearing: _Clearing, copy: PartitionCopy, held: MapReplica, most: int) -> int:
        """Remove entries of about `most` bytes, without those that clients have locked; returns their bytes."""
        lane, keys, entries = self._lane, clearing.keys, held.state.entries
        size, name = 0, held.name
        spares = clearing.request.op is not Op.DESTROY and copy.locks.guards_entries(name)
        kind = EventKind.REMOVED if clearing.request.op is Op.TAKE_FROM_COLLECTION else None
        while keys and size < most:
            key = keys.pop()
            if key in entries and not (spares and copy.locks.has_locked(name, key)):
                size += RECORD_BYTES + len(key) + len(entries[key])
                lane.carry_out(copy, held, Update(Change.REMOVE, key, kind=kind))
                clearing.count += 1
        self._changed.note(copy.partition, held.name)
        return size

    def _held(self, clearing: _Clearing, known: bool) -> None:
        clearing.waits -= 1
        assert clearing.waits >= 0, "each slice is acknowledged once (primary_backup/L-4)"
        if clearing.over or (known and (clearing.left or clearing.waits)):
            return
        clearing.over = True
        if clearing in self._running:
            self._running.remove(clearing)
        outcome, missed = Outcome(Status.OK, clearing.count), clearing.missed
        if not known:
            outcome, missed = Outcome(Status.UNKNOWN, None, self._lane.unknown_because), []
        clearing.done(outcome, missed, clearing.unserved)

    @property
    def running(self) -> int:
        return len(self._running)
