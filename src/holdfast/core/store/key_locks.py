"""The locks that transactions hold in one partition; its primary alone knows them (I3; 004 "Update counter flow").

- store/K-1: A lock is not replicated. It ends with its primary, unless it was stored at a handover
  (`PrimaryCopy.store_locks`) or its transaction is prepared: `restore` finds it again in what a new primary holds.
- store/K-2: A handover gets each lock once to store it: in slices, with those that are taken meanwhile, and without
  those that are released. If it is given up, the next one begins with all. The entry of a lock stays until the lock is
  released.
- store/K-3: A new primary reads the locks that it was left in slices of `READ_AT_ONCE` entries. It serves when it knows
  all of them (primary_backup/O-6).

Example: member 1 is the primary of partition 7, and a transaction has locked x and y there. Before 1 hands 7 over to
member 2, it writes both locks as entries of the partition's map of transactions, and 2 takes them over. If 1 crashes
instead, 2 finds no locks. Another transaction may change x now; the first one is rolled back when it prepares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from holdfast.core.model.decisions import LockChanges
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

LOCKS_AT_ONCE: Final = 500
"""A handover stores so many in one step: some milliseconds."""


READ_AT_ONCE: Final = 4000
"""A new primary reads so many in one step: some milliseconds."""
_NONE_LEFT: Mapping[bytes, bytes] = {}


class KeyLocks:
    __slots__ = ("_entries", "_of", "_unread", "_unstored", "changes", "held")

    def __init__(self) -> None:
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
        return (self.held[kept[0]] for kept in self._of.values())

    def change(self, changes: LockChanges) -> None:
        """Take locks, then release all of a transaction. Locks of others are never replaced."""
        for kept, lock in changes.taken:
            if kept not in self.held:
                self.held[kept] = lock
                self._of.setdefault(lock.transaction, []).append(kept)
                if self._unstored is not None:
                    self._unstored[kept] = lock
        released = self._of.pop(changes.released, None)
        if released is not None:
            self.changes += 1
            for kept in released:
                del self.held[kept]
                if self._unstored is not None:
                    self._unstored.pop(kept, None)

    @property
    def unstored(self) -> int:
        """How many locks a handover has still to look at."""
        return len(self.held if self._unstored is None else self._unstored)

    def take_unstored(self, most: int) -> list[tuple[bytes, KeyLock]]:
        """The next ones for a handover to store (store/K-2)."""
        if self._unstored is None:
            self._unstored = self.held.copy()
        return [self._unstored.popitem() for _ in range(min(most, len(self._unstored)))]

    def end_storing(self) -> None:
        """The handover is over, or given up."""
        self._unstored = None

    def clear(self) -> None:
        self.end_storing()
        self._entries, self._unread = _NONE_LEFT, []
        self.held.clear()
        self._of.clear()
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
