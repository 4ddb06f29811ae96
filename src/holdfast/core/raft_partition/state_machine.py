"""State machine of a partition: the contents of its maps, as a function of the applied commands.

- raft_partition/Z-3: A request with an id is applied once: the ids, with their answers, are part of the state.
- raft_partition/Z-4: The time of a partition is set by its leaders, and never goes back, so an entry expires at the
  same index on all replicas. The leader also decides a map's default time to live, since settings may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from holdfast.core.model.decisions import Decision, Update
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import WHOLE, EntryEvent, EventKind, Op, Request, Value
from holdfast.core.model.records import Change, Record
from holdfast.core.model.zone_batches import ZoneWrite
from holdfast.core.operations.map_operations import decide, decide_whole
from holdfast.core.raft_partition.marked_copies import MarkedCopy, digest_of, marked_map
from holdfast.core.raft_partition.partition_snapshot import head_of, pieces_of, restored
from holdfast.core.store.replica import MapReplica, map_replica
from holdfast.core.store.request_ids import Remembered, mark_of

ALL = 1 << 60
EventCallback = Callable[[EntryEvent, str], None]
"""Receives events of a map's entries."""


class StateMachine:
    def __init__(self, partition: int, request_ids: int) -> None:
        self.partition = partition
        self._request_ids = request_ids
        self.maps: dict[str, MapReplica] = {}
        self.requests = Remembered(request_ids)
        self.time_ms = 0
        """Time of the last command (raft_partition/Z-4)."""

    def now_ns(self, wall_ms: int = 0) -> int:
        """The partition's time, or `wall_ms` if that is later."""
        return max(self.time_ms, wall_ms) * MILLISECOND

    # -- changes

    def carry_out(self, request: Request, on_event: EventCallback | None) -> Value:
        """Apply a request and return its answer; `on_event` gets the events."""
        if request.id and self.requests.knows(request.id):
            return self.requests.answer(request.id)
        held = self.maps.get(request.map)
        decision = self._decide(held, request, self.now_ns())
        if decision.updates:
            held = held or self.maps.setdefault(request.map, map_replica(request.map))
            for update in decision.updates:
                self._apply(held, update, on_event)
        if request.op is Op.DESTROY:
            # Every replica of the group does so at this place of the log.
            self.maps.pop(request.map, None)
        if request.id and decision.updates:
            self.requests.note(mark_of(request.id, decision.answer))
        return decision.answer

    def write(self, write: ZoneWrite, on_event: EventCallback | None) -> bytes | None:
        name, key, value, ttl_ms, key_hash = write
        held = self.maps.get(name)
        if held is None:
            if value is None:
                return None
            held = self.maps[name] = map_replica(name)
        state = held.state
        old = state.entries.get(key)
        if old is not None and state.expiries and state.expired(key, self.now_ns()):
            self._apply(held, Update(Change.REMOVE, key, kind=EventKind.EXPIRED), on_event)
            old = None
        if value is None and old is None:
            return None
        if on_event is not None:
            kind = (
                EventKind.REMOVED if value is None else EventKind.ADDED if old is None else EventKind.UPDATED
            )
            change = Change.REMOVE if value is None else Change.SET
            self._apply(held, Update(change, key, value or b"", ttl_ms, 0, key_hash, kind), on_event)
            return old
        held.updates.next()
        if value is None:
            state.drop(key)
        elif ttl_ms or key_hash or state.expiries or state.touched is not None:
            state.store(key, value, ttl_ms, 0, key_hash, self.now_ns())
        else:
            state.entries[key] = value
        return old

    def look(self, name: str, key: bytes, wall_ms: int) -> bytes | None:
        """The value of an entry that has not expired."""
        held = self.maps.get(name)
        if held is None:
            return None
        state = held.state
        if state.expiries and state.expired(key, self.now_ns(wall_ms), touch=False):
            return None
        return state.entries.get(key)

    def read(self, request: Request, wall_ms: int) -> Value:
        """Answer a read. Expired entries stay until a command removes them."""
        return self._decide(self.maps.get(request.map), request, self.now_ns(wall_ms)).answer

    def _decide(self, held: MapReplica | None, request: Request, now_ns: int) -> Decision:
        state = held.state if held is not None else None
        if request.op in WHOLE:
            return decide_whole(state, request, now_ns)
        return decide(state, request, now_ns)

    def _apply(self, held: MapReplica, update: Update, on_event: EventCallback | None) -> None:
        state, key = held.state, update.key
        old = state.former(key)
        word = update.key_hash or state.hash_word(key)
        number = held.updates.next()
        record = Record(
            held.name, number, update.change, key, update.value, update.ttl_ms, 0, update.key_hash
        )
        state.apply(record, self.now_ns())
        if on_event is not None and update.kind is not None:
            value = (
                update.value
                if update.change is Change.SET
                else old
                if update.change is Change.EXPIRY
                else None
            )
            on_event(EntryEvent(update.kind, held.name, "", key, value, old, 1, word), held.name)

    def sweep(self, on_event: EventCallback | None) -> None:
        for held in self.maps.values():
            for key in held.state.due(self.now_ns(), ALL):
                self._apply(held, Update(Change.REMOVE, key, kind=EventKind.EXPIRED), on_event)

    def has_ended(self, wall_ms: int) -> bool:
        return any(held.state.may_end(self.now_ns(wall_ms)) for held in self.maps.values())

    # -- copies

    def marked(self, term: int, now_ns: int) -> MarkedCopy:
        """The present state, to be compared. `now_ns` is this member's clock."""
        head = head_of(self.time_ms, self.requests, self.maps)
        maps = tuple(marked_map(held) for _, held in sorted(self.maps.items()))
        return MarkedCopy(term, now_ns, digest_of(head), maps)

    def pieces(self) -> Iterator[bytes]:
        return pieces_of(self.time_ms, self.requests, self.maps)

    def restore(self, pieces: Sequence[bytes]) -> None:
        self.requests = Remembered(self._request_ids)
        self.time_ms, self.maps = restored(pieces, self.requests)
