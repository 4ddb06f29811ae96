"""Steps of a set. Its items are the keys of its map, and the values number them in the order in which they came.

- collections/S-1: An item is in a set at most once.
- collections/S-2: Where all replicas decide, an item is numbered by the updates of its map so far. Example: item 5, the
  last one, is removed. A replica that has seen it would number the next item 6, and one that was filled afterwards 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from holdfast.core.collections.ordered_steps import CLEARING, check_looks, removals, storing
from holdfast.core.model.collections import CollectionStep, StepKind, encode_size
from holdfast.core.model.decisions import Decision

NUMBER_BYTES = 8


class LastNumber:
    """An `Observer`: the highest number that any item has had since it was made."""

    __slots__ = ("number",)

    def __init__(self, entries: Mapping[bytes, bytes]) -> None:
        self.number = 0
        self._see(entries.values())

    def _see(self, numbers: Iterable[bytes]) -> None:
        self.number = max(self.number, int.from_bytes(max(numbers, default=b""), "big"))

    def absorb(self, touched: Mapping[bytes, bytes | None], entries: Mapping[bytes, bytes]) -> None:
        self._see(entries[key] for key in touched if key in entries)

    def complete(self, entries: Mapping[bytes, bytes]) -> bool:
        return True


def decide_set(
    last: int, entries: Mapping[bytes, bytes], step: CollectionStep, items: Sequence[bytes]
) -> Decision:
    """`last`: no item has a higher number."""
    kind = step.kind
    if kind is StepKind.SIZE:
        return Decision(len(entries))
    if kind is StepKind.CONTAINS:
        return Decision(all(item in entries for item in items))
    if kind is StepKind.ITEMS:
        check_looks(len(entries))
        items_in_order: list[None | int | bytes] = [*sorted(entries, key=lambda item: entries[item])]
        return Decision(items_in_order)
    if kind is StepKind.LOOK:
        last_number = last.to_bytes(NUMBER_BYTES, "big")
        known = [(item, entries[item]) for item in items if item in entries]
        return Decision([encode_size(len(entries)), last_number, *(part for pair in known for part in pair)])
    if kind is StepKind.ADD:
        new = [item for item in dict.fromkeys(items) if item not in entries]
        if step.max_size and len(entries) + len(new) > step.max_size:
            return Decision(False)
        numbers = (number.to_bytes(NUMBER_BYTES, "big") for number in count(last + 1))
        return Decision(bool(new), list(map(storing, new, numbers)))
    if kind is StepKind.REMOVE or kind is StepKind.REMOVE_ALL:
        gone = [item for item in dict.fromkeys(items) if item in entries]
    elif kind is StepKind.RETAIN_ALL:
        check_looks(len(entries))
        these = set(items)
        gone = [item for item in entries if item not in these]
    elif kind is StepKind.CLEAR:
        return Decision(None, CLEARING if entries else ())
    else:
        raise ValueError(f"{kind.name} is no step of a set")
    return Decision(bool(gone), removals(gone))
