"""Locks of clients on single entries of a map: their records, and the requests for them.

The locks of map M are the entries of the internal map `__lock:M`, each in the partition of the entry that it guards.
So backups, migrations, the journal and later primaries have them (store/K-4). The lease of a lock is the time to live
of its entry.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from holdfast.config import KEY_LOCKS
from holdfast.core.model.operations import MAP_NAME_MAX

CLIENT_BYTES = 17
"""A client's UUID, in the form of the protocol."""
_THREAD = Struct(">q")
OWNER_BYTES = CLIENT_BYTES + _THREAD.size
_RECORD = Struct(f">{OWNER_BYTES}sqq")
LOCKED_NAME_MAX = MAP_NAME_MAX - len(KEY_LOCKS)
"""Characters of the name of a map whose entries can be locked."""
ClientUuid = bytes


def owner_of(client: ClientUuid, thread: int | None) -> bytes:
    """The owner of a lock: one thread of one client. `thread`: None: the request names none."""
    return client if thread is None else client + _THREAD.pack(thread)


def client_of(owner: bytes) -> ClientUuid:
    """The client of this owner, or of an encoded lock."""
    return owner[:CLIENT_BYTES]


def locks_of(name: str) -> str:
    """The map with the locks of this one."""
    return KEY_LOCKS + name


def guarded_map(name: str) -> str:
    """The map whose locks this one holds; empty: it holds none."""
    return name.removeprefix(KEY_LOCKS) if name.startswith(KEY_LOCKS) else ""


class MapLock(NamedTuple):
    owner: bytes
    times: int
    """How often its owner has taken it."""
    reference: int
    """The last request that has changed it, so that a repeated one does not change it again; 0: none."""

    def is_of(self, holder: bytes) -> bool:
        """Whether a request of this owner may change the entry. A request without a thread names its client alone."""
        return bool(holder) and self.owner.startswith(holder)


def encode_lock(lock: MapLock) -> bytes:
    return _RECORD.pack(*lock)


def decode_lock(encoded: bytes) -> MapLock:
    return MapLock(*_RECORD.unpack(encoded))
