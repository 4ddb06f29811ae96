"""Commit and rollback of this member's transactions: one phase or two, and the answer to the caller (I3).

- transactions/C-3: A transaction commits when all branches are prepared, and only then. With a single partition it
  needs no second phase: its writes are one batch there.
- transactions/C-7: A transaction commits only if it still holds all its locks, also those of entries that it has not
  written. Locks end with their primary (store/K-1). In partitions with writes prepare looks at them. The others are
  asked before any prepare is sent. A lock that was lost is not taken again, although its entry may have the same value:
  in between, that and other entries of the transaction may have been changed, and changed back.
- transactions/C-4: The caller gets "rolled back" only if nothing of the transaction was or will be applied, and "done"
  only if everything is.

One phase can end in doubt. Example: a transaction writes in partition 1 alone. Its prepare applies the writes and
leaves no branch behind, and the primary crashes before it answers. The prepare is sent again, with the same request id,
to the next primary. That one remembers the id if the writes have reached it; otherwise it finds no locks, and the
transaction is rolled back. As for all requests (routing/R-2), this is right while at most `replication.request_ids`
others have come since. Without ids it cannot distinguish "committed" from "locks lost": the caller gets "unknown". With
two partitions each branch keeps its state until all know the outcome.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import structs

from holdfast.config import Settings
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.operations import Outcome, Status
from holdfast.core.model.transaction_orders import TransactionAnswer, TransactionFate
from holdfast.core.model.transactions import (
    EntryKey,
    LockKeys,
    PrepareBranch,
    StepFate,
    StepResult,
    TransactionalWrite,
    TransactionId,
    TransactionStep,
    ValueSeen,
    holder_shown,
)
from holdfast.core.outbox import Outbox, Reply, ReplyTarget
from holdfast.core.transactions.finishing import Finishing
from holdfast.core.transactions.mapping import Mapping
from holdfast.core.transactions.running_transactions import RunningTransactions
from holdfast.core.transactions.steps import REMAP_NS, Steps, result_of
from holdfast.core.transactions.transaction import Transaction, TransactionPhase

AGAIN_NS = 50 * MILLISECOND
CHECK_WAIT_MS = 1
NOT_HELD = "it does not hold its locks any more: the member that kept them has gone; try it again"
WHY_MAX = 200
"""Characters. The reason is kept as long as the fact of the rollback (`ENDED_MAX`)."""


class TwoPhaseCommit:
    def __init__(
        self,
        settings: Settings,
        out: Outbox,
        steps: Steps,
        finishing: Finishing,
        mapping: Mapping,
        running: RunningTransactions,
    ) -> None:
        self._settings = settings
        self._out = out
        self._steps = steps
        self._finishing = finishing
        self._mapping = mapping
        self._running = running
        self._patience_ns = settings.limits.call_timeout_ms * MILLISECOND
        finishing.observer = self

    # -- rollback

    def roll_back(self, wanted: TransactionId, why: str, reply: ReplyTarget | None) -> None:
        """Impossible once its prepare has begun (transactions/C-5)."""
        transaction = self._running.by_id.get(wanted)
        if transaction is None or transaction.phase is not TransactionPhase.ACTIVE:
            if reply is not None:
                reply(self._no_rollback(wanted, transaction))
            return
        self.give_up(transaction, why[:WHY_MAX] or "its owner rolled it back")
        if reply is not None:
            reply(TransactionAnswer(TransactionFate.DONE))

    def _no_rollback(self, wanted: TransactionId, transaction: Transaction | None) -> TransactionAnswer:
        ended = self._running.ended_reason(wanted)
        if ended is not None:
            return TransactionAnswer(TransactionFate.DONE, why=ended)
        if transaction is None:
            return TransactionAnswer(
                TransactionFate.NOT_ACTIVE, why="there is no such transaction, or it has ended"
            )
        if transaction.phase is TransactionPhase.ROLLING_BACK:
            return TransactionAnswer(TransactionFate.DONE, why=transaction.why)
        return TransactionAnswer(TransactionFate.NOT_DONE, why=f"it is {transaction.phase.value}")

    def give_up(self, transaction: Transaction, why: str) -> None:
        """Answer its waiting callers."""
        transaction.phase, transaction.why = TransactionPhase.ROLLING_BACK, why
        for reply in [transaction.reply, *(reply for _, reply in transaction.queue)]:
            if reply is not None:
                reply(TransactionAnswer(TransactionFate.ROLLED_BACK, why=why))
        transaction.reply = transaction.operation = None
        transaction.queue.clear()
        self._steps.drop(transaction.ticket)
        self._running.of_ticket.pop(transaction.ticket, None)
        self._release(transaction)

    def _release(self, transaction: Transaction) -> None:
        for ticket in transaction.steps:
            self._steps.drop(ticket)
            del self._running.of_ticket[ticket]
        fenced = set(transaction.doubted) | set(transaction.steps.values())
        for ticket, ahead in transaction.ahead_of.items():
            self._steps.drop(ticket)
            del self._running.of_ticket[ticket]
            if ahead.locks:
                fenced.add(ahead.partition)
        transaction.ahead_of.clear()
        transaction.steps.clear()
        if transaction.locking >= 0:
            fenced.add(transaction.locking)
        partitions = transaction.partitions | fenced | set(transaction.participants)
        self._finishing.roll_back(transaction.id, self._running.me, sorted(partitions), frozenset(fenced))

    # -- commit

    def commit(self, wanted: TransactionId, reply: Reply) -> None:
        """See transactions/C-3."""
        transaction = self._running.active(wanted, reply)
        if transaction is None:
            return
        if transaction.operation is not None or transaction.ahead_of:
            reply(TransactionAnswer(TransactionFate.NOT_DONE, why="an operation of it is under way"))
            return
        transaction.reply = reply
        transaction.phase = TransactionPhase.PREPARING
        transaction.answer_by_ns = self._out.now_ns + self._patience_ns
        branches = self._branches(transaction)
        unwritten = self._unwritten(transaction)
        if not branches and not unwritten:
            self._done(transaction)
            return
        participants = transaction.participants = sorted(branches)
        for partition, (writes, seen) in branches.items():
            transaction.prepares[partition] = PrepareBranch(
                transaction.id,
                self._running.me,
                participants,
                writes,
                seen,
                not transaction.optimistic,
                transaction.map_by(self._mapping, partition),
                unwritten.pop(partition, []),
            )
        transaction.checks = unwritten
        self._prepare(transaction)

    def _branches(
        self, transaction: Transaction
    ) -> dict[int, tuple[list[TransactionalWrite], list[ValueSeen]]]:
        branches: dict[int, tuple[list[TransactionalWrite], list[ValueSeen]]] = {}
        for (name, key), entry in transaction.entries.items():
            if entry.write is None and not entry.known:
                continue
            writes, expected = branches.setdefault(entry.partition, ([], []))
            if entry.write is not None:
                writes.append(entry.write)
            if entry.known:
                expected.append(ValueSeen(name, key, entry.value))
        return branches

    def _unwritten(self, transaction: Transaction) -> dict[int, list[EntryKey]]:
        """By partition: entries that it has locked and not written (transactions/C-7)."""
        found: dict[int, list[EntryKey]] = {}
        for place, entry in transaction.entries.items():
            if entry.locked and entry.write is None:
                found.setdefault(entry.partition, []).append(place)
        return found

    def _prepare(self, transaction: Transaction) -> None:
        """Send what is next to the partitions that have no open step: checks of locks, then prepares."""
        under_way = set(transaction.steps.values())
        if transaction.checks:
            for partition, entries in transaction.checks.items():
                if partition not in under_way:
                    mapped = transaction.map_by(self._mapping, partition)
                    step = LockKeys(
                        transaction.id, self._running.me, entries, CHECK_WAIT_MS, mapped, confirm=True
                    )
                    self._send(transaction, step, partition)
            return
        for partition, prepare in transaction.prepares.items():
            if partition not in under_way:
                alone = self._alone(transaction) and self._settings.replication.request_ids
                self._send(transaction, prepare, partition, transaction.id + b"1" if alone else b"")

    def _send(
        self, transaction: Transaction, step: TransactionStep, partition: int, request_id: bytes = b""
    ) -> None:
        ticket = self._steps.send(step, partition, self, request_id=request_id)
        transaction.steps[ticket] = partition
        self._running.of_ticket[ticket] = transaction

    def on_outcome(self, ticket: int, outcome: Outcome) -> None:
        transaction = self._running.of_ticket.pop(ticket)
        self._prepared(transaction, transaction.steps.pop(ticket), outcome)

    def _prepared(self, transaction: Transaction, partition: int, outcome: Outcome) -> None:
        result = result_of(outcome)
        if transaction.phase is TransactionPhase.ROLLING_BACK:
            if result is None:
                transaction.doubted.add(partition)
            if not transaction.steps:
                self._release(transaction)
            return
        assert transaction.phase is TransactionPhase.PREPARING, "prepares are open only while preparing"
        if transaction.checks:
            self._checked(transaction, partition, result, outcome)
        elif result is None and (outcome.status is Status.UNKNOWN or partition in transaction.doubted):
            transaction.doubted.add(partition)
            self._steps.wake(AGAIN_NS)
        elif result is not None and result.fate is StepFate.REMAP:
            # No request waits for it there: `_late` prepares again with the partition's primary of then.
            mapped = transaction.map_by(self._mapping, partition)
            transaction.prepares[partition] = structs.replace(transaction.prepares[partition], mapped=mapped)
            self._steps.wake(REMAP_NS)
        elif _is_prepared(result):
            transaction.holds = True
            # It is prepared, but an earlier try may still be on its way: the partition stays in `doubted`.
            del transaction.prepares[partition]
            if not transaction.prepares:
                self._all_prepared(transaction)
        elif self._alone(transaction) and partition in transaction.doubted:
            # An earlier try may have applied everything, and the partition does not remember it.
            self._doubtful(transaction, "it is unknown whether it was committed")
        else:
            transaction.why = _rollback_reason(result, outcome)
            self._rolled_back(transaction)

    def _checked(
        self, transaction: Transaction, partition: int, result: StepResult | None, outcome: Outcome
    ) -> None:
        """A partition has answered whether the transaction still holds its locks there (transactions/C-7)."""
        if result is None and outcome.status is Status.UNKNOWN:
            self._steps.wake(AGAIN_NS)
        elif result is None:
            transaction.why = _rollback_reason(result, outcome)
            self._rolled_back(transaction)
        elif result.fate is not StepFate.DONE:
            transaction.why = NOT_HELD
            self._rolled_back(transaction)
        else:
            del transaction.checks[partition]
            if not transaction.checks and transaction.prepares:
                self._prepare(transaction)
            elif not transaction.checks:
                self._done(transaction)

    def _alone(self, transaction: Transaction) -> bool:
        return len(transaction.participants) == 1

    def _all_prepared(self, transaction: Transaction) -> None:
        if self._alone(transaction):
            self._done(transaction)
            return
        transaction.phase = TransactionPhase.COMMITTING
        locked = frozenset(transaction.partitions.difference(transaction.participants))
        doubted = frozenset(transaction.doubted)
        self._finishing.commit(transaction.id, self._running.me, transaction.participants, doubted, locked)

    def _rolled_back(self, transaction: Transaction) -> None:
        transaction.phase = TransactionPhase.ROLLING_BACK
        self._answer(transaction, TransactionFate.ROLLED_BACK, transaction.why)
        if not transaction.steps:
            # Otherwise other prepares are open: release when all have answered, so that none can succeed later.
            self._release(transaction)

    def _doubtful(self, transaction: Transaction, why: str) -> None:
        """Report the unknown outcome to the caller, and release the locks."""
        self._answer(transaction, TransactionFate.UNKNOWN, why)
        transaction.phase = TransactionPhase.ROLLING_BACK
        self._release(transaction)

    def _done(self, transaction: Transaction) -> None:
        """All writes are applied. Release locks in partitions without writes."""
        self._answer(transaction, TransactionFate.DONE)
        transaction.phase = TransactionPhase.COMMITTING
        locked = transaction.partitions.difference(transaction.participants)
        self._finishing.roll_back(transaction.id, self._running.me, sorted(locked), frozenset())

    def _answer(self, transaction: Transaction, fate: TransactionFate, why: str = "") -> None:
        reply, transaction.reply = transaction.reply, None
        assert reply is not None, "a commit is answered once"
        reply(TransactionAnswer(fate, why=why))

    def on_finished(self, transaction: TransactionId, *, committed: bool) -> None:
        running = self._running.by_id.get(transaction)
        if running is None:
            return
        if running.reply is not None:
            assert committed, "callers of a transaction that is rolled back are answered before"
            self._answer(running, TransactionFate.DONE)
        self._running.end(running)

    def primaries_gone(self, gone: Collection[MemberId]) -> None:
        """Roll back the transactions whose locks have gone with these members (store/K-1): their owners learn it before
        they commit.
        """
        for transaction in list(self._running.by_id.values()):
            if transaction.phase is TransactionPhase.ACTIVE and any(
                self._mapping.leader(partition) in gone for partition in transaction.partitions
            ):
                self.give_up(transaction, NOT_HELD)

    # -- periodic work

    def retry(self, transaction: Transaction, now_ns: int) -> None:
        """Answer callers that have waited for too long, and retry unknown outcomes."""
        if transaction.phase is TransactionPhase.PREPARING:
            self._late(transaction, now_ns)
        elif transaction.steps and transaction.answer_by_ns <= now_ns:
            self._release(transaction)
        waits = transaction.reply is not None and transaction.phase is not TransactionPhase.ACTIVE
        if waits and transaction.answer_by_ns <= now_ns:
            self._answer(
                transaction,
                TransactionFate.UNKNOWN,
                f"some partition cannot be reached; the transaction is {transaction.phase.value}, and will "
                "be done whole or not at all",
            )

    def _late(self, transaction: Transaction, now_ns: int) -> None:
        if now_ns < transaction.answer_by_ns:
            self._prepare(transaction)
        elif transaction.checks:
            transaction.why = "a partition with locks of it did not answer"
            self._rolled_back(transaction)
        elif self._alone(transaction):
            self._doubtful(
                transaction, "it is unknown whether it was committed: its partition did not answer"
            )
        else:
            # It is unknown whether some branch is prepared: the branches decide (transactions/F-1).
            for ticket in transaction.steps:
                self._steps.drop(ticket)
                del self._running.of_ticket[ticket]
            transaction.steps.clear()
            transaction.phase = TransactionPhase.IN_DOUBT
            self._finishing.ask(transaction.id, self._running.me, transaction.participants)


def _is_prepared(result: StepResult | None) -> bool:
    return result is not None and result.fate is StepFate.DONE


def _rollback_reason(result: StepResult | None, outcome: Outcome) -> str:
    if result is None:
        return f"it could not be prepared: {outcome.detail or outcome.status.name}"
    match result.fate:
        case StepFate.CHANGED:
            return f"an entry of map {result.why!r} that it has read was changed by another writer"
        case StepFate.LOCKED:
            return f"{holder_shown(result.holder)} has locked an entry that it has read or written"
        case StepFate.NOT_HELD:
            return NOT_HELD
        case fate:
            return f"it could not be prepared: {fate.name} {result.why}".rstrip()
