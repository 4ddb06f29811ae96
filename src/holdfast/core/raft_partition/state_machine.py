"""State machine of a group, a function of the applied commands.

- raft_partition/Z-3: A request with an id is applied once: the ids, with their answers, are part of the state.
- raft_partition/Z-4: The time of a partition is set by its leaders, and never goes back, so an entry expires at the
  same index on all replicas. The leader also decides a map's default time to live, since settings may differ.
- raft_partition/Z-6: Update counter, lineage and content of a map are a function of the log, so they are equal on all
  replicas that have applied the same index. The term of an update is that of its log entry. Updates have terms from the
  first command on that says so (`ZoneCommand.counted`), not from when a member is upgraded: a replica that was filled
  by a snapshot of an older build then has the same lineage as one that has applied the log itself.
- raft_partition/Z-8: From the place of the log on at which a map is paused, requests on it are not applied, by any
  proposer (operations/V-1): all replicas decide that alike. The answer is `Unapplied`. If one write of a batch is on
  such a map, none of the batch is applied.
- raft_partition/Z-11: The first fill of a map with a change stream may meet entries from before that have no mark. It
  is rejected, and the map is forgotten, so that the next fill begins it above the numbers of its source (model/M-3).
  Builds below level 9 do not forget it, so a fill says whether all do. Otherwise the next fill would be applied by
  some replicas, and rejected by others.
- raft_partition/Z-9: Uses of entries with a maximum idle time are in the log, so all replicas end an entry at the same
  index, and a new leader knows all uses. A logged use covers a fourth of the idle time after it; uses in that time are
  not logged. So an entry ends between 1 and 1.25 of its idle time after its last use. Example: with 60 s, a read at 0 s
  is logged, and covers 15 s. A read at 10 s is not logged. One at 20 s is, and covers the time to 35 s: the entry ends
  at 95 s, unless it is read after 35 s.
- raft_partition/Z-7: A cut is a request of the log, which removes expired entries first. Each replica that applies it
  keeps a pin of each map; all pins of one index are equal. A replica that was filled by a later snapshot has none; one
  that applies its log again after a restart keeps them again, until their lease ends.
- raft_partition/Z-13: Branches of transactions are prepared and decided by requests of the log, in its order, so all
  replicas store them alike. A change of an entry that a prepared branch has written or compared is not applied, by any
  proposer: the answer is `Unapplied`. Of the writes of a batch none is applied then.
- raft_partition/Z-14: A step of a collection is decided when it is applied. One that has to wait is not applied: the
  answer is its `Wait`, and the leader keeps it until the collection has changed (`collection_waits`). Limits that
  members set for themselves are in the step, so all replicas decide alike.
- raft_partition/Z-12: A state is read in pieces while it changes, and is still that of one index: what is about to
  change is kept first (`state_capture`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Protocol

from holdfast.config import MOVES_MAP, TRANSACTIONS_MAP, Settings
from holdfast.core.collections.changed_collections import ChangedCollections
from holdfast.core.collections.collection_steps import decide_step as decide_item_step
from holdfast.core.collections.collection_steps import rejection_of
from holdfast.core.cp.cp_steps import answer_again
from holdfast.core.model.collections import CollectionKind, collection_of
from holdfast.core.model.decisions import Decision, LockChanges, Update, Wait
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.map_moves import EndMove, FillMap, MarkKind, decode_move_answer, decode_move_step
from holdfast.core.model.operations import (
    CP_STEPS,
    MOVING,
    STEPS,
    STRUCTURE_STEPS,
    WHOLE,
    EntryEvent,
    EventKind,
    Op,
    Outcome,
    Request,
    Status,
    Value,
)
from holdfast.core.model.records import Change, Record
from holdfast.core.model.transactions import decode_step, lock_key
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.model.waiting_steps import answer_limit, wait_behind, wait_of
from holdfast.core.model.zone_batches import ZoneRequests, ZoneWrite, ZoneWrites
from holdfast.core.operations.map_operations import decide, decide_whole
from holdfast.core.operations.move_steps import NOT_FORGOTTEN, decide_move
from holdfast.core.raft_partition.logged_steps import decide_logged, is_locked
from holdfast.core.raft_partition.partition_commands import ZoneCommand
from holdfast.core.raft_partition.partition_snapshot import StagedState
from holdfast.core.raft_partition.state_capture import StateCapture
from holdfast.core.store.entry_mapping import NewEntries
from holdfast.core.store.move_marks import counter_when_opened, is_closed, marks_in, number_above
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica
from holdfast.core.store.request_ids import ANSWER_DROPPED, mark_of, naming

ALL = 1 << 60
USES_LOGGED = 4
"""Uses of an entry in the log during its maximum idle time, at most (raft_partition/Z-9)."""
EventCallback = Callable[[EntryEvent], None]


class Unapplied(Enum):
    """The answer to a request that was not applied."""

    CLOSED = 0
    """Its map moves (raft_partition/Z-8)."""
    LOCKED = 1
    """A prepared branch keeps its entry (raft_partition/Z-13)."""


IN_ZONES = frozenset({CollectionKind.QUEUE, CollectionKind.LIST, CollectionKind.SET})
"""Collections whose steps need no clock."""
Applied = Value | Unapplied | Wait | Outcome
"""The answer; a `Wait` or an `Outcome` of a step of a collection that was not applied (raft_partition/Z-14)."""
USES = frozenset({Op.GET, Op.CONTAINS_KEY, Op.ENTRY_VIEW, Op.GET_ALL})
"""Reads that count as uses of the entries that they find."""


class PinKeeper(Protocol):
    """Keeps cuts of a member: `primary_backup.cuts.Cuts`."""

    def keep(
        self, cut: bytes, partition: int, held: MapReplica, lease_ms: int, taken_ns: int, index: int, /
    ) -> object: ...


class StateMachine:
    def __init__(
        self,
        partitions: Sequence[int],
        settings: Settings,
        entries: NewEntries = dict,
        pins: PinKeeper | None = None,
    ) -> None:
        """`partitions`: client partitions of the group. `entries`: makes a map's mapping. `pins`: keeps what maps hold
        at cuts; None: nothing does.
        """
        self._settings = settings
        self._entries = entries
        self._pins = pins
        self.copies = {partition: self._new_copy(partition) for partition in partitions}
        self.time_ms = 0
        """Time of the last command (raft_partition/Z-4)."""
        self.index = 0
        """Index of the command that is being applied."""
        self.counted = False
        """Updates have terms, and counters outlive destroyed maps (raft_partition/Z-6)."""
        self._captures: list[StateCapture] = []
        """Being read, so they are informed before anything changes (raft_partition/Z-12)."""
        self.lock_changes: list[tuple[int, LockChanges]] = []
        """Changes of locks in partitions, by steps that were applied since this list was emptied."""
        self.changed = ChangedCollections()
        self._expired: list[str] = []

    def _new_copy(self, partition: int) -> PartitionCopy:
        return PartitionCopy(partition, 0, self._settings.replication.request_ids, self._entries)

    def now_ns(self, wall_ms: int = 0) -> int:
        """Time of the group, or `wall_ms` if that is later."""
        return max(self.time_ms, wall_ms) * MILLISECOND

    # -- changes

    def apply(
        self, command: ZoneCommand, index: int, term: int, on_event: EventCallback | None = None
    ) -> list[Applied]:
        """Apply an entry of the log; returns one answer for each change. `on_event` gets the events."""
        self.index = index
        self.time_ms = max(self.time_ms, command.time_ms)
        self.counted = self.counted or command.counted  # raft_partition/Z-6
        answers: list[Applied] = []
        for part in command.parts:
            if isinstance(part, ZoneWrites):
                partition = part.partition if part.partition >= 0 else next(iter(self.copies))
                answers += self.write(part.writes, self.copies[partition], term, on_event)
            elif isinstance(part, ZoneRequests):
                answers += [self.carry_out(request, term, on_event) for request in part.requests]
        if command.sweep:
            self.sweep(term, on_event)
        return answers

    def carry_out(self, request: Request, term: int, on_event: EventCallback | None) -> Applied:
        """`term`: of its log entry; `on_event` gets the events."""
        copy = self.copies[request.partitions[0]]
        if request.id and (applied := copy.applied(request.id, request.map)) is not None:
            if applied.has_dropped(request.id):
                return ANSWER_DROPPED
            return answer_again(copy.maps.get(request.map), request, applied.answer(request.id))
        if self._rejects(copy, request):
            return Unapplied.CLOSED
        if request.op in STEPS:
            return self._take_step(copy, request, term, on_event)
        if request.op in STRUCTURE_STEPS:
            return self._take_item_step(copy, request, term, on_event)
        if copy.locks.held and is_locked(copy.locks, request):
            return Unapplied.LOCKED
        if request.op is Op.PIN:
            return self._pin(copy, request, term, on_event)
        if request.op in MOVING:
            return self._move(copy, request, term)
        decision = self._decide(copy.maps.get(request.map), request, self.now_ns())
        if decision.refused:
            return Outcome(Status.PROCESSOR_FAILED, None, decision.refused)
        self._change(copy, request.map, decision, term, on_event)
        if request.op is Op.DESTROY and request.map in copy.maps:
            # Every replica of the group does so at this place of the log.
            copy.forget(request.map)
            if not self.counted:
                copy.forgotten_to = 0
        if request.id and decision.updates:
            copy.requests.note(mark_of(request.id, decision.answer, kept=request.op is Op.PROCESS))
        return decision.answer

    def _change(
        self, copy: PartitionCopy, name: str, decision: Decision, term: int, on_event: EventCallback | None
    ) -> None:
        if decision.used:
            self._use(copy.maps[name], decision.used)
        if decision.updates:
            held = self._open(copy, name, term)
            for update in decision.updates:
                self._apply(held, update, term, on_event)
            held.state.settle()
            self.changed.note(copy.partition, name)

    def _take_item_step(
        self, copy: PartitionCopy, request: Request, term: int, on_event: EventCallback | None
    ) -> Applied:
        """raft_partition/Z-14."""
        decision = self._decide_item_step(copy, request)
        if isinstance(decision, Wait):
            return decision
        if (rejection := rejection_of(decision, answer_limit(request))) is not None:
            return rejection
        if decision.updates:
            held = self._open(copy, request.map, term)
            for update in decision.updates:
                self._apply(held, update, term, on_event)
            held.state.settle()
            self.changed.note(copy.partition, request.map, decision.updates)
            if request.id:
                copy.requests.note(mark_of(request.id, decision.answer, kept=True))
        return decision.answer

    @staticmethod
    def _decide_item_step(copy: PartitionCopy, request: Request, *, behind: bool = False) -> Decision | Wait:
        named = collection_of(request.map)
        if request.op not in CP_STEPS and (named is None or named[0] not in IN_ZONES):
            return Decision(refused=f"{request.map[:40]!a} cannot be in a zone")
        held = copy.maps.get(request.map)
        if held is None:
            return decide_item_step(None, request, updates=copy.forgotten_to, behind=behind)
        return decide_item_step(held.state, request, updates=held.updates.hwm, behind=behind)

    def must_wait(self, request: Request, *, behind: bool = False) -> Wait | None:
        """The wait of a step of a collection, as far as this replica knows; None: it is to be proposed. `behind`:
        others have waited before it came.
        """
        copy = self.copies[request.partitions[0]]
        if not wait_of(request) or (request.id and copy.applied(request.id, request.map) is not None):
            return None
        if behind and (wait := wait_behind(request)) is not None:
            return wait
        decision = self._decide_item_step(copy, request, behind=behind)
        return decision if isinstance(decision, Wait) else None

    @staticmethod
    def _rejects(copy: PartitionCopy, request: Request) -> bool:
        if MOVES_MAP not in copy.maps or request.op in MOVING:
            return False
        names = map(bytes.decode, request.items) if request.op is Op.PIN else (request.map,)
        return any(is_closed(copy.maps, name) for name in names)

    def _take_step(
        self, copy: PartitionCopy, request: Request, term: int, on_event: EventCallback | None
    ) -> Value:
        """raft_partition/Z-13."""
        decision = decide_logged(copy, decode_step(request.value), self.now_ns())
        if decision.locks is not None:
            copy.locks.change(decision.locks)
            self.lock_changes.append((copy.partition, decision.locks))
        for update in decision.updates:
            held = self._open(copy, update.map, term)
            self._apply(held, update, term, on_event)
            held.state.settle()
        if request.id and decision.updates:
            copy.requests.note(mark_of(request.id, decision.answer))
        return decision.answer

    def _move(self, copy: PartitionCopy, request: Request, term: int) -> Value:
        step = decode_move_step(request.value)
        opened_at = counter_when_opened(copy, step)
        locked = copy.locks.guards(request.map)
        decision = decide_move(copy.maps, request.map, step, self.time_ms, opened_at, locked=locked)
        if decision.updates:
            number_above(copy, request.map, step)
        for update in decision.updates:
            held = self._open(copy, update.map, term)
            self._apply(held, update, term, None)
            held.state.settle()
        if decision.updates and isinstance(step, FillMap) and step.round and request.map in copy.maps:
            # They may have been used in the source all the time.
            for capture in self._captures:
                capture.keep_idle(copy.maps[request.map].state)
            copy.maps[request.map].state.all_used(self.now_ns())
        ends = isinstance(step, EndMove) and not step.keep and decision.updates
        may_forget = isinstance(step, FillMap) and step.forgets
        if request.map in copy.maps and (ends or (may_forget and _is_left_over(decision.answer))):
            copy.forget(request.map)
        if request.id and decision.updates:
            copy.requests.note(mark_of(request.id, decision.answer))
        return decision.answer

    def is_paused(self) -> bool:
        return any(
            mark.kind is MarkKind.PAUSED
            for copy in self.copies.values()
            if MOVES_MAP in copy.maps
            for mark in marks_in(copy.maps).values()
        )

    def write(
        self, writes: Sequence[ZoneWrite], copy: PartitionCopy, term: int, on_event: EventCallback | None
    ) -> list[Applied]:
        """Apply writes of single entries, in a log entry of this term; returns the former values."""
        if MOVES_MAP in copy.maps and any(
            is_closed(copy.maps, name) for name in dict.fromkeys(write[0] for write in writes)
        ):
            return [Unapplied.CLOSED] * len(writes)
        if copy.locks.held and any(lock_key(write[0], write[1]) in copy.locks.held for write in writes):
            return [Unapplied.LOCKED] * len(writes)
        former: list[Applied] = []
        now_ns = self.now_ns()
        held: MapReplica | None = None
        plain = False
        for write in writes:
            name, key, value, ttl_ms, key_hash = write
            if held is None or held.name != name:
                if held is not None and held.state.touched:
                    held.state.settle()
                held = copy.maps.get(name) if value is None else None
                if value is not None or held is not None:
                    held = self._open(copy, name, term)
                    plain = on_event is None and not held.changes
            if held is None:
                former.append(None)
                continue
            state = held.state
            for capture in self._captures:
                capture.keep(state, key)
            if not plain or state.expiries:
                former.append(self._write(held, write, term, on_event))
                continue
            old = state.entries.get(key)
            former.append(old)
            if value is None:
                if old is None:
                    continue
                state.drop(key)
            elif ttl_ms or key_hash or state.touched is not None:
                state.store(key, value, ttl_ms, 0, key_hash, now_ns)
            else:
                state.entries[key] = value
            held.updates.next()
        if held is not None and held.state.touched:
            held.state.settle()
        return former

    def _pin(
        self, copy: PartitionCopy, request: Request, term: int, on_event: EventCallback | None
    ) -> list[None | int | bytes]:
        """Keep what these maps hold at this place of the log (raft_partition/Z-7). Returns counter, term and number of
        entries of each; zeros if nothing was ever written.
        """
        found: list[None | int | bytes] = []
        for name in map(bytes.decode, request.items):
            held = copy.maps.get(name)
            if held is None or not held.counter:
                found += (0, 0, 0)
                continue
            self._expire(copy, held, term, on_event)
            self._open(copy, name, term)
            self._apply(held, Update(Change.PIN, request.key, ttl_ms=request.ttl_ms), term, None)
            if self._pins is not None:
                self._pins.keep(request.key, copy.partition, held, request.ttl_ms, self.now_ns(), self.index)
            found += (held.counter, held.term, len(held.state.entries))
        return found

    def _write(
        self, held: MapReplica, write: ZoneWrite, term: int, on_event: EventCallback | None
    ) -> bytes | None:
        _, key, value, ttl_ms, key_hash = write
        state = held.state
        old = state.entries.get(key)
        if old is not None and state.expiries and state.expired(key, self.now_ns()):
            self._apply(held, Update(Change.REMOVE, key, kind=EventKind.EXPIRED), term, on_event)
            old = None
        if value is not None:
            kind = EventKind.ADDED if old is None else EventKind.UPDATED
            update = Update(Change.SET, key, value, ttl_ms, 0, key_hash, kind)
        elif old is not None:
            update = Update(Change.REMOVE, key, kind=EventKind.REMOVED)
        else:
            return None
        self._apply(held, update, term, on_event)
        return old

    def _open(self, copy: PartitionCopy, name: str, term: int) -> MapReplica:
        """The map's replica, perhaps a new one. Its next updates are of this term."""
        held = copy.maps.get(name)
        if held is None:
            held = copy.open(name)
            held.updates = UpdateCounter(copy.forgotten_to)
            held.changes = self._settings.map(name).changes_bytes
        if self.counted:
            held.enter(term)
        return held

    def look(self, partition: int, name: str, key: bytes, wall_ms: int) -> bytes | None:
        """The value; None: no entry, or it has expired."""
        held = self.copies[partition].maps.get(name)
        if held is None:
            return None
        state = held.state
        if state.expiries and state.expired(key, self.now_ns(wall_ms), touch=False):
            return None
        return state.entries.get(key)

    def read(self, request: Request, wall_ms: int) -> Decision:
        """Expired entries stay until a command removes them."""
        copy = self.copies[request.partitions[0]]
        if request.op in STRUCTURE_STEPS:
            decision = self._decide_item_step(copy, request)
            assert isinstance(decision, Decision), "a read is decided at once"
            return decision
        return self._decide(copy.maps.get(request.map), request, self.now_ns(wall_ms))

    def _use(self, held: MapReplica, keys: Iterable[bytes]) -> None:
        """raft_partition/Z-9."""
        for key in keys:
            expiry = held.state.expiries.get(key)
            if expiry is not None and expiry.max_idle_ms:
                for capture in self._captures:
                    capture.keep(held.state, key)
                held.state.use((key,), self.now_ns() + expiry.max_idle_ms // USES_LOGGED * MILLISECOND)

    def must_log(self, request: Request, wall_ms: int) -> bool:
        """Whether this read is a use that has to be in the log (raft_partition/Z-9)."""
        if request.op not in USES:
            return False
        held = self.copies[request.partitions[0]].maps.get(request.map)
        if held is None or not held.state.expiries:
            return False
        keys = request.items if request.op is Op.GET_ALL else (request.key,)
        return any(self.must_log_use(held, key, wall_ms) for key in keys)

    def must_log_use(self, held: MapReplica, key: bytes, wall_ms: int) -> bool:
        """The same for one key."""
        expiry = held.state.expiries.get(key)
        return expiry is not None and expiry.max_idle_ms > 0 and expiry.accessed_ns < self.now_ns(wall_ms)

    def _decide(self, held: MapReplica | None, request: Request, now_ns: int) -> Decision:
        state = held.state if held is not None else None
        if request.op in WHOLE:
            return decide_whole(state, request, now_ns)
        return decide(state, request, now_ns)

    def _apply(self, held: MapReplica, update: Update, term: int, on_event: EventCallback | None) -> None:
        state, key, change = held.state, update.key, update.change
        for capture in self._captures:
            if change is Change.CLEAR or change is Change.BEGIN:
                capture.keep_all(state)
            elif change is not Change.PIN:
                capture.keep(state, key)
        keeps = held.changes if self.counted else 0
        old = state.former(key) if keeps or on_event is not None else None
        word = update.key_hash or state.hash_word(key)
        number = held.updates.next()
        record = Record(
            held.name, number, change, key, update.value, update.ttl_ms, update.max_idle_ms, update.key_hash
        )
        state.apply(record, self.now_ns())
        if update.max_idle_ms:
            self._use(held, (key,))
        if keeps:
            known = old if change in (Change.SET, Change.REMOVE) else None
            kept = Record(
                held.name,
                number,
                change,
                key,
                update.value,
                update.ttl_ms,
                update.max_idle_ms,
                update.key_hash,
                naming(update.transaction),
                known,
                self.time_ms,
            )
            held.keep(term, [kept], keeps)
        if update.kind is EventKind.EXPIRED:
            self._expired.append(held.name)
        if on_event is not None and update.kind is not None:
            value = update.value if change is Change.SET else old if change is Change.EXPIRY else None
            on_event(EntryEvent(update.kind, held.name, "", key, value, old, 1, word, number))
        elif on_event is not None and change is Change.CLEAR:
            on_event(EntryEvent(EventKind.INVALIDATED, held.name, "", sequence=number))

    def take_expired(self) -> list[str]:
        """The map of each entry that has expired since the last call."""
        found = self._expired
        if found:
            self._expired = []
        return found

    def sweep(self, term: int, on_event: EventCallback | None) -> None:
        for copy, held in self._expiring():
            self._expire(copy, held, term, on_event)

    def _expiring(self) -> Iterator[tuple[PartitionCopy, MapReplica]]:
        """All maps but those that move: their expiry is decided where they are served."""
        for copy in self.copies.values():
            moving = marks_in(copy.maps) if MOVES_MAP in copy.maps else ()
            yield from ((copy, held) for held in copy.maps.values() if held.name not in moving)

    def _expire(
        self, copy: PartitionCopy, held: MapReplica, term: int, on_event: EventCallback | None
    ) -> None:
        ended = held.state.due(self.now_ns(), ALL)
        if ended:
            self._open(copy, held.name, term)
        for key in ended:
            self._apply(held, Update(Change.REMOVE, key, kind=EventKind.EXPIRED), term, on_event)
        held.state.settle()

    def has_ended(self, wall_ms: int) -> bool:
        now_ns = self.now_ns(wall_ms)
        return any(held.state.may_end(now_ns) for _, held in self._expiring())

    # -- the whole state

    def pieces(self) -> StateCapture:
        """The state as of the last applied command (raft_partition/Z-12). Close it, or read all of it."""
        capture = StateCapture(self.copies, self.time_ms, self._captures, counted=self.counted)
        self._captures.append(capture)
        return capture

    def staged(self) -> StagedState:
        """A new state, to be filled with pieces and then installed."""
        return StagedState({partition: self._new_copy(partition) for partition in self.copies})

    def install(self, staged: StagedState) -> None:
        """Replace the whole state."""
        self.time_ms, self.counted = staged.time_ms, staged.counted
        for copy in staged.copies.values():
            kept = copy.maps.get(TRANSACTIONS_MAP)
            copy.locks.restore(kept.state.entries if kept is not None else {})
            for held in copy.maps.values():
                held.changes = self._settings.map(held.name).changes_bytes
        self.copies = dict(staged.copies)

    def restore(self, pieces: Iterable[bytes]) -> None:
        staged = self.staged()
        for piece in pieces:
            staged.add(piece)
        self.install(staged)


def _is_left_over(answer: Value) -> bool:
    """Whether a fill was rejected because the copy has the map from before."""
    assert isinstance(answer, bytes), "steps of a move have answers"
    return decode_move_answer(answer).refused == NOT_FORGOTTEN
