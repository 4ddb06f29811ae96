"""Engine 1 for requests: a primary decides, numbers its updates, applies them and sends them to its backups.

It answers when the backups hold the updates (DESIGN rule 2). A request with an id is applied once: its answer is
remembered, here and on the backups, and returned again as soon as its records are acknowledged. An answer that changed
nothing waits for a read barrier (primary_backup/P-7), unless it is a read of a map whose reads are not confirmed.

- primary_backup/A-2: While an entry processor runs, its entry is locked like one of a transaction. Its result counts
  only under that lock. Example: a processor reads 7 on member 1. The partition moves to member 2, where a put stores 9,
  and back to 1. The result 8 is not stored then, because the lock ended with the first move: the processor runs again.
- primary_backup/A-1: A read that raises an error is answered with that error. Only an error that leaves the member's
  state in doubt stops it.

The data lane decides and applies in one step; tests show that both have the same effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.config import MOVES_MAP, TRANSACTIONS_MAP, Settings
from holdfast.core.collections.changed_collections import ChangedCollections
from holdfast.core.collections.collection_steps import decide_step, rejection_of
from holdfast.core.cp.cp_steps import answer_again
from holdfast.core.model.collections import is_multimap, shown_name
from holdfast.core.model.decisions import Decision, LockChanges, Update, Wait
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.levels import PRIMARY_LOCKS
from holdfast.core.model.map_locks import client_of, guarded_map, locks_of
from holdfast.core.model.map_moves import (
    CLOSED,
    NOT_DUE,
    EndMove,
    FillMap,
    MovesInForce,
    decode_move_answer,
    decode_move_step,
)
from holdfast.core.model.notices import EntryLocked, LockEnded, MapEmptied, MapMarked
from holdfast.core.model.object_names import part_name, target
from holdfast.core.model.operations import (
    COLLECTION_STEPS,
    MOVING,
    READS,
    STRUCTURE_CHANGES,
    STRUCTURE_STEPS,
    EntryEvent,
    EventKind,
    Op,
    Outcome,
    Request,
    Status,
    Value,
    bytes_of,
    too_long,
)
from holdfast.core.model.processors import RunBegun, decode_call, is_finished, run_lock
from holdfast.core.model.records import Change
from holdfast.core.model.transactions import (
    LockKeys,
    PrepareBranch,
    StepFate,
    StepResult,
    TransactionStep,
    decode_step,
    encode,
    entry_of,
    lock_key,
)
from holdfast.core.operations.lock_steps import decide_lock_step, wait_for_map_lock
from holdfast.core.operations.map_operations import decide, decide_whole, merge, peek
from holdfast.core.operations.move_steps import NOT_FORGOTTEN, decide_move, moving_reason
from holdfast.core.operations.transaction_branches import TransactionBranches, wait_for_lock
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.clearings import Clearings
from holdfast.core.primary_backup.lane import Awaited, Lane
from holdfast.core.replication_engine import Decided, ReplicationEngineDelegate, ShareDone
from holdfast.core.store.map_state import MapState
from holdfast.core.store.move_marks import counter_when_opened, is_closed, number_above
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import AnyReplica
from holdfast.core.store.request_ids import ANSWER_DROPPED

T = TypeVar("T")
_NO_MAP: frozenset[Op] = frozenset({Op.CALL, Op.ASK, Op.TRANSACT, Op.SETTLE, *MOVING})
"""A closed map does not reject these as a whole."""
_MAY_END = STRUCTURE_CHANGES | {Op.PROCESS}
_LISTING = frozenset({Op.GET_ALL, Op.READ_COLLECTION, Op.AWAIT_ITEMS})
RUN_ENDED = Outcome(Status.MOVED, None, "the lock for an entry processor ended before its result came")
CLEARED_IN_PART = "not all items were removed, because their partition has moved or the call timeout was over"
SLICE_ENTRIES = 50_000
SLICE_BYTES = 8 << 20
"""A slice of an operation on whole partitions ends after so many entries, or bytes of answer: some 20 ms of work."""
COUNT_ENTRIES = 20
"""To count a partition, in entries looked at."""
CLEAR_ENTRIES, TOLD_ENTRIES = 2, 10
"""To remove an entry, here and on the backups, and to notify observers of a changed one."""


class PrimaryCopy:
    """Requests on this member's partitions as primary. Implements `ReplicationEngine`."""

    decides_later = False

    def __init__(self, settings: Settings, out: Outbox, lane: Lane, moves: MovesInForce) -> None:
        self._me = lane.me
        self._settings = settings
        self._moves = moves
        self._out = out
        self._lane = lane
        self._answer_bytes = settings.limits.answer_bytes
        self._backup_reads = any(chosen.read_backups for chosen in settings.maps.values())
        """Some map has backup reads, whose answers carry a position (routing/R-5)."""
        self._delegate: ReplicationEngineDelegate | None = None
        self._lock_wait_ms = settings.limits.call_timeout_ms
        self._changed_collections = ChangedCollections()
        self._runs: dict[bytes, PartitionCopy] = {}
        """Copies in which entries are locked for entry processors, by run."""
        timeout_ns = settings.limits.call_timeout_ms * MILLISECOND
        self._clearings = Clearings(out, lane, timeout_ns, self._rejection, self._changed_collections)

    def serve(self, delegate: ReplicationEngineDelegate) -> None:
        assert self._delegate is None, "the engine serves one delegate"
        self._delegate = delegate

    def _rejection(self, request: Request) -> Outcome | None:
        return self._delegate.rejection(request) if self._delegate is not None else None

    @property
    def crowded(self) -> bool:
        """Whether the backlog is so large that no more requests should be taken from other members."""
        return self._lane.backlog.crowded

    @property
    def refusing(self) -> bool:
        return self._lane.backlog.refusing

    @property
    def running(self) -> int:
        return self._clearings.running

    def leads(self, partition: int) -> bool:
        return self._lane.leading[partition] is not None

    def joining(self, partition: int) -> MemberId | None:
        joining = self._lane.joining.get(partition)
        return joining[0] if joining is not None else None

    def publish(self, event: EntryEvent) -> None:
        if event.map in self._lane.listening:
            self._lane.heard(event)

    def on_timer(self) -> None:
        self._clearings.on_timer()

    # -- one partition

    def submit(self, request: Request, done: Decided, *, late: bool = False, behind: bool = False) -> None:
        """Decide a request and apply its updates. `done` is called when it may be answered, or with a `Wait`."""
        lane, partition = self._lane, request.partitions[0]
        copy = lane.leading[partition]
        assert copy is not None, "only the primary gets requests"
        if request.op is Op.PROCESS and is_finished(request) and not self._may_finish(copy, request):
            done(RUN_ENDED)
            return
        closed = MOVES_MAP in copy.maps and request.op not in _NO_MAP and self._is_closed(copy, request.map)
        if request.op in READS:
            if closed:
                done(CLOSED)
            else:
                self._answer_read(copy, request, done, late=late)
            return
        if request.id and self._answer_again(copy, request, done):
            return
        if closed or (request.op in MOVING and not self._is_due(request)):
            done(CLOSED if closed else NOT_DUE)
            return
        decision = self._decide(copy, request, behind=behind)
        if isinstance(decision, Wait | RunBegun):
            held_up = self._hold_up(copy, request, decision, done, late=late)
            if held_up is None:
                return
            decision = held_up
        if request.op in _MAY_END and self._end_at_once(request, decision, done):
            return
        assert lane.leading[partition] is copy, "deciding changes nothing"
        before = lane.opened
        value = self._carry_out(copy, request, decision)
        assert lane.opened <= before + 2 * len(decision.updates), (
            "each update has one record, or opens its map, too"
        )
        position = self._position(copy, request)
        if request.op in MOVING:
            done = self._forgetting_moved(request, value, done)
        if not decision.updates:
            if decision.unconfirmed:
                lane.rest_on_writes(copy)
            else:
                self._rest_on(copy, request)
            answer = Outcome(Status.OK, value, position=position)
            lane.close_batch(lambda known: done(answer if known else self._unconfirmed()))
            return
        if request.id and not decision.repeatable:
            kept = request.op in STRUCTURE_CHANGES or request.op is Op.PROCESS
            lane.remember(copy, request.id, value, before, several=request.op is Op.TRANSACT, kept=kept)
        if request.op in MOVING:
            self._out.notify(MapMarked(partition))
        lane.close_batch(lambda known: done(self._told(known, value, position)))

    def _hold_up(
        self, copy: PartitionCopy, request: Request, decision: Wait | RunBegun, done: Decided, *, late: bool
    ) -> Decision | None:
        """None: the caller was notified. Otherwise it waits no longer, and this is its answer."""
        if isinstance(decision, RunBegun):
            copy.locks.change(LockChanges([(lock_key(request.map, request.key), run_lock(request.expected))]))
            self._runs[request.expected] = copy
            done(decision)
            return None
        if not late:
            if copy.partition not in self._lane.awaited and request.op not in STRUCTURE_CHANGES:
                self._lane.awaited[copy.partition] = Awaited(copy)
            done(decision)
            return None
        if decision.refused:
            done(Outcome(Status.NOT_READY, None, decision.refused))
            return None
        return Decision(decision.answer)

    def _may_finish(self, copy: PartitionCopy, request: Request) -> bool:
        """Unlock the entry of a run that has a result; returns whether it was locked until now (primary_backup/A-2)."""
        held = bool(copy.locks.of(request.expected))
        self.end_run(request)
        return held

    def end_run(self, request: Request) -> None:
        run = request.expected
        copy = self._runs.pop(run, None)
        if copy is not None and copy.locks.of(run):
            copy.locks.change(LockChanges(released=run))
            self._changed_collections.note_lock(copy.partition, locks_of(request.map), request.key)

    def _end_at_once(self, request: Request, decision: Decision, done: Decided) -> bool:
        """Reject a step of a collection or the result of a processor, or remove all items one by one for their
        listeners. Returns False for steps that are carried out as others are.
        """
        if request.op is Op.PROCESS:
            if decision.refused:
                done(Outcome(Status.PROCESSOR_FAILED, None, decision.refused))
            return bool(decision.refused)
        if (rejection := rejection_of(decision, self._answer_bytes)) is not None:
            done(rejection)
            return True
        clears = any(update.change is Change.CLEAR for update in decision.updates)
        if not clears or request.map not in self._lane.listening:
            return False

        def cleared(outcome: Outcome, missed: Sequence[int], _: Sequence[int]) -> None:
            if outcome.status is Status.OK:
                outcome = Outcome(Status.UNKNOWN, None, CLEARED_IN_PART) if missed else Outcome(Status.OK)
            done(outcome)

        self._clearings.begin(request, cleared)
        return True

    def _answer_again(self, copy: PartitionCopy, request: Request, done: Decided) -> bool:
        """Answer a repeated request as the first time. Returns False if it was not applied, or is not remembered."""
        applied = copy.applied(request.id, request.map)
        if applied is None:
            return False
        if applied.has_dropped(request.id):
            done(ANSWER_DROPPED)
            return True
        value = answer_again(copy.maps.get(request.map), request, applied.answer(request.id))
        place = self._position(copy, request)
        self._lane.when_held(copy.partition, request.id, lambda known: done(self._told(known, value, place)))
        return True

    def houses(self, name: str) -> bool:
        """See operations/V-5."""
        return not self._moves.home(name)

    def store_locks(self, partition: int, most: int | None = None) -> None:
        """Store locks of the partition for its next primary (store/K-1). `most`: so many at once; None: all that are
        left (store/K-2).
        """
        copy = self._lane.leading[partition]
        if copy is None or not copy.locks.held:
            return
        branches = TransactionBranches(copy, self._out.now_ns)
        branches.store_locks(copy.locks.take_unstored(copy.locks.unstored if most is None else most))
        if not branches.updates:
            return
        held = copy.maps.get(TRANSACTIONS_MAP) or self._lane.open(copy, TRANSACTIONS_MAP)
        for update in branches.updates:
            self._lane.carry_out(copy, held, update)
        self._lane.close_batch(_ignore)

    def _forgetting_moved(self, request: Request, value: Value, done: Decided) -> Decided:
        """A callback that reports `MapEmptied`, so that a map which has moved away is forgotten when every backup has
        acknowledged that; the same for one that moves here again before that was done. For other steps: `done` itself.
        """
        step = decode_move_step(request.value)
        left = isinstance(step, EndMove) and not step.keep
        assert isinstance(value, bytes), "steps of a move have answers"
        if not left and decode_move_answer(value).refused != NOT_FORGOTTEN:
            return done

        def ended(outcome: Outcome | Wait | RunBegun) -> None:
            if isinstance(outcome, Outcome) and outcome.status is Status.OK:
                self._out.notify(MapEmptied(request.partitions[0], request.map))
            done(outcome)

        return ended

    def _is_closed(self, copy: PartitionCopy, name: str) -> bool:
        """Locks are where the entries are that they guard."""
        return is_closed(copy.maps, guarded_map(name) or name)

    def _is_due(self, request: Request) -> bool:
        return self._moves.is_due(request.map, decode_move_step(request.value))

    def wake(self) -> None:
        """End of a step: call `ReplicationEngineDelegate.changed` for awaited partitions that have changed. A
        request that has to wait again awaits the next change during this call. The loop continues until
        nothing awaited has changed, so a change made by one woken request wakes the others.
        """
        awaited = self._lane.awaited
        while True:
            self._wake_collections()
            over = [
                partition
                for partition, one in awaited.items()
                if one.changed or self._lane.leading[partition] is not one.copy
            ]
            if not over:
                return
            for partition in over:
                one = awaited.pop(partition)
                assert one.copy.partition == partition, "a copy is of one partition"
                if self._lane.leading[partition] is one.copy and self._delegate is not None:
                    self._delegate.changed(partition)

    @property
    def must_wake(self) -> bool:
        """Whether `wake` has anything to do."""
        return bool(self._lane.awaited or self._changed_collections)

    def on_lock_ended(self, notice: LockEnded) -> None:
        copy = self._lane.leading[notice.partition]
        if copy is not None:
            self._note_change(copy, notice.map, notice.key)

    def _wake_collections(self) -> None:
        """Decide requests again that wait for a changed collection; these may change others."""
        while self._changed_collections and self._delegate is not None:
            for partition, name, key in self._changed_collections.take():
                if self._lane.leading[partition] is not None:
                    self._delegate.collection_changed(partition, name, key)

    def _answer_read(self, copy: PartitionCopy, request: Request, done: Decided, *, late: bool) -> None:
        lane, confirmed, unconfirmed = self._lane, False, False
        try:
            decision = self._decide(copy, request)
        except Exception as error:  # noqa: BLE001 - any error is an answer
            answer = failed(self._out, request, error)
        else:
            if type(decision) is Wait:
                if not late:
                    done(decision)
                    return
                decision = Decision(decision.answer)
            assert type(decision) is Decision, "a read is decided or waits"
            confirmed, unconfirmed = decision.confirmed, decision.unconfirmed
            looked = decision.updates or decision.used
            value = self._carry_out(copy, request, decision) if looked else decision.answer
            limit = self._answer_bytes if request.op in _LISTING else 0
            if (rejection := rejection_of(Decision(value, refused=decision.refused), limit)) is not None:
                answer = rejection
            else:
                answer = Outcome(Status.OK, value, "", self._position(copy, request))
        confirmed = confirmed or request.op is Op.READ_CP
        confirmed = confirmed or (lane.confirms_reads and lane.confirmed(target(request)))
        if answer.status is Status.OK and (confirmed or unconfirmed):
            if confirmed:
                self._rest_on(copy, request)
            else:
                lane.rest_on_writes(copy)
            lane.close_batch(lambda known: done(answer if known else self._unconfirmed()))
        else:
            done(answer)
            lane.close_batch(_ignore)

    def _decide(
        self, copy: PartitionCopy, request: Request, *, behind: bool = False
    ) -> Decision | Wait | RunBegun:
        name, op = request.map, request.op
        if op is Op.CALL or op is Op.ASK:
            service = copy.services.get(part_name(name))
            return service.state.decide(request) if service is not None else Decision()
        if op in MOVING:
            step_of_move = decode_move_step(request.value)
            opened_at = counter_when_opened(copy, step_of_move)
            # `Lane.open` begins a map above others with a BEGIN record.
            opened_at += opened_at > 0
            locked = copy.locks.guards(name) or copy.locks.guards_entries(name)
            return decide_move(copy.maps, name, step_of_move, self._out.wall_ms(), opened_at, locked=locked)
        if op is Op.TRANSACT or op is Op.SETTLE:
            step = decode_step(request.value)
            if why := moving_reason(copy.maps, self._moves, step, self):
                return Decision(encode(StepResult(StepFate.REFUSED, why=why)))
            if _is_outdated(copy, step):
                return Decision(encode(StepResult(StepFate.REMAP, row=copy.term)))
            stores = not self._out.does(PRIMARY_LOCKS)
            return TransactionBranches(copy, self._out.now_ns, stores=stores).decide(step)
        if guarded_map(name) and op in COLLECTION_STEPS:
            return decide_lock_step(copy.locks, request, self._out.now_ns)
        if copy.locks.closed and (decided := self._decide_by_locks(copy, request)) is not None:
            return decided
        held = copy.maps.get(name)
        state = held.state if held is not None else None
        if op in STRUCTURE_STEPS:
            return decide_step(state, request, self._out.now_ns, self._out.wall_ms(), behind=behind)
        if op is Op.PROCESS and not is_finished(request):
            value = peek(state, request.key, self._out.now_ns)
            skips = value is None and decode_call(request.value).only_present
            return Decision() if skips else RunBegun(value)
        return decide(state, request, self._out.now_ns, self._lane.lifetimes(name))

    def _decide_by_locks(self, copy: PartitionCopy, request: Request) -> Decision | Wait | None:
        """None: no lock is in the way."""
        if request.op not in READS:
            waits = wait_for_lock(copy.locks, request, self._lock_wait_ms)
            return waits or wait_for_map_lock(copy.locks, request, self._out.now_ns, self._lock_wait_ms)
        if request.map == TRANSACTIONS_MAP and request.op is Op.CONTAINS_KEY:
            entry = entry_of(request.key)
            by_client = entry is not None and copy.locks.map_lock(*entry, self._out.now_ns) is not None
            return Decision(answer=by_client or request.key in copy.locks.held)
        return None

    def _carry_out(self, copy: PartitionCopy, request: Request, decision: Decision) -> Value:
        if decision.locks is not None:
            for name in copy.locks.maps_of(decision.locks.released):
                self._changed_collections.note(copy.partition, name)
            copy.locks.change(decision.locks)
            if decision.locks.released:
                self._changed_collections.note_locks(copy.partition)
        if decision.used:
            copy.maps[request.map].state.use(decision.used, self._out.now_ns)
        if request.map in self._lane.listening:
            for item in decision.published:
                self._lane.heard(EntryEvent(EventKind.ADDED, request.map, self._me, value=item))
        if not decision.updates:
            return decision.answer
        fill = decode_move_step(request.value) if request.op is Op.FILL else None
        if fill is not None:
            number_above(copy, request.map, fill)
        lane = self._lane
        held: AnyReplica
        applied: Value = None
        for update in decision.updates:
            name = update.map or request.map
            if request.op is Op.CALL:
                held = copy.services[part_name(name)]
            else:
                held = copy.maps.get(name) or lane.open(copy, name)
            applied = lane.carry_out(copy, held, update, moves=request.op in MOVING)
            if update.map:
                self._changed_collections.note(copy.partition, name)
        self._note_change(copy, request.map, request.key, decision.updates)
        if request.op is Op.ADD_TO_COLLECTION and guarded_map(request.map):
            self._out.notify(EntryLocked(client_of(request.holder)))
        if isinstance(fill, FillMap) and fill.round and request.map in copy.maps:
            # They may have been used in the source all the time.
            copy.maps[request.map].state.all_used(self._out.now_ns)
        return applied if decision.applied_answers else decision.answer

    def _note_change(
        self, copy: PartitionCopy, name: str, key: bytes = b"", updates: Sequence[Update] = ()
    ) -> None:
        """A map has changed by these updates. `key`: of the lock, if it holds locks."""
        guarded = guarded_map(name)
        if not guarded:
            self._changed_collections.note(copy.partition, name, updates)
            return
        copy.locks.look_at(guarded)
        if key:
            self._changed_collections.note_lock(copy.partition, name, key)
        else:
            self._changed_collections.note_locks(copy.partition)

    def _rest_on(self, copy: PartitionCopy, request: Request) -> None:
        """Let the answer wait for a read barrier, because it changes nothing (primary_backup/P-7)."""
        rest = self._lane.rest_on_service if request.op in (Op.CALL, Op.ASK) else self._lane.rest_on
        rest(copy, target(request))

    def _unconfirmed(self) -> Outcome:
        """The response to a request that changed nothing, and whose reads could not be confirmed."""
        return Outcome(
            Status.NOT_READY,
            None,
            f"nothing was changed, and the answer could not be confirmed: {self._lane.unknown_because}",
        )

    def _told(self, known: bool, value: Value, position: tuple[int, int] = (0, 0)) -> Outcome:
        if known:
            return Outcome(Status.OK, value, position=position)
        return Outcome(Status.UNKNOWN, None, self._lane.unknown_because)

    def _position(self, copy: PartitionCopy, request: Request) -> tuple[int, int]:
        return position_of(copy, request.map, self._settings) if self._backup_reads else (0, 0)

    # -- whole partitions

    def submit_whole(self, request: Request, done: ShareDone) -> int:
        """Decide a request for whole partitions; returns the effort. Some maps are cleared entry by entry instead."""
        lane = self._lane
        if request.op is Op.DESTROY:
            done = self._forgetting_after(request, done)
        if request.op not in READS and self._clears_singly(request):
            self._clearings.begin(request, done)
            return 0
        missed = [partition for partition in request.partitions if lane.leading[partition] is None]
        reads = request.op in READS
        work = attempt(self._out, request, lambda: self._slice(request)) if reads else self._slice(request)
        value, left, effort = (None, [], 0) if isinstance(work, Outcome) else work
        found = work if isinstance(work, Outcome) else Outcome(Status.OK, value)
        if bytes_of(value) > self._answer_bytes:
            found = Outcome(Status.TOO_LARGE, None, too_long(self._answer_bytes))
            left = []

        def closed(known: bool) -> None:
            if reads:
                outcome = found if known else self._unconfirmed()
            else:
                outcome = self._told(known, found.value)
            done(outcome, left, missed)

        lane.close_batch(closed)
        return effort

    def _clears_singly(self, request: Request) -> bool:
        """Whether the map has to be cleared entry by entry: it has a change stream, or locked entries, which stay."""
        if self._settings.map(request.map).changes_bytes:
            return True
        leading = self._lane.leading
        return request.op is not Op.DESTROY and any(
            (copy := leading[partition]) is not None and copy.locks.guards_entries(request.map)
            for partition in request.partitions
        )

    def _forgetting_after(self, request: Request, done: ShareDone) -> ShareDone:
        def destroyed(outcome: Outcome, left: Sequence[int], missed: Sequence[int]) -> None:
            if outcome.status is Status.OK:
                for partition in sorted(set(request.partitions).difference(left, missed)):
                    self._out.notify(MapEmptied(partition, request.map))
            done(outcome, left, missed)

        return destroyed

    def _slice(self, request: Request) -> tuple[Value, list[int], int]:
        """Handle as many partitions as take some ms. Returns the value, the partitions that are left (the caller
        requests them again), and the effort in entries.
        """
        lane = self._lane
        reads = request.op in READS
        rests = not reads or (lane.confirms_reads and lane.confirmed(request.map))
        value: Value = None
        locked: list[int] = []
        """Partitions that have to wait: a transaction has locked an entry of the map there, or the map is closed."""
        entries = size = 0
        for at, partition in enumerate(request.partitions):
            if entries >= SLICE_ENTRIES or size >= SLICE_BYTES:
                effort = max(entries, SLICE_ENTRIES if size >= SLICE_BYTES else 0)
                return value, [*locked, *request.partitions[at:]], effort
            copy = lane.leading[partition]
            if copy is None:
                continue
            if rests:
                lane.rest_on(copy, request.map)
            if (not reads and copy.locks.guards(request.map)) or is_closed(copy.maps, request.map):
                locked.append(partition)
                continue
            held = copy.maps.get(request.map)
            if held is not None:
                entries += _effort(request, held.state)
                decision = decide_whole(held.state, request, self._out.now_ns)
                for update in decision.updates:
                    lane.carry_out(copy, held, update)
                if decision.updates:
                    self._note_change(copy, request.map)
                size += bytes_of(decision.answer)
                value = merge(request.op, value, decision.answer)
        if value is None:
            value = decide_whole(None, request, self._out.now_ns).answer
        return value, locked, max(entries, size // (SLICE_BYTES // SLICE_ENTRIES))


def _effort(request: Request, state: MapState) -> int:
    if request.op in READS:
        counts = request.op in (Op.SIZE, Op.IS_EMPTY) and not state.expiries and not is_multimap(request.map)
        return COUNT_ENTRIES if counts else len(state.entries)
    # Observers of the map get its changes before the entries go.
    return COUNT_ENTRIES + CLEAR_ENTRIES * len(state.entries) + TOLD_ENTRIES * len(state.touched or ())


def _ignore(known: bool) -> None:
    """Do nothing: the batch of a read only removes expired entries, and the answer does not depend on that."""


def attempt(out: Outbox, request: Request, read: Callable[[], T]) -> T | Outcome:
    """Return the result of a read, or its error as a response. A decision changes nothing, so the member continues
    after an error (primary_backup/A-1). An error while an update is applied stops it.
    """
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - any error is an answer
        return failed(out, request, error)


def failed(out: Outbox, request: Request, error: Exception) -> Outcome:
    why = f"{type(error).__name__}: {error}"
    out.note("read failed", level="error", op=request.op.name, map=shown_name(request.map), reason=why)
    return Outcome(Status.FAILED, None, why)


def position_of(copy: PartitionCopy, name: str, settings: Settings) -> tuple[int, int]:
    """The term and the counter of a map whose backups may be read (routing/R-5); else zeros."""
    held = copy.maps.get(name)
    if held is None or not settings.map(name).read_backups:
        return (0, 0)
    return (held.term, held.counter)


def _is_outdated(copy: PartitionCopy, step: TransactionStep) -> bool:
    """Whether a transaction without locks was mapped under another primary (transactions/P-1). A change of
    the backups alone does not matter.
    """
    mapped = step.mapped if isinstance(step, LockKeys | PrepareBranch) else None
    return mapped is not None and not mapped.holds and mapped.row < copy.term
