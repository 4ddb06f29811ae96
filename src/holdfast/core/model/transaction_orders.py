"""Requests of sessions and operators about transactions, and their response."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum, unique

import msgspec

from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import DEFAULT_TTL, LIFETIME_MS_MAX, Op, Request, Value
from holdfast.core.model.topology import UNKNOWN_TOPOLOGY, TopologyVersion
from holdfast.core.model.transactions import EntryKey, TransactionId


class BeginTransaction(msgspec.Struct, frozen=True, tag=1, array_like=True):
    timeout_ms: int = 0
    """0: `transactions.timeout_ms`."""
    optimistic: bool = False
    """Lock nothing before the commit: it is rolled back if anything that it has read has changed by then."""
    repeatable: bool = False
    """If not optimistic: lock entries that are read, too."""
    label: str = ""
    """Shown to operators."""


class OperateIn(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """An operation in the transaction: visible to it at once, to others after the commit."""

    transaction: TransactionId
    request: Request
    for_update: bool = False
    """Lock entries that are read."""


class CommitTransaction(msgspec.Struct, frozen=True, tag=3, array_like=True):
    transaction: TransactionId


class RollBackTransaction(msgspec.Struct, frozen=True, tag=4, array_like=True):
    transaction: TransactionId
    why: str = ""
    """Empty: its owner rolls it back itself."""


class HoldCommits(msgspec.Struct, frozen=True, tag=6, array_like=True):
    """Let no transaction of several partitions begin to commit, for at most `ms`. Answered when those that
    had begun are done, with the number of the view and the number of members. For a cut that shows each
    transaction whole.
    """

    hold: bytes
    ms: int


class ResumeCommits(msgspec.Struct, frozen=True, tag=7, array_like=True):
    """End a hold. Answered in the same way if no commit has begun since `HoldCommits`; otherwise as not done."""

    hold: bytes


class StoreTogether(msgspec.Struct, frozen=True, tag=8, array_like=True):
    """Store entries of one map in a separate transaction and commit it. It takes no locks beforehand and
    waits for none: if another transaction has locked one of the entries, it is rolled back. Without entries:
    would the map take part?
    """

    map: str
    keys: list[bytes]
    values: list[bytes]
    ttl_ms: int = DEFAULT_TTL
    ttls_ms: list[int] = []
    """By entry, instead of `ttl_ms`."""
    label: str = ""

    def problem(self) -> str:
        """Why the order is invalid; empty: it is valid."""
        if len(self.values) != len(self.keys) or len(self.ttls_ms) not in (0, len(self.keys)):
            return "all columns have one value for each key"
        if len(self.keys) > TOGETHER_MAX:
            return f"at most {TOGETHER_MAX} entries are stored together"
        if not all(DEFAULT_TTL <= each <= LIFETIME_MS_MAX for each in (self.ttl_ms, *self.ttls_ms)):
            return f"a lifetime is {DEFAULT_TTL} (the map's own), 0 (for ever) or up to {LIFETIME_MS_MAX} milliseconds"
        return ""

    def requests(self) -> Iterator[Request]:
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
    | StoreTogether
)


HOLD_MS_MAX = 30_000
TOGETHER_MAX = 10_000
"""More would keep a member busy for too long."""


@unique
class TransactionFate(IntEnum):
    DONE = 0
    NOT_DONE = 1
    """The transaction continues."""
    ROLLED_BACK = 2
    UNKNOWN = 3
    """It may have committed; it takes effect as a whole."""
    NOT_ACTIVE = 4


class RunningTransaction(msgspec.Struct, frozen=True, array_like=True):
    transaction: TransactionId
    owner: MemberId
    phase: str
    age_ms: int
    timeout_ms: int
    optimistic: bool
    label: str
    keys: list[EntryKey]
    """Some that it has locked or written."""
    entries: int
    partitions: list[int]
    topology: TopologyVersion = UNKNOWN_TOPOLOGY
    """Topology of its first lock; `0.0` before."""


class LockWait(msgspec.Struct, frozen=True, array_like=True):
    waiter: TransactionId
    owner: MemberId
    """Coordinator of the waiting transaction."""
    holder: TransactionId
    key: EntryKey
    since_ms: int


class TransactionAnswer(msgspec.Struct, frozen=True, array_like=True):
    fate: TransactionFate
    value: Value = None
    why: str = ""
