"""The parts of transactions: locks, writes, branches, and the steps that change them.

A transaction has a *branch* in each partition in which it has writes, once it is prepared. The primary carries out the
steps of the coordinator like any other request, so its backups, its journal and the next primary know their effect on
branches. Locks are known to the primary alone (store/K-1).
"""

from __future__ import annotations

from enum import IntEnum, unique

import msgspec

from holdfast.config.schema import INTERNAL
from holdfast.core.model.collections import collection_of
from holdfast.core.model.ids import GROUPS_FROM, MemberId, PartitionId, group_of, place_of
from holdfast.core.model.operations import LIFETIME_MS_MAX
from holdfast.core.model.topology import MappedOn

TransactionId = bytes
"""16 bytes, unique."""
TRANSACTION_ID_BYTES = 16
EntryKey = tuple[str, bytes]
KEYS_MAX = 100_000
"""Entries that one transaction may lock, read or write."""
BranchPlace = int
"""Where a branch is: the number of a partition, for maps with a primary, or of a partition in a zone
(`branch_place`).
"""


def branch_place(zone: int, partition: PartitionId) -> BranchPlace:
    """`zone`: 0: none. Example: partition 7 of maps with a primary is place 7, and in zone 2 it is place 1179655."""
    return group_of(zone, partition) if zone else partition


def split_place(place: BranchPlace) -> tuple[int, PartitionId]:
    """The zone, or 0, and the partition as clients number it."""
    return place_of(place) if place >= GROUPS_FROM else (0, place)


def zone_engine(zone: int) -> bytes:
    """The zone of a step, as its request names it (`Request.expected`); 0: none."""
    return zone.to_bytes(4, "big") if zone else b""


def zone_of_engine(engine: bytes) -> int:
    return int.from_bytes(engine[:4], "big")


class TransactionalWrite(msgspec.Struct, frozen=True, array_like=True):
    map: str
    key: bytes
    value: bytes | None
    """None: the entry is removed."""
    ttl_ms: int = 0
    max_idle_ms: int = 0
    key_hash: int = 0

    @property
    def entry(self) -> EntryKey:
        return self.map, self.key


class ValueSeen(msgspec.Struct, frozen=True, array_like=True):
    """A value that an optimistic transaction has read, and must find again when it is prepared."""

    map: str
    key: bytes
    value: bytes | None

    @property
    def entry(self) -> EntryKey:
        return self.map, self.key


@unique
class BranchState(IntEnum):
    """State of a transaction in a partition, besides its locks."""

    PREPARED = 1
    """Its writes are stored, and the entries locked until the outcome is known."""
    COMMITTED = 2
    ROLLED_BACK = 3
    """A prepare is rejected."""


class TransactionBranch(msgspec.Struct, frozen=True, array_like=True):
    state: BranchState
    owner: MemberId
    participants: list[BranchPlace]
    """All places in which it is prepared."""
    writes: list[TransactionalWrite] = []
    reads: list[EntryKey] = []
    """Entries that were compared when it was prepared. They stay locked, too, until the outcome is known."""


class KeyLock(msgspec.Struct, frozen=True, array_like=True):
    transaction: TransactionId
    owner: MemberId


# -- steps


class LockKeys(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Lock entries, or wait for them. Answered with their values. `confirm`: lock nothing, and answer whether the
    transaction holds these locks, because it commits if it does (transactions/C-7).
    """

    transaction: TransactionId
    owner: MemberId
    keys: list[EntryKey]
    wait_ms: int
    mapped: MappedOn | None = None
    confirm: bool = False


class PrepareBranch(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Store these writes durably for a later commit. `locked`: the transaction holds the locks of its writes;
    otherwise they are taken now, without waiting. If this is the only participant, the writes are applied at
    once (one phase).
    """

    transaction: TransactionId
    owner: MemberId
    participants: list[BranchPlace]
    writes: list[TransactionalWrite]
    seen: list[ValueSeen]
    locked: bool
    mapped: MappedOn | None = None
    held: list[EntryKey] = []
    """Further entries whose locks it must still hold."""

    @property
    def touched(self) -> list[EntryKey]:
        """The entries that stay locked from the prepare on."""
        return [write.entry for write in self.writes] + [seen.entry for seen in self.seen]


class CommitBranch(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """All branches are prepared: apply the writes of this one, and release its locks."""

    transaction: TransactionId


class RollBackBranch(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Release what the transaction holds here. `fence`: also reject a later prepare."""

    transaction: TransactionId
    owner: MemberId
    participants: list[BranchPlace]
    fence: bool
    only_locks: bool = False
    """Its sender has found locks, and no branch. If there is one by now, it stays, and decides."""


class AskBranch(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The state of the branch. Asking fences it: a branch that is not prepared never will be."""

    transaction: TransactionId
    owner: MemberId
    participants: list[BranchPlace]


class ForgetBranches(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """All branches of these transactions know the outcome: no member will ask again."""

    transactions: list[TransactionId]


TransactionStep = LockKeys | PrepareBranch | CommitBranch | RollBackBranch | AskBranch | ForgetBranches


def begins(step: TransactionStep) -> bool:
    """Whether the step begins something (`Op.TRANSACT`) rather than ending it (`Op.SETTLE`)."""
    return isinstance(step, LockKeys | PrepareBranch)


def _is_place(place: BranchPlace, partition_count: int) -> bool:
    zone, partition = split_place(place)
    return 0 <= partition < partition_count and (zone > 0 or place < partition_count)


def step_problem(step: TransactionStep, partition_count: int) -> str:
    """Why the step is invalid; empty: it is valid."""
    names = step.transactions if isinstance(step, ForgetBranches) else [step.transaction]
    if any(len(name) != TRANSACTION_ID_BYTES for name in names):
        return f"the id of a transaction has {TRANSACTION_ID_BYTES} bytes"
    if isinstance(step, PrepareBranch | RollBackBranch | AskBranch) and not (
        step.participants and all(_is_place(one, partition_count) for one in step.participants)
    ):
        return f"partitions are 0 to {partition_count - 1}, each of a zone or of none"
    if isinstance(step, PrepareBranch):
        lifetimes = [each for write in step.writes for each in (write.ttl_ms, write.max_idle_ms)]
        if not all(0 <= each <= LIFETIME_MS_MAX for each in lifetimes):
            return f"lifetimes in a transaction are 0 to {LIFETIME_MS_MAX} milliseconds"
        internal = (name for write in step.writes if (name := write.map).startswith(INTERNAL))
        if any(collection_of(name) is None for name in internal):
            return f"maps whose names begin with {INTERNAL!r} take no part in transactions"
    if isinstance(step, LockKeys) and not 0 <= step.wait_ms <= LIFETIME_MS_MAX:
        return f"a lock is waited for 0 to {LIFETIME_MS_MAX} milliseconds"
    return ""


@unique
class StepFate(IntEnum):
    DONE = 0
    NOT_HELD = 1
    CHANGED = 2
    """Since the transaction read it."""
    LOCKED = 3
    """By another transaction, and the step may not wait any longer."""
    OVER = 4
    PREPARED = 5
    COMMITTED = 6
    ROLLED_BACK = 7
    """This and the two before answer `AskBranch`."""
    REFUSED = 8
    REMAP = 9
    """The partition had another primary in the topology of the step: map it again."""
    GONE = 10
    """The zone was dropped, with all its entries. Never sent: the member that has the step finds it itself."""


class StepResult(msgspec.Struct, frozen=True, array_like=True):
    fate: StepFate
    values: list[bytes | None] = []
    why: str = ""
    holder: TransactionId = b""
    row: int = 0
    """For `REMAP`: the version with which the primary took over."""


def holder_shown(holder: TransactionId) -> str:
    """The holder of a lock, in messages. A client's lock has no transaction."""
    return f"transaction {holder.hex()}" if holder else "a client"


_encoder = msgspec.msgpack.Encoder()
_steps: msgspec.msgpack.Decoder[TransactionStep] = msgspec.msgpack.Decoder(TransactionStep)
_results = msgspec.msgpack.Decoder(StepResult)
_branches = msgspec.msgpack.Decoder(TransactionBranch)
_locks = msgspec.msgpack.Decoder(KeyLock)


def encode(thing: TransactionStep | StepResult | TransactionBranch | KeyLock) -> bytes:
    return _encoder.encode(thing)


def decode_step(data: bytes) -> TransactionStep:
    return _steps.decode(data)


def decode_result(data: bytes) -> StepResult:
    return _results.decode(data)


def decode_branch(data: bytes) -> TransactionBranch:
    return _branches.decode(data)


def decode_lock(data: bytes) -> KeyLock:
    return _locks.decode(data)


# -- storage: entries of the map `TRANSACTIONS_MAP`

_LOCK = b"L"
_BRANCH = b"T"


def lock_key(name: str, key: bytes) -> bytes:
    encoded = name.encode()
    return _LOCK + len(encoded).to_bytes(2, "big") + encoded + key


def locks_of_map(name: str) -> bytes:
    return lock_key(name, b"")


def entry_of(kept: bytes) -> EntryKey | None:
    """The locked entry; None: this is not the key of a lock."""
    if kept[:1] != _LOCK:
        return None
    end = 3 + int.from_bytes(kept[1:3], "big")
    return kept[3:end].decode(), kept[end:]


def branch_key(transaction: TransactionId) -> bytes:
    return _BRANCH + transaction


def transaction_of(kept: bytes) -> TransactionId | None:
    """The transaction; None: this is not the key of a branch."""
    return kept[1:] if kept[:1] == _BRANCH else None
