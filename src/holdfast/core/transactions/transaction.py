"""A transaction in its coordinator."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from holdfast.core.model.topology import UNKNOWN_TOPOLOGY, MappedOn, TopologyVersion
from holdfast.core.model.transaction_orders import OperateIn
from holdfast.core.model.transactions import (
    BranchPlace,
    EntryKey,
    PrepareBranch,
    TransactionalWrite,
    TransactionId,
)
from holdfast.core.outbox import Reply
from holdfast.core.transactions.mapping import Mapping
from holdfast.core.transactions.own_items import OwnItems


class TransactionPhase(Enum):
    ACTIVE = "active"
    PREPARING = "preparing"
    COMMITTING = "committing"
    ROLLING_BACK = "rolling back"
    IN_DOUBT = "in doubt"
    """Its coordinator asks the branches for the outcome."""


@dataclass(slots=True)
class TouchedEntry:
    partition: BranchPlace
    """Perhaps of a zone."""
    locked: bool = False
    known: bool = False
    """Read without a lock."""
    value: bytes | None = None
    """When it was locked or read."""
    write: TransactionalWrite | None = None

    @property
    def present(self) -> bytes | None:
        return self.write.value if self.write is not None else self.value


@dataclass(slots=True)
class AheadRequest:
    """A lock or a value that was requested for a queued operation, before its turn."""

    place: EntryKey
    partition: BranchPlace
    locks: bool
    value: bytes | None = None
    answered: bool = False
    """Its value is kept until the operation has its turn. A lock that was answered is an entry."""


class CollectionStage(Enum):
    """The question under way of an operation on a collection."""

    NONE = "none"
    WAIT = "wait"
    """Nothing is locked: is there an item, or room for one?"""
    LOCK = "lock"
    LOOK = "look"
    RELEASE = "release"
    """Another one was faster: wait again, without the lock."""


@dataclass(slots=True)
class Transaction:
    id: TransactionId
    began_ns: int
    deadline_ns: int
    optimistic: bool
    repeatable: bool
    label: str
    phase: TransactionPhase = TransactionPhase.ACTIVE
    entries: dict[EntryKey, TouchedEntry] = field(default_factory=dict)
    collections: dict[str, OwnItems] = field(default_factory=dict)
    """Its changes of the collections that it has locked, by map."""
    stage: CollectionStage = CollectionStage.NONE
    waits_until_ns: int = 0
    """The operation on a collection waits until then at most; 0: it has not begun to wait."""
    reply: Reply | None = None
    operation: OperateIn | None = None
    ticket: int = 0
    """The last operation that had to ask a partition."""
    locking: int = -1
    """It waits for a lock there, or may have got one whose answer was lost; -1: none."""
    lock_wait_ms: int = 0
    """The longest that it waits there."""
    queue: deque[tuple[OperateIn, Reply]] = field(default_factory=deque)
    ahead: dict[EntryKey, AheadRequest] = field(default_factory=dict)
    ahead_of: dict[int, AheadRequest] = field(default_factory=dict)
    """Those that are not answered yet, by ticket."""
    awaits: EntryKey | None = None
    """The operation waits for this request that was made ahead."""
    steps: dict[int, int] = field(default_factory=dict)
    """Open prepares: ticket -> partition."""
    checks: dict[int, list[EntryKey]] = field(default_factory=dict)
    """By partition: entries that it has locked and not written, until these locks are confirmed (transactions/C-7)."""
    prepares: dict[int, PrepareBranch] = field(default_factory=dict)
    participants: list[int] = field(default_factory=list)
    """With branches, once the prepare begins."""
    doubted: set[int] = field(default_factory=set)
    """A prepare may still be on its way to these partitions."""
    answer_by_ns: int = 0
    why: str = ""
    size: int = 0
    topology: TopologyVersion = UNKNOWN_TOPOLOGY
    holds: bool = False

    @property
    def partitions(self) -> set[int]:
        return {entry.partition for entry in self.entries.values() if entry.locked}

    def map_by(self, mapping: Mapping, partition: BranchPlace) -> MappedOn | None:
        """The mapping of its next step there. It becomes the transaction's own topology while it holds no locks."""
        mapped = mapping.of(partition, holds=self.holds)
        if not self.holds and mapped is not None:
            self.topology = mapped.topology
        return mapped
