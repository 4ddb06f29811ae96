"""Steps on the values of one key of a multimap.

- collections/M-1: A key has an entry exactly as long as it has values.
- collections/M-2: A key has at most `LOOKED_MAX` values, and no more bytes than a response (`end` of the step). Each
  change writes all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.core.collections.ordered_steps import LOOKED_MAX, StepRefused, removal
from holdfast.core.model.collections import CollectionStep, StepKind
from holdfast.core.model.decisions import Decision, Update
from holdfast.core.model.multimap_values import count_values, decode_values, encode_values
from holdfast.core.model.operations import EventKind, Request
from holdfast.core.model.records import Change

AS_LIST: Final = 1
"""`index` of a step that adds: equal values are kept. 0: each value once."""


def decide_multimap(entries: Mapping[bytes, bytes], request: Request, step: CollectionStep) -> Decision:
    encoded, items = entries.get(request.key), request.items
    kind = step.kind
    if kind is StepKind.SIZE:
        return Decision(count_values(encoded) if encoded is not None else 0)
    values = decode_values(encoded) if encoded is not None else []
    if kind is StepKind.CONTAINS:
        return Decision(set(items) <= set(values))
    if kind is StepKind.ITEMS:
        return Decision([*values])
    if kind is StepKind.DRAIN:
        return Decision([*values], (removal(request.key),) if values else ())
    if kind is StepKind.ADD:
        return _add(values, request, step)
    assert kind is StepKind.REMOVE, "there are no other steps of a multimap"
    if items[0] not in values:
        return Decision(False)
    values.remove(items[0])
    return Decision(True, (_storing(request, values) if values else removal(request.key),))


def _add(values: list[bytes], request: Request, step: CollectionStep) -> Decision:
    items: Sequence[bytes] = request.items
    if step.index != AS_LIST:
        known = set(values)
        items = [item for item in dict.fromkeys(items) if item not in known]
    if not items:
        return Decision(False)
    is_new = not values
    values += items
    most = min(step.max_size or LOOKED_MAX, LOOKED_MAX)
    if len(values) > most:
        raise StepRefused(f"a key of this multimap has at most {most} values")
    update = _storing(request, values, EventKind.ADDED if is_new else EventKind.UPDATED)
    if len(update.value) > step.end >= 0:
        raise StepRefused(
            f"the values of one key have at most {step.end} bytes together (limits.answer_bytes)"
        )
    return Decision(True, (update,))


def _storing(request: Request, values: Sequence[bytes], kind: EventKind = EventKind.UPDATED) -> Update:
    return Update(Change.SET, request.key, encode_values(values), 0, 0, request.key_hash, kind)
