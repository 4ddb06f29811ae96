"""Steps that queues and lists share, and the bounds of the work of any step.

- collections/C-2: A step looks at no more than `LOOKED_MAX` items, and removes no more than `REMOVED_MAX`. A step that
  would need more is rejected and changes nothing. CLEAR is one update.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from holdfast.core.collections.item_order import ItemOrder
from holdfast.core.model.collections import CollectionStep, StepKind, encode_size
from holdfast.core.model.decisions import Decision, Update
from holdfast.core.model.operations import EventKind
from holdfast.core.model.records import Change

LOOKED_MAX = 20_000
REMOVED_MAX = 2_000
CLEARING = (Update(Change.CLEAR),)


class StepRefused(Exception):
    """The step needs too much work."""


def storing(key: bytes, item: bytes) -> Update:
    return Update(Change.SET, key, item, 0, 0, 0, EventKind.ADDED)


def removal(key: bytes) -> Update:
    return Update(Change.REMOVE, key, b"", 0, 0, 0, EventKind.REMOVED)


def removals(keys: Sequence[bytes]) -> list[Update]:
    """Raises StepRefused for too many."""
    if len(keys) > REMOVED_MAX:
        raise StepRefused(f"one request removes at most {REMOVED_MAX} items: remove fewer at a time")
    return list(map(removal, keys))


def check_looks(size: int) -> None:
    """Raises StepRefused if the step would look at so many items."""
    if size > LOOKED_MAX:
        raise StepRefused(
            f"the request would look at {size} items, and one request looks at most at {LOOKED_MAX}: read or take "
            "some of them at a time"
        )


def looked_at(found: Iterable[bytes]) -> Iterator[bytes]:
    """The first items or keys. Raises StepRefused instead of another one."""
    rest = iter(found)
    yield from islice(rest, LOOKED_MAX)
    for _ in rest:
        raise StepRefused(
            f"what the request looks for is not among the {LOOKED_MAX} items that one request looks at"
        )


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
            check_looks(len(self._order))
            return Decision([self._entries[key] for key in self._order.walk()])
        if kind is StepKind.LOOK:
            return Decision(self._look(step.index, items))
        if kind is StepKind.REMOVE:
            key = self.find(items[0])
            return Decision(key is not None, (removal(key),) if key is not None else ())
        if kind is StepKind.REMOVE_ALL or kind is StepKind.RETAIN_ALL:
            return self._remove_all(set(items), retain=kind is StepKind.RETAIN_ALL)
        if kind is StepKind.CLEAR:
            return Decision(None, CLEARING if len(self._order) else ())
        raise ValueError(f"{kind.name} is no step of this collection")

    def find(self, item: bytes) -> bytes | None:
        """The key of the first such item; None: there is none."""
        entries = self._entries
        return next((key for key in looked_at(self._order.walk()) if entries[key] == item), None)

    def _look(self, passed: int, items: Sequence[bytes]) -> list[None | int | bytes]:
        order, entries = self._order, self._entries
        if items:
            found = (key for key in looked_at(order.walk()) if entries[key] == items[0])
            key = next(islice(found, passed, None), None)
        else:
            key = order.at(passed) if passed < len(order) else None
        return [encode_size(len(order)), order.last, *((key, entries[key]) if key is not None else ())]

    def _contains(self, items: Sequence[bytes]) -> bool:
        missing = set(items)
        if not missing:
            return True
        for item in looked_at(self._entries.values()):
            missing.discard(item)
            if not missing:
                return True
        return False

    def _remove_all(self, these: set[bytes], *, retain: bool) -> Decision:
        check_looks(len(self._order))
        entries = self._entries
        gone = [key for key in self._order.walk() if (entries[key] in these) is not retain]
        return Decision(bool(gone), removals(gone))
