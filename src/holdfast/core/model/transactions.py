"""What transactions are made of: locks, writes, branches, and the steps that change these.

A transaction has a *branch* in each partition in which it holds locks or writes. The coordinator, the member that runs
the transaction, gives each branch its steps; the primary of the partition carries them out like any other request, so
its backups, its journal and whoever the partition moves to hold what came of them.
"""

from __future__ import annotations

from enum import IntEnum, unique

import msgspec

from holdfast.config.schema import INTERNAL
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import LIFETIME_MS_MAX
from holdfast.core.model.topology import MappedOn

TransactionId = bytes
"""16 bytes that no other transaction has."""
TRANSACTION_ID_BYTES = 16
EntryKey = tuple[str, bytes]
"""A map and a key in it."""
KEYS_MAX = 100_000
"""Entries that one transaction may lock, read or write."""


class TransactionalWrite(msgspec.Struct, frozen=True, array_like=True):
    """What a transaction makes of an entry."""

    map: str
    key: bytes
    value: bytes | None
    """None: there is no entry afterwards."""
    ttl_ms: int = 0
    max_idle_ms: int = 0
    key_hash: int = 0

    @property
    def entry(self) -> EntryKey:
        """Which entry it is."""
        return self.map, self.key


class ValueSeen(msgspec.Struct, frozen=True, array_like=True):
    """What an optimistic transaction has read, and must find again when it is prepared."""

    map: str
    key: bytes
    value: bytes | None


@unique
class BranchState(IntEnum):
    """What a partition knows of a transaction, beyond the locks that it holds there."""

    PREPARED = 1
    """Its writes are kept, and nobody else may touch these entries until its outcome is known."""
    COMMITTED = 2
    """Its writes are done."""
    ROLLED_BACK = 3
    """They will not be done: whoever wants to prepare it is refused."""


class TransactionBranch(msgspec.Struct, frozen=True, array_like=True):
    """What a partition keeps of a transaction."""

    state: BranchState
    owner: MemberId
    """The coordinator."""
    participants: list[int]
    """All partitions in which it is prepared."""
    writes: list[TransactionalWrite] = []
    """While it is prepared."""


class KeyLock(msgspec.Struct, frozen=True, array_like=True):
    """Who has locked an entry."""

    transaction: TransactionId
    owner: MemberId


# -- steps


class LockKeys(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Lock entries, or wait for them. Answered by their values."""

    transaction: TransactionId
    owner: MemberId
    keys: list[EntryKey]
    wait_ms: int
    mapped: MappedOn | None = None


class PrepareBranch(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Keep these writes, so that they can be done whatever happens.

    `locked`: the transaction holds the locks of what it writes; else it takes them now, and waits for none. With one
    participant alone there is nothing to agree on: the writes are done at once.
    """

    transaction: TransactionId
    owner: MemberId
    participants: list[int]
    writes: list[TransactionalWrite]
    seen: list[ValueSeen]
    locked: bool
    mapped: MappedOn | None = None


class CommitBranch(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """All branches are prepared: do the writes of this one, and release its locks."""

    transaction: TransactionId


class RollBackBranch(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Release what the transaction holds here. `fence`: and refuse to prepare it from now on."""

    transaction: TransactionId
    owner: MemberId
    participants: list[int]
    fence: bool


class AskBranch(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """How does the branch stand? One that is not prepared never will be: that is what the answer rests on."""

    transaction: TransactionId
    owner: MemberId
    participants: list[int]


class ForgetBranches(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Every branch of these transactions knows the outcome: nobody will ask again."""

    transactions: list[TransactionId]


TransactionStep = LockKeys | PrepareBranch | CommitBranch | RollBackBranch | AskBranch | ForgetBranches


def begins(step: TransactionStep) -> bool:
    """Whether the step begins something (`Op.TRANSACT`), rather than ending it (`Op.SETTLE`)."""
    return isinstance(step, LockKeys | PrepareBranch)


def step_problem(step: TransactionStep, partition_count: int) -> str:
    """Why nobody can carry out this step, in words; empty when somebody can."""
    names = step.transactions if isinstance(step, ForgetBranches) else [step.transaction]
    if any(len(name) != TRANSACTION_ID_BYTES for name in names):
        return f"the id of a transaction has {TRANSACTION_ID_BYTES} bytes"
    if isinstance(step, PrepareBranch | RollBackBranch | AskBranch) and not (
        step.participants and all(0 <= one < partition_count for one in step.participants)
    ):
        return f"partitions are 0 to {partition_count - 1}"
    if isinstance(step, PrepareBranch):
        lifetimes = [each for write in step.writes for each in (write.ttl_ms, write.max_idle_ms)]
        if not all(0 <= each <= LIFETIME_MS_MAX for each in lifetimes):
            return f"lifetimes in a transaction are 0 to {LIFETIME_MS_MAX} milliseconds"
        if any(write.map.startswith(INTERNAL) for write in step.writes):
            return f"maps whose names begin with {INTERNAL!r} take no part in transactions"
    if isinstance(step, LockKeys) and not 0 <= step.wait_ms <= LIFETIME_MS_MAX:
        return f"a lock is waited for 0 to {LIFETIME_MS_MAX} milliseconds"
    return ""


@unique
class StepFate(IntEnum):
    """What has come of a step."""

    DONE = 0
    NOT_HELD = 1
    """The transaction does not hold the locks that it should."""
    CHANGED = 2
    """An entry is not any more what the transaction has read."""
    LOCKED = 3
    """Another transaction has locked an entry, and the step may not wait, or has waited long enough."""
    OVER = 4
    """The transaction has been rolled back here."""
    PREPARED = 5
    COMMITTED = 6
    ROLLED_BACK = 7
    """Of `AskBranch`: how the branch stands."""
    REFUSED = 8
    """It cannot be done: `why` says the reason."""
    REMAP = 9
    """It was mapped on a topology in which the partition had another primary: find it again, by this one or later."""


class StepResult(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a step."""

    fate: StepFate
    values: list[bytes | None] = []
    why: str = ""
    holder: TransactionId = b""
    row: int = 0
    """Of `REMAP`: the version of the partition's row since which the primary leads it."""


_encoder = msgspec.msgpack.Encoder()
_steps: msgspec.msgpack.Decoder[TransactionStep] = msgspec.msgpack.Decoder(TransactionStep)
_results = msgspec.msgpack.Decoder(StepResult)
_branches = msgspec.msgpack.Decoder(TransactionBranch)
_locks = msgspec.msgpack.Decoder(KeyLock)


def encode(thing: TransactionStep | StepResult | TransactionBranch | KeyLock) -> bytes:
    """As bytes."""
    return _encoder.encode(thing)


def decode_step(data: bytes) -> TransactionStep:
    """Raises msgspec.MsgspecError when it is none."""
    return _steps.decode(data)


def decode_result(data: bytes) -> StepResult:
    """Raises msgspec.MsgspecError when it is none."""
    return _results.decode(data)


def decode_branch(data: bytes) -> TransactionBranch:
    """Raises msgspec.MsgspecError when it is none."""
    return _branches.decode(data)


def decode_lock(data: bytes) -> KeyLock:
    """Raises msgspec.MsgspecError when it is none."""
    return _locks.decode(data)


# -- how they are kept: as entries of the map `TRANSACTIONS_MAP`

_LOCK = b"L"
_BRANCH = b"T"


def lock_key(name: str, key: bytes) -> bytes:
    """The entry under which the lock of an entry is kept."""
    encoded = name.encode()
    return _LOCK + len(encoded).to_bytes(2, "big") + encoded + key


def locks_of_map(name: str) -> bytes:
    """How the keys begin under which the locks of a map's entries are kept."""
    return lock_key(name, b"")


def entry_of(kept: bytes) -> EntryKey | None:
    """The entry whose lock is kept under this key; None: it is no lock that is kept there."""
    if kept[:1] != _LOCK:
        return None
    end = 3 + int.from_bytes(kept[1:3], "big")
    return kept[3:end].decode(), kept[end:]


def branch_key(transaction: TransactionId) -> bytes:
    """The entry under which a branch is kept."""
    return _BRANCH + transaction


def transaction_of(kept: bytes) -> TransactionId | None:
    """The transaction whose branch is kept under this key; None: it is no branch."""
    return kept[1:] if kept[:1] == _BRANCH else None
