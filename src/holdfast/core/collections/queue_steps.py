"""Steps of a queue: first in, first out.

- collections/Q-1: Items have ascending keys. An item is added after the last one, and taken from the front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.collections.item_order import ItemOrder, keys_between
from holdfast.core.collections.ordered_steps import (
    REMOVED_MAX,
    OrderedSteps,
    StepRefused,
    removal,
    removals,
    storing,
)
from holdfast.core.model.collections import CollectionStep, StepKind
from holdfast.core.model.decisions import Decision, Wait


def decide_queue(
    order: ItemOrder, entries: Mapping[bytes, bytes], step: CollectionStep, items: Sequence[bytes]
) -> Decision | Wait:
    kind = step.kind
    if kind is StepKind.ADD:
        if step.max_size and len(order) + len(items) > step.max_size:
            return Wait(step.wait_ms, False) if step.wait_ms else Decision(False)
        keys = keys_between(order.last, b"", len(items)) if items else []
        return Decision(bool(items), list(map(storing, keys, items)))
    if kind is StepKind.POLL:
        first = order.first
        if not first:
            return Wait(step.wait_ms) if step.wait_ms else Decision()
        return Decision(entries[first], (removal(first),))
    if kind is StepKind.AWAIT_ITEM:
        return (
            Decision(True) if len(order) else Wait(step.wait_ms, False) if step.wait_ms else Decision(False)
        )
    if kind is StepKind.AWAIT_ROOM:
        room = not step.max_size or len(order) < step.max_size
        return Decision(room) if room or not step.wait_ms else Wait(step.wait_ms, False)
    if kind is StepKind.PEEK:
        return Decision(entries[order.first] if order.first else None)
    if kind is StepKind.DRAIN:
        count = len(order) if step.end < 0 else min(step.end, len(order))
        if count > REMOVED_MAX:
            raise StepRefused(
                f"one request takes at most {REMOVED_MAX} items out of a queue, and this one would take {count}: drain "
                "fewer at a time"
            )
        taken = order.keys(0, count)
        return Decision([entries[key] for key in taken], removals(taken))
    return OrderedSteps(order, entries).decide(step, items)
