"""Collections whose items have changed since requests that wait for them were last woken (routing/R-20)."""

from __future__ import annotations

from holdfast.core.model.collections import collection_of


class ChangedCollections:
    __slots__ = ("_noted",)

    def __init__(self) -> None:
        self._noted: dict[tuple[int, str], None] = {}

    def __bool__(self) -> bool:
        return bool(self._noted)

    def note(self, partition: int, name: str) -> None:
        """The content of this map has changed. Does nothing if no request waits for such a change."""
        named = collection_of(name)
        if named is not None and not named[0].is_spread:
            self._noted[partition, name] = None

    def take(self) -> list[tuple[int, str]]:
        """Partitions and maps; none is left."""
        found = list(self._noted)
        self._noted.clear()
        return found
