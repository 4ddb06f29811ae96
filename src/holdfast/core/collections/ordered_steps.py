"""Steps that queues and lists share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.collections.item_order import ItemOrder
from holdfast.core.model.collections import CollectionStep, StepKind
from holdfast.core.model.decisions import Decision, Update
from holdfast.core.model.operations import EventKind
from holdfast.core.model.records import Change


def storing(key: bytes, item: bytes) -> Update:
    return Update(Change.SET, key, item, 0, 0, 0, EventKind.ADDED)


def removal(key: bytes) -> Update:
    return Update(Change.REMOVE, key, b"", 0, 0, 0, EventKind.REMOVED)


class OrderedSteps:
    __slots__ = ("_entries", "_order")

    def __init__(self, order: ItemOrder, entries: Mapping[bytes, bytes]) -> None:
        self._order = order
        self._entries = entries

    def decide(self, step: CollectionStep, items: Sequence[bytes]) -> Decision:
        kind = step.kind
        if kind is StepKind.SIZE:
            return Decision(len(self._order))
        if kind is StepKind.CONTAINS:
            return Decision(self._contains(items))
        if kind is StepKind.ITEMS:
            return Decision([self._entries[key] for key in self._order.keys()])  # noqa: SIM118 - not a dictionary
        if kind is StepKind.REMOVE:
            key = self.find(items[0])
            return Decision(key is not None, (removal(key),) if key is not None else ())
        if kind is StepKind.REMOVE_ALL or kind is StepKind.RETAIN_ALL:
            return self._remove_all(set(items), retain=kind is StepKind.RETAIN_ALL)
        if kind is StepKind.CLEAR:
            return Decision(None, list(map(removal, self._order.keys())))
        raise ValueError(f"{kind.name} is no step of this collection")

    def find(self, item: bytes) -> bytes | None:
        """The key of the first such item; None: there is none."""
        entries = self._entries
        return next((key for key in self._order.keys() if entries[key] == item), None)  # noqa: SIM118

    def _contains(self, items: Sequence[bytes]) -> bool:
        missing = set(items)
        for item in self._entries.values():
            if not missing:
                break
            missing.discard(item)
        return not missing

    def _remove_all(self, these: set[bytes], *, retain: bool) -> Decision:
        entries = self._entries
        gone = [key for key in self._order.keys() if (entries[key] in these) is not retain]  # noqa: SIM118
        return Decision(bool(gone), list(map(removal, gone)))
