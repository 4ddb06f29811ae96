"""Steps of a list, whose items have positions.

- collections/L-1: An item keeps its key while others come and go, so a step changes only the items that it names. When
  keys would become longer than `KEY_BYTES`, as after many insertions at the same place, all items get new ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.collections.item_order import MIDDLE, ItemOrder, keys_between
from holdfast.core.collections.ordered_steps import OrderedSteps, removal, storing
from holdfast.core.model.collections import CollectionStep, StepKind
from holdfast.core.model.decisions import Decision, Update
from holdfast.core.model.operations import EventKind
from holdfast.core.model.records import Change

STRIDE = 1 << 32
"""Between items that were added at the end, so that others fit between them."""
KEY_BYTES = 128


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
        return Decision([entries[key] for key in order.keys(index, end)])
    if kind is StepKind.INDEX_OF or kind is StepKind.LAST_INDEX_OF:
        places = range(size) if kind is StepKind.INDEX_OF else range(size - 1, -1, -1)
        return Decision(next((place for place in places if entries[order.at(place)] == items[0]), -1))
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
    """New keys for all items. Listeners hear only of those that are added."""
    before = order.keys()
    keys = keys_between(MIDDLE, b"", len(before) + len(items), STRIDE)
    known = set(keys)
    updates = [Update(Change.REMOVE, key, b"", 0, 0, 0) for key in before if key not in known]
    kept = [*(entries[key] for key in before[:index]), *items, *(entries[key] for key in before[index:])]
    for place, (key, item) in enumerate(zip(keys, kept, strict=True)):
        kind = EventKind.ADDED if index <= place < index + len(items) else None
        updates.append(Update(Change.SET, key, item, 0, 0, 0, kind))
    return updates
