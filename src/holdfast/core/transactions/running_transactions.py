"""The transactions that were begun on this member and are not over, and why others were rolled back.

- transactions/C-6: What transactions keep here is bounded: their number, what one keeps (`limits.frame_bytes`, for each
  partition is sent its share in one message), and what all do together (`limits.waiting_bytes`).
"""

from __future__ import annotations

from hashlib import blake2b

from holdfast.config import Settings
from holdfast.core.machine import Outbox, Reply
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    RunningTransaction,
    StoreTogether,
    TransactionAnswer,
    TransactionFate,
)
from holdfast.core.model.transactions import TransactionId
from holdfast.core.transactions.steps import Steps
from holdfast.core.transactions.transaction import Transaction, TransactionPhase

TICK_NS = 250 * MILLISECOND
ENDED_MAX = 10_000
"""Of so many transactions that have ended it is known why."""
SHOWN_KEYS = 10
RUNNING_MAX = 50_000
"""Transactions of one member (transactions/C-6)."""
ENTRY_BYTES = 500
"""What an entry takes besides its key and its values, at about."""
LABEL_MAX = 200
"""Characters."""


class RunningTransactions:
    """The transactions of this member, by id and by the tickets of their steps."""

    def __init__(self, me: MemberId, settings: Settings, out: Outbox, steps: Steps) -> None:
        self.me = me
        self._settings = settings
        self._out = out
        self._steps = steps
        self._prefix = blake2b(me.encode(), digest_size=8).digest()
        self._begun = 0
        self.by_id: dict[TransactionId, Transaction] = {}
        self.of_ticket: dict[int, Transaction] = {}
        """By the tickets of the steps whose answers they wait for."""
        self._ended: dict[TransactionId, str] = {}
        self.size = 0
        """Bytes that all transactions keep."""
        self.size_most = settings.limits.bounded(settings.limits.waiting_bytes)

    @property
    def full_reason(self) -> str:
        """Why no other one may begin; empty when one may."""
        full = len(self.by_id) >= RUNNING_MAX
        return f"{RUNNING_MAX} transactions run on this member already" if full else ""

    def runs(self, transaction: TransactionId) -> bool:
        """Whether it was begun here and is not over."""
        return transaction in self.by_id

    @property
    def count(self) -> int:
        """How many are not over."""
        return len(self.by_id)

    @property
    def oldest_ms(self) -> int:
        """The age of the oldest of them; 0 when there is none."""
        first = next(iter(self.by_id.values()), None)
        return (self._out.now_ns - first.began_ns) // MILLISECOND if first is not None else 0

    def told(self) -> list[RunningTransaction]:
        """All of them, the oldest first."""
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
                sorted({entry.partition for entry in each.entries.values()}),
                each.topology,
            )
            for each in self.by_id.values()
        ]

    def begin(self, order: BeginTransaction) -> Transaction:
        """Begin one."""
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
        """The one with this id; None, and `reply` is called, when nothing more can be done in it."""
        transaction = self.by_id.get(wanted)
        if transaction is not None and transaction.phase is TransactionPhase.ACTIVE:
            return transaction
        why = transaction.why if transaction is not None else self._ended.get(wanted)
        if why:
            reply(TransactionAnswer(TransactionFate.ROLLED_BACK, why=why))
        else:
            reply(
                TransactionAnswer(
                    TransactionFate.NOT_ACTIVE, why="there is no such transaction, or it is over"
                )
            )
        return None

    def is_crowded(self, order: StoreTogether) -> bool:
        """Whether there would be room for it at another time (transactions/C-6)."""
        size = ENTRY_BYTES * len(order.keys) + sum(map(len, (*order.keys, *order.values)))
        return len(self.by_id) >= RUNNING_MAX or (bool(self.size) and self.size + size > self.size_most)

    def grow(self, transaction: Transaction, by: int) -> None:
        """It keeps so many bytes more."""
        transaction.size += by
        self.size += by
        assert self.size >= 0, "no more is given back than was kept"

    def end(self, transaction: Transaction) -> None:
        """It is over."""
        del self.by_id[transaction.id]
        self.grow(transaction, -transaction.size)
        if transaction.why:
            self._ended[transaction.id] = transaction.why
            while len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]

    def ended_reason(self, transaction: TransactionId) -> str | None:
        """Why it was rolled back; None: it was not, or that is not known any more."""
        return self._ended.get(transaction)
