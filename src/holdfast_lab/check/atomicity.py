"""Each transaction is there whole, or not at all: from what it wrote, what others read, and what is there in the end.

No value is written twice to one key. So the final value of a key names the transaction that wrote it; if that one had
read the key before, the value that it read names the one before; and so on, down to what was there at first. That is
the *chain* of the key: these writes happened. As transactions hold what they have read until they end, nothing can have
been in between. What was read was there as well, whoever read it.

A write that is not in the chain of its key did not happen, or was undone, if the chain goes down to what was there at
first; or if its transaction began when another, whose value is in the chain, had ended: it would have come after that.
Else somebody who wrote without reading may have written over it, and nothing is said. Removals leave no name: below
one, and at a final absence that may be one, nothing is known either. That a removal did not happen is known in the same
way as of a write; that it did is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast_lab.check.linearizability import FOREVER
from holdfast_lab.check.serializability import TransactionOutcome


@dataclass(slots=True)
class WritingTransaction:
    """One transaction as its client saw it. Times are of one clock for all clients, in nanoseconds."""

    id: str
    outcome: TransactionOutcome
    start: int
    end: int | None
    """When its outcome was answered; None: it never was."""
    writes: Mapping[str, str | None]
    """By key, what it wrote last; None is a removal."""
    reads: Mapping[str, str | None] = field(default_factory=dict)
    """By key, what it read before it wrote there; None: the key was absent."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """What is known of the values of one key."""

    values: frozenset[str]
    """What was there at some time, and then written over by those who had read it, or is still there."""
    whole: bool
    """Nothing else has ever been there for good."""
    since: int
    """Nothing else has been there since."""


def judge(
    transactions: Iterable[WritingTransaction],
    final: Mapping[str, str | None],
    seen: Iterable[tuple[str, str]] = (),
    initial: Mapping[str, str] | None = None,
) -> list[str]:
    """Transactions that are there by half, lost or there though rolled back, and values that nobody wrote, in words.

    `final` is what all keys hold in the end, `seen` are keys and values that were read by anybody else than the
    transactions, `initial` what was there at first. Raises ValueError when an id is used twice, or a value is written
    twice to a key.
    """
    history = _Writes(transactions, dict(initial or {}))
    shown = set(seen)
    for transaction in history.transactions:
        for key, value in transaction.reads.items():
            if value is not None and value != transaction.writes.get(key):
                shown.add((key, value))
    problems = [
        f"key {key} showed {value}, which nobody wrote there"
        for key, value in sorted(shown | {(key, value) for key, value in final.items() if value is not None})
        if (key, value) not in history.writer and history.initial.get(key) != value
    ]
    chains = {key: history.chain(key, final.get(key)) for key in history.keys}
    for transaction in history.transactions:
        problems += _judge_one(transaction, chains, shown)
    return problems


class _Writes:
    """Who wrote what."""

    def __init__(self, transactions: Iterable[WritingTransaction], initial: dict[str, str]) -> None:
        self.transactions = list(transactions)
        self.initial = initial
        self.writer: dict[tuple[str, str], WritingTransaction] = {}
        self.keys: dict[str, bool] = {}
        """Every key that somebody wrote, and whether it may have been removed."""
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
        """From the final value down."""
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
