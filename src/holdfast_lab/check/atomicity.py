"""Judge of atomicity: each transaction took effect as a whole or not at all, by writes, reads and the final state.

No value is written twice to one key, so a final value names the transaction that wrote it. If that transaction had read
the key before, the value it read names the previous writer, and so on, down to the initial value. These values are the
*chain* of the key: their writes took effect, and nothing came in between, because transactions hold what they have read
until they end. Values that were read took effect too.

Example: k was a at first. T1 read a and wrote b; T2 read b and wrote c; k is c at the end. The chain is c, b, a. If T3
committed a write of d to k, d is not in the chain: T3 is lost.

A write outside the chain of its key did not take effect, or was undone, if the chain goes down to the initial value, or
if its transaction began after the end of another one whose value is in the chain. Otherwise a writer that did not read
may have overwritten it, and nothing is concluded. Removals leave no name: nothing is known below one, or from a final
absence that may be one. So the judge may find that a removal had no effect, but never that it had one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast_lab.check.linearizability import FOREVER
from holdfast_lab.check.serializability import TransactionOutcome


@dataclass(slots=True)
class WritingTransaction:
    """One transaction as its client saw it. Times are in nanoseconds of one clock for all clients."""

    id: str
    outcome: TransactionOutcome
    start: int
    end: int | None
    """When its outcome was answered; None: never."""
    writes: Mapping[str, str | None]
    """Last value written, by key; None: a removal."""
    reads: Mapping[str, str | None] = field(default_factory=dict)
    """Value read before the key was written; None: absent."""


@dataclass(frozen=True, slots=True)
class _Chain:
    values: frozenset[str]
    """Values that took effect, and were overwritten by a transaction that had read them, or are final."""
    whole: bool
    """Whether no other value ever took effect."""
    since: int


def judge(
    transactions: Iterable[WritingTransaction],
    final: Mapping[str, str | None],
    seen: Iterable[tuple[str, str]] = (),
    initial: Mapping[str, str] | None = None,
) -> list[str]:
    """Transactions that took effect partly, are lost, or took effect though rolled back, and values that were
    never written.

    `final`: all keys at the end; `seen`: keys and values read by others than the transactions; `initial`: the
    keys at the start. Raises ValueError for a duplicate id, or a value that is written twice to a key.
    """
    history = _Writes(transactions, dict(initial or {}))
    shown = set(seen)
    for transaction in history.transactions:
        for key, value in transaction.reads.items():
            if value is not None and value != transaction.writes.get(key):
                shown.add((key, value))
    problems = [
        f"key {key} showed {value}, which was never written there"
        for key, value in sorted(shown | {(key, value) for key, value in final.items() if value is not None})
        if (key, value) not in history.writer and history.initial.get(key) != value
    ]
    chains = {key: history.chain(key, final.get(key)) for key in history.keys}
    for transaction in history.transactions:
        problems += _judge_one(transaction, chains, shown)
    return problems


class _Writes:
    def __init__(self, transactions: Iterable[WritingTransaction], initial: dict[str, str]) -> None:
        self.transactions = list(transactions)
        self.initial = initial
        self.writer: dict[tuple[str, str], WritingTransaction] = {}
        self.keys: dict[str, bool] = {}
        ids: set[str] = set()
        for transaction in self.transactions:
            if transaction.id in ids:
                raise ValueError(f"two transactions have the id {transaction.id}: each needs one of its own")
            ids.add(transaction.id)
            for key, value in transaction.writes.items():
                removes = value is None and transaction.outcome is not TransactionOutcome.ROLLED_BACK
                self.keys[key] = self.keys.get(key, False) or removes
                if value is None:
                    continue
                if (key, value) in self.writer or initial.get(key) == value:
                    raise ValueError(
                        f"{transaction.id} writes {value} to {key}, as was done before: write no value twice"
                    )
                self.writer[key, value] = transaction

    def chain(self, key: str, value: str | None) -> _Chain:
        values: set[str] = set()
        since = FOREVER
        while value is not None and value not in values:
            values.add(value)
            writer = self.writer.get((key, value))
            if writer is None:
                return _Chain(frozenset(values), self.initial.get(key) == value, since)
            if writer.outcome is TransactionOutcome.COMMITTED and writer.end is not None:
                since = min(since, writer.end)
            if key not in writer.reads:
                return _Chain(frozenset(values), whole=False, since=since)
            value = writer.reads[key]
        return _Chain(frozenset(values), value is None and not self.keys[key], since)


def _judge_one(
    transaction: WritingTransaction, chains: Mapping[str, _Chain], shown: set[tuple[str, str]]
) -> list[str]:
    there: list[str] = []
    gone: list[str] = []
    for key, value in transaction.writes.items():
        chain = chains[key]
        if value is not None and value in chain.values:
            there.append(f"{key} held {value}")
            continue
        if value is not None and (key, value) in shown:
            there.append(f"{value} was read in {key}")
        if chain.whole or chain.since < transaction.start:
            gone.append(f"{key} shows nothing of {'its removal' if value is None else value}")
    told = f"{transaction.id} ({transaction.outcome.value})"
    if transaction.outcome is TransactionOutcome.ROLLED_BACK:
        return [f"{told} is there: {', '.join(there)}"] if there else []
    if there and gone:
        return [f"{told} is there by half: {', '.join(there)}; but {', '.join(gone)}"]
    if gone and transaction.outcome is TransactionOutcome.COMMITTED:
        return [f"{told} is lost: {', '.join(gone)}"]
    return []
