"""Steps of a transaction in one partition: their answers and updates. The state is not changed.

Branches are entries of a map of their own, in the partition of the entries that they change. So backups, the journal
and later primaries hold them. All updates of one step are one batch, which is applied as a whole or not at all. Locks
are known to the primary alone (store/K-1).

- operations/T-1: An entry has one lock. Other requests to change it wait, in the order of arrival.
- operations/T-2: A prepared branch changes only when its outcome arrives.
- operations/T-3: A branch that was asked and is not prepared never will be: that is stored before the answer. So all
  that ask find the same outcome.
- operations/T-4: A branch keeps its outcome until every branch has it.
- operations/T-5: A lock that was lost with a primary is noticed before anything rests on it: prepare rejects a
  transaction that does not hold its locks any more. So the answer to a lock waits for the writes whose values it may
  show, and for no confirmation that this primary is still the right one.
- operations/T-6: While the cluster has members that expect locks on backups (`PRIMARY_LOCKS`), locks are stored as
  entries, too, as at a handover.
- operations/T-7: A step that comes again has no further effect: the branch shows what was done. Only the prepare of a
  single partition leaves no branch behind, and is recognised by the id of its request.
- operations/T-8: Items of a collection have one lock together, that of the key `WHOLE_COLLECTION`. The transaction
  writes that key, too, and so removes an entry that never exists: its prepared branch keeps the lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.model.collections import WHOLE_COLLECTION, is_in_one_partition
from holdfast.core.model.decisions import Decision, LockChanges, Update, Wait
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import COLLECTION_CHANGES, EventKind, Op, Request
from holdfast.core.model.records import Change
from holdfast.core.model.transactions import (
    AskBranch,
    BranchState,
    CommitBranch,
    EntryKey,
    ForgetBranches,
    KeyLock,
    LockKeys,
    PrepareBranch,
    RollBackBranch,
    StepFate,
    StepResult,
    TransactionalWrite,
    TransactionBranch,
    TransactionId,
    TransactionStep,
    ValueSeen,
    branch_key,
    decode_branch,
    encode,
    lock_key,
    transaction_of,
)
from holdfast.core.model.waiting_steps import wait_of
from holdfast.core.operations.map_operations import peek
from holdfast.core.store.key_locks import KeyLocks
from holdfast.core.store.partition_copy import PartitionCopy

LOCKED_TOO_LONG = "a transaction has locked the entry and has not ended in time"
_NOTHING: Mapping[bytes, bytes] = {}


class TransactionBranches:
    __slots__ = ("_kept", "_locks", "_maps", "_now_ns", "_released", "_stores", "_taken", "updates")

    def __init__(
        self, copy: PartitionCopy, now_ns: int, *, stores: bool = False, locks: KeyLocks | None = None
    ) -> None:
        """`stores`: locks are stored as entries, too (operations/T-6). `locks`: None: those of the copy."""
        self._maps = copy.maps
        self._locks = copy.locks if locks is None else locks
        held = copy.maps.get(TRANSACTIONS_MAP)
        self._kept: Mapping[bytes, bytes] = held.state.entries if held is not None else _NOTHING
        self._now_ns = now_ns
        self._stores = stores
        self.updates: list[Update] = []
        self._taken: dict[bytes, KeyLock] = {}
        self._released: TransactionId = b""

    # -- present state

    def lock(self, name: str, key: bytes) -> KeyLock | None:
        return self._locks.held.get(lock_key(name, key))

    def branch(self, transaction: TransactionId) -> TransactionBranch | None:
        kept = self._kept.get(branch_key(transaction))
        return decode_branch(kept) if kept is not None else None

    def lock_owners(self) -> Iterator[KeyLock]:
        """One lock of each transaction that has any."""
        return self._locks.one_of_each()

    def all_branches(self) -> Iterator[tuple[TransactionId, TransactionBranch]]:
        for kept, value in self._kept.items():
            transaction = transaction_of(kept)
            if transaction is not None:
                yield transaction, decode_branch(value)

    def value(self, entry: EntryKey) -> bytes | None:
        held = self._maps.get(entry[0])
        return peek(held.state, entry[1], self._now_ns) if held is not None else None

    def _held_by_another(self, entries: Iterable[EntryKey], step: LockKeys | PrepareBranch) -> _Held | None:
        for entry in entries:
            lock = self.lock(*entry)
            if lock is not None and lock.transaction != step.transaction:
                return _Held(entry, lock)
            if lock is None and self._locks.map_lock(*entry, self._now_ns) is not None:
                return _Held(entry, _OF_A_CLIENT)
        return None

    # -- decided updates

    def _keep(self, kept: bytes, thing: TransactionBranch | KeyLock) -> None:
        self.updates.append(Update(Change.SET, kept, encode(thing), map=TRANSACTIONS_MAP))

    def _drop(self, kept: bytes) -> None:
        self.updates.append(Update(Change.REMOVE, kept, map=TRANSACTIONS_MAP))

    def _take(self, entries: Iterable[EntryKey], step: LockKeys | PrepareBranch) -> None:
        lock = KeyLock(step.transaction, step.owner)
        for entry in entries:
            kept = lock_key(*entry)
            if kept not in self._locks.held and kept not in self._taken:
                self._taken[kept] = lock
                if self._stores:
                    self._keep(kept, lock)

    def _release(self, transaction: TransactionId) -> None:
        self._released = transaction
        for kept in self._locks.of(transaction):
            if kept in self._kept:
                self._drop(kept)

    def store_locks(self, locks: Iterable[tuple[bytes, KeyLock]]) -> None:
        """Store those that are not stored, for the next primary (store/K-1)."""
        for kept, lock in locks:
            if kept not in self._kept:
                self._keep(kept, lock)

    def _write(self, transaction: TransactionId, writes: Iterable[TransactionalWrite]) -> None:
        """Removing an absent entry makes no update."""
        for write in writes:
            held = self._maps.get(write.map)
            old = held.state.entries.get(write.key) if held is not None else None
            if write.value is not None:
                kind = EventKind.ADDED if old is None else EventKind.UPDATED
                self.updates.append(
                    Update(
                        Change.SET,
                        write.key,
                        write.value,
                        write.ttl_ms,
                        write.max_idle_ms,
                        write.key_hash,
                        kind,
                        write.map,
                        transaction,
                    )
                )
            elif old is not None:
                self.updates.append(
                    Update(
                        Change.REMOVE,
                        write.key,
                        kind=EventKind.REMOVED,
                        map=write.map,
                        transaction=transaction,
                    )
                )

    # -- steps

    def decide(self, step: TransactionStep) -> Decision | Wait:
        match step:
            case LockKeys():
                return self._lock(step)
            case PrepareBranch():
                return self._answer(self._prepare(step), repeatable=len(step.participants) > 1)
            case CommitBranch():
                return self._answer(self._commit(step))
            case RollBackBranch():
                # Without fence and branch it only releases locks.
                unconfirmed = not step.fence and self.branch(step.transaction) is None
                return self._answer(self._roll_back(step), unconfirmed=unconfirmed)
            case AskBranch():
                return self._answer(self._ask(step))
            case ForgetBranches():
                for transaction in step.transactions:
                    branch = self.branch(transaction)
                    if branch is not None and branch.state is not BranchState.PREPARED:
                        self._drop(branch_key(transaction))
                return self._answer(StepResult(StepFate.DONE))

    def _answer(self, result: StepResult, *, unconfirmed: bool = False, repeatable: bool = True) -> Decision:
        locks = LockChanges(tuple(self._taken.items()), self._released)
        return Decision(
            encode(result), self.updates, locks=locks, unconfirmed=unconfirmed, repeatable=repeatable
        )

    def _lock(self, step: LockKeys) -> Decision | Wait:
        if self.branch(step.transaction) is not None:
            return self._answer(StepResult(StepFate.OVER))
        if step.confirm:
            lost = self._has_lost(step.transaction, step.keys)
            return self._answer(StepResult(StepFate.NOT_HELD if lost else StepFate.DONE))
        other = self._held_by_another(step.keys, step)
        if other is not None:
            late = StepResult(StepFate.LOCKED, holder=other.lock.transaction)
            if not step.wait_ms:
                return self._answer(late, unconfirmed=True)
            return Wait(
                step.wait_ms,
                encode(late),
                waiter=step.transaction,
                holder=other.lock.transaction,
                key=other.entry,
            )
        self._take(step.keys, step)
        result = StepResult(StepFate.DONE, [self.value(entry) for entry in step.keys])
        return self._answer(result, unconfirmed=True)

    def _prepare(self, step: PrepareBranch) -> StepResult:
        known = self.known_result(step)
        if known is not None:
            return known
        if len(step.participants) == 1:
            self._write(step.transaction, step.writes)
            self._release(step.transaction)
        else:
            self._take(step.touched, step)
            reads = [seen.entry for seen in step.seen]
            branch = TransactionBranch(
                BranchState.PREPARED, step.owner, step.participants, step.writes, reads
            )
            self._keep(branch_key(step.transaction), branch)
        return StepResult(StepFate.DONE)

    def known_result(self, step: PrepareBranch) -> StepResult | None:
        """The result of a prepare that changes nothing: it was done before, or it fails. None: it can be done."""
        branch = self.branch(step.transaction)
        if branch is not None:
            rolled_back = branch.state is BranchState.ROLLED_BACK
            return StepResult(StepFate.OVER if rolled_back else StepFate.DONE)
        touched = step.touched
        other = self._held_by_another(touched, step)
        if other is not None:
            fate = StepFate.NOT_HELD if step.locked else StepFate.LOCKED
            return StepResult(fate, holder=other.lock.transaction)
        if step.locked and self._has_lost(step.transaction, [*touched, *step.held]):
            return StepResult(StepFate.NOT_HELD)
        for seen in step.seen:
            if self._has_changed(seen):
                return StepResult(StepFate.CHANGED, why=seen.map)
        return None

    def _has_lost(self, transaction: TransactionId, entries: Iterable[EntryKey]) -> bool:
        """Whether it has lost the lock of one of these entries (operations/T-5)."""
        for entry in entries:
            lock = self.lock(*_guarded(entry))
            if lock is None or lock.transaction != transaction:
                return True
        return False

    def _has_changed(self, seen: ValueSeen) -> bool:
        return self.value(seen.entry) != seen.value

    def _commit(self, step: CommitBranch) -> StepResult:
        branch = self.branch(step.transaction)
        if branch is None:
            # It has only locks here; or another member has sent the outcome, and every branch has it.
            self._release(step.transaction)
            return StepResult(StepFate.DONE)
        if branch.state is BranchState.ROLLED_BACK:
            return StepResult(StepFate.ROLLED_BACK)
        if branch.state is BranchState.PREPARED:
            self._write(step.transaction, branch.writes)
            self._release(step.transaction)
            self._keep_outcome(step.transaction, branch)
        return StepResult(StepFate.DONE)

    def _keep_outcome(self, transaction: TransactionId, branch: TransactionBranch) -> None:
        """Other branches may ask for it (operations/T-4)."""
        committed = TransactionBranch(BranchState.COMMITTED, branch.owner, branch.participants)
        self._keep(branch_key(transaction), committed)

    def _roll_back(self, step: RollBackBranch) -> StepResult:
        branch = self.branch(step.transaction)
        if branch is not None and step.only_locks:
            return StepResult(StepFate.PREPARED)
        if branch is not None and branch.state is BranchState.COMMITTED:
            return StepResult(StepFate.COMMITTED)
        self._release(step.transaction)
        if step.fence:
            self._fence(step, branch)
        elif branch is not None:
            self._drop(branch_key(step.transaction))
        return StepResult(StepFate.DONE)

    def _fence(self, step: RollBackBranch | AskBranch, branch: TransactionBranch | None) -> None:
        if branch is None or branch.state is not BranchState.ROLLED_BACK:
            self._keep(
                branch_key(step.transaction),
                TransactionBranch(BranchState.ROLLED_BACK, step.owner, step.participants),
            )

    def _ask(self, step: AskBranch) -> StepResult:
        branch = self.branch(step.transaction)
        if branch is None:
            self._release(step.transaction)
            self._fence(step, branch)
            return StepResult(StepFate.ROLLED_BACK)
        return StepResult(
            {
                BranchState.PREPARED: StepFate.PREPARED,
                BranchState.COMMITTED: StepFate.COMMITTED,
                BranchState.ROLLED_BACK: StepFate.ROLLED_BACK,
            }[branch.state]
        )


def _guarded(entry: EntryKey) -> EntryKey:
    """The entry whose lock a transaction needs to write this one: items of a collection have one lock together."""
    return (entry[0], WHOLE_COLLECTION) if is_in_one_partition(entry[0]) else entry


_OF_A_CLIENT = KeyLock(b"", MemberId(""))
"""Stands for the lock of a client, which no transaction has."""


class _Held:
    __slots__ = ("entry", "lock")

    def __init__(self, entry: EntryKey, lock: KeyLock) -> None:
        self.entry = entry
        self.lock = lock


def wait_for_lock(locks: KeyLocks, request: Request, wait_ms: int) -> Decision | Wait | None:
    """Outside of transactions: wait, or (`TRY_PUT`) do nothing. None: no lock is in the way."""
    found = locked_entry(locks, request)
    if found is None:
        return None
    if request.op in (Op.TRY_PUT, Op.TRY_REMOVE):
        return Wait(request.wait_ms, False) if request.wait_ms else Decision(answer=False)
    key, lock = found
    if request.op in COLLECTION_CHANGES and (step_wait_ms := wait_of(request)):
        late = None if request.op is Op.TAKE_FROM_COLLECTION else False
        return Wait(step_wait_ms, late, holder=lock.transaction, key=(request.map, key))
    return Wait(wait_ms, refused=LOCKED_TOO_LONG, holder=lock.transaction, key=(request.map, key))


def locked_entry(locks: KeyLocks, request: Request) -> tuple[bytes, KeyLock] | None:
    """An entry that this change may touch and a transaction has locked."""
    keys = request.items[::2] if request.op is Op.PUT_ALL else [request.key]
    for key in keys:
        lock = locks.held.get(lock_key(request.map, key))
        if lock is not None:
            return key, lock
    return None
