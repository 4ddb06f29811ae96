"""Locks of transactions in the partitions of one group, which its leader alone knows (I3; store/K-1).

- raft_partition/L-1: A lock is of the term in which this member leads. A prepare is proposed only if the transaction
  holds its locks in this term. So no entry of the log between the lock and the prepare changes what was locked: those
  of earlier terms are applied before the lock is taken, and the others are proposed by this leader, which knows it.
- raft_partition/L-2: A lock is answered, with the value of its entry, when all changes that were submitted before are
  applied. Until a lock ends, other changes of the entry wait.
- raft_partition/L-3: Before the leadership is transferred, the locks are stored by requests of the log; new ones are
  stored at once. The next leader begins with those. After an election without that the locks of transactions that are
  not prepared have gone, and prepare rejects them (operations/T-5).
- raft_partition/L-4: The leader knows each lock that replicas know, and releases none of a prepare that is on its way.
  Example: the coordinator is removed while alive. Its prepare is in the log, and not applied, when a member finds the
  lock without a branch, and sends a rollback. If the leader released the lock at once, another transaction would read
  the entry under a lock of its own, and the first one, which may commit, would change it then.
- raft_partition/L-5: A change with an id is rejected because of a lock only when all changes that were submitted before
  are applied, and its first try is not among them. Example: `try_put` x is in the log when a transaction locks x. Its
  caller repeats it: False would be wrong, because the first try stores x.

- raft_partition/L-6: The lock for an entry processor is of the term, too: its result is proposed only under that lock.
  It sees the value of its entry when all changes that were submitted before are applied.

Example: a transaction locks x at member 1, leader in term 4, and member 2 becomes the leader of term 5. Another
transaction may lock and change x there. The prepare of the first one fails at 2, because it holds no lock in term 5; at
1 it is proposed in term 4, and never committed, because a majority knows term 5.
"""

from __future__ import annotations

from functools import partial

from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.model.decisions import Decision, LockChanges, Wait
from holdfast.core.model.ids import GroupNumber, MemberId, place_of
from holdfast.core.model.operations import CLEARING, Op, Outcome, Request, Status
from holdfast.core.model.processors import (
    RunBegun,
    decode_call,
    is_finished,
    is_run_lock,
    run_lock,
)
from holdfast.core.model.transactions import (
    EntryKey,
    ForgetBranches,
    KeyLock,
    LockKeys,
    PrepareBranch,
    RollBackBranch,
    StepFate,
    StepResult,
    TransactionId,
    branch_key,
    decode_step,
    encode,
    entry_of,
    lock_key,
)
from holdfast.core.model.zone_batches import ZoneChanges, ZoneWrites
from holdfast.core.operations.move_steps import moving_reason
from holdfast.core.operations.transaction_branches import LOCKED_TOO_LONG, TransactionBranches, wait_for_lock
from holdfast.core.raft_partition.logged_steps import for_log, is_locked
from holdfast.core.raft_partition.proposals import Proposals
from holdfast.core.raft_partition.read_barrier import ReadBarrier
from holdfast.core.raft_partition.state_machine import StateMachine
from holdfast.core.raft_partition.zone_replicas import ZoneReplicas
from holdfast.core.replication_engine import Decided
from holdfast.core.store.key_locks import KeyLocks
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.request_ids import ANSWER_DROPPED

NOT_CURRENT = Outcome(Status.MOVED, None, "the leader has not applied yet what earlier leaders acknowledged")


STORED_AT_ONCE = 1000
"""Locks in one request, so that those of one transaction do not make one long entry of the log."""


class LeaderLocks:
    def __init__(
        self,
        number: GroupNumber,
        zone: ZoneReplicas,
        state: StateMachine,
        proposals: Proposals,
        reads: ReadBarrier,
    ) -> None:
        self._number = number
        self._zone = zone
        self._state = state
        self._proposals = proposals
        self._reads = reads
        self._wait_ms = zone.settings.limits.call_timeout_ms
        self._of: dict[int, KeyLocks] = {}
        """By client partition, with those that replicas know. Empty until a step comes in this term."""
        self._logged: set[tuple[int, TransactionId]] = set()
        """With steps that were proposed in this term, and are not known to be applied."""
        self.leaving = False
        """The leadership is about to be transferred (raft_partition/L-3)."""

    def of(self, partition: int) -> KeyLocks:
        """The locks in a client partition. Only on a leader that has applied what earlier ones acknowledged."""
        locks = self._of.get(partition)
        if locks is None:
            locks = self._of[partition] = KeyLocks()
            kept = self._state.copies[partition].maps.get(TRANSACTIONS_MAP)
            if kept is not None:
                locks.restore(kept.state.entries)
        return locks

    @property
    def count(self) -> int:
        """The locks that are known here, because this member leads."""
        return sum(len(locks.held) for locks in self._of.values())

    def clear(self) -> None:
        """This member leads no more, or in another term (raft_partition/L-1)."""
        self._of.clear()
        self._logged.clear()
        self.leaving = False

    # -- other requests

    def wait_of(self, request: Request) -> Wait | Decision | None:
        """The lock for which a change has to wait, or its answer if it does not wait; None: no lock is in its way."""
        locks = self._in_force(request.partitions[0])
        if not locks.held or not is_locked(locks, request):
            return None
        if (
            request.id
            and self._state.copies[request.partitions[0]].applied(request.id, request.map) is not None
        ):
            return None  # It gets its first answer (raft_partition/Z-3).
        if request.op in CLEARING:
            return Wait(self._wait_ms, refused=LOCKED_TOO_LONG)
        return wait_for_lock(locks, request, self._wait_ms)

    def reject(self, request: Request, rejection: Outcome, done: Decided) -> None:
        """Answer a change that waits no longer for a lock (raft_partition/L-5)."""
        if request.id:
            self._proposals.after(partial(self._reject, request, rejection, done))
        else:
            done(rejection)

    def _reject(self, request: Request, rejection: Outcome, done: Decided, outcome: Outcome) -> None:
        if outcome.status is Status.OK and not self._zone.groups.current(self._number):
            outcome = NOT_CURRENT
        if outcome.status is Status.OK:
            applied = self._state.copies[request.partitions[0]].applied(request.id, request.map)
            outcome = rejection if applied is None else Outcome(Status.OK, applied.answer(request.id))
        done(outcome)

    def hold_up(self, partition: int, changes: list[ZoneChanges]) -> bool:
        """Whether a lock is in the way of some of these changes."""
        locks = self._in_force(partition)
        return bool(locks.held) and any(
            any(lock_key(write[0], write[1]) in locks.held for write in part.writes)
            if isinstance(part, ZoneWrites)
            else any(is_locked(locks, request) for request in part.requests)
            for part in changes
        )

    def guards(self, partition: int, name: str) -> bool:
        """Whether any entry of this map is locked."""
        return self._in_force(partition).guards(name)

    def holds(self, partition: int, kept: bytes) -> bool:
        """Whether the entry with this `lock_key` is locked."""
        return kept in self._in_force(partition).held

    def _in_force(self, partition: int) -> KeyLocks:
        """Those that the replicas know, as long as no transaction has locked anything in this term."""
        return self._of.get(partition) or self._state.copies[partition].locks

    # -- steps

    def submit(self, request: Request, done: Decided, *, late: bool) -> None:
        """Take a step of a transaction. `done` is called once; with a `Wait`: submit it again (`late`: at its end)."""
        copy = self._state.copies[request.partitions[0]]
        if not self._zone.groups.current(self._number):
            done(NOT_CURRENT)
            return
        if request.id and (applied := copy.applied(request.id, request.map)) is not None:
            done(Outcome(Status.OK, applied.answer(request.id)))
            return
        step = decode_step(request.value)
        if why := moving_reason(copy.maps, self._zone.moves, step, self):
            done(_said(StepResult(StepFate.REFUSED, why=why)))
        elif isinstance(step, LockKeys) and step.confirm:
            self._confirm(copy, step, done)
        elif isinstance(step, LockKeys):
            self._lock(copy, step, done, late=late)
        elif isinstance(step, PrepareBranch):
            self._prepare(copy, request, step, done)
        elif isinstance(step, RollBackBranch) and self._only_locks(copy, step):
            self._change(copy.partition, LockChanges(released=step.transaction))
            done(_said(StepResult(StepFate.DONE)))
        elif isinstance(step, ForgetBranches):
            self._proposals.submit(request, done)
        else:
            self._log(copy.partition, step.transaction, request, done)

    def houses(self, name: str) -> bool:
        """See operations/V-5."""
        return self._zone.sink.zone_of(name) == place_of(self._number)[0]

    def _branches(self, copy: PartitionCopy) -> TransactionBranches:
        now_ns = self._state.now_ns(self._zone.out.wall_ms())
        return TransactionBranches(copy, now_ns, locks=self.of(copy.partition))

    def _lock(self, copy: PartitionCopy, step: LockKeys, done: Decided, *, late: bool) -> None:
        decision = self._branches(copy).decide(step)
        if isinstance(decision, Wait):
            done(Outcome(Status.OK, decision.answer) if late else decision)
            return
        assert decision.locks is not None, "a lock step has locks"
        self.of(copy.partition).change(decision.locks)
        if self.leaving:
            self._proposals.submit(_step_request(copy.partition, step), done)
        else:
            self._proposals.after(partial(self._locked, copy.partition, step, done))

    def _locked(self, partition: int, step: LockKeys, done: Decided, outcome: Outcome) -> None:
        """All changes that were submitted before the lock are applied (raft_partition/L-2)."""
        if outcome.status is Status.OK and not self._zone.groups.current(self._number):
            outcome = NOT_CURRENT  # The changes were applied under another leader, or in another term.
        if outcome.status is not Status.OK:
            done(outcome)
            return
        copy = self._state.copies[partition]
        if why := moving_reason(copy.maps, self._zone.moves, step, self):
            done(_said(StepResult(StepFate.REFUSED, why=why)))
            return
        decision = self._branches(copy).decide(step)
        if isinstance(decision, Decision) and decision.locks is not None and not decision.locks.taken:
            done(Outcome(Status.OK, decision.answer))
        else:
            done(_said(StepResult(StepFate.NOT_HELD)))  # It was rolled back meanwhile.

    def _confirm(self, copy: PartitionCopy, step: LockKeys, done: Decided) -> None:
        """Whether it holds these locks, once a majority has confirmed this leader (transactions/C-7)."""
        question = Request(Op.IS_EMPTY, TRANSACTIONS_MAP, [copy.partition])
        self._reads.submit(question, partial(self._confirmed, copy.partition, step, done))

    def _confirmed(self, partition: int, step: LockKeys, done: Decided, outcome: Outcome) -> None:
        if outcome.status is not Status.OK:
            done(outcome)
            return
        decision = self._branches(self._state.copies[partition]).decide(step)
        assert isinstance(decision, Decision), "a confirmation does not wait"
        done(Outcome(Status.OK, decision.answer))

    def _prepare(self, copy: PartitionCopy, request: Request, step: PrepareBranch, done: Decided) -> None:
        """raft_partition/L-1."""
        known = self._branches(copy).known_result(step)
        if known is not None:
            done(_said(known))
            return
        if len(step.participants) > 1:
            lock = KeyLock(step.transaction, step.owner)
            taken = [(lock_key(*entry), lock) for entry in step.touched]
            self.of(copy.partition).change(LockChanges(taken))
        self._log(
            copy.partition, step.transaction, _step_request(copy.partition, for_log(step), request.id), done
        )

    def _log(self, partition: int, transaction: TransactionId, request: Request, done: Decided) -> None:
        self._logged.add((partition, transaction))
        self._proposals.submit(request, partial(self._applied, partition, transaction, done))

    def _applied(self, partition: int, transaction: TransactionId, done: Decided, outcome: Outcome) -> None:
        if outcome.status is not Status.UNKNOWN:  # Otherwise it may be applied later.
            self._logged.discard((partition, transaction))
        done(outcome)

    def _only_locks(self, copy: PartitionCopy, step: RollBackBranch) -> bool:
        """Whether this leader alone knows the transaction here, so that nothing of it is in the log."""
        kept = copy.maps.get(TRANSACTIONS_MAP)
        branch = kept is not None and branch_key(step.transaction) in kept.state.entries
        logged = branch or (copy.partition, step.transaction) in self._logged
        return not step.fence and not logged and not self.leaving and not copy.locks.of(step.transaction)

    # -- entry processors

    def process(self, request: Request, done: Decided, *, late: bool) -> None:
        """Begin a run, or propose its result (raft_partition/L-6). `done` is called once, perhaps with a `RunBegun`."""
        [partition] = request.partitions
        if is_finished(request):
            held = bool(self.of(partition).of(request.expected))
            self.end_run(request)
            if held:
                self._proposals.submit(request, done)
            else:
                done(NOT_CURRENT)
            return
        if not self._zone.groups.current(self._number):
            done(NOT_CURRENT)
            return
        waits = self.wait_of(request)
        if isinstance(waits, Wait):
            if late:
                self.reject(request, Outcome(Status.NOT_READY, None, waits.refused), done)
            else:
                done(waits)
            return
        if (
            request.id
            and (applied := self._state.copies[partition].applied(request.id, request.map)) is not None
        ):
            done(
                ANSWER_DROPPED
                if applied.has_dropped(request.id)
                else Outcome(Status.OK, applied.answer(request.id))
            )
            return
        taken = [(lock_key(request.map, request.key), run_lock(request.expected))]
        self.of(partition).change(LockChanges(taken))
        self._proposals.after(partial(self._begin_run, request, done))

    def _begin_run(self, request: Request, done: Decided, outcome: Outcome) -> None:
        """All changes that were submitted before are applied; one of them may have been this request."""
        [partition] = request.partitions
        copy = self._state.copies[partition]
        if outcome.status is Status.OK and not (
            self._zone.groups.current(self._number) and self.of(partition).of(request.expected)
        ):
            outcome = NOT_CURRENT
        elif outcome.status is Status.OK and request.id and copy.applied(request.id, request.map) is not None:
            outcome = Outcome(Status.MOVED, None, "its first try is applied now")  # It is submitted again.
        if outcome.status is not Status.OK:
            self.end_run(request)
            done(outcome)
            return
        value = self._state.look(partition, request.map, request.key, self._zone.out.wall_ms())
        if value is None and decode_call(request.value).only_present:
            self.end_run(request)
            self._reads.submit(
                Request(Op.CONTAINS_KEY, request.map, [partition], key=request.key), partial(_skipped, done)
            )
        else:
            done(RunBegun(value))

    def end_run(self, request: Request) -> None:
        """Unlock the entry, if it is locked for this run."""
        [partition] = request.partitions
        locks = self._of.get(partition)
        if locks is not None and locks.of(request.expected):
            self._change(partition, LockChanges(released=request.expected))

    # -- changes of locks

    def _change(self, partition: int, changes: LockChanges) -> None:
        if (locks := self._of.get(partition)) is not None:
            locks.change(changes)
        if changes.released:
            self._zone.unlocked.append((self._number, partition))

    def on_applied(self) -> None:
        """After commands were applied: what they did to locks counts for the leader, too (raft_partition/L-4), and
        requests that have waited for locks that have ended are submitted again.
        """
        for partition, changes in self._state.lock_changes:
            self._change(partition, changes)
        self._state.lock_changes.clear()

    # -- transfer of the leadership

    def store(self) -> bool:
        """Store the locks for the next leader (raft_partition/L-3). Returns whether all are stored. Those that the log
        did not take, as in a transfer that came to nothing, are stored when nothing is on its way.
        """
        missing = self._missing()
        if not self.leaving or not self._proposals.unanswered:
            self.leaving = True
            for (partition, transaction, owner), keys in missing.items():
                for at in range(0, len(keys), STORED_AT_ONCE):
                    step = LockKeys(transaction, owner, keys[at : at + STORED_AT_ONCE], 0)
                    self._proposals.submit(_step_request(partition, step), _ignore)
        return not missing and not self._proposals.waiting

    def _missing(self) -> dict[tuple[int, TransactionId, MemberId], list[EntryKey]]:
        """The entries whose locks replicas do not know; without those of transactions with a step in the log, which
        may release them: nothing would release a lock that is stored behind it.
        """
        found: dict[tuple[int, TransactionId, MemberId], list[EntryKey]] = {}
        for partition, locks in self._of.items():
            stored = self._state.copies[partition].locks.held
            for kept, lock in locks.held.items():
                entry = entry_of(kept)
                logged = (partition, lock.transaction) in self._logged
                if kept not in stored and entry is not None and not logged and not is_run_lock(lock):
                    found.setdefault((partition, lock.transaction, lock.owner), []).append(entry)
        return found


def _step_request(partition: int, step: LockKeys | PrepareBranch, request_id: bytes = b"") -> Request:
    return Request(Op.TRANSACT, TRANSACTIONS_MAP, [partition], value=encode(step), id=request_id)


def _said(result: StepResult) -> Outcome:
    return Outcome(Status.OK, encode(result))


def _skipped(done: Decided, outcome: Outcome) -> None:
    """There was no entry for a processor, as a confirmed leader knows."""
    done(Outcome(Status.OK) if outcome.status is Status.OK else outcome)


def _ignore(outcome: Outcome | Wait) -> None: ...
