"""The transactions that were begun on this member and have not ended, and why others were rolled back.

- transactions/C-6: Transactions are bounded: by number, in the bytes of one (`limits.frame_bytes`, because its share of
  a partition is one message), and in the bytes of all (`limits.waiting_bytes`).
"""

from __future__ import annotations

from hashlib import blake2b

from holdfast.config import Settings
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    RunningTransaction,
    StoreTogether,
    TransactionAnswer,
    TransactionFate,
)
from holdfast.core.model.transactions import TransactionId, split_place
from holdfast.core.outbox import Outbox, Reply
from holdfast.core.transactions.steps import Steps
from holdfast.core.transactions.transaction import Transaction, TransactionPhase

TICK_NS = 250 * MILLISECOND
ENDED_MAX = 10_000
"""Ended transactions remembered with their reason."""
SHOWN_KEYS = 10
RUNNING_MAX = 50_000
"""Transactions of one member (transactions/C-6)."""
ENTRY_BYTES = 500
LABEL_MAX = 200


class RunningTransactions:
    def __init__(self, me: MemberId, settings: Settings, out: Outbox, steps: Steps) -> None:
        self.me = me
        self._settings = settings
        self._out = out
        self._steps = steps
        self._prefix = blake2b(me.encode(), digest_size=8).digest()
        self._begun = 0
        self.by_id: dict[TransactionId, Transaction] = {}
        self.of_ticket: dict[int, Transaction] = {}
        self._ended: dict[TransactionId, str] = {}
        self.size = 0
        self.size_most = settings.limits.bounded(settings.limits.waiting_bytes)

    @property
    def full_reason(self) -> str:
        """Why no transaction may begin now; empty: one may."""
        full = len(self.by_id) >= RUNNING_MAX
        return f"{RUNNING_MAX} transactions run on this member already" if full else ""

    def runs(self, transaction: TransactionId) -> bool:
        return transaction in self.by_id

    @property
    def count(self) -> int:
        return len(self.by_id)

    @property
    def oldest_ms(self) -> int:
        first = next(iter(self.by_id.values()), None)
        return (self._out.now_ns - first.began_ns) // MILLISECOND if first is not None else 0

    def told(self) -> list[RunningTransaction]:
        now_ns = self._out.now_ns
        return [
            RunningTransaction(
                each.id,
                self.me,
                each.phase.value,
                (now_ns - each.began_ns) // MILLISECOND,
                (each.deadline_ns - each.began_ns) // MILLISECOND,
                each.optimistic,
                each.label,
                list(each.entries)[:SHOWN_KEYS],
                len(each.entries),
                sorted({split_place(entry.partition)[1] for entry in each.entries.values()}),
                each.topology,
            )
            for each in self.by_id.values()
        ]

    def begin(self, order: BeginTransaction) -> Transaction:
        self._begun += 1
        transaction = self._prefix + self._begun.to_bytes(8, "big")
        chosen = self._settings.transactions
        timeout_ms = min(max(0, order.timeout_ms) or chosen.timeout_ms, chosen.timeout_max_ms)
        now_ns = self._out.now_ns
        begun = self.by_id[transaction] = Transaction(
            transaction,
            now_ns,
            now_ns + timeout_ms * MILLISECOND,
            order.optimistic,
            order.repeatable,
            order.label[:LABEL_MAX],
        )
        self._steps.wake(TICK_NS)
        return begun

    def active(self, wanted: TransactionId, reply: Reply) -> Transaction | None:
        """The transaction; if it is not active, calls `reply` and returns None."""
        transaction = self.by_id.get(wanted)
        if transaction is not None and transaction.phase is TransactionPhase.ACTIVE:
            return transaction
        why = transaction.why if transaction is not None else self._ended.get(wanted)
        if why:
            reply(TransactionAnswer(TransactionFate.ROLLED_BACK, why=why))
        else:
            reply(
                TransactionAnswer(
                    TransactionFate.NOT_ACTIVE, why="there is no such transaction, or it has ended"
                )
            )
        return None

    def is_crowded(self, order: StoreTogether) -> bool:
        """See transactions/C-6."""
        size = ENTRY_BYTES * len(order.keys) + sum(map(len, (*order.keys, *order.values)))
        return len(self.by_id) >= RUNNING_MAX or (bool(self.size) and self.size + size > self.size_most)

    def grow(self, transaction: Transaction, by: int) -> None:
        transaction.size += by
        self.size += by
        assert self.size >= 0, "only counted bytes are released"

    def end(self, transaction: Transaction) -> None:
        del self.by_id[transaction.id]
        self.grow(transaction, -transaction.size)
        if transaction.why:
            self._ended[transaction.id] = transaction.why
            while len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]

    def ended_reason(self, transaction: TransactionId) -> str | None:
        """Why it was rolled back; None: it was not, or the reason is forgotten."""
        return self._ended.get(transaction)
