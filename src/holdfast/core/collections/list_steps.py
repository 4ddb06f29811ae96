"""Steps of a list, whose items have positions.

- collections/L-1: An item keeps its key while others come and go, so a step changes only the items that it names. When
  keys would become longer than `KEY_BYTES`, as after many insertions at the same place, the items around it get new
  ones: as few as have room between the keys of their neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.collections.item_order import MIDDLE, ItemOrder, keys_between
from holdfast.core.collections.ordered_steps import OrderedSteps, check_looks, looked_at, removal, storing
from holdfast.core.model.collections import CollectionStep, StepKind
from holdfast.core.model.decisions import Decision, Update
from holdfast.core.model.operations import EventKind
from holdfast.core.model.records import Change

STRIDE = 1 << 32
"""Between items that were added at the end, so that others fit between them."""
KEY_BYTES = 128
RENUMBERED = 200
"""So many items before an insertion, and after it, get new keys; more if these would be too long."""


def decide_list(
    order: ItemOrder, entries: Mapping[bytes, bytes], step: CollectionStep, items: Sequence[bytes]
) -> Decision:
    kind, index, size = step.kind, step.index, len(order)
    if kind is StepKind.ADD or kind is StepKind.INSERT:
        return _insert(order, entries, step, items)
    if kind is StepKind.SLICE:
        end = size if step.end < 0 else step.end
        if not 0 <= index <= end <= size:
            return Decision()
        check_looks(end - index)
        return Decision([entries[key] for key in order.keys(index, end)])
    if kind is StepKind.INDEX_OF or kind is StepKind.LAST_INDEX_OF:
        return Decision(_position(order, entries, items[0], last=kind is StepKind.LAST_INDEX_OF))
    if kind not in (StepKind.GET, StepKind.REPLACE, StepKind.REMOVE_AT):
        return OrderedSteps(order, entries).decide(step, items)
    if not 0 <= index < size:
        return Decision()
    key = order.at(index)
    if kind is StepKind.GET:
        return Decision(entries[key])
    if kind is StepKind.REMOVE_AT:
        return Decision(entries[key], (removal(key),))
    return Decision(entries[key], (Update(Change.SET, key, items[0], 0, 0, 0, EventKind.UPDATED),))


def _position(order: ItemOrder, entries: Mapping[bytes, bytes], item: bytes, *, last: bool) -> int:
    keys = looked_at(order.walk(backwards=last))
    found = next((place for place, key in enumerate(keys) if entries[key] == item), -1)
    return len(order) - 1 - found if last and found >= 0 else found


def _insert(
    order: ItemOrder, entries: Mapping[bytes, bytes], step: CollectionStep, items: Sequence[bytes]
) -> Decision:
    size = len(order)
    index = size if step.kind is StepKind.ADD else step.index
    if not 0 <= index <= size:
        return Decision()
    if not items or (step.max_size and size + len(items) > step.max_size):
        return Decision(False)
    low = order.at(index - 1) if index else b""
    high = order.at(index) if index < size else b""
    keys = keys_between(low if low or high else MIDDLE, high, len(items), STRIDE)
    if len(keys[0]) <= KEY_BYTES:
        return Decision(True, list(map(storing, keys, items)))
    return Decision(True, _renumbered(order, entries, index, items))


def _renumbered(
    order: ItemOrder, entries: Mapping[bytes, bytes], index: int, items: Sequence[bytes]
) -> list[Update]:
    """New keys for some items before and after `index`. Listeners hear only of those that are added."""
    reach = RENUMBERED
    while True:
        start, end = max(0, index - reach), min(len(order), index + reach)
        low = order.at(start - 1) if start else b""
        high = order.at(end) if end < len(order) else b""
        before = order.keys(start, end)
        keys = keys_between(low if low or high else MIDDLE, high, len(before) + len(items), STRIDE)
        if len(keys[0]) <= KEY_BYTES or not (low or high):
            break
        reach *= 2
    known, place_of_new = set(keys), index - start
    updates = [Update(Change.REMOVE, key, b"", 0, 0, 0) for key in before if key not in known]
    values = [entries[key] for key in before]
    kept = [*values[:place_of_new], *items, *values[place_of_new:]]
    for place, (key, item) in enumerate(zip(keys, kept, strict=True)):
        kind = EventKind.ADDED if place_of_new <= place < place_of_new + len(items) else None
        updates.append(Update(Change.SET, key, item, 0, 0, 0, kind))
    return updates
