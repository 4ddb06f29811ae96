"""A transaction, as the member keeps it on which it was begun."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from holdfast.core.machine import Reply
from holdfast.core.model.topology import UNKNOWN_TOPOLOGY, MappedOn, TopologyVersion
from holdfast.core.model.transaction_orders import OperateIn
from holdfast.core.model.transactions import EntryKey, PrepareBranch, TransactionalWrite, TransactionId
from holdfast.core.transactions.mapping import Mapping


class TransactionPhase(Enum):
    """How far a transaction is."""

    ACTIVE = "active"
    PREPARING = "preparing"
    COMMITTING = "committing"
    ROLLING_BACK = "rolling back"
    IN_DOUBT = "in doubt"
    """Its coordinator asks the branches what the outcome is."""


@dataclass(slots=True)
class TouchedEntry:
    """What a transaction knows of an entry, and makes of it."""

    partition: int
    locked: bool = False
    known: bool = False
    """Whether it was read without a lock."""
    value: bytes | None = None
    """What it was when it was locked or read."""
    write: TransactionalWrite | None = None

    @property
    def present(self) -> bytes | None:
        """What the transaction sees."""
        return self.write.value if self.write is not None else self.value


@dataclass(slots=True)
class Transaction:
    """One that was begun here."""

    id: TransactionId
    began_ns: int
    deadline_ns: int
    optimistic: bool
    repeatable: bool
    label: str
    phase: TransactionPhase = TransactionPhase.ACTIVE
    entries: dict[EntryKey, TouchedEntry] = field(default_factory=dict)
    reply: Reply | None = None
    """Who waits for what is being done."""
    operation: OperateIn | None = None
    ticket: int = 0
    """Of the last operation that had to ask."""
    locking: int = -1
    """The partition in which it waits for a lock, or may have got one without hearing of it."""
    queue: deque[tuple[OperateIn, Reply]] = field(default_factory=deque)
    steps: dict[int, int] = field(default_factory=dict)
    """Prepares that are under way: ticket -> partition."""
    prepares: dict[int, PrepareBranch] = field(default_factory=dict)
    """What is not prepared yet, by partition."""
    participants: list[int] = field(default_factory=list)
    """Where it is prepared, from when it begins to be."""
    doubted: set[int] = field(default_factory=set)
    """Where a prepare may still be on its way."""
    answer_by_ns: int = 0
    why: str = ""
    """Why it is rolled back."""
    size: int = 0
    """Bytes of the entries that it keeps."""
    topology: TopologyVersion = UNKNOWN_TOPOLOGY
    """On which it was mapped: the one of its first lock."""
    holds: bool = False
    """Whether it holds locks."""

    @property
    def partitions(self) -> set[int]:
        """Where it holds locks."""
        return {entry.partition for entry in self.entries.values() if entry.locked}

    def map_by(self, mapping: Mapping, partition: int) -> MappedOn:
        """The topology of its next step in this partition; its own one, while it holds no locks."""
        mapped = mapping.of(partition, holds=self.holds)
        if not self.holds:
            self.topology = mapped.topology
        return mapped
