"""The locks that transactions hold in one partition; its primary alone knows them (I3; 004 "Update counter flow").

- store/K-1: A lock is not replicated. It ends with its primary, unless it was stored at a handover
  (`PrimaryCopy.store_locks`) or its transaction is prepared: `restore` finds it again in what a new primary holds.
- store/K-2: A handover gets each lock once to store it: in slices, with those that are taken meanwhile, and without
  those that are released. If it is given up, the next one begins with all. The entry of a lock stays until the lock is
  released.
- store/K-3: A new primary reads the locks that it was left in slices of `READ_AT_ONCE` entries. It serves when it knows
  all of them (primary_backup/O-6).
- store/K-5: The lock of a run of an entry processor ends with its primary: it is not stored at a handover, and has no
  coordinator that could be asked. The next primary lets the processor run again.
- store/K-4: Locks of clients (`model.map_locks`) are replicated entries, unlike those of transactions. A client's lock
  ends when it is released, its lease is over, or its client is gone; not with its primary.

Example: member 1 is the primary of partition 7, and a transaction has locked x and y there. Before 1 hands 7 over to
member 2, it writes both locks as entries of the partition's map of transactions, and 2 takes them over. If 1 crashes
instead, 2 finds no locks. Another transaction may change x now; the first one is rolled back when it prepares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from holdfast.core.model.decisions import LockChanges
from holdfast.core.model.map_locks import MapLock, guarded_map, locks_of
from holdfast.core.model.map_locks import decode_lock as decode_map_lock
from holdfast.core.model.processors import is_run_lock
from holdfast.core.model.transactions import (
    BranchState,
    KeyLock,
    TransactionBranch,
    TransactionId,
    decode_branch,
    decode_lock,
    entry_of,
    lock_key,
    locks_of_map,
    transaction_of,
)
from holdfast.core.store.replica import MapReplica

LOCKS_AT_ONCE: Final = 500
"""A handover stores so many in one step: some milliseconds."""


READ_AT_ONCE: Final = 4000
"""A new primary reads so many in one step: some milliseconds."""
_NONE_LEFT: Mapping[bytes, bytes] = {}
_NO_MAPS: Mapping[str, MapReplica] = {}


class KeyLocks:
    __slots__ = (
        "_entries",
        "_guarding",
        "_maps",
        "_of",
        "_unread",
        "_unstored",
        "changes",
        "closed",
        "held",
    )

    def __init__(self, maps: Mapping[str, MapReplica] = _NO_MAPS) -> None:
        """`maps`: of the partition, among them those with locks of clients."""
        self._maps = maps
        self.closed = False
        """Whether an entry may be locked: then each write has to ask."""
        self._guarding: set[str] = set()
        """Maps whose entries clients have locked; perhaps also some whose locks have ended."""
        self.held: dict[bytes, KeyLock] = {}
        """By `lock_key`."""
        self._of: dict[TransactionId, list[bytes]] = {}
        self._unstored: dict[bytes, KeyLock] | None = None
        """Those that a handover has not looked at; None: no handover has begun to store locks."""
        self._entries = _NONE_LEFT
        self._unread: list[bytes] = []
        """Keys of these entries, whose locks are not known yet (store/K-3)."""
        self.changes = 0
        """Rises when a lock is released, so that those who wait for it look again."""

    def guards(self, name: str) -> bool:
        """Whether any entry of this map is locked."""
        begins = locks_of_map(name)
        return any(kept.startswith(begins) for kept in self.held)

    def of(self, transaction: TransactionId) -> list[bytes]:
        """The `lock_key` of each entry that the transaction has locked."""
        return self._of.get(transaction, [])

    def maps_of(self, transaction: TransactionId) -> list[str]:
        """The maps with entries that the transaction has locked."""
        entries = map(entry_of, self.of(transaction))
        return list(dict.fromkeys(entry[0] for entry in entries if entry is not None))

    def one_of_each(self) -> Iterator[KeyLock]:
        """One lock of each transaction: there may be many more locks."""
        locks = (self.held[kept[0]] for kept in self._of.values())
        return (lock for lock in locks if not is_run_lock(lock))

    def map_lock(self, name: str, key: bytes, now_ns: int) -> MapLock | None:
        """The lock that a client has on this entry; None: none has."""
        if name not in self._guarding or (held := self._maps.get(locks_of(name))) is None:
            return None
        state = held.state
        encoded = state.entries.get(key)
        if encoded is None or (state.expiries and state.expired(key, now_ns, touch=False)):
            return None
        return decode_map_lock(encoded)

    def lease_left_ms(self, name: str, key: bytes, now_ns: int) -> int:
        """Until a present lock ends; 0: it has no lease."""
        held = self._maps.get(locks_of(name))
        expiry = held.state.expiries.get(key) if held is not None else None
        return expiry.remaining_ttl_ms(now_ns) if expiry is not None else 0

    def has_locked(self, name: str, key: bytes) -> bool:
        """Whether a client has locked the entry. A lock counts until it is removed, also when its lease is over."""
        if name not in self._guarding:
            return False
        held = self._maps.get(locks_of(name))
        return held is not None and key in held.state.entries

    def guards_entries(self, name: str) -> bool:
        """Whether clients have locked any entry of this map."""
        return name in self._guarding

    def guarding(self) -> list[str]:
        """Maps in which clients may have locked entries."""
        return sorted(self._guarding)

    def look_at(self, name: str) -> None:
        """The locks of clients on entries of this map have changed."""
        held = self._maps.get(locks_of(name))
        if held is not None and held.state.entries:
            self._guarding.add(name)
        else:
            self._guarding.discard(name)
        self.changes += 1
        self.closed = bool(self.held or self._guarding)

    def find_map_locks(self) -> None:
        """This is a new primary, which has the locks of clients in its copy (store/K-4)."""
        for name in list(self._maps):
            if guarded := guarded_map(name):
                self.look_at(guarded)

    def change(self, changes: LockChanges) -> None:
        """Take locks, then release all of a transaction. Locks of others are never replaced."""
        for kept, lock in changes.taken:
            if kept not in self.held:
                self.held[kept] = lock
                self._of.setdefault(lock.transaction, []).append(kept)
                if self._unstored is not None and not is_run_lock(lock):
                    self._unstored[kept] = lock
        released = self._of.pop(changes.released, None)
        if released is not None:
            self.changes += 1
            for kept in released:
                del self.held[kept]
                if self._unstored is not None:
                    self._unstored.pop(kept, None)
        self.closed = bool(self.held or self._guarding)

    @property
    def unstored(self) -> int:
        """How many locks a handover has still to look at."""
        return len(self._storable() if self._unstored is None else self._unstored)

    def _storable(self) -> dict[bytes, KeyLock]:
        """See store/K-5."""
        return {kept: lock for kept, lock in self.held.items() if not is_run_lock(lock)}

    def take_unstored(self, most: int) -> list[tuple[bytes, KeyLock]]:
        """The next ones for a handover to store (store/K-2)."""
        if self._unstored is None:
            self._unstored = self._storable()
        return [self._unstored.popitem() for _ in range(min(most, len(self._unstored)))]

    def end_storing(self) -> None:
        """The handover is over, or given up."""
        self._unstored = None

    def clear(self) -> None:
        self.end_storing()
        self._entries, self._unread = _NONE_LEFT, []
        self.held.clear()
        self._of.clear()
        self._guarding.clear()
        self.closed = False
        self.changes += 1

    def restore(self, entries: Mapping[bytes, bytes]) -> None:
        """The locks are those that a map of transactions with these entries keeps (store/K-1)."""
        self.begin_restoring(entries)
        while not self.restored:
            self.restore_more()

    def begin_restoring(self, entries: Mapping[bytes, bytes]) -> None:
        """The same in slices (store/K-3). The entries do not change before all are read."""
        self.clear()
        self._entries, self._unread = entries, list(entries)
        self.restore_more()

    @property
    def restored(self) -> bool:
        """Whether all locks are known."""
        return not self._unread

    def restore_more(self) -> bool:
        """Read the next slice; returns `restored`."""
        taken: list[tuple[bytes, KeyLock]] = []
        for kept in self._unread[-READ_AT_ONCE:]:
            transaction = transaction_of(kept)
            if transaction is None:
                taken.append((kept, decode_lock(self._entries[kept])))
            else:
                taken += _locks_of_branch(transaction, decode_branch(self._entries[kept]))
        del self._unread[-READ_AT_ONCE:]
        self.change(LockChanges(taken))
        if not self._unread:
            self._entries = _NONE_LEFT
        return self.restored


def _locks_of_branch(
    transaction: TransactionId, branch: TransactionBranch
) -> Iterator[tuple[bytes, KeyLock]]:
    """A prepared branch keeps what it has written and compared."""
    if branch.state is BranchState.PREPARED:
        lock = KeyLock(transaction, branch.owner)
        for write in branch.writes:
            yield lock_key(write.map, write.key), lock
        for entry in branch.reads:
            yield lock_key(*entry), lock
