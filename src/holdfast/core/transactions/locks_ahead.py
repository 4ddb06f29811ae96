"""Locks and values for operations that are queued, so that several operations need one round.

Example: a client sends two writes of one transaction together. While the first one asks for its lock, the second one
is queued, and its lock is requested, too. It has its turn when the first is done, and finds its entry locked.

- transactions/C-8: A transaction waits for one lock at a time, that of the operation in progress. A lock that is
  requested ahead is not waited for: if another transaction has it, the operation requests it again in its turn. So
  deadlocks are found as before.
"""

from __future__ import annotations

from enum import Enum

from holdfast.core.model.operations import WHOLE, Op, Outcome, Request, Status
from holdfast.core.model.transaction_orders import OperateIn
from holdfast.core.model.transactions import BranchPlace, EntryKey, LockKeys, StepFate, split_place
from holdfast.core.transactions.mapping import Mapping
from holdfast.core.transactions.running_transactions import ENTRY_BYTES, RunningTransactions
from holdfast.core.transactions.steps import StepReceiver, Steps, result_of
from holdfast.core.transactions.transaction import AheadRequest, TouchedEntry, Transaction
from holdfast.core.transactions.two_phase_commit import TwoPhaseCommit

AHEAD_MOST = 1000
"""Requests ahead of one transaction that are not answered; further operations wait for their turn."""


class OperationNeed(Enum):
    NOTHING = "nothing"
    VALUE = "value"
    LOCK = "lock"


def need_of(transaction: Transaction, order: OperateIn) -> OperationNeed:
    """The operation's need of its entry's partition."""
    request = order.request
    entry = transaction.entries.get((request.map, request.key))
    if entry is not None and (entry.write is not None or entry.locked):
        return OperationNeed.NOTHING
    if transaction.optimistic:
        known = entry is not None and entry.known
        return OperationNeed.NOTHING if known or request.op is Op.SET else OperationNeed.VALUE
    changes = request.op not in (Op.GET, Op.CONTAINS_KEY, Op.READ_COLLECTION) or order.for_update
    return OperationNeed.LOCK if changes or transaction.repeatable else OperationNeed.VALUE


class LocksAhead:
    def __init__(
        self,
        steps: Steps,
        mapping: Mapping,
        running: RunningTransactions,
        commits: TwoPhaseCommit,
    ) -> None:
        self._steps = steps
        self._mapping = mapping
        self._running = running
        self._commits = commits

    def ask(
        self, transaction: Transaction, order: OperateIn, partition: BranchPlace, receiver: StepReceiver
    ) -> None:
        """Request what this queued operation will need, unless an earlier one gets it."""
        request = order.request
        place = (request.map, request.key)
        now = transaction.operation
        assert now is not None, "operations are queued behind another one"
        if (
            request.op in WHOLE
            or place in transaction.ahead
            or place == (now.request.map, now.request.key)
            or len(transaction.ahead) >= AHEAD_MOST
        ):
            return
        need = need_of(transaction, order)
        if need is OperationNeed.NOTHING:
            return
        if need is OperationNeed.LOCK:
            mapped = transaction.map_by(self._mapping, partition)
            step = LockKeys(transaction.id, self._running.me, [place], 0, mapped)
            ticket = self._steps.send(step, partition, receiver)
        else:
            _, of_clients = split_place(partition)
            read = Request(Op.GET, request.map, [of_clients], key=request.key, key_hash=request.key_hash)
            ticket = self._steps.ask(read, receiver)
        ahead = AheadRequest(place, partition, need is OperationNeed.LOCK)
        transaction.ahead[place] = transaction.ahead_of[ticket] = ahead
        self._running.of_ticket[ticket] = transaction

    def is_open(self, transaction: Transaction, place: EntryKey, need: OperationNeed) -> bool:
        """Whether what the operation needs was requested ahead, and is not answered yet."""
        ahead = transaction.ahead.get(place)
        return ahead is not None and not ahead.answered and ahead.locks is (need is OperationNeed.LOCK)

    def answered(self, transaction: Transaction, ticket: int, outcome: Outcome) -> EntryKey:
        ahead = transaction.ahead_of.pop(ticket)
        if not ahead.locks and outcome.status is Status.OK:
            assert outcome.value is None or isinstance(outcome.value, bytes), "an entry is bytes, or none"
            ahead.value, ahead.answered = outcome.value, True
            return ahead.place
        if transaction.ahead.get(ahead.place) is ahead:
            del transaction.ahead[ahead.place]
        if ahead.locks:
            self._locked(transaction, ahead, outcome)
        return ahead.place

    def _locked(self, transaction: Transaction, ahead: AheadRequest, outcome: Outcome) -> None:
        result = result_of(outcome)
        if result is None:
            # It may have the lock.
            transaction.doubted.add(ahead.partition)
            why = f"an entry could not be locked: {outcome.detail or outcome.status.name}"
            self._commits.give_up(transaction, why)
        elif result.fate is StepFate.DONE:
            transaction.holds = True
            entry = TouchedEntry(ahead.partition, locked=True, value=result.values[0])
            transaction.entries[ahead.place] = entry
            self._running.grow(transaction, ENTRY_BYTES + len(ahead.place[1]) + len(entry.value or b""))
