"""The coordinator of the transactions that were begun on this member (I3; 004 "Update counter flow").

See `running_transactions`, `transaction_operations` and `two_phase_commit`.

Example: a transaction writes x in partition 1 and y in partition 2. It locks both entries (`LockKeys`) and keeps the
new values here. At the commit each partition gets a `PrepareBranch` with its writes and stores them. When both have,
each gets a `CommitBranch`, applies the writes and releases its lock. When both have, `ForgetBranches` removes the
outcome.

- transactions/C-5: A transaction is rolled back at its timeout, unless its prepare has begun.
"""

from __future__ import annotations

from holdfast.config import Settings
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    StoreTogether,
    TransactionAnswer,
    TransactionFate,
)
from holdfast.core.outbox import Outbox, Reply
from holdfast.core.transactions.branch_routing import BranchRouting
from holdfast.core.transactions.finishing import Finishing
from holdfast.core.transactions.mapping import Mapping
from holdfast.core.transactions.own_writes import change_in
from holdfast.core.transactions.running_transactions import (
    ENTRY_BYTES,
    TICK_NS,
    RunningTransactions,
)
from holdfast.core.transactions.steps import Steps
from holdfast.core.transactions.transaction import TouchedEntry, TransactionPhase
from holdfast.core.transactions.transaction_operations import TransactionOperations
from holdfast.core.transactions.two_phase_commit import TwoPhaseCommit


class Coordinator:
    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        steps: Steps,
        finishing: Finishing,
        mapping: Mapping,
        routing: BranchRouting,
    ) -> None:
        self._settings = settings
        self._out = out
        self._steps = steps
        self.running = RunningTransactions(me, settings, out, steps)
        self.commits = TwoPhaseCommit(settings, out, steps, finishing, mapping, self.running)
        self.operations = TransactionOperations(
            settings, out, steps, mapping, self.running, self.commits, routing
        )

    def begin(self, order: BeginTransaction, reply: Reply) -> None:
        if why := self.running.full_reason:
            reply(TransactionAnswer(TransactionFate.NOT_DONE, why=why))
            return
        reply(TransactionAnswer(TransactionFate.DONE, self.running.begin(order).id))

    def store_together(self, order: StoreTogether, reply: Reply) -> None:
        if why := self.operations.map_problem(order.map):
            reply(TransactionAnswer(TransactionFate.NOT_DONE, why=why))
            return
        if self.running.is_crowded(order):
            why = "the transactions of this member keep as much as they may just now (limits.waiting_bytes)"
            reply(TransactionAnswer(TransactionFate.ROLLED_BACK, why=why))
            return
        transaction = self.running.begin(BeginTransaction(optimistic=True, label=order.label))
        for request in order.requests():
            why = self.operations.request_problem(request) or self.operations.size_problem(
                transaction, request
            )
            if why:
                self.commits.give_up(transaction, why)
                reply(TransactionAnswer(TransactionFate.NOT_DONE, why=why))
                return
            place = self.operations.place(request)
            entry = transaction.entries.setdefault((request.map, request.key), TouchedEntry(place))
            self.running.grow(transaction, ENTRY_BYTES + len(request.key) + len(request.value))
            _, entry.write = change_in(request, None, self.operations.lifetimes(request))
        self.commits.commit(transaction.id, reply)

    def on_timer(self) -> None:
        """Roll back transactions at their timeout, and retry what is unknown."""
        now_ns = self._out.now_ns
        self.operations.map_again()
        for transaction in list(self.running.by_id.values()):
            if transaction.phase is TransactionPhase.ACTIVE and now_ns >= transaction.deadline_ns:
                took_ms = (now_ns - transaction.began_ns) // MILLISECOND
                self.commits.give_up(
                    transaction, f"it did not end within its timeout: {took_ms} ms have passed"
                )
            else:
                self.commits.retry(transaction, now_ns)
        if self.running.count:
            self._steps.wake(TICK_NS)

    def removed(self) -> None:
        """This member is in no cluster any more: other members end its transactions."""
        why = "the member that ran it was removed from its cluster"
        for transaction in list(self.running.by_id.values()):
            fate = (
                TransactionFate.ROLLED_BACK
                if transaction.phase is TransactionPhase.ACTIVE
                else TransactionFate.UNKNOWN
            )
            for reply in [transaction.reply, *(reply for _, reply in transaction.queue)]:
                if reply is not None:
                    reply(TransactionAnswer(fate, why=why))
            transaction.why = why
            self.running.end(transaction)
        for ticket in self.running.of_ticket:
            self._steps.drop(ticket)
        self.running.of_ticket.clear()
