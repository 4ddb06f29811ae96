"""Collections and CP objects that have changed, and locks that have ended, since requests that wait for them were last
woken (routing/R-20).
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.model.collections import collection_of
from holdfast.core.model.cp import group_of_map
from holdfast.core.model.decisions import Update
from holdfast.core.model.map_locks import guarded_map

Line = tuple[int, str, bytes]
"""Partition, map and key. Without a map: each lock of the partition."""


class ChangedCollections:
    __slots__ = ("_noted",)

    def __init__(self) -> None:
        self._noted: dict[Line, None] = {}

    def __bool__(self) -> bool:
        return bool(self._noted)

    def note(self, partition: int, name: str, updates: Sequence[Update] = ()) -> None:
        """The content of this map has changed; that of a CP group by these updates. Does nothing if no request waits
        for it.
        """
        if group_of_map(name):
            self._noted.update(((partition, name, update.key), None) for update in updates)
            return
        named = collection_of(name)
        if named is not None and not named[0].is_spread:
            self._noted[partition, name, b""] = None

    def note_lock(self, partition: int, name: str, key: bytes) -> None:
        """The lock with this key in a map of locks has ended, or may have. Changes of the entry that it guarded wait,
        too.
        """
        self._noted[partition, name, key] = None
        if collection_of(guarded := guarded_map(name)) is not None:
            self._noted[partition, guarded, key] = None

    def note_locks(self, partition: int) -> None:
        """Any locks of this partition may have ended."""
        self._noted[partition, "", b""] = None

    def take(self) -> list[Line]:
        """None is left."""
        found = list(self._noted)
        self._noted.clear()
        return found
