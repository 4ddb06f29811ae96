"""Index of the objects that each session of a group holds, beside the entries, derived from them (collections/O-1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nsmallest

from holdfast.core.cp.cp_entries import LockEntry, SemaphoreEntry, decode_entry
from holdfast.core.model.cp import NO_SESSION, CpKind, kind_and_name

_LOCK, _SEMAPHORE = CpKind.LOCK.key(), CpKind.SEMAPHORE.key()
_SESSION = CpKind.SESSION.key()


class HoldingsIndex:
    """An `Observer`. Also counts and lists the sessions of the group."""

    __slots__ = ("_keys", "sessions")

    def __init__(self, entries: Mapping[bytes, bytes]) -> None:
        self._keys: dict[int, dict[bytes, None]] = {}
        self.sessions: dict[int, None] = {}
        for key, stored in entries.items():
            self._note(key, stored)

    def count(self, session: int) -> int:
        """Locks and semaphores that it holds."""
        return len(self._keys.get(session, ()))

    def has(self, session: int, key: bytes) -> bool:
        return key in self._keys.get(session, ())

    def first(self, session: int, most: int) -> list[bytes]:
        """The first of their keys in an order that all replicas share."""
        return nsmallest(most, self._keys.get(session, ()))

    def absorb(self, touched: Mapping[bytes, bytes | None], entries: Mapping[bytes, bytes]) -> None:
        for key, former in touched.items():
            for session in _holders(key, former):
                held = self._keys.get(session)
                if held is not None:
                    held.pop(key, None)
                    if not held:
                        del self._keys[session]
            if key.startswith(_SESSION) and (session_of := _session(key)) is not None:
                self.sessions.pop(session_of, None)
            self._note(key, entries.get(key))

    def complete(self, entries: Mapping[bytes, bytes]) -> bool:
        self._keys.clear()
        self.sessions.clear()
        return True

    def _note(self, key: bytes, stored: bytes | None) -> None:
        if stored is None:
            return
        for session in _holders(key, stored):
            self._keys.setdefault(session, {})[key] = None
        if key.startswith(_SESSION) and (session_of := _session(key)) is not None:
            self.sessions[session_of] = None


def _holders(key: bytes, stored: bytes | None) -> Iterable[int]:
    if not stored:
        return ()
    if key.startswith(_LOCK):
        session = decode_entry(LockEntry, stored).session
        return () if session == NO_SESSION else (session,)
    if key.startswith(_SEMAPHORE):
        return decode_entry(SemaphoreEntry, stored).held
    return ()


def _session(key: bytes) -> int | None:
    """The number of a session, by its key; None: the key is not valid."""
    named = kind_and_name(key)
    return int(named[1]) if named is not None and named[1].isdecimal() else None
