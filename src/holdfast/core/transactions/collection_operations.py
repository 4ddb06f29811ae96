"""Operations of a transaction on a collection: wait, lock it, look at what the step needs, and keep the change.

A poll with a timeout first waits for an item, without a lock, since nothing could be added otherwise. If another one
has taken the item before the collection is locked, the lock is released, and it waits again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.config import Settings
from holdfast.core.model.collections import (
    TRANSACTIONAL,
    WHOLE_COLLECTION,
    CollectionStep,
    StepKind,
    collection_of,
    decode_step,
    encode_step,
    is_set,
    shown_name,
    step_problem,
)
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.levels import STRUCTURES
from holdfast.core.model.operations import Request, Value
from holdfast.core.model.transaction_orders import TransactionAnswer, TransactionFate
from holdfast.core.model.transactions import (
    BranchPlace,
    EntryKey,
    RollBackBranch,
    TransactionalWrite,
    split_place,
)
from holdfast.core.outbox import Outbox
from holdfast.core.transactions.own_items import ItemChange, OwnItems, looked
from holdfast.core.transactions.running_transactions import ENTRY_BYTES, RunningTransactions
from holdfast.core.transactions.steps import StepReceiver, Steps
from holdfast.core.transactions.transaction import CollectionStage, TouchedEntry, Transaction


class Operations(StepReceiver, Protocol):
    """The operations on entries, which share some steps with these."""

    def place(self, request: Request) -> BranchPlace: ...

    def lock(self, transaction: Transaction, place: EntryKey, entry: TouchedEntry) -> None: ...

    def expect(self, transaction: Transaction, ticket: int) -> None: ...

    def reply(self, transaction: Transaction, answer: TransactionAnswer) -> None: ...

    def refuse(self, transaction: Transaction, why: str) -> None: ...


def step_problem_in(request: Request) -> str:
    """Why no transaction can take this step; empty: one can."""
    why, named = step_problem(request), collection_of(request.map)
    if why or named is None:
        return why or "a transaction locks entries itself"
    step = decode_step(request.value)
    if step.kind not in TRANSACTIONAL.get(named[0], ()):
        return f"{step.kind.name} is not done in a transaction on a {named[0]}"
    if len(request.items) != (step.kind in (StepKind.ADD, StepKind.REMOVE)):
        return "a transaction adds items to a collection one at a time, and removes them so"
    return ""


class CollectionOperations:
    def __init__(
        self,
        settings: Settings,
        out: Outbox,
        steps: Steps,
        running: RunningTransactions,
        operations: Operations,
    ) -> None:
        self._settings = settings
        self._out = out
        self._steps = steps
        self._running = running
        self._operations = operations

    def problem(self, name: str) -> str:
        """Why no transaction may read or change the collection of this map; empty: it may."""
        what = f"the {shown_name(name)} takes no part in transactions"
        if not self._out.does(STRUCTURES):
            return f"{what} below feature level {STRUCTURES} of the cluster"
        if self._settings.map(name).raft_zone:
            return f"{what}: it is in a zone"
        return "" if self._settings.map(name).transactional else f"{what}: its setting transactional is false"

    def operate(self, transaction: Transaction, request: Request) -> None:
        """See transactions/C-9."""
        step = decode_step(request.value)
        whole = (request.map, WHOLE_COLLECTION)
        if whole in transaction.entries:
            item = request.items[0] if request.items else b""
            look = CollectionStep(StepKind.LOOK, self._own(transaction, request).passed_over(step, item))
            counts_only = step.kind is StepKind.ADD and not is_set(request.map)
            self._ask(transaction, CollectionStage.LOOK, request, look, [] if counts_only else request.items)
        elif step.wait_ms and not transaction.waits_until_ns:
            transaction.waits_until_ns = self._out.now_ns + step.wait_ms * MILLISECOND
            self._wait(transaction, request, step)
        else:
            transaction.stage = CollectionStage.LOCK
            self._operations.lock(transaction, whole, TouchedEntry(self._operations.place(request)))

    def _own(self, transaction: Transaction, request: Request) -> OwnItems:
        named = collection_of(request.map)
        assert named is not None, "the request was checked"
        return transaction.collections.setdefault(request.map, OwnItems(named[0]))

    def _wait(self, transaction: Transaction, request: Request, step: CollectionStep) -> None:
        left_ms = -(-(transaction.waits_until_ns - self._out.now_ns) // MILLISECOND)
        kind = StepKind.AWAIT_ROOM if step.kind is StepKind.ADD else StepKind.AWAIT_ITEM
        waits = CollectionStep(kind, wait_ms=max(0, left_ms), max_size=step.max_size)
        self._ask(transaction, CollectionStage.WAIT, request, waits)

    def _ask(
        self,
        transaction: Transaction,
        stage: CollectionStage,
        request: Request,
        step: CollectionStep,
        items: Sequence[bytes] = (),
    ) -> None:
        transaction.stage = stage
        _, partition = split_place(self._operations.place(request))
        asked = Request(step.kind.op, request.map, [partition], value=encode_step(step), items=list(items))
        self._operations.expect(transaction, self._steps.ask(asked, self._operations))

    def locked(self, transaction: Transaction, request: Request, entry: TouchedEntry) -> None:
        # It stays locked when it is prepared (operations/T-8).
        entry.write = TransactionalWrite(request.map, WHOLE_COLLECTION, None)
        self._running.grow(transaction, ENTRY_BYTES)
        transaction.entries[request.map, WHOLE_COLLECTION] = entry
        self.operate(transaction, request)

    def on_answer(self, transaction: Transaction, request: Request, value: Value) -> None:
        step = decode_step(request.value)
        match transaction.stage:
            case CollectionStage.WAIT if value is True:
                self.operate(transaction, request)
            case CollectionStage.WAIT if self._out.now_ns < transaction.waits_until_ns:
                self._wait(transaction, request, step)
            case CollectionStage.WAIT:
                self._answer(transaction, False if step.kind is StepKind.ADD else None)
            case CollectionStage.RELEASE:
                self._wait(transaction, request, step)
            case _:
                self._looked(transaction, request, step, value)

    def _looked(self, transaction: Transaction, request: Request, step: CollectionStep, value: Value) -> None:
        try:
            seen = looked(value)
        except ValueError as error:
            self._operations.refuse(transaction, str(error))
            return
        own = self._own(transaction, request)
        answer, change = own.decide(step, request.items[0] if request.items else b"", seen)
        may_wait = step.wait_ms > 0 and (answer is None or answer is False)
        if (
            may_wait
            and self._out.now_ns < transaction.waits_until_ns
            and self._releases(transaction, request)
        ):
            return
        if change is not None:
            own.note(change)
            self._keep(transaction, request.map, change)
        self._answer(transaction, answer)

    def _answer(self, transaction: Transaction, value: Value) -> None:
        self._operations.reply(transaction, TransactionAnswer(TransactionFate.DONE, value))

    def _releases(self, transaction: Transaction, request: Request) -> bool:
        """Release the lock to wait again. Returns False if the transaction has locked something else there."""
        whole = (request.map, WHOLE_COLLECTION)
        place = transaction.entries[whole].partition
        if any(entry.partition == place for key, entry in transaction.entries.items() if key != whole):
            return False
        del transaction.entries[whole]
        self._running.grow(transaction, -ENTRY_BYTES)
        transaction.stage = CollectionStage.RELEASE
        step = RollBackBranch(transaction.id, self._running.me, [place], fence=False, only_locks=True)
        self._operations.expect(transaction, self._steps.send(step, place, self._operations))
        return True

    def _keep(self, transaction: Transaction, name: str, change: ItemChange) -> None:
        key, stored, value = change
        entry = transaction.entries.get((name, key))
        if entry is None:
            place = transaction.entries[name, WHOLE_COLLECTION].partition
            entry = transaction.entries[name, key] = TouchedEntry(place, value=stored)
            self._running.grow(transaction, ENTRY_BYTES + len(key))
        former = entry.write.value if entry.write is not None else None
        self._running.grow(transaction, len(value or b"") - len(former or b""))
        entry.write = TransactionalWrite(name, key, value)
