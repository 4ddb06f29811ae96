"""A metastore for tests: keys with revisions, and invokes carried out at once. One object, no replicas."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.metastore.invoke import (
    Absent,
    AllOf,
    AnyOf,
    Branch,
    Compare,
    Comparison,
    Condition,
    Exists,
    If,
    Invoked,
    MetastoreEntry,
    PutKey,
    Removed,
    Subject,
)
from holdfast.core.zones.zone_keys import KeysRead

Batch = tuple[int, int, list[tuple[MetastoreEntry, MetastoreEntry]]]
"""A revision, when it was, and what it changed: before and after."""


class SmallMetastore:
    def __init__(self) -> None:
        self.entries: dict[bytes, MetastoreEntry] = {}
        self.revision = 0
        self.batches: list[Batch] = []

    def get(self, key: bytes) -> MetastoreEntry:
        return self.entries.get(key, MetastoreEntry(key))

    def read(self, keys: Iterable[bytes]) -> KeysRead:
        return KeysRead([self.get(key) for key in keys], self.revision)

    def scan(self, prefix: bytes) -> KeysRead:
        found = [entry for key, entry in sorted(self.entries.items()) if key.startswith(prefix)]
        return KeysRead(found, self.revision)

    def invoke(self, branch: Branch, now_ms: int = 0) -> Invoked:
        while isinstance(branch, If):
            branch = branch.then if self._holds(branch.condition) else branch.otherwise
        changed = []
        for change in branch.changes:
            before = self.get(change.key)
            value = change.value if isinstance(change, PutKey) else None
            if value is not None or before.exists:
                after = MetastoreEntry(change.key, value, self.revision + 1)
                changed.append((before, after))
        if changed:
            self.revision += 1
            self.entries |= {after.key: after for _, after in changed}
            self.batches.append((self.revision, now_ms, changed))
        return Invoked(branch.answer, self.revision)

    def _holds(self, condition: Condition) -> bool:
        match condition:
            case Exists(key):
                return self.get(key).exists
            case Absent(key):
                return not self.get(key).exists
            case Removed(key):
                return not self.get(key).exists and self.get(key).revision > 0
            case AllOf(conditions):
                return all(map(self._holds, conditions))
            case AnyOf(conditions):
                return any(map(self._holds, conditions))
            case Compare(key, subject, how, than):
                entry = self.get(key)
                found = entry.value if subject is Subject.VALUE else entry.revision.to_bytes(8, "big")
                low, high = (found is None or found < than), (found is not None and found > than)
                return {
                    Comparison.EQUAL: found == than,
                    Comparison.NOT_EQUAL: found != than,
                    Comparison.LESS: low,
                    Comparison.LESS_OR_EQUAL: not high,
                    Comparison.GREATER: high,
                    Comparison.GREATER_OR_EQUAL: not low,
                }[how]
        raise AssertionError(condition)
