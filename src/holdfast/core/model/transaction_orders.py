"""What sessions and operators want of transactions, and what is answered."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum, unique

import msgspec

from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import DEFAULT_TTL, LIFETIME_MS_MAX, Op, Request, Value
from holdfast.core.model.topology import UNKNOWN_TOPOLOGY, TopologyVersion
from holdfast.core.model.transactions import EntryKey, TransactionId


class BeginTransaction(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """Begin one. Answered by its id."""

    timeout_ms: int = 0
    """It is rolled back so long after it began; 0: `transactions.timeout_ms`."""
    optimistic: bool = False
    """Nothing is locked before it commits: what it has read must be the same then, else it is rolled back."""
    repeatable: bool = False
    """Of one that is not optimistic: what it reads is locked, too."""
    label: str = ""
    """Shown to operators."""


class OperateIn(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """Do this in the transaction: seen by it at once, by others when it has committed."""

    transaction: TransactionId
    request: Request
    for_update: bool = False
    """Lock what is read."""


class CommitTransaction(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """Do all of it."""

    transaction: TransactionId


class RollBackTransaction(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """Do nothing of it."""

    transaction: TransactionId
    why: str = ""
    """What its owner is told; empty: it is the owner that wants it."""


class ListTransactions(msgspec.Struct, frozen=True, tag=5, array_like=True):
    """Which run on this member, and what do branches here wait for?"""


class HoldCommits(msgspec.Struct, frozen=True, tag=6, array_like=True):
    """Let no transaction of several partitions go on to commit, for so long at most. Answered when those that had begun
    to are done: by the number of the view, and how many members there are. For a cut that shows each transaction whole.
    """

    hold: bytes
    ms: int


class ResumeCommits(msgspec.Struct, frozen=True, tag=7, array_like=True):
    """They may go on. Answered in the same way if none has since `HoldCommits`, and else not done."""

    hold: bytes


class StoreTogether(msgspec.Struct, frozen=True, tag=8, array_like=True):
    """Store these entries of one map in a transaction of their own, and commit it: answered as a commit is, or not
    done. It locks nothing before, and waits for no lock: while somebody else has one of these entries locked, it is
    rolled back. Without entries: would the map take part?
    """

    map: str
    keys: list[bytes]
    values: list[bytes]
    ttl_ms: int = DEFAULT_TTL
    ttls_ms: list[int] = []
    """For each entry its own, instead of that."""
    label: str = ""

    def problem(self) -> str:
        """Why nobody can carry it out, in words; empty when somebody can."""
        if len(self.values) != len(self.keys) or len(self.ttls_ms) not in (0, len(self.keys)):
            return "all columns have one value for each key"
        if len(self.keys) > TOGETHER_MAX:
            return f"at most {TOGETHER_MAX} entries are stored together"
        if not all(DEFAULT_TTL <= each <= LIFETIME_MS_MAX for each in (self.ttl_ms, *self.ttls_ms)):
            return f"a lifetime is {DEFAULT_TTL} (the map's own), 0 (for ever) or up to {LIFETIME_MS_MAX} milliseconds"
        return ""

    def requests(self) -> Iterator[Request]:
        """Each entry as what is to be done."""
        for at, (key, value) in enumerate(zip(self.keys, self.values, strict=True)):
            ttl_ms = self.ttls_ms[at] if self.ttls_ms else self.ttl_ms
            yield Request(Op.SET, self.map, [0], key, value, ttl_ms=ttl_ms)


TransactionOrder = (
    HoldCommits
    | ResumeCommits
    | BeginTransaction
    | OperateIn
    | CommitTransaction
    | RollBackTransaction
    | ListTransactions
    | StoreTogether
)


HOLD_MS_MAX = 30_000
TOGETHER_MAX = 10_000
"""So many entries keep a member busy for a part of a second."""


@unique
class TransactionFate(IntEnum):
    """What has come of an order."""

    DONE = 0
    NOT_DONE = 1
    """This operation was not done; the transaction goes on."""
    ROLLED_BACK = 2
    """Nothing of the transaction was done, or will be."""
    UNKNOWN = 3
    """Nobody can say yet whether it has committed: all of it has, or will have, or nothing."""
    NOT_ACTIVE = 4
    """There is no such transaction here, or it is over."""


class RunningTransaction(msgspec.Struct, frozen=True, array_like=True):
    """One transaction, for operators."""

    transaction: TransactionId
    owner: MemberId
    phase: str
    age_ms: int
    timeout_ms: int
    optimistic: bool
    label: str
    keys: list[EntryKey]
    """What it has locked or written, the first of them."""
    entries: int
    """How many that is."""
    partitions: list[int]
    topology: TopologyVersion = UNKNOWN_TOPOLOGY
    """On which it was mapped: that of its first lock; `0.0` before."""


class LockWait(msgspec.Struct, frozen=True, array_like=True):
    """A transaction waits for another one."""

    waiter: TransactionId
    owner: MemberId
    """Who runs the one that waits."""
    holder: TransactionId
    key: EntryKey
    since_ms: int
    """For how long."""


class TransactionAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The answer to an order."""

    fate: TransactionFate
    value: Value = None
    why: str = ""
    running: list[RunningTransaction] = []
    """Of `ListTransactions`."""
    waits: list[LockWait] = []
    orphans: int = 0
    """Transactions with branches in partitions that are served here, whose owner has gone."""
