"""Steps of a counter: a value of 64 bits, and a version that grows with every change.

- collections/P-1: A change is rejected if its client has seen a later version: the counter has lost changes.
- collections/P-2: An answer that shows that waits for a read barrier (primary_backup/P-7). A primary that was replaced
  and does not know it yet is behind, and the counter has lost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

from holdfast.core.model.collections import CollectionStep, StepKind
from holdfast.core.model.decisions import Decision, Update
from holdfast.core.model.records import Change

COUNT_KEY = b"count"
_COUNT = Struct(">qq")
_HALF = 1 << 63


def decide_counter(entries: Mapping[bytes, bytes], step: CollectionStep) -> Decision:
    present = entries.get(COUNT_KEY, bytes(_COUNT.size))
    value, version = _COUNT.unpack(present)
    behind = step.end > version
    if step.kind is StepKind.COUNT:
        return Decision(present, confirmed=behind, unconfirmed=not behind)
    if behind:
        return Decision(None)
    # As Java's numbers, it overflows without an error.
    changed = _COUNT.pack((value + step.index + _HALF) % (2 * _HALF) - _HALF, version + 1)
    return Decision(changed, (Update(Change.SET, COUNT_KEY, changed, 0, 0),))


def read_count(answer: bytes) -> tuple[int, int]:
    """The value and the version."""
    value, version = _COUNT.unpack(answer)
    return value, version
