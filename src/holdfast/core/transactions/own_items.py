"""The view of a transaction of a collection that it has locked: the stored items, with its own uncommitted changes.

- transactions/C-9: A transaction locks a collection as a whole before it reads or changes it. So the items that it has
  seen there stay, and the keys of those that it adds are free, until it ends.

Example: a queue has the items a and b. A transaction takes a, adds c, and takes twice more: it gets b and c. When it
commits, it removes the entries of a and b. Nothing of c was ever stored.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from holdfast.core.collections.item_order import MIDDLE, keys_between
from holdfast.core.collections.list_steps import STRIDE
from holdfast.core.collections.set_steps import NUMBER_BYTES
from holdfast.core.model.collections import CollectionKind, CollectionStep, StepKind
from holdfast.core.model.operations import Value

ALL_ITEMS = 1 << 40
ItemChange = tuple[bytes, bytes | None, bytes | None]
"""Key, stored value (None: there is none), and the value from now on (None: it is removed)."""


class Looked(msgspec.Struct, frozen=True):
    """The answer to a LOOK."""

    size: int
    last: bytes
    found: tuple[bytes, bytes] | None
    """Key and value."""


def looked(answer: Value) -> Looked:
    """Raises ValueError if this is no answer to a LOOK."""
    match answer:
        case [bytes(size), bytes(last)]:
            return Looked(int.from_bytes(size, "big"), last, None)
        case [bytes(size), bytes(last), bytes(key), bytes(value)]:
            return Looked(int.from_bytes(size, "big"), last, (key, value))
    raise ValueError("this is no answer to a look at a collection")


class OwnItems:
    """The changes of one collection."""

    __slots__ = ("_added", "_equal", "_kind", "_removed")

    def __init__(self, kind: CollectionKind) -> None:
        self._kind = kind
        self._added: dict[bytes, bytes] = {}
        """Own items, by key, in ascending order: of keys in a queue or list, of numbers in a set."""
        self._removed: dict[bytes, bytes] = {}
        """Stored items, by key."""
        self._equal: Counter[bytes] = Counter()
        """How many of these are equal."""

    def note(self, change: ItemChange) -> None:
        key, stored, value = change
        self._added.pop(key, None)
        if stored is not None and key not in self._removed:
            self._removed[key] = stored
            self._equal[stored] += 1
        if value is not None:
            self._added[key] = value

    def passed_over(self, step: CollectionStep, item: bytes) -> int:
        """How many stored items a LOOK for this step passes over: those that the transaction has taken, or all."""
        if self._kind is CollectionKind.SET:
            return 0
        if step.kind is StepKind.SIZE or step.kind is StepKind.ADD:
            return ALL_ITEMS
        return self._equal[item] if step.kind is StepKind.REMOVE else len(self._removed)

    def decide(self, step: CollectionStep, item: bytes, seen: Looked) -> tuple[Value, ItemChange | None]:
        """The answer, and the change that the step makes."""
        size = seen.size - len(self._removed) + len(self._added)
        if step.kind is StepKind.SIZE:
            return size, None
        if step.kind is StepKind.ADD and step.max_size and size >= step.max_size:
            return False, None
        if self._kind is CollectionKind.SET:
            return self._in_set(step, item, seen)
        if step.kind is StepKind.ADD:
            last = next(reversed(self._added), seen.last)
            if self._kind is CollectionKind.LIST:
                [key] = keys_between(last or MIDDLE, b"", 1, STRIDE)
            else:
                [key] = keys_between(last, b"", 1)
            return True, (key, None, item)
        return self._take(step, item, seen)

    def _take(self, step: CollectionStep, item: bytes, seen: Looked) -> tuple[Value, ItemChange | None]:
        """REMOVE, POLL, or PEEK: a stored item if there is one, otherwise an own one."""
        removes = step.kind is StepKind.REMOVE
        own = next((key for key, value in self._added.items() if not removes or value == item), None)
        change: ItemChange
        if seen.found is not None:
            key, value = seen.found
            change = key, value, None
        elif own is not None:
            value = self._added[own]
            change = own, None, None
        else:
            return (False if removes else None), None
        if removes:
            return True, change
        return value, change if step.kind is StepKind.POLL else None

    def _in_set(self, step: CollectionStep, item: bytes, seen: Looked) -> tuple[Value, ItemChange | None]:
        stored = seen.found[1] if seen.found is not None else None
        present = item in self._added or (stored is not None and item not in self._removed)
        if step.kind is StepKind.REMOVE:
            return present, (item, stored, None) if present else None
        if present:
            return False, None
        last = max(seen.last, self._added[next(reversed(self._added))] if self._added else b"")
        number = (int.from_bytes(last, "big") + 1).to_bytes(NUMBER_BYTES, "big")
        return True, (item, stored, number)
